// Hugging Face Accelerate's YAML: keys as in accelerate/commands/config/config_args.py and the FSDP plugin.
#include <fmt/format.h>

#include "model/config/writers/data_parallel_writers.hpp"
#include "model/config/writers/expressible.hpp"

namespace flopcast {

namespace {

bool is_fsdp(const Layout& layout) {
  return layout.data_parallel == DataParallel::kFsdp || layout.data_parallel == DataParallel::kHsdp;
}

void require_layout(const Job& job, Expressible& expressible) {
  const Layout& layout = job.layout;
  expressible.require(schedule_base_name(layout) == "1f1b" || runs_one_microbatch(layout),
                      fmt::format("layout.schedule {}", layout.schedule), "--schedule 1f1b");
  struct AxisOfOne {
    const char* name;
    int ranks;
  };
  for (const AxisOfOne& axis : {AxisOfOne{"tp", layout.tp}, {"pp", layout.pp}, {"cp", layout.cp}, {"ep", layout.ep}}) {
    expressible.require(axis.ranks == 1, fmt::format("layout.{} {}", axis.name, axis.ranks),
                        fmt::format("--{} 1", axis.name));
  }
  const bool recomputes = layout.recompute == Recompute::kFull && is_fsdp(layout);
  expressible.require(
      layout.recompute == Recompute::kNone || recomputes,
      fmt::format("layout.recompute {}{}", recompute_names()[static_cast<std::size_t>(layout.recompute)],
                  is_fsdp(layout) ? "" : " without FSDP"),
      is_fsdp(layout) ? "--recompute none or full" : "--recompute none or --layout.data_parallel fsdp");
  expressible.require(layout.data_parallel != DataParallel::kHsdp || layout.shards == job.cluster.devices_per_node,
                      fmt::format("layout.shards {} (a node's GPUs share one copy)", layout.shards),
                      fmt::format("--layout.shards {}", job.cluster.devices_per_node));
  const bool offloads = layout.offload == Offload::kOptimizer && layout.zero > 0;
  expressible.require(layout.offload == Offload::kNone || offloads, "layout.offload other than the optimizer's of ZeRO",
                      "--layout.offload none");
  expressible.require(!layout.partition_checkpoints, "layout.partition_checkpoints",
                      "--layout.partition_checkpoints=false");
  expressible.require(!layout.bucket_mb, "layout.bucket_mb", "");
  expressible.require(job.training.optimizer == Optimizer::kAdam, "training.optimizer sgd",
                      "--training.optimizer adam");
}

std::string fsdp_section(const Layout& layout) {
  const bool hybrid = layout.data_parallel == DataParallel::kHsdp;
  const char* const strategy = layout.reshard_after_forward ? (hybrid ? "HYBRID_SHARD" : "FULL_SHARD")
                                                            : (hybrid ? "HYBRID_SHARD_ZERO2" : "SHARD_GRAD_OP");
  return fmt::format("fsdp_config:\n  fsdp_sharding_strategy: {}\n  fsdp_activation_checkpointing: {}\n", strategy,
                     layout.recompute == Recompute::kFull);
}

std::string deepspeed_section(const Layout& layout) {
  return fmt::format(
      "deepspeed_config:\n  zero_stage: {}\n  gradient_accumulation_steps: {}\n  offload_optimizer_device: {}\n  "
      "offload_param_device: none\n",
      layout.zero, layout.microbatches(), layout.offloads_optimizer() ? "cpu" : "none");
}

const char* precision_name(Precision precision) {
  if (precision == Precision::kFp32) return "'no'";
  return precision == Precision::kFp16 ? "fp16" : precision == Precision::kFp8 ? "fp8" : "bf16";
}

}  // namespace

LaunchFile write_accelerate(const Job& job) {
  const Layout& layout = job.layout;
  Expressible expressible("Accelerate's configuration");
  expressible.require_common(job);
  require_layout(job, expressible);
  expressible.enforce();
  const bool deepspeed = !is_fsdp(layout) && layout.zero > 0;
  LaunchFile file;
  file.text = fmt::format(
      "compute_environment: LOCAL_MACHINE\ndistributed_type: {}\nmixed_precision: {}\nnum_machines: {}\n"
      "num_processes: {}\n",
      is_fsdp(layout) ? "FSDP"
      : deepspeed     ? "DEEPSPEED"
                      : "MULTI_GPU",
      precision_name(job.training.precision), job.cluster.nodes, layout.dp);
  if (is_fsdp(layout)) file.text += fsdp_section(layout);
  if (deepspeed) file.text += deepspeed_section(layout);
  if (!deepspeed) file.text += fmt::format("gradient_accumulation_steps: {}\n", layout.microbatches());
  file.notes = {
      fmt::format("the model, the sequence length and the micro-batch of {} are the training program's "
                  "(--per_device_train_batch_size {})",
                  layout.micro_batch_size, layout.micro_batch_size)};
  return file;
}

}  // namespace flopcast
