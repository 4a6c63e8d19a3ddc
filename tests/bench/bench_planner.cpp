// Speed of the planner: whole spaces, in CPU seconds of one thread and layouts per second; the slowdown if every layout
// were simulated, or simulated from scratch as in a sweep; and the time to price one layout, averaged over 60,000
// different ones, in processor time and wall time. Measure with the release preset.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model/job/read_job.hpp"
#include "planner/bounds/bounds.hpp"
#include "planner/search/search.hpp"

namespace flopcast {
namespace {

struct Question {
  std::string name;
  nlohmann::json job;
  bool wide = false;  // every split, chunk count and more schedules
};

nlohmann::json job_of(const char* model, const char* cluster, int nodes, int batch, int sequence_length) {
  return {{"model", model},
          {"cluster", {{"name", cluster}, {"nodes", nodes}}},
          {"layout", {{"global_batch_size", batch}}},
          {"training", {{"sequence_length", sequence_length}}}};
}

double seconds_of(clockid_t clock) {
  std::timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double cpu_seconds() {
  return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

Job job_of(const Question& question) {
  nlohmann::json root = question.job;
  const int batch = root["layout"]["global_batch_size"];
  const int nodes = root["cluster"]["nodes"];
  root["layout"]["tp"] = 1;
  root["layout"]["global_batch_size"] = 8 * nodes;  // read_job requires a valid batch for its default layout
  Job job = read_job(root, Origins());
  job.layout.global_batch_size = batch;
  return job;
}

SearchSpace space_of(const Question& question) {
  SearchSpace space;
  space.schedules = default_schedules();
  space.splits = question.wide ? all_splits() : default_splits();
  space.uneven_chunks = question.wide;
  return space;
}

// Layouts in an order that caches cannot learn, each visited once.
struct Walk {
  LayoutSpace space;
  std::vector<std::pair<const LayoutGroup*, const LayoutMember*>> layouts;
};

Walk shuffled_walk(const Job& job, const SearchSpace& space) {
  Walk walk;
  walk.space = enumerate_layouts(job, space);
  for (const LayoutGroup& group : walk.space.groups) {
    for (const LayoutMember& member : walk.space.members[group.members]) {
      if (space.splits[member.split].kind == SplitRule::Kind::kUniform) walk.layouts.emplace_back(&group, &member);
    }
  }
  std::shuffle(walk.layouts.begin(), walk.layouts.end(), std::mt19937(7));
  return walk;
}

// Time of the cost model for one layout, from the job to the costs of all stages and of the flush. Nothing is cached
// between layouts: neither prices nor operators. The stage maps of the schedules are built beforehand.
void price_shuffled(const Question& question) {
  constexpr std::size_t kLayouts = 60'000;
  Job job = job_of(question);
  const Layout base = job.layout;
  const SearchSpace space = space_of(question);
  Walk walk = shuffled_walk(job, space);
  const std::size_t valid = walk.layouts.size();
  walk.layouts.resize(std::min(valid, kLayouts));
  ScheduleShapes shapes(base, space);
  std::vector<const ScheduleShape*> shape_of;
  for (const auto& [group, member] : walk.layouts) {
    shape_of.push_back(&shapes.shape(member->schedule, group->pp, member->chunks, group->microbatches));
  }
  double checksum = 0.0;
  const double start = cpu_seconds();
  const double wall_start = seconds_of(CLOCK_MONOTONIC);
  for (std::size_t index = 0; index < walk.layouts.size(); ++index) {
    const auto& [group, member] = walk.layouts[index];
    const StageMap& stages = shape_of[index]->stages;
    job.layout = layout_of(base, space, *group, *member, job.model.layers);
    checksum += price_step(job, stages, even_stage_layers(job.model.layers, stages.model_stages))
                    .ranks.front()
                    .optimizer.value();
  }
  const double wall_us = 1e6 * (seconds_of(CLOCK_MONOTONIC) - wall_start) / static_cast<double>(walk.layouts.size());
  const double us = 1e6 * (cpu_seconds() - start) / static_cast<double>(walk.layouts.size());
  std::fputs(
      fmt::format("{:<44} {} of {} distinct layouts, shuffled: {:.2f} us to price one, {:.2f} us wall time ({:.6g})\n",
                  question.name, walk.layouts.size(), valid, us, wall_us, checksum)
          .c_str(),
      stdout);
}

double seconds_of_search(const Job& job, const SearchSpace& space, const SearchOptions& options, SearchResult& result) {
  const double start = cpu_seconds();
  LayoutSearch search(space, options, serial_for);
  search.explore(job, std::numeric_limits<double>::infinity(), "");
  result = search.result();
  return cpu_seconds() - start;
}

// The same result without bounds: every layout simulated, by the same search and individually from scratch.
void compare_with_everything(const Question& question) {
  const Job job = job_of(question);
  const SearchSpace space = space_of(question);
  SearchResult bounded;
  SearchResult whole;
  const double ours = std::min(seconds_of_search(job, space, SearchOptions(), bounded),
                               seconds_of_search(job, space, SearchOptions(), bounded));
  SearchOptions everything;
  everything.simulate_everything = true;
  const double exhaustive = seconds_of_search(job, space, everything, whole);
  const bool same = bounded.ranked.front().order == whole.ranked.front().order;
  std::fputs(fmt::format("{:<44} bounded {:.3f} s, every layout simulated {:.2f} s: {:.0f} times; the best is {}\n",
                         question.name, ours, exhaustive, exhaustive / ours, same ? "the same" : "ANOTHER")
                 .c_str(),
             stdout);
}

// Time of a sweep over all layouts, each simulated from scratch.
void compare_with_each(const Question& question) {
  const Job job = job_of(question);
  const SearchSpace space = space_of(question);
  SearchResult bounded;
  const double ours = seconds_of_search(job, space, SearchOptions(), bounded);
  Walk walk = shuffled_walk(job, space);
  constexpr std::size_t kSampled = 200;
  const std::size_t valid = walk.layouts.size();
  walk.layouts.resize(std::min(valid, kSampled));
  Job one = job;
  double checksum = 0.0;
  const double start = cpu_seconds();
  for (const auto& [group, member] : walk.layouts) {
    one.layout = layout_of(job.layout, space, *group, *member, job.model.layers);
    checksum += evaluate_layout(one).time_s;
  }
  const double each = (cpu_seconds() - start) / static_cast<double>(walk.layouts.size());
  const double spent = ours / static_cast<double>(bounded.space.enumerated);
  std::fputs(fmt::format("{:<44} {:.2f} us per layout in the search, {:.0f} us to simulate one from scratch (mean of "
                         "{}): {:.0f} times "
                         "({:.6g})\n",
                         question.name, 1e6 * spent, 1e6 * each, walk.layouts.size(), each / spent, checksum)
                 .c_str(),
             stdout);
}

void answer(const Question& question) {
  const Job job = job_of(question);
  const SearchSpace space = space_of(question);
  double best = std::numeric_limits<double>::infinity();
  SearchResult result;
  constexpr int kRepeats = 3;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    best = std::min(best, seconds_of_search(job, space, SearchOptions(), result));
  }
  const SpaceCounts& counts = result.space;
  std::fputs(fmt::format("{:<44} {:>9} layouts, {:>9} pruned, {:>5} simulated, {:.3f} s, {:.0f} layouts/s\n",
                         question.name, counts.enumerated, counts.pruned, counts.simulated, best,
                         static_cast<double>(counts.enumerated) / best)
                 .c_str(),
             stdout);
  if (result.ranked.empty()) return;
  const PlannedLayout& first = result.ranked.front();
  std::fputs(fmt::format("  best: {:.4g} s, tp {} cp {} pp {} dp {} ep {} mbs {} {}:{} zero {} recompute {}\n",
                         first.time_s, first.layout.tp, first.layout.cp, first.layout.pp, first.layout.dp,
                         first.layout.ep, first.layout.micro_batch_size, first.layout.schedule, *first.layout.vpp,
                         first.layout.zero, name_of(first.layout.recompute))
                 .c_str(),
             stdout);
}

void run_all() {
  const nlohmann::json small = job_of("gpt3-13b", "dgx-a100-80g", 4, 256, 2048);
  const nlohmann::json gpt3 = job_of("gpt3-175b", "dgx-a100-80g", 128, 1536, 2048);
  compare_with_everything({"GPT-3 13B, 32 A100", small});
  compare_with_each({"GPT-3 13B, 32 A100", small});
  compare_with_each({"GPT-3 175B, 1,024 A100", gpt3});
  answer({"GPT-3 175B, 1,024 A100", gpt3});
  answer({"GPT-3 175B, 1,024 A100, wide", gpt3, true});
  price_shuffled({"GPT-3 175B, 1,024 A100, wide", gpt3, true});
  answer({"Llama-3 405B, 16,384 H100, 131k tokens", job_of("llama3.1-405b", "dgx-h100", 2048, 128, 131'072)});
  answer({"Mixtral 8x22B, 512 H100", job_of("mixtral-8x22b", "dgx-h100", 64, 1024, 8192)});
}

}  // namespace
}  // namespace flopcast

int main() {
  flopcast::run_all();
  return 0;
}
