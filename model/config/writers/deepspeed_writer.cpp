// DeepSpeed's configuration JSON: keys as in deepspeed/runtime/config.py and runtime/zero/config.py.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/config/writers/data_parallel_writers.hpp"
#include "model/config/writers/expressible.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kShardedWeights = 3;

void require_layout(const Job& job, Expressible& expressible) {
  const Layout& layout = job.layout;
  expressible.require(schedule_base_name(layout) == "1f1b" || runs_one_microbatch(layout),
                      fmt::format("layout.schedule {}", layout.schedule), "--schedule 1f1b");
  expressible.require(layout.pp == 1, fmt::format("layout.pp {} (its pipelines are cut in code)", layout.pp), "--pp 1");
  expressible.require(layout.ep == 1, fmt::format("layout.ep {} (its experts are spread in code)", layout.ep),
                      "--ep 1");
  expressible.require(!layout.sequence_parallel || layout.tp == 1, "layout.sequence_parallel", "--sp=false");
  expressible.require(layout.cp == 1 || layout.context_parallel == ContextParallel::kUlysses,
                      fmt::format("layout.cp {} as a ring", layout.cp), "--layout.context_parallel ulysses");
  expressible.require(layout.recompute != Recompute::kSelective, "layout.recompute selective",
                      "--recompute none or full");
  expressible.require(layout.data_parallel == DataParallel::kDdp, "layout.data_parallel fsdp or hsdp", "--zero 3");
  expressible.require(layout.tp == 1 || layout.zero < kShardedWeights, "layout.tp beside ZeRO 3", "--zero 2");
  expressible.require(!layout.offloads_activations() || layout.recompute == Recompute::kFull,
                      "offloaded activations without recomputation", "--recompute full");
  expressible.require(!layout.partition_checkpoints, "layout.partition_checkpoints",
                      "--layout.partition_checkpoints=false");
  expressible.require(job.training.precision != Precision::kFp8, "training.precision fp8", "--precision bf16");
}

Json zero_section(const Layout& layout) {
  Json zero = {{"stage", layout.zero}};
  if (layout.offloads_optimizer()) zero["offload_optimizer"] = {{"device", "cpu"}};
  constexpr std::int64_t kMebibyte = 1 << 20;
  constexpr int kBytesOfHalf = 2;  // DeepSpeed counts elements
  if (layout.bucket_mb) zero["reduce_bucket_size"] = *layout.bucket_mb * kMebibyte / kBytesOfHalf;
  return zero;
}

}  // namespace

LaunchFile write_deepspeed(const Job& job) {
  const Layout& layout = job.layout;
  Expressible expressible("DeepSpeed's configuration");
  expressible.require_common(job);
  require_layout(job, expressible);
  expressible.enforce();
  Json values = {{"train_batch_size", layout.global_batch_size},
                 {"train_micro_batch_size_per_gpu", layout.micro_batch_size},
                 {"gradient_accumulation_steps", layout.microbatches()}};
  const bool half = job.training.precision == Precision::kBf16 || job.training.precision == Precision::kFp16;
  values[job.training.precision == Precision::kFp16 ? "fp16" : "bf16"] = {{"enabled", half}};
  values["zero_optimization"] = zero_section(layout);
  if (layout.recompute == Recompute::kFull) {
    values["activation_checkpointing"] = {{"number_checkpoints", job.model.layers},
                                          {"cpu_checkpointing", layout.offloads_activations()}};
  }
  if (layout.tp > 1) values["tensor_parallel"] = {{"autotp_size", layout.tp}};
  if (layout.cp > 1) values["sequence_parallel_size"] = layout.cp;
  if (job.training.optimizer == Optimizer::kSgd) values["optimizer"] = {{"type", "SGD"}};
  LaunchFile file;
  file.text = values.dump(2) + "\n";
  file.notes = {
      fmt::format("the model and the sequence length are the training program's; start it on {} nodes of {} "
                  "GPUs",
                  job.cluster.nodes, job.cluster.devices_per_node)};
  if (layout.recompute == Recompute::kFull)
    file.notes.emplace_back("the training program has to checkpoint every layer (deepspeed.checkpointing)");
  return file;
}

}  // namespace flopcast
