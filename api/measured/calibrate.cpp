#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "api/question.hpp"
#include "base/host/files.hpp"
#include "base/host/guard.hpp"
#include "base/host/processes.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/device/build_profile.hpp"
#include "calibrate/device/fits.hpp"
#include "calibrate/device/imports.hpp"
#include "calibrate/tables/tables.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/document.hpp"
#include "model/job/device_profile.hpp"
#include "model/job/read_job.hpp"
#include "reports/svg/charts.hpp"

namespace flopcast {

namespace {

// Reads a profile from a file; errors name the line or key.
DeviceProfile load_profile(const std::string& path) {
  Origins origins;
  origins.file = path;
  return read_device_profile(parse_json(read_file(path), path), "", origins);
}

/// Options as typed by the user.
struct CalibrationOptions {
  bool cpu = false;
  bool cuda = false;
  bool quick = false;
  bool in_place = false;
  std::vector<std::string> nccl_tests;
  std::vector<std::string> traces;
  std::optional<std::string> topology;
  std::optional<std::string> training_log;
  std::optional<std::string> from;
  std::optional<std::string> seconds;
  std::optional<std::string> ranks;
  std::optional<std::string> nodes;
  std::optional<std::string> devices_per_node;
  std::optional<std::string> collective;
  std::optional<std::string> measurements;
  std::optional<std::string> profile;
  std::optional<std::string> device;  ///< known to the catalogue
  std::optional<std::string> report;
  std::optional<std::string> name;
  std::optional<std::string> source;
  std::optional<std::string> figure_file;
  std::optional<std::string> page_file;

  /// The flag that measures this machine; empty if nothing is measured now.
  std::string measured() const { return cpu ? "--cpu" : cuda ? "--cuda" : ""; }

