// LLaMA-Factory's training YAML: its own arguments (llamafactory/hparams) and those of transformers' TrainingArguments.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "import/programs/foreign_keys.hpp"
#include "import/programs/imported_job.hpp"

namespace flopcast {

namespace {

// Defaults as in llamafactory/hparams (finetuning_type, cutoff_len) and transformers' TrainingArguments (the others).
constexpr int kUsualLength = 2048;
constexpr int kUsualMicroBatch = 8;

// Bits per weight of an already quantised checkpoint, from its file name; 0 if the name does not say.
int bits_of_checkpoint(const std::string& name) {
  struct Word {
    const char* word;
    int bits;
  };
  static constexpr Word kWords[] = {{"aqlm", 2}, {"awq", 4}, {"gptq", 4}, {"bnb-4bit", 4}, {"int4", 4}, {"int8", 8}};
  const std::string lower = lower_case(name);
  const auto known = std::find_if(std::begin(kWords), std::end(kWords),
                                  [&lower](const Word& entry) { return lower.find(entry.word) != std::string::npos; });
  return known == std::end(kWords) ? 0 : known->bits;
}

// Defaults: rank 8, all linears, scale twice the rank (FinetuningArguments); double quantisation on (ModelArguments).
void read_lora(JsonReader& object, ImportedJob& imported) {
  constexpr int kUsualRank = 8;
  ForeignAdapter adapter;
  adapter.place = object.place("finetuning_type");
  adapter.rank = object.whole("lora_rank", 1).value_or(kUsualRank);
  adapter.alpha = object.amount("lora_alpha").value_or(2.0 * *adapter.rank);
  adapter.dropout = object.amount("lora_dropout");
  adapter.targets_place = object.place("lora_target");
  const nlohmann::json* targets = object.find("lora_target");
  adapter.targets = targets == nullptr ? nlohmann::json("all") : *targets;
  adapter.bits = object.whole("quantization_bit", 1).value_or(0);
  adapter.double_quant = object.boolean("double_quantization").value_or(true);
  const auto type = object.text("quantization_type");
  if (type && *type != "nf4" && adapter.bits == 4) {
    imported.warn_of("quantization_type", object.place("quantization_type"), "4 bits are modelled as nf4");
  }
  const auto method = object.text("quantization_method");
  const bool of_bits_and_bytes = !method || *method == "bnb" || *method == "bitsandbytes";
  if (!of_bits_and_bytes) {
    imported.warn_of("quantization_method", object.place("quantization_method"), "modelled as bitsandbytes");
  }
  const auto name = object.text("model_name_or_path");
  if (adapter.bits == 0 && name && bits_of_checkpoint(*name) > 0) {
    adapter.bits = bits_of_checkpoint(*name);
    adapter.double_quant = false;
    imported.notes.push_back(fmt::format("{}: the name says {} bits per weight; 4 bits are modelled as nf4",
                                         object.place("model_name_or_path"), adapter.bits));
  }
  const auto extra = object.text("additional_target");
  adapter.trains_tables =
      extra && (extra->find("embed") != std::string::npos || extra->find("head") != std::string::npos);
  put_adapter(adapter, imported);
}

void read_frozen_layers(JsonReader& object, ImportedJob& imported) {
  std::optional<int> layers;
  if (const nlohmann::json* told = object.find("freeze_trainable_layers"); told != nullptr) {
    if (!told->is_number_integer()) {
      object.fail("freeze_trainable_layers", fmt::format("{} is not a whole number", told->dump()), "such as 2, or -2");
    }
    layers = told->get<int>();
  }
  put_frozen_layers(layers, object.place("freeze_trainable_layers"), imported);
  const auto modules = object.text("freeze_trainable_modules");
  if (modules && *modules != "all") {
    imported.warn_of("freeze_trainable_modules", object.place("freeze_trainable_modules"),
                     "all weights of the layers are forecast as trained");
  }
}

// pref_loss sigmoid and its variants use a reference model, orpo and simpo do not (FinetuningArguments).
void read_stage(JsonReader& object, ImportedJob& imported) {
  const auto stage = object.text("stage");
  const auto loss = object.text("pref_loss");
  object.choice("pref_loss", {"sigmoid", "hinge", "ipo", "kto_pair", "orpo", "simpo"});
  if (!stage || *stage == "sft" || *stage == "pt") return;
  const bool alone = loss && (*loss == "orpo" || *loss == "simpo");
  if (*stage == "dpo") {
    imported.put("training.preference.method", alone ? *loss : "dpo", object.place(alone ? "pref_loss" : "stage"));
  } else if (*stage == "kto") {
    imported.put("training.preference.method", "kto", object.place("stage"));
  } else if (*stage == "rm") {
    imported.put("training.preference.method", "reward", object.place("stage"));
    imported.notes.push_back(
        fmt::format("{}: rm is forecast with a single score instead of the logits", object.place("stage")));
  } else {
    object.fail("stage", fmt::format("\"{}\" is not modelled", *stage), "valid: pt, sft, dpo, kto, rm");
  }
}

void read_method(JsonReader& object, ImportedJob& imported) {
  const auto type = object.text("finetuning_type");
  if (!type) {
    imported.notes.push_back(
        fmt::format("{} is absent: uses lora, LLaMA-Factory's default", object.place("finetuning_type")));
  }
  const std::string method = type.value_or("lora");
  if (method == "lora") {
    read_lora(object, imported);
  } else if (method == "freeze") {
    read_frozen_layers(object, imported);
  } else if (method != "full") {
    object.fail("finetuning_type", fmt::format("\"{}\" is not modelled", method), "valid: full, lora, freeze");
  }
  read_stage(object, imported);
  if (object.boolean("use_kt").value_or(false)) {
    imported.warn_of("use_kt", object.place("use_kt"), "experts computed on the host are forecast on the device");
  }
  const bool trains = object.boolean("do_train").value_or(false);
  for (const char* key : {"export_dir", "infer_backend", "do_predict", "do_eval"}) {
    if (trains || !object.has(key)) continue;
    object.fail(key, "the file exports, predicts or serves instead of training",
                "give the file for training, with do_train: true");
  }
}

// Folders and files are followed; the name of a Hub repository only works if the catalogue has it.
void read_model_name(JsonReader& object, const std::string& file, const ImportContext& context, ImportedJob& imported) {
  const auto name = object.text("model_name_or_path");
  if (!name || context.given.count("model") > 0) return;
  const std::string place = object.place("model_name_or_path");
  if (put_hub_model(*name, file, place, context, imported)) return;
  imported.warnings.push_back(
      fmt::format("{}: \"{}\" is neither in the catalogue nor a local file; {}", place, *name, hub_help(*name)));
}

void read_deepspeed_file(JsonReader& object, const std::string& file, const ImportContext& context,
                         ImportedJob& imported) {
  const auto name = object.text("deepspeed");
  if (!name) return;
  if (put_deepspeed_file(*name, file, context, imported)) return;
  imported.warnings.push_back(
      fmt::format("{}: \"{}\" cannot be read as a DeepSpeed config; give --zero N", object.place("deepspeed"), *name));
}

void read_llama_factory_batch(JsonReader& object, const ImportContext& context, ImportedJob& imported) {
  if (const auto micro = object.whole("per_device_train_batch_size", 1)) {
    imported.put("layout.micro_batch_size", *micro, object.place("per_device_train_batch_size"));
  } else if (!imported.has("layout.micro_batch_size") && context.given.count("layout.micro_batch_size") == 0) {
    imported.put("layout.micro_batch_size", kUsualMicroBatch, object.place("per_device_train_batch_size"));
    imported.notes.push_back(
        fmt::format("{} is absent: uses {}, the default of transformers; to change it, give --mbs N",
                    object.place("per_device_train_batch_size"), kUsualMicroBatch));
  }
  const auto steps = object.whole("gradient_accumulation_steps", 1);
  if (context.given.count("layout.global_batch_size") == 0 && !imported.has("layout.global_batch_size")) {
    imported.put("layout.accumulation", steps.value_or(1), object.place("gradient_accumulation_steps"));
    if (!steps)
      imported.notes.push_back(fmt::format("{} is absent: uses 1", object.place("gradient_accumulation_steps")));
  }
}

// Megatron's arguments, which LLaMA-Factory passes to mcore_adapter.
bool read_megatron_words(JsonReader& object, ImportedJob& imported) {
  static constexpr JobSize kAxes[] = {{"tensor_model_parallel_size", "layout.tp"},
                                      {"pipeline_model_parallel_size", "layout.pp"},
                                      {"virtual_pipeline_model_parallel_size", "layout.vpp"},
                                      {"expert_model_parallel_size", "layout.ep"},
                                      {"context_parallel_size", "layout.cp"}};
  bool any = take_sizes(object, kAxes, imported);
  const bool sequence = object.boolean("sequence_parallel").value_or(false);
  if (sequence && imported.whole("layout.tp") > 1)
    imported.put("layout.sequence_parallel", true, object.place("sequence_parallel"));
  if (object.boolean("use_distributed_optimizer").value_or(false)) {
    imported.put("layout.zero", 1, object.place("use_distributed_optimizer"));
    any = true;
  }
  const auto recompute = object.text("recompute_granularity");
  if (recompute && *recompute != "full" && *recompute != "selective" && *recompute != "none")
    object.fail("recompute_granularity", fmt::format("unknown value \"{}\"", *recompute),
                "valid: full, selective, none");
  if (recompute) imported.put("layout.recompute", *recompute, object.place("recompute_granularity"));
  return any || recompute;
}

// Other keys besides `optim` that change the optimizer, and the default of GaLore's rank (GaloreArguments).
void read_other_optimizers(JsonReader& object, ImportedJob& imported) {
  constexpr int kUsualRank = 16;
  for (const char* key : {"use_apollo", "use_badam", "use_adam_mini"}) {
    if (!object.boolean(key).value_or(false)) continue;
    object.fail(key, "uses optimizer states other than Adam's (not modelled)",
                "valid: false, with use_galore, use_muon, or optim adamw_torch or sgd");
  }
  if (object.boolean("use_muon").value_or(false)) {
    imported.put("training.optimizer", "muon", object.place("use_muon"));
  }
  const int rank = object.whole("galore_rank", 1).value_or(kUsualRank);
  if (!object.boolean("use_galore").value_or(false)) return;
  imported.put("training.optimizer", "galore", object.place("use_galore"));
  imported.put("training.optimizer_rank", rank, object.place("galore_rank"));
  const std::string inner = lower_case(object.text("optim").value_or(""));
  if (inner.find("8bit") != std::string::npos || inner.starts_with("adafactor")) {
    imported.warn_of("optim", object.place("optim"), "galore is forecast with full-precision Adam moments");
  }
}

void read_llama_factory_compute(JsonReader& object, const ImportContext& context, ImportedJob& imported) {
  for (const char* key : {"bf16", "pure_bf16", "fp16", "fp8"}) {
    const nlohmann::json* value = object.find(key);
    const bool on = value != nullptr && !value->is_string() && object.boolean(key).value_or(false);
    if (!on) continue;
    const std::string name = key;
    imported.put("training.precision", name == "pure_bf16" ? "bf16" : name, object.place(key));
  }
  if (!imported.has("training.precision") && context.given.count("training.precision") == 0) {
    imported.put("training.precision", "fp32", object.place("bf16"));
    imported.warnings.push_back(
        fmt::format("{}: neither bf16 nor fp16 is enabled: forecasts fp32; to change it, give --precision bf16",
                    object.place("bf16")));
  }
  const bool off = object.boolean("disable_gradient_checkpointing").value_or(false);
  const bool told = object.boolean("gradient_checkpointing").value_or(true);
  if (!imported.has("layout.recompute") || off)
    imported.put("layout.recompute", off || !told ? "none" : "full", object.place("disable_gradient_checkpointing"));
  if (!off && told)
    imported.notes.push_back("layout.recompute is full: LLaMA-Factory checkpoints every layer by default");
  const auto attention = object.text("flash_attn");
  object.choice("flash_attn", {"auto", "disabled", "sdpa", "fa2", "fa3"});
  if (attention)
    imported.put("training.attention", *attention == "disabled" ? "unfused" : "flash", object.place("flash_attn"));
  if (object.boolean("pure_bf16").value_or(false)) {
    imported.put("training.master_weights", false, object.place("pure_bf16"));
  }
  put_optimizer(object, "optim", imported);
  read_other_optimizers(object, imported);
}

// Scripts of TRL and transformers accept files with many of the same keys, but have other defaults.
void refuse_other_trainers(JsonReader& object, const std::string& file) {
  for (const char* key : {"finetuning_type", "cutoff_len", "stage", "template", "dataset"}) {
    if (object.has(key)) return;
  }
  for (const char* key : {"dataset_name", "dataset_mixer", "dataset_mixture", "max_seq_length", "use_peft"}) {
    if (!object.has(key)) continue;
    throw ConfigError({"", fmt::format("{} is for a script of TRL or transformers, which flopcast cannot read", file),
                       object.place(key),
                       "give the job as flags: --model NAME --mbs N --gbs N --seq N --precision bf16"});
  }
}

ImportedJob read_llama_factory(const ForeignFile& file, const ImportContext& context) {
  ImportedJob imported;
  const nlohmann::json values = parsed_values(file, context);
  JsonReader object = JsonReader::foreign(values, "", file.name());
  refuse_other_trainers(object, file.name());
  read_method(object, imported);
  const auto length = object.whole("cutoff_len", 1);
  ImportContext nested = context;
  nested.given.emplace("training.sequence_length", "");
  const bool by_megatron = read_megatron_words(object, imported);
  const bool sharded =
      object.has("fsdp") && object.find("fsdp")->is_string() && !object.find("fsdp")->get<std::string>().empty();
  put_stack(by_megatron               ? "megatron-core"
            : object.has("deepspeed") ? "deepspeed"
                                      : "pytorch-ddp",
            "LLaMA-Factory", file.name(), imported);
  if (sharded) imported.put("layout.data_parallel", "fsdp", object.place("fsdp"));
  read_model_name(object, file.name(), nested, imported);
  read_deepspeed_file(object, file.name(), nested, imported);
  read_llama_factory_batch(object, context, imported);
  read_llama_factory_compute(object, context, imported);
  imported.put("training.sequence_length", length.value_or(kUsualLength), object.place("cutoff_len"));
  if (!length && context.given.count("training.sequence_length") == 0) {
    imported.notes.push_back(fmt::format("{} is absent: uses {}, LLaMA-Factory's default; to change it, give --seq N",
                                         object.place("cutoff_len"), kUsualLength));
  }
  const bool packs = object.boolean("packing").value_or(false) || object.boolean("neat_packing").value_or(false);
  note_packing(packs, "cutoff_len", imported);
  note_auto(object, imported);
  judge_keys(object, "llama_factory", imported);
  return imported;
}

// Recognised among other YAML by keys at the start of lines, without parsing.
bool is_llama_factory_config(const ForeignFile& file) {
  if (file.syntax() != ForeignFile::Syntax::kYaml) return false;
  const std::string lines = "\n" + std::string(file.text());
  const std::vector<std::string> keys = {"model_name_or_path", "finetuning_type", "cutoff_len",
                                         "per_device_train_batch_size"};
  return std::any_of(keys.begin(), keys.end(),
                     [&lines](const std::string& key) { return lines.find("\n" + key + ":") != std::string::npos; });
}

}  // namespace

const JobFormat& llama_factory_format() {
  static constexpr JobFormat kFormat = {.name = "LLaMA-Factory config",
                                        .detect = is_llama_factory_config,
                                        .read = read_llama_factory,
                                        .runs_deepspeed = true};
  return kFormat;
}

}  // namespace flopcast
