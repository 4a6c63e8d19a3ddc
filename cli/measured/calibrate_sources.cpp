#include "cli/measured/sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <istream>
#include <nlohmann/json.hpp>

#include "base/host/files.hpp"
#include "base/host/guard.hpp"
#include "base/host/processes.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/device/build_profile.hpp"
#include "calibrate/device/fits.hpp"
#include "calibrate/device/imports.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

std::optional<int> count(const std::optional<std::string>& text, const std::string& flag) {
  if (!text) return std::nullopt;
  constexpr int kMost = 999'999;
  const std::optional<int> number = parse_digits(*text, 1, kMost);
  if (!number) throw ConfigError({flag, fmt::format("\"{}\" is no number of 1 or more", *text), flag, ""});
  return number;
}

std::optional<SampleKind> collective_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  std::vector<std::string> names;
  for (std::size_t index = 0; index < sample_kind_names().size(); ++index) {
    if (!is_message(static_cast<SampleKind>(index))) continue;
    names.push_back(sample_kind_names()[index]);
    if (names.back() == *name) return static_cast<SampleKind>(index);
  }
  throw ConfigError(
      {"--collective", fmt::format("unknown value \"{}\"", *name), "--collective", choices_help(*name, names)});
}

NcclTestsRequest nccl_request(const CalibrationWishes& wishes) {
  NcclTestsRequest request;
  request.ranks = count(wishes.ranks, "--ranks");
  request.nodes = count(wishes.nodes, "--nodes");
  request.kind = collective_of(wishes.collective);
  request.in_place = wishes.in_place;
  return request;
}

// Where samples are kept while they are taken, so that a stopped calibration goes on.
Table work_table(const Trace& trace, const std::string& file) {
  Table table;
  const TraceTime total = trace.total();
  table.title = fmt::format("{}: kernels of {}", file, trace.measurement.device);
  table.columns = {text_column("work"), number_column("kernels"), number_column("ms", "milliseconds"),
                   number_column("share %")};
  for (std::size_t index = 0; index < kTraceWorkCount; ++index) {
    const TraceTime& time = trace.work[index];
    table.rows.push_back({trace_work_names()[index], std::to_string(time.kernels),
                          fmt::format("{:.3f}", 1e3 * time.seconds),
                          fmt::format("{:.1f}", total.seconds > 0.0 ? 1e2 * time.seconds / total.seconds : 0.0)});
  }
  const TraceTime& communication = trace.work[static_cast<std::size_t>(TraceWork::kCommunication)];
  table.notes = {fmt::format("{} of {} kernels beside communication have an operator; {} samples",
                             trace.matched.kernels, total.kernels - communication.kernels,
                             trace.measurement.samples.size())};
  return table;
}

Table operator_table(const Trace& trace) {
  constexpr std::size_t kShown = 10;
  Table table = {.title = "the longest operators",
                 .columns = {text_column("operator"), text_column("work"), number_column("kernels"),
                             number_column("ms", "milliseconds")}};
  for (std::size_t index = 0; index < std::min(kShown, trace.operators.size()); ++index) {
    const OperatorTime& time = trace.operators[index];
    table.rows.push_back({time.name, trace_work_names()[static_cast<std::size_t>(time.work)],
                          std::to_string(time.time.kernels), fmt::format("{:.3f}", 1e3 * time.time.seconds)});
  }
  return table;
}

void import_trace(const std::string& path, const TraceRequest& request, const Streams& streams,
                  Calibration& calibration) {
  PackedFile file(path);
  std::istream stream(&file);
  const Trace trace = read_trace(stream, path, request);
  for (const std::string& note : trace.notes) warn(streams, fmt::format("{}: {}", path, note));
  add_samples(calibration.measurement, trace.measurement, path);
  calibration.tables.push_back(work_table(trace, path));
  if (!trace.operators.empty()) calibration.tables.push_back(operator_table(trace));
}

void import_topology(const CalibrationWishes& wishes, const Streams& streams, Calibration& calibration) {
  std::optional<GpuGeneration> generation;
  if (wishes.device) {
    std::vector<std::string> ignored;
    generation = read_device(*wishes.device, "device", ignored, {}).generation;
  }
  const TopologyFacts facts = topology_facts(read_topology(read_file(*wishes.topology), *wishes.topology), generation);
  for (const std::string& note : facts.notes) warn(streams, fmt::format("{}: {}", *wishes.topology, note));
  calibration.cluster = facts.cluster;
}

void tell_what_is_not_fitted(Measurement& measurement, const Streams& streams) {
  for (const std::string& reason : leave_out_small_groups(measurement)) warn(streams, "not fitted: " + reason);
}

}  // namespace

