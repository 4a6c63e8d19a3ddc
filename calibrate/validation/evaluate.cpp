#include "calibrate/validation/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/cost/collectives.hpp"
#include "model/cost/compute.hpp"
#include "model/job/read_job.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/run/run.hpp"

namespace flopcast {

namespace {

constexpr double kTera = 1e12;

// Attention FLOPs that causal conventions do not count: half of the scores and the context, forward and twice backward.
double causal_surplus(const Job& job) {
  const double sequence = job.training.sequence_length;
  const double scores = sequence * sequence * (job.model.attention_width() + job.model.context_width()) *
                        job.model.attended_share(sequence);
  return 3.0 * scores * job.model.layers * job.layout.global_batch_size;
}

// FLOPs of a step over all devices, by the source's convention.
double flops_as_published(const PublishedRow& row, const Forecast& answer) {
  const Job& job = answer.step.job;
  const double devices = job.cluster.devices();
  const IterationResult& iteration = answer.result.iteration;
  const std::string words = words_of(row, "");
  if (mentions(words, "hardware flops")) return iteration.hardware_tflops_per_gpu * kTera * devices * iteration.time_s;
  const double flops = iteration.model_tflops_per_gpu * kTera * devices * iteration.time_s;
  const bool halved = mentions(words, "causal") && !mentions(words, "non-causal") && !mentions(words, "not halved") &&
                      !mentions(words, "halved is not stated");
  return halved ? flops - causal_surplus(job) : flops;
}

// Measured time of a step; rates are converted.
std::optional<double> measured_step(const PublishedRow& row, const Forecast& answer) {
  const Job& job = answer.step.job;
  if (row.iteration_s) return row.iteration_s;
  const double samples = row.global_batch_size.value_or(job.layout.global_batch_size);
  if (row.samples_per_s) return samples / *row.samples_per_s;
  const double devices = job.cluster.devices();
  const double tokens =
      samples * sequences_of(job.training, 1) * row.sequence_length.value_or(job.training.sequence_length);
  if (row.tokens_per_s_per_gpu) return tokens / (*row.tokens_per_s_per_gpu * devices);
  if (row.tflops_per_gpu) return flops_as_published(row, answer) / (*row.tflops_per_gpu * kTera * devices);
  return std::nullopt;
}

double ideal_time(const Forecast& answer) {
  const Job& job = answer.step.job;
  const IterationResult& iteration = answer.result.iteration;
  const double peak = job.cluster.device.peak_of(job.training.precision).value();
  const double busy = iteration.hardware_tflops_per_gpu * kTera * iteration.time_s / peak;
  const double microbatches = static_cast<double>(job.layout.microbatches()) * job.layout.vpp.value_or(1);
  return busy * (1.0 + (job.layout.pp - 1) / microbatches);
}

void evaluate_layer(const PublishedRow& row, const Forecast& answer, EvaluatedRow& evaluated) {
  const StageCosts& middle = answer.step.costs.stages.at(1);
  const Seconds backward = middle.recompute.total() + middle.input_gradient.total() + middle.weight_gradient.total();
  evaluated.predicted_s = (middle.forward.total() + backward - middle.tp_hidden).value();
  evaluated.measured_s = row.layer_s;
  const Job& job = answer.step.job;
  const double peak = job.cluster.device.peak_of(job.training.precision).value();
  evaluated.ideal_s = (middle.model_flops + middle.recompute_flops).value() / peak;
}

void evaluate_step(const PublishedRow& row, const MappedRow& mapped, const Forecast& answer, EvaluatedRow& evaluated) {
  evaluated.predicted_s = answer.result.iteration.time_s;
  if (mapped.steps_overlap) evaluated.predicted_s = answer.result.bubble.span_s + answer.result.breakdown.optimizer_s;
  evaluated.measured_s = measured_step(row, answer);
  evaluated.ideal_s = ideal_time(answer);
  evaluated.facts = facts_of(answer.step.job, answer.result.communication.exposed_fraction);
  evaluated.interval = answer.result.interval;
  evaluated.group = row.group;
  if (!row.job->is_null()) evaluated.job = mapped.job->dump();
  const Job& job = answer.step.job;
  evaluated.question =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", job.model.layers, job.model.hidden, job.model.heads, job.model.ffn,
                  job.model.vocab, job.training.sequence_length, name_of(job.training.precision),
                  job.cluster.device.name, job.cluster.devices(), job.layout.global_batch_size);
  const bool memory_counts = row.peak_memory_gib || row.out_of_memory;
  if (!memory_counts) return;
  const MemoryResult& memory = answer.result.memory;
  evaluated.memory_predicted_gib = mapped.memory_as_tools_show ? memory.shown_gib
                                   : mapped.memory_reserved    ? memory.reserved_gib
                                                               : memory.peak_gib;
  evaluated.memory_measured_gib = row.peak_memory_gib;
  evaluated.out_of_memory = row.out_of_memory;
  evaluated.predicted_out_of_memory = !memory.fits;
}

std::optional<DeviceProfile> profile_of(const nlohmann::json& job) {
  if (!job.contains("training") || !job.at("training").contains("profile")) return std::nullopt;
  return read_device_profile(job.at("training").at("profile"), "training.profile", Origins{});
}

void evaluate_collective(const PublishedRow& row, const MappedRow& mapped, EvaluatedRow& evaluated) {
  const Origins origins;
  ObjectReader reader(mapped.job, "", origins);
  std::vector<std::string> assumptions;
  const std::optional<DeviceProfile> profile = profile_of(mapped.job);
  const Cluster cluster = read_cluster(reader, profile ? &*profile : nullptr, assumptions, origins);
  const std::string& operation = row.collective->operation;
  const CollectiveKind kind = parse<CollectiveKind>(operation).value_or(CollectiveKind::kAllReduce);
  GroupPlacement group;
  group.ranks = cluster.devices();
  group.ranks_per_node = cluster.devices_per_node;
  group.nodes = cluster.nodes;
  evaluated.predicted_s = CommunicationModel(cluster).collective(kind, Bytes(row.collective->bytes), group).value();
  evaluated.measured_s = row.collective->seconds;
}

// A choice that does not fit the memory is ignored if another one fits, because the run did.
void add_choice(const Completion& choice, const std::string& about, const ReadFile& read_file, OpenRow& open) {
  const MappedRow mapped = map_row(choice.row, about);
  if (!mapped.skip_reason.empty()) return;
  const Forecast answer = forecast(read_job(mapped.job, Origins{}), read_file);
  const auto measured = measured_step(choice.row, answer);
  const bool fits = answer.result.memory.fits;
  if (!measured || (open.fits && !fits)) return;
  if (fits && !open.fits) open.forecasts = 0;
  open.fits = fits;
  const double predicted = answer.result.iteration.time_s;
  open.fastest_s = open.forecasts == 0 ? predicted : std::min(open.fastest_s, predicted);
  open.slowest_s = open.forecasts == 0 ? predicted : std::max(open.slowest_s, predicted);
  open.measured_s = *measured;
  open.open = choice.open;
  ++open.forecasts;
}

// Forecasts the possible meanings of a row; a choice whose job is refused is ignored. Scattering gradients after every
// microbatch costs so much traffic that it is assumed only if whole gradients do not fit.
std::optional<OpenRow> evaluate_open(const PublishedRow& row, const std::string& about, const ReadFile& read_file) {
  OpenRow open;
  open.id = row.id;
  open.fits = false;
  const std::vector<Completion> choices = completions(row);
  for (const bool scatters_each : {false, true}) {
    if (open.fits) break;
    for (const Completion& choice : choices) {
      if (choice.row.scatters_each_microbatch.value_or(false) != scatters_each) continue;
      try {
        add_choice(choice, about, read_file, open);
      } catch (const ConfigError&) {
        continue;
      }
    }
  }
  if (open.forecasts == 0) return std::nullopt;
  return open;
}

void compare_rows(const std::vector<const PublishedRow*>& published, SourceSummary& summary) {
  std::vector<ComparedRow> rows;
  for (std::size_t index = 0; index < published.size(); ++index) {
    rows.push_back({published[index], &summary.evaluated[index]});
  }
  summary.choices = choice_statistics(rows);
  summary.speed_up = statistics_of(speed_up_errors(rows));
  const std::vector<bool> contradicted = contradicted_rows(rows);
  std::vector<double> undisputed;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const auto error = rows[index].evaluated->error();
    if (!error) continue;
    if (contradicted[index]) {
      ++summary.contradicted_rows;
    } else {
      undisputed.push_back(*error);
    }
  }
  summary.undisputed_time = statistics_of(undisputed);
}

