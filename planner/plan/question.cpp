#include "planner/plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/text/error.hpp"
#include "model/config/object_reader.hpp"
#include "model/hardware/network_fabric.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"
#include "model/job/rules.hpp"

namespace flopcast {

namespace {

[[noreturn]] void fail(const Origins& origins, const std::string& field, const std::string& problem,
                       const std::string& help) {
  throw ConfigError({field, problem, origins.where(field), help});
}

void fix_schedule(const Origins& origins, const std::string& text, SearchSpace& space) {
  if (text.rfind("file:", 0) == 0) {
    fail(origins, "layout.schedule", "a schedule from a file fits only one layout",
         "use flopcast simulate for it, or give the name of a schedule");
  }
  try {
    const ScheduleName name = parse_schedule_name(text);
    space.schedules = {schedule_choice(text)};
    if (name.chunks) space.vpp = {*name.chunks};
  } catch (const ConfigError& error) {
    fail(origins, "layout.schedule", error.diagnostic().problem, error.diagnostic().help);
  }
}

void read_splits(const nlohmann::json& layout, const Job& job, SearchSpace& space) {
  space.splits = default_splits();
  const auto given = layout.find("stage_layers");
  if (given == layout.end()) return;
  const bool balanced = given->is_string() && *given == "balanced" && !job.profile;
  // A balanced split starts from the prices of the uniform one, so both are candidates.
  if (!balanced) space.splits = {SplitRule()};
}

// Fixes the axes that the job sets; the planner chooses the others.
void fix_axes(const ObjectReader& reader, const Layout& given, const Origins& origins, SearchSpace& space) {
  const auto fix = [&reader](std::string_view key, auto value, auto& axis) {
    if (reader.has(key)) axis = {value};
  };
  for (const Axis axis : kAxes) fix(name_of(axis), given[axis], space[axis]);
  fix("micro_batch_size", given.micro_batch_size, space.micro_batch_size);
  fix("zero", given.zero, space.zero);
  fix("sequence_parallel", given.sequence_parallel ? 1 : 0, space.sequence_parallel);
  fix("recompute", given.recompute, space.recompute);
  if (reader.has("schedule")) {
    fix_schedule(origins, given.schedule, space);
  } else {
    space.schedules = default_schedules();
  }
  if (given.vpp) space.vpp = {*given.vpp};
  if (given.etp) space.etp = {*given.etp};
}

// True if a rule can be checked once for the question instead of for every layout: if it reads nothing that the planner
// chooses, or a single key that the job sets and that rarely works with a layer profile.
bool checked_once(const LayoutRule& rule, const ObjectReader& reader, bool has_profile) {
  if (has_profile && (rule.keys == "sequence_parallel" || rule.keys == "recompute")) return reader.has(rule.keys);
  const std::vector<std::string_view> keys = keys_of(rule);
  return std::all_of(keys.begin(), keys.end(), [](std::string_view key) {
    return field_named(layout_fields(), key).planning != Planning::kChosen;
  });
}

// Takes over the layout keys that not every layout can have.
void copy_forms(const ObjectReader& reader, const Layout& given, Job& job) {
  for (const Field<Layout>& field : layout_fields()) {
    if (field.planning == Planning::kPossible) field.copy(given, job.layout);
  }
  Job asked = job;
  asked.layout = given;
  for (const LayoutRule& rule : layout_rules()) {
    if (!checked_once(rule, reader, job.profile.has_value())) continue;
    if (rule.broken(asked, asked.layout)) refuse_layout(reader, asked, rule);
  }
}

// Checks listed layers against the fixed axes only; the other layouts of the space are rejected one by one.
void check_listed_layers(const PlanQuestion& question, const Origins& origins) {
  const std::vector<int>& layers = question.job.layout.stage_layers;
  const std::string given = fmt::format("[{}]", fmt::join(layers, ", "));
  const long sum = std::accumulate(layers.begin(), layers.end(), 0L);
  if (layers.empty() || sum != question.job.model.layers) {
    fail(origins, "layout.stage_layers",
         fmt::format("{} sums to {}, but the model has {} layers", given, sum, question.job.model.layers),
         "list the layers of every stage, or omit the key so that the planner chooses the split");
  }
  const SearchSpace& space = question.space;
  if (space.pp.empty()) return;
  const int ranks = space.pp.front();
  const int stages = static_cast<int>(layers.size());
  const bool divides = stages % ranks == 0;
  if (divides && (space.vpp.empty() || space.vpp.front() * ranks == stages)) return;
  const std::string asked =
      space.vpp.empty() ? fmt::format("pp {}", ranks) : fmt::format("pp {} · vpp {}", ranks, space.vpp.front());
  fail(origins, "layout.stage_layers", fmt::format("{} lists {} stages, which does not match {}", given, stages, asked),
       "the list needs pp · vpp entries");
}

// The layout without the keys that the planner chooses, and with a batch that follows the number of devices. Forms that
// not every layout can have become rules of the space.
nlohmann::json layout_for_reading(const nlohmann::json& layout) {
  nlohmann::json rest = layout;
  for (const Field<Layout>& field : layout_fields()) {
    if (field.planning != Planning::kGiven) rest.erase(std::string(field.key));
  }
  rest["accumulation"] = 1;
  return rest;
}

}  // namespace

// Removes and returns a list of nodes in the job: the free nodes, of which the planner takes as many as it needs. For
// uneven nodes the list gives the place of each.
std::vector<int> take_free_nodes(nlohmann::json& root, const Origins& origins) {
  const auto cluster = root.find("cluster");
  if (cluster == root.end() || !cluster->is_object()) return {};
  const nlohmann::json count = cluster->value("nodes", nlohmann::json(1));
  const auto network = cluster->find("network");
  if (count.is_array() || network == cluster->end() || !network->is_object()) return {};
  if (!network->contains("allocation") || !network->at("allocation").is_array()) return {};
  constexpr int kMostPlaces = 1'000'000;
  ObjectReader reader(*network, "cluster.network", origins);
  std::vector<int> free = *reader.whole_list("allocation", 0, kMostPlaces - 1);
  std::vector<int> sorted = free;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    reader.fail("allocation", fmt::format("lists node {} twice", *twice), "list each free node once");
  }
  if (count.is_number_integer() && static_cast<std::int64_t>(free.size()) < count.get<std::int64_t>()) {
    reader.fail("allocation", fmt::format("lists {} nodes, but the cluster needs {}", free.size(), count.dump()),
                "list at least as many free nodes as the cluster has");
  }
  const int least = sorted.empty() ? 1 : sorted.back() + 1;
  network->erase("allocation");
  const auto nodes = network->find("nodes");
  const bool smaller = nodes != network->end() && nodes->is_number_integer() && nodes->get<std::int64_t>() < least;
  if (nodes == network->end() || smaller) (*network)["nodes"] = least;
  return free;
}

