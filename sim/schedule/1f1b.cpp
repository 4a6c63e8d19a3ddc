// 1F1B with a flush (PipeDream-Flush): Narayanan 2021, arXiv 2006.09503, section 3.2; the early backward of DAPPLE,
// arXiv 2007.01045; the schedule of Megatron-LM without interleaving, arXiv 2104.04473, section 2.2.1.
//
// Rule: rank r executes min(m, p - 1 - r) forwards, then one forward and one backward in turn, then the backwards
// that are left.
// Peak in flight: min(m, p - r).
// Makespan: (m + p - 1)(F + B) + 2c [(p - 1) + ceil(max(0, m - 2)(p - 1) / p)]: latency is exposed once a microbatch,
// not once a step. bubble_fraction (p - 1) / (m + p - 1) at c = 0. For uneven stages no closed form is exact.
// Constraints: one chunk per rank. Fewer microbatches than ranks are fine, as in Megatron-LM (PyTorch refuses them).

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

Program generate(const ScheduleRequest& request) {
  return one_forward_one_backward("1f1b", request, shortest_warmup(request.pipeline_ranks));
}

}  // namespace

ScheduleInfo one_forward_one_backward_schedule() {
  ScheduleInfo info;
  info.name = "1f1b";
  info.summary = "one forward, one backward: the bubble of gpipe with at most p microbatches in flight";
  info.source = "PipeDream-Flush, arXiv 2006.09503, section 3.2";
  info.peak_in_flight = "min(m, p - r)";
  info.makespan = "(m + p - 1)(F + B) + 2c ((p - 1) + ceil(max(0, m - 2)(p - 1) / p))";
  info.where_to_use = "the default: many microbatches in bounded memory, links that are fast beside a stage";
  info.generate = generate;
  info.closed_form_makespan = one_forward_one_backward_makespan;
  return info;
}

}  // namespace flopcast
