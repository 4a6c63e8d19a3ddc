// Hugging Face Accelerate's YAML: keys as in accelerate/commands/config/config_args.py and the FSDP plugin.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "import/programs/foreign_keys.hpp"
#include "import/programs/imported_job.hpp"
#include "import/programs/launch.hpp"

namespace flopcast {

namespace {

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

void read_machines(JsonReader& object, ImportedJob& imported) {
  const auto machines = object.whole("num_machines", 1);
  const auto processes = object.whole("num_processes", 1);
  const int nodes = machines.value_or(1);
  if (machines) imported.put("cluster.nodes", nodes, object.place("num_machines"));
  if (!processes) return;
  if (*processes % nodes != 0) {
    object.fail("num_processes", fmt::format("{} must be a multiple of num_machines {}", *processes, nodes),
                "it counts the processes of all machines");
  }
  imported.put("cluster.devices_per_node", *processes / nodes, object.place("num_processes"));
}

void read_accelerate_precision(JsonReader& object, ImportedJob& imported) {
  const nlohmann::json* value = object.find("mixed_precision");
  if (value == nullptr) return;
  // YAML 1.1 parses no as false.
  const std::string name = value->is_string() ? upper(value->get<std::string>()) : value->dump();
  const std::vector<std::string> names = {"no", "fp16", "bf16", "fp8"};
  if (name == "NO" || name == "false") {
    imported.put("training.precision", "fp32", object.place("mixed_precision"));
  } else if (name == "FP16" || name == "BF16" || name == "FP8") {
    imported.put("training.precision",
                 name == "FP16"   ? "fp16"
                 : name == "BF16" ? "bf16"
                                  : "fp8",
                 object.place("mixed_precision"));
  } else {
    object.fail("mixed_precision", fmt::format("unknown value {}", shown_value(*value)), choices_help("", names));
  }
}

void read_strategy(JsonReader& fsdp, ImportedJob& imported) {
  static const std::vector<std::string> strategies = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                                      "HYBRID_SHARD_ZERO2"};
  // FSDP version 2 takes a boolean under the new key; version 1 files write a strategy under either key.
  const std::string key = fsdp.has("fsdp_sharding_strategy") ? "fsdp_sharding_strategy" : "fsdp_reshard_after_forward";
  const nlohmann::json* value = fsdp.find(key);
  fsdp.find("fsdp_reshard_after_forward");
  const bool is_second_version = fsdp.whole("fsdp_version", 1).value_or(1) > 1;
  const std::string said = value != nullptr && value->is_string() ? upper(value->get<std::string>()) : "";
  const bool is_boolean = value != nullptr && (value->is_boolean() || said == "TRUE" || said == "FALSE");
  if (value == nullptr || (is_boolean && key == "fsdp_reshard_after_forward")) {
    const bool reshards = fsdp.boolean("fsdp_reshard_after_forward").value_or(true);
    imported.put("layout.data_parallel", "fsdp", fsdp.place(is_second_version ? "fsdp_version" : key));
    if (!reshards) imported.put("layout.reshard_after_forward", false, fsdp.place(key));
    return;
  }
  // Older files number the strategies from 1.
  std::size_t index = strategies.size();
  if (value->is_number_integer() && *value >= 1 && *value <= 5) index = value->get<std::size_t>() - 1;
  if (value->is_string()) {
    index = static_cast<std::size_t>(std::find(strategies.begin(), strategies.end(), upper(value->get<std::string>())) -
                                     strategies.begin());
  }
  const std::string place = fsdp.place(key);
  if (index >= strategies.size()) {
    fsdp.fail(key, fmt::format("unknown value {}", shown_value(*value)), choices_help("", strategies));
  }
  constexpr std::array<const char*, 5> kForms = {"fsdp", "fsdp", "ddp", "hsdp", "hsdp"};
  const bool keeps_weights = strategies[index] == "SHARD_GRAD_OP" || strategies[index] == "HYBRID_SHARD_ZERO2";
  imported.put("layout.data_parallel", kForms[index], place);
  if (keeps_weights) imported.put("layout.reshard_after_forward", false, place);
}

void read_fsdp(JsonReader& object, ImportedJob& imported) {
  auto fsdp = object.object("fsdp_config");
  if (!fsdp) return;
  read_strategy(*fsdp, imported);
  if (fsdp->boolean("fsdp_offload_params").value_or(false))
    put_offload("cpu", "cpu", fsdp->place("fsdp_offload_params"), imported);
  if (fsdp->boolean("fsdp_activation_checkpointing").value_or(false)) {
    imported.put("layout.recompute", "full", fsdp->place("fsdp_activation_checkpointing"));
  }
  judge_keys(*fsdp, "accelerate", imported);
}

void read_deepspeed_section(JsonReader& object, const std::string& file, const ImportContext& context,
                            ImportedJob& imported) {
  auto section = object.object("deepspeed_config");
  if (!section) return;
  const auto stage = section->whole("zero_stage", 0);
  if (stage && *stage > 3) section->fail("zero_stage", fmt::format("{} is out of range", *stage), "valid: 0, 1, 2, 3");
  if (stage) imported.put("layout.zero", *stage, section->place("zero_stage"));
  if (const auto steps = section->whole("gradient_accumulation_steps", 1)) {
    imported.put("layout.accumulation", *steps, section->place("gradient_accumulation_steps"));
  }
  const auto optimizer = section->text("offload_optimizer_device");
  put_offload(optimizer, section->text("offload_param_device"), section->place("offload_optimizer_device"), imported);
  const auto named = section->text("deepspeed_config_file");
  if (named && !put_deepspeed_file(*named, file, context, imported)) {
    imported.warnings.push_back(
        fmt::format("{}: \"{}\" cannot be read as a DeepSpeed config; convert both files together",
                    section->place("deepspeed_config_file"), *named));
  }
  note_auto(*section, imported);
  judge_keys(*section, "accelerate", imported);
}

// The ranks of these axes are not part of data parallelism, although num_processes counts them.
void read_parallelism(JsonReader& object, ImportedJob& imported) {
  if (!object.has("parallelism_config")) return;
  auto axes = object.object("parallelism_config");
  const auto size = [&](const char* key) { return axes->whole(key, 1).value_or(1); };
  const int tp = size("parallelism_config_tp_size");
  const int cp = size("parallelism_config_cp_size");
  const int sp = size("parallelism_config_sp_size");
  const int copies = size("parallelism_config_dp_replicate_size");
  const int shards = size("parallelism_config_dp_shard_size");
  if (tp > 1) imported.put("layout.tp", tp, axes->place("parallelism_config_tp_size"));
  if (cp > 1 && sp > 1)
    axes->fail("parallelism_config_sp_size", "is given together with cp_size", "keep one of the two");
  if (cp > 1) imported.put("layout.cp", cp, axes->place("parallelism_config_cp_size"));
  if (sp > 1) {
    imported.put("layout.cp", sp, axes->place("parallelism_config_sp_size"));
    imported.put("layout.context_parallel", "ulysses", axes->place("parallelism_config_sp_size"));
  }
  if (copies > 1 && shards > 1) {
    imported.put("layout.data_parallel", "hsdp", axes->place("parallelism_config_dp_replicate_size"));
    imported.put("layout.shards", shards, axes->place("parallelism_config_dp_shard_size"));
  } else if (shards > 1 && !imported.has("layout.zero")) {
    imported.put("layout.data_parallel", "fsdp", axes->place("parallelism_config_dp_shard_size"));
  }
  judge_keys(*axes, "accelerate", imported);
}

ImportedJob read_accelerate(const ForeignFile& file, const ImportContext& context) {
  ImportedJob imported;
  const nlohmann::json values = parsed_values(file, context);
  JsonReader object = JsonReader::foreign(values, "", file.name());
  // YAML parses a bare NO as false.
  const nlohmann::json* written = object.find("distributed_type");
  const auto type =
      written != nullptr && *written == false ? std::optional<std::string>("NO") : object.text("distributed_type");
  if (!type && !object.has("fsdp_config") && !object.has("num_processes")) {
    throw ConfigError({"", fmt::format("{} is not a configuration that flopcast knows", file.name()), file.name(),
                       readable_formats()});
  }
  const std::vector<std::string> types = {"FSDP", "MULTI_GPU", "DEEPSPEED", "NO"};
  if (type && std::find(types.begin(), types.end(), upper(*type)) == types.end()) {
    object.fail("distributed_type", fmt::format("\"{}\" is not modelled", *type), choices_help(*type, types));
  }
  // Files may contain empty sections for other types.
  const std::string form = type ? upper(*type) : "";
  const bool sharded = form == "FSDP" || (form.empty() && object.has("fsdp_config"));
  const bool deepspeed = form == "DEEPSPEED" || (form.empty() && object.has("deepspeed_config"));
  put_stack(deepspeed ? "deepspeed" : "pytorch-ddp", "Accelerate", object.place("distributed_type"), imported);
  if (form == "NO") {
    object.whole("num_machines", 1);
    const auto processes = object.whole("num_processes", 1);
    imported.put("cluster.nodes", 1, object.place("distributed_type"));
    imported.put("cluster.devices_per_node", 1, object.place("distributed_type"));
    if (processes.value_or(1) > 1) {
      imported.notes.push_back(fmt::format("{}: NO starts one process, so num_processes {} is ignored",
                                           object.place("distributed_type"), *processes));
    }
  } else {
    read_machines(object, imported);
  }
  read_accelerate_precision(object, imported);
  if (sharded && object.has("fsdp_config")) read_fsdp(object, imported);
  if (sharded && !imported.has("layout.data_parallel"))
    imported.put("layout.data_parallel", "fsdp", object.place("distributed_type"));
  if (deepspeed) read_deepspeed_section(object, file.name(), context, imported);
  for (const char* unused : {"fsdp_config", "deepspeed_config"}) object.find(unused);
  read_parallelism(object, imported);
  const bool batch_given = context.given.count("layout.global_batch_size") > 0;
  if (const auto steps = object.whole("gradient_accumulation_steps", 1); steps && !batch_given) {
    imported.put("layout.accumulation", *steps, object.place("gradient_accumulation_steps"));
  }
  if (batch_given && imported.has("layout.accumulation")) {
    imported.job["layout"].erase("accumulation");
    imported.places.erase("layout.accumulation");
  }
  note_auto(object, imported);
  judge_keys(object, "accelerate", imported);
  return imported;
}

bool is_yaml(const ForeignFile& file) {
  return file.syntax() == ForeignFile::Syntax::kYaml;
}

bool is_fsdp(const Layout& layout) {
  return layout.data_parallel == DataParallel::kFsdp || layout.data_parallel == DataParallel::kHsdp;
}

void require_accelerate_layout(const Job& job, Expressible& expressible) {
  const Layout& layout = job.layout;
  expressible.require(schedule_base_name(layout) == "1f1b" || runs_one_microbatch(layout),
                      fmt::format("layout.schedule {}", layout.schedule), "--schedule 1f1b");
  for (const Axis axis : {Axis::kTensor, Axis::kPipeline, Axis::kContext, Axis::kExpert}) {
    expressible.require(layout[axis] == 1, fmt::format("layout.{} {}", name_of(axis), layout[axis]),
                        fmt::format("--{} 1", name_of(axis)));
  }
  const bool recomputes = layout.recompute == Recompute::kFull && is_fsdp(layout);
  expressible.require(
      layout.recompute == Recompute::kNone || recomputes,
      fmt::format("layout.recompute {}{}", name_of(layout.recompute), is_fsdp(layout) ? "" : " without FSDP"),
      is_fsdp(layout) ? "--recompute none or full" : "--recompute none or --layout.data_parallel fsdp");
  expressible.require(layout.data_parallel != DataParallel::kHsdp || layout.shards == job.cluster.devices_per_node,
                      fmt::format("layout.shards {} (a node's GPUs share one copy)", layout.shards),
                      fmt::format("--layout.shards {}", job.cluster.devices_per_node));
  const bool offloads = layout.offload == Offload::kOptimizer && layout.zero > 0;
  expressible.require(layout.offload == Offload::kNone || offloads, "layout.offload other than the optimizer's of ZeRO",
                      "--layout.offload none");
  expressible.require(!layout.recompute_layers, "layout.recompute_layers", "");
  expressible.require(!layout.recompute_every, "layout.recompute_every", "");
  expressible.require(!layout.recompute_modules, "layout.recompute_modules", "");
  expressible.require(!layout.partition_checkpoints, "layout.partition_checkpoints",
                      "--layout.partition_checkpoints=false");
  expressible.require(!layout.bucket_mb, "layout.bucket_mb", "");
  expressible.require(job.training.optimizer == Optimizer::kAdam,
                      fmt::format("training.optimizer {}", name_of(job.training.optimizer)),
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

// Tried after the other YAML formats, since it refuses any file with unknown keys.
const JobFormat& accelerate_format() {
  static constexpr JobFormat kFormat = {
      .name = "Accelerate config", .detect = is_yaml, .read = read_accelerate, .runs_deepspeed = true};
  return kFormat;
}

LaunchFile write_accelerate(const Job& job) {
  const Layout& layout = job.layout;
  Expressible expressible("Accelerate's configuration");
  expressible.require_common(job);
  require_accelerate_layout(job, expressible);
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
      fmt::format("set the model, the sequence length and the micro-batch of {} in the training program "
                  "(--per_device_train_batch_size {})",
                  layout.micro_batch_size, layout.micro_batch_size)};
  return file;
}

}  // namespace flopcast
