#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>

#include "calibrate/device/agreement.hpp"
#include "calibrate/device/build_profile.hpp"
#include "calibrate/device/import/nccl_tests.hpp"
#include "cli/calibrate_report.hpp"
#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/launch.hpp"
#include "cli/output_options.hpp"
#include "cli/terminal.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/error/error.hpp"
#include "reports/series/series_svg.hpp"

namespace flopcast {

namespace {

struct Wishes {
  bool cpu = false;
  bool quick = false;
  bool in_place = false;
  std::optional<std::string> ranks;
  std::optional<std::string> nodes;
  std::optional<std::string> collective;
  std::optional<std::string> nccl_tests;
  std::optional<std::string> from;
  std::optional<std::string> report;
  std::optional<std::string> measurements;
  std::optional<std::string> profile;
  std::optional<std::string> svg;
  std::optional<std::string> name;
  std::optional<std::string> source;
  std::optional<std::string> device;
};

void refuse_beside(bool given, const std::string& flag, const std::string& mode, const std::string& valid) {
  if (given) throw ConfigError({flag, fmt::format("means nothing with {}", mode), flag, "valid with: " + valid});
}

std::string mode_of(const Wishes& wishes) {
  std::vector<std::string> modes;
  if (wishes.cpu) modes.emplace_back("--cpu");
  if (wishes.nccl_tests) modes.emplace_back("--nccl-tests");
  if (wishes.from) modes.emplace_back("--from");
  if (wishes.report) modes.emplace_back("--report");
  const std::string help = "give one of: --cpu, --nccl-tests FILE, --from MEASUREMENTS, --report PROFILE";
  if (modes.empty()) throw ConfigError({"", "nothing to calibrate", "", help});
  if (modes.size() > 1) throw ConfigError({modes[1], fmt::format("given beside {}", modes[0]), modes[1], help});
  const std::string& mode = modes.front();
  const bool fits = mode != "--report";
  refuse_beside(wishes.quick && mode != "--cpu", "--quick", mode, "--cpu");
  refuse_beside(wishes.measurements && mode != "--cpu" && mode != "--nccl-tests", "--measurements", mode,
                "--cpu, --nccl-tests");
  refuse_beside(wishes.collective && mode != "--nccl-tests", "--collective", mode, "--nccl-tests");
  refuse_beside(wishes.in_place && mode != "--nccl-tests", "--in-place", mode, "--nccl-tests");
  refuse_beside(wishes.nodes && mode != "--nccl-tests", "--nodes", mode, "--nccl-tests");
  refuse_beside(wishes.ranks && mode != "--nccl-tests" && mode != "--cpu", "--ranks", mode, "--cpu, --nccl-tests");
  refuse_beside(wishes.device && (mode == "--cpu" || !fits), "--device", mode, "--nccl-tests, --from");
  refuse_beside(wishes.name && !fits, "--name", mode, "--cpu, --nccl-tests, --from");
  refuse_beside(wishes.source && !fits, "--source", mode, "--cpu, --nccl-tests, --from");
  return mode;
}

std::optional<int> count(const std::optional<std::string>& text, const std::string& flag) {
  if (!text) return std::nullopt;
  constexpr std::size_t kMostDigits = 6;
  const bool whole = !text->empty() && text->size() <= kMostDigits &&
                     text->find_first_not_of("0123456789") == std::string::npos && std::stoi(*text) > 0;
  if (!whole) throw ConfigError({flag, fmt::format("\"{}\" is no number of 1 or more", *text), flag, ""});
  return std::stoi(*text);
}

NcclTestsRequest request_of(const Wishes& wishes) {
  NcclTestsRequest request;
  request.ranks = count(wishes.ranks, "--ranks");
  request.nodes = count(wishes.nodes, "--nodes");
  request.in_place = wishes.in_place;
  if (wishes.collective) {
    // The first two are no messages.
    const std::vector<std::string> names(sample_kind_names().begin() + 2, sample_kind_names().end());
    const auto match = std::find(names.begin(), names.end(), *wishes.collective);
    if (match == names.end()) {
      throw ConfigError({"--collective", fmt::format("unknown value \"{}\"", *wishes.collective), "--collective",
                         choices_help(*wishes.collective, names)});
    }
    request.kind = static_cast<SampleKind>(match - names.begin() + 2);
  }
  return request;
}

void check_device(const std::optional<std::string>& device) {
  if (!device) return;
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kDevices);
  if (std::find(names.begin(), names.end(), *device) != names.end()) return;
  throw ConfigError(
      {"--device", fmt::format("unknown device \"{}\"", *device), "--device", choices_help(*device, names)});
}

// Where samples are kept while they are taken, so that a stopped calibration goes on.
std::string measurement_path(const Wishes& wishes) {
  if (wishes.measurements) return *wishes.measurements;
  if (!wishes.profile) return "cpu.measurements.json";
  std::filesystem::path path = *wishes.profile;
  return path.replace_extension(".measurements.json").string();
}

Measurement measure_host(const Wishes& wishes) {
  const std::string path = measurement_path(wishes);
  std::vector<std::string> arguments = {"-o", path};
  if (wishes.quick) arguments.emplace_back("--quick");
  if (wishes.ranks) arguments.insert(arguments.end(), {"--ranks", *wishes.ranks});
  const int code = launch_beside("flopcast-measure", arguments);
  constexpr int kBadInput = 2;
  // It has told what is wrong.
  if (code == kBadInput) throw ConfigError({"--cpu", "was not measured", "", ""});
  if (code != 0) throw EnvironmentError(fmt::format("flopcast-measure failed with exit code {}", code));
  Measurement measurement = read_measurement(read_file(path), path);
  require_agreement(measurement, path);
  const std::optional<double> ratio = disturbance(measurement);
  if (ratio && *ratio > kDisturbedFrom) {
    warn(
        fmt::format("the machine was disturbed: wall time is {:.2f} times the CPU time (1.00 on a quiet one)", *ratio));
  }
  return measurement;
}

Measurement measurement_of(const Wishes& wishes, const std::string& mode) {
  if (mode == "--cpu") return measure_host(wishes);
  if (mode == "--from") {
    Measurement measurement = read_measurement(read_file(*wishes.from), *wishes.from);
    require_agreement(measurement, *wishes.from);
    return measurement;
  }
  Measurement measurement = import_nccl_tests(read_file(*wishes.nccl_tests), *wishes.nccl_tests, request_of(wishes));
  if (wishes.measurements) write_file(*wishes.measurements, write_measurement(measurement));
  return measurement;
}

bool describes_host(const Measurement& measurement, const Wishes& wishes) {
  const auto has = [&](SampleKind kind) {
    return std::any_of(measurement.samples.begin(), measurement.samples.end(),
                       [kind](const Sample& sample) { return sample.key.kind == kind; });
  };
  return !wishes.device && has(SampleKind::kGemm) && has(SampleKind::kMemoryCopy);
}

DeviceProfile profile_of(const Wishes& wishes, const std::string& mode) {
  check_device(wishes.device);
  const Measurement measurement = measurement_of(wishes, mode);
  ProfileRequest request;
  request.name = wishes.name.value_or("");
  request.device = wishes.device.value_or("");
  request.host = mode == "--cpu" || (mode == "--from" && describes_host(measurement, wishes));
  request.confidence = mode == "--nccl-tests" ? "imported" : "measured";
  request.source = wishes.source.value_or(mode == "--nccl-tests" ? "nccl-tests, " + *wishes.nccl_tests
                                                                 : "flopcast calibrate on " + measurement.host);
  return build_profile(measurement, request);
}

}  // namespace

