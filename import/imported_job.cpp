#include "import/imported_job.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <utility>

#include "import/foreign_object.hpp"
#include "import/formats.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

bool ends_in(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_yaml(std::string_view file) {
  return ends_in(file, ".yaml") || ends_in(file, ".yml");
}

bool has_any(const nlohmann::json& object, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(), [&object](const char* key) { return object.contains(key); });
}

// What plan and simulate print names its schema and holds the job that it answers.
bool is_answer(const nlohmann::json& values) {
  if (!values.is_object() || !values.contains("job") || !values.contains("schema")) return false;
  const nlohmann::json& schema = values.at("schema");
  return schema.is_string() && (schema == "flopcast.plan/1" || schema == "flopcast.result/1");
}

JobFormat format_of_json(const nlohmann::json& values) {
  if (is_answer(values)) return JobFormat::kAnswer;
  if (!values.is_object() || has_any(values, {"model", "cluster", "layout", "training"})) return JobFormat::kJobFile;
  if (has_any(values, {"data_parallel_size", "pipeline_parallel_size", "tensor_parallel_size"}))
    return JobFormat::kSizes;
  if (has_any(values, {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu",
                       "gradient_accumulation_steps", "activation_checkpointing", "steps_per_print"})) {
    return JobFormat::kDeepSpeed;
  }
  if (has_any(values, {"model_type", "architectures", "num_hidden_layers", "hidden_size", "n_layer", "n_embd"})) {
    return JobFormat::kHuggingFace;
  }
  return JobFormat::kJobFile;
}

// YAML is told apart by its keys at the line starts, without parsing it.
JobFormat format_of_yaml(std::string_view text) {
  const auto has_key = [text](std::string_view key) {
    const std::string line = "\n" + std::string(key) + ":";
    return ("\n" + std::string(text)).find(line) != std::string::npos;
  };
  for (const char* key : {"model_name_or_path", "finetuning_type", "cutoff_len", "per_device_train_batch_size"}) {
    if (has_key(key)) return JobFormat::kLlamaFactory;
  }
  return JobFormat::kAccelerate;
}

bool holds_a_long_flag(std::string_view text) {
  const std::size_t dashes = text.find("--");
  return dashes != std::string_view::npos && dashes + 2 < text.size() && text[dashes + 2] >= 'a' &&
         text[dashes + 2] <= 'z';
}

nlohmann::json yaml_of(std::string_view text, const std::string& file, const ImportContext& context) {
  if (context.parse_yaml) return context.parse_yaml(text, file);
  throw ConfigError({"", fmt::format("{} is YAML, which this build cannot read", file), file,
                     "build with yaml-cpp (Debian: libyaml-cpp-dev), or write the values as flags"});
}

// Texts of a file reach the terminal in messages; what would steer it is shown as \x1b.
std::string printable(const std::string& text) {
  constexpr unsigned char kBlank = 0x20;
  constexpr unsigned char kDelete = 0x7f;
  std::string shown;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < kBlank || byte == kDelete) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += character;
    }
  }
  return shown;
}

}  // namespace

std::string_view name_of(JobFormat format) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "flopcast job file", "Hugging Face config.json", "Megatron-LM arguments", "DeepSpeed config",
      "parallel sizes",    "Accelerate config",        "LLaMA-Factory config",  "flopcast answer"};
  return kNames[static_cast<std::size_t>(format)];
}

void ImportedJob::put(const std::string& field, nlohmann::json value, const std::string& place) {
  const std::size_t dot = field.find('.');
  if (dot == std::string::npos) {
    job[field] = std::move(value);
  } else {
    job[field.substr(0, dot)][field.substr(dot + 1)] = std::move(value);
  }
  places[field] = place;
}

bool ImportedJob::has(const std::string& field) const {
  return places.count(field) > 0;
}

int ImportedJob::whole(const std::string& field) const {
  const std::size_t dot = field.find('.');
  const auto section = job.find(field.substr(0, dot));
  if (dot == std::string::npos || section == job.end() || !section->is_object()) return 0;
  const auto entry = section->find(field.substr(dot + 1));
  return entry != section->end() && entry->is_number_integer() ? entry->get<int>() : 0;
}

void ImportedJob::merge(const ImportedJob& other) {
  for (const auto& section : other.job.items()) {
    nlohmann::json& mine = job[section.key()];
    if (!section.value().is_object() || !mine.is_object()) {
      mine = section.value();
      continue;
    }
    for (const auto& item : section.value().items()) mine[item.key()] = item.value();
  }
  for (const auto& [field, place] : other.places) places[field] = place;
  notes.insert(notes.end(), other.notes.begin(), other.notes.end());
  warnings.insert(warnings.end(), other.warnings.begin(), other.warnings.end());
}

