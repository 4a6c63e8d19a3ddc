#include "sim/files/result_file.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "model/units/quantity.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/metrics/critical_path.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kResultName = "flopcast.result/1";
constexpr const char* kMemoryName = "flopcast.memory/1";

// Who refuses a result without a field. Early versions did not write all of them.
enum class Needed : std::uint8_t {
  kLater,       // nobody: early versions, or many results, are without it
  kWritten,     // nobody, though all versions write it
  kPage,        // a page
  kComparison,  // a comparison
  kBoth,
  kLaterComparison,  // a comparison, though early versions did not write it
};
constexpr bool always_written(Needed needed) {
  return needed != Needed::kLater && needed != Needed::kLaterComparison;
}
constexpr bool page_needs(Needed needed) {
  return needed == Needed::kPage || needed == Needed::kBoth;
}
constexpr bool comparison_needs(Needed needed) {
  return needed == Needed::kComparison || needed == Needed::kBoth || needed == Needed::kLaterComparison;
}

constexpr int kAnySign = -1;  // as the least of a field's values

template <class Part>
struct Field {
  using Member = std::variant<double Part::*, int Part::*, std::uint64_t Part::*, bool Part::*, std::string Part::*,
                              std::optional<double> Part::*, std::vector<double> Part::*, std::vector<int> Part::*,
                              std::vector<std::string> Part::*>;
  const char* key;
  Member member;
  Needed needed = Needed::kWritten;
  int least = 0;
  const char* what = "";
};
template <class Part>
using Fields = std::vector<Field<Part>>;

const Fields<ModelResult>& parameter_fields() {
  using P = ModelResult;
  static const Fields<P> table = {
      {"parameters", &P::parameters},
      {"active_parameters", &P::active_parameters, Needed::kWritten, 0, "those that a token passes"},
  };
  return table;
}

const Fields<IterationResult>& iteration_fields() {
  using P = IterationResult;
  static const Fields<P> table = {
      {"time_s", &P::time_s, Needed::kBoth},
      {"tokens_per_s", &P::tokens_per_s, Needed::kPage},
      {"tokens_per_s_per_gpu", &P::tokens_per_s_per_gpu},
      {"samples_per_s", &P::samples_per_s},
      {"model_tflops_per_gpu", &P::model_tflops_per_gpu},
      {"hardware_tflops_per_gpu", &P::hardware_tflops_per_gpu},
      {"mfu", &P::mfu, Needed::kBoth, 0, "model FLOPs, attention in full, over the device's peak"},
      {"mfu_causal", &P::mfu_causal, Needed::kLater, 0, "the same with causal attention by half"},
      {"hfu", &P::hfu, Needed::kWritten, 0, "recomputed FLOPs included"},
  };
  return table;
}

const Fields<Breakdown>& breakdown_fields() {
  static const Fields<Breakdown> table = [] {
    Fields<Breakdown> fields;
    for (const StepTerm& term : breakdown_terms()) {
      const Needed needed = term.id == TermId::kOffload ? Needed::kLaterComparison : Needed::kComparison;
      fields.push_back({term.key, term.spent, needed, kAnySign, term.what});
    }
    return fields;
  }();
  return table;
}

const Fields<AxisCommunication>& axis_fields() {
  using P = AxisCommunication;
  static const Fields<P> table = {
      {"total_s", &P::total_s, Needed::kWritten, 0, "under way, hidden or not; mean over pipeline ranks"},
      {"exposed_s", &P::exposed_s, Needed::kWritten, 0, "the device waits for it"},
      {"bytes_sent_per_rank", &P::bytes_sent_per_rank},
      {"messages", &P::messages}};
  return table;
}

const Fields<CommunicationResult>& communication_fields() {
  using P = CommunicationResult;
  static const Fields<P> table = {
      {"fraction", &P::fraction, Needed::kWritten, 0, "of time_s; above 1 when axes overlap"},
      {"exposed_fraction", &P::exposed_fraction, Needed::kBoth}};
  return table;
}

const Fields<BubbleResult>& bubble_fields() {
  using P = BubbleResult;
  static const Fields<P> table = {
      {"fraction", &P::fraction, Needed::kBoth, 0, "waiting that is no communication, over ranks and time_s"},
      {"ratio", &P::ratio, Needed::kWritten, kAnySign, "time_s over the busiest rank's work, less 1"},
      {"span_s", &P::span_s, Needed::kWritten, 0, "the longest time from a rank's first start to its last end"}};
  return table;
}

const Fields<BubbleResult>& cause_fields() {
  static const Fields<BubbleResult> table = [] {
    Fields<BubbleResult> fields;
    for (const StepTerm& term : bubble_terms()) {
      fields.push_back({term.key, term.waited, Needed::kComparison, 0, term.what});
    }
    return fields;
  }();
  return table;
}