// Removes one part from a forecast, by changing the job or the cost functions.
struct WithoutPart {
  const char* part = "";
  nlohmann::json patch = nlohmann::json::object();
  CostOverrides laws = {};
};

std::vector<WithoutPart> parts_of_expert_layers() {
  WithoutPart exchange = {.part = "dispatch and combine"};
  exchange.laws.network_time = [](std::string_view kind, Bytes, const GroupPlacement&, Seconds ours) {
    return kind == name_of(CollectiveKind::kAllToAll) ? Seconds(0) : ours;
  };
  WithoutPart permutation = {.part = "permutations"};
  permutation.laws.operator_time = [](std::string_view op, std::string_view, Seconds ours) {
    return op.find("permutation") != std::string_view::npos ? Seconds(0) : ours;
  };
  return {{.part = "GEMMs of experts", .patch = {{"model", {{"experts", {{"ffn", 8}}}}}}},
          {.part = "time on links, jobs with experts",
           .patch = {{"cluster", {{"intra_bandwidth", "900TB/s"}, {"nic_bandwidth", "900TB/s"}}}}},
          exchange,
          permutation};
}

bool trains_experts(const MappedRow& mapped) {
  if (!mapped.skip_reason.empty() || mapped.part != MeasuredPart::kStep) return false;
  const nlohmann::json& model = mapped.job->at("model");
  return model.contains("experts") && !model.at("experts").is_null();
}

}  // namespace

