// Eager 1F1B: Zhuang 2022, arXiv 2211.05322 (overlap-friendly 1F1B of Alpa); policy PB of DAPPLE, arXiv
// 2007.01045.
//
// Rule: 1F1B with a warm-up of min(m, 2 (p - 1 - r)) forwards, so that an activation is under way while its consumer
// still computes.
// Peak in flight: min(m, 2 (p - 1 - r) + 1): almost twice 1F1B's on the first rank, the price of hiding the latency.
// Makespan: (m + p - 1)(F + B) + 2 (p - 1) c, exact while 2c <= F + B. bubble_fraction (p - 1) / (m + p - 1) at c = 0.
// Constraints: one chunk per rank.

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

Program generate(const ScheduleRequest& request) {
  std::vector<int> warmup = shortest_warmup(request.pipeline_ranks);
  for (int& forwards : warmup) forwards *= 2;
  return one_forward_one_backward("eager-1f1b", request, warmup);
}

}  // namespace

ScheduleInfo eager_1f1b_schedule() {
  ScheduleInfo info;
  info.name = "eager-1f1b";
  info.summary = "1f1b with a longer warm-up that hides the latency between ranks";
  info.source = "Alpa's overlap-friendly 1F1B, arXiv 2211.05322";
  info.peak_in_flight = "min(m, 2 (p - 1 - r) + 1)";
  info.makespan = "(m + p - 1)(F + B) + 2 (p - 1) c while 2c <= F + B";
  info.where_to_use = "1f1b across slow links, with memory for twice the activations";
  info.generate = generate;
  info.closed_form_makespan = eager_1f1b_makespan;
  return info;
}

}  // namespace flopcast
