// DeepSpeed's configuration JSON: keys and defaults as in deepspeed/runtime/config.py and runtime/zero/config.py.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "import/programs/foreign_keys.hpp"
#include "import/programs/imported_job.hpp"
#include "import/programs/launch.hpp"
#include "model/config/document.hpp"

namespace flopcast {

namespace {

constexpr const char* kCheckpointing = "activation_checkpointing";
constexpr int kHighestStage = 3;

void read_deepspeed_batch(JsonReader& object, const ImportContext& context, ImportedJob& imported) {
  const auto batch = object.whole("train_batch_size", 1);
  const auto micro = object.whole("train_micro_batch_size_per_gpu", 1);
  const auto accumulation = object.whole("gradient_accumulation_steps", 1);
  if (micro) imported.put("layout.micro_batch_size", *micro, object.place("train_micro_batch_size_per_gpu"));
  if (batch) imported.put("layout.global_batch_size", *batch, object.place("train_batch_size"));
  if (batch && micro && accumulation) {
    const std::int64_t slice = std::int64_t{*micro} * *accumulation;
    if (*batch % slice != 0) {
      object.fail(
          "train_batch_size",
          fmt::format("{} must be a multiple of train_micro_batch_size_per_gpu {} · gradient_accumulation_steps {}",
                      *batch, *micro, *accumulation),
          "DeepSpeed requires micro batch · accumulation · data-parallel size");
    }
    const bool changed =
        context.given.count("layout.global_batch_size") + context.given.count("layout.micro_batch_size") > 0;
    if (!changed) imported.put("layout.dp", *batch / slice, object.place("train_batch_size"));
    return;
  }
  if (batch && accumulation && !micro) {
    imported.warnings.push_back(fmt::format("{}: has no effect without train_micro_batch_size_per_gpu; give --mbs N",
                                            object.place("gradient_accumulation_steps")));
  }
  if (batch || context.given.count("layout.global_batch_size") > 0) return;
  if (accumulation || micro) {
    const char* key = accumulation ? "gradient_accumulation_steps" : "train_micro_batch_size_per_gpu";
    imported.put("layout.accumulation", accumulation.value_or(1), object.place(key));
  }
}

void read_deepspeed_precision(JsonReader& object, const ImportContext& context, ImportedJob& imported) {
  const char* chosen = nullptr;
  bool open = false;
  for (const char* key : {"bf16", "bfloat16", "fp16"}) {
    auto section = object.object(key);
    if (!section) continue;
    const nlohmann::json* enabled = section->find("enabled");
    const bool on = enabled != nullptr && section->boolean("enabled").value_or(false);
    open = open || enabled == nullptr;
    note_auto(*section, imported);
    judge_keys(*section, "deepspeed", imported);
    if (!on) continue;
    if (chosen != nullptr)
      section->fail("enabled", fmt::format("{} and {} are both enabled", chosen, key), "keep one of the two");
    chosen = key;
    imported.put("training.precision", std::string(key) == "fp16" ? "fp16" : "bf16", section->place("enabled"));
  }
  if (chosen != nullptr || open || context.given.count("training.precision") > 0) return;
  imported.put("training.precision", "fp32", object.place("bf16"));
  imported.notes.push_back(
      fmt::format("{}: neither bf16 nor fp16 is enabled: DeepSpeed computes in fp32", object.place("bf16")));
}

// DeepSpeed expects the section at the top level; some files put it, or its keys, into zero_optimization. Checkpoints
// are partitioned over the model-parallel ranks, which the file does not specify.
void put_partitioned_checkpoints(const std::string& place, const ImportContext& context, ImportedJob& imported) {
  const auto given = [&context](const char* field) { return context.given.count(field) > 0; };
  const bool told = given("layout.tp") || imported.places.count("layout.tp") > 0;
  if (!told) {
    imported.notes.push_back(fmt::format("{}: has no effect without tensor-parallel ranks (--tp)", place));
  } else if (given("layout.recompute") || given("layout.sequence_parallel")) {
    imported.warnings.push_back(fmt::format(
        "{}: ignored, since recompute or sequence parallelism is given; use --layout.partition_checkpoints", place));
  } else {
    imported.put("layout.partition_checkpoints", true, place);
  }
}

void read_checkpointing(JsonReader& object, const ImportContext& context, ImportedJob& imported) {
  const bool partitions = object.boolean("partition_activations").value_or(false);
  const bool contiguous = object.boolean("contiguous_memory_optimization").value_or(false);
  const auto layers = object.whole("number_checkpoints", 1);
  const bool on_cpu = object.boolean("cpu_checkpointing").value_or(false);
  if (partitions || contiguous || layers || on_cpu) {
    const char* key = partitions   ? "partition_activations"
                      : contiguous ? "contiguous_memory_optimization"
                      : layers     ? "number_checkpoints"
                                   : "cpu_checkpointing";
    imported.put("layout.recompute", "full", object.place(key));
    imported.notes.push_back(fmt::format(
        "{}: assumes that the model checkpoints every layer; otherwise give --recompute none", object.place(key)));
  }
  if (partitions) put_partitioned_checkpoints(object.place("partition_activations"), context, imported);
  if (on_cpu) put_activation_offload(object.place("cpu_checkpointing"), imported);
}

std::optional<std::string> offload_device(JsonReader& zero, const char* key, ImportedJob& imported) {
  auto section = zero.object(key);
  if (!section) return std::nullopt;
  const auto device = section->text("device");
  section->choice("device", {"none", "cpu", "nvme"});
  judge_keys(*section, "deepspeed", imported);
  return device.value_or("none");
}

void read_buckets(JsonReader& zero, ImportedJob& imported) {
  constexpr double kBytesOfHalf = 2.0;  // DeepSpeed counts elements
  const auto reduce = zero.number("reduce_bucket_size");
  if (reduce && *reduce <= 0)
    zero.fail("reduce_bucket_size", fmt::format("{} is out of range", *reduce), "expected more than 0");
  if (reduce) put_bucket(*reduce * kBytesOfHalf, zero.place("reduce_bucket_size"), imported);
}

void read_zero(JsonReader& object, const ImportContext& context, ImportedJob& imported) {
  auto zero = object.object("zero_optimization");
  if (!zero) return;
  const auto stage = zero->whole("stage", 0);
  if (stage && *stage > kHighestStage)
    zero->fail("stage", fmt::format("{} is out of range", *stage), "valid: 0, 1, 2, 3");
  if (stage) imported.put("layout.zero", *stage, zero->place("stage"));
  const auto overlap = zero->boolean("overlap_comm");
  if (overlap) imported.put("training.overlap.gradients", *overlap, zero->place("overlap_comm"));
  const auto optimizer = offload_device(*zero, "offload_optimizer", imported);
  const auto weights = offload_device(*zero, "offload_param", imported);
  const bool on = (optimizer && *optimizer != "none") || (weights && *weights != "none");
  if (on)
    put_offload(optimizer, weights, zero->place(weights && *weights != "none" ? "offload_param" : "offload_optimizer"),
                imported);
  if (const auto old = zero->boolean("cpu_offload"); old && *old)
    put_offload("cpu", std::nullopt, zero->place("cpu_offload"), imported);
  read_buckets(*zero, imported);
  if (auto section = zero->object(kCheckpointing)) {
    read_checkpointing(*section, context, imported);
    judge_keys(*section, "deepspeed", imported);
  }
  if (zero->has("partition_activations") || zero->has("contiguous_memory_optimization"))
    read_checkpointing(*zero, context, imported);
  note_auto(*zero, imported);
  judge_keys(*zero, "deepspeed", imported);
}

ImportedJob read_deepspeed(const ForeignFile& file, const ImportContext& context) {
  ImportedJob imported;
  JsonReader object = JsonReader::foreign(file.values(), "", file.name());
  put_stack("deepspeed", "DeepSpeed", file.name(), imported);
  read_deepspeed_batch(object, context, imported);
  read_deepspeed_precision(object, context, imported);
  if (auto parallel = object.object("tensor_parallel")) {
    if (const auto tp = parallel->whole("autotp_size", 1))
      imported.put("layout.tp", *tp, parallel->place("autotp_size"));
    judge_keys(*parallel, "deepspeed", imported);
  }
  read_zero(object, context, imported);
  if (auto section = object.object(kCheckpointing)) {
    read_checkpointing(*section, context, imported);
    judge_keys(*section, "deepspeed", imported);
  }
  if (object.has("partition_activations") || object.has("contiguous_memory_optimization"))
    read_checkpointing(object, context, imported);
  if (auto optimizer = object.object("optimizer")) {
    put_optimizer(*optimizer, "type", imported);
    judge_keys(*optimizer, "deepspeed", imported);
  }
  if (const auto cp = object.whole("sequence_parallel_size", 1); cp && *cp > 1) {
    imported.put("layout.cp", *cp, object.place("sequence_parallel_size"));
    imported.put("layout.context_parallel", "ulysses", object.place("sequence_parallel_size"));
  }
  note_auto(object, imported);
  judge_keys(object, "deepspeed", imported);
  return imported;
}

bool is_deepspeed_config(const ForeignFile& file) {
  return file.has_any({"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu",
                       "gradient_accumulation_steps", "activation_checkpointing", "steps_per_print"});
}

constexpr int kShardedWeights = 3;

void require_deepspeed_layout(const Job& job, Expressible& expressible) {
  const Layout& layout = job.layout;
  expressible.require(schedule_base_name(layout) == "1f1b" || runs_one_microbatch(layout),
                      fmt::format("layout.schedule {}", layout.schedule), "--schedule 1f1b");
  expressible.require(layout.pp == 1, fmt::format("layout.pp {} (pipelines are defined in code)", layout.pp), "--pp 1");
  expressible.require(layout.ep == 1, fmt::format("layout.ep {} (expert placement is defined in code)", layout.ep),
                      "--ep 1");
  expressible.require(!layout.sequence_parallel || layout.tp == 1, "layout.sequence_parallel", "--sp=false");
  expressible.require(layout.cp == 1 || layout.context_parallel == ContextParallel::kUlysses,
                      fmt::format("layout.cp {} as a ring", layout.cp), "--layout.context_parallel ulysses");
  expressible.require(layout.recompute != Recompute::kSelective, "layout.recompute selective",
                      "--recompute none or full");
  expressible.require(layout.data_parallel == DataParallel::kDdp, "layout.data_parallel fsdp or hsdp", "--zero 3");
  expressible.require(layout.tp == 1 || layout.zero < kShardedWeights, "layout.tp with ZeRO 3", "--zero 2");
  expressible.require(!layout.offloads_activations() || layout.recompute == Recompute::kFull,
                      "offloaded activations without recomputation", "--recompute full");
  expressible.require(!layout.recompute_layers, "layout.recompute_layers", "");
  expressible.require(!layout.recompute_every, "layout.recompute_every", "");
  expressible.require(!layout.recompute_modules, "layout.recompute_modules", "");
  expressible.require(!layout.partition_checkpoints, "layout.partition_checkpoints",
                      "--layout.partition_checkpoints=false");
  expressible.require(job.training.precision != Precision::kFp8, "training.precision fp8", "--precision bf16");
  const Optimizer optimizer = job.training.optimizer;
  expressible.require(optimizer == Optimizer::kAdam || optimizer == Optimizer::kSgd || optimizer == Optimizer::kLion,
                      fmt::format("training.optimizer {}", name_of(optimizer)), "--training.optimizer adam");
}

nlohmann::ordered_json zero_section(const Layout& layout) {
  nlohmann::ordered_json zero = {{"stage", layout.zero}};
  if (layout.offloads_optimizer()) zero["offload_optimizer"] = {{"device", "cpu"}};
  constexpr std::int64_t kMebibyte = 1 << 20;
  constexpr int kBytesOfHalf = 2;  // DeepSpeed counts elements
  if (layout.bucket_mb) zero["reduce_bucket_size"] = *layout.bucket_mb * kMebibyte / kBytesOfHalf;
  return zero;
}

}  // namespace

const JobFormat& deepspeed_format() {
  static constexpr JobFormat kFormat = {
      .name = "DeepSpeed config", .detect = is_deepspeed_config, .read = read_deepspeed, .runs_deepspeed = true};
  return kFormat;
}

LaunchFile write_deepspeed(const Job& job) {
  const Layout& layout = job.layout;
  Expressible expressible("DeepSpeed's configuration");
  expressible.require_common(job);
  require_deepspeed_layout(job, expressible);
  expressible.enforce();
  nlohmann::ordered_json values = {{"train_batch_size", layout.global_batch_size},
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
  if (job.training.optimizer == Optimizer::kLion) values["optimizer"] = {{"type", "Lion"}};
  LaunchFile file;
  file.text = dumped(values, 2) + "\n";
  file.notes = {
      fmt::format("set the model and the sequence length in the training program; start it on {} nodes of {} "
                  "GPUs",
                  job.cluster.nodes, job.cluster.devices_per_node)};
  if (layout.recompute == Recompute::kFull)
    file.notes.emplace_back("the training program must checkpoint every layer (deepspeed.checkpointing)");
  return file;
}

}  // namespace flopcast
