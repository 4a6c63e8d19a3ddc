// docs/gallery.md and its pictures show every schedule of the catalogue in its current form. FLOPCAST_BLESS=1 rewrites
// them.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include "reports/timeline/writers.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "tests/support/folders.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

constexpr int kRanks = 4;
constexpr int kMicrobatches = 8;
constexpr Ticks kUnit = 1'000'000;

// A rank takes 1 for the forward pass of a microbatch and 2 for its backward pass, spread over its chunks or slices.
TimesOfProgram times_for(int microbatches) {
  return [microbatches](const Program& program) {
    const std::vector<Action>& actions = program.ranks.front();
    const auto forwards = std::count_if(actions.begin(), actions.end(),
                                        [](const Action& action) { return action.kind == ActionKind::kForward; });
    const Ticks part = kUnit * microbatches / static_cast<Ticks>(forwards);
    StepTimes times;
    times.stages.assign(static_cast<std::size_t>(program.stage_count()), {part, 2 * part, part, part, {}});
    times.boundaries.resize(static_cast<std::size_t>(program.stage_count()) - 1);
    return times;
  };
}

// The page uses the same request for all schedules; if one refuses it, the next larger number of microbatches.
ScheduleRequest request_of(const ScheduleInfo& info) {
  ScheduleRequest request;
  request.pipeline_ranks = kRanks;
  request.chunks = info.default_chunks;
  request.microbatches = kMicrobatches;
  while (refuse_request(info, request) && request.microbatches < 4 * kMicrobatches) ++request.microbatches;
  return request;
}

std::string picture_of(const ScheduleInfo& info, const ScheduleRequest& request) {
  const TimesOfProgram times = times_for(request.microbatches);
  const Program program = generate_schedule(info, request, times);
  Timeline timeline = simulate(program, times(program));
  timeline.title = std::string(info.name);
  SvgOptions options;
  options.width = 720.0;
  options.dark_mode = true;
  return write_svg(timeline, options);
}

std::string units(Ticks ticks) {
  return fmt::format("{:g}", static_cast<double>(ticks) / static_cast<double>(kUnit));
}

std::string page_header() {
  return fmt::format(
      "# Gallery of schedules\n\nEvery schedule of `flopcast schedule list` with {} pipeline ranks and {} "
      "microbatches. The "
      "forward pass of a microbatch takes 1 on a rank, the backward pass 2, transfers take no time. Time runs to the "
      "right; forward passes are blue, backward passes orange, later chunks of a rank lighter. For other numbers: "
      "`flopcast timeline --schedule NAME --pp 4 --microbatches 8 --svg NAME.svg`; side by side: "
      "`flopcast schedule compare --pp 4 --microbatches 8`.\n\n"
      "Bubble fraction: idle share of all ranks. Activations: on the rank that holds most, in microbatches.\n\n"
      "The program generates pictures and figures: the tests compare them, and `FLOPCAST_BLESS=1` rewrites them.\n\n"
      "Other pictures: a [report](images/report.png) (`--html`), the [browser page](browser.md), a forecast above the "
      "[real run](../examples/real-run/1f1b.svg) with its [losses](../examples/real-run/loss.svg), forecasts against "
      "[measurements](images/validation.svg), and complete jobs in the [examples](../examples/README.md).\n",
      kRanks, kMicrobatches);
}

std::string summary_table(const std::map<std::string, ScheduleFigures>& figures) {
  std::string text = "\n| schedule | makespan | bubble fraction | activations | copies of the weights |\n";
  text += "|---|---:|---:|---:|---:|\n";
  for (const ScheduleInfo& info : schedule_catalogue()) {
    const ScheduleFigures& row = figures.at(std::string(info.name));
    text += fmt::format("| [{}](#{}) | {} | {:.3f} | {:g} | {} |\n", info.name, info.name, units(row.makespan),
                        row.bubble_fraction, row.largest_peak(),
                        *std::max_element(row.weight_copies.begin(), row.weight_copies.end()));
  }
  return text;
}

// Symbols as in `flopcast schedule list`; "a < b" must not look like a tag.
std::string in_code(std::string_view text) {
  return fmt::format("`{}`", text);
}