// If the fabric is larger than the job and the job names no nodes, all nodes are free.
void add_whole_fabric(const nlohmann::json& root, PlanQuestion& question) {
  const Cluster& cluster = question.job.cluster;
  std::vector<int>& free = question.space.free_nodes;
  if (!cluster.shares_links()) free.clear();
  if (!free.empty() || !cluster.shares_links() || cluster.uneven()) return;
  const int nodes = fabric_nodes(cluster);
  if (nodes <= cluster.nodes || root.at("cluster").at("network").contains("allocation")) return;
  free.resize(static_cast<std::size_t>(nodes));
  std::iota(free.begin(), free.end(), 0);
}

PlanQuestion read_question(const nlohmann::json& root, const Origins& origins) {
  const nlohmann::json layout = root.value("layout", nlohmann::json::object());
  if (!layout.is_object()) fail(origins, "layout", "must be an object", "expected { \"global_batch_size\": … }");
  PlanQuestion question;
  nlohmann::json readable = root;
  readable["layout"] = layout_for_reading(layout);
  question.space.free_nodes = take_free_nodes(readable, origins);
  question.job = read_job(readable, origins);
  add_whole_fabric(root, question);
  ObjectReader reader(layout, "layout", origins);
  Layout given;
  read_fields(layout_fields(), reader, given);
  if (!reader.has("global_batch_size")) {
    reader.fail_missing("global_batch_size", "give --gbs N, the sequences per step");
  }
  question.job.layout.global_batch_size = given.global_batch_size;
  question.job.layout.accumulation = given.accumulation;
  copy_forms(reader, given, question.job);
  fix_axes(reader, given, origins, question.space);
  // Placements differ only where groups share links.
  if (question.job.cluster.shares_links() && !reader.has("placement")) question.space.placements = usual_placements();
  read_splits(layout, question.job, question.space);
  if (!given.stage_layers.empty() || (layout.contains("stage_layers") && layout.at("stage_layers").is_array())) {
    question.job.layout.stage_layers = given.stage_layers;
    check_listed_layers(question, origins);
  }
  return question;
}