const Fields<BubbleResult>& bubble_by_rank_fields() {
  static const Fields<BubbleResult> table = {
      {"per_pipeline_rank", &BubbleResult::per_pipeline_rank, Needed::kWritten, 0, "each rank's bubble over time_s"}};
  return table;
}

const Fields<MemoryResult>& memory_fields() {
  using P = MemoryResult;
  static const Fields<P> table = {
      {"capacity_gib", &P::capacity_gib, Needed::kPage, 0, "of the smallest device"},
      {"peak_gib", &P::peak_gib, Needed::kBoth},
      {"reserved_gib", &P::reserved_gib, Needed::kLater, 0, "by the framework's allocator, its fragmentation included"},
      {"shown_gib", &P::shown_gib, Needed::kLater, 0,
       "as nvidia-smi shows it: the tensors and what the stack holds beyond them"},
      {"fits", &P::fits, Needed::kWritten, 0, "all that nvidia-smi shows, on every rank"}};
  return table;
}

const Fields<RankMemoryResult>& rank_memory_fields() {
  using P = RankMemoryResult;
  static const Fields<P> table = [] {
    Fields<P> fields;
    for (const MemoryTerm& term : memory_terms()) fields.push_back({term.key, term.gib, Needed::kPage, 0, term.what});
    fields.push_back({"total_gib", &P::total_gib, Needed::kPage});
    fields.push_back({"reserved_gib", &P::reserved_gib, Needed::kLater, 0, "by the framework's allocator"});
    fields.push_back({"shown_gib", &P::shown_gib, Needed::kLater, 0, "as nvidia-smi shows it"});
    fields.push_back({"capacity_gib", &P::capacity_gib, Needed::kLater, 0, "of the smallest device among its ranks"});
    fields.push_back(
        {"peak_in_flight", &P::peak_in_flight, Needed::kWritten, 0, "activations of one stage and microbatch each"});
    return fields;
  }();
  return table;
}

const Fields<StepTimeInterval>& interval_fields() {
  using P = StepTimeInterval;
  static const Fields<P> table = {{"level", &P::level},
                                  {"half_width", &P::half_width},
                                  {"low_s", &P::low_s},
                                  {"high_s", &P::high_s},
                                  {"stalls_s", &P::stalls_s, Needed::kWritten, 0},
                                  {"factor", &P::factor, Needed::kWritten, 1},
                                  {"sources", &P::sources, Needed::kWritten, 1},
                                  {"evidence", &P::evidence}};
  return table;
}

const Fields<TrainingResult>& training_fields() {
  using P = TrainingResult;
  static const Fields<P> table = {{"steps", &P::steps}, {"days", &P::days}, {"gpu_hours", &P::gpu_hours}};
  return table;
}
// Where there is an interval.
struct DayInterval {
  double low = 0.0;
  double high = 0.0;
};
const Fields<DayInterval>& day_fields() {
  static const Fields<DayInterval> table = {{"days_low", &DayInterval::low, Needed::kLater},
                                            {"days_high", &DayInterval::high, Needed::kLater}};
  return table;
}
const Fields<TrainingResult>& cost_fields() {
  static const Fields<TrainingResult> table = {{"cost_usd", &TrainingResult::cost_usd, Needed::kLater}};
  return table;
}

const Fields<SteadyResult>& steady_fields() {
  using P = SteadyResult;
  static const Fields<P> table = {{"period_s", &P::period_s, Needed::kWritten, 0, "from one microbatch to the next"},
                                  {"fill_s", &P::fill_s, Needed::kWritten, kAnySign, "paid once, to fill and drain"},
                                  {"throughput_samples_per_s", &P::throughput_samples_per_s},
                                  {"weight_versions", &P::weight_versions, Needed::kWritten, 0, "by pipeline rank"},
                                  {"staleness", &P::staleness, Needed::kWritten, 0,
                                   "updates between a microbatch's weights and those its gradient is applied to"}};
  return table;
}

const Fields<DistributionResult>& distribution_fields() {
  using P = DistributionResult;
  static const Fields<P> table = {
      {"samples", &P::samples, Needed::kWritten, 1},
      {"seed", &P::seed},
      {"jitter", &P::jitter, Needed::kWritten, 0, "Standard deviation of a pass's time over its mean."},
      {"stragglers", &P::stragglers},
      {"mean_s", &P::mean_s},
      {"std_s", &P::std_s},
      {"p5_s", &P::p5_s},
      {"p50_s", &P::p50_s},
      {"p95_s", &P::p95_s},
      {"p99_s", &P::p99_s},
      {"slowdown", &P::slowdown, Needed::kWritten, kAnySign, "mean_s over iteration.time_s, less 1."}};
  return table;
}

