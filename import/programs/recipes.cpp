// Training recipes in YAML and TOML whose keys mean one thing each: the tables of import/keys that have a "recipe" tell
// how a file is recognised, and the job's field that each key becomes. A further program is one more table.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "import/programs/foreign_keys.hpp"
#include "import/programs/imported_job.hpp"
#include "model/config/document.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

namespace {

struct Recipe {
  std::string table;  ///< of KeyTable
  std::string program;
  nlohmann::json rules;
};

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

// Every value that is no object, by its path. GPT-NeoX writes some keys with dashes.
using Leaves = std::map<std::string, nlohmann::json>;

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

// "a|b" is in the file when either key is.
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
    const nlohmann::json& needed = recipe.rules.at("detect");
    const bool all = std::all_of(needed.begin(), needed.end(), [&](const nlohmann::json& keys) {
      return has_any_of(values, keys.get<std::string>());
    });
    if (all) return &recipe;
  }
  return nullptr;
}

class RecipeReader {
 public:
  RecipeReader(const Recipe& recipe, const nlohmann::json& values, const std::string& file,
               const ImportContext& context)
      : recipe_(recipe), table_(KeyTable::of(recipe.table)), file_(file), context_(context) {
    collect(values, "", &table_, leaves_);
  }

  ImportedJob read();

 private:
  std::string place(const std::string& path) const { return fmt::format("{}:/{}", file_, path); }
  [[noreturn]] void fail(const std::string& path, const std::string& problem, const std::string& help) const {
    throw ConfigError({path, problem, place(path), help});
  }
  const nlohmann::json* rule(const char* group, const std::string& path) const;
  bool read_leaf(const std::string& path, const nlohmann::json& value);
  void read_choice(const std::string& path, const nlohmann::json& value, const nlohmann::json& choices);
  void put_all(const nlohmann::json& fields, const std::string& path);
  void read_any();
  void read_full_precision();
  std::string word_at(const std::string& path) const;
  void read_named(const std::string& path, const nlohmann::json& value, const nlohmann::json& rule);
  void read_shared_width();
  void read_shards();
  void read_named_model();
  void read_replica_batch();
  void read_replica_sizes();
  const nlohmann::json* first_leaf(const nlohmann::json& paths, std::string& path) const;
  void read_block();
  void read_layer_choice();
  void read_adapter();
  void read_packing();
  void read_preference();
  int whole_leaf(const std::string& path, int otherwise) const;
  void finish();

  const Recipe& recipe_;
  const KeyTable& table_;
  const std::string& file_;
  const ImportContext& context_;
  Leaves leaves_;
  std::set<std::string> of_adapter_;  // read with the others of their kind, as is the key of packing
  ImportedJob out_;
};

const nlohmann::json* RecipeReader::rule(const char* group, const std::string& path) const {
  const auto rules = recipe_.rules.find(group);
  if (rules == recipe_.rules.end()) return nullptr;
  const auto match = rules->find(path);
  return match == rules->end() ? nullptr : &*match;
}

void RecipeReader::put_all(const nlohmann::json& fields, const std::string& path) {
  for (const auto& item : fields.items()) {
    // Activations and optimizer are offloaded by a key each: one does not take back the other.
    const bool offloads = item.key() == "layout.offload" && out_.has(item.key());
    const bool both = offloads && out_.job["layout"]["offload"] != item.value();
    out_.put(item.key(), both ? nlohmann::json("all") : item.value(), place(path));
  }
}

void RecipeReader::read_choice(const std::string& path, const nlohmann::json& value, const nlohmann::json& choices) {
  const std::string word = lower_case(value.is_string() ? value.get<std::string>() : dumped(value));
  const auto choice = choices.find(word);
  if (choice == choices.end()) {
    std::vector<std::string> names;
    for (const auto& item : choices.items()) names.push_back(item.key());
    fail(path, fmt::format("{} is not modelled", shown_value(value)), choices_help(word, names));
  }
  if (choice->is_string()) {
    fail(path, fmt::format("{} stands for {}, not modelled", shown_value(value), choice->get<std::string>()),
         "transformers of attention and of dense or expert layers are forecast");
  }
  put_all(*choice, path);
}