EvaluatedRow evaluate_row(const PublishedRow& row, const MappedRow& mapped, const ReadFile& read_file,
                          std::shared_ptr<const CostOverrides> laws) {
  EvaluatedRow evaluated;
  evaluated.id = row.id;
  evaluated.used_in_fit = row.used_in_fit;
  if (mapped.part == MeasuredPart::kCollective) {
    evaluate_collective(row, mapped, evaluated);
    return evaluated;
  }
  Job job = read_job(mapped.job, Origins{});
  job.laws = std::move(laws);
  const Forecast answer = forecast(job, read_file);
  if (mapped.part == MeasuredPart::kLayer) {
    evaluate_layer(row, answer, evaluated);
  } else {
    evaluate_step(row, mapped, answer, evaluated);
  }
  return evaluated;
}

ExpertAblations expert_ablations() {
  std::vector<WithoutPart> all = parts_of_expert_layers();
  all.insert(all.begin(), WithoutPart());
  std::vector<std::vector<double>> errors(all.size());
  const ReadFile no_file = [](const std::string& path) -> std::string {
    throw ConfigError({path, "published rows must not refer to files", "", ""});
  };
  for (const PublishedFile& file : shipped_published()) {
    for (const PublishedRow& row : file.rows) {
      const MappedRow mapped = map_row(row, file.about);
      if (!trains_experts(mapped)) continue;
      for (std::size_t index = 0; index < all.size(); ++index) {
        MappedRow changed = mapped;
        changed.job->merge_patch(all[index].patch);
        const EvaluatedRow evaluated =
            evaluate_row(row, changed, no_file, std::make_shared<const CostOverrides>(all[index].laws));
        if (const std::optional<double> error = evaluated.error()) errors[index].push_back(*error);
      }
    }
  }
  ExpertAblations ablations = {.whole = statistics_of(errors.front()), .parts = {}};
  for (std::size_t index = 1; index < all.size(); ++index) {
    ablations.parts.push_back({all[index].part, statistics_of(errors[index])});
  }
  return ablations;
}