nlohmann::json layout_section_of(const nlohmann::json& root, const PlannedLayout& planned) {
  const Layout& layout = planned.layout;
  nlohmann::json section = root.value("layout", nlohmann::json::object());
  for (const Field<Layout>& field : layout_fields()) {
    // Omit sharding that the form of data parallelism implies.
    const bool decided = field.key == "zero" && layout.data_parallel != DataParallel::kDdp;
    if (field.planning != Planning::kChosen || decided) continue;
    const nlohmann::json value = *field.write(field, layout);
    if (value.is_null()) {
      section.erase(std::string(field.key));
    } else {
      section[std::string(field.key)] = value;
    }
  }
  if (layout.placement != Layout().placement) {
    for (const Field<Layout>& field : layout_fields()) {
      if (field.key == "placement") section["placement"] = nlohmann::json(*field.write(field, layout));
    }
  }
  return section;
}

nlohmann::json job_file_of(const nlohmann::json& root, const PlannedLayout& planned) {
  nlohmann::json job = root;
  job["layout"] = layout_section_of(root, planned);
  nlohmann::json& cluster = job["cluster"];
  if (cluster.is_string()) {
    std::string name = cluster.get<std::string>();
    const auto digit = [](unsigned char character) { return std::isdigit(character) != 0; };
    const auto end = std::find_if_not(name.begin(), name.end(), digit);
    if (end != name.begin() && end != name.end() && *end == 'x') name.erase(name.begin(), end + 1);
    cluster = {{"name", name}};
  }
  if (planned.allocation) {
    nlohmann::json& network = cluster["network"];
    if (network.is_string()) network = {{"preset", network}};
    network["allocation"] = planned.allocation->nodes;
    network["nodes"] = planned.allocation->of;
  }
  // A list of uneven nodes stays unchanged.
  if (!cluster.contains("nodes") || !cluster.at("nodes").is_array()) cluster["nodes"] = planned.nodes;
  return job;
}

namespace {

class Narrowing {
 public:
  explicit Narrowing(SearchSpace& space) : space_(space) {}

  // Restricts an axis to `values`; an empty list means all values.
  template <typename Value>
  void keep(std::vector<Value>& axis, std::vector<Value> values, const char* left_out) {
    if (!axis.empty()) return;
    axis = std::move(values);
    left_out_.emplace_back(left_out);
  }

  void keep_schedules(const std::vector<std::string>& names) {
    std::vector<ScheduleChoice>& choices = space_.schedules;
    const auto unknown = [&names](const ScheduleChoice& choice) {
      return std::find(names.begin(), names.end(), choice.text) == names.end();
    };
    const bool none_left = std::all_of(choices.begin(), choices.end(), unknown);
    const auto first = std::remove_if(choices.begin(), choices.end(), unknown);
    if (none_left || first == choices.end()) return;  // no schedule of the stack, or nothing to remove
    choices.erase(first, choices.end());
    left_out_.emplace_back("other schedules");
  }

  void keep_pipelined_zero(int most) {
    if (!space_.zero.empty() || space_.pp == std::vector<int>{1} || most >= space_.most_pipelined_zero) return;
    space_.most_pipelined_zero = most;
    left_out_.push_back(fmt::format("ZeRO {} and 3 with pipelines", most + 1));
  }

  void keep_usual_placement() {
    if (space_.placements.empty()) return;
    space_.placements.clear();
    left_out_.emplace_back("other placements of the axes on the nodes");
  }

  std::vector<std::string> left_out() const { return left_out_; }