const Fields<PackingResult>& packing_fields() {
  using P = PackingResult;
  static const Fields<P> table = {
      {"sequences", &P::sequences, Needed::kWritten, 1},
      {"filled", &P::filled},
      {"attention", &P::attention, Needed::kWritten, 0, "Its work over that of full sequences."},
      {"time_s", &P::time_s},
      {"idle", &P::idle, Needed::kWritten, kAnySign},
      {"equal_s", &P::equal_s, Needed::kWritten, 0, "Were every microbatch's attention the mean."},
      {"equal_idle", &P::equal_idle, Needed::kWritten, kAnySign},
      {"tokens_per_s", &P::tokens_per_s, Needed::kWritten, 0, "Without padding."},
      {"padded_filled", &P::padded_filled, Needed::kWritten, 0, "One sequence a row, padded to the sequence length."},
      {"longest_filled", &P::longest_filled, Needed::kWritten, 0, "Padded to the longest row of its microbatch."},
      {"padded_tokens_per_s", &P::padded_tokens_per_s, Needed::kWritten, 0,
       "Padded to the sequence length, without padding."}};
  return table;
}

const Fields<Quantiles>& quantile_fields() {
  using P = Quantiles;
  static const Fields<P> table = {{"p5", &P::p5}, {"p50", &P::p50}, {"p95", &P::p95}};
  return table;
}

const Fields<RunOption>& option_fields() {
  using P = RunOption;
  static const Fields<P> table = {
      {"change", &P::change},
      {"goodput_p50", &P::goodput_p50},
      {"days_p50", &P::days_p50},
      {"days_saved", &P::days_saved, Needed::kWritten, kAnySign, "Against the run as it is."},
      {"saved_usd", &P::saved_usd, Needed::kLater, kAnySign}};
  return table;
}

const Fields<RunResult>& run_fields() {
  using P = RunResult;
  static const Fields<P> table = {
      {"runs", &P::runs, Needed::kWritten, 1},
      {"seed", &P::seed},
      {"steps", &P::steps},
      {"interruptions_per_day", &P::interruptions_per_day},
      {"checkpoint_interval_s", &P::checkpoint_interval_s, Needed::kWritten, 0,
       "Training between two checkpoints of the kind that is taken more often; 0: none is worth it."},
      {"storage_interval_s", &P::storage_interval_s},
      {"memory_interval_s", &P::memory_interval_s, Needed::kWritten, 0, "Of copies in the memory of peers; 0: none."},
      {"checkpoint_gib", &P::checkpoint_gib},
      {"checkpoint_cost_s", &P::checkpoint_cost_s, Needed::kWritten, 0, "The run stands still for each."},
      {"restore_s", &P::restore_s, Needed::kWritten, 0, "From a replacement at hand to the next step, from storage."},
      {"nodes_in_repair", &P::nodes_in_repair, Needed::kWritten, 0, "On average."},
      {"spares_for_95", &P::spares_for_95, Needed::kWritten, 0,
       "Nodes; more are in repair for less than 5 % of the time."},
      {"spares_worth", &P::spares_worth, Needed::kWritten, 0,
       "Nodes; one more costs more than the waits that it saves."},
      {"closed_form_goodput", &P::closed_form_goodput, Needed::kWritten, 0, "Daly 2006, eq. 20, all causes as one."}};
  return table;
}

const Fields<NetworkResult>& network_result_fields() {
  using P = NetworkResult;
  static const Fields<P> table = {
      {"without_sharing_s", &P::without_sharing_s, Needed::kWritten, 0, "The step, had every group its links alone."},
      {"waiting_s", &P::waiting_s, Needed::kWritten, 0, "Of the step: for messages that others make slower."},
      {"replica_classes", &P::replica_classes, Needed::kWritten, 1, "Of replicas, which links tell apart."},
      {"replica", &P::replica, Needed::kWritten, 0, "That the timeline shows: one that ends last."}};
  return table;
}
const Fields<HotLink>& hot_link_fields() {
  using P = HotLink;
  static const Fields<P> table = {
      {"link", &P::link, Needed::kWritten, 0, "The first of those alike."},
      {"links", &P::links, Needed::kWritten, 1, "How many are alike."},
      {"utilisation", &P::utilisation, Needed::kWritten, 0, "While the step waits for messages on it."}};
  return table;
}
const Fields<GroupBandwidth>& bandwidth_fields() {
  using P = GroupBandwidth;
  static const Fields<P> table = {{"collective", &P::collective},
                                  {"ranks", &P::ranks, Needed::kWritten, 1},
                                  {"bytes", &P::bytes},
                                  {"alone_busbw_gb_per_s", &P::alone_busbw_gb_per_s},
                                  {"busbw_gb_per_s", &P::busbw_gb_per_s, Needed::kWritten, 0, "All groups at once."}};
  return table;
}