SourceSummary evaluate(const PublishedFile& file, const ReadFile& read_file, const JsonValue& profile) {
  SourceSummary summary;
  summary.source = file.source;
  summary.rows = static_cast<int>(file.rows.size());
  std::vector<const PublishedRow*> published;
  for (const PublishedRow& row : file.rows) {
    MappedRow mapped = map_row(row, file.about);
    if (!row.inexpressible.empty()) summary.inexpressible.push_back(row.id + ": " + row.inexpressible);
    if (!profile->is_null() && mapped.skip_reason.empty()) {
      if (mapped.job["cluster"]["device"] != profile.at("cluster").at("device").at("name")) {
        mapped.skip_reason = "device differs from the profile's";
      } else {
        mapped.job["training"]["profile"] = profile;
      }
    }
    if (!mapped.skip_reason.empty()) {
      summary.skipped.push_back({row.id, mapped.skip_reason});
      if (auto open = profile->is_null() ? evaluate_open(row, file.about, read_file) : std::nullopt) {
        open->source = file.source;
        summary.open.push_back(std::move(*open));
      }
      continue;
    }
    try {
      EvaluatedRow evaluated = evaluate_row(row, mapped, read_file);
      evaluated.source = file.source;
      const bool measured = evaluated.measured_s || evaluated.memory_measured_gib || evaluated.out_of_memory;
      if (measured) {
        summary.evaluated.push_back(std::move(evaluated));
        published.push_back(&row);
      } else {
        summary.skipped.push_back({row.id, "none of the measured figures is forecast"});
      }
    } catch (const ConfigError& error) {
      const Diagnostic& diagnostic = error.diagnostic();
      summary.skipped.push_back({row.id, fmt::format("{}: {}", diagnostic.field, diagnostic.problem)});
    }
  }
  summarise(summary);
  compare_rows(published, summary);
  return summary;
}

namespace {

std::optional<double> number_at(const nlohmann::json& json, const std::string& field, const std::string& file) {
  const nlohmann::json::json_pointer place(pointer_of(field));
  if (!json.contains(place) || json.at(place).is_null()) return std::nullopt;
  const nlohmann::json& value = json.at(place);
  constexpr double kLeast = 1e-12;  // seconds and GiB; smaller values would make ratios infinite
  if (value.is_number() && value.get<double>() >= kLeast) return value.get<double>();
  throw ConfigError({field, fmt::format("{} is not a number above zero", shown_value(value)),
                     fmt::format("{}:{}", file, pointer_of(field)), "seconds or GiB, as measured"});
}

double required_at(const nlohmann::json& json, const std::string& field, const std::string& file) {
  const auto value = number_at(json, field, file);
  if (value) return *value;
  throw ConfigError(
      {field, "is missing: this is not a result of flopcast run", file, "write one with: flopcast run JOB -o FILE"});
}

// Reads the comparison that flopcast run prints: simulated replay and measurement from the row of the step.
EvaluatedRow read_comparison(const nlohmann::json& rows, const std::string& file) {
  EvaluatedRow row;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    if (!rows[index].is_object() || rows[index].value("term", nlohmann::json()) != "step time") continue;
    row.predicted_s = required_at(rows, fmt::format("{}.replay", index), file);
    row.measured_s = required_at(rows, fmt::format("{}.measured", index), file);
    return row;
  }
  throw ConfigError({"term", "has no row \"step time\": this is not a result of flopcast run", file,
                     "write one with: flopcast run JOB --format json"});
}

// A run measures only the activations of its memory: takes the rank with most of them, on both sides.
std::optional<double> most_activations(const nlohmann::json& json, const std::string& side, const std::string& file) {
  const std::string field = side + ".memory.per_pipeline_rank";
  const nlohmann::json::json_pointer place(pointer_of(field));
  if (!json.contains(place) || !json.at(place).is_array()) return std::nullopt;
  std::optional<double> most;
  for (std::size_t rank = 0; rank < json.at(place).size(); ++rank) {
    const auto held = number_at(json, fmt::format("{}.{}.activations_gib", field, rank), file);
    if (held) most = std::max(most.value_or(0.0), *held);
  }
  return most;
}

