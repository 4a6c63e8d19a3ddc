// Training recipes in YAML and TOML whose keys map one to one. The tables of import/keys with a "recipe" define how a
// file is recognised and the field of the job that each key becomes. Another program needs only another table.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "import/programs/recipe_reader.hpp"
#include "model/config/document.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

namespace {

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = [] {
    std::vector<Recipe> found;
    for (const EmbeddedFile& file : embedded_keys()) {
      const std::string path(file.path);
      const nlohmann::json table = parse_json(file.text, path);
      if (!table.contains("recipe")) continue;
      found.push_back({path.substr(0, path.find('.')), table.at("program").get<std::string>(), table.at("recipe")});
    }
    return found;
  }();
  return all;
}

void collect(const nlohmann::json& values, const std::string& prefix, const KeyTable* table, Leaves& leaves) {
  for (const auto& item : values.items()) {
    std::string key = item.key();
    std::replace(key.begin(), key.end(), '-', '_');
    const std::string path = prefix.empty() ? key : fmt::format("{}/{}", prefix, key);
    const KeyTable::Entry* entry = table == nullptr ? nullptr : table->find(path);
    const bool closed = entry != nullptr && entry->kind != KeyTable::Kind::kRead;
    if (item.value().is_object() && !closed) {
      collect(item.value(), path, table, leaves);
    } else {
      leaves[path] = item.value();
    }
  }
}

// "a|b" matches if the file has either key.
bool has_any_of(const nlohmann::json& values, const std::string& alternatives) {
  std::istringstream stream(alternatives);
  for (std::string path; std::getline(stream, path, '|');) {
    const nlohmann::json* at = &values;
    std::istringstream steps(path);
    for (std::string step; at != nullptr && std::getline(steps, step, '/');) {
      std::string dashed = step;
      std::replace(dashed.begin(), dashed.end(), '_', '-');
      const auto plain = at->is_object() ? at->find(step) : at->end();
      const auto other = at->is_object() ? at->find(dashed) : at->end();
      at = at->is_object() && plain != at->end() ? &*plain : at->is_object() && other != at->end() ? &*other : nullptr;
    }
    if (at != nullptr) return true;
  }
  return false;
}

const Recipe* recipe_of(const nlohmann::json& values) {
  if (!values.is_object()) return nullptr;
  for (const Recipe& recipe : recipes()) {
    const nlohmann::json& needed = recipe.rules->at("detect");
    const bool all = std::all_of(needed.begin(), needed.end(), [&](const nlohmann::json& keys) {
      return has_any_of(values, keys.get<std::string>());
    });
    if (all) return &recipe;
  }
  return nullptr;
}

}  // namespace

std::string text_in(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : dumped(value);
}

