#include "model/job/rules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/job/fields.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::json;

// A key and its new value; null: the key is omitted.
struct Setting {
  const Field<Layout>& field;
  Json value;
};

// Variants of a layout that breaks a rule, with one or two keys changed.
struct Trials {
  const ObjectReader& reader;
  const LayoutRule& rule;  // the broken rule
  const Job& asked;
  Job job;                           // with the layout being tried
  const LayoutRule* last = nullptr;  // last rule to check; null: check all

  bool obeys(const std::vector<Setting>& settings);
};

bool Trials::obeys(const std::vector<Setting>& settings) {
  job.layout = asked.layout;
  std::map<std::string_view, bool> changed;
  for (const auto& [field, value] : settings) {
    changed[field.key] = !value.is_null();
    field.copy(Layout(), job.layout);
    if (value.is_null()) continue;
    const Json object = {{std::string(field.key), value}};
    ObjectReader one(object, "layout", asked.origins);
    field.read(one, field, job.layout);
  }
  const auto is_given = [&](std::string_view key) {
    const auto place = changed.find(key);
    return place == changed.end() ? reader.has(key) : place->second;
  };
  const GivenKeys given = {is_given("dp"), is_given("global_batch_size"), is_given("shards")};
  if (!given.global_batch_size && !job.layout.accumulation) return false;
  settle_layout(job, given);
  for (const LayoutRule& one : layout_rules()) {
    if (one.broken(job, job.layout)) return &one != &rule && !is_given(keys_of(one).front());
    if (&one == last) return true;
  }
  return true;
}

// Ranks along an axis must divide the devices, microbatches the batch; for the batch, only the nearest sizes are tried.
std::vector<int> whole_candidates(const FieldInfo& field, const Job& job, int most) {
  const Layout& layout = job.layout;
  constexpr int kFew = 8;
  const int smallest = static_cast<int>(field.smallest);
  if (field.largest - field.smallest < kFew) {
    std::vector<int> all;
    for (int number = smallest; number <= static_cast<int>(field.largest); ++number) all.push_back(number);
    return all;
  }
  if (field.key == "global_batch_size") {
    const std::int64_t slice = std::int64_t{layout.dp} * layout.micro_batch_size;
    if (slice > static_cast<std::int64_t>(field.largest)) return {};
    const int below = static_cast<int>(layout.global_batch_size / slice * slice);
    const int above = below + static_cast<int>(slice);
    return below == 0 ? std::vector<int>{above} : std::vector<int>{below, above};
  }
  const int bound = most > 0 ? most : static_cast<int>(field.largest);
  if (field.key == "micro_batch_size") return divisors_of(layout.global_batch_size, bound);
  const int devices = job.cluster.devices();
  std::vector<int> ranks = divisors_of(devices, field.key == "pp" ? std::min(bound, job.model.layers) : bound);
  ranks.erase(ranks.begin(), std::lower_bound(ranks.begin(), ranks.end(), smallest));
  if (smallest == 0) ranks.insert(ranks.begin(), 0);
  return ranks;
}

std::vector<Json> candidates(const Field<Layout>& field, const Job& job, int most) {
  switch (field.kind) {
    case FieldKind::kWhole:
      return Json(whole_candidates(field, job, most)).get<std::vector<Json>>();
    case FieldKind::kBoolean:
      return {false, true};
    case FieldKind::kChoice:
      return Json(field.choices()).get<std::vector<Json>>();
    default: {
      const Json fallback = *field.fallback(field);
      if (fallback.is_null()) return {};
      return {fallback};
    }
  }
}