  /// True if there are input files that can be combined.
  bool imports() const { return !nccl_tests.empty() || !traces.empty() || topology || from; }
};

struct Calibration {
  Measurement measurement;
  JsonValue cluster = JsonValue::object();  ///< keys known without a measurement
  std::vector<Table> tables;                ///< contents of the files other than samples
};

std::optional<int> count(const std::optional<std::string>& text, const std::string& flag) {
  if (!text) return std::nullopt;
  constexpr int kMost = 999'999;
  const std::optional<int> number = parse_digits(*text, 1, kMost);
  if (!number) throw ConfigError({flag, fmt::format("\"{}\" is not a whole number of 1 or more", *text), flag, ""});
  return number;
}

std::optional<SampleKind> collective_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  std::vector<std::string> names = names_of<SampleKind>();
  std::erase_if(names, [](const std::string& kind) { return !is_message(*parse<SampleKind>(kind)); });
  return parse<SampleKind>(names[choice_of("--collective", *name, names)]);
}

NcclTestsRequest nccl_request(const CalibrationOptions& options) {
  NcclTestsRequest request;
  request.ranks = count(options.ranks, "--ranks");
  request.nodes = count(options.nodes, "--nodes");
  request.kind = collective_of(options.collective);
  request.in_place = options.in_place;
  return request;
}

Table work_table(const Trace& trace, const std::string& file) {
  Table table;
  const TraceTime total = trace.total();
  table.title = fmt::format("{}: kernels of {}", file, trace.measurement.device);
  table.columns = {text_column("work"), number_column("kernels"), number_column("ms", "milliseconds"),
                   number_column("share %")};
  for (std::size_t index = 0; index < kTraceWorkCount; ++index) {
    const TraceTime& time = trace.work[index];
    table.rows.push_back({names_of<TraceWork>()[index], std::to_string(time.kernels),
                          fmt::format("{:.3f}", 1e3 * time.seconds),
                          fmt::format("{:.1f}", total.seconds > 0.0 ? 1e2 * time.seconds / total.seconds : 0.0)});
  }
  const TraceTime& communication = trace.work[static_cast<std::size_t>(TraceWork::kCommunication)];
  table.notes = {fmt::format("{} of {} kernels other than communication have an operator; {} samples",
                             trace.matched.kernels, total.kernels - communication.kernels,
                             trace.measurement.samples.size())};
  return table;
}

Table operator_table(const Trace& trace) {
  constexpr std::size_t kShown = 10;
  Table table = {.title = "longest operators",
                 .columns = {text_column("operator"), text_column("work"), number_column("kernels"),
                             number_column("ms", "milliseconds")}};
  for (std::size_t index = 0; index < std::min(kShown, trace.operators.size()); ++index) {
    const OperatorTime& time = trace.operators[index];
    table.rows.push_back({time.name, std::string(name_of(time.work)), std::to_string(time.time.kernels),
                          fmt::format("{:.3f}", 1e3 * time.time.seconds)});
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

void import_topology(const CalibrationOptions& options, const Streams& streams, Calibration& calibration) {
  std::optional<GpuGeneration> generation;
  if (options.device) {
    std::vector<std::string> ignored;
    generation = read_device(*options.device, "device", ignored, {}).generation;
  }
  const TopologyFacts facts =
      topology_facts(read_topology(read_file(*options.topology), *options.topology), generation);
  for (const std::string& note : facts.notes) warn(streams, fmt::format("{}: {}", *options.topology, note));
  calibration.cluster = facts.cluster;
}

void warn_of_unfitted(Measurement& measurement, const Streams& streams) {
  for (const std::string& reason : leave_out_small_groups(measurement)) warn(streams, "not fitted: " + reason);
}

// File in which calibrate_here keeps its measurements.
std::string measurement_path(const CalibrationOptions& options) {
  if (options.measurements) return *options.measurements;
  if (!options.profile) return options.cuda ? "gpu.measurements.json" : "cpu.measurements.json";
  std::filesystem::path path = *options.profile;
  return path.replace_extension(".measurements.json").string();
}

// Measures this machine or its GPU in a separate program. Throws EnvironmentError if its two passes disagree. Nullopt
// if the machine lacks the device to be measured, which that program has reported.
std::optional<Calibration> calibrate_here(const CalibrationOptions& options, const Streams& streams) {
  const std::string path = measurement_path(options);
  std::vector<std::string> arguments = {"-o", path};
  if (options.cuda) arguments.emplace_back("--cuda");
  if (options.quick) arguments.emplace_back("--quick");
  if (options.seconds) arguments.insert(arguments.end(), {"--seconds", *options.seconds});
  if (options.ranks) arguments.insert(arguments.end(), {"--ranks", *options.ranks});
  std::vector<std::string> words = {sibling_program("flopcast-measure")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const ChildEnd end = run_child(words, streams);
  if (end.signal != 0) throw EnvironmentError(fmt::format("flopcast-measure was killed by signal {}", end.signal));
  const int code = end.exit_code;
  // The program has reported the error already.
  if (code == kBadInput) throw ConfigError({options.measured(), "was not measured", "", ""});
  if (code == kEnvironmentFailed && options.cuda) return std::nullopt;
  if (code != 0) throw EnvironmentError(fmt::format("flopcast-measure failed with exit code {}", code));
  Measurement measurement = read_measurement(read_file(path), path);
  require_agreement(measurement, path);
  const std::optional<double> ratio = disturbance(measurement);
  if (ratio && *ratio > kDisturbedFrom) {
    warn(streams,
         fmt::format("the machine was disturbed: wall time is {:.2f} times the CPU time (1.00 on an idle machine)",
                     *ratio));
  }
  // The time limit may have been too short for some groups.
  if (options.cuda) warn_of_unfitted(measurement, streams);
  return Calibration{std::move(measurement), nlohmann::json::object(), {}};
}

// Reads the given files; facts that they leave open become warnings.
Calibration import_files(const CalibrationOptions& options, const Streams& streams) {
  Calibration calibration;
  if (options.from) {
    calibration.measurement = read_measurement(read_file(*options.from), *options.from);
    require_agreement(calibration.measurement, *options.from);
  }
  for (const std::string& path : options.nccl_tests) {
    add_samples(calibration.measurement, import_nccl_tests(read_file(path), path, nccl_request(options)), path);
  }
  const TraceRequest request{count(options.devices_per_node, "--devices-per-node")};
  for (const std::string& path : options.traces) import_trace(path, request, streams, calibration);
  if (options.topology) import_topology(options, streams, calibration);
  const bool kept = options.measurements && !calibration.measurement.samples.empty();
  if (kept) write_file(*options.measurements, write_measurement(calibration.measurement));
  if (options.from || (!options.traces.empty() && options.profile)) warn_of_unfitted(calibration.measurement, streams);
  return calibration;
}

Calibration import_training_log(const CalibrationOptions& options) {
  const std::string& file = *options.training_log;
  const TrainingLog log = read_training_log(read_file(file), file);
  Calibration calibration{measurement_of(log, file, count(options.ranks, "--ranks")), nlohmann::json::object(), {}};
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
  table.notes = {
      fmt::format("{} steps excluded: the first after each start, and steps that skipped an update", left_out)};
  calibration.tables.push_back(std::move(table));
  if (options.measurements) write_file(*options.measurements, write_measurement(calibration.measurement));
  return calibration;
}

constexpr const char* kModes =
    "give one of: --cpu; --cuda; any of --nccl-tests, --trace, --topology, --from; --training-log FILE; "
    "--report PROFILE";

enum class Mode { kHere, kImport, kTrainingLog, kReport };

Mode mode_of(const CalibrationOptions& options) {
  std::vector<std::pair<std::string, Mode>> modes;
  if (options.cpu) modes.emplace_back("--cpu", Mode::kHere);
  if (options.cuda) modes.emplace_back("--cuda", Mode::kHere);
  if (options.imports()) {
    const char* flag = !options.nccl_tests.empty() ? "--nccl-tests"
                       : !options.traces.empty()   ? "--trace"
                       : options.topology          ? "--topology"
                                                   : "--from";
    modes.emplace_back(flag, Mode::kImport);
  }
  if (options.training_log) modes.emplace_back("--training-log", Mode::kTrainingLog);
  if (options.report) modes.emplace_back("--report", Mode::kReport);
  if (modes.empty()) throw ConfigError({"", "calibrate: nothing to calibrate", "", kModes});
  if (modes.size() > 1) {
    throw ConfigError(
        {modes[1].first, fmt::format("cannot be combined with {}", modes[0].first), modes[1].first, kModes});
  }
  return modes.front().second;
}

// A flag that the chosen mode ignores is a usage error.
void refuse_idle_flags(const CalibrationOptions& options, Mode mode) {
  const auto refuse = [](bool given, const char* flag, bool works, const char* valid) {
    if (!given || works) return;
    throw ConfigError({flag, "has no effect here", flag, fmt::format("valid with: {}", valid)});
  };
  const bool here = mode == Mode::kHere;
  const bool nccl = !options.nccl_tests.empty();
  const bool profile = here || mode == Mode::kImport;
  refuse(options.quick, "--quick", here, "--cpu, --cuda");
  refuse(options.seconds.has_value(), "--seconds", options.cuda, "--cuda");
  refuse(options.measurements.has_value(), "--measurements", profile || mode == Mode::kTrainingLog,
         "--cpu, --cuda, --nccl-tests, --trace, --from, --training-log");
  refuse(options.collective.has_value(), "--collective", nccl, "--nccl-tests");
  refuse(options.in_place, "--in-place", nccl, "--nccl-tests");
  refuse(options.nodes.has_value(), "--nodes", nccl, "--nccl-tests");
  refuse(options.devices_per_node.has_value(), "--devices-per-node", !options.traces.empty(), "--trace");
  refuse(options.ranks.has_value(), "--ranks", nccl || here || mode == Mode::kTrainingLog,
         "--cpu, --cuda, --nccl-tests, --training-log");
  refuse(options.device.has_value(), "--device", mode == Mode::kImport || options.cuda,
         "--cuda, --nccl-tests, --trace, --topology, --from");
  refuse(options.name.has_value(), "--name", profile, "--cpu, --cuda, --nccl-tests, --trace, --topology, --from");
  refuse(options.source.has_value(), "--source", profile, "--cpu, --cuda, --nccl-tests, --trace, --topology, --from");
  refuse(options.figure_file.has_value(), "--svg", profile || mode == Mode::kReport, "a profile or --report");
  refuse(options.page_file.has_value(), "--html", profile || mode == Mode::kReport, "a profile or --report");
}

// The file of the measurements, which has a default name, must differ from the other outputs.
void check_measurement_file(const CalibrationOptions& options) {
  const std::string file = measurement_path(options);
  for (const auto& [flag, other] :
       {std::pair{"-o", options.profile}, {"--svg", options.figure_file}, {"--html", options.page_file}}) {
    if (!other || !is_one_file(file, *other)) continue;
    throw ConfigError({"--measurements", fmt::format("\"{}\" is also the output of {}", file, flag), "--measurements",
                       "use a different file for each"});
  }
  require_writable(file);
}

void check_device(const std::optional<std::string>& device) {
  if (device) choice_of("--device", *device, catalogue_names(CatalogueKind::kDevices), "device");
}

bool has(const Measurement& measurement, SampleKind kind) {
  return std::any_of(measurement.samples.begin(), measurement.samples.end(),
                     [kind](const Sample& sample) { return sample.key.kind == kind; });
}

// Only GPUs have kernel launches.
bool describes_gpu(const Measurement& measurement) {
  return has(measurement, SampleKind::kLaunch) || has(measurement, SampleKind::kHostDispatch);
}

bool describes_host(const Measurement& measurement, const CalibrationOptions& options) {
  return !options.device && !describes_gpu(measurement) && has(measurement, SampleKind::kGemm) &&
         has(measurement, SampleKind::kMemoryCopy);
}

std::string source_of(const CalibrationOptions& options, const Measurement& measurement) {
  if (!options.measured().empty() || (options.from && options.nccl_tests.empty() && options.traces.empty())) {
    return "flopcast calibrate on " + measurement.host;
  }
  std::vector<std::string> files;
  if (options.from) files.push_back(*options.from);
  for (const std::string& file : options.nccl_tests) files.push_back("nccl-tests, " + file);
  for (const std::string& file : options.traces) files.push_back("a trace, " + file);
  if (options.topology) files.push_back("nvidia-smi topo, " + *options.topology);
  return fmt::format("{}", fmt::join(files, "; "));
}

// Warns if the number of multiprocessors differs from the catalogue's device, which suggests a different device of the
// same name.
void check_multiprocessors(const Measurement& measurement, const std::string& device, const Streams& streams) {
  std::vector<std::string> ignored;
  const int known = read_device(device, "device", ignored, {}).multiprocessors;
  if (measurement.multiprocessors == known) return;
  warn(streams,
       fmt::format("the GPU has {} multiprocessors, but {} has {}: give --device NAME if it is a different device",
                   measurement.multiprocessors, device, known));
}

// Device of the profile; a GPU is identified by its reported name unless the user gives one.
std::string device_of(const CalibrationOptions& options, const Measurement& measurement, const Streams& streams) {
  if (!options.cuda && !(options.from && describes_gpu(measurement))) return options.device.value_or("");
  if (is_part_of_gpu(measurement.device)) {
    throw ConfigError({"--device", fmt::format("\"{}\" is a partition of a GPU", measurement.device), "",
                       "measure the whole GPU, without MIG: the catalogue has no partitions"});
  }
  const std::optional<std::string> known = catalogued_device(measurement.device);
  if (options.device && known && *known != *options.device) {
    warn(streams, fmt::format("the GPU reports its name as {}, which is {}, not {}", measurement.device, *known,
                              *options.device));
  }
  if (options.device || known) {
    const std::string device = options.device.value_or(known.value_or(""));
    check_multiprocessors(measurement, device, streams);
    return device;
  }
  throw ConfigError(
      {"--device", fmt::format("\"{}\" does not match a device of the catalogue", measurement.device), "--device",
       choices_help("", catalogue_names(CatalogueKind::kDevices)) +
           "; the measurements are kept: create the profile with flopcast calibrate --from FILE --device NAME"});
}

DeviceProfile profile_of(const CalibrationOptions& options, const Calibration& calibration, const Streams& streams) {
  const Measurement& measurement = calibration.measurement;
  ProfileRequest request;
  request.name = options.name.value_or("");
  request.device = device_of(options, measurement, streams);
  request.cluster = calibration.cluster;
  request.host = options.cpu || (options.from && describes_host(measurement, options));
  request.in_step = !options.traces.empty();
  const bool imported = !options.nccl_tests.empty() || !options.traces.empty() || options.topology;
  request.confidence = imported ? "imported" : "measured";
  request.source = options.source.value_or(source_of(options, measurement));
  std::vector<std::string> notes;
  DeviceProfile profile = build_profile(measurement, request, &notes);
  for (const std::string& note : notes) warn(streams, note);
  return profile;
}

// Empty if no fit of the profile has samples.
std::string profile_figure(const DeviceProfile& profile, const FigureStyle& style) {
  const std::vector<SeriesChart> charts = profile_charts(profile);
  SeriesSvgOptions options;
  static_cast<FigureStyle&>(options) = style;
  return charts.empty() ? "" : write_series_svg(charts, options);
}

std::string profile_page(PageInfo info, const DeviceProfile& profile, const std::vector<Table>& tables) {
  info.title = "Device profile";
  PageParts parts;
  parts.tables = tables;
  const std::string drawing = profile_figure(profile, {});
  if (!drawing.empty()) parts.figures.push_back({"Measured and fitted", drawing});
  return forecasts_page(info, {}, parts);
}

class Calibrate final : public Question {
 public:
  void declare(Form& form) override {
    form.begin_group("Measurements");
    form.add_flag("--cpu", options_.cpu, "measure this machine twice: GEMMs, memory, messages between threads");
    form.add_flag("--cuda", options_.cuda,
                  "measure this machine's GPU twice; with several GPUs, also messages between them");
    form.add_flag("--quick", options_.quick, "fewer sizes: about ten seconds; a minute with --cuda");
    form.add_option("--seconds", options_.seconds, "N",
                    "with --cuda: time limit for all samples; omitted samples are reported (default: 450)");
    form.add_option("--nccl-tests", options_.nccl_tests, "FILE", "output of nccl-tests, or its JSON report");
    form.add_option("--trace", options_.traces, "FILE",
                    "trace of torch.profiler, also .gz; without -o: breakdown of its time");
    form.add_option("--topology", options_.topology, "FILE", "output of nvidia-smi topo -m");
    form.add_option("--from", options_.from, "FILE", "measurement file");
    form.add_option("--training-log", options_.training_log, "FILE", "log of Megatron with measured step times");
    form.add_output("--measurements", options_.measurements,
                    "file for the measurements; an interrupted calibration continues (default: next to -o)");
    form.add_option("--ranks", options_.ranks, "N[,N]",
                    "group sizes to measure; ranks of the nccl-tests run or of the training");
    form.add_option("--nodes", options_.nodes, "N", "nodes of the nccl-tests run");
    form.add_option("--devices-per-node", options_.devices_per_node, "N",
                    "devices per node of the traced run (default: as listed in the trace)");
    form.add_option("--collective", options_.collective, "KIND", "collective measured by the nccl-tests run");
    form.add_flag("--in-place", options_.in_place, "use the in-place columns of nccl-tests");
    form.begin_group("Profile");
    form.add_output("-o,--output", options_.profile, "file for the profile instead of standard output",
                    Dash::kIsStandardOutput);
    form.add_option("--name", options_.name, "NAME", "name of the profile (default: the device's)");
    form.add_option("--source", options_.source, "TEXT", "author or publication of the measurements");
    form.add_option("--device", options_.device, "NAME", "measured device, by its catalogue name");
    form.begin_group("Report");
    form.add_option("--report", options_.report, "PROFILE", "errors of the profile's fits, and their worst samples");
    form.place_figure("draw measured and fitted times");
    form.place_page();
    form.place_output({.inputs = OutputInputs::kFormat, .formats = "format of the report: " + listed_formats()});
  }

  Answer ask(const Context& context) override {
    options_.figure_file = context.figure_file;
    options_.page_file = context.page_file;
    const Mode mode = mode_of(options_);
    refuse_idle_flags(options_, mode);
    check_device(options_.device);
    if (mode == Mode::kHere) check_measurement_file(options_);
    switch (mode) {
      case Mode::kHere: {
        const std::optional<Calibration> calibration = calibrate_here(options_, context.streams);
        if (!calibration) return {.exit_code = kEnvironmentFailed};
        return profile_answer(*calibration, context);
      }
      case Mode::kImport:
        return profile_answer(import_files(options_, context.streams), context);
      case Mode::kTrainingLog:
        return profile_answer(import_training_log(options_), context);
      case Mode::kReport:
        break;
    }
    return report(context);
  }

 private:
  // Writes the profile, and answers with tables that summarize it.
  Answer profile_answer(const Calibration& calibration, const Context& context) {
    const bool shows_trace = !options_.traces.empty() && !options_.profile;
    if (options_.training_log || shows_trace) {
      tables_ = calibration.tables;
      return tables_answer(context, options_.profile);
    }
    profile_ = profile_of(options_, calibration, context.streams);
    tables_ = profile_tables(profile_);
    tables_.insert(tables_.end(), calibration.tables.begin(), calibration.tables.end());
    if (options_.profile) write_output(context.streams, *options_.profile, write_profile(profile_));
    Answer answer = tables_answer(context, std::nullopt);
    if (!options_.profile) {
      answer.text = [this] { return write_profile(profile_); };
      answer.files_come_last = true;  // a figure that fails must not lose the profile
    }
    add_drawings(answer);
    if (options_.figure_file && !answer.figure) {
      context.warn(fmt::format("nothing to draw: {} is not written", *options_.figure_file));
    }
    return answer;
  }

  Answer report(const Context& context) {
    profile_ = load_profile(*options_.report);
    tables_ = profile_tables(profile_);
    Answer answer = tables_answer(context, options_.profile);
    add_drawings(answer);
    if (context.has_figure && !answer.figure) {
      throw ConfigError({"--svg", fmt::format("nothing to draw: {} has no fit with samples", *options_.report), "--svg",
                         "omit --svg"});
    }
    return answer;
  }

  void add_drawings(Answer& answer) const {
    if (!profile_charts(profile_).empty()) {
      answer.figure = [this](const FigureStyle& style) { return profile_figure(profile_, style); };
    }
    answer.page = [this](PageInfo info) { return profile_page(std::move(info), profile_, tables_); };
  }

  // The tables; written to `file` instead of standard output if it is given.
  Answer tables_answer(const Context& context, const std::optional<std::string>& file) const {
    // Data formats hold one table.
    const auto shown = [this](Format format) {
      std::vector<Table> tables = tables_;
      if (shown_by(format) != Shows::kPages) tables.resize(std::min<std::size_t>(tables.size(), 1));
      return tables;
    };
    if (!file) return {.tables = [shown, format = context.format] { return shown(format); }};
    return {.text = [&context, shown, file = *file] {
      std::string text;
      for (const Table& table : shown(context.format)) {
        text += (text.empty() ? "" : "\n") + write_table(table, context.format, TableStyle{});
      }
      write_output(context.streams, file, text);
      return std::string();
    }};
  }

  CalibrationOptions options_;
  DeviceProfile profile_;
  std::vector<Table> tables_;
};

}  // namespace

QuestionInfo calibrate_question() {
  return {
      "calibrate",
      "create a device profile from measurements; measure this machine",
      "flopcast calibrate --cpu | --cuda | --nccl-tests FILE | --trace FILE | --topology FILE | --from MEASUREMENTS | "
      "--training-log FILE | --report PROFILE [options]",
      "Creates a device profile from measurements, which simulate --profile uses instead of the catalogue's figures, "
      "and shows how well a profile fits the measurements.",
      {"flopcast calibrate --cpu --quick -o cpu.json",
       "flopcast simulate --model gpt2-124m --profile cpu.json --precision fp32 --gbs 4",
       "flopcast calibrate --cuda --device h200 -o h200.json",
       "flopcast calibrate --nccl-tests all_reduce.log --nccl-tests all_gather.log --topology topo.txt -o node.json",
       "flopcast calibrate --trace rank0.json.gz", "flopcast calibrate --report cpu.json --svg cpu.svg"},
      make_question<Calibrate>};
}

}  // namespace flopcast