const Fields<PathSamples>& path_fields() {
  using P = PathSamples;
  static const Fields<P> table = {{"samples", &P::samples, Needed::kWritten, 1},
                                  {"mean_s", &P::mean_s},
                                  {"p5_s", &P::p5_s},
                                  {"p50_s", &P::p50_s},
                                  {"p95_s", &P::p95_s},
                                  {"least_s", &P::least_s},
                                  {"most_s", &P::most_s}};
  return table;
}

// Adds the fields of a part to an object; what a part may lack and lacks is left out. Not inlined: GCC 12 would warn of
// members at offsets that a caller's part does not have.
template <class Part>
[[gnu::noinline]] void write_fields(const Fields<Part>& fields, const Part& part, Json& object) {
  for (const Field<Part>& field : fields) {
    std::visit(
        [&](auto member) {
          const auto& value = part.*member;
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::optional<double>>) {
            if (value) object[field.key] = *value;
          } else {
            object[field.key] = value;
          }
        },
        field.member);
  }
}

template <class Part>
Json fields_json(const Fields<Part>& fields, const Part& part) {
  Json object = Json::object();
  write_fields(fields, part, object);
  return object;
}

Json communication_part(const CommunicationResult& communication) {
  Json json = fields_json(communication_fields(), communication);
  for (const Axis axis : kResultAxes)
    json[std::string(name_of(axis))] = fields_json(axis_fields(), communication[axis]);
  return json;
}

Json bubble_part(const BubbleResult& bubble) {
  Json json = fields_json(bubble_fields(), bubble);
  json["by_cause"] = fields_json(cause_fields(), bubble);
  write_fields(bubble_by_rank_fields(), bubble, json);
  return json;
}

Json memory_part(const MemoryResult& memory) {
  Json ranks = Json::array();
  for (const RankMemoryResult& rank : memory.per_pipeline_rank) {
    ranks.push_back(fields_json(rank_memory_fields(), rank));
  }
  Json json = fields_json(memory_fields(), memory);
  json["per_pipeline_rank"] = std::move(ranks);
  return json;
}

Json training_part(const TrainingResult& training, double step_s, const std::optional<StepTimeInterval>& interval) {
  Json json = fields_json(training_fields(), training);
  if (interval) {
    const double per_second = training.days / step_s;
    const DayInterval days = {per_second * interval->low_s, per_second * interval->high_s};
    write_fields(day_fields(), days, json);
  }
  write_fields(cost_fields(), training, json);
  return json;
}

Json seconds_by_name(const std::vector<NamedSeconds>& parts) {
  Json json = Json::object();
  for (const NamedSeconds& part : parts) json[part.name] = part.seconds;
  return json;
}

Json run_part(const RunResult& run) {
  Json json = fields_json(run_fields(), run);
  json["goodput"] = fields_json(quantile_fields(), run.goodput);
  json["ettr"] = fields_json(quantile_fields(), run.ettr);
  json["days"] = fields_json(quantile_fields(), run.days);
  if (run.cost_usd) json["cost_usd"] = fields_json(quantile_fields(), *run.cost_usd);
  json["lost_s"] = {{"by_cause", seconds_by_name(run.lost_by_cause)}, {"by_phase", seconds_by_name(run.lost_by_phase)}};
  json["options"] = Json::array();
  for (const RunOption& option : run.options) json["options"].push_back(fields_json(option_fields(), option));
  return json;
}

Json by_axis_part(const ByAxis<double>& values) {
  Json json = Json::object();
  for (const Axis axis : kResultAxes) json[std::string(name_of(axis))] = values[axis];
  return json;
}

Json network_part(const NetworkResult& network) {
  Json json = {{"contention_s", by_axis_part(network.contention_s)}, {"hot_links", Json::array()}};
  for (const HotLink& link : network.hot_links) {
    json["hot_links"].push_back(fields_json(hot_link_fields(), link));
    json["hot_links"].back()["share"] = by_axis_part(link.share);
  }
  write_fields(network_result_fields(), network, json);
  if (network.paths) json["paths"] = fields_json(path_fields(), *network.paths);
  json["nccl_tests"] = Json::array();
  for (const GroupBandwidth& group : network.nccl_tests) {
    Json entry = {{"axis", name_of(group.axis)}};
    write_fields(bandwidth_fields(), group, entry);
    json["nccl_tests"].push_back(std::move(entry));
  }
  return json;
}

Json critical_path_part(const Timeline& timeline) {
  const CriticalPath path = critical_path(timeline);
  const auto seconds = [&timeline](Ticks ticks) { return static_cast<double>(ticks) * timeline.units_per_tick; };
  Json by_kind = Json::object();
  for (std::size_t kind = 0; kind < path.time_by_kind.size(); ++kind) {
    if (path.time_by_kind[kind] == 0) continue;
    by_kind[std::string(name_of(static_cast<SpanKind>(kind)))] = seconds(path.time_by_kind[kind]);
  }
  return {{"total_s", seconds(path.total())},
          {"steps", path.steps.size()},
          {"by_kind_s", std::move(by_kind)},
          {"transfers_s", seconds(path.lag)},
          {"waiting_s", seconds(path.wait)}};
}

