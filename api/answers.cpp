#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "api/inputs.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "base/text/table.hpp"
#include "model/cost/compute.hpp"
#include "model/job/read_job.hpp"
#include "reports/html/page.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/files/result_file.hpp"
#include "sim/files/run_file.hpp"
#include "sim/run/run.hpp"

namespace flopcast {

const char* library_version() {
  return FLOPCAST_VERSION;
}

namespace {

// Rows of a user-defined schedule as CSV, the format of schedule files.
std::string csv_of(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (const std::vector<std::string>& cells : rows) text += fmt::format("{}\n", fmt::join(cells, ","));
  return text;
}

// Time returned by a user-defined function. Throws ConfigError if it is not a valid time.
Seconds checked_time(const char* law, std::string_view what, double seconds) {
  if (seconds >= 0.0 && std::isfinite(seconds)) return Seconds(seconds);
  throw ConfigError({law, fmt::format("returned {} s for {}", seconds, what), "", "return seconds, 0 or more"});
}

void apply_user_costs(const OwnLaws& laws, Job& job) {
  if (!laws.operator_time && !laws.network_time) return;
  auto costs = std::make_shared<CostOverrides>();
  if (laws.operator_time) {
    costs->operator_time = [law = laws.operator_time](std::string_view op, std::string_view pass, Seconds ours) {
      return checked_time("operator_time", op, law(std::string(op), std::string(pass), ours.value()));
    };
    job.assumptions.emplace_back("operator times come from a user-defined function");
  }
  if (laws.network_time) {
    costs->network_time = [law = laws.network_time](std::string_view kind, Bytes bytes, const GroupPlacement& group,
                                                    Seconds ours) {
      return checked_time("network_time", kind,
                          law(std::string(kind), bytes.value(), group.ranks, group.nodes, ours.value()));
    };
    job.assumptions.emplace_back("times of messages and collectives come from a user-defined function");
  }
  job.laws = std::move(costs);
}

constexpr const char* kOwnSchedule = "own";

void apply_user_schedule(const OwnLaws& laws, Job& job) {
  if (!laws.schedule) return;
  const auto rows = laws.schedule(job.layout.pp, job.layout.microbatches(), job.layout.vpp.value_or(1));
  job.layout.schedule = std::string("file:") + kOwnSchedule;
  job.layout.schedule_csv = csv_of(rows);
  if (job.layout.schedule_csv.empty()) {
    throw ConfigError({"layout.schedule", "the schedule function returned no rows", kOwnSchedule,
                       "return a list of cells for each pipeline rank, such as [[\"0F0\", \"0B0\"]]"});
  }
  job.layout.vpp.reset();
}

}  // namespace

struct SimulatedStep::Parts {
  Forecast forecast;
  std::optional<RunLife> life;  ///< for a job with failures
};

SimulatedStep::SimulatedStep(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

SimulatedStep simulate(const JobInput& input, const OwnLaws& laws) {
  Job job = read_input_job(input);
  apply_user_schedule(laws, job);
  apply_user_costs(laws, job);
  auto parts = std::make_shared<SimulatedStep::Parts>();
  parts->forecast = forecast(job, read_file);
  parts->life = add_run(parts->forecast, WithOptions::kYes);
  return SimulatedStep(std::move(parts));
}

double SimulatedStep::time_s() const {
  return parts_->forecast.result.iteration.time_s;
}

double SimulatedStep::mfu() const {
  return parts_->forecast.result.iteration.mfu;
}

double SimulatedStep::bubble_fraction() const {
  return parts_->forecast.result.bubble.fraction;
}

double SimulatedStep::peak_memory_gib() const {
  return parts_->forecast.result.memory.peak_gib;
}

bool SimulatedStep::fits() const {
  return parts_->forecast.result.memory.fits;
}

std::vector<std::string> SimulatedStep::warnings() const {
  return parts_->forecast.result.warnings;
}

std::string SimulatedStep::json() const {
  return write_simulation(parts_->forecast);
}

std::string SimulatedStep::memory_json(const std::string& view) const {
  const auto shown = static_cast<MemoryView>(choice_of("view", view, {"peak", "over-time", "tensors"}));
  return write_memory(parts_->forecast, shown);
}

std::string SimulatedStep::timeline_json() const {
  return write_timelines({parts_->forecast.timeline});
}

std::string SimulatedStep::timeline_svg() const {
  return write_svg(parts_->forecast.timeline, SvgOptions());
}

std::string SimulatedStep::chrome_trace() const {
  TraceOptions options = trace_options_of(parts_->forecast);
  options.other_data = {{"tool", "flopcast " FLOPCAST_VERSION}};
  return write_chrome_trace(parts_->forecast.timeline, options);
}

std::string SimulatedStep::chakra_trace(int rank) const {
  return flopcast::chakra_trace(parts_->forecast, rank);
}

std::string SimulatedStep::chakra_groups() const {
  return flopcast::chakra_groups(parts_->forecast);
}

std::string SimulatedStep::chakra_network() const {
  return flopcast::chakra_network(parts_->forecast);
}

int SimulatedStep::devices() const {
  return parts_->forecast.step.job.cluster.devices();
}

std::string SimulatedStep::html() const {
  PageInfo info;
  info.title = parts_->forecast.timeline.title;
  info.tool = "flopcast " FLOPCAST_VERSION;
  info.question = describe_job(parts_->forecast.step.job);
  info.answer = answer_line(parts_->forecast.result);
  return forecast_page(info, parts_->forecast, run_parts(parts_->forecast, parts_->life));
}

std::string SimulatedStep::tables(const std::string& format) const {
  const Format meant = parse_format(format);
  if (shown_by(meant) == Shows::kRows) return write_table(result_row(parts_->forecast), meant);
  if (shown_by(meant) == Shows::kValues) return json();
  std::string text;
  for (const Table& table : result_tables(parts_->forecast, false)) {
    text += (text.empty() ? "" : "\n") + write_table(table, meant);
  }
  return text;
}

std::string SimulatedStep::job_json() const {
  return flopcast::job_json(parts_->forecast.step.job).dump(2);
}

}  // namespace flopcast
