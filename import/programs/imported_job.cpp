#include "import/programs/imported_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "import/programs/foreign_keys.hpp"
#include "model/job/user_spelling.hpp"

namespace flopcast {

namespace {

bool holds_a_long_flag(std::string_view text) {
  const std::size_t dashes = text.find("--");
  return dashes != std::string_view::npos && dashes + 2 < text.size() && text[dashes + 2] >= 'a' &&
         text[dashes + 2] <= 'z';
}

ForeignFile::Syntax syntax_of(std::string_view text, std::string_view file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return ForeignFile::Syntax::kJson;
  if (file.ends_with(".yaml") || file.ends_with(".yml")) return ForeignFile::Syntax::kYaml;
  if (file.ends_with(".toml")) return ForeignFile::Syntax::kToml;
  const bool is_script = file.ends_with(".sh") || text.substr(0, 2) == "#!";
  const bool looks_like_json = text[first] == '{' || text[first] == '[' || text.substr(first, 2) == "//" ||
                               text.substr(first, 2) == "/*" || file.ends_with(".json");
  return is_script || (!looks_like_json && holds_a_long_flag(text)) ? ForeignFile::Syntax::kShell
                                                                    : ForeignFile::Syntax::kJson;
}

// Answers of plan and simulate name their schema and hold a job: the best layout's, or the one in the question. The
// output of --show-config lists the job's keys one by one.
bool is_answer(const ForeignFile& file) {
  if (file.is_list() && lists_keys(file.values())) return true;
  if (!file.has_any({"job"}) || !file.has_any({"schema"})) return false;
  const nlohmann::json& schema = file.values().at("schema");
  return schema == "flopcast.plan/1" || schema == "flopcast.result/1";
}

bool is_job_file(const ForeignFile& file) {
  return file.has_any({"model", "cluster", "layout", "training", "failures"});
}

bool is_size_file(const ForeignFile& file) {
  return file.has_any({"data_parallel_size", "pipeline_parallel_size", "tensor_parallel_size"});
}

// {"data_parallel_size": 4, "pipeline_parallel_size": 2, "tensor_parallel_size": 4}: a layout only.
ImportedJob read_sizes(const ForeignFile& file, const ImportContext& /*context*/) {
  static constexpr JobSize kSizes[] = {{"data_parallel_size", "layout.dp"},
                                       {"pipeline_parallel_size", "layout.pp"},
                                       {"tensor_parallel_size", "layout.tp"},
                                       {"context_parallel_size", "layout.cp"},
                                       {"expert_parallel_size", "layout.ep"},
                                       {"micro_batch_size", "layout.micro_batch_size"},
                                       {"global_batch_size", "layout.global_batch_size"}};
  ImportedJob imported;
  JsonReader object = JsonReader::foreign(file.values(), "", file.name());
  std::vector<std::string> known;
  for (const JobSize& size : kSizes) known.emplace_back(size.key);
  take_sizes(object, kSizes, imported);
  for (const auto& item : file.values().items()) {
    if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
    object.fail(item.key(), "unknown key", choices_help(item.key(), known));
  }
  return imported;
}

ImportedJob read_answer(const ForeignFile& file, const ImportContext& /*context*/) {
  ImportedJob imported;
  imported.job = lists_keys(file.values()) ? job_of_keys(file.values()) : file.values().at("job");
  return imported;
}

// Finds an unquoted placeholder of a template: CONFIG_BATCH_SIZE, <batch>, {{batch}}.
std::string open_place(std::string_view text) {
  constexpr std::size_t kShortest = 4;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (quoted) continue;
    std::size_t end = at;
    while (end < text.size() && ((text[end] >= 'A' && text[end] <= 'Z') || text[end] == '_')) ++end;
    if (end - at >= kShortest) return std::string(text.substr(at, end - at));
    at = std::max(at, end);
  }
  return "";
}

// Refuses files that are not a job of any program.
ImportedJob read_job_file(const ForeignFile& file, const ImportContext& /*context*/) {
  const auto ends = [&file](std::string_view ending) { return file.name().ends_with(ending); };
  if (ends(".py")) {
    throw ConfigError({"", fmt::format("{} is Python, which flopcast cannot read", file.name()), file.name(),
                       "give the job as flags, such as --model llama3.1-405b --tp 8 --pp 16 --mbs 1 --gbs 512; " +
                           readable_formats()});
  }
  ImportedJob imported;
  try {
    imported.job = file.values();
  } catch (const ConfigError& error) {
    Diagnostic problem = error.diagnostic();
    const std::string place = open_place(file.text());
    const bool is_template = !place.empty() && file.text().find('{') != std::string_view::npos;
    if (problem.help.empty()) {
      problem.help =
          is_template ? fmt::format("the file is a template: fill in {} in a copy of it", place) : readable_formats();
    }
    throw ConfigError(problem);
  }
  const std::vector<std::string> sections = {"model", "cluster", "layout", "training", "failures"};
  if (!imported.job->is_object() || imported.job->empty()) return imported;
  // A vocabulary may contain a word equal to one of the sections.
  const bool counts = imported.job->size() >= sections.size() &&
                      std::all_of(imported.job->begin(), imported.job->end(),
                                  [](const nlohmann::json& value) { return value.is_number(); });
  for (const auto& item : imported.job->items()) {
    const bool known = std::find(sections.begin(), sections.end(), item.key()) != sections.end();
    if (!counts && (known || !nearest_choices(item.key(), sections).empty())) return imported;
  }
  throw ConfigError(
      {"",
       fmt::format("{} does not contain a job: none of its keys belongs to a program that flopcast reads", file.name()),
       file.name(), readable_formats()});
}

constexpr JobFormat kJobFile = {
    .name = "flopcast job file", .detect = is_job_file, .read = read_job_file, .is_job_file = true};
constexpr JobFormat kAnswer = {.name = "flopcast answer", .detect = is_answer, .read = read_answer};
constexpr JobFormat kSizes = {.name = "parallel sizes", .detect = is_size_file, .read = read_sizes};

}  // namespace