void RecipeReader::read_named(const std::string& path, const nlohmann::json& value, const nlohmann::json& rule) {
  const std::string text = lower_case(value.is_string() ? value.get<std::string>() : dumped(value));
  for (const nlohmann::json& known : rule.at("words")) {
    if (value.is_array() && value.empty()) return;
    if (text.find(known.at("word").get<std::string>()) == std::string::npos) continue;
    put_all(known.at("fields"), path);
    if (known.contains("warning"))
      out_.warnings.push_back(fmt::format("{}: {}", place(path), known.at("warning").get<std::string>()));
    if (known.at("fields").empty()) return;
    out_.notes.push_back(fmt::format("{}: {} is taken for what its name says", place(path), shown_value(value)));
    return;
  }
  out_.warn_of(path, place(path), rule.at("otherwise").get<std::string>());
}

// False when no rule is about it.
bool RecipeReader::read_leaf(const std::string& path, const nlohmann::json& value) {
  if (rule("worked_out", path) != nullptr) return true;
  const nlohmann::json* words = rule("refused_words", path);
  if (words != nullptr) {
    const std::string text = lower_case(dumped(value));
    for (const auto& item : words->items()) {
      if (text.find(item.key()) == std::string::npos) continue;
      fail(path, fmt::format("{} stands for {}, not modelled", shown_value(value), item.value().get<std::string>()),
           "transformers of attention and of dense or expert layers are forecast");
    }
    return true;
  }
  if (const nlohmann::json* choices = rule("choices", path)) {
    read_choice(path, value, *choices);
    return true;
  }
  // The first word that is in the value, a list or the path of a file.
  if (const nlohmann::json* named = rule("named", path)) {
    read_named(path, value, *named);
    return true;
  }
  if (const nlohmann::json* field = rule("negated", path)) {
    if (!value.is_boolean()) fail(path, fmt::format("{} is no boolean", shown_value(value)), "expected true or false");
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
      out_.warn_of(path, place(path), "the file is not here: ZeRO and offloading are left to --zero, --offload");
    return true;
  }
  const bool fits = value.is_boolean() || (value.is_number() && value.get<double>() >= 0.0);
  if (!fits)
    fail(path, fmt::format("{} is neither a number nor a boolean", shown_value(value)), "give --" + name + " instead");
  // A pipeline of 0 stages is none.
  const bool is_axis = value.is_number_integer() && value == 0 && name.starts_with("layout.") && name != "layout.zero";
  out_.put(name, is_axis ? nlohmann::json(1) : value, place(path));
  return true;
}

// Fields that are on when any of several numbers is above zero.
void RecipeReader::read_any() {
  const auto group = recipe_.rules.find("any");
  if (group == recipe_.rules.end()) return;
  for (const auto& item : group->items()) {
    bool any = false;
    std::string where;
    for (const nlohmann::json& path : item.value()) {
      const auto leaf = leaves_.find(path.get<std::string>());
      if (leaf == leaves_.end() || !leaf->second.is_number()) continue;
      any = any || leaf->second.get<double>() > 0.0;
      where = place(leaf->first);
    }
    if (!where.empty()) out_.put(item.key(), any, where);
  }
}

// A value as a word in small letters, "" where the file has none.
std::string RecipeReader::word_at(const std::string& path) const {
  const auto leaf = leaves_.find(path);
  if (leaf == leaves_.end()) return "";
  return lower_case(leaf->second.is_string() ? leaf->second.get<std::string>() : dumped(leaf->second));
}

// 16 bits that are switched off leave fp32. The rule "full_precision":
//   off       the leaf that is false
//   unless    leaves with the words that tell another format
//   products  the leaf that is true where products are in tf32
void RecipeReader::read_full_precision() {
  const auto rule = recipe_.rules.find("full_precision");
  if (rule == recipe_.rules.end() || context_.has("training.precision")) return;
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
      fmt::format("{}: neither bf16 nor fp16 is on: {} is forecast; give --precision bf16 for another", place(off),
                  is_tf32 ? "tf32" : "fp32"));
}