std::string section_of(const ScheduleInfo& info, const ScheduleRequest& request, const ScheduleFigures& figures) {
  std::string summary(info.summary);
  summary.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(summary.front())));
  std::string text = fmt::format("\n## {}\n\n{}.\n\n", info.name, summary);
  text += fmt::format("![{} on {} ranks](images/gallery/{}.svg)\n\n", info.name, kRanks, info.name);
  const std::string other =
      request.microbatches == kMicrobatches
          ? ""
          : fmt::format(" ({} microbatches, because it refuses {})", request.microbatches, kMicrobatches);
  text +=
      fmt::format("- bubble fraction {:.3f}, makespan {}{}", figures.bubble_fraction, units(figures.makespan), other);
  if (figures.steady_idle) text += fmt::format("; once the pipeline is full {:.3f}", *figures.steady_idle);
  text += fmt::format("\n- makespan in general: {}\n", in_code(info.makespan));
  const double peak = figures.largest_peak();
  text += fmt::format("- activations: {:g} microbatch{}; chunks on rank r in general: {}\n", peak,
                      peak == 1.0 ? "" : "es", in_code(info.peak_in_flight));
  if (!info.constraints.empty()) text += fmt::format("- needs: {}\n", in_code(info.constraints));
  if (!info.where_to_use.empty()) text += fmt::format("- where to use: {}\n", info.where_to_use);
  return text + fmt::format("- source: {}\n", info.source);
}

class Gallery : public testing::Test {
 protected:
  // Compares a file with its stored version, or stores it on request.
  static void compare(const std::filesystem::path& file, const std::string& text) {
    if (std::getenv("FLOPCAST_BLESS") != nullptr) {
      std::filesystem::create_directories(file.parent_path());
      write_text(file, text);
      return;
    }
    ASSERT_TRUE(std::filesystem::exists(file)) << file << " is missing; FLOPCAST_BLESS=1 makes it";
    EXPECT_TRUE(read_text(file) == text) << file << " is not what the program draws now; FLOPCAST_BLESS=1 renews it";
  }
  const std::filesystem::path docs_ = project_folder() / "docs";
  const std::filesystem::path pictures_ = docs_ / "images" / "gallery";
};

TEST_F(Gallery, ShowsEverySchedule) {
  constexpr std::size_t kLargest = 48'000;
  std::string sections;
  std::map<std::string, ScheduleFigures> figures;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    const ScheduleRequest request = request_of(info);
    const auto refusal = refuse_request(info, request);
    ASSERT_FALSE(refusal) << info.name << ": " << refusal->problem;
    const std::string picture = picture_of(info, request);
    EXPECT_LT(picture.size(), kLargest) << info.name;
    compare(pictures_ / (std::string(info.name) + ".svg"), picture);
    const auto row = figures.emplace(info.name, figures_of(info, request, times_for(request.microbatches))).first;
    sections += section_of(info, request, row->second);
  }
  compare(docs_ / "gallery.md", page_header() + summary_table(figures) + sections);
  std::cout << "compared the pictures of " << figures.size() << " schedules\n";
}

TEST_F(Gallery, ShowsDispatchAndCombineOfADualPipeStep) {
  const Forecast answer = forecast(job_from(R"({
      "model": {"name": "deepseek-v3", "layers": 8, "vocab": 32000, "experts": {"first_dense_layers": 0}},
      "cluster": "32xhgx-h800", "layout": {"pp": 4, "ep": 64, "schedule": "dualpipe", "global_batch_size": 640},
      "training": {"precision": "fp8", "fp8_recipe": "blockwise", "grouped_kernel": "one", "stack": "megatron-core",
                   "experts_dispatch": {"dispatcher": "deepep", "dtype": "fp8"}}})"),
                                   no_files);
  compare(docs_ / "images" / "experts.svg", write_svg(answer.timeline, {}));
}

TEST_F(Gallery, HoldsNoPictureOfAScheduleThatIsGone) {
  for (const auto& entry : std::filesystem::directory_iterator(pictures_)) {
    const std::string name = entry.path().stem().string();
    if (find_schedule(name) != nullptr) continue;
    if (std::getenv("FLOPCAST_BLESS") != nullptr) {
      std::filesystem::remove(entry.path());
    } else {
      ADD_FAILURE() << entry.path() << " belongs to no schedule";
    }
  }
}

}  // namespace
}  // namespace flopcast
