#include "sim/forecast/program_file.hpp"
#include "sim/cells/fault_grid.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "model/error/error.hpp"
#include "sim/cells/csv.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

constexpr std::string_view kFilePrefix = "file:";

[[noreturn]] void fail(const Job& job, const std::string& field, const std::string& problem, const std::string& help) {
  throw ConfigError({field, problem, job.origins.where(field), help});
}

std::vector<Chain> chains_of(const Job& job) {
  if (job.layout.chains.empty()) return {};
  try {
    return parse_chains(job.layout.chains);
  } catch (const ConfigError& error) {
    fail(job, "layout.chains", error.diagnostic().problem, error.diagnostic().help);
  }
}

void require_valid(const Job& job, const Program& program) {
  const auto fault = find_fault(program);
  if (!fault) return;
  const auto hint = hint_two_chains(program);
  fail(job, "layout.schedule",
       fmt::format("{}: {}\n\n{}", program.schedule, render_fault(*fault), render_fault_grid(program, *fault)),
       hint ? fmt::format("valid as a bidirectional schedule: layout.chains {}", *hint) : "");
}

void require_one_rank_a_stage(const Job& job, const Program& program) {
  if (program.replicas_of_stage.empty()) return;
  fail(job, "layout.schedule", fmt::format("{} replicates single stages, which a job cannot", program.schedule),
       "one rank a stage and layout.dp, or `flopcast schedule simulate`, which knows replicated stages");
}

// Every chain is a copy of the whole model, cut in the same places.
void require_equal_chains(const Job& job, const Program& program) {
  const auto length = [](const Chain& chain) { return chain.last_stage - chain.first_stage; };
  for (const Chain& chain : program.chains) {
    if (length(chain) == length(program.chains.front())) continue;
    fail(job, "layout.chains", fmt::format("{} are chains of unequal length", job.layout.chains),
         "each chain is a copy of the model: give ranges of as many stages each");
  }
}

void require_fitting_counts(const Job& job, const Program& program) {
  const Layout& layout = job.layout;
  const int ranks = program.rank_count();
  if (ranks != layout.pp) {
    fail(job, "layout.pp", fmt::format("{} pipeline ranks, but {} has {} lines", layout.pp, program.schedule, ranks),
         fmt::format("valid: {}", ranks));
  }
  // Each chain of a bidirectional schedule takes its share of the step's microbatches.
  long microbatches = 0;
  for (const Chain& chain : program.chains) microbatches += program.microbatches_of(chain);
  if (microbatches != layout.microbatches()) {
    fail(
        job, "layout.global_batch_size",
        fmt::format("{} microbatches a pipeline, but {} has {}", layout.microbatches(), program.schedule, microbatches),
        fmt::format("valid: {}", microbatches * layout.dp * layout.micro_batch_size));
  }
  const int chunks = program.stages_per_chain() / ranks;
  if (layout.vpp.value_or(chunks) != chunks) {
    fail(job, "layout.vpp", fmt::format("{} stages a rank, but {} has {}", *layout.vpp, program.schedule, chunks),
         fmt::format("valid: {}", chunks));
  }
}

void refuse_schedule_numbers(const Job& job) {
  for (const ScheduleNumber& number : schedule_numbers()) {
    const std::optional<int>& value = job.layout.*number.layout;
    if (!value) continue;
    fail(job, std::string(number.field), fmt::format("{} means nothing to a schedule from a file", *value),
         "leave it out");
  }
}

}  // namespace

bool has_program_file(const Job& job) {
  return job.layout.schedule.rfind(kFilePrefix, 0) == 0;
}

Program read_program_file(Job& job, const ReadFile& read_file) {
  const std::string path = job.layout.schedule.substr(kFilePrefix.size());
  const CellProgram lowered = parse_lowered_csv(read_file(path), path, chains_of(job));
  if (const std::size_t communications = lowered.communication_count(); communications > 0) {
    job.assumptions.push_back(fmt::format(
        "{} communications of {} are left out: transfers follow from the order of its actions", communications, path));
  }
  Program program = compute_of(lowered);
  require_valid(job, program);
  require_one_rank_a_stage(job, program);
  require_equal_chains(job, program);
  require_fitting_counts(job, program);
  refuse_schedule_numbers(job);
  job.layout.vpp = program.stages_per_chain() / program.rank_count();
  return program;
}

}  // namespace flopcast