std::vector<std::string> keys_in(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

RecipeReader::RecipeReader(const Recipe& recipe, const nlohmann::json& values, const std::string& file,
                           const ImportContext& context)
    : recipe_(recipe), table_(KeyTable::of(recipe.table)), file_(file), context_(context) {
  collect(values, "", &table_, leaves_);
}

std::string RecipeReader::place(const std::string& path) const {
  return fmt::format("{}:/{}", file_, path);
}

void RecipeReader::fail(const std::string& path, const std::string& problem, const std::string& help) const {
  throw ConfigError({path, problem, place(path), help});
}

const nlohmann::json* RecipeReader::leaf(const nlohmann::json& path) const {
  const auto found = leaves_.find(path.get<std::string>());
  return found == leaves_.end() ? nullptr : &*found->second;
}

const nlohmann::json* RecipeReader::rule(const char* group, const std::string& path) const {
  const auto rules = recipe_.rules->find(group);
  if (rules == recipe_.rules->end()) return nullptr;
  const auto match = rules->find(path);
  return match == rules->end() ? nullptr : &*match;
}

void RecipeReader::put_all(const nlohmann::json& fields, const std::string& path) {
  for (const auto& item : fields.items()) {
    // Activations and optimizer have a key each for offloading; one must not undo the other.
    const bool offloads = item.key() == "layout.offload" && out_.has(item.key());
    const bool both = offloads && out_.job["layout"]["offload"] != item.value();
    out_.put(item.key(), both ? nlohmann::json("all") : item.value(), place(path));
  }
}

void RecipeReader::read_choice(const std::string& path, const nlohmann::json& value, const nlohmann::json& choices) {
  const std::string word = lower_case(text_in(value));
  const auto choice = choices.find(word);
  if (choice == choices.end()) {
    const std::vector<std::string> names = keys_in(choices);
    fail(path, fmt::format("{} is not modelled", shown_value(value)), choices_help(word, names));
  }
  if (choice->is_string()) {
    fail(path, fmt::format("{} requires {} (not modelled)", shown_value(value), choice->get<std::string>()),
         "flopcast forecasts transformers with attention and dense or expert layers");
  }
  put_all(*choice, path);
}

void RecipeReader::read_named(const std::string& path, const nlohmann::json& value, const nlohmann::json& rule) {
  const std::string text = lower_case(text_in(value));
  for (const nlohmann::json& known : rule.at("words")) {
    if (value.is_array() && value.empty()) return;
    if (text.find(known.at("word").get<std::string>()) == std::string::npos) continue;
    put_all(known.at("fields"), path);
    if (known.contains("warning"))
      out_.warnings.push_back(fmt::format("{}: {}", place(path), known.at("warning").get<std::string>()));
    if (known.at("fields").empty()) return;
    out_.notes.push_back(fmt::format("{}: {} is recognised by its name", place(path), shown_value(value)));
    return;
  }
  out_.warn_of(path, place(path), rule.at("otherwise").get<std::string>());
}

// Returns false if no rule covers the leaf.
bool RecipeReader::read_leaf(const std::string& path, const nlohmann::json& value) {
  if (rule("worked_out", path) != nullptr) return true;
  const nlohmann::json* words = rule("refused_words", path);
  if (words != nullptr) {
    const std::string text = lower_case(dumped(value));
    for (const auto& item : words->items()) {
      if (text.find(item.key()) == std::string::npos) continue;
      fail(path, fmt::format("{} requires {} (not modelled)", shown_value(value), item.value().get<std::string>()),
           "flopcast forecasts transformers with attention and dense or expert layers");
    }
    return true;
  }
  if (const nlohmann::json* choices = rule("choices", path)) {
    read_choice(path, value, *choices);
    return true;
  }
  // The first known word in the value, which is a list or the path of a file.
  if (const nlohmann::json* named = rule("named", path)) {
    read_named(path, value, *named);
    return true;
  }
  if (const nlohmann::json* field = rule("negated", path)) {
    if (!value.is_boolean())
      fail(path, fmt::format("{} must be a boolean", shown_value(value)), "expected true or false");
    out_.put(field->get<std::string>(), !value.get<bool>(), place(path));
    return true;
  }
  const nlohmann::json* field = rule("fields", path);
  if (field == nullptr) return false;
  const std::string name = field->get<std::string>();
  if (name == "@hub") {
    const bool named = value.is_string() && put_hub_model(value.get<std::string>(), file_, place(path), context_, out_);
    if (!named && !context_.has("model") && !context_.has("model.layers")) {
      fail(path, fmt::format("{} is neither in the catalogue nor a folder with a config.json", shown_value(value)),
           hub_help(value.is_string() ? value.get<std::string>() : ""));
    }
    return true;
  }
  if (name == "@deepspeed") {
    const bool found = value.is_string() && put_deepspeed_file(value.get<std::string>(), file_, context_, out_);
    if (!found)
      out_.warn_of(path, place(path), "the file was not found: give ZeRO and offloading as --zero and --offload");
    return true;
  }
  const bool fits = value.is_boolean() || (value.is_number() && value.get<double>() >= 0.0);
  if (!fits)
    fail(path, fmt::format("{} must be a number or a boolean", shown_value(value)), "give --" + name + " instead");
  // A pipeline of 0 stages means no pipeline.
  const bool is_axis = value.is_number_integer() && value == 0 && name.starts_with("layout.") && name != "layout.zero";
  out_.put(name, is_axis ? nlohmann::json(1) : value, place(path));
  return true;
}

// Fields that are enabled if any of several numbers is above zero.
void RecipeReader::read_any() {
  const auto group = recipe_.rules->find("any");
  if (group == recipe_.rules->end()) return;
  for (const auto& item : group->items()) {
    bool any = false;
    std::string where;
    for (const nlohmann::json& path : item.value()) {
      const nlohmann::json* value = leaf(path);
      if (value == nullptr || !value->is_number()) continue;
      any = any || value->get<double>() > 0.0;
      where = place(path.get<std::string>());
    }
    if (!where.empty()) out_.put(item.key(), any, where);
  }
}

// A value as a lower-case word; "" if the file does not have it.
std::string RecipeReader::word_at(const std::string& path) const {
  const nlohmann::json* value = leaf(path);
  return value == nullptr ? "" : lower_case(text_in(*value));
}

// Disabled 16-bit formats leave fp32. The rule "full_precision":
//   off       the leaf that is false
//   unless    leaves with the words that select another format
//   products  the leaf that is true if products are in tf32
void RecipeReader::read_full_precision() {
  const auto rule = recipe_.rules->find("full_precision");
  if (rule == recipe_.rules->end() || context_.has("training.precision")) return;
  const std::string off = rule->at("off").get<std::string>();
  if (word_at(off) != "false") return;
  for (const auto& item : rule->at("unless").items()) {
    const std::string told = word_at(item.key());
    for (const nlohmann::json& word : item.value()) {
      if (told == word.get<std::string>()) return;
    }
  }
  const std::string products = rule->at("products").get<std::string>();
  const bool is_tf32 = word_at(products) == "true";
  out_.put("training.precision", is_tf32 ? "tf32" : "fp32", place(is_tf32 ? products : off));
  out_.warnings.push_back(
      fmt::format("{}: neither bf16 nor fp16 is enabled: forecasts {}; to change it, give --precision bf16", place(off),
                  is_tf32 ? "tf32" : "fp32"));
}

int RecipeReader::whole_leaf(const std::string& path, int otherwise) const {
  const nlohmann::json* value = leaf(path);
  const bool fits =
      value != nullptr && value->is_number_integer() && *value > 0 && *value <= std::numeric_limits<int>::max();
  return fits ? value->get<int>() : otherwise;
}

// GPT-NeoX divides the given width among the matrices of a gated MLP, so that the number of parameters is the same as
// without the gate: f -> ⌊2f/3⌋/2, rounded up to a multiple (megatron/model/transformer.py, ParallelMLP).
void RecipeReader::read_shared_width() {
  const auto keys = recipe_.rules->find("shared_width");
  const std::int64_t hidden = out_.whole("model.hidden");
  if (keys == recipe_.rules->end() || hidden == 0) return;
  const std::string told = keys->at("width").get<std::string>();
  const nlohmann::json* factor = leaf(keys->at("factor"));
  constexpr std::int64_t kUsualWidening = 4;
  std::int64_t width = kUsualWidening * hidden;
  if (factor != nullptr && factor->is_number() && *factor > 0.0 && *factor < 1e3)
    width = static_cast<std::int64_t>(factor->get<double>() * static_cast<double>(hidden));
  const bool given = leaf(told) != nullptr && leaf(told)->is_number_integer();
  if (given) width = whole_leaf(told, 1);
  if (out_.job["model"].value("gated_mlp", false)) width = width * 2 / 3 / 2;
  const int multiple = whole_leaf(keys->at("multiple").get<std::string>(), 1);
  width = (width + multiple - 1) / multiple * multiple;
  out_.put("model.ffn", width, place(given ? told : "hidden_size"));
}

// Ranks that share the weights, and copies of all of them.
void RecipeReader::read_shards() {
  const auto keys = recipe_.rules->find("shard_sizes");
  if (keys == recipe_.rules->end()) return;
  const std::string shards = keys->at("shards").get<std::string>();
  const std::string replicas = keys->at("replicas").get<std::string>();
  const int sharded = whole_leaf(shards, 1);
  // Replicas of whole weights, in a program that otherwise shards everything not replicated.
  const bool copies = sharded == 1 && leaf(shards) != nullptr && *leaf(shards) == 1;
  if (copies && whole_leaf(replicas, 1) > 1) out_.put("layout.data_parallel", "ddp", place(replicas));
  const bool asked = out_.has("layout.zero") || context_.has("layout.zero") || context_.has("layout.data_parallel");
  if (keys->contains("unsaid") && !copies && !asked) {
    const std::string unsaid = keys->at("unsaid").get<std::string>();
    out_.put("layout.data_parallel", unsaid, file_);
    if (leaf(shards) == nullptr) {
      out_.notes.push_back(fmt::format("{}: layout.data_parallel is {}, the default of {} on several GPUs", file_,
                                       unsaid, recipe_.program));
    }
    if (sharded == 1 && whole_leaf(replicas, 1) > 1) {
      out_.warnings.push_back(
          fmt::format("{}: shard size of the {} replicas not specified; assuming full sharding; "
                      "give --layout.data_parallel hsdp --layout.shards N",
                      place(replicas), whole_leaf(replicas, 1)));
    }
  }
  if (sharded > 1 && whole_leaf(replicas, 1) > 1) {
    out_.put("layout.data_parallel", "hsdp", place(replicas));
    out_.put("layout.shards", sharded, place(shards));
  } else if (sharded > 1 && !out_.has("layout.zero")) {
    out_.put("layout.data_parallel", "fsdp", place(shards));
  }
}

// The first of several keys that the file has; `path` is that of the last one if it has none.
const nlohmann::json* RecipeReader::first_leaf(const nlohmann::json& paths, std::string& path) const {
  for (const nlohmann::json& each : paths) {
    path = each.get<std::string>();
    const nlohmann::json* value = leaf(each);
    if (value != nullptr && !value->is_null()) return value;
  }
  return nullptr;
}

// A family and a size that the program knows by name: a model of the catalogue, or its sizes.
void RecipeReader::read_named_model() {
  const auto keys = recipe_.rules->find("named_model");
  if (keys == recipe_.rules->end() || context_.has("model") || context_.has("model.layers")) return;
  const auto word_of = [this](const std::string& path) {
    const nlohmann::json* value = leaf(path);
    return value != nullptr && value->is_string() ? lower_case(value->get<std::string>()) : "";
  };
  const std::string path = keys->at("size").get<std::string>();
  const std::string name = fmt::format("{} {}", word_of(keys->at("family").get<std::string>()), word_of(path));
  const nlohmann::json& models = keys->at("models");
  const auto model = models.find(name);
  if (model == models.end()) {
    const std::vector<std::string> names = keys_in(models);
    fail(path, fmt::format("the sizes of \"{}\" are unknown", name),
         choices_help(name, names) + "; or give --model NAME, or --model config.json");
  }
  if (model->is_object()) {
    for (const auto& item : model->items()) out_.put("model." + item.key(), item.value(), place(path));
  } else {
    out_.put("model", *model, place(path));
  }
  out_.notes.push_back(fmt::format("{}: {} is {}", place(path), name,
                                   model->is_string()
                                       ? model->get<std::string>() + " from the catalogue"
                                       : "modelled with the sizes that " + recipe_.program + " defines"));
}

// The sequences in a replica's step: one microbatch, or those of the pipeline.
void RecipeReader::read_replica_batch() {
  const auto keys = recipe_.rules->find("replica_batch");
  if (keys == recipe_.rules->end()) return;
  std::string path;
  const nlohmann::json* told = first_leaf(keys->at("sequences"), path);
  const int sequences = told == nullptr ? keys->at("usual").get<int>() : whole_leaf(path, 0);
  if (sequences == 0)
    fail(path, fmt::format("{} is not a number of sequences", shown_value(*told)), "expected 1 or more");
  if (told == nullptr)
    out_.notes.push_back(
        fmt::format("{} is absent: uses {}, the default of {}", place(path), sequences, recipe_.program));
  const int stages = out_.has("layout.pp") ? out_.whole("layout.pp") : 1;
  const std::string number = keys->at("microbatches").get<std::string>();
  const std::string size = keys->at("microbatch").get<std::string>();
  const bool by_number = leaf(number) != nullptr || leaf("experimental/pipeline_parallel_degree") != nullptr;
  const int microbatches = stages == 1 ? 1
                           : by_number ? whole_leaf(number, stages)
                                       : std::max(1, sequences / whole_leaf(size, 1));
  if (sequences % microbatches != 0 || (!by_number && stages > 1 && sequences % whole_leaf(size, 1) != 0)) {
    fail(by_number ? number : size, fmt::format("{} sequences do not divide into such microbatches", sequences),
         "give a divisor, or --mbs N");
  }
  out_.put("layout.micro_batch_size", sequences / microbatches, place(path));
  const std::string all = keys->at("all").get<std::string>();
  if (whole_leaf(all, 0) > 0) {
    out_.put("layout.global_batch_size", whole_leaf(all, 0), place(all));
  } else {
    out_.put("layout.accumulation", microbatches, place(path));
  }
}

// Shards of a replica's weights (-1 for all remaining ranks), and replicas of all shards.
void RecipeReader::read_replica_sizes() {
  const auto keys = recipe_.rules->find("replica_sizes");
  if (keys == recipe_.rules->end()) return;
  std::string shards_at;
  std::string replicas_at;
  const nlohmann::json* told = first_leaf(keys->at("shards"), shards_at);
  first_leaf(keys->at("replicas"), replicas_at);
  const bool rest = told == nullptr || *told == -1;
  const int shards = rest ? 0 : whole_leaf(shards_at, 0);
  const int replicas = whole_leaf(replicas_at, 1);
  if (!rest && shards == 0)
    fail(shards_at, fmt::format("{} is not a number of shards", shown_value(*told)), "valid: -1, or 1 or more");
  if (shards != 1) out_.put("layout.data_parallel", replicas > 1 ? "hsdp" : "fsdp", place(shards_at));
  if (replicas > 1 && rest && !context_.has("layout.shards")) {
    fail(shards_at, "uses the remaining ranks, whose number the file does not give",
         fmt::format("give --layout.shards N, the number of GPUs divided by {} · tp · cp · pp", replicas));
  }
  if (replicas > 1 && shards > 1) out_.put("layout.shards", shards, place(shards_at));
  if (!rest && shards <= std::numeric_limits<int>::max() / replicas)
    out_.put("layout.dp", shards * replicas, place(shards_at));
  const bool staged = out_.whole("layout.pp") > 1;
  if (shards != 1 && staged && !out_.has("layout.reshard_after_forward"))
    out_.put("layout.reshard_after_forward", false, out_.places["layout.pp"]);
  if (out_.whole("layout.tp") > 1) {
    out_.put("layout.sequence_parallel", true, out_.places["layout.tp"]);
    if (out_.whole("layout.ep") > 1)
      out_.put("layout.etp", whole_leaf(keys->at("tensor_experts").get<std::string>(), 1), out_.places["layout.ep"]);
  }
  if (!staged) {
    out_.job["layout"].erase("schedule");
    out_.job["layout"].erase("vpp");
  }
}

// Attention and MLP in parallel, with one norm if they share it.
void RecipeReader::read_block() {
  const auto keys = recipe_.rules->find("parallel_block");
  if (keys == recipe_.rules->end()) return;
  const auto is_on = [this, &keys](const char* key) {
    const nlohmann::json* value = leaf(keys->at(key));
    return value != nullptr && *value == true;
  };
  const std::string where = place(keys->at("parallel").get<std::string>());
  if (is_on("parallel")) out_.put("model.block", is_on("one_norm") ? "parallel_one_norm" : "parallel", where);
}

// Selective recomputation "by operator", or a number N: full recomputation of every N-th layer.
void RecipeReader::read_layer_choice() {
  const auto keys = recipe_.rules->find("recompute_choice");
  if (keys == recipe_.rules->end()) return;
  const std::string path = keys->at("choice").get<std::string>();
  const nlohmann::json* choice = leaf(path);
  const nlohmann::json* mode = leaf(keys->at("mode"));
  if (choice == nullptr || *choice == keys->at("by_operator")) return;
  const auto every = parse_whole(text_in(*choice));
  if (!every || *every < 1 || *every > std::numeric_limits<int>::max()) {
    fail(path, fmt::format("{} must be op or a number of layers", shown_value(*choice)), "such as \"op\" or \"2\"");
  }
  if (mode == nullptr || *mode != keys->at("selective")) return;
  out_.put("layout.recompute", "full", place(path));
  out_.put("layout.recompute_every", static_cast<int>(*every), place(path));
}

void RecipeReader::finish() {
  const auto needed = recipe_.rules->value("needs", nlohmann::json::array());
  for (const nlohmann::json& field : needed) {
    const std::string name = field.get<std::string>();
    if (out_.has(name) || out_.has("model") || context_.has(name) || context_.has("model")) continue;
    throw ConfigError(
        {name, fmt::format("{} does not set it", file_), file_, fmt::format("give --{} or --model NAME", name)});
  }
  const bool batch = out_.has("layout.global_batch_size") || context_.has("layout.global_batch_size");
  if (batch && out_.has("layout.accumulation")) {
    out_.job["layout"].erase("accumulation");
    out_.places.erase("layout.accumulation");
  }
  if (!batch && !out_.has("layout.accumulation") && out_.has("layout.micro_batch_size")) {
    out_.put("layout.accumulation", 1, out_.places.at("layout.micro_batch_size"));
    out_.notes.push_back(fmt::format("{}: no accumulation is given: uses one microbatch per replica", file_));
  }
}

ImportedJob RecipeReader::read() {
  const auto stack = recipe_.rules->find("stack");
  if (stack != recipe_.rules->end()) put_stack(stack->get<std::string>(), recipe_.program, file_, out_);
  const auto fixed = recipe_.rules->find("fixed");
  if (fixed != recipe_.rules->end()) {
    for (const auto& item : fixed->items()) out_.put(item.key(), item.value(), file_);
  }
  read_adapter();
  read_packing();
  read_preference();
  KeyJudge judge(table_, out_);
  // Leaves that later ones override are processed first.
  std::vector<std::pair<std::string, JsonValue>> ordered(leaves_.begin(), leaves_.end());
  const nlohmann::json first = recipe_.rules->value("first", nlohmann::json::array());
  std::stable_partition(ordered.begin(), ordered.end(), [&first](const auto& leaf) {
    return std::find(first.begin(), first.end(), leaf.first) != first.end();
  });
  for (const auto& [path, held] : ordered) {
    const nlohmann::json& value = *held;
    if (of_adapter_.count(path) > 0) {
      const std::vector<std::string>& told = out_.keys.not_modelled;
      const bool warned = std::find(told.begin(), told.end(), path) != told.end();
      if (!warned) out_.keys.read.push_back(path);
      continue;
    }
    const bool silent = value.is_null() || value == "auto" || value == "null";
    const std::string leaf = path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
    if (!silent && read_leaf(path, value)) {
      out_.keys.read.push_back(path);
      continue;
    }
    // A section that is left empty.
    const auto inside = table_.entries().lower_bound(path + "/");
    if (value.is_null() && inside != table_.entries().end() && inside->first.starts_with(path + "/")) {
      out_.keys.no_effect.push_back(path);
      continue;
    }
    const bool by_path = table_.find(path) != nullptr;
    judge.judge(by_path ? path : leaf, silent ? "null" : text_in(value), path, place(path));
  }
  read_any();
  read_full_precision();
  read_shared_width();
  read_block();
  read_layer_choice();
  read_shards();
  read_named_model();
  read_replica_batch();
  read_replica_sizes();
  judge.finish(file_);
  finish();
  return std::move(out_);
}

namespace {

bool is_recipe(const ForeignFile& file) {
  if (file.is_object()) return recipe_of(file.values()) != nullptr;
  if (file.syntax() == ForeignFile::Syntax::kToml) return true;
  if (file.syntax() != ForeignFile::Syntax::kYaml) return false;
  // Recognised by lines that begin with the last part of the keys, without parsing; read_recipe checks again.
  const std::string text = "\n" + std::string(file.text());
  return std::any_of(recipes().begin(), recipes().end(), [&](const Recipe& recipe) {
    const nlohmann::json& needed = recipe.rules->at("detect");
    return std::all_of(needed.begin(), needed.end(), [&](const nlohmann::json& keys) {
      std::istringstream stream(keys.get<std::string>());
      for (std::string path; std::getline(stream, path, '|');) {
        std::string leaf = path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
        std::string dashed = leaf;
        std::replace(dashed.begin(), dashed.end(), '_', '-');
        for (const std::string& name : {leaf, dashed}) {
          for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
            const std::size_t before = text.find_last_not_of(" \t\"'{,", at - 1);
            const std::size_t after = text.find_first_not_of("\"' ", at + name.size());
            const bool begins =
                before != std::string::npos && (text[before] == '\n' || text[at - 1] == '"' || text[at - 1] == '\'');
            if (begins && after != std::string::npos && text[after] == ':') return true;
          }
        }
      }
      return false;
    });
  });
}

ImportedJob read_recipe(const ForeignFile& file, const ImportContext& context) {
  const nlohmann::json values = parsed_values(file, context);
  const Recipe* recipe = recipe_of(values);
  if (recipe == nullptr) {
    throw ConfigError(
        {"", fmt::format("{} is not a recipe that flopcast knows", file.name()), file.name(), readable_formats()});
  }
  return RecipeReader(*recipe, values, file.name(), context).read();
}

}  // namespace

const JobFormat& recipe_format() {
  static constexpr JobFormat kFormat = {
      .name = "training recipe", .detect = is_recipe, .read = read_recipe, .runs_deepspeed = true};
  return kFormat;
}

}  // namespace flopcast