std::string measurement_path(const CalibrationWishes& wishes) {
  if (wishes.measurements) return *wishes.measurements;
  if (!wishes.profile) return wishes.cuda ? "gpu.measurements.json" : "cpu.measurements.json";
  std::filesystem::path path = *wishes.profile;
  return path.replace_extension(".measurements.json").string();
}

std::optional<Calibration> calibrate_here(const CalibrationWishes& wishes, const Streams& streams) {
  const std::string path = measurement_path(wishes);
  std::vector<std::string> arguments = {"-o", path};
  if (wishes.cuda) arguments.emplace_back("--cuda");
  if (wishes.quick) arguments.emplace_back("--quick");
  if (wishes.seconds) arguments.insert(arguments.end(), {"--seconds", *wishes.seconds});
  if (wishes.ranks) arguments.insert(arguments.end(), {"--ranks", *wishes.ranks});
  std::vector<std::string> words = {program_beside("flopcast-measure")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const ChildEnd end = run_child(words, streams);
  if (end.signal != 0) throw EnvironmentError(fmt::format("flopcast-measure was ended by signal {}", end.signal));
  const int code = end.exit_code;
  // It has told what is wrong.
  if (code == kBadInput) throw ConfigError({wishes.measured(), "was not measured", "", ""});
  if (code == kEnvironmentFailed && wishes.cuda) return std::nullopt;
  if (code != 0) throw EnvironmentError(fmt::format("flopcast-measure failed with exit code {}", code));
  Measurement measurement = read_measurement(read_file(path), path);
  require_agreement(measurement, path);
  const std::optional<double> ratio = disturbance(measurement);
  if (ratio && *ratio > kDisturbedFrom) {
    warn(streams, fmt::format("the machine was disturbed: wall time is {:.2f} times the CPU time (1.00 on a quiet one)",
                              *ratio));
  }
  // Its time may have been too short for some.
  if (wishes.cuda) tell_what_is_not_fitted(measurement, streams);
  return Calibration{std::move(measurement), nlohmann::json::object(), {}};
}

Calibration import_files(const CalibrationWishes& wishes, const Streams& streams) {
  Calibration calibration;
  if (wishes.from) {
    calibration.measurement = read_measurement(read_file(*wishes.from), *wishes.from);
    require_agreement(calibration.measurement, *wishes.from);
  }
  for (const std::string& path : wishes.nccl_tests) {
    add_samples(calibration.measurement, import_nccl_tests(read_file(path), path, nccl_request(wishes)), path);
  }
  const TraceRequest request{count(wishes.devices_per_node, "--devices-per-node")};
  for (const std::string& path : wishes.traces) import_trace(path, request, streams, calibration);
  if (wishes.topology) import_topology(wishes, streams, calibration);
  const bool kept = wishes.measurements && !calibration.measurement.samples.empty();
  if (kept) write_file(*wishes.measurements, write_measurement(calibration.measurement));
  if (wishes.from || (!wishes.traces.empty() && wishes.profile))
    tell_what_is_not_fitted(calibration.measurement, streams);
  return calibration;
}

Calibration import_training_log(const CalibrationWishes& wishes) {
  const std::string& file = *wishes.training_log;
  const TrainingLog log = read_training_log(read_file(file), file);
  Calibration calibration{measurement_of(log, file, count(wishes.ranks, "--ranks")), nlohmann::json::object(), {}};
  Table table;
  table.title =
      fmt::format("{}: {} logged steps, {} start{}", file, log.steps.size(), log.starts, log.starts == 1 ? "" : "s");
  table.columns = {number_column("ranks"),
                   number_column("global batch size"),
                   number_column("steps"),
                   number_column("median s"),
                   number_column("10 % below s", "p10_s"),
                   number_column("90 % below s", "p90_s"),
                   number_column("samples/s", "samples_per_s")};
  for (const Sample& sample : calibration.measurement.samples) {
    const double median = sample.median();
    table.rows.push_back(
        {std::to_string(sample.key.ranks), std::to_string(*sample.key.batch), std::to_string(sample.seconds.size()),
         fmt::format("{:.6g}", median), fmt::format("{:.6g}", quantile_of(sample.seconds, 0.1)),
         fmt::format("{:.6g}", quantile_of(sample.seconds, 0.9)), fmt::format("{:.6g}", *sample.key.batch / median)});
  }
  const auto left_out = std::count_if(log.steps.begin(), log.steps.end(),
                                      [](const LoggedStep& step) { return step.warm_up || step.skipped > 0; });
  table.notes = {fmt::format("{} left out: the first of each start, and those that skipped an update", left_out)};
  calibration.tables.push_back(std::move(table));
  if (wishes.measurements) write_file(*wishes.measurements, write_measurement(calibration.measurement));
  return calibration;
}

}  // namespace flopcast