 private:
  SearchSpace& space_;
  std::vector<std::string> left_out_;
};

// Most sharding with pipelines: Megatron-LM documents its FSDP for tensor, context and expert parallelism only
// (docs/source/api-guide/custom_fsdp.md).
constexpr int kMegatronPipelinedZero = 1;

void keep_megatron(const Job& job, SearchSpace& space, Narrowing& narrowing) {
  narrowing.keep_schedules({"naive", "1f1b", "interleaved"});
  if (job.layout.data_parallel == DataParallel::kDdp) narrowing.keep_pipelined_zero(kMegatronPipelinedZero);
  if (job.model.experts) {
    narrowing.keep(space.sequence_parallel, {1}, "tensor parallelism of experts without sequence parallelism");
  }
}

void keep_deepspeed(const Job& job, SearchSpace& space, Narrowing& narrowing) {
  narrowing.keep_schedules({"naive", "1f1b"});
  narrowing.keep(space.pp, {1}, "pipelines");
  narrowing.keep(space.ep, {1}, "expert parallelism");
  narrowing.keep(space.etp, {0}, "unsplit experts on tensor-parallel ranks");
  narrowing.keep(space.sequence_parallel, {0}, "sequence parallelism");
  narrowing.keep(space.recompute, {Recompute::kNone, Recompute::kFull}, "selective recomputation");
  if (job.layout.context_parallel != ContextParallel::kUlysses) narrowing.keep(space.cp, {1}, "context parallelism");
}

void keep_accelerate(const Job& job, SearchSpace& space, Narrowing& narrowing) {
  keep_deepspeed(job, space, narrowing);
  narrowing.keep(space.tp, {1}, "tensor parallelism");
  narrowing.keep(space.cp, {1}, "context parallelism");
  const bool fsdp = job.layout.data_parallel != DataParallel::kDdp;
  if (!fsdp && space.recompute.size() == 2) space.recompute = {Recompute::kNone};
}

}  // namespace

std::vector<std::string> keep_launchable(LaunchProgram program, const Job& job, SearchSpace& space) {
  Narrowing narrowing(space);
  narrowing.keep_usual_placement();
  switch (program) {
    case LaunchProgram::kMegatron:
    case LaunchProgram::kTorchrun:
      keep_megatron(job, space, narrowing);
      break;
    case LaunchProgram::kDeepSpeed:
      keep_deepspeed(job, space, narrowing);
      break;
    case LaunchProgram::kAccelerate:
      keep_accelerate(job, space, narrowing);
      break;
  }
  return narrowing.left_out();
}

namespace {

// Schedules that the releases of each stack run without changes to their code:
// megatron/core/pipeline_parallel/schedules.py; deepspeed/runtime/pipe/schedule.py; torch.distributed.pipelining as
// torchtitan offers it; nanotron's 1f1b and afab; Sea AI Lab's fork of Megatron-LM. With pipelines DeepSpeed's engine
// refuses ZeRO 2 and 3 (deepspeed/runtime/pipe/engine.py), Megatron-LM's FSDP does not support them, and nanotron has
// only ZeRO 1.
struct StackSchedules {
  std::string_view stack;
  std::vector<std::string> schedules;
  int most_pipelined_zero = 3;
};

const std::vector<StackSchedules>& stack_schedules() {
  static const std::vector<std::string> megatron = {"naive", "1f1b", "interleaved"};
  static const std::vector<std::string> plain = {"naive", "1f1b"};
  static const std::vector<StackSchedules> all = {
      {"megatron-core", megatron, kMegatronPipelinedZero},
      {"megatron-2021", megatron, kMegatronPipelinedZero},
      {"megatron-2022", megatron, kMegatronPipelinedZero},
      {"nemo", megatron, kMegatronPipelinedZero},
      {"megatron-deepspeed", plain, 1},
      {"deepspeed", plain, 1},
      {"nanotron", {"naive", "1f1b", "gpipe"}, 1},
      {"torchtitan", {"naive", "gpipe", "1f1b", "interleaved", "bfs", "zbv"}},
      {"pytorch-ddp", {"naive", "gpipe", "1f1b", "interleaved"}},
      {"pytorch-fsdp", {"naive"}},
      {"zero-bubble", {"naive", "1f1b", "interleaved", "zb-h1", "zbv"}, kMegatronPipelinedZero}};
  return all;
}

}  // namespace

std::vector<std::string> keep_runnable(const Job& job, bool schedule_given, SearchSpace& space) {
  const std::vector<StackSchedules>& all = stack_schedules();
  const auto own = std::find_if(all.begin(), all.end(),
                                [&job](const StackSchedules& one) { return one.stack == job.training.stack.based_on; });
  if (own == all.end()) return {};
  Narrowing narrowing(space);
  if (!schedule_given) {
    narrowing.keep_schedules(own->schedules);
    const bool has_pipelines = own->schedules.size() > 1;
    if (!has_pipelines) narrowing.keep(space.pp, {1}, "pipelines");
  }
  if (job.layout.data_parallel == DataParallel::kDdp) narrowing.keep_pipelined_zero(own->most_pipelined_zero);
  return narrowing.left_out();
}

}  // namespace flopcast