int RecipeReader::whole_leaf(const std::string& path, int otherwise) const {
  const auto leaf = leaves_.find(path);
  const bool fits = leaf != leaves_.end() && leaf->second.is_number_integer() && leaf->second > 0 &&
                    leaf->second <= std::numeric_limits<int>::max();
  return fits ? leaf->second.get<int>() : otherwise;
}

// GPT-NeoX shares the width that it is told among the matrices of a gated MLP, so that there are as many parameters as
// without the gate: f -> ⌊2f/3⌋/2, rounded up to a multiple (megatron/model/transformer.py, ParallelMLP).
void RecipeReader::read_shared_width() {
  const auto keys = recipe_.rules.find("shared_width");
  const std::int64_t hidden = out_.whole("model.hidden");
  if (keys == recipe_.rules.end() || hidden == 0) return;
  const std::string told = keys->at("width").get<std::string>();
  const auto factor = leaves_.find(keys->at("factor").get<std::string>());
  constexpr std::int64_t kUsualWidening = 4;
  std::int64_t width = kUsualWidening * hidden;
  if (factor != leaves_.end() && factor->second.is_number() && factor->second > 0.0 && factor->second < 1e3)
    width = static_cast<std::int64_t>(factor->second.get<double>() * static_cast<double>(hidden));
  const bool given = leaves_.count(told) > 0 && leaves_.at(told).is_number_integer();
  if (given) width = whole_leaf(told, 1);
  if (out_.job["model"].value("gated_mlp", false)) width = width * 2 / 3 / 2;
  const int multiple = whole_leaf(keys->at("multiple").get<std::string>(), 1);
  width = (width + multiple - 1) / multiple * multiple;
  out_.put("model.ffn", width, place(given ? told : "hidden_size"));
}

