// YAML configurations whose keys are the fields of Megatron Core: NeMo 1 (Hydra), NeMo 2 (NeMo-Run's export) and
// Megatron-Bridge. Each key is mapped to Megatron-LM's argument for it, and the arguments are read like those of a
// launch script; the table import/keys/megatron_yaml.json lists names that differ and keys that are not arguments.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/error.hpp"
#include "import/programs/imported_job.hpp"
#include "import/programs/megatron_reader.hpp"
#include "model/config/document.hpp"

namespace flopcast {

namespace {

const nlohmann::json& core_rules() {
  static const nlohmann::json rules = [] {
    for (const EmbeddedFile& file : embedded_keys()) {
      if (file.path == "megatron_yaml.json") return parse_json(file.text, std::string(file.path)).at("configuration");
    }
    return nlohmann::json();
  }();
  return rules;
}

std::string last_step(const std::string& path) {
  return path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
}

std::string all_but_last(const std::string& path) {
  return path.rfind('/') == std::string::npos ? "" : path.substr(0, path.rfind('/'));
}

std::string unset_mark(const std::string& name) {
  return kUnset + name + kUnset;
}

class CoreConfiguration {
 public:
  CoreConfiguration(const nlohmann::json& values, const std::string& file, const ImportContext& context)
      : table_(KeyTable::of("megatron_yaml")),
        arguments_(KeyTable::of("megatron")),
        file_(file),
        context_(context),
        judge_(table_, out_) {
    collect(values, "");
  }

  ImportedJob read();

 private:
  void collect(const nlohmann::json& values, const std::string& prefix);
  std::string place(const std::string& path) const { return fmt::format("{}:/{}", file_, path); }
  [[noreturn]] void fail(const std::string& path, const std::string& problem, const std::string& help) const {
    throw ConfigError({path, problem, place(path), help});
  }

  std::string text_of(const std::string& path, const nlohmann::json& value, int depth) const;
  std::string expanded(const std::string& path, std::string text, int depth) const;
  std::string reference(const std::string& path, const std::string& inside, int depth) const;

  const nlohmann::json* rule(const char* group, const std::string& path) const;
  bool is_core(const std::string& path) const;
  void read_leaf(const std::string& path, const nlohmann::json& value);
  bool read_words(const std::string& path, const nlohmann::json& value);
  bool read_renamed(const std::string& path, const nlohmann::json& value);
  bool read_argument(const std::string& path, const nlohmann::json& value);
  void read_falcon();
  void read_class(const std::string& path, const std::string& name);
  void remove_argument(std::string field);
  void give(const std::string& argument, std::vector<std::string> values, const std::string& path);
  std::vector<std::string> values_of(const std::string& path, const nlohmann::json& value) const;