std::optional<std::string> Files::try_read(const std::string& path) const {
  try {
    return read(path);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

ForeignFile::ForeignFile(std::string_view text, std::string file)
    : text_(text), name_(std::move(file)), syntax_(syntax_of(text, name_)) {
  if (syntax_ != Syntax::kJson) return;
  try {
    values_ = parse_json(text_, name_);
  } catch (const ConfigError& error) {
    problem_ = error.diagnostic();
  }
}

bool ForeignFile::has_any(std::initializer_list<const char*> keys) const {
  return values_->is_object() &&
         std::any_of(keys.begin(), keys.end(), [this](const char* key) { return values_.contains(key); });
}

bool ForeignFile::is_list() const {
  return values_->is_array();
}

bool ForeignFile::is_object() const {
  return values_->is_object();
}

const nlohmann::json& ForeignFile::values() const {
  if (problem_) throw ConfigError(*problem_);
  return values_;
}

bool take_sizes(JsonReader& object, std::span<const JobSize> sizes, ImportedJob& imported) {
  bool any = false;
  for (const JobSize& size : sizes) {
    const auto number = object.whole(size.key, 1);
    if (!number) continue;
    imported.put(size.field, *number, object.place(size.key));
    any = true;
  }
  return any;
}

void ImportedJob::put(const std::string& field, nlohmann::json value, const std::string& place) {
  nlohmann::json* at = &*job;
  std::size_t begin = 0;
  for (std::size_t dot = field.find('.'); dot != std::string::npos; dot = field.find('.', begin)) {
    at = &(*at)[field.substr(begin, dot - begin)];
    begin = dot + 1;
  }
  (*at)[field.substr(begin)] = std::move(value);
  places[field] = place;
}

int ImportContext::whole(const std::string& field) const {
  const auto flag = given.find(field);
  constexpr std::size_t kMostDigits = 9;
  const bool is_number = flag != given.end() && !flag->second.empty() && flag->second.size() <= kMostDigits &&
                         flag->second.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::stoi(flag->second) : 0;
}

void KeyUse::add(const KeyUse& other) {
  read.insert(read.end(), other.read.begin(), other.read.end());
  no_effect.insert(no_effect.end(), other.no_effect.begin(), other.no_effect.end());
  not_modelled.insert(not_modelled.end(), other.not_modelled.begin(), other.not_modelled.end());
  unknown.insert(unknown.end(), other.unknown.begin(), other.unknown.end());
}

void ImportedJob::warn_of(const std::string& key, const std::string& place, const std::string& how) {
  keys.not_modelled.push_back(key);
  warnings.push_back(fmt::format("{}: not modelled: {}", place, how));
}

bool ImportedJob::has(const std::string& field) const {
  return places.count(field) > 0;
}

int ImportedJob::whole(const std::string& field) const {
  const std::size_t dot = field.find('.');
  const auto section = job->find(field.substr(0, dot));
  if (dot == std::string::npos || section == job->end() || !section->is_object()) return 0;
  const auto entry = section->find(field.substr(dot + 1));
  return entry != section->end() && entry->is_number_integer() ? entry->get<int>() : 0;
}

void ImportedJob::merge(const ImportedJob& other) {
  for (const auto& section : other.job->items()) {
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
  keys.add(other.keys);
}

const JobFormat& format_of(const ForeignFile& file) {
  // The first matching format wins.
  static const std::array<const JobFormat*, 11> formats = {&kAnswer,
                                                           &kJobFile,
                                                           &kSizes,
                                                           &megatron_yaml_format(),
                                                           &adapter_format(),
                                                           &recipe_format(),
                                                           &deepspeed_format(),
                                                           &hugging_face_format(),
                                                           &megatron_format(),
                                                           &llama_factory_format(),
                                                           &accelerate_format()};
  const auto match =
      std::find_if(formats.begin(), formats.end(), [&file](const JobFormat* format) { return format->detect(file); });
  return match == formats.end() ? kJobFile : **match;
}

std::string readable_formats() {
  return "flopcast reads job files, launch scripts of the Megatron family, Hugging Face config.json, DeepSpeed "
         "JSON, "
         "YAML of NeMo, Megatron-Bridge, Accelerate, LLaMA-Factory, GPT-NeoX, nanotron, axolotl, torchtune and TRL, "
         "PEFT's "
         "adapter_config.json, and torchtitan's TOML";
}

nlohmann::json parsed_values(const ForeignFile& file, const ImportContext& context) {
  const bool toml = file.syntax() == ForeignFile::Syntax::kToml;
  if (!toml && file.syntax() != ForeignFile::Syntax::kYaml) return file.values();
  if (context.files != nullptr && toml) return context.files->parse_toml(file.text(), file.name());
  if (context.files != nullptr) return context.files->parse_yaml(file.text(), file.name());
  throw ConfigError(
      {"", fmt::format("{} is {}, which this build cannot read", file.name(), toml ? "TOML" : "YAML"), file.name(),
       fmt::format("build with {}, or write the values as flags",
                   toml ? "toml++ (Debian: libtomlplusplus-dev)" : "yaml-cpp (Debian: libyaml-cpp-dev)")});
}

ImportedJob import_job(const ForeignFile& file, const ImportContext& context) {
  try {
    const JobFormat& format = format_of(file);
    ImportedJob imported = format.read(file, context);
    imported.format = &format;
    if (imported.keys.count() > 0) {
      imported.notes.insert(
          imported.notes.begin(),
          fmt::format("{}: {} keys: {} read, {} without effect, {} not modelled, {} unknown", file.name(),
                      imported.keys.count(), imported.keys.read.size(), imported.keys.no_effect.size(),
                      imported.keys.not_modelled.size(), imported.keys.unknown.size()));
    }
    for (auto* sentences : {&imported.notes, &imported.warnings}) {
      for (std::string& sentence : *sentences) sentence = printable(sentence);
    }
    for (auto& [field, place] : imported.places) place = printable(place);
    for (auto* words :
         {&imported.keys.read, &imported.keys.no_effect, &imported.keys.not_modelled, &imported.keys.unknown}) {
      for (std::string& word : *words) word = printable(word);
    }
    return imported;
  } catch (const ConfigError& error) {
    const Diagnostic& raw = error.diagnostic();
    throw ConfigError({printable(raw.field), printable(raw.problem), printable(raw.where), printable(raw.help)});
  }
}

std::vector<std::string> refused_combinations(const ImportedJob& imported, const nlohmann::json& job) {
  const bool is_deepspeed = imported.format != nullptr && imported.format->runs_deepspeed;
  if (!is_deepspeed || !job.contains("layout") || !job.at("layout").is_object()) return {};
  const auto whole = [&job](const char* key) {
    const auto entry = job.at("layout").find(key);
    return entry != job.at("layout").end() && entry->is_number_integer() ? entry->get<std::int64_t>() : 0;
  };
  constexpr int kShardedGradients = 2;
  if (whole("zero") < kShardedGradients || whole("pp") <= 1) return {};
  return {
      fmt::format("DeepSpeed refuses ZeRO {} together with pipeline parallelism ({} stages): its pipeline engine "
                  "only supports ZeRO 0 and 1",
                  whole("zero"), whole("pp"))};
}

bool is_path(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.ends_with(".json") || name.ends_with(".txt");
}

std::string sibling_path(const std::string& file, const std::string& path) {
  const std::size_t slash = file.rfind('/');
  if (slash == std::string::npos || path.empty() || path.front() == '/') return path;
  return file.substr(0, slash + 1) + path;
}

}  // namespace flopcast