EvaluatedRow read_sides(const nlohmann::json& json, const std::string& file) {
  EvaluatedRow row;
  row.predicted_s = required_at(json, "forecast.iteration.time_s", file);
  row.measured_s = required_at(json, "measured.iteration.time_s", file);
  if (json.value("schema", nlohmann::json()) != "flopcast.run/1") {
    row.memory_predicted_gib = number_at(json, "forecast.memory.peak_gib", file);
    row.memory_measured_gib = number_at(json, "measured.memory.peak_gib", file);
  } else if (json.value("compute", nlohmann::json()) != "sleep") {  // ranks that sleep keep no activations
    row.memory_predicted_gib = most_activations(json, "forecast", file);
    row.memory_measured_gib = most_activations(json, "measured", file);
  }
  const auto mfu = number_at(json, "forecast.iteration.hfu", file);
  // Time at the device's peak; a result does not contain the ideal pipeline.
  if (mfu) row.ideal_s = row.predicted_s * *mfu;
  return row;
}

}  // namespace

EvaluatedRow read_run_result(const nlohmann::json& json, const std::string& id, const std::string& source,
                             const std::string& file) {
  const bool is_measurement = json.is_object() && json.value("schema", nlohmann::json()) == "flopcast.measurement/1";
  if (is_measurement && !json.contains("comparison")) {
    throw ConfigError({"comparison", "is missing: the run did not complete, or was not started by flopcast run", file,
                       "write one with: flopcast run JOB -o FILE"});
  }
  EvaluatedRow row =
      json.is_array() ? read_comparison(json, file) : read_sides(is_measurement ? json.at("comparison") : json, file);
  row.id = id;
  row.source = source;
  return row;
}

namespace {

using RowJson = nlohmann::json;

std::string refuse_a_file(const std::string& path) {
  throw InternalError("a row's job must not read files: " + path);
}

// Figure of a run that a row refers to, by the keys of flopcast.result/1 below "run"; sources also report hours between
// interruptions and lost points of MFU, which have no key.
double figure_of(const std::string& reads, const Forecast& answer) {
  const RunResult& run = *answer.result.run;
  constexpr double kHoursOfDay = 24.0;
  if (reads == "interruptions_per_day") return run.interruptions_per_day;
  if (reads == "hours_between") return kHoursOfDay / run.interruptions_per_day;
  if (reads == "goodput.p50") return run.goodput.p50;
  if (reads == "ettr.p50") return run.ettr.p50;
  if (reads == "checkpoint_cost_s") return run.checkpoint_cost_s;
  FLOPCAST_CHECK(reads == "lost_mfu_points");
  return 100.0 * answer.result.iteration.mfu * (1.0 - run.goodput.p50);
}

double drawn_figure_of(const RowJson& row) {
  Forecast answer = forecast(read_job(row.at("job"), {}), refuse_a_file);
  add_run(answer, WithOptions::kNo);
  FLOPCAST_CHECK(answer.result.run.has_value());
  return row.value("scale", 1.0) * figure_of(row.at("reads"), answer);
}

std::optional<double> bound_at(const RowJson& row, const char* key) {
  return row.contains(key) ? std::optional<double>(row.at(key).get<double>()) : std::nullopt;
}

// The row with this id, or null.
const RowJson* row_named(const RowJson& rows, const std::string& id) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&id](const RowJson& row) {
    return row.is_object() && row.contains("id") && row.at("id") == id;
  });
  return found == rows.end() ? nullptr : &*found;
}

// A measured value; the known row's value for bounds such as ">0.90".
std::optional<double> measured_of(const RowJson& value, const RowJson& known) {
  const bool listed = value.is_array() && known.contains("take");
  if (listed) {
    const auto take = known.at("take").get<std::size_t>();
    return take < value.size() ? measured_of(value.at(take), RowJson::object()) : std::nullopt;
  }
  if (value.is_number()) return value.get<double>();
  // For texts and other units, the shipped row has the value.
  return known.contains("value") ? std::optional<double>(known.at("value").get<double>()) : std::nullopt;
}

