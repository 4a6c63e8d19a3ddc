#include "planner/plan/read_question.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/text/error.hpp"
#include "model/config/object_reader.hpp"
#include "model/config/read_job.hpp"

namespace flopcast {

namespace {

constexpr int kMostRanks = 1'000'000;
constexpr int kLargestBatch = 1'000'000'000;
constexpr int kHighestStage = 3;

void fix(const std::optional<int>& value, std::vector<int>& axis) {
  if (value) axis = {*value};
}

[[noreturn]] void fail(const Origins& origins, const std::string& field, const std::string& problem,
                       const std::string& help) {
  throw ConfigError({field, problem, origins.where(field), help});
}

void read_schedule(ObjectReader& reader, const Origins& origins, SearchSpace& space) {
  const std::optional<std::string> text = reader.text("schedule");
  if (!text) {
    space.schedules = default_schedules();
    return;
  }
  if (text->rfind("file:", 0) == 0) {
    fail(origins, "layout.schedule", "a schedule in a file is made for one layout",
         "simulate it, or give a schedule's name");
  }
  const auto point_here = [&](const ConfigError& error) {
    fail(origins, "layout.schedule", error.diagnostic().problem, error.diagnostic().help);
  };
  try {
    const ScheduleName name = parse_schedule_name(*text);
    space.schedules = {schedule_choice(*text)};
    if (name.chunks) space.vpp = {*name.chunks};
  } catch (const ConfigError& error) {
    point_here(error);
  }
}

void read_splits(const nlohmann::json& layout, const Job& job, SearchSpace& space) {
  space.splits = default_splits();
  const auto given = layout.find("stage_layers");
  if (given == layout.end()) return;
  const bool balanced = given->is_string() && *given == "balanced" && !job.profile;
  // A balanced split starts from the prices of the uniform one, which is then one of two to choose from.
  if (!balanced) space.splits = {SplitRule()};
}

void read_axes(const nlohmann::json& layout, const Origins& origins, const Job& job, SearchSpace& space) {
  ObjectReader reader(layout, "layout", origins);
  fix(reader.whole("tp", 1, kMostRanks), space.tp);
  fix(reader.whole("cp", 1, kMostRanks), space.cp);
  fix(reader.whole("pp", 1, kMostRanks), space.pp);
  fix(reader.whole("dp", 1, kMostRanks), space.dp);
  fix(reader.whole("ep", 1, kMostRanks), space.ep);
  fix(reader.whole("micro_batch_size", 1, kLargestBatch), space.micro_batch_size);
  fix(reader.whole("zero", 0, kHighestStage), space.zero);
  if (const auto parallel = reader.boolean("sequence_parallel")) space.sequence_parallel = {*parallel ? 1 : 0};
  if (const auto recompute = reader.choice("recompute", recompute_names())) {
    space.recompute = {static_cast<Recompute>(*recompute)};
  }
  read_schedule(reader, origins, space);
  if (const auto vpp = reader.whole("vpp", 1, kMostRanks)) space.vpp = {*vpp};
  read_splits(layout, job, space);
}

void read_forms(ObjectReader& reader, const Origins& origins, Job& job) {
  Layout& layout = job.layout;
  if (const auto form = reader.choice("context_parallel", context_parallel_names())) {
    layout.context_parallel = static_cast<ContextParallel>(*form);
  }
  if (const auto form = reader.choice("tensor_parallel", tensor_parallel_names())) {
    layout.tensor_parallel = static_cast<TensorParallel>(*form);
  }
  layout.tensor_depth = reader.whole("tensor_depth", 1, kMostRanks).value_or(1);
  layout.partition_checkpoints = reader.boolean("partition_checkpoints").value_or(false);
  const std::string& form = tensor_parallel_names()[static_cast<std::size_t>(layout.tensor_parallel)];
  if (layout.tensor_parallel != TensorParallel::k25d && layout.tensor_depth > 1) {
    fail(origins, "layout.tensor_depth", fmt::format("{} belongs to tensor_parallel 2.5d", layout.tensor_depth),
         "valid: 1");
  }
  if (layout.tensor_parallel == TensorParallel::k1d) return;
  if (job.profile || job.model.experts || job.model.latent) {
    fail(origins, "layout.tensor_parallel",
         fmt::format("{} is modelled for transformers without experts and latent attention", form),
         "valid for this model: 1d");
  }
  if (layout.partition_checkpoints) {
    fail(origins, "layout.partition_checkpoints",
         "true changes nothing: block inputs are cut over the tensor-parallel ranks already", "valid: false");
  }
}

// Against what is fixed: the other layouts of the space are rejected one by one.
void check_listed_layers(const PlanQuestion& question, const Origins& origins) {
  const std::vector<int>& layers = question.job.layout.stage_layers;
  const std::string given = fmt::format("[{}]", fmt::join(layers, ", "));
  const long sum = std::accumulate(layers.begin(), layers.end(), 0L);
  if (layers.empty() || sum != question.job.model.layers) {
    fail(origins, "layout.stage_layers",
         fmt::format("{} sums to {}, the model has {} layers", given, sum, question.job.model.layers),
         "give the layers of every stage, or leave the split to the planner");
  }
  const SearchSpace& space = question.space;
  if (space.pp.empty()) return;
  const int ranks = space.pp.front();
  const int stages = static_cast<int>(layers.size());
  const bool divides = stages % ranks == 0;
  if (divides && (space.vpp.empty() || space.vpp.front() * ranks == stages)) return;
  const std::string asked =
      space.vpp.empty() ? fmt::format("pp {}", ranks) : fmt::format("pp {} · vpp {}", ranks, space.vpp.front());
  fail(origins, "layout.stage_layers", fmt::format("{} is for {} stages, not for {}", given, stages, asked),
       "pp · vpp must be the number of stages");
}

// What the planner does not choose, with a batch that follows the devices whatever their number. Forms that not every
// layout can have are rules of the space.
nlohmann::json layout_for_reading(const nlohmann::json& layout) {
  nlohmann::json rest = layout;
  for (const std::string& key : planned_keys()) rest.erase(key);
  for (const char* key : {"context_parallel", "tensor_parallel", "tensor_depth", "partition_checkpoints"}) {
    rest.erase(key);
  }
  rest["accumulation"] = 1;
  return rest;
}

}  // namespace

const std::vector<std::string>& planned_keys() {
  static const std::vector<std::string> keys = {"tp",
                                                "cp",
                                                "pp",
                                                "dp",
                                                "ep",
                                                "vpp",
                                                "micro_batch_size",
                                                "sequence_parallel",
                                                "recompute",
                                                "zero",
                                                "schedule",
                                                "stage_layers",
                                                "global_batch_size"};
  return keys;
}

PlanQuestion read_question(const nlohmann::json& root, const Origins& origins) {
  const nlohmann::json layout = root.value("layout", nlohmann::json::object());
  if (!layout.is_object()) fail(origins, "layout", "is no object", "expected { \"global_batch_size\": … }");
  PlanQuestion question;
  nlohmann::json readable = root;
  readable["layout"] = layout_for_reading(layout);
  question.job = read_job(readable, origins);
  ObjectReader reader(layout, "layout", origins);
  const std::optional<int> batch = reader.whole("global_batch_size", 1, kLargestBatch);
  if (!batch) reader.fail_missing("global_batch_size", "give --gbs N, the sequences per step");
  question.job.layout.global_batch_size = *batch;
  question.job.layout.accumulation = reader.whole("accumulation", 1, kLargestBatch);
  read_forms(reader, origins, question.job);
  read_axes(layout, origins, question.job, question.space);
  const auto given = layout.find("stage_layers");
  if (given != layout.end() && given->is_array()) {
    question.job.layout.stage_layers = *reader.whole_list("stage_layers", 0, kMostRanks);
    check_listed_layers(question, origins);
  }
  return question;
}

nlohmann::json layout_section_of(const nlohmann::json& root, const PlannedLayout& planned) {
  const Layout& layout = planned.layout;
  nlohmann::json section = root.value("layout", nlohmann::json::object());
  section.erase("stage_layers");
  section["tp"] = layout.tp;
  section["cp"] = layout.cp;
  section["pp"] = layout.pp;
  section["dp"] = layout.dp;
  section["ep"] = layout.ep;
  section["vpp"] = *layout.vpp;
  section["micro_batch_size"] = layout.micro_batch_size;
  section["global_batch_size"] = layout.global_batch_size;
  section["sequence_parallel"] = layout.sequence_parallel;
  section["recompute"] = recompute_names()[static_cast<std::size_t>(layout.recompute)];
  section["schedule"] = layout.schedule;
  if (layout.data_parallel == DataParallel::kDdp) section["zero"] = layout.zero;
  if (!layout.stage_layers.empty()) section["stage_layers"] = layout.stage_layers;
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
  // A list of uneven nodes stays as it is.
  if (!cluster.contains("nodes") || !cluster.at("nodes").is_array()) cluster["nodes"] = planned.nodes;
  return job;
}

}  // namespace flopcast
