#include "import/programs/foreign_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/text/error.hpp"
#include "import/programs/imported_job.hpp"
#include "import/shell/shell.hpp"
#include "model/config/document.hpp"
#include "model/job/user_spelling.hpp"

namespace flopcast {

namespace {

std::vector<std::string> words_in(const nlohmann::json& lines) {
  std::vector<std::string> words;
  for (const nlohmann::json& line : lines) {
    std::istringstream stream(line.get<std::string>());
    for (std::string word; stream >> word;) words.push_back(word);
  }
  return words;
}

}  // namespace

// "key=a|b" in a table: the values a and b change nothing.
KeyTable::KeyTable(std::string_view text, const std::string& path) {
  const nlohmann::json table = parse_json(text, path);
  const nlohmann::json sources = table.value("sources", nlohmann::json::object());
  const auto add = [&](const nlohmann::json& group, Kind kind) {
    const std::string why = group.value(kind == Kind::kNotModelled ? "how" : "why", "");
    const std::string source = group.value("source", "");
    for (const std::string& word : words_in(group.at("keys"))) {
      const std::size_t equals = word.find('=');
      Entry entry{kind, why, {}, sources.value(source, sources.empty() ? "" : sources.begin()->get<std::string>())};
      std::istringstream values(equals == std::string::npos ? "" : word.substr(equals + 1));
      for (std::string value; std::getline(values, value, '|');) entry.harmless.push_back(value);
      entries_.emplace(word.substr(0, equals), std::move(entry));
    }
  };
  add({{"keys", table.value("read", nlohmann::json::array())}}, Kind::kRead);
  const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json aliases = table.value("aliases", none);
  const nlohmann::json programs = table.value("programs", none);
  for (const auto& alias : aliases.items()) aliases_[alias.key()] = alias.value().get<std::string>();
  for (const auto& group : programs.items()) {
    const bool has_reasons = group.value().is_object();
    for (const auto& words : group.value().items()) {
      if (!has_reasons) {
        programs_[group.key()].emplace_back(words.value().get<std::string>(), group.key());
        continue;
      }
      for (const auto& word : words.value()) programs_[group.key()].emplace_back(word.get<std::string>(), words.key());
    }
  }
  const std::pair<const char*, Kind> groups[] = {
      {"refused", Kind::kRefused}, {"not_modelled", Kind::kNotModelled}, {"no_effect", Kind::kNoEffect}};
  for (const auto& [name, kind] : groups) {
    for (const nlohmann::json& group : table.value(name, nlohmann::json::array())) add(group, kind);
  }
}

const std::string& KeyTable::name_of(const std::string& key) const {
  const auto alias = aliases_.find(key);
  return alias == aliases_.end() ? key : alias->second;
}

std::string KeyTable::program_reason(const std::string& program, const std::string& group) const {
  const std::string lower = lower_case(program);
  const auto words = programs_.find(group);
  if (words == programs_.end()) return "";
  for (const auto& [word, reason] : words->second) {
    if (lower.find(word) != std::string::npos) return reason;
  }
  return "";
}

const KeyTable& KeyTable::of(std::string_view name) {
  static const auto tables = [] {
    std::map<std::string, KeyTable, std::less<>> all;
    for (const EmbeddedFile& file : embedded_keys()) {
      const std::string path(file.path);
      all.emplace(path.substr(0, path.find('.')), KeyTable(file.text, path));
    }
    return all;
  }();
  const auto table = tables.find(name);
  FLOPCAST_CHECK(table != tables.end());
  return table->second;
}

const KeyTable::Entry* KeyTable::find(const std::string& key) const {
  const auto match = entries_.find(key);
  if (match != entries_.end()) return &match->second;
  for (std::size_t length = key.size(); length > 0; --length) {
    const auto family = entries_.find(key.substr(0, length) + "*");
    if (family != entries_.end()) return &family->second;
  }
  return nullptr;
}

std::string KeyTable::nearest(const std::string& key) const {
  constexpr std::size_t kLongestSlip = 2;
  constexpr std::size_t kSameStart = 2;
  std::vector<std::string> near;
  for (const auto& [word, entry] : entries_) {
    const std::size_t difference = std::max(word.size(), key.size()) - std::min(word.size(), key.size());
    if (difference <= kLongestSlip && word.substr(0, kSameStart) == key.substr(0, kSameStart)) near.push_back(word);
  }
  near = nearest_choices(key, near);
  return near.empty() ? "" : near.front();
}

void KeyJudge::judge(const std::string& key, const std::string& value, const std::string& shown,
                     const std::string& place) {
  const KeyTable::Entry* entry = table_.find(key);
  if (entry == nullptr) {
    const std::string near = table_.nearest(key);
    imported_.keys.unknown.push_back(shown);
    imported_.warnings.push_back(
        fmt::format("{}: unknown key, ignored{}", place, near.empty() ? "" : fmt::format("; did you mean {}?", near)));
    return;
  }
  const bool off = value == "false" || value == "False" || value == "null" || value == "None" || value == "auto";
  const bool harmless =
      off || std::find(entry->harmless.begin(), entry->harmless.end(), value) != entry->harmless.end();
  switch (entry->kind) {
    case KeyTable::Kind::kRead:
      imported_.keys.read.push_back(shown);
      return;
    case KeyTable::Kind::kNoEffect:
      imported_.keys.no_effect.push_back(shown);
      no_effect_.push_back(shown);
      return;
    case KeyTable::Kind::kNotModelled:
      if (harmless) {
        imported_.keys.no_effect.push_back(shown);
        return;
      }
      imported_.keys.not_modelled.push_back(shown);
      places_[entry->why].push_back(place);
      return;
    case KeyTable::Kind::kRefused:
      if (harmless) {
        imported_.keys.no_effect.push_back(shown);
        return;
      }
      throw ConfigError(
          {shown,
           fmt::format("requires {}, which {} not modelled", entry->why,
                       entry->why.starts_with("layers") ? "are" : "is"),
           place,
           "flopcast forecasts transformers with attention and dense or expert layers; see: flopcast catalog models"});
  }
}

void KeyJudge::finish(const std::string& file) {
  for (const auto& [how, places] : places_) {
    imported_.warnings.push_back(fmt::format("{}: not modelled: {}", fmt::join(places, ", "), how));
  }
  if (no_effect_.empty()) return;
  imported_.notes.push_back(fmt::format("{}: no effect on the forecast: {}", file, fmt::join(no_effect_, ", ")));
}

void judge_keys(const JsonReader& object, const std::string& table, ImportedJob& imported) {
  KeyJudge judge(KeyTable::of(table), imported);
  const std::vector<std::string> unread = object.unread();
  const std::string prefix = object.pointer().empty() ? "" : object.pointer().substr(1) + "/";
  for (const auto& item : object.values().items()) {
    const std::string shown = prefix + item.key();
    if (std::find(unread.begin(), unread.end(), item.key()) != unread.end()) {
      judge.judge(item.key(), item.value().is_string() ? item.value().get<std::string>() : dumped(item.value()), shown,
                  object.place(item.key()));
    } else {
      const auto& told = imported.keys.not_modelled;
      const bool warned = std::find(told.begin(), told.end(), shown) != told.end();
      if (!warned) imported.keys.read.push_back(shown);
    }
  }
  judge.finish(object.place());
}

void note_auto(const JsonReader& object, ImportedJob& imported) {
  std::vector<std::string> keys;
  for (const auto& item : object.values().items()) {
    if (item.value() == "auto") keys.push_back(item.key());
  }
  if (keys.empty()) return;
  imported.notes.push_back(
      fmt::format("{}: \"auto\" is treated as not set: {}", object.place(), fmt::join(keys, ", ")));
}

void put_stack(const std::string& stack, const std::string& program, const std::string& place, ImportedJob& imported) {
  imported.put("training.stack", stack, place);
  imported.notes.push_back(fmt::format("training.stack is {} for {}; to change it, give --stack NAME", stack, program));
}

void put_offload(const std::optional<std::string>& optimizer, const std::optional<std::string>& weights,
                 const std::string& place, ImportedJob& imported) {
  const auto is_on = [](const std::optional<std::string>& device) { return device && *device != "none"; };
  if (is_on(weights)) {
    imported.warnings.push_back(
        fmt::format("{}: weights in host memory are not modelled: the device keeps them", place));
  }
  if (is_on(optimizer)) {
    const bool activations = imported.has("layout.offload") && imported.job["layout"]["offload"] != "optimizer";
    imported.put("layout.offload", activations ? "all" : "optimizer", place);
  }
  if ((optimizer && *optimizer == "nvme") || (weights && *weights == "nvme")) {
    imported.warnings.push_back(fmt::format("{}: nvme is modelled as host memory", place));
  }
}

void put_activation_offload(const std::string& place, ImportedJob& imported) {
  const bool optimizer = imported.has("layout.offload") && imported.job["layout"]["offload"] != "activations";
  imported.put("layout.offload", optimizer ? "all" : "activations", place);
}

void put_bucket(double bytes, const std::string& place, ImportedJob& imported) {
  constexpr double kMebibyte = 1 << 20;
  constexpr double kLargest = 1e6;
  imported.put("layout.bucket_mb", static_cast<int>(std::min(kLargest, std::max(1.0, std::round(bytes / kMebibyte)))),
               place);
}

void put_optimizer(JsonReader& object, const std::string& key, ImportedJob& imported) {
  const auto name = object.text(key);
  if (!name) return;
  const std::string lower = lower_case(*name);
  const auto starts_with = [&lower](const char* start) { return lower.rfind(start, 0) == 0; };
  const bool compressed = starts_with("onebit") || starts_with("zeroone");
  // bitsandbytes names such as adamw_bnb_8bit and paged_adamw_8bit; "paged" moves states to the host when memory runs
  // out.
  const auto has = [&lower](const char* part) { return lower.find(part) != std::string::npos; };
  if (starts_with("paged_")) imported.put("training.paged_optimizer", true, object.place(key));
  if (starts_with("sgd")) {
    imported.put("training.optimizer", "sgd", object.place(key));
  } else if (starts_with("galore_adam")) {
    if (has("8bit")) imported.warn_of(key, object.place(key), "galore is forecast with full-precision Adam moments");
    imported.put("training.optimizer", "galore", object.place(key));
  } else if (lower == "muon") {
    imported.put("training.optimizer", "muon", object.place(key));
  } else if (has("adam") && has("8bit")) {
    imported.put("training.optimizer", "adam8bit", object.place(key));
  } else if (starts_with("adafactor")) {
    imported.put("training.optimizer", "adafactor", object.place(key));
  } else if (starts_with("lion") || starts_with("paged_lion")) {
    if (has("8bit")) {
      imported.warnings.push_back(
          fmt::format("{}: \"{}\" is forecast with a full-precision moment", object.place(key), *name));
    }
    imported.put("training.optimizer", "lion", object.place(key));
  } else if (starts_with("paged_adamw")) {
    imported.put("training.optimizer", "adam", object.place(key));
  } else if (!compressed && (starts_with("adam") || starts_with("fusedadam") || starts_with("deepspeedcpuadam") ||
                             starts_with("fused_adam") || starts_with("lamb"))) {
    if (has("4bit")) {
      imported.warnings.push_back(
          fmt::format("{}: \"{}\" is forecast with full-precision Adam states", object.place(key), *name));
    }
    imported.put("training.optimizer", "adam", object.place(key));
  } else {
    object.fail(key, fmt::format("\"{}\" is not modelled", *name),
                "valid: Adam, AdamW, their 8-bit and paged forms, Lamb, Lion, Adafactor, Muon, GaLore, SGD");
  }
}

void note_packing(bool packed, const std::string& length, ImportedJob& imported) {
  imported.notes.push_back(
      packed ? fmt::format("samples are packed to {}; give --sequence-lengths FILE for the share left empty", length)
             : fmt::format("samples are assumed to be padded to {}; give --sequence-lengths FILE for the share wasted",
                           length));
}

void put_experts(const ForeignExperts& experts, const std::string& place, ImportedJob& imported) {
  if (experts.count == 0) return;
  nlohmann::json values = {{"count", experts.count}, {"top_k", experts.top_k}};
  if (experts.ffn) values["ffn"] = *experts.ffn;
  if (experts.shared > 0) values["shared"] = experts.shared;
  if (experts.shared > 0 && experts.shared_ffn) values["shared_ffn"] = *experts.shared_ffn;
  if (experts.first_dense > 0) values["first_dense_layers"] = experts.first_dense;
  if (experts.every != 1) values["every"] = experts.every;
  if (experts.groups > 1) values.update({{"groups", experts.groups}, {"group_top_k", experts.group_top_k}});
  imported.put("model.experts", values, place);
}

namespace {

// The catalogue's name for a repository of the Hub: Qwen/Qwen2.5-7B-Instruct is qwen2.5-7b. Empty if there is none.
std::string catalogue_name_of(const std::string& repository) {
  const std::string name = typed_entry(CatalogueKind::kModels, repository);
  return catalogue_values(CatalogueKind::kModels, name).is_null() ? "" : name;
}

}  // namespace

bool put_hub_model(const std::string& name, const std::string& file, const std::string& place,
                   const ImportContext& context, ImportedJob& imported) {
  for (const std::string& path :
       {name + "/config.json", sibling_path(file, name + "/config.json"), sibling_path(file, name)}) {
    if (context.files == nullptr || context.files->kind_of(path) != Files::Kind::kFile) continue;
    const std::string text = context.files->read(path);
    const ForeignFile inside(text, path);
    if (!format_of(inside).is_model) continue;
    imported.merge(import_job(inside, context));
    return true;
  }
  const std::string known = catalogue_name_of(name);
  if (known.empty()) return false;
  imported.put("model", known, place);
  imported.notes.push_back(fmt::format("{}: uses {} from the catalogue", place, known));
  return true;
}

bool put_deepspeed_file(const std::string& name, const std::string& file, const ImportContext& context,
                        ImportedJob& imported) {
  if (context.files == nullptr) return false;
  constexpr int kMostFolders = 5;
  std::vector<std::string> paths = {name};
  std::string above = name;
  for (int folder = 0; folder < kMostFolders; ++folder) {
    paths.push_back(sibling_path(file, above));
    above.insert(0, "../");
  }
  for (const std::string& path : paths) {
    const auto text = context.files->try_read(path);
    if (!text) continue;
    const ForeignFile found(*text, path);
    if (&format_of(found) != &deepspeed_format()) continue;
    imported.merge(import_job(found, context));
    return true;
  }
  return false;
}

std::string hub_help(const std::string& name) {
  const bool is_repository =
      std::count(name.begin(), name.end(), '/') == 1 && name.front() != '/' && name.front() != '.';
  if (!is_repository) return "give --model with a name from the catalogue or the path of a config.json";
  return fmt::format(
      "give --model with a name from the catalogue, or download the config.json: hf download {} config.json "
      "--local-dir "
      "model; then give --model model/config.json",
      name);
}

std::string without_open_values(const std::string& text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != kUnset) {
      plain += text[at];
      continue;
    }
    at = std::min(text.find(kUnset, at + 1), text.size() - 1);
    const bool in_text = !plain.empty() && plain.back() == '"';
    plain += in_text ? "auto" : "null";
  }
  return plain;
}

