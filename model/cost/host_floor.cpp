#include "model/cost/host_floor.hpp"

#include <cmath>

namespace flopcast {

namespace {

Seconds waiting_for_host(Seconds host, Seconds device) {
  constexpr double kExponent = 6.0;     // fitted to published vTrain steps on one node, about half of them host-bound
  constexpr double kNoticeable = 0.25;  // of the device's time; the sum is then 0.004 % more
  if (host <= device * kNoticeable) return Seconds(0);
  const double ratio = device / host;
  return host * std::pow(1.0 + std::pow(ratio, kExponent), 1.0 / kExponent) - device;
}

}  // namespace

void add_host_floor(const Job& job, const std::vector<Operator>& operators, Section& block) {
  const Stack& stack = job.training.stack;
  double forward = 0.0;
  double backward = 0.0;
  for (const Operator& op : operators) {
    forward += op.forward_kernels;
    backward += op.backward_kernels;
  }
  const bool split = job.layout.tp > 1;
  const double collectives = split ? (job.layout.sequence_parallel ? 4.0 : 2.0) : 0.0;
  const Seconds waits = stack.host_time_per_collective * collectives;
  block.forward.compute += waiting_for_host(stack.host_time_per_kernel * forward + waits, block.forward.total());
  const Seconds whole = block.input_gradient.total() + block.weight_gradient.total();
  const Seconds short_of = waiting_for_host(stack.host_time_per_kernel * backward + waits, whole);
  block.input_gradient.compute += short_of * 0.5;
  block.weight_gradient.compute += short_of * 0.5;
}

}  // namespace flopcast
