#include "sim/forecast/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/text/error.hpp"
#include "model/cost/expert_costs.hpp"
#include "sim/cells/cell.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

[[noreturn]] void fail_at(const Job& job, const std::string& field, const std::string& problem,
                          const std::string& help) {
  throw ConfigError({field, problem, job.origins.where(field), help});
}

constexpr int kAsynchronousStretch = 4;  // microbatches per pipeline rank

std::string default_schedule(Job& job) {
  const bool one_microbatch = job.layout.microbatches() == 1;
  const bool chunked = job.layout.vpp.value_or(1) > 1;
  std::string name = chunked ? "interleaved" : (one_microbatch ? "naive" : "1f1b");
  if (job.layout.pp > 1) job.assumptions.push_back("layout.schedule is " + name);
  return name;
}

// Megatron Core's combined 1F1B (pipeline_parallel/combined_1f1b.py), which adds one forward pass in front: a backward
// pass and the forward pass that follows it on the rank become a pair. Ranks of an interleaved order are two forward
// passes apart, which hides how long a pair keeps its results; those of plain 1F1B are one apart, and pairs would halve
// their pace, so Megatron Core requires virtual stages.
bool pairs_experts(const Job& job) {
  return !job.profile && job.model.experts && job.layout.ep > 1 && overlap_of_experts(job) != ExpertOverlap::kNone;
}

// Returns true if the program has pairs afterwards.
bool pair_passes(const Job& job, const ScheduleInfo* schedule, Program& program) {
  const bool can_be_paired = schedule != nullptr && !schedule->uses_times && !program.asynchronous &&
                             program.chains.size() == 1 && program.slices_per_microbatch == 1 &&
                             (job.layout.pp == 1 || job.layout.vpp.value_or(1) > 1);
  bool paired = false;
  for (std::vector<Action>& actions : program.ranks) {
    for (std::size_t index = 0; index + 1 < actions.size(); ++index) {
      Action& first = actions[index];
      Action& second = actions[index + 1];
      const bool new_pair = can_be_paired && !first.overlaps_next && first.kind == ActionKind::kBackward &&
                            second.kind == ActionKind::kForward && !second.overlaps_next;
      if (new_pair) {
        std::swap(first, second);
        first.overlaps_next = true;
        program.backward_frees_first = true;
      }
      paired = paired || first.overlaps_next;
      if (first.overlaps_next) ++index;
    }
  }
  return paired;
}

void pair_passes_of_experts(PreparedStep& step) {
  Job& job = step.job;
  if (!pairs_experts(job) || pair_passes(job, step.schedule, step.program)) return;
  job.warnings.push_back(fmt::format(
      "training.overlap.experts {} hides nothing: {} has no forward pass next to a backward pass; use dualpipe, "
      "dualpipev, a vpp above 1, or one pipeline rank with several microbatches",
      name_of(overlap_of_experts(job)), job.layout.schedule));
}

bool is_whole_in_rows(const Program& program);

// Puts a program of few microbatches into the step if the order of the schedule repeats. Tries blocks of one
// microbatch, of a group of chunks and of a round of the ranks.
std::optional<PreparedStep::Repetition> repeat_program(PreparedStep& step) {
  const ScheduleRequest& request = step.request;
  if (step.schedule->uses_times || step.schedule->asynchronous || step.job.cluster.shares_links()) return std::nullopt;
  const int ranks = request.pipeline_ranks;
  const int all = request.microbatches;
  std::vector<int> periods = {1};
  for (const int period : {request.group_size.value_or(ranks), ranks, 2, 2 * ranks}) {
    if (std::find(periods.begin(), periods.end(), period) == periods.end()) periods.push_back(period);
  }
  const auto is_refused = [&](int microbatches) {
    ScheduleRequest other = request;
    other.microbatches = microbatches;
    return refuse_request(*step.schedule, other).has_value();
  };
  constexpr int kBlocksToCompare = 1;
  for (const int period : periods) {
    for (const int least : {ranks + 2 * period, ranks + 3 * period, 2 * ranks + 4 * period, 4 * ranks + 8 * period}) {
      const int few = least + (all - least % period + period) % period;
      if (2 * few > all || few + period > all) break;
      if (is_refused(few) || is_refused(few + period)) break;
      Program program = program_with(step, few);
      const std::optional<OrderPeriod> order = find_order_period(program, program_with(step, few + period));
      if (!order || order->microbatches != period || order->blocks < order->reach + kBlocksToCompare) continue;
      if (is_whole_in_rows(program)) return std::nullopt;
      step.program = std::move(program);
      return PreparedStep::Repetition{*order, all - few};
    }
  }
  return std::nullopt;
}

