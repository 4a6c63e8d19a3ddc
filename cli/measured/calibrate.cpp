#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/guard.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "calibrate/device/build_profile.hpp"
#include "calibrate/tables/tables.hpp"
#include "cli/commands.hpp"
#include "cli/measured/sources.hpp"
#include "cli/options/figure_options.hpp"
#include "cli/options/output.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/document.hpp"
#include "model/job/device_profile.hpp"
#include "model/job/read_job.hpp"
#include "reports/svg/charts.hpp"

namespace flopcast {

namespace {

// A profile's file, with located complaints.
DeviceProfile load_profile(const std::string& path) {
  Origins origins;
  origins.file = path;
  return read_device_profile(parse_json(read_file(path), path), "", origins);
}

struct Wishes {
  CalibrationWishes sources;
  std::optional<std::string> report;
  FigureOptions figure;
  PageOption page;
  std::optional<std::string> name;
  std::optional<std::string> source;
  std::optional<std::string> format;
};

constexpr const char* kModes =
    "give one of: --cpu; --cuda; --nccl-tests, --trace, --topology, --from, alone or together; --training-log FILE; "
    "--report "
    "PROFILE";

enum class Mode { kHere, kImport, kTrainingLog, kReport };

Mode mode_of(const Wishes& wishes) {
  const CalibrationWishes& sources = wishes.sources;
  std::vector<std::pair<std::string, Mode>> modes;
  if (sources.cpu) modes.emplace_back("--cpu", Mode::kHere);
  if (sources.cuda) modes.emplace_back("--cuda", Mode::kHere);
  if (sources.imports()) {
    const char* flag = !sources.nccl_tests.empty() ? "--nccl-tests"
                       : !sources.traces.empty()   ? "--trace"
                       : sources.topology          ? "--topology"
                                                   : "--from";
    modes.emplace_back(flag, Mode::kImport);
  }
  if (sources.training_log) modes.emplace_back("--training-log", Mode::kTrainingLog);
  if (wishes.report) modes.emplace_back("--report", Mode::kReport);
  if (modes.empty()) throw ConfigError({"", "nothing to calibrate", "", kModes});
  if (modes.size() > 1) {
    throw ConfigError({modes[1].first, fmt::format("given beside {}", modes[0].first), modes[1].first, kModes});
  }
  return modes.front().second;
}

// A flag that the chosen mode would not look at is a mistake of the user.
void refuse_idle_flags(const Wishes& wishes, Mode mode) {
  const CalibrationWishes& sources = wishes.sources;
  const auto refuse = [](bool given, const char* flag, bool works, const char* valid) {
    if (!given || works) return;
    throw ConfigError({flag, "means nothing here", flag, fmt::format("valid with: {}", valid)});
  };
  const bool here = mode == Mode::kHere;
  const bool nccl = !sources.nccl_tests.empty();
  const bool profile = here || mode == Mode::kImport;
  refuse(sources.quick, "--quick", here, "--cpu, --cuda");
  refuse(sources.seconds.has_value(), "--seconds", sources.cuda, "--cuda");
  refuse(sources.measurements.has_value(), "--measurements", profile || mode == Mode::kTrainingLog,
         "--cpu, --cuda, --nccl-tests, --trace, --from, --training-log");
  refuse(sources.collective.has_value(), "--collective", nccl, "--nccl-tests");
  refuse(sources.in_place, "--in-place", nccl, "--nccl-tests");
  refuse(sources.nodes.has_value(), "--nodes", nccl, "--nccl-tests");
  refuse(sources.devices_per_node.has_value(), "--devices-per-node", !sources.traces.empty(), "--trace");
  refuse(sources.ranks.has_value(), "--ranks", nccl || here || mode == Mode::kTrainingLog,
         "--cpu, --cuda, --nccl-tests, --training-log");
  refuse(sources.device.has_value(), "--device", mode == Mode::kImport || sources.cuda,
         "--cuda, --nccl-tests, --trace, --topology, --from");
  refuse(wishes.name.has_value(), "--name", profile, "--cpu, --cuda, --nccl-tests, --trace, --topology, --from");
  refuse(wishes.source.has_value(), "--source", profile, "--cpu, --cuda, --nccl-tests, --trace, --topology, --from");
  refuse(wishes.figure.file().has_value(), "--svg", profile || mode == Mode::kReport, "a profile or --report");
  refuse(wishes.page.wanted(), "--html", profile || mode == Mode::kReport, "a profile or --report");
}

// The samples' file, which no flag need name, is none that is written too.
void check_measurement_file(const Wishes& wishes) {
  const std::string file = measurement_path(wishes.sources);
  for (const auto& [flag, other] :
       {std::pair{"-o", wishes.sources.profile}, {"--svg", wishes.figure.file()}, {"--html", wishes.page.file()}}) {
    if (!other || !is_one_file(file, *other)) continue;
    throw ConfigError({"--measurements", fmt::format("{} is the file of {} too", file, flag), "--measurements",
                       "give each a file of its own"});
  }
  require_writable(file);
}

void check_device(const std::optional<std::string>& device) {
  if (!device) return;
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kDevices);
  if (std::find(names.begin(), names.end(), *device) != names.end()) return;
  throw ConfigError(
      {"--device", fmt::format("unknown device \"{}\"", *device), "--device", choices_help(*device, names)});
}

bool has(const Measurement& measurement, SampleKind kind) {
  return std::any_of(measurement.samples.begin(), measurement.samples.end(),
                     [kind](const Sample& sample) { return sample.key.kind == kind; });
}

// Only a GPU has kernels to launch.
bool describes_gpu(const Measurement& measurement) {
  return has(measurement, SampleKind::kLaunch) || has(measurement, SampleKind::kHostDispatch);
}

bool describes_host(const Measurement& measurement, const CalibrationWishes& sources) {
  return !sources.device && !describes_gpu(measurement) && has(measurement, SampleKind::kGemm) &&
         has(measurement, SampleKind::kMemoryCopy);
}

std::string source_of(const CalibrationWishes& sources, const Measurement& measurement) {
  if (!sources.measured().empty() || (sources.from && sources.nccl_tests.empty() && sources.traces.empty())) {
    return "flopcast calibrate on " + measurement.host;
  }
  std::vector<std::string> files;
  if (sources.from) files.push_back(*sources.from);
  for (const std::string& file : sources.nccl_tests) files.push_back("nccl-tests, " + file);
  for (const std::string& file : sources.traces) files.push_back("a trace, " + file);
  if (sources.topology) files.push_back("nvidia-smi topo, " + *sources.topology);
  return fmt::format("{}", fmt::join(files, "; "));
}

// As many as the catalogue's device has, or it is another one of the same name.
void check_multiprocessors(const Measurement& measurement, const std::string& device, const Streams& streams) {
  std::vector<std::string> ignored;
  const int known = read_device(device, "device", ignored, {}).multiprocessors;
  if (measurement.multiprocessors == known) return;
  warn(streams,
       fmt::format("the GPU has {} multiprocessors, and {} has {}: is it that device? --device NAME tells another",
                   measurement.multiprocessors, device, known));
}

// Of a GPU, by its own name where the user gives none.
std::string device_of(const CalibrationWishes& sources, const Measurement& measurement, const Streams& streams) {
  if (!sources.cuda && !(sources.from && describes_gpu(measurement))) return sources.device.value_or("");
  if (is_part_of_gpu(measurement.device)) {
    throw ConfigError({"--device", fmt::format("\"{}\" is a part of a GPU", measurement.device), "",
                       "no device of the catalogue is a part: measure the whole GPU, without MIG"});
  }
  const std::optional<std::string> known = catalogued_device(measurement.device);
  if (sources.device && known && *known != *sources.device) {
    warn(streams,
         fmt::format("the GPU calls itself {}, which is {} and not {}", measurement.device, *known, *sources.device));
  }
  if (sources.device || known) {
    const std::string device = sources.device.value_or(known.value_or(""));
    check_multiprocessors(measurement, device, streams);
    return device;
  }
  throw ConfigError(
      {"--device", fmt::format("which of the catalogue's devices is \"{}\"?", measurement.device), "--device",
       choices_help("", catalogue_names(CatalogueKind::kDevices)) +
           "; the measurements are kept: flopcast calibrate --from FILE --device NAME makes the profile"});
}

DeviceProfile profile_of(const Wishes& wishes, const Calibration& calibration, const Streams& streams) {
  const CalibrationWishes& sources = wishes.sources;
  const Measurement& measurement = calibration.measurement;
  ProfileRequest request;
  request.name = wishes.name.value_or("");
  request.device = device_of(sources, measurement, streams);
  request.cluster = calibration.cluster;
  request.host = sources.cpu || (sources.from && describes_host(measurement, sources));
  request.in_step = !sources.traces.empty();
  const bool imported = !sources.nccl_tests.empty() || !sources.traces.empty() || sources.topology;
  request.confidence = imported ? "imported" : "measured";
  request.source = wishes.source.value_or(source_of(sources, measurement));
  std::vector<std::string> notes;
  DeviceProfile profile = build_profile(measurement, request, &notes);
  for (const std::string& note : notes) warn(streams, note);
  return profile;
}

void print(const Streams& streams, const std::string& file, std::vector<Table> tables, Format format) {
  // Data formats hold one table.
  if (shown_by(format) != Shows::kPages) tables.resize(std::min<std::size_t>(tables.size(), 1));
  const TableStyle style = file.empty() ? table_style(streams) : TableStyle{};
  std::string text;
  for (const Table& table : tables) text += (text.empty() ? "" : "\n") + write_table(table, format, style);
  write_output(streams, file, text);
}

void declare(CommandLine& command_line, Wishes& wishes) {
  CalibrationWishes& sources = wishes.sources;
  command_line.begin_group("Measurements");
  command_line.add_flag("--cpu", sources.cpu, "measure this machine: products, memory, messages of threads; twice");
  command_line.add_flag("--cuda", sources.cuda, "measure this machine's GPU, and messages where it has several; twice");
  command_line.add_flag("--quick", sources.quick, "fewer sizes: some ten seconds; a minute with --cuda");
  command_line.add_option("--seconds", sources.seconds, "N",
                          "of --cuda: time for all samples; what does not fit is left out, and told (default: 450)");
  command_line.add_option("--nccl-tests", sources.nccl_tests, "FILE", "what nccl-tests printed, or its JSON report");
  command_line.add_option("--trace", sources.traces, "FILE",
                          "a trace of torch.profiler, also .gz; without -o: where its time went");
  command_line.add_option("--topology", sources.topology, "FILE", "what nvidia-smi topo -m printed");
  command_line.add_option("--from", sources.from, "FILE", "a measurement file");
  command_line.add_option("--training-log", sources.training_log, "FILE", "Megatron's log: its measured step times");
  command_line.add_output("--measurements", sources.measurements,
                          "keep the measurements there; a calibration that was stopped goes on (default: beside -o)");
  command_line.add_option("--ranks", sources.ranks, "N[,N]",
                          "sizes of the groups to measure; ranks of the nccl-tests run or of the training");
  command_line.add_option("--nodes", sources.nodes, "N", "nodes of the nccl-tests run");
  command_line.add_option("--devices-per-node", sources.devices_per_node, "N",
                          "of the traced run (default: as many as the trace lists)");
  command_line.add_option("--collective", sources.collective, "KIND", "what the nccl-tests run measured");
  command_line.add_flag("--in-place", sources.in_place, "the in-place columns of nccl-tests");
  command_line.begin_group("Profile");
  command_line.add_output("-o,--output", sources.profile, "write the profile there instead of to standard output",
                          Dash::kIsStandardOutput);
  command_line.add_option("--name", wishes.name, "NAME", "the profile's name (default: the device's)");
  command_line.add_option("--source", wishes.source, "TEXT", "who measured, or where it is published");
  command_line.add_option("--device", sources.device, "NAME", "the catalogue's device that was measured");
  command_line.begin_group("Report");
  command_line.add_option("--report", wishes.report, "PROFILE", "errors of its fits, and its worst samples");
  wishes.figure.add_to(command_line, "draw measured against fitted");
  wishes.page.add_to(command_line);
  command_line.add_option("--format", wishes.format, "FORMAT", "of the report: " + listed_formats());
}

// Nothing where the profile has no fit with samples.
std::string profile_figure(const DeviceProfile& profile, const FigureStyle& style) {
  const std::vector<SeriesChart> charts = profile_charts(profile);
  SeriesSvgOptions options;
  static_cast<FigureStyle&>(options) = style;
  return charts.empty() ? "" : write_series_svg(charts, options);
}

void write_profile_page(const PageOption& page, const DeviceProfile& profile, const std::vector<Table>& tables) {
  PageParts parts;
  parts.tables = tables;
  const std::string drawing = profile_figure(profile, {});
  if (!drawing.empty()) parts.figures.push_back({"Measured against fitted", drawing});
  page.write("Device profile", "", "", parts);
}

// The profile where it belongs, and what a person wants to know of it.
int write_calibration(const Wishes& wishes, const Calibration& calibration, Format format, const Streams& streams) {
  const CalibrationWishes& sources = wishes.sources;
  const bool shows_trace = !sources.traces.empty() && !sources.profile;
  if (sources.training_log || shows_trace) {
    print(streams, sources.profile.value_or(""), calibration.tables, format);
    return 0;
  }
  const DeviceProfile profile = profile_of(wishes, calibration, streams);
  const std::string drawing = wishes.figure.file() ? profile_figure(profile, wishes.figure.style()) : "";
  std::vector<Table> tables = profile_tables(profile);
  tables.insert(tables.end(), calibration.tables.begin(), calibration.tables.end());
  write_output(streams, sources.profile.value_or(""), write_profile(profile));
  if (!drawing.empty()) wishes.figure.write(drawing);
  if (wishes.figure.file() && drawing.empty()) {
    warn(streams, fmt::format("nothing to draw: {} is not written", *wishes.figure.file()));
  }
  if (wishes.page.wanted()) write_profile_page(wishes.page, profile, tables);
  if (sources.profile) print(streams, "", std::move(tables), format);
  return 0;
}

}  // namespace