// Ranks that share the weights, and copies of them all.
void RecipeReader::read_shards() {
  const auto keys = recipe_.rules.find("shard_sizes");
  if (keys == recipe_.rules.end()) return;
  const std::string shards = keys->at("shards").get<std::string>();
  const std::string replicas = keys->at("replicas").get<std::string>();
  const int sharded = whole_leaf(shards, 1);
  // Replicas of whole weights, where all that is not replicated is sharded unless told so.
  const bool copies = sharded == 1 && leaves_.count(shards) > 0 && leaves_.at(shards) == 1;
  if (copies && whole_leaf(replicas, 1) > 1) out_.put("layout.data_parallel", "ddp", place(replicas));
  const bool asked = out_.has("layout.zero") || context_.has("layout.zero") || context_.has("layout.data_parallel");
  if (keys->contains("unsaid") && !copies && !asked) {
    const std::string unsaid = keys->at("unsaid").get<std::string>();
    out_.put("layout.data_parallel", unsaid, file_);
    if (leaves_.count(shards) == 0) {
      out_.notes.push_back(fmt::format("{}: layout.data_parallel is {}, {}'s where there are several GPUs", file_,
                                       unsaid, recipe_.program));
    }
    if (sharded == 1 && whole_leaf(replicas, 1) > 1) {
      out_.warnings.push_back(
          fmt::format("{}: over how many GPUs each of {} copies is cut is not told: all are cut over "
                      "all; give --layout.data_parallel hsdp --layout.shards N",
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

// The first of several keys that the file has; its path is that of the last one where none is there.
const nlohmann::json* RecipeReader::first_leaf(const nlohmann::json& paths, std::string& path) const {
  for (const nlohmann::json& each : paths) {
    path = each.get<std::string>();
    const auto leaf = leaves_.find(path);
    if (leaf != leaves_.end() && !leaf->second.is_null()) return &leaf->second;
  }
  return nullptr;
}

// A family and a size that the program knows by name: a model of the catalogue, or its sizes.
void RecipeReader::read_named_model() {
  const auto keys = recipe_.rules.find("named_model");
  if (keys == recipe_.rules.end() || context_.has("model") || context_.has("model.layers")) return;
  const auto word_of = [this](const std::string& path) {
    const auto leaf = leaves_.find(path);
    return leaf != leaves_.end() && leaf->second.is_string() ? lower_case(leaf->second.get<std::string>()) : "";
  };
  const std::string path = keys->at("size").get<std::string>();
  const std::string name = fmt::format("{} {}", word_of(keys->at("family").get<std::string>()), word_of(path));
  const nlohmann::json& models = keys->at("models");
  const auto model = models.find(name);
  if (model == models.end()) {
    std::vector<std::string> names;
    for (const auto& item : models.items()) names.push_back(item.key());
    fail(path, fmt::format("the sizes of \"{}\" are not known", name),
         choices_help(name, names) + "; or give --model NAME, or --model config.json");
  }
  if (model->is_object()) {
    for (const auto& item : model->items()) out_.put("model." + item.key(), item.value(), place(path));
  } else {
    out_.put("model", *model, place(path));
  }
  out_.notes.push_back(fmt::format("{}: {} is {}", place(path), name,
                                   model->is_string() ? "the catalogue's " + model->get<std::string>()
                                                      : "of the sizes that " + recipe_.program + " has for it"));
}

// The sequences of a replica's step: one microbatch, or the pipeline's.
void RecipeReader::read_replica_batch() {
  const auto keys = recipe_.rules.find("replica_batch");
  if (keys == recipe_.rules.end()) return;
  std::string path;
  const nlohmann::json* told = first_leaf(keys->at("sequences"), path);
  const int sequences = told == nullptr ? keys->at("usual").get<int>() : whole_leaf(path, 0);
  if (sequences == 0) fail(path, fmt::format("{} is no number of sequences", shown_value(*told)), "expected 1 or more");
  if (told == nullptr)
    out_.notes.push_back(fmt::format("{} is absent: {}, {}'s default", place(path), sequences, recipe_.program));
  const int stages = out_.has("layout.pp") ? out_.whole("layout.pp") : 1;
  const std::string number = keys->at("microbatches").get<std::string>();
  const std::string size = keys->at("microbatch").get<std::string>();
  const bool by_number = leaves_.count(number) > 0 || leaves_.count("experimental/pipeline_parallel_degree") > 0;
  const int microbatches = stages == 1 ? 1
                           : by_number ? whole_leaf(number, stages)
                                       : std::max(1, sequences / whole_leaf(size, 1));
  if (sequences % microbatches != 0 || (!by_number && stages > 1 && sequences % whole_leaf(size, 1) != 0)) {
    fail(by_number ? number : size, fmt::format("{} sequences do not split into such microbatches", sequences),
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

// Shards of a replica's weights, -1 for as many as there are ranks left, and replicas of all shards.
void RecipeReader::read_replica_sizes() {
  const auto keys = recipe_.rules.find("replica_sizes");
  if (keys == recipe_.rules.end()) return;
  std::string shards_at;
  std::string replicas_at;
  const nlohmann::json* told = first_leaf(keys->at("shards"), shards_at);
  first_leaf(keys->at("replicas"), replicas_at);
  const bool rest = told == nullptr || *told == -1;
  const int shards = rest ? 0 : whole_leaf(shards_at, 0);
  const int replicas = whole_leaf(replicas_at, 1);
  if (!rest && shards == 0)
    fail(shards_at, fmt::format("{} is no number of shards", shown_value(*told)), "valid: -1, or 1 or more");
  if (shards != 1) out_.put("layout.data_parallel", replicas > 1 ? "hsdp" : "fsdp", place(shards_at));
  if (replicas > 1 && rest && !context_.has("layout.shards")) {
    fail(shards_at, "takes the ranks that are left over, which the file does not tell",
         fmt::format("give --layout.shards N, the GPUs over {} · tp · cp · pp", replicas));
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

// The first of the rule's words that the text holds, the longest first.
std::string word_inside(const std::string& text, const nlohmann::json& words) {
  std::string longest;
  for (const auto& item : words.items()) {
    if (text.find(item.key()) != std::string::npos && item.key().size() > longest.size()) longest = item.key();
  }
  return longest;
}

// Adapters, or layers that are frozen. The rule "adapter" names the leaves that tell them:
//   method   a text, with what its words stand for; without it any of "when" tells that there are adapters
//   inside       the words are parts of the method's text, "…lora_llama3_8b", which tells more than them; none: no
//   adapter rank alpha dropout targets layers modules double_quant    as in ForeignAdapter all mlp      booleans that
//   add linears to the targets bits         leaves that tell bits: a number, or {leaf: bits} for booleans usual what
//   the program takes for what is not told
void RecipeReader::read_adapter() {
  const auto rule = recipe_.rules.find("adapter");
  if (rule == recipe_.rules.end()) return;
  const auto leaf = [&](const char* role) -> const nlohmann::json* {
    if (!rule->contains(role)) return nullptr;
    const std::string path = rule->at(role).get<std::string>();
    const auto found = leaves_.find(path);
    if (found == leaves_.end()) return nullptr;
    const bool read_again = role == std::string_view("method") && rule->value("inside", false);
    if (!read_again) of_adapter_.insert(path);
    return found->second.is_null() ? nullptr : &found->second;
  };
  const nlohmann::json usual = rule->value("usual", nlohmann::json::object());
  const auto number = [&](const char* role) -> std::optional<double> {
    const nlohmann::json* told = leaf(role);
    if (told != nullptr && told->is_number()) return told->get<double>();
    return usual.contains(role) ? std::optional(usual.at(role).get<double>()) : std::nullopt;
  };
  const auto is_on = [&](const char* role) {
    const nlohmann::json* told = leaf(role);
    return told != nullptr && *told == true;
  };
  ForeignAdapter adapter;
  const nlohmann::json* method = leaf("method");
  std::string path = rule->value("method", rule->value("when", std::string()));
  std::string word = method != nullptr && method->is_string() ? lower_case(method->get<std::string>()) : "";
  const nlohmann::json& words = rule->at("words");
  if (rule->value("inside", false)) word = word_inside(word, words);
  if (word.empty() && rule->contains("when") && is_on("when")) word = "lora";
  adapter.place = place(path);
  const std::optional<double> layers = number("layers");
  if (const auto rank = number("rank")) adapter.rank = static_cast<int>(std::clamp(*rank, 1.0, 1e5));
  adapter.alpha = number("alpha");
  adapter.dropout = number("dropout");
  adapter.targets_place = rule->contains("targets") ? place(rule->at("targets").get<std::string>()) : adapter.place;
  nlohmann::json targets = usual.value("targets", nlohmann::json());
  if (const nlohmann::json* told = leaf("targets")) targets = *told;
  if (is_on("all")) targets = "all";
  if (is_on("mlp") && targets.is_array()) targets.push_back("mlp");
  adapter.targets = targets;
  if (const nlohmann::json* modules = leaf("modules")) adapter.trains_tables = names_tables(*modules);
  const nlohmann::json* twice = leaf("double_quant");
  if (twice != nullptr && twice->is_boolean()) adapter.double_quant = twice->get<bool>();
  if (!adapter.double_quant && usual.contains("double_quant")) adapter.double_quant = usual.at("double_quant");
  const nlohmann::json all_bits = rule->value("bits", nlohmann::json::object());
  for (const auto& item : all_bits.items()) {
    const auto told = leaves_.find(item.key());
    if (told == leaves_.end()) continue;
    of_adapter_.insert(item.key());
    if (told->second == true) adapter.bits = item.value().get<int>();
    if (told->second.is_number_integer()) adapter.bits = told->second.get<int>();
  }
  if (word.empty()) return;
  const auto known = words.find(word);
  if (known == words.end()) {
    std::vector<std::string> names;
    for (const auto& item : words.items()) names.push_back(item.key());
    fail(path, fmt::format("{} is not modelled", shown_value(word)), choices_help(word, names));
  }
  if (known->is_string()) {
    fail(path, fmt::format("{} stands for {}, not modelled", shown_value(word), known->get<std::string>()),
         "valid: full training, LoRA, QLoRA, frozen layers");
  }
  if (known->value("freeze", false)) {
    put_frozen_layers(layers ? std::optional(static_cast<int>(*layers)) : std::nullopt, adapter.place, out_);
    return;
  }
  if (adapter.bits == 0) adapter.bits = known->value("bits", 0);
  put_adapter(adapter, out_);
}

// One loss may be several trainers': what is told of a trainer that has no reference decides. The rule "preference":
//   loss         the leaf of the loss, or of a list of them
//   methods      a method, or none for the loss of the next token, with the losses that are its
//   usual        the method where the reference alone is told of
//   precomputed  the leaf that tells whether the reference's answers are there already
//   alone        leaves of a trainer without a reference, which is forecast as "alone_method"
void RecipeReader::read_preference() {
  const auto rule = recipe_.rules.find("preference");
  if (rule == recipe_.rules.end()) return;
  const auto leaf = [&](const std::string& path) -> const nlohmann::json* {
    const auto found = leaves_.find(path);
    if (found == leaves_.end()) return nullptr;
    of_adapter_.insert(path);
    return found->second.is_null() || found->second == "auto" ? nullptr : &found->second;
  };
  std::string method;
  std::string where;
  const std::string path = rule->at("loss").get<std::string>();
  if (const nlohmann::json* told = leaf(path)) {
    const bool several = told->is_array() && !told->empty();
    const nlohmann::json& first = several ? told->front() : *told;
    const std::string loss = lower_case(first.is_string() ? first.get<std::string>() : dumped(first));
    bool known = false;
    for (const auto& item : rule->at("methods").items()) {
      std::istringstream losses(item.value().get<std::string>());
      for (std::string word; losses >> word;) {
        if (word != loss) continue;
        known = true;
        method = item.key();
      }
    }
    where = place(path);
    if (!known) {
      out_.warn_of(path, where, fmt::format("{}; give --preference METHOD for one that is", shown_value(first)));
    } else if (several && told->size() > 1) {
      out_.warn_of(path, where, fmt::format("of several losses the first, {}, is forecast", loss));
    }
  }
  for (const nlohmann::json& key : rule->at("alone")) {
    const std::string alone = key.get<std::string>();
    if (leaf(alone) == nullptr) continue;
    method = rule->at("alone_method").get<std::string>();
    where = place(alone);
  }
  const std::string precomputed = rule->at("precomputed").get<std::string>();
  const nlohmann::json* there = leaf(precomputed);
  if (there != nullptr && !there->is_boolean()) {
    fail(precomputed, fmt::format("{} is no boolean", shown_value(*there)), "expected true or false");
  }
  const bool without_pass = there != nullptr && *there == true;
  if (without_pass && method.empty() && leaf(path) == nullptr) {
    method = rule->at("usual").get<std::string>();
    where = place(precomputed);
    out_.notes.push_back(fmt::format("{} is absent: {}, {}'s default", place(path), method, recipe_.program));
  }
  if (!method.empty()) out_.put("training.preference.method", method, where);
  const bool learns = !method.empty() || context_.has("training.preference.method");
  if (without_pass && learns) out_.put("training.preference.reference", false, place(precomputed));
}

// Samples of several lengths: packed in sequences where the key "packed" says so.
void RecipeReader::read_packing() {
  const auto keys = recipe_.rules.find("packing");
  if (keys == recipe_.rules.end()) return;
  const std::string path = keys->at("packed").get<std::string>();
  const auto told = leaves_.find(path);
  note_packing(told != leaves_.end() && told->second == true, keys->at("length").get<std::string>(), out_);
  if (told != leaves_.end()) of_adapter_.insert(path);
}

// Attention and MLP side by side, with one norm where they share it.
void RecipeReader::read_block() {
  const auto keys = recipe_.rules.find("parallel_block");
  if (keys == recipe_.rules.end()) return;
  const auto is_on = [this, &keys](const char* key) {
    const auto leaf = leaves_.find(keys->at(key).get<std::string>());
    return leaf != leaves_.end() && leaf->second == true;
  };
  const std::string where = place(keys->at("parallel").get<std::string>());
  if (is_on("parallel")) out_.put("model.block", is_on("one_norm") ? "parallel_one_norm" : "parallel", where);
}

// Selective recomputation "by operator", or a number N: of every N-th layer, whole.
void RecipeReader::read_layer_choice() {
  const auto keys = recipe_.rules.find("recompute_choice");
  if (keys == recipe_.rules.end()) return;
  const std::string path = keys->at("choice").get<std::string>();
  const auto leaf = leaves_.find(path);
  const auto mode = leaves_.find(keys->at("mode").get<std::string>());
  if (leaf == leaves_.end() || leaf->second == keys->at("by_operator")) return;
  const std::string text = leaf->second.is_string() ? leaf->second.get<std::string>() : leaf->second.dump();
  const auto every = parse_whole(text);
  if (!every || *every < 1 || *every > std::numeric_limits<int>::max()) {
    fail(path, fmt::format("{} is neither op nor a number of layers", shown_value(leaf->second)),
         "such as \"op\" or \"2\"");
  }
  if (mode == leaves_.end() || mode->second != keys->at("selective")) return;
  out_.put("layout.recompute", "full", place(path));
  out_.put("layout.recompute_every", static_cast<int>(*every), place(path));
}

void RecipeReader::finish() {
  const auto needed = recipe_.rules.value("needs", nlohmann::json::array());
  for (const nlohmann::json& field : needed) {
    const std::string name = field.get<std::string>();
    if (out_.has(name) || out_.has("model") || context_.has(name) || context_.has("model")) continue;
    throw ConfigError(
        {name, fmt::format("{} does not tell it", file_), file_, fmt::format("give --{} or --model NAME", name)});
  }
  const bool batch = out_.has("layout.global_batch_size") || context_.has("layout.global_batch_size");
  if (batch && out_.has("layout.accumulation")) {
    out_.job["layout"].erase("accumulation");
    out_.places.erase("layout.accumulation");
  }
  if (!batch && !out_.has("layout.accumulation") && out_.has("layout.micro_batch_size")) {
    out_.put("layout.accumulation", 1, out_.places.at("layout.micro_batch_size"));
    out_.notes.push_back(fmt::format("{}: no accumulation is given: one microbatch per replica", file_));
  }
}

ImportedJob RecipeReader::read() {
  const auto stack = recipe_.rules.find("stack");
  if (stack != recipe_.rules.end()) put_stack(stack->get<std::string>(), recipe_.program, file_, out_);
  const auto fixed = recipe_.rules.find("fixed");
  if (fixed != recipe_.rules.end()) {
    for (const auto& item : fixed->items()) out_.put(item.key(), item.value(), file_);
  }
  read_adapter();
  read_packing();
  read_preference();
  KeyJudge judge(table_, out_);
  // Those that a later one overrules go before.
  std::vector<std::pair<std::string, nlohmann::json>> ordered(leaves_.begin(), leaves_.end());
  const nlohmann::json first = recipe_.rules.value("first", nlohmann::json::array());
  std::stable_partition(ordered.begin(), ordered.end(), [&first](const auto& leaf) {
    return std::find(first.begin(), first.end(), leaf.first) != first.end();
  });
  for (const auto& [path, value] : ordered) {
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
    judge.judge(by_path ? path : leaf,
                silent              ? "null"
                : value.is_string() ? value.get<std::string>()
                                    : dumped(value),
                path, place(path));
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

bool is_recipe(const ForeignFile& file) {
  if (file.is_object()) return recipe_of(file.values()) != nullptr;
  if (file.syntax() == ForeignFile::Syntax::kToml) return true;
  if (file.syntax() != ForeignFile::Syntax::kYaml) return false;
  // Told by lines that begin with the last steps of the keys, without parsing: read_recipe looks again.
  const std::string text = "\n" + std::string(file.text());
  return std::any_of(recipes().begin(), recipes().end(), [&](const Recipe& recipe) {
    const nlohmann::json& needed = recipe.rules.at("detect");
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
        {"", fmt::format("{} is no recipe that flopcast knows", file.name()), file.name(), readable_formats()});
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