std::string shown(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string list_of(const std::vector<Json>& values) {
  constexpr std::size_t kMostShown = 24;
  std::vector<std::string> words;
  for (const Json& value : values) {
    if (words.size() < kMostShown) words.push_back(shown(value));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string flag_of(const FieldInfo& field) {
  return std::string(field.aliases.empty() ? field.key : field.aliases.front());
}

int largest_tried(const Trials& trials) {
  return trials.rule.within_node ? trials.asked.cluster.devices_per_node : 0;
}

std::vector<Json> mending(Trials& trials, const Field<Layout>& field, int most) {
  std::vector<Json> values = candidates(field, trials.asked, most);
  const auto wrong = [&](const Json& value) { return !trials.obeys({{field, value}}); };
  values.erase(std::remove_if(values.begin(), values.end(), wrong), values.end());
  return values;
}

// A figure that messages may mention in addition to the keys of a layout.
struct Figure {
  std::string_view name;
  std::string (*text)(const Job& job);
};

const std::vector<Figure>& figures() {
  static const std::vector<Figure> all = {
      {"heads", [](auto& job) { return std::to_string(job.model.heads); }},
      {"kv_heads", [](auto& job) { return std::to_string(job.model.kv_heads); }},
      {"ffn", [](auto& job) { return std::to_string(job.model.ffn); }},
      {"experts", [](auto& job) { return std::to_string(job.model.experts->count); }},
      {"expert_width", [](auto& job) { return std::to_string(job.model.experts->ffn); }},
      {"shared_width", [](auto& job) { return std::to_string(shared_width(job.model)); }},
      {"sequence_length", [](auto& job) { return std::to_string(job.training.sequence_length); }},
      {"tokens", [](auto& job) { return std::to_string(job.training.sequence_length / job.layout.cp); }},
      {"optimizer", [](auto& job) { return std::string(name_of(job.training.optimizer)); }},
      {"cluster", [](auto& job) { return job.cluster.name; }},
      {"devices", [](auto& job) { return std::to_string(job.cluster.devices()); }},
      {"devices_per_node", [](auto& job) { return std::to_string(job.cluster.devices_per_node); }},
      {"model_ranks", [](auto& job) { return std::to_string(model_ranks(job.layout)); }},
      {"ranks", [](auto& job) { return std::to_string(model_ranks(job.layout) * job.layout.dp); }},
      {"replicas", [](auto& job) { return std::to_string(job.layout.replicas()); }},
      {"slice", [](auto& job) { return std::to_string(std::int64_t{job.layout.dp} * job.layout.micro_batch_size); }},
      {"token_parts", [](auto& job) { return std::to_string(layout_grid(job.layout).token_parts); }},
      {"ulysses_ranks", [](auto& job) { return std::to_string(job.layout.ulysses_ranks()); }},
      {"rank_heads", [](auto& job) { return std::to_string(rank_heads(job)); }},
      {"rank_kv_heads", [](auto& job) { return std::to_string(rank_kv_heads(job)); }},
      {"uncut",
       [](auto& job) {
         const IndivisibleWidth uncut = uncut_by_grid(job.model, job.layout);
         return fmt::format("{} {} is not divisible by {}", uncut.what, uncut.number, uncut.parts);
       }},
      {"grid_shape",
       [](auto& job) {
         constexpr const char* kShapes[] = {"", "q²", "q²·tensor_depth", "q³"};
         return std::string(kShapes[static_cast<std::size_t>(job.layout.tensor_parallel)]);
       }},
      {"folded",
       [](auto& job) {
         const Layout& layout = job.layout;
         return layout.folds_experts() ? fmt::format("tp {} / etp {} · ", layout.tp, *layout.etp) : "";
       }},
      {"recompute_of",
       [](auto& job) { return std::string(job.profile ? "to a layer profile" : name_of(job.layout.recompute)); }},
  };
  return all;
}

// Replaces {NAME} in the text by the value of that key or figure.
std::string filled(std::string_view text, const Job& job) {
  std::string all;
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find('{'), text.size());
    all += text.substr(0, begin);
    if (begin == text.size()) break;
    const std::size_t end = text.find('}');
    const std::string_view name = text.substr(begin + 1, end - begin - 1);
    const auto figure =
        std::find_if(figures().begin(), figures().end(), [&](const Figure& one) { return one.name == name; });
    if (figure != figures().end()) {
      all += figure->text(job);
    } else {
      const Field<Layout>& field = field_named(layout_fields(), name);
      all += shown(*field.write(field, job.layout));
    }
    text.remove_prefix(end + 1);
  }
  return all;
}

// "valid: 1, 2, 4, or leave it out, or --etp 1"; empty if no change of a single key satisfies the rule.
std::string single_help(Trials& trials, const std::vector<const Field<Layout>*>& keys) {
  std::vector<std::string> ways;
  for (const Field<Layout>* field : keys) {
    const bool blamed = field == keys.front();
    const std::vector<Json> values = mending(trials, *field, blamed ? largest_tried(trials) : 0);
    if (!values.empty()) {
      ways.push_back(blamed ? fmt::format("{}: {}", filled(trials.rule.valid, trials.asked), list_of(values))
                            : fmt::format("{} {}", flag_of(*field), list_of(values)));
    }
    const bool may_be_absent = blamed && !field->otherwise.empty();
    if (may_be_absent && trials.obeys({{*field, nullptr}})) ways.emplace_back("leave it out");
  }
  return fmt::format("{}", fmt::join(ways, ", or "));
}

// "valid with --cp 1: 1, 2, 4".
std::string double_help(Trials& trials, const std::vector<const Field<Layout>*>& keys) {
  const std::vector<Json> blamed = candidates(*keys.front(), trials.asked, largest_tried(trials));
  for (std::size_t index = 1; index < keys.size(); ++index) {
    const Field<Layout>& other = *keys[index];
    for (const Json& with : candidates(other, trials.asked, 0)) {
      std::vector<Json> values;
      for (const Json& value : blamed) {
        if (trials.obeys({{*keys.front(), value}, {other, with}})) values.push_back(value);
      }
      if (values.empty()) continue;
      return fmt::format("{} with {} {}: {}", filled(trials.rule.valid, trials.asked), flag_of(other), shown(with),
                         list_of(values));
    }
  }
  return "";
}

}  // namespace

