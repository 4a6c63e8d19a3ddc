#include "planner/space/space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "model/job/rules.hpp"

namespace flopcast {

namespace {

// The keys in the order in which the enumeration fixes them; dp follows from pp.
enum FixedKey : std::size_t { kTp, kCp, kPp, kEtp, kEp, kMicroBatch, kSequenceParallel, kRecompute, kZero, kFixedKeys };
constexpr std::array<std::string_view, kFixedKeys> kKeyNames = {
    "tp", "cp", "pp", "etp", "ep", "micro_batch_size", "sequence_parallel", "recompute", "zero"};

// Rules of a layout, grouped by the last key that they read, after which they can be checked. Rules that read none of
// these keys were checked on the question.
class RulesByKey {
 public:
  RulesByKey() {
    for (const LayoutRule& rule : layout_rules()) {
      const std::vector<std::string_view> keys = keys_of(rule);
      for (std::size_t key = kFixedKeys; key-- > 0;) {
        if (std::find(keys.begin(), keys.end(), kKeyNames[key]) == keys.end()) continue;
        rules_[key].push_back(&rule);
        break;
      }
    }
  }

  // Returns the first rule that the job breaks once the key is fixed; rules of earlier keys are not repeated.
  const LayoutRule* broken(const Job& job, FixedKey key) const {
    const auto& rules = rules_[key];
    const auto first =
        std::find_if(rules.begin(), rules.end(), [&job](const auto* rule) { return rule->broken(job, job.layout); });
    return first == rules.end() ? nullptr : *first;
  }

 private:
  std::array<std::vector<const LayoutRule*>, kFixedKeys> rules_;
};

// The schedules, chunks, sharding and splits that a group may have. They depend on little of the group, so groups share
// rows.
class MemberTable {
 public:
  struct Row {
    std::size_t members = 0;  // index into the lists of members
    std::size_t count = 0;
    std::map<std::string, std::int64_t> rejected;
  };

  // Expects the job's layout to have the group's axes whenever a row is requested.
  MemberTable(Job& job, const RulesByKey& rules, const SearchSpace& space) : job_(job), rules_(rules), space_(space) {}

  const Row& row(const LayoutGroup& group);
  std::vector<std::vector<LayoutMember>> take_members() { return std::move(members_); }

 private:
  struct Key {
    int pipeline_ranks;
    int microbatches;
    bool replicated;
    bool operator<(const Key& other) const;
  };

  Row make_row(const LayoutGroup& group);
  void add_schedule(std::uint16_t schedule, const LayoutGroup& group, Row& row);
  void add_chunks(std::uint16_t schedule, int chunks, const LayoutGroup& group, Row& row);
  std::vector<int> shardings(const LayoutGroup& group, Row& row);
  std::vector<int> chunk_counts(const ScheduleInfo& info, int pipeline_ranks) const;
  bool equivalent_to_1f1b(const ScheduleInfo& info, int pipeline_ranks) const;
  bool has_split(const SplitRule& split, int pipeline_ranks, int chunks) const;