// Reads what a comparison needs, each field at its pointer in the file.
class ComparisonReader {
 public:
  ComparisonReader(const nlohmann::json& json, const std::string& file) : json_(json), file_(file) {}

  template <class Part>
  void read(const std::string& section, const Fields<Part>& fields, Part& part) const {
    for (const Field<Part>& field : fields) {
      const auto* const number = std::get_if<double Part::*>(&field.member);
      if (number == nullptr || !comparison_needs(field.needed)) continue;
      const std::string place = section + "/" + field.key;
      const nlohmann::json::json_pointer pointer(place);
      if (!json_.contains(pointer) || !json_.at(pointer).is_number()) {
        throw ConfigError({place, "a result must hold this number", file_, "what simulate --format json writes"});
      }
      const double value = json_.at(pointer).get<double>();
      constexpr double kMost = 1e30;
      if (!(std::abs(value) <= kMost)) {
        throw ConfigError({place, fmt::format("{} is a figure that no forecast has", value), file_,
                           "what simulate --format json writes"});
      }
      part.*(*number) = value;
    }
  }

 private:
  const nlohmann::json& json_;
  const std::string& file_;
};

// Checks what a page needs of results in a JSON that holds some.
class PageChecker {
 public:
  explicit PageChecker(const std::string& file) : file_(file) {}

  void walk(const Json& json, const std::string& field) const {
    if (json.is_array()) {
      for (std::size_t index = 0; index < json.size(); ++index) walk(json[index], fmt::format("{}[{}]", field, index));
    }
    if (!json.is_object()) return;
    if (is_result(json)) return check(json, field);
    for (const auto& item : json.items()) {
      // Of timelines, the bulk of a file, no page reads a result.
      if (item.key() != "timelines") walk(item.value(), joined(field, item.key()));
    }
  }

 private:
  static std::string joined(const std::string& field, const std::string& key) {
    return field.empty() ? key : field + "." + key;
  }
  [[noreturn]] void fail(const std::string& field, const std::string& problem) const {
    throw ConfigError({field, problem, file_, "expected what simulate, compare or run write with --format json"});
  }
  const Json& object(const Json& json, const std::string& field, const std::string& key) const {
    if (!json.contains(key)) fail(joined(field, key), "is missing");
    if (!json.at(key).is_object()) fail(joined(field, key), "is no object");
    return json.at(key);
  }
  void number(const Json& json, const std::string& field, const std::string& key) const {
    if (!json.contains(key)) fail(joined(field, key), "is missing");
    if (!json.at(key).is_number()) fail(joined(field, key), fmt::format("{} is no number", dumped(json.at(key))));
  }
  void texts(const Json& json, const std::string& field, const std::string& key) const {
    if (!json.contains(key)) return;
    if (!json.at(key).is_array()) fail(joined(field, key), "is no list of texts");
    for (const Json& text : json.at(key)) {
      if (!text.is_string()) fail(joined(field, key), fmt::format("{} is no text", dumped(text)));
    }
  }
  // Figures that the page needs, and those that early versions did not write where they are there.
  template <class Part>
  void figures(const Json& json, const std::string& field, const Fields<Part>& fields) const {
    for (const Field<Part>& entry : fields) {
      const bool given = entry.needed == Needed::kLater && json.contains(entry.key);
      if (page_needs(entry.needed) || given) number(json, field, entry.key);
    }
  }
  template <class Part>
  void section(const Json& result, const std::string& field, const char* key, const Fields<Part>& fields) const {
    figures(object(result, field, key), joined(field, key), fields);
  }

  void check(const Json& result, const std::string& field) const {
    section(result, field, "iteration", iteration_fields());
    section(result, field, "bubble", bubble_fields());
    section(result, field, "communication", communication_fields());
    section(result, field, "memory", memory_fields());
    const Json& breakdown = object(result, field, "breakdown");
    for (const auto& item : breakdown.items()) number(breakdown, joined(field, "breakdown"), item.key());
    check_memory(result.at("memory"), joined(field, "memory"));
    texts(result, field, "assumptions");
    texts(result, field, "warnings");
    if (result.contains("job")) check_job(object(result, field, "job"), joined(field, "job"));
  }
  void check_memory(const Json& memory, const std::string& field) const {
    if (memory.contains("fits") && !memory.at("fits").is_boolean()) fail(field + ".fits", "is neither true nor false");
    const std::string ranks_field = field + ".per_pipeline_rank";
    if (!memory.contains("per_pipeline_rank")) fail(ranks_field, "is missing");
    const Json& ranks = memory.at("per_pipeline_rank");
    if (!ranks.is_array()) fail(ranks_field, "is no list");
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::string here = fmt::format("{}[{}]", ranks_field, rank);
      if (!ranks[rank].is_object()) fail(here, "is no object");
      figures(ranks[rank], here, rank_memory_fields());
    }
  }
  void check_job(const Json& job, const std::string& field) const {
    const Json& model = object(job, field, "model");
    if (model.contains("name") && !model.at("name").is_string()) fail(field + ".model.name", "is no text");
  }

  const std::string& file_;
};