std::optional<std::vector<int>> layers_of_pattern(const std::string& text) {
  constexpr std::size_t kMostLayers = 100'000;
  std::vector<int> layers;
  std::size_t at = 0;
  const auto skip = [&](std::string_view characters) {
    while (at < text.size() && characters.find(text[at]) != std::string_view::npos) ++at;
  };
  const auto number = [&]() -> std::optional<int> {
    const std::size_t begin = at;
    skip("0123456789");
    if (at == begin || at - begin > 5) return std::nullopt;
    return std::stoi(text.substr(begin, at - begin));
  };
  while (true) {
    skip("( '\"\t\n");
    if (at >= text.size() || text[at] != '[') return std::nullopt;
    ++at;
    std::vector<int> part;
    while (true) {
      skip(" ,\t\n");
      if (at < text.size() && text[at] == ']') break;
      const auto value = number();
      if (!value || part.size() > kMostLayers) return std::nullopt;
      part.push_back(*value);
    }
    ++at;
    skip(" ");
    int times = 1;
    if (at < text.size() && text[at] == '*') {
      ++at;
      skip(" ");
      const auto told = number();
      if (!told) return std::nullopt;
      times = *told;
    }
    for (int each = 0; each < times; ++each) {
      if (layers.size() + part.size() > kMostLayers) return std::nullopt;
      layers.insert(layers.end(), part.begin(), part.end());
    }
    skip(" )'\"");
    if (at >= text.size()) return layers;
    if (text[at] != '+') return std::nullopt;
    ++at;
  }
}

