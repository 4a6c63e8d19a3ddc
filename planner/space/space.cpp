#include "planner/space/space.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "planner/space/member_table.hpp"
#include "planner/space/rules.hpp"

namespace flopcast {

namespace {

std::vector<int> divisors_of(int number, int largest) {
  std::vector<int> divisors;
  for (int divisor = 1; divisor <= number / divisor; ++divisor) {
    if (number % divisor == 0) divisors.push_back(divisor);
  }
  for (std::size_t index = divisors.size(); index-- > 0;) {
    const int other = number / divisors[index];
    if (other != divisors[index]) divisors.push_back(other);
  }
  const auto end = std::upper_bound(divisors.begin(), divisors.end(), largest);
  divisors.erase(end, divisors.end());
  return divisors;
}

class Enumeration {
 public:
  Enumeration(const Job& job, const SearchSpace& space) : job_(job), space_(space), table_(job, space) {}

  LayoutSpace run() {
    const int devices = job_.cluster.devices();
    const int most = job_.profile ? 1 : job_.model.heads;
    for (const int tp : chosen(space_.tp, divisors_of(devices, most))) {
      if (const char* reason = broken_tensor_rule(job_, tp)) {
        reject(reason);
      } else if (devices % tp != 0) {
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
  // Beyond any step in use; a schedule of many more takes seconds to make.
  static constexpr int kMostMicrobatches = 16'384;
  static constexpr const char* kUnevenDevices = "tp cp pp do not divide the devices";

  static std::vector<int> chosen(const std::vector<int>& given, const std::vector<int>& all) {
    return given.empty() ? all : given;
  }

  void reject(const std::string& reason, std::int64_t count = 1) { rejected_[reason] += count; }

  void add_contexts(int tp, int rest) {
    const int most = job_.profile ? 1 : std::max(1, job_.training.sequence_length / 2);
    for (const int cp : chosen(space_.cp, divisors_of(rest, most))) {
      if (const char* reason = broken_context_rule(job_, tp, cp)) {
        reject(reason);
      } else if (rest % cp != 0) {
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
      const bool other =
          !space_.dp.empty() && std::find(space_.dp.begin(), space_.dp.end(), group.dp) == space_.dp.end();
      if (other) {
        reject("tp cp pp leave over another dp than asked for");
      } else if (const char* reason = broken_replica_rule(job_, group)) {
        reject(reason);
      } else if (pp > job_.model.layers) {
        reject("more stages than layers");
      } else if (job_.layout.global_batch_size % group.dp != 0) {
        reject("the batch is no multiple of dp");
      } else {
        add_experts(group);
      }
    }
  }

  void add_experts(LayoutGroup group) {
    const int most = job_.model.experts ? job_.model.experts->count : 1;
    for (const int ep : chosen(space_.ep, divisors_of(most, most))) {
      group.ep = ep;
      if (const char* reason = broken_expert_rule(job_, group)) {
        reject(reason);
      } else {
        add_batches(group);
      }
    }
  }

  void add_batches(LayoutGroup group) {
    const int samples = job_.layout.global_batch_size / group.dp;
    for (const int size : chosen(space_.micro_batch_size, divisors_of(samples, samples))) {
      group.micro_batch_size = size;
      if (samples % size != 0) {
        reject("the batch is no multiple of dp mbs");
      } else if (const char* reason = broken_batch_rule(job_, group)) {
        reject(reason);
      } else {
        group.microbatches = samples / size;
        if (group.microbatches > kMostMicrobatches) {
          reject("more than 16,384 microbatches");
        } else {
          add_variants(group);
        }
      }
    }
  }

  void add_variants(LayoutGroup group) {
    const bool splits = group.tp > 1 && job_.layout.tensor_parallel == TensorParallel::k1d;
    const MemberTable::Row& row = table_.row(group);
    for (const int parallel : chosen(space_.sequence_parallel, splits ? std::vector<int>{0, 1} : std::vector<int>{0})) {
      group.sequence_parallel = parallel != 0;
      if (const char* reason = broken_sequence_rule(job_, group)) {
        reject(reason);
        continue;
      }
      std::vector<Recompute> all = {Recompute::kNone, Recompute::kFull};
      if (!job_.training.flash_attention) all.insert(all.begin() + 1, Recompute::kSelective);
      for (const Recompute recompute : space_.recompute.empty() ? all : space_.recompute) {
        group.recompute = recompute;
        if (const char* reason = broken_recompute_rule(job_, group)) {
          reject(reason);
          continue;
        }
        group.members = row.members;
        for (const auto& [reason, count] : row.rejected) reject(reason, count);
        if (row.count > 0) result_.groups.push_back(group);
      }
    }
  }

  const Job& job_;
  const SearchSpace& space_;
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

// The ends hold fewer than an even share; even_stage_layers spreads the rest over the inner stages.
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
  layout.tp = group.tp;
  layout.cp = group.cp;
  layout.pp = group.pp;
  layout.dp = group.dp;
  layout.ep = group.ep;
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