Json object_schema() {
  return {{"type", "object"}, {"required", Json::array()}, {"properties", Json::object()}};
}

void add_property(Json& schema, const std::string& key, bool required, Json property) {
  if (required) schema["required"].push_back(key);
  schema["properties"][key] = std::move(property);
}

struct TypeName {
  const char* of(double) const { return "number"; }
  const char* of(const std::optional<double>&) const { return "number"; }
  const char* of(int) const { return "integer"; }
  const char* of(std::uint64_t) const { return "integer"; }
  const char* of(bool) const { return "boolean"; }
  const char* of(const std::string&) const { return "string"; }
};

Json value_schema(const char* type, int least) {
  Json schema = {{"type", type}};
  const std::string name = type;
  if (least != kAnySign && (name == "number" || name == "integer")) schema["minimum"] = least;
  return schema;
}

template <class Part>
void add_fields(Json& schema, const Fields<Part>& fields) {
  for (const Field<Part>& field : fields) {
    Json property = std::visit(
        [&](auto member) {
          using Value = std::decay_t<decltype(Part().*member)>;
          if constexpr (std::is_same_v<Value, std::vector<double>> || std::is_same_v<Value, std::vector<int>> ||
                        std::is_same_v<Value, std::vector<std::string>>) {
            const char* const type = TypeName().of(typename Value::value_type());
            return Json{{"type", "array"}, {"items", value_schema(type, field.least)}};
          } else {
            return value_schema(TypeName().of(Value()), field.least);
          }
        },
        field.member);
    if (*field.what != '\0') property["description"] = field.what;
    add_property(schema, field.key, always_written(field.needed), std::move(property));
  }
}

template <class Part>
Json part_schema(const Fields<Part>& fields, const char* what = "") {
  Json schema = object_schema();
  add_fields(schema, fields);
  if (*what != '\0') schema["description"] = what;
  return schema;
}

Json communication_schema() {
  Json schema = part_schema(communication_fields());
  for (const Axis axis : kResultAxes)
    add_property(schema, std::string(name_of(axis)), true, part_schema(axis_fields()));
  return schema;
}

Json bubble_schema() {
  Json schema = part_schema(bubble_fields());
  add_property(schema, "by_cause", true, part_schema(cause_fields()));
  add_fields(schema, bubble_by_rank_fields());
  return schema;
}

Json memory_schema() {
  Json schema = part_schema(memory_fields());
  add_property(schema, "per_pipeline_rank", true,
               {{"type", "array"}, {"minItems", 1}, {"items", part_schema(rank_memory_fields())}});
  return schema;
}

Json training_schema() {
  Json schema = part_schema(training_fields());
  add_fields(schema, day_fields());
  add_fields(schema, cost_fields());
  return schema;
}

Json run_schema() {
  Json schema = part_schema(run_fields(),
                            "A run of months with interruptions (failures), quantiles over runs drawn. Goodput: the "
                            "steps' time alone over the time on the clock. ETTR: time in which training advances, at "
                            "whatever pace, over the time on the clock, waits and restarts counted in the clock.");
  for (const char* key : {"goodput", "ettr", "days"}) add_property(schema, key, true, part_schema(quantile_fields()));
  add_property(schema, "cost_usd", false, part_schema(quantile_fields()));
  const Json seconds = {{"type", "object"}};
  Json lost = object_schema();
  lost["description"] = "Seconds of a run, means over the runs; both parts have the same sum.";
  add_property(lost, "by_cause", true, seconds);
  add_property(lost, "by_phase", true, seconds);
  add_property(schema, "lost_s", true, std::move(lost));
  add_property(schema, "options", true, {{"type", "array"}, {"items", part_schema(option_fields())}});
  return schema;
}

Json by_axis_schema(const char* what, int least) {
  Json schema = object_schema();
  schema["description"] = what;
  for (const Axis axis : kResultAxes)
    add_property(schema, std::string(name_of(axis)), true, value_schema("number", least));
  return schema;
}