  Job& job_;
  const RulesByKey& rules_;
  const SearchSpace& space_;
  std::map<Key, Row> rows_;
  std::vector<std::vector<LayoutMember>> members_;
};

// True if the schedule allows more than one number of chunks.
bool takes_other_chunks(const ScheduleInfo& info, int pipeline_ranks) {
  constexpr int kPlenty = 4;
  ScheduleRequest request;
  request.pipeline_ranks = pipeline_ranks;
  request.microbatches = kPlenty * pipeline_ranks;
  request.chunks = 2 * info.default_chunks;
  return !refuse_request(info, request);
}

bool MemberTable::Key::operator<(const Key& other) const {
  return std::tie(pipeline_ranks, microbatches, replicated) <
         std::tie(other.pipeline_ranks, other.microbatches, other.replicated);
}

const MemberTable::Row& MemberTable::row(const LayoutGroup& group) {
  const Key key{group.pp, group.microbatches, group.dp * group.cp > 1};
  const auto known = rows_.find(key);
  return known == rows_.end() ? rows_.emplace(key, make_row(group)).first->second : known->second;
}

MemberTable::Row MemberTable::make_row(const LayoutGroup& group) {
  Row row;
  row.members = members_.size();
  members_.emplace_back();
  const bool has_naive = std::any_of(space_.schedules.begin(), space_.schedules.end(),
                                     [](const ScheduleChoice& choice) { return choice.text == "naive"; });
  for (std::size_t index = 0; index < space_.schedules.size(); ++index) {
    const bool is_naive = space_.schedules[index].text == "naive";
    const bool listed_elsewhere = has_naive && space_.schedules.size() > 1 && is_naive != (group.microbatches == 1);
    if (!listed_elsewhere) add_schedule(static_cast<std::uint16_t>(index), group, row);
  }
  row.count = members_.back().size();
  return row;
}

std::vector<int> MemberTable::chunk_counts(const ScheduleInfo& info, int pipeline_ranks) const {
  if (!space_.vpp.empty()) return space_.vpp;
  if (!info.uses_chunks) return {1};
  const int listed = static_cast<int>(job_.layout.stage_layers.size());
  if (listed > 0) return {std::max(1, listed / pipeline_ranks)};
  if (pipeline_ranks == 1) return {1};
  if (!takes_other_chunks(info, pipeline_ranks)) return {info.default_chunks};
  std::vector<int> counts;
  for (int chunks = 2; chunks * pipeline_ranks <= job_.model.layers; ++chunks) {
    if (space_.uneven_chunks || job_.model.layers % (chunks * pipeline_ranks) == 0) counts.push_back(chunks);
  }
  // The schedule's default number of chunks is always tried, whether or not it divides the layers.
  const bool has_default = std::find(counts.begin(), counts.end(), info.default_chunks) != counts.end();
  if (!has_default && info.default_chunks > 1) counts.insert(counts.begin(), info.default_chunks);
  return counts;
}

// On one rank without chunks no order of the passes is faster than 1f1b or holds less.
bool MemberTable::equivalent_to_1f1b(const ScheduleInfo& info, int pipeline_ranks) const {
  if (pipeline_ranks > 1 || !info.uses_chunks || job_.layout.stage_layers.size() > 1) return false;
  if (!space_.vpp.empty() && std::find(space_.vpp.begin(), space_.vpp.end(), 1) == space_.vpp.end()) return false;
  return std::any_of(space_.schedules.begin(), space_.schedules.end(),
                     [](const ScheduleChoice& choice) { return choice.text == "1f1b"; });
}

void MemberTable::add_schedule(std::uint16_t schedule, const LayoutGroup& group, Row& row) {
  const ScheduleChoice& choice = space_.schedules[schedule];
  if (equivalent_to_1f1b(*choice.info, group.pp)) return;
  const auto listed = static_cast<int>(job_.layout.stage_layers.size());
  for (const int chunks : chunk_counts(*choice.info, group.pp)) {
    if (listed > 0 && group.pp * chunks != listed) {
      ++row.rejected["stage_layers does not match the number of stages"];
      continue;
    }
    if (group.pp * chunks > job_.model.layers) {
      ++row.rejected["more stages than layers"];
      continue;
    }
    ScheduleRequest request;
    request.pipeline_ranks = group.pp;
    request.microbatches = group.microbatches;
    request.chunks = chunks;
    request.variant = choice.variant;
    for (const ScheduleNumber& number : schedule_numbers()) request.*number.request = job_.layout.*number.layout;
    if (choice.info->asynchronous) request.accumulation = choice.info->weights.accumulation(request);
    if (refuse_request(*choice.info, request)) {
      ++row.rejected[fmt::format("{} does not support these ranks, microbatches and chunks", choice.text)];
      continue;
    }
    add_chunks(schedule, chunks, group, row);
  }
}

std::vector<int> MemberTable::shardings(const LayoutGroup& group, Row& row) {
  // Forms of data parallelism other than ddp decide the sharding.
  const bool chosen = job_.layout.data_parallel == DataParallel::kDdp;
  const bool open = chosen && space_.zero.empty();
  const int decided = job_.layout.zero;
  const std::vector<int> all = !chosen ? std::vector<int>{decided} : open ? std::vector<int>{0, 1, 2, 3} : space_.zero;
  std::vector<int> valid;
  for (const int zero : all) {
    const bool same_as_none = open && zero > 0 && group.dp * group.cp == 1;
    const bool not_run = open && group.pp > 1 && zero > space_.most_pipelined_zero;
    if (same_as_none || not_run) continue;
    job_.layout.zero = zero;
    if (const LayoutRule* rule = rules_.broken(job_, kZero)) {
      ++row.rejected[std::string(rule->sentence)];
    } else {
      valid.push_back(zero);
    }
  }
  job_.layout.zero = decided;
  return valid;
}

bool MemberTable::has_split(const SplitRule& split, int pipeline_ranks, int chunks) const {
  const int stages = pipeline_ranks * chunks;
  switch (split.kind) {
    case SplitRule::Kind::kUniform:
      return true;
    case SplitRule::Kind::kBalanced:
      return pipeline_ranks > 1 && chunks == 1 && !job_.profile;
    case SplitRule::Kind::kLighterEnds:
      return stages > 2 && !job_.profile && job_.model.layers / stages > std::max(split.fewer_first, split.fewer_last);
  }
  return false;
}

void MemberTable::add_chunks(std::uint16_t schedule, int chunks, const LayoutGroup& group, Row& row) {
  for (const int zero : shardings(group, row)) {
    for (std::size_t split = 0; split < space_.splits.size(); ++split) {
      if (!has_split(space_.splits[split], group.pp, chunks)) continue;
      members_.back().push_back({schedule, static_cast<std::uint16_t>(chunks), static_cast<std::uint8_t>(zero),
                                 static_cast<std::uint8_t>(split)});
    }
  }
}

class Enumeration {
 public:
  Enumeration(const Job& job, const SearchSpace& space)
      : job_(job), own_etp_(job.layout.etp), space_(space), table_(job_, rules_, space) {}

