// TeraPipe, token-level pipeline parallelism: Li et al. 2021, arXiv 2102.07988, section 3.
//
// Rule: a microbatch's tokens are cut into K slices that follow each other through the stages, which causal attention
// allows: a slice needs only the slices before it. All slices of all microbatches run forward in order, then backward
// in the opposite order, so that a slice's keys have all their gradients when its turn comes. Slice j of microbatch k
// is the program's unit k K + j (Program::slices_per_microbatch). Memory: m microbatches on every rank. Makespan: (m K
// + p - 1)(F + B) + 2 (p - 1) c with the times of one slice; bubble_fraction (p - 1) / (m K + p - 1). Left out: slices
// of unequal lengths, which the paper's dynamic program chooses so that later slices, which attend to more, are
// shorter. Constraints: none.

#include <fmt/format.h>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

constexpr int kDefaultSlices = 4;

int slices_of(const ScheduleRequest& request) {
  return request.slices.value_or(kDefaultSlices);
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  const int slices = slices_of(request);
  if (slices < 1) {
    return ScheduleRefusal{.problem = fmt::format("terapipe cannot cut a microbatch into {} slices", slices),
                           .help = "at least 1"};
  }
  const std::size_t actions =
      2 * static_cast<std::size_t>(request.pipeline_ranks) * static_cast<std::size_t>(request.microbatches);
  if (static_cast<std::size_t>(slices) > kMaxActions / actions) {
    return ScheduleRefusal{
        .problem = fmt::format("{} slices of {} microbatches on {} stages are more actions than fit into memory",
                               slices, request.microbatches, request.pipeline_ranks),
        .help = fmt::format("at most {} slices", kMaxActions / actions)};
  }
  return std::nullopt;
}

Program generate(const ScheduleRequest& request) {
  ScheduleRequest sliced = request;
  sliced.microbatches *= slices_of(request);
  Program program = empty_loop("terapipe", sliced);
  program.slices_per_microbatch = slices_of(request);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    std::vector<Action>& actions = program.ranks[static_cast<std::size_t>(rank)];
    for (int unit = 0; unit < sliced.microbatches; ++unit) actions.push_back(forward_action(rank, unit));
    for (int unit = sliced.microbatches; unit-- > 0;) actions.push_back(backward_action(rank, unit));
  }
  return program;
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks units = Ticks{request.microbatches} * slices_of(request);
  return (units + ranks - 1) * (times.forward + times.backward) + 2 * (ranks - 1) * times.latency;
}

}  // namespace

ScheduleInfo terapipe_schedule() {
  ScheduleInfo info;
  info.name = "terapipe";
  info.summary = "gpipe over token slices of the microbatches: a bubble K times smaller";
  info.source = "TeraPipe, arXiv 2102.07988, section 3";
  info.constraints = "at least one slice; 4 by default";
  info.peak_in_flight = "m K slices";
  info.makespan = "(m K + p - 1)(F + B) + 2 (p - 1) c, F and B of one slice";
  info.reads = {&ScheduleRequest::slices};
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