// Empty if a user's row has something other than text there.
std::string text_at(const RowJson& row, const char* key) {
  const RowJson value = row.value(key, RowJson());
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool is_about_failures(const RowJson& row) {
  const std::string check = text_at(row, "check");
  for (const char* word : {"failure", "straggler", "checkpoint", "slow phase", "detection", "replicas"}) {
    if (check.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

FailureRows evaluate_failures(const RowJson* published, const std::string& file) {
  const RowJson known = RowJson::parse(embedded_failure_rows().front().text);
  const RowJson nothing = RowJson::array();
  if (published != nullptr &&
      (!published->is_object() || !published->contains("rows") || !published->at("rows").is_array())) {
    throw ConfigError({"rows", "are missing", file, R"(expected {"rows": [{"id": …, "value": …}]})"});
  }
  const RowJson& given = published == nullptr ? nothing : published->at("rows");
  FailureRows answer;
  for (const RowJson& row : known.at("rows")) {
    const std::string id = row.at("id");
    double measured = row.at("value");
    if (published != nullptr) {
      const RowJson* own = row_named(given, id);
      if (own == nullptr) continue;
      const std::optional<double> value = own->contains("value") && row.at("unit") == text_at(*own, "unit")
                                              ? measured_of(own->at("value"), row)
                                              : measured;
      if (!value) throw ConfigError({"rows", fmt::format("{} has no numeric value", id), file, ""});
      measured = *value;
    }
    FailureRow one;
    one.id = id;
    one.quantity = row.at("quantity").get<std::string>() + "; " + row.at("conditions").get<std::string>();
    one.unit = row.at("unit");
    one.measured = measured;
    one.forecast = drawn_figure_of(row);
    one.low = bound_at(row, "low");
    one.high = bound_at(row, "high");
    one.source = row.at("source").get<std::string>() + ", " + row.at("place").get<std::string>();
    one.assumed = row.value("assumed", "");
    if (!one.inside()) one.missed = row.value("missed", "not explained");
    answer.rows.push_back(std::move(one));
  }
  for (const RowJson& row : known.at("inexpressible")) {
    if (published != nullptr && row_named(given, row.at("id")) == nullptr) continue;
    answer.inexpressible.push_back({row.at("id"), row.at("quantity"), row.at("reason")});
  }
  for (const RowJson& row : given) {
    if (!row.is_object() || !row.contains("id") || !row.at("id").is_string()) continue;
    const std::string id = row.at("id");
    const bool told = row_named(known.at("rows"), id) != nullptr || row_named(known.at("inexpressible"), id) != nullptr;
    if (told || !is_about_failures(row)) continue;
    const bool of_a_cause = text_at(row, "quantity").rfind("unexpected interruptions by cause", 0) == 0;
    answer.inexpressible.push_back({id, text_at(row, "quantity"),
                                    of_a_cause ? "counts causes that a preset defines" : "no matching job is known"});
  }
  return answer;
}

std::vector<Table> failure_tables(const FailureRows& rows) {
  Table table;
  table.columns = {text_column("row", "id"),     text_column("quantity"),     text_column("unit"),
                   number_column("measured"),    number_column("forecast"),   number_column("error %"),
                   number_column("from", "low"), number_column("to", "high"), text_column("inside")};
  const auto number = [](double value) { return fmt::format("{:.3g}", value); };
  int inside = 0;
  for (const FailureRow& row : rows.rows) {
    inside += row.inside() ? 1 : 0;
    table.rows.push_back({row.id, row.quantity, row.unit, number(row.measured), number(row.forecast),
                          fmt::format("{:.1f}", 100.0 * (row.forecast / row.measured - 1.0)),
                          row.low ? number(*row.low) : "", row.high ? number(*row.high) : "",
                          row.inside() ? "yes" : "no"});
    const std::string missed = row.missed.empty() ? "" : "; outside: " + row.missed;
    table.notes.push_back(fmt::format("{}: {}; assumed: {}{}", row.id, row.source, row.assumed, missed));
  }
  table.title = fmt::format("failures, checkpoints and stragglers: {} of {} published figures are inside their bands",
                            inside, rows.rows.size());
  Table open;
  open.title = "not expressible as a run";
  open.columns = {text_column("row", "id"), text_column("quantity"), text_column("why", "reason")};
  for (const OpenFailureRow& row : rows.inexpressible) open.rows.push_back({row.id, row.quantity, row.reason});
  std::vector<Table> tables = {std::move(table)};
  if (!open.rows.empty()) tables.push_back(std::move(open));
  return tables;
}

}  // namespace flopcast