  const KeyTable& table_;
  const KeyTable& arguments_;
  const std::string& file_;
  const ImportContext& context_;
  ImportedJob out_;
  KeyJudge judge_;
  std::map<std::string, nlohmann::json> leaves_;
  std::vector<GivenArgument> given_;
  std::string program_;
};

// {"_call_": false, "_target_": "torch.bfloat16"} counts as a name.
void CoreConfiguration::collect(const nlohmann::json& values, const std::string& prefix) {
  for (const auto& item : values.items()) {
    const std::string path = prefix.empty() ? item.key() : fmt::format("{}/{}", prefix, item.key());
    const KeyTable::Entry* entry = table_.find(path);
    const bool closed = entry != nullptr && entry->kind == KeyTable::Kind::kNoEffect;
    if (!item.value().is_object() || closed) {
      leaves_[path] = item.value();
    } else if (item.value().contains("_call_") && item.value().contains("_target_")) {
      leaves_[path] = item.value().at("_target_");
    } else {
      collect(item.value(), path);
    }
  }
}

// Resolves ${.hidden_size}, ${model.encoder_seq_length}, ${multiply:4, 1024}, ${oc.env:NAME,8} and ${NAME}.
std::string CoreConfiguration::reference(const std::string& path, const std::string& inside, int depth) const {
  const std::size_t colon = inside.find(':');
  if (colon != std::string::npos) {
    const std::string function = inside.substr(0, colon);
    const std::size_t comma = inside.find(',', colon);
    const auto trimmed = [](const std::string& word) {
      const std::size_t begin = word.find_first_not_of(" \t'\"");
      return begin == std::string::npos ? "" : word.substr(begin, word.find_last_not_of(" \t'\"") - begin + 1);
    };
    const std::string first = trimmed(inside.substr(colon + 1, comma - colon - 1));
    const std::string second = comma == std::string::npos ? "" : trimmed(inside.substr(comma + 1));
    if (function == "oc.env") {
      const auto variable = context_.environment.find(first);
      if (variable != context_.environment.end()) return variable->second;
      return comma == std::string::npos ? unset_mark(first) : second;
    }
    constexpr std::size_t kMostDigits = 9;
    const auto is_whole = [](const std::string& word) {
      return !word.empty() && word.size() <= kMostDigits && word.find_first_not_of("0123456789") == std::string::npos;
    };
    if (!is_whole(first) || !is_whole(second)) return unset_mark(inside);
    const std::int64_t a = std::stoll(first);
    const std::int64_t b = std::stoll(second);
    if (function == "multiply") return std::to_string(a * b);
    if (function == "sum" || function == "add") return std::to_string(a + b);
    if ((function == "divide" || function == "int_div") && b != 0) return std::to_string(a / b);
    return unset_mark(inside);
  }
  std::string target = inside;
  std::string base;
  if (!target.empty() && target.front() == '.') {
    base = path;
    while (!target.empty() && target.front() == '.') {
      base = all_but_last(base);
      target.erase(0, 1);
    }
  }
  std::replace(target.begin(), target.end(), '.', '/');
  for (const std::string& found : {base.empty() ? target : fmt::format("{}/{}", base, target),
                                   target.starts_with("training/") ? target.substr(9) : target}) {
    const auto leaf = leaves_.find(found);
    if (leaf != leaves_.end() && !leaf->second.is_null()) return text_of(found, leaf->second, depth + 1);
  }
  const auto variable = context_.environment.find(inside);
  return variable != context_.environment.end() ? variable->second : unset_mark(inside);
}

std::string CoreConfiguration::expanded(const std::string& path, std::string text, int depth) const {
  constexpr int kDeepest = 16;
  if (depth > kDeepest) fail(path, "contains a reference to itself", "give the value");
  if (text == "???") return unset_mark(path);
  // Innermost reference first: the one that starts with the last "${".
  for (std::size_t begin = text.rfind("${"); begin != std::string::npos; begin = text.rfind("${")) {
    const std::size_t end = text.find('}', begin);
    if (end == std::string::npos) break;
    text.replace(begin, end - begin + 1, reference(path, text.substr(begin + 2, end - begin - 2), depth));
  }
  return text;
}

std::string CoreConfiguration::text_of(const std::string& path, const nlohmann::json& value, int depth) const {
  return value.is_string() ? expanded(path, value.get<std::string>(), depth) : dumped(value);
}

std::vector<std::string> CoreConfiguration::values_of(const std::string& path, const nlohmann::json& value) const {
  if (!value.is_array()) return {text_of(path, value, 0)};
  // Lists of layers are written as in Python, words individually.
  const bool words =
      std::all_of(value.begin(), value.end(), [](const nlohmann::json& each) { return each.is_string(); });
  if (!words) return {dumped(value)};
  std::vector<std::string> all;
  for (const nlohmann::json& each : value) all.push_back(each.get<std::string>());
  return all;
}

// The rule for a path, or for a field in any section with Core's fields.
const nlohmann::json* CoreConfiguration::rule(const char* group, const std::string& path) const {
  const nlohmann::json& rules = core_rules().at(group);
  auto match = rules.find(path);
  if (match == rules.end() && is_core(path)) match = rules.find(last_step(path));
  return match == rules.end() ? nullptr : &*match;
}

bool CoreConfiguration::is_core(const std::string& path) const {
  const nlohmann::json& sections = core_rules().at("sections");
  return std::find(sections.begin(), sections.end(), all_but_last(path)) != sections.end();
}

// Removes an argument with the field's name.
void CoreConfiguration::remove_argument(std::string field) {
  std::replace(field.begin(), field.end(), '_', '-');
  std::erase_if(given_, [&](const GivenArgument& each) { return each.name == field; });
}

void CoreConfiguration::give(const std::string& argument, std::vector<std::string> values, const std::string& path) {
  given_.push_back({argument, std::move(values), path, place(path)});
}

// "activation": {"swiglu": ["swiglu"], "gelu": []}: the arguments that a word implies, "name" or "name value".
bool CoreConfiguration::read_words(const std::string& path, const nlohmann::json& value) {
  const nlohmann::json* words = rule("words", path);
  if (words == nullptr) return false;
  const std::string word = lower_case(text_of(path, value, 0));
  const auto means = words->find(word);
  if (means == words->end()) {
    std::vector<std::string> names;
    for (const auto& item : words->items()) names.push_back(item.key());
    fail(path, fmt::format("{} is not modelled", shown_value(value)), choices_help(word, names));
  }
  if (means->is_string()) {
    fail(path, fmt::format("{} requires {} (not modelled)", shown_value(value), means->get<std::string>()),
         "flopcast forecasts transformers with attention and dense or expert layers, with all weights trained");
  }
  for (const nlohmann::json& each : *means) {
    const std::string argument = each.get<std::string>();
    const std::size_t blank = argument.find(' ');
    give(argument.substr(0, blank),
         blank == std::string::npos ? std::vector<std::string>{} : std::vector{argument.substr(blank + 1)}, path);
  }
  if (means->empty()) out_.keys.read.push_back(path);
  return true;
}

// A field with another argument name: one argument, several of which the first takes the value, or a switch for false.
bool CoreConfiguration::read_renamed(const std::string& path, const nlohmann::json& value) {
  if (const nlohmann::json* name = rule("negated", path)) {
    if (!value.is_boolean())
      fail(path, fmt::format("{} must be a boolean", shown_value(value)), "expected true or false");
    if (!value.get<bool>()) give(name->get<std::string>(), {}, path);
    if (value.get<bool>()) out_.keys.read.push_back(path);
    return true;
  }
  const nlohmann::json* names = rule("arguments", path);
  if (names == nullptr) return false;
  if (value == false) {
    out_.keys.read.push_back(path);
    return true;
  }
  const bool several = names->is_array();
  for (std::size_t at = 0; at < (several ? names->size() : 1); ++at) {
    const std::string name = several ? names->at(at).get<std::string>() : names->get<std::string>();
    give(name, at > 0 || value == true ? std::vector<std::string>{} : values_of(path, value), path);
  }
  return true;
}

// A field whose name is also Megatron-LM's argument; a switch that is off is omitted.
bool CoreConfiguration::read_argument(const std::string& path, const nlohmann::json& value) {
  if (!is_core(path)) return false;
  std::string name = last_step(path);
  std::replace(name.begin(), name.end(), '_', '-');
  const KeyTable::Entry* entry = arguments_.find(arguments_.name_of(name));
  if (entry == nullptr) return false;
  if (value == false) {
    (entry->kind == KeyTable::Kind::kRead ? out_.keys.read : out_.keys.no_effect).push_back(path);
    return true;
  }
  give(name, value == true ? std::vector<std::string>{} : values_of(path, value), path);
  return true;
}

// nemo.collections.llm.gpt.model.llama.Llama3Config8B implies the sizes that the file omits.
void CoreConfiguration::read_class(const std::string& path, const std::string& name) {
  const std::string section = all_but_last(path);
  if (section != "model" && section != "model/config") return;
  program_ = name;
  const std::string word = lower_case(name.substr(name.rfind('.') == std::string::npos ? 0 : name.rfind('.') + 1));
  const nlohmann::json& models = core_rules().at("models");
  const auto model = models.find(word);
  const bool has_sizes = leaves_.count(section + "/num_layers") > 0 && !leaves_.at(section + "/num_layers").is_null();
  if (model == models.end() || has_sizes) return;
  out_.put("model", model->get<std::string>(), place(path));
  out_.notes.push_back(fmt::format("{}: uses {} from the catalogue", place(path), model->get<std::string>()));
}

void CoreConfiguration::read_leaf(const std::string& path, const nlohmann::json& value) {
  const std::string field = last_step(path);
  if (field == "_target_" && value.is_string()) read_class(path, value.get<std::string>());
  if (field.starts_with('_')) return;
  const nlohmann::json* unset = rule("unset_at", path);
  if (value.is_null() || (unset != nullptr && value == *unset)) {
    out_.keys.no_effect.push_back(path);
    return;
  }
  const bool known = table_.find(path) != nullptr || (is_core(path) && table_.find(field) != nullptr);
  if (read_words(path, value) || read_renamed(path, value) || (!known && read_argument(path, value))) return;
  const bool off = value == false && known;
  if (off && table_.find(table_.find(path) != nullptr ? path : field)->harmless.empty()) {
    out_.keys.no_effect.push_back(path);
    return;
  }
  const bool by_path = table_.find(path) != nullptr || !is_core(path);
  judge_.judge(by_path ? path : field, value.is_string() ? text_of(path, value, 0) : dumped(value), path, place(path));
}

ImportedJob CoreConfiguration::read() {
  const bool bridge = leaves_.count("train/global_batch_size") + leaves_.count("train/micro_batch_size") +
                          leaves_.count("train/train_iters") >
                      0;
  put_stack("nemo", bridge ? "Megatron-Bridge" : "NeMo", file_, out_);
  // These two sections override the model's and the data-parallel fields.
  const auto decides = [](const std::string& path) {
    return path.starts_with("mixed_precision") || path.starts_with("comm_overlap/");
  };
  for (const auto& [path, value] : leaves_) {
    if (!decides(path)) read_leaf(path, value);
  }
  for (const auto& [path, value] : leaves_) {
    if (!decides(path)) continue;
    if (value == false) remove_argument(last_step(path));
    read_leaf(path, value);
  }
  const auto padded = leaves_.find("model/should_pad_vocab");
  if (padded != leaves_.end() && padded->second == false) {
    for (GivenArgument& argument : given_) {
      if (argument.name == "vocab-size") argument.name = "padded-vocab-size";
    }
  }
  for (const auto& item : core_rules().at("programs").items()) {
    if (leaves_.count(item.key()) > 0) program_ = item.value().get<std::string>();
  }
  read_falcon();
  judge_.finish(file_);
  // A Python recipe holds the values that such a file omits.
  if (bridge && leaves_.count("model/num_layers") == 0) {
    const auto told = [this](const std::string& name) {
      return std::any_of(given_.begin(), given_.end(), [&](const GivenArgument& each) { return each.name == name; });
    };
    std::vector<std::string> added;
    if (!told("bf16") && !told("fp16")) added.emplace_back("bf16");
    const bool ddp = std::any_of(leaves_.begin(), leaves_.end(),
                                 [](const auto& leaf) { return leaf.first == "ddp/use_distributed_optimizer"; });
    for (const char* name : {"use-distributed-optimizer", "overlap-grad-reduce", "overlap-param-gather"}) {
      if (!ddp && !told(name)) added.emplace_back(name);
    }
    for (const std::string& name : added) given_.push_back({name, {}, "", ""});
    out_.warnings.push_back(fmt::format(
        "{}: the recipe that it overrides was not found: forecasts {}, as in Megatron-Bridge's recipes", file_,
        added.empty() ? "Megatron-LM's defaults for missing values" : fmt::format("{}", fmt::join(added, ", "))));
  }
  if (leaves_.count("defaults") > 0)
    out_.notes.push_back(fmt::format("{}: the contents of the files that it names are unknown", place("defaults")));
  return MegatronReader(given_, program_, file_, context_, std::move(out_)).read();
}

// Falcon's layers are specific to NeMo: attention and MLP in parallel, after one norm or a norm each.
void CoreConfiguration::read_falcon() {
  const auto is = [this](const std::string& path, const nlohmann::json& value) {
    const auto leaf = leaves_.find(path);
    return leaf != leaves_.end() && leaf->second == value;
  };
  const std::string attention = "model/mcore_customization_config/parallel_attention";
  if (!is("model/name", "megatron_falcon_gpt") || !is(attention, true)) return;
  const bool two_norms = is("model/mcore_customization_config/new_decoder_architecture", true);
  out_.put("model.block", two_norms ? "parallel" : "parallel_one_norm", place(attention));
}

// Recognised by lines, without parsing: a section, and an axis inside it.
bool is_core_configuration(const ForeignFile& file) {
  if (file.syntax() != ForeignFile::Syntax::kYaml) return false;
  const std::string text = "\n" + std::string(file.text());
  const auto section = [&text](const std::string& name) {
    return text.find("\n" + name + ":") != std::string::npos || text.find("\"" + name + "\":") != std::string::npos;
  };
  const bool has_model = section("model");
  const bool trains = section("trainer") || section("train");
  const auto inside = [&text](const char* key) {
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
      const std::size_t line = text.rfind('\n', at);
      const bool begins = at > line + 1 && text.find_first_not_of(" \"", line + 1) == at;
      const std::size_t end = text.find_first_not_of('"', at + std::string_view(key).size());
      if (begins && end != std::string::npos && text[end] == ':') return true;
    }
    return false;
  };
  const bool has_fields = inside("tensor_model_parallel_size") || inside("global_batch_size") ||
                          inside("encoder_seq_length") || inside("pipeline_model_parallel_size");
  return has_fields && (has_model || trains) && (trains || text.find("megatron.bridge") != std::string::npos);
}

ImportedJob read_core_configuration(const ForeignFile& file, const ImportContext& context) {
  return CoreConfiguration(parsed_values(file, context), file.name(), context).read();
}

}  // namespace

const JobFormat& megatron_yaml_format() {
  static constexpr JobFormat kFormat = {
      .name = "NeMo or Megatron-Bridge YAML", .detect = is_core_configuration, .read = read_core_configuration};
  return kFormat;
}

}  // namespace flopcast