  LayoutSpace run() {
    const int devices = job_.cluster.devices();
    const int most = job_.profile ? 1 : job_.model.heads;
    for (const int tp : chosen(space_.tp, divisors_of(devices, most))) {
      job_.layout.tp = tp;
      if (breaks_rule(kTp)) continue;
      if (devices % tp != 0) {
        reject(kUnevenDevices);
      } else {
        add_contexts(tp, devices / tp);
      }
    }
    result_.members = table_.take_members();
    for (const LayoutGroup& group : result_.groups) {
      result_.valid += static_cast<std::int64_t>(result_.members[group.members].size());
    }
    for (auto& [reason, count] : rejected_) result_.rejected.push_back({reason, count});
    std::stable_sort(result_.rejected.begin(), result_.rejected.end(),
                     [](const RejectedLayouts& a, const RejectedLayouts& b) { return a.count > b.count; });
    return std::move(result_);
  }

 private:
  // Larger than any step in use; schedules of many more microbatches take seconds to generate.
  static constexpr int kMostMicrobatches = 16'384;
  static constexpr const char* kUnevenDevices = "tp cp pp do not divide the devices";

  static std::vector<int> chosen(const std::vector<int>& given, const std::vector<int>& all) {
    return given.empty() ? all : given;
  }

  void reject(const std::string& reason, std::int64_t count = 1) { rejected_[reason] += count; }

  // Returns true and counts the layout if it breaks a rule now that the key is fixed.
  bool breaks_rule(FixedKey key) {
    const LayoutRule* rule = rules_.broken(job_, key);
    if (rule != nullptr) reject(std::string(rule->sentence));
    return rule != nullptr;
  }

  void add_contexts(int tp, int rest) {
    const int most = job_.profile ? 1 : std::max(1, job_.training.sequence_length / 2);
    for (const int cp : chosen(space_.cp, divisors_of(rest, most))) {
      job_.layout.cp = cp;
      if (breaks_rule(kCp)) continue;
      if (rest % cp != 0) {
        reject(kUnevenDevices);
      } else {
        add_pipelines(tp, cp, rest / cp);
      }
    }
  }

  void add_pipelines(int tp, int cp, int rest) {
    for (const int pp : chosen(space_.pp, divisors_of(rest, job_.model.layers))) {
      LayoutGroup group;
      group.tp = tp;
      group.cp = cp;
      group.pp = pp;
      if (rest % pp != 0) {
        reject(kUnevenDevices);
        continue;
      }
      group.dp = rest / pp;
      job_.layout.pp = pp;
      job_.layout.dp = group.dp;
      const bool other =
          !space_.dp.empty() && std::find(space_.dp.begin(), space_.dp.end(), group.dp) == space_.dp.end();
      if (other) {
        reject("tp cp pp leave a different dp than requested");
      } else if (breaks_rule(kPp)) {
        continue;
      } else if (pp > job_.model.layers) {
        reject("more stages than layers");
      } else if (job_.layout.global_batch_size % group.dp != 0) {
        reject("the batch is not a multiple of dp");
      } else {
        add_experts(group);
      }
    }
  }

  void add_experts(LayoutGroup group) {
    const bool foldable =
        job_.model.experts && group.tp > 1 && !own_etp_ && job_.layout.tensor_parallel == TensorParallel::k1d;
    for (const int etp : chosen(space_.etp, foldable ? std::vector<int>{0, 1} : std::vector<int>{0})) {
      group.etp = etp;
      job_.layout.etp = etp == 0 ? own_etp_ : etp;
      if (!breaks_rule(kEtp)) add_expert_ranks(group);
    }
  }

  void add_expert_ranks(LayoutGroup group) {
    const int most = job_.model.experts ? job_.model.experts->count : 1;
    for (const int ep : chosen(space_.ep, divisors_of(most, most))) {
      group.ep = ep;
      job_.layout.ep = ep;
      if (!breaks_rule(kEp)) add_batches(group);
    }
  }