JobFormat detect_format(std::string_view text, std::string_view file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return JobFormat::kJobFile;
  if (is_yaml(file)) return format_of_yaml(text);
  const bool is_script = ends_in(file, ".sh") || text.substr(0, 2) == "#!";
  const bool looks_like_json = text[first] == '{' || text[first] == '[' || text.substr(first, 2) == "//" ||
                               text.substr(first, 2) == "/*" || ends_in(file, ".json");
  if (is_script || (!looks_like_json && holds_a_long_flag(text))) return JobFormat::kMegatron;
  try {
    return format_of_json(parse_json(text, file));
  } catch (const ConfigError&) {
    return JobFormat::kJobFile;
  }
}

namespace {

ImportedJob import_raw(std::string_view text, const std::string& file, const ImportContext& context) {
  const JobFormat format = detect_format(text, file);
  ImportedJob imported;
  switch (format) {
    case JobFormat::kJobFile:
      imported.job = parse_json(text, file);
      break;
    case JobFormat::kAnswer:
      imported.job = parse_json(text, file).at("job");
      break;
    case JobFormat::kHuggingFace:
      imported = read_hugging_face(parse_json(text, file), file, context);
      break;
    case JobFormat::kMegatron:
      imported = read_megatron(text, file, context);
      break;
    case JobFormat::kDeepSpeed:
      imported = read_deepspeed(parse_json(text, file), file, context);
      break;
    case JobFormat::kSizes:
      imported = read_sizes(parse_json(text, file), file);
      break;
    case JobFormat::kAccelerate:
      imported = read_accelerate(yaml_of(text, file, context), file, context);
      break;
    case JobFormat::kLlamaFactory:
      imported = read_llama_factory(yaml_of(text, file, context), file, context);
      break;
  }
  imported.format = format;
  return imported;
}

}  // namespace

ImportedJob import_job(std::string_view text, const std::string& file, const ImportContext& context) {
  try {
    ImportedJob imported = import_raw(text, file, context);
    for (auto* sentences : {&imported.notes, &imported.warnings}) {
      for (std::string& sentence : *sentences) sentence = printable(sentence);
    }
    for (auto& [field, place] : imported.places) place = printable(place);
    return imported;
  } catch (const ConfigError& error) {
    const Diagnostic& raw = error.diagnostic();
    throw ConfigError({printable(raw.field), printable(raw.problem), printable(raw.where), printable(raw.help)});
  }
}

std::vector<std::string> refused_combinations(const ImportedJob& imported, const nlohmann::json& job) {
  const bool is_deepspeed = imported.format == JobFormat::kDeepSpeed || imported.format == JobFormat::kAccelerate ||
                            imported.format == JobFormat::kLlamaFactory;
  if (!is_deepspeed || !job.contains("layout") || !job.at("layout").is_object()) return {};
  const auto whole = [&job](const char* key) {
    const auto entry = job.at("layout").find(key);
    return entry != job.at("layout").end() && entry->is_number_integer() ? entry->get<std::int64_t>() : 0;
  };
  constexpr int kShardedGradients = 2;
  if (whole("zero") < kShardedGradients || whole("pp") <= 1) return {};
  return {
      fmt::format("DeepSpeed refuses ZeRO {} together with pipeline parallelism ({} stages): its pipeline engine "
                  "takes ZeRO 0 and 1 only",
                  whole("zero"), whole("pp"))};
}

bool is_path(std::string_view name) {
  return name.find('/') != std::string_view::npos || ends_in(name, ".json") || ends_in(name, ".txt");
}

std::string path_beside(const std::string& file, const std::string& path) {
  const std::size_t slash = file.rfind('/');
  if (slash == std::string::npos || path.empty() || path.front() == '/') return path;
  return file.substr(0, slash + 1) + path;
}

}  // namespace flopcast

// {"data_parallel_size": 4, "pipeline_parallel_size": 2, "tensor_parallel_size": 4}: a layout and nothing else.

namespace flopcast {

ImportedJob read_sizes(const nlohmann::json& values, const std::string& file) {
  struct Size {
    const char* key;
    const char* field;
  };
  static constexpr Size kSizes[] = {{"data_parallel_size", "layout.dp"},
                                    {"pipeline_parallel_size", "layout.pp"},
                                    {"tensor_parallel_size", "layout.tp"},
                                    {"context_parallel_size", "layout.cp"},
                                    {"expert_parallel_size", "layout.ep"},
                                    {"micro_batch_size", "layout.micro_batch_size"},
                                    {"global_batch_size", "layout.global_batch_size"}};
  ImportedJob imported;
  ForeignObject object(values, "", file);
  std::vector<std::string> known;
  for (const Size& size : kSizes) {
    known.emplace_back(size.key);
    if (const auto number = object.whole(size.key, 1)) imported.put(size.field, *number, object.place(size.key));
  }
  for (const auto& item : values.items()) {
    if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
    object.fail(item.key(), "unknown key", choices_help(item.key(), known));
  }
  return imported;
}

}  // namespace flopcast