int run_calibrate(const Arguments& arguments) {
  CommandLine command_line(
      "calibrate", "flopcast calibrate --cpu | --nccl-tests FILE | --from MEASUREMENTS | --report PROFILE [options]",
      "Makes a device profile out of measurements, which simulate --profile uses in place of the catalogue's figures, "
      "and shows how well a profile fits what was measured.",
      {"flopcast calibrate --cpu --quick -o cpu.json",
       "flopcast simulate --model gpt2-124m --profile cpu.json --precision fp32 --gbs 4",
       "flopcast calibrate --nccl-tests all_reduce.log -o links.json",
       "flopcast calibrate --report cpu.json --svg cpu.svg"});
  Wishes wishes;
  command_line.begin_group("Measurements");
  command_line.add_flag("--cpu", wishes.cpu, "measure this machine: products, memory, messages between threads; twice");
  command_line.add_flag("--quick", wishes.quick, "fewer sizes: some ten seconds");
  command_line.add_option("--nccl-tests", wishes.nccl_tests, "FILE", "what nccl-tests printed, or its JSON report");
  command_line.add_option("--from", wishes.from, "FILE", "a measurement file");
  command_line.add_option("--measurements", wishes.measurements, "FILE",
                          "keep the measurements there; a calibration that was stopped goes on (default: beside -o)");
  command_line.add_option("--ranks", wishes.ranks, "N[,N]",
                          "sizes of the groups to measure; ranks of the nccl-tests run");
  command_line.add_option("--nodes", wishes.nodes, "N", "nodes of the nccl-tests run");
  command_line.add_option("--collective", wishes.collective, "KIND", "what the nccl-tests run measured");
  command_line.add_flag("--in-place", wishes.in_place, "the in-place columns of nccl-tests");
  command_line.begin_group("Profile");
  command_line.add_option("-o,--output", wishes.profile, "FILE",
                          "write the profile there instead of to standard output");
  command_line.add_option("--name", wishes.name, "NAME", "the profile's name (default: the device's)");
  command_line.add_option("--source", wishes.source, "TEXT", "who measured, or where it is published");
  command_line.add_option("--device", wishes.device, "NAME", "the catalogue's device that was measured");
  command_line.begin_group("Report");
  command_line.add_option("--report", wishes.report, "PROFILE", "errors of its fits, and its worst samples");
  command_line.add_option("--svg", wishes.svg, "FILE", "draw measured against fitted");
  std::optional<std::string> format;
  command_line.add_option("--format", format, "FORMAT", "of the report: table, markdown, csv or json");
  if (!command_line.parse(arguments)) return 0;

  const std::string mode = mode_of(wishes);
  const Format chosen = parse_format(format.value_or("table"));
  const DeviceProfile profile = mode == "--report" ? load_profile(*wishes.report) : profile_of(wishes, mode);
  if (wishes.svg) write_file(*wishes.svg, write_series_svg(profile_charts(profile), {}));
  if (mode != "--report" && !wishes.profile) {
    write_output("", write_profile(profile));
    return 0;
  }
  if (mode != "--report") write_file(*wishes.profile, write_profile(profile));
  std::string text;
  std::vector<Table> tables = profile_tables(profile);
  // Data formats hold one table.
  if (chosen == Format::kCsv || chosen == Format::kJson) tables.resize(1);
  for (const Table& table : tables) text += (text.empty() ? "" : "\n") + write_table(table, chosen);
  write_output(mode == "--report" ? wishes.profile.value_or("") : "", text);
  return 0;
}

}  // namespace flopcast
