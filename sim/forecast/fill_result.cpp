#include "sim/forecast/fill_result.hpp"

#include <cstddef>

#include "model/cost/uneven_costs.hpp"

namespace flopcast {

namespace {

constexpr double kTera = 1e12;

}  // namespace

void fill_from_profile(const StepProfile& profile, Result& result) {
  Breakdown& breakdown = result.breakdown;
  breakdown.pp_comm_s = profile.exposed_pipeline_s;
  const double inside_passes = breakdown.dp_comm_s + breakdown.offload_s;
  breakdown.dp_comm_s += profile.exposed_data_parallel_s;
  breakdown.optimizer_s = profile.optimizer_s;
  breakdown.bubble_s = profile.bubble_total_s();
  breakdown.compute_s = profile.actions_s - breakdown.recompute_s - breakdown.tp_comm_s - breakdown.cp_comm_s -
                        breakdown.ep_comm_s - inside_passes;

  BubbleResult& bubble = result.bubble;
  bubble.fraction = breakdown.bubble_s / profile.time_s;
  bubble.ratio = profile.time_s / profile.busiest_rank_s - 1.0;
  bubble.span_s = profile.span_s;
  bubble.warmup_s = profile.bubble_s[static_cast<std::size_t>(BubbleCause::kWarmup)];
  bubble.cooldown_s = profile.bubble_s[static_cast<std::size_t>(BubbleCause::kCooldown)];
  bubble.imbalance_s = profile.bubble_s[static_cast<std::size_t>(BubbleCause::kImbalance)];
  bubble.dependency_s = profile.bubble_s[static_cast<std::size_t>(BubbleCause::kDependency)];
  bubble.per_pipeline_rank = profile.bubble_share;

  CommunicationResult& sent = result.communication;
  sent.tp.exposed_s = breakdown.tp_comm_s;
  sent.pp.exposed_s = breakdown.pp_comm_s;
  sent.dp.exposed_s = breakdown.dp_comm_s;
  sent.cp.exposed_s = breakdown.cp_comm_s;
  sent.ep.exposed_s = breakdown.ep_comm_s;
  const auto total = [&sent](double AxisCommunication::*part) {
    return sent.tp.*part + sent.pp.*part + sent.dp.*part + sent.cp.*part + sent.ep.*part;
  };
  sent.fraction = total(&AxisCommunication::total_s) / profile.time_s;
  sent.exposed_fraction = total(&AxisCommunication::exposed_s) / profile.time_s;
}

void fill_iteration(const Job& job, double time_s, double recompute_flops_per_pipeline, IterationResult& iteration) {
  const double gpus = job.cluster.devices();
  const double samples = job.layout.global_batch_size;
  const double model_flops = model_flops_per_step(job).value();
  const double pipelines = static_cast<double>(job.layout.dp) * job.layout.tp * job.layout.cp;
  const double hardware_flops = model_flops + recompute_flops_per_pipeline * pipelines;
  iteration.time_s = time_s;
  iteration.samples_per_s = samples / time_s;
  iteration.tokens_per_s = iteration.samples_per_s * job.training.sequence_length;
  iteration.tokens_per_s_per_gpu = iteration.tokens_per_s / gpus;
  iteration.model_tflops_per_gpu = model_flops / time_s / gpus / kTera;
  iteration.hardware_tflops_per_gpu = hardware_flops / time_s / gpus / kTera;
  const double peak = mean_peak(job).value() / kTera;
  iteration.mfu = iteration.model_tflops_per_gpu / peak;
  iteration.hfu = iteration.hardware_tflops_per_gpu / peak;
}

Result result_of_timeline(const Job& job, const Timeline& step) {
  Result result;
  const StepProfile profile = profile_of_flushed_step(step);
  fill_from_profile(profile, result);
  fill_iteration(job, profile.time_s, 0.0, result.iteration);
  return result;
}

}  // namespace flopcast
