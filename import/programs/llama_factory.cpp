// LLaMA-Factory's training YAML: its own arguments (llamafactory/hparams) and those of transformers' TrainingArguments.
#include <fmt/format.h>

#include <algorithm>

#include "base/text/error.hpp"
#include "import/programs/foreign_keys.hpp"
#include "import/programs/formats.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

namespace {

// Defaults as in llamafactory/hparams (finetuning_type, cutoff_len) and transformers' TrainingArguments (the others).
constexpr int kUsualLength = 2048;
constexpr int kUsualMicroBatch = 8;

void read_method(JsonReader& object, ImportedJob& imported) {
  const auto type = object.text("finetuning_type");
  if (!type) {
    imported.warnings.push_back(
        fmt::format("{} is absent: LLaMA-Factory trains lora then, which is not modelled; full fine-tuning is forecast",
                    object.place("finetuning_type")));
  }
  if (type && *type != "full") {
    object.fail("finetuning_type", fmt::format("\"{}\" trains a part of the weights, which is not modelled", *type),
                "valid: full");
  }
  const auto stage = object.text("stage");
  if (stage && *stage != "sft" && *stage != "pt") {
    object.fail("stage", fmt::format("\"{}\" is not modelled", *stage), "valid: pt, sft");
  }
  object.boolean("do_train");
}

// The catalogue's name for a repository of the Hub: Qwen/Qwen2.5-7B-Instruct is qwen2.5-7b. Empty when it has none.
std::string catalogue_name_of(const std::string& repository) {
  const std::size_t slash = repository.rfind('/');
  std::string name = lower_case(slash == std::string::npos ? repository : repository.substr(slash + 1));
  const auto drop_start = [&name](const std::string& start, const std::string& instead) {
    if (name.rfind(start, 0) == 0) name = instead + name.substr(start.size());
  };
  const auto drop_end = [&name](const std::string& end) {
    const bool ends = name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
    if (ends) name.resize(name.size() - end.size());
    return ends;
  };
  const std::vector<std::string> known = catalogue_names(CatalogueKind::kModels);
  const auto is_known = [&] { return std::find(known.begin(), known.end(), name) != known.end(); };
  if (is_known()) return name;
  drop_start("meta-", "");
  if (is_known()) return name;
  drop_start("llama-", "llama");
  while (!is_known() && (drop_end("-hf") || drop_end("-instruct") || drop_end("-base") || drop_end("-chat"))) {
  }
  return is_known() ? name : "";
}

// Lays the first of the files that has the format over the job; false when none has.
bool import_first(const std::vector<std::string>& paths, const JobFormat& format, const ImportContext& context,
                  ImportedJob& imported) {
  if (context.files == nullptr) return false;
  for (const std::string& path : paths) {
    const auto text = context.files->try_read(path);
    if (!text) continue;
    const ForeignFile file(*text, path);
    if (&format_of(file) != &format) continue;
    imported.merge(import_job(file, context));
    return true;
  }
  return false;
}

// A folder or a file is followed; the name of a Hub repository is only good when the catalogue has it.
void read_model_name(JsonReader& object, const std::string& file, const ImportContext& context, ImportedJob& imported) {
  const auto name = object.text("model_name_or_path");
  if (!name || context.given.count("model") > 0) return;
  const std::string place = object.place("model_name_or_path");
  const std::vector<std::string> paths = {*name + "/config.json", path_beside(file, *name + "/config.json"),
                                          path_beside(file, *name)};
  if (import_first(paths, hugging_face_format(), context, imported)) return;
  const std::string last = catalogue_name_of(*name);
  if (!last.empty()) {
    imported.put("model", last, place);
    imported.notes.push_back(fmt::format("{}: the catalogue's {}", place, last));
  } else {
    imported.warnings.push_back(
        fmt::format("{}: \"{}\" has no config.json here; give --model NAME or its config.json", place, *name));
  }
}

void read_deepspeed_file(JsonReader& object, const std::string& file, const ImportContext& context,
                         ImportedJob& imported) {
  const auto name = object.text("deepspeed");
  if (!name) return;
  if (import_first({*name, path_beside(file, *name)}, deepspeed_format(), context, imported)) return;
  imported.warnings.push_back(
      fmt::format("{}: \"{}\" cannot be read as a DeepSpeed config; give --zero N", object.place("deepspeed"), *name));
}

void read_llama_factory_batch(JsonReader& object, const ImportContext& context, ImportedJob& imported) {
  if (const auto micro = object.whole("per_device_train_batch_size", 1)) {
    imported.put("layout.micro_batch_size", *micro, object.place("per_device_train_batch_size"));
  } else if (!imported.has("layout.micro_batch_size") && context.given.count("layout.micro_batch_size") == 0) {
    imported.put("layout.micro_batch_size", kUsualMicroBatch, object.place("per_device_train_batch_size"));
    imported.notes.push_back(fmt::format("{} is absent: {}, the default of transformers; give --mbs N for another",
                                         object.place("per_device_train_batch_size"), kUsualMicroBatch));
  }
  const auto steps = object.whole("gradient_accumulation_steps", 1);
  if (context.given.count("layout.global_batch_size") == 0 && !imported.has("layout.global_batch_size")) {
    imported.put("layout.accumulation", steps.value_or(1), object.place("gradient_accumulation_steps"));
    if (!steps) imported.notes.push_back(fmt::format("{} is absent: 1", object.place("gradient_accumulation_steps")));
  }
}

void read_llama_factory_compute(JsonReader& object, const ImportContext& context, ImportedJob& imported) {
  for (const char* key : {"bf16", "pure_bf16", "fp16"}) {
    if (object.boolean(key).value_or(false)) {
      imported.put("training.precision", std::string(key) == "fp16" ? "fp16" : "bf16", object.place(key));
    }
  }
  if (!imported.has("training.precision") && context.given.count("training.precision") == 0) {
    imported.put("training.precision", "fp32", object.place("bf16"));
    imported.warnings.push_back(fmt::format(
        "{}: neither bf16 nor fp16 is on: fp32 is forecast; give --precision bf16 for another", object.place("bf16")));
  }
  const bool off = object.boolean("disable_gradient_checkpointing").value_or(false);
  const bool told = object.boolean("gradient_checkpointing").value_or(true);
  imported.put("layout.recompute", off || !told ? "none" : "full", object.place("disable_gradient_checkpointing"));
  if (!off && told)
    imported.notes.push_back("layout.recompute is full: LLaMA-Factory checkpoints every layer unless told not to");
  const auto attention = object.text("flash_attn");
  const std::vector<std::string> names = {"auto", "disabled", "sdpa", "fa2", "fa3"};
  if (attention && std::find(names.begin(), names.end(), *attention) == names.end()) {
    object.fail("flash_attn", fmt::format("unknown value \"{}\"", *attention), choices_help(*attention, names));
  }
  if (attention)
    imported.put("training.attention", *attention == "disabled" ? "unfused" : "flash", object.place("flash_attn"));
  put_optimizer(object, "optim", imported);
}

ImportedJob read_llama_factory(const ForeignFile& file, const ImportContext& context) {
  ImportedJob imported;
  const nlohmann::json values = yaml_of(file, context);
  JsonReader object = JsonReader::foreign(values, "", file.name());
  read_method(object, imported);
  const auto length = object.whole("cutoff_len", 1);
  ImportContext nested = context;
  nested.given.insert("training.sequence_length");
  put_stack(object.has("deepspeed") ? "deepspeed" : "pytorch-ddp", "LLaMA-Factory", file.name(), imported);
  read_model_name(object, file.name(), nested, imported);
  read_deepspeed_file(object, file.name(), nested, imported);
  read_llama_factory_batch(object, context, imported);
  read_llama_factory_compute(object, context, imported);
  imported.put("training.sequence_length", length.value_or(kUsualLength), object.place("cutoff_len"));
  if (!length && context.given.count("training.sequence_length") == 0) {
    imported.notes.push_back(fmt::format("{} is absent: {}, LLaMA-Factory's default; give --seq N for another",
                                         object.place("cutoff_len"), kUsualLength));
  }
  if (const auto packing = object.boolean("packing"); !packing || !*packing) {
    imported.notes.push_back("samples shorter than cutoff_len are forecast as padded to it");
  }
  note_auto(object, imported);
  note_unread(object, imported);
  return imported;
}

// Told apart from other YAML by its keys at the line starts, without parsing it.
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