Json network_schema() {
  Json schema = object_schema();
  schema["description"] = "What links that are shared between nodes do to the step (cluster.network).";
  add_property(schema, "contention_s", true,
               by_axis_schema("What sharing adds to the step, by whose messages it waits for.", 0));
  Json link = part_schema(hot_link_fields());
  add_property(link, "share", true, by_axis_schema("Of what the link carries.", 0));
  add_property(schema, "hot_links", true, {{"type", "array"}, {"items", std::move(link)}});
  add_fields(schema, network_result_fields());
  add_property(schema, "paths", false,
               part_schema(path_fields(), "The step over seeds of hashed paths (--path-samples)."));
  Json group = object_schema();
  add_property(group, "axis", true, {{"type", "string"}});
  add_fields(group, bandwidth_fields());
  add_property(schema, "nccl_tests", true,
               {{"type", "array"},
                {"description", "What nccl-tests should print where all groups of an axis run at once."},
                {"items", std::move(group)}});
  return schema;
}

Json texts_schema() {
  return {{"type", "array"}, {"items", {{"type", "string"}}}};
}

// The beginning of a file's schema: its name, and the job that it answers.
Json file_schema(const char* name, const char* what) {
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", name}, {"description", what}};
  schema.update(object_schema());
  add_property(schema, "schema", true, {{"const", name}});
  add_property(schema, "job", true,
               {{"type", "object"},
                {"description", "The resolved job, in the form of a job file."},
                {"required", {"model", "cluster", "layout", "training"}}});
  return schema;
}

// What `simulate` adds.
Json critical_path_schema() {
  const Json seconds = value_schema("number", 0);
  Json schema = object_schema();
  schema["description"] = "The longest chain of work and transfers of the timeline; its parts sum to total_s.";
  add_property(schema, "total_s", true, seconds);
  add_property(schema, "steps", true, value_schema("integer", 0));
  add_property(schema, "by_kind_s", true, {{"type", "object"}});
  add_property(schema, "transfers_s", true, seconds);
  add_property(schema, "waiting_s", true, seconds);
  return schema;
}

}  // namespace

Json result_parts(const Result& result) {
  Json json = {{"iteration", fields_json(iteration_fields(), result.iteration)},
               {"breakdown", fields_json(breakdown_fields(), result.breakdown)},
               {"communication", communication_part(result.communication)},
               {"bubble", bubble_part(result.bubble)},
               {"memory", memory_part(result.memory)}};
  if (result.model) json["model"] = fields_json(parameter_fields(), *result.model);
  if (result.interval) json["step_time_interval"] = fields_json(interval_fields(), *result.interval);
  if (result.training) json["training"] = training_part(*result.training, result.iteration.time_s, result.interval);
  if (result.steady) json["steady"] = fields_json(steady_fields(), *result.steady);
  if (result.distribution) json["distribution"] = fields_json(distribution_fields(), *result.distribution);
  if (result.packing) json["packing"] = fields_json(packing_fields(), *result.packing);
  if (result.run) json["run"] = run_part(*result.run);
  if (result.network) json["network"] = network_part(*result.network);
  json["assumptions"] = result.assumptions;
  json["warnings"] = result.warnings;
  return json;
}

std::optional<Result> read_result(const std::string& text, const std::string& file) {
  if (text.find(kResultName) == std::string::npos) return std::nullopt;
  const nlohmann::json json = parse_json(text, file);
  if (!json.is_object() || json.value("schema", nlohmann::json()) != kResultName) return std::nullopt;
  Result result;
  const ComparisonReader reader(json, file);
  reader.read("/iteration", iteration_fields(), result.iteration);
  if (!(result.iteration.time_s >= kSecondsPerTick)) {
    throw ConfigError({"/iteration/time_s", fmt::format("{} s is no step's time", result.iteration.time_s), file,
                       "what simulate --format json writes"});
  }
  reader.read("/breakdown", breakdown_fields(), result.breakdown);
  reader.read("/communication", communication_fields(), result.communication);
  reader.read("/bubble", bubble_fields(), result.bubble);
  reader.read("/bubble/by_cause", cause_fields(), result.bubble);
  reader.read("/memory", memory_fields(), result.memory);
  const nlohmann::json::json_pointer fits("/memory/fits");
  result.memory.fits = !json.contains(fits) || json.at(fits) == true;
  return result;
}

void check_results(const Json& json, const std::string& file) {
  PageChecker(file).walk(json, "");
}

Json result_schema() {
  Json schema =
      file_schema(kResultName, "A forecast. Times in seconds, memory in GiB (2^30 bytes), shares between 0 and 1.");
  add_property(schema, "iteration", true, part_schema(iteration_fields()));
  add_property(
      schema, "breakdown", true,
      part_schema(breakdown_fields(), "Exposed times, mean over pipeline ranks; they sum to iteration.time_s."));
  add_property(schema, "communication", true, communication_schema());
  add_property(schema, "bubble", true, bubble_schema());
  add_property(schema, "memory", true, memory_schema());
  add_property(schema, "model", false, part_schema(parameter_fields(), "Weights of the model, counted exactly."));
  add_property(
      schema, "step_time_interval", false,
      part_schema(interval_fields(),
                  "Nine of ten measured steps are expected between low_s and high_s. From the errors of so many "
                  "sources of published runs; factor: by how much the distance from them widens it."));
  add_property(schema, "training", false, training_schema());
  add_property(schema, "steady", false, part_schema(steady_fields()));
  add_property(schema, "distribution", false,
               part_schema(distribution_fields(), "Of the step time when passes vary (--jitter, --straggler)."));
  add_property(schema, "packing", false,
               part_schema(packing_fields(),
                           "A step whose microbatches hold sequences of several lengths (--sequence-lengths)."));
  add_property(schema, "run", false, run_schema());
  add_property(schema, "network", false, network_schema());
  add_property(schema, "assumptions", true, texts_schema());
  add_property(schema, "warnings", true, texts_schema());
  add_property(schema, "critical_path", false, critical_path_schema());
  return schema;
}