void generate_program(PreparedStep& step, bool as_it_repeats) {
  Job& job = step.job;
  if (job.layout.schedule.empty()) job.layout.schedule = default_schedule(job);
  ScheduleName name;
  try {
    name = parse_schedule_name(job.layout.schedule);
  } catch (const ConfigError& error) {
    // The error concerns the job's own fields, so it must point there.
    fail_at(job, "layout.schedule", error.diagnostic().problem, error.diagnostic().help);
  }
  if (name.chunks && job.layout.vpp && *name.chunks != *job.layout.vpp) {
    fail_at(job, "layout.vpp", fmt::format("{} contradicts layout.schedule {}", *job.layout.vpp, job.layout.schedule),
            "give only one of the two");
  }
  step.schedule = name.info;
  if (!name.chunks && !job.layout.vpp && name.info->default_chunks > 1) {
    job.assumptions.push_back(
        fmt::format("layout.vpp is {}, the default of {}", name.info->default_chunks, name.info->name));
  }
  const int vpp = name.chunks ? *name.chunks : job.layout.vpp.value_or(name.info->default_chunks);
  job.layout.vpp = vpp;
  step.request.pipeline_ranks = job.layout.pp;
  const int microbatches = job.layout.microbatches();
  step.request.microbatches = microbatches;
  step.request.chunks = vpp;
  for (const ScheduleNumber& number : schedule_numbers()) step.request.*number.request = job.layout.*number.layout;
  step.request.variant = name.variant;
  if (name.info->asynchronous) {
    // The number of updates per step need not be whole, but the stretch that is drawn and held in memory must reach the
    // steady state.
    step.request.accumulation = name.info->weights.accumulation(step.request);
    if (!job.layout.accumulation) {
      job.assumptions.push_back(
          fmt::format("weights are updated after every {} microbatches", *step.request.accumulation));
      job.layout.accumulation = step.request.accumulation;
    }
    step.request.microbatches =
        std::max({microbatches, 2 * *step.request.accumulation, kAsynchronousStretch * job.layout.pp});
  }
  if (const auto refusal = refuse_request(*name.info, step.request)) {
    fail_at(job, "layout.schedule", fmt::format("{}: {}", name.info->name, refusal->problem), refusal->help);
  }
  if (as_it_repeats) step.repetition = repeat_program(step);
  // Stages can be priced without the order; if the order depends on the prices, it is generated later.
  if (!step.repetition) {
    step.program =
        name.info->uses_times ? stages_of_schedule(*name.info, step.request) : name.info->generate(step.request);
  }
  const int slices = step.program.slices_per_microbatch;
  if (slices == 1) return;
  job.layout.slices = slices;
  job.assumptions.push_back(
      fmt::format("each of {} token slices takes an equal share of its microbatch's time, regardless of how many "
                  "tokens it attends to",
                  slices));
}

// A schedule from a file.

constexpr std::string_view kFilePrefix = "file:";

std::vector<Chain> chains_of(const Job& job) {
  if (job.layout.chains.empty()) return {};
  try {
    return parse_chains(job.layout.chains);
  } catch (const ConfigError& error) {
    fail_at(job, "layout.chains", error.diagnostic().problem, error.diagnostic().help);
  }
}