  void add_batches(LayoutGroup group) {
    const int samples = job_.layout.global_batch_size / group.dp;
    for (const int size : chosen(space_.micro_batch_size, divisors_of(samples, samples))) {
      group.micro_batch_size = size;
      job_.layout.micro_batch_size = size;
      if (breaks_rule(kMicroBatch)) continue;
      group.microbatches = samples / size;
      if (group.microbatches > kMostMicrobatches) {
        reject("more than 16,384 microbatches");
      } else {
        add_variants(group);
      }
    }
  }

  void add_variants(LayoutGroup group) {
    const bool splits = group.tp > 1 && job_.layout.tensor_parallel == TensorParallel::k1d;
    const MemberTable::Row& row = table_.row(group);
    for (const int parallel : chosen(space_.sequence_parallel, splits ? std::vector<int>{0, 1} : std::vector<int>{0})) {
      group.sequence_parallel = parallel != 0;
      job_.layout.sequence_parallel = group.sequence_parallel;
      if (breaks_rule(kSequenceParallel)) continue;
      std::vector<Recompute> all = {Recompute::kNone, Recompute::kFull};
      if (!job_.training.flash_attention || job_.layout.recompute_modules)
        all.insert(all.begin() + 1, Recompute::kSelective);
      for (const Recompute recompute : space_.recompute.empty() ? all : space_.recompute) {
        group.recompute = recompute;
        job_.layout.recompute = recompute;
        if (breaks_rule(kRecompute)) continue;
        group.members = row.members;
        for (const auto& [reason, count] : row.rejected) reject(reason, count);
        if (row.count > 0) result_.groups.push_back(group);
      }
    }
  }

  Job job_;  // its layout has the keys fixed so far
  const std::optional<int> own_etp_;
  const SearchSpace& space_;
  const RulesByKey rules_;
  MemberTable table_;
  LayoutSpace result_;
  std::map<std::string, std::int64_t> rejected_;
};

}  // namespace

std::int64_t LayoutSpace::enumerated() const {
  return std::accumulate(rejected.begin(), rejected.end(), valid,
                         [](std::int64_t sum, const RejectedLayouts& one) { return sum + one.count; });
}

LayoutSpace enumerate_layouts(const Job& job, const SearchSpace& space) {
  return Enumeration(job, space).run();
}

ScheduleChoice schedule_choice(std::string_view text) {
  const ScheduleName name = parse_schedule_name(text);
  return {std::string(text.substr(0, text.find(':'))) + (name.variant.empty() ? "" : ":" + name.variant), name.info,
          name.variant};
}

std::vector<ScheduleChoice> default_schedules() {
  std::vector<ScheduleChoice> choices;
  for (const char* name : {"naive", "gpipe", "1f1b", "interleaved", "bfs", "zb-h1", "zbv"}) {
    choices.push_back(schedule_choice(name));
  }
  return choices;
}

std::vector<std::array<Axis, kGridAxes.size()>> usual_placements() {
  return {kGridAxes, {Axis::kTensor, Axis::kContext, Axis::kPipeline, Axis::kData}};
}

std::vector<SplitRule> default_splits() {
  return {{SplitRule::Kind::kUniform, 0, 0}, {SplitRule::Kind::kBalanced, 0, 0}};
}

std::vector<SplitRule> all_splits() {
  std::vector<SplitRule> splits = default_splits();
  constexpr int kMostFewer = 2;
  for (int first = 0; first <= kMostFewer; ++first) {
    for (int last = 0; last <= kMostFewer; ++last) {
      if (first + last > 0) splits.push_back({SplitRule::Kind::kLighterEnds, first, last});
    }
  }
  return splits;
}

namespace {

// The first and last stage hold fewer layers than an even share; even_stage_layers spreads the rest over the inner
// stages.
std::vector<int> lighter_ends(const SplitRule& split, int layers, int stages) {
  const int share = layers / stages;
  const int first = share - split.fewer_first;
  const int last = share - split.fewer_last;
  std::vector<int> counts = {first};
  const std::vector<int> inner = even_stage_layers(layers - first - last, stages - 2);
  counts.insert(counts.end(), inner.begin(), inner.end());
  counts.push_back(last);
  return counts;
}

}  // namespace

Layout layout_of(const Layout& base, const SearchSpace& space, const LayoutGroup& group, const LayoutMember& member,
                 int layers) {
  Layout layout = base;
  layout.sizes() = group.sizes();
  if (group.etp > 0) layout.etp = group.etp;
  layout.micro_batch_size = group.micro_batch_size;
  layout.sequence_parallel = group.sequence_parallel;
  layout.recompute = group.recompute;
  layout.zero = member.zero;
  layout.vpp = member.chunks;
  layout.schedule = space.schedules[member.schedule].text;
  const SplitRule& split = space.splits[member.split];
  if (split.kind == SplitRule::Kind::kLighterEnds) {
    layout.stage_layers = lighter_ends(split, layers, group.pp * member.chunks);
  }
  return layout;
}

}  // namespace flopcast