bool put_layer_pattern(const std::vector<int>& layers, ForeignExperts& experts) {
  const auto first = std::find_if(layers.begin(), layers.end(), [](int layer) { return layer != 0; });
  if (first == layers.end()) return false;
  if (std::all_of(first, layers.end(), [](int layer) { return layer != 0; })) {
    experts.first_dense = static_cast<int>(first - layers.begin());
    return true;
  }
  const int every = static_cast<int>(first - layers.begin()) + 1;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const bool has_experts = (layer + 1) % static_cast<std::size_t>(every) == 0;
    if (has_experts != (layers[layer] != 0)) return false;
  }
  experts.every = every;
  return true;
}

std::optional<std::vector<int>> stages_of_string(const std::string& text) {
  constexpr std::size_t kLongest = 100'000;
  constexpr int kMostTimes = 10'000;
  // Expands x*N and (…)*N; brackets do not nest.
  std::string plain;
  std::string group;
  bool in_group = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == ' ' || c == ',' || c == '\'' || c == '"') continue;
    if (c == '(' && !in_group) {
      in_group = true;
      group.clear();
      continue;
    }
    if (c == ')' && in_group) {
      in_group = false;
    } else if (std::string_view("EtmL|").find(c) == std::string_view::npos) {
      return std::nullopt;
    } else if (in_group) {
      group += c;
      if (at + 1 < text.size() && text[at + 1] == '*') {
        std::size_t digits = at + 2;
        int times = 0;
        while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && times < kMostTimes)
          times = times * 10 + (text[digits++] - '0');
        if (times == 0 || times > kMostTimes) return std::nullopt;
        group.append(static_cast<std::size_t>(times - 1), c);
        at = digits - 1;
      }
      continue;
    } else {
      group.assign(1, c);
    }
    int times = 1;
    if (at + 1 < text.size() && text[at + 1] == '*') {
      std::size_t digits = at + 2;
      times = 0;
      while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && times < kMostTimes)
        times = times * 10 + (text[digits++] - '0');
      if (times == 0 || times > kMostTimes) return std::nullopt;
      at = digits - 1;
    }
    for (int each = 0; each < times; ++each) plain += group;
    if (plain.size() > kLongest) return std::nullopt;
  }
  if (in_group || plain.empty()) return std::nullopt;
  std::vector<int> stages(1, 0);
  for (const char c : plain) {
    if (c == '|') stages.push_back(0);
    if (c == 't') ++stages.back();
  }
  return stages;
}

void put_latent_attention(const ForeignLatentAttention& attention, const std::string& place, ImportedJob& imported) {
  nlohmann::json values = {{"kv_lora_rank", attention.kv_rank},
                           {"qk_nope_head_dim", attention.qk_nope_dim},
                           {"qk_rope_head_dim", attention.qk_rope_dim},
                           {"v_head_dim", attention.v_dim}};
  if (attention.q_rank) values["q_lora_rank"] = *attention.q_rank;
  imported.put("model.mla", values, place);
}

}  // namespace flopcast