int run_calibrate(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "calibrate",
      "flopcast calibrate --cpu | --cuda | --nccl-tests FILE | --trace FILE | --topology FILE | --from MEASUREMENTS | "
      "--training-log FILE | --report PROFILE [options]",
      "Makes a device profile out of measurements, which simulate --profile uses in place of the catalogue's figures, "
      "and shows how well a profile fits what was measured.",
      {"flopcast calibrate --cpu --quick -o cpu.json",
       "flopcast simulate --model gpt2-124m --profile cpu.json --precision fp32 --gbs 4",
       "flopcast calibrate --cuda --device h200 -o h200.json",
       "flopcast calibrate --nccl-tests all_reduce.log --nccl-tests all_gather.log --topology topo.txt -o node.json",
       "flopcast calibrate --trace rank0.json.gz", "flopcast calibrate --report cpu.json --svg cpu.svg"});
  Wishes wishes;
  declare(command_line, wishes);
  if (!command_line.parse(arguments)) return 0;
  const Mode mode = mode_of(wishes);
  refuse_idle_flags(wishes, mode);
  check_device(wishes.sources.device);
  if (mode == Mode::kHere) check_measurement_file(wishes);
  wishes.figure.check();
  const Format format = parse_format(wishes.format.value_or("table"));
  switch (mode) {
    case Mode::kHere: {
      const std::optional<Calibration> calibration = calibrate_here(wishes.sources, streams);
      return calibration ? write_calibration(wishes, *calibration, format, streams) : kEnvironmentFailed;
    }
    case Mode::kImport:
      return write_calibration(wishes, import_files(wishes.sources, streams), format, streams);
    case Mode::kTrainingLog:
      return write_calibration(wishes, import_training_log(wishes.sources), format, streams);
    case Mode::kReport:
      break;
  }
  const DeviceProfile profile = load_profile(*wishes.report);
  std::vector<Table> tables = profile_tables(profile);
  if (wishes.figure.file()) {
    const std::string drawing = profile_figure(profile, wishes.figure.style());
    if (drawing.empty()) {
      throw ConfigError({"--svg", fmt::format("nothing to draw: {} has no fit with samples", *wishes.report), "--svg",
                         "leave out --svg"});
    }
    wishes.figure.write(drawing);
  }
  if (wishes.page.wanted()) write_profile_page(wishes.page, profile, tables);
  print(streams, wishes.sources.profile.value_or(""), std::move(tables), format);
  return 0;
}

}  // namespace flopcast