void require_valid(const Job& job, const Program& program) {
  const auto fault = find_fault(program);
  if (!fault) return;
  const auto hint = hint_two_chains(program);
  fail_at(job, "layout.schedule",
          fmt::format("{}: {}\n\n{}", program.schedule, render_fault(*fault), render_fault_grid(program, *fault)),
          hint ? fmt::format("valid as a bidirectional schedule: layout.chains {}", *hint) : "");
}

void require_one_rank_a_stage(const Job& job, const Program& program) {
  if (program.replicas_of_stage.empty()) return;
  fail_at(job, "layout.schedule",
          fmt::format("{} replicates individual stages, which jobs do not support", program.schedule),
          "use one rank per stage and layout.dp, or `flopcast schedule simulate`, which supports replicated stages");
}

// Every chain must be a copy of the whole model, cut in the same places.
void require_equal_chains(const Job& job, const Program& program) {
  const auto length = [](const Chain& chain) { return chain.last_stage - chain.first_stage; };
  for (const Chain& chain : program.chains) {
    if (length(chain) == length(program.chains.front())) continue;
    fail_at(job, "layout.chains", fmt::format("the chains {} have unequal lengths", job.layout.chains),
            "each chain is a copy of the model: give ranges with the same number of stages");
  }
}

void require_fitting_counts(const Job& job, const Program& program) {
  const Layout& layout = job.layout;
  const int ranks = program.rank_count();
  if (ranks != layout.pp) {
    fail_at(job, "layout.pp", fmt::format("{} pipeline ranks, but {} has {} lines", layout.pp, program.schedule, ranks),
            fmt::format("valid: {}", ranks));
  }
  // Each chain of a bidirectional schedule takes its share of the step's microbatches.
  long microbatches = 0;
  for (const Chain& chain : program.chains) microbatches += program.microbatches_of(chain);
  if (microbatches != layout.microbatches()) {
    fail_at(job, "layout.global_batch_size",
            fmt::format("{} microbatches per pipeline, but {} has {}", layout.microbatches(), program.schedule,
                        microbatches),
            fmt::format("valid: {}", microbatches * layout.dp * layout.micro_batch_size));
  }
  const int chunks = program.stages_per_chain() / ranks;
  if (layout.vpp.value_or(chunks) != chunks) {
    fail_at(job, "layout.vpp", fmt::format("{} stages per rank, but {} has {}", *layout.vpp, program.schedule, chunks),
            fmt::format("valid: {}", chunks));
  }
}

void refuse_schedule_numbers(const Job& job) {
  for (const ScheduleNumber& number : schedule_numbers()) {
    const std::optional<int>& value = job.layout.*number.layout;
    if (!value) continue;
    fail_at(job, std::string(number.field), fmt::format("{} has no effect on a schedule from a file", *value),
            "remove it");
  }
}

bool has_program_file(const Job& job) {
  return job.layout.schedule.rfind(kFilePrefix, 0) == 0;
}

// Ignores communications in the file, with a note. A bidirectional schedule needs layout.chains, and its microbatches
// are those of all chains together. Sets layout.vpp.
Program read_program_file(Job& job, const ReadFile& read_file) {
  const std::string path = job.layout.schedule.substr(kFilePrefix.size());
  if (job.layout.schedule_csv.empty()) job.layout.schedule_csv = read_file(path);
  const CellProgram written = parse_cell_csv(job.layout.schedule_csv, path, chains_of(job));
  if (const std::size_t communications = written.communication_count(); communications > 0) {
    job.assumptions.push_back(fmt::format(
        "{} communications of {} are ignored: transfers follow from the order of its actions", communications, path));
  }
  Program program = compute_of(written);
  require_valid(job, program);
  require_one_rank_a_stage(job, program);
  require_equal_chains(job, program);
  require_fitting_counts(job, program);
  refuse_schedule_numbers(job);
  job.layout.vpp = program.stages_per_chain() / program.rank_count();
  return program;
}