void settle_layout(Job& job, const GivenKeys& given) {
  Layout& layout = job.layout;
  const std::int64_t model_ranks = std::int64_t{layout.tp} * layout.pp * layout.cp;
  if (!given.dp) layout.dp = static_cast<int>(std::max<std::int64_t>(1, job.cluster.devices() / model_ranks));
  if (!given.global_batch_size && layout.accumulation) {
    const double batch = static_cast<double>(layout.dp) * layout.micro_batch_size * *layout.accumulation;
    layout.global_batch_size = batch <= kLargestBatch ? static_cast<int>(batch) : 0;
  }
  if (layout.data_parallel != DataParallel::kHsdp || given.shards) return;
  const int on_node = std::max(1, job.cluster.devices_per_node / layout.tp);
  layout.shards = std::min(on_node, layout.replicas());
  while (!shards_fit(layout, layout.shards)) --layout.shards;
}

GivenKeys given_keys(const ObjectReader& reader) {
  return {reader.has("dp"), reader.has("global_batch_size"), reader.has("shards")};
}

void refuse_layout(const ObjectReader& reader, const Job& job, const LayoutRule& rule) {
  const std::string problem = filled(rule.problem, job);
  if (!rule.help.empty()) reader.fail(keys_of(rule).front(), problem, std::string(rule.help));
  std::vector<const Field<Layout>*> keys;
  for (const std::string_view key : keys_of(rule)) keys.push_back(&field_named(layout_fields(), key));
  Trials trials = {reader, rule, job, job};
  std::string help = single_help(trials, keys);
  if (help.empty()) help = double_help(trials, keys);
  if (help.empty()) {
    trials.last = &rule;  // remaining problems are reported after this one is fixed
    help = single_help(trials, keys);
  }
  reader.fail(keys.front()->key, problem, help);
}

}  // namespace flopcast