Json memory_file_schema() {
  Json schema = file_schema(kMemoryName, "Memory of each pipeline rank, in GiB (2^30 bytes).");
  add_property(schema, "memory", true, memory_schema());
  const Json amount = value_schema("number", 0);
  Json tensor = object_schema();
  for (const char* key : {"kind", "tensor"}) add_property(tensor, key, true, {{"type", "string"}});
  for (const char* key : {"each_gib", "count", "gib"}) add_property(tensor, key, true, amount);
  Json fullest = object_schema();
  fullest["description"] = "The tensors of the fullest rank at its fullest moment, largest first.";
  add_property(fullest, "rank", true, value_schema("integer", 0));
  add_property(fullest, "tensors", true, {{"type", "array"}, {"items", std::move(tensor)}});
  add_property(schema, "fullest_rank", false, std::move(fullest));
  const Json point = {{"type", "array"}, {"minItems", 2}, {"maxItems", 2}, {"items", amount}};
  add_property(schema, "over_time", false,
               {{"type", "array"},
                {"description", "By pipeline rank: [seconds, GiB] at every change."},
                {"items", {{"type", "array"}, {"items", point}}}});
  add_property(schema, "packing", false,
               part_schema(packing_fields(), "Sequences of several lengths (--sequence-lengths)."));
  add_property(schema, "assumptions", true, texts_schema());
  add_property(schema, "warnings", true, texts_schema());
  return schema;
}

bool is_result(const Json& json) {
  return json.is_object() && json.value("schema", Json()) == kResultName;
}

Json result_json(const Forecast& forecast) {
  Json json = {{"schema", kResultName}, {"job", job_json(forecast.step.job)}};
  json.update(result_parts(forecast.result));
  return json;
}

std::string write_result(const Forecast& forecast) {
  return dumped(result_json(forecast));
}

std::string write_simulation(const Forecast& forecast) {
  Json json = result_json(forecast);
  json["critical_path"] = critical_path_part(forecast.timeline);
  return dumped(json, 2);
}

std::string write_links(const NetworkFabric& fabric, const std::vector<LinkLoad>& loads) {
  constexpr double kGiga = 1e9;
  Json links = Json::array();
  for (std::uint32_t link = 0; link < fabric.links().size(); ++link) {
    links.push_back({{"name", fabric.links()[link].name}, {"gb_per_s", fabric.capacity(link) / kGiga}});
    if (loads.empty()) continue;
    links.back()["utilisation"] = loads[link].utilisation;
    links.back()["share"] = by_axis_part(loads[link].share);
  }
  return Json{{"links", std::move(links)}}.dump(2);
}

std::string write_memory(const Forecast& forecast, MemoryView view) {
  Json json = {
      {"schema", kMemoryName}, {"job", job_json(forecast.step.job)}, {"memory", memory_part(forecast.result.memory)}};
  if (forecast.result.packing) json["packing"] = fields_json(packing_fields(), *forecast.result.packing);
  if (view == MemoryView::kOverTime) {
    Json ranks = Json::array();
    for (const RankMemory& rank : forecast.memory) {
      Json points = Json::array();
      for (const MemoryPoint& point : rank.points) {
        points.push_back(
            {static_cast<double>(point.time) * forecast.timeline.units_per_tick, gibibytes(Bytes(point.bytes))});
      }
      ranks.push_back(std::move(points));
    }
    json["over_time"] = std::move(ranks);
  }
  if (view == MemoryView::kTensors) {
    Json parts = Json::array();
    for (const MemoryPart& part : fullest_rank_parts(forecast.step, forecast.result.memory, forecast.memory)) {
      parts.push_back({{"kind", part.group},
                       {"tensor", part.name},
                       {"each_gib", gibibytes(part.each)},
                       {"count", part.count},
                       {"gib", gibibytes(part.total())}});
    }
    json["fullest_rank"] = {{"rank", fullest_rank(forecast.result.memory)}, {"tensors", std::move(parts)}};
  }
  json["assumptions"] = forecast.result.assumptions;
  json["warnings"] = forecast.result.warnings;
  return dumped(json, 2);
}

}  // namespace flopcast