// Uses the schedule that the job names, from a file or generated.
void choose_program(PreparedStep& step, const ReadFile& read_file, bool as_it_repeats) {
  if (has_program_file(step.job)) {
    step.program = read_program_file(step.job, read_file);
    return;
  }
  if (!step.job.layout.chains.empty()) {
    fail_at(step.job, "layout.chains", fmt::format("{} requires a schedule from a file", step.job.layout.chains),
            "set layout.schedule file:PATH, or remove layout.chains");
  }
  generate_program(step, as_it_repeats);
}

// StageMap::passes_in_a_row: a stage runs all its passes of a direction in a row if its rank turns to it once. Empty
// unless that holds for all stages, because a program gathers weights in one way only.
std::vector<int> passes_in_a_row(const Program& program) {
  const auto stages = static_cast<std::size_t>(program.stage_count());
  std::vector<int> forward_rows(stages, 0);
  std::vector<int> backward_rows(stages, 0);
  for (const std::vector<Action>& actions : program.ranks) {
    const Action* before = nullptr;
    for (const Action& action : actions) {
      const bool forward = action.kind == ActionKind::kForward;
      const bool continues =
          before != nullptr && before->stage == action.stage && (before->kind == ActionKind::kForward) == forward;
      if (!continues) ++(forward ? forward_rows : backward_rows)[action.stage];
      before = &action;
    }
  }
  std::vector<int> passes(stages, 1);
  for (const Chain& chain : program.chains) {
    const int all = program.microbatches_of(chain) / program.slices_per_microbatch;
    for (auto stage = static_cast<std::size_t>(chain.first_stage); stage <= static_cast<std::size_t>(chain.last_stage);
         ++stage) {
      if (forward_rows[stage] != 1 || backward_rows[stage] != 1) return {};
      passes[stage] = all;
    }
  }
  return passes;
}

bool is_whole_in_rows(const Program& program) {
  return !passes_in_a_row(program).empty();
}

void refuse_on_network(const Job& job, const Program& program) {
  if (!job.cluster.shares_links()) return;
  constexpr const char* kHelp = "set cluster.network none, or use another layout";
  if (program.asynchronous) {
    fail_at(job, "cluster.network",
            fmt::format("requires a schedule that flushes, and {} never does", job.layout.schedule), kHelp);
  }
  const DataParallel form = job.layout.data_parallel;
  if (form == DataParallel::kPs || form == DataParallel::kByteps) {
    fail_at(job, "cluster.network", fmt::format("does not support parameter servers (data_parallel {})", name_of(form)),
            kHelp);
  }
}

}  // namespace

StageMap stage_map_of(const Program& program) {
  StageMap map;
  map.rank_of_stage = program.rank_of_stage;
  map.model_stages = program.stages_per_chain();
  map.passes_in_a_row = passes_in_a_row(program);
  return map;
}

Program program_with(const PreparedStep& step, int microbatches) {
  ScheduleRequest request = step.request;
  request.microbatches = microbatches;
  Program program = step.schedule->generate(request);
  if (pairs_experts(step.job)) pair_passes(step.job, step.schedule, program);
  return program;
}

namespace {

PreparedStep prepare_program(Job job, const ReadFile& read_file, bool as_it_repeats) {
  PreparedStep step;
  step.job = std::move(job);
  choose_program(step, read_file, as_it_repeats);
  refuse_on_network(step.job, step.program);
  pair_passes_of_experts(step);
  step.stages = stage_map_of(step.program);
  step.held = held_activations(step.program);
  spread_layers(step);
  price(step);
  return step;
}

}  // namespace

PreparedStep prepare(Job job, const ReadFile& read_file) {
  return prepare_program(std::move(job), read_file, false);
}

PreparedStep prepare_periodic(Job job, const ReadFile& read_file) {
  return prepare_program(std::move(job), read_file, true);
}

}  // namespace flopcast
