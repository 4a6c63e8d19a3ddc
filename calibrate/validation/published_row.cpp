#include "calibrate/validation/published_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/config/object_reader.hpp"
#include "model/workload/transformer.hpp"

namespace flopcast {

namespace {

// The rows of a file, with complaints that name it.
class RowReader : public JsonReader {
 public:
  RowReader(const nlohmann::json& object, std::string field, const Origins& origins)
      : JsonReader(object, field, origins, JsonStyle::kData), part_(std::move(field)), origins_(origins) {}

  /// An absent text is an empty one.
  std::string words(const char* key) { return text(key).value_or(""); }

  std::optional<double> amount_of(const char* key) {
    const std::optional<double> value = number(key);
    if (value && !(*value >= 0.0)) fail(key, fmt::format("{} is not a number of zero or more", *value), "");
    return value;
  }

  /// A size of the model: at most a billion, so that products of a few stay numbers.
  std::optional<int> size(const char* key) { return whole(key, 1, 1'000'000'000); }

  std::vector<std::string> texts(const char* key) {
    const nlohmann::json* value = find(key);
    std::vector<std::string> all;
    if (value == nullptr) return all;
    if (!value->is_array()) fail(key, fmt::format("{} is no list", shown_value(*value)), "");
    for (const nlohmann::json& item : *value) {
      if (!item.is_string()) fail(key, fmt::format("{} is not a text", shown_value(item)), "");
      all.push_back(item.get<std::string>());
    }
    return all;
  }

  /// An absent object reads as one without fields.
  RowReader part(const char* key) {
    static const nlohmann::json empty = nlohmann::json::object();
    const nlohmann::json* value = find(key);
    return {value == nullptr ? empty : *value, part_ + "." + key, origins_};
  }

 private:
  std::string part_;
  const Origins& origins_;
};

void read_setup(RowReader& fields, PublishedRow& row) {
  RowReader hardware = fields.part("hardware");
  row.gpu = hardware.words("gpu");
  row.devices_per_node = hardware.whole("gpus_per_node", 0);
  row.devices = hardware.whole("num_gpus", 0);
  row.intra_node = hardware.words("intra_node");
  row.inter_node = hardware.words("inter_node");
  RowReader model = fields.part("model");
  row.layers = model.size("layers");
  row.hidden = model.size("hidden");
  row.heads = model.size("heads");
  row.kv_heads = model.size("kv_heads");
  row.ffn = model.size("ffn");
  row.sequence_length = model.size("seq");
  row.vocab = model.size("vocab");
  row.billion_parameters = model.amount_of("params_b");
  RowReader parallel = fields.part("parallel");
  row.dp = parallel.whole("dp", 0);
  row.tp = parallel.whole("tp", 0);
  row.pp = parallel.whole("pp", 0);
  row.vpp = parallel.whole("vp", 0);
  row.cp = parallel.whole("cp", 0);
  row.ep = parallel.whole("ep", 0);
  row.sequence_parallel = parallel.boolean("sp");
  row.zero = parallel.whole("zero_stage", 0);
  row.micro_batch_size = parallel.whole("micro_batch", 0);
  row.global_batch_size = parallel.whole("global_batch", 0);
  row.schedule = lower_case(parallel.words("schedule"));
  if (parallel.find("recompute") != nullptr) row.recompute = parallel.words("recompute");
}

void read_measurements(RowReader& fields, PublishedRow& row) {
  constexpr double kMilli = 1e-3;
  RowReader measured = fields.part("measured");
  row.iteration_s = measured.amount_of("iteration_s");
  constexpr double kShortest = 1e-9;  // seconds
  if (row.iteration_s && *row.iteration_s > 0.0 && *row.iteration_s < kShortest) {
    measured.fail("iteration_s", fmt::format("{} s is no step's time", *row.iteration_s), "seconds");
  }
  row.tflops_per_gpu = measured.amount_of("tflops_per_gpu");
  row.tokens_per_s_per_gpu = measured.amount_of("tokens_per_s_per_gpu");
  row.samples_per_s = measured.amount_of("samples_per_s");
  row.peak_memory_gib = measured.amount_of("peak_memory_gib");
  RowReader layer = fields.part("measured_layer");
  const auto forward = layer.amount_of("forward_ms");
  const auto backward = layer.amount_of("backward_ms");
  if (forward && backward) row.layer_s = (*forward + *backward) * kMilli;
  if (fields.find("collective") != nullptr) {
    RowReader collective = fields.part("collective");
    const auto bytes = collective.amount_of("bytes");
    const auto seconds = collective.amount_of("time_s_out_of_place");
    if (bytes && seconds) row.collective = PublishedCollective{collective.words("op"), *bytes, *seconds};
  }
  row.out_of_memory = fields.boolean("oom").value_or(false);
}

PublishedRow read_row(const nlohmann::json& json, std::size_t index, const Origins& origins) {
  RowReader fields(json, fmt::format("rows.{}", index), origins);
  PublishedRow row;
  row.id = fields.words("id");
  if (row.id.empty()) fields.fail("id", "is missing", "");
  row.citation = fields.words("source");
  read_setup(fields, row);
  read_measurements(fields, row);
  row.flops_convention = fields.words("flops_convention");
  row.note = fields.words("note");
  row.precision = fields.words("precision");
  row.complete = fields.boolean("complete_for_e2e").value_or(false);
  row.missing = fields.texts("missing");
  row.used_in_fit = fields.boolean("used_in_fit").value_or(false);
  row.group = fields.words("group");
  row.inexpressible = fields.words("inexpressible");
  for (const auto& [key, part] : {std::pair("job", &row.job), std::pair("software", &row.software)}) {
    const nlohmann::json* value = fields.find(key);
    if (value == nullptr || value->is_null()) continue;
    if (!value->is_object()) fields.fail(key, fmt::format("{} is no object", shown_value(*value)), "");
    *part = *value;
  }
  return row;
}

// {"columns": ["id", "model.layers"], "common": {…}, "rows": [["a", 24]]} as a list of whole rows.
nlohmann::json expanded_rows(const nlohmann::json& json, const std::string& file) {
  const nlohmann::json& rows = json.at("rows");
  if (!json.contains("columns")) return rows;
  const nlohmann::json& columns = json.at("columns");
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const std::string field = fmt::format("rows.{}", index);
    if (!rows[index].is_array() || !columns.is_array() || rows[index].size() != columns.size()) {
      throw ConfigError({field, "does not have one value for each of \"columns\"",
                         fmt::format("{}:{}", file, pointer_of(field)), ""});
    }
    nlohmann::json row = json.value("common", nlohmann::json::object());
    for (std::size_t column = 0; column < columns.size(); ++column) {
      const std::string& key = columns[column].get_ref<const std::string&>();
      // Keys of a job are absent, not null.
      const bool of_job = key.rfind("job.", 0) == 0 || key.rfind("software.", 0) == 0;
      if (of_job && rows[index][column].is_null()) continue;
      row[nlohmann::json::json_pointer(pointer_of(key))] = rows[index][column];
    }
    all.push_back(std::move(row));
  }
  return all;
}

// "notes.md line 917 (Rebalancing, 2022-02-28)": the document, and the place in it; empty without a line.
struct Place {
  std::string document;
  int line = 0;
};

Place place_of(const PublishedRow& row) {
  constexpr std::string_view kLine = " line ";
  const std::size_t at = row.citation.find(kLine);
  if (at == std::string::npos) return {};
  Place place = {row.citation.substr(0, at)};
  std::from_chars(row.citation.data() + at + kLine.size(), row.citation.data() + row.citation.size(), place.line);
  return place;
}

bool says_formats(const PublishedRow& row) {
  const std::string words = row.note + row.precision;
  return words.find("fp16") != std::string::npos || words.find("bf16") != std::string::npos ||
         words.find("fp8") != std::string::npos;
}

// A log says how it trains where that changes. A row that does not say it was trained like the one above it in the same
// document.
void take_formats_over(std::vector<PublishedRow>& rows) {
  std::vector<std::pair<std::size_t, std::string>> notes;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const Place place = place_of(rows[index]);
    if (place.line == 0 || says_formats(rows[index])) continue;
    const PublishedRow* above = nullptr;
    for (const PublishedRow& row : rows) {
      const Place other = place_of(row);
      const bool nearer = above == nullptr || other.line > place_of(*above).line;
      if (other.document == place.document && other.line < place.line && nearer && says_formats(row)) above = &row;
    }
    if (above != nullptr) notes.emplace_back(index, above->note);
  }
  for (const auto& [index, note] : notes) rows[index].note += "; as the row above: " + note;
}

// All texts of the file's "meta", one after the other.
std::string text_of(const nlohmann::json& meta) {
  std::string text;
  if (!meta.is_object()) return text;
  for (const auto& item : meta.items()) {
    if (item.value().is_string()) text += item.value().get<std::string>() + "; ";
  }
  return text;
}

}  // namespace

PublishedFile read_published(const nlohmann::json& json, const std::string& source, const std::string& file) {
  if (!json.is_object() || !json.contains("rows") || !json.at("rows").is_array()) {
    throw ConfigError({"rows", "is missing: this is no file of published measurements", file,
                       R"(expected {"meta": {…}, "rows": [{"id": …, "hardware": …, "model": …, …}]})"});
  }
  PublishedFile published;
  published.source = source;
  published.about = text_of(json.value("meta", nlohmann::json::object()));
  const nlohmann::json rows = expanded_rows(json, file);
  Origins origins;
  origins.file = file;
  for (std::size_t index = 0; index < rows.size(); ++index)
    published.rows.push_back(read_row(rows[index], index, origins));
  take_formats_over(published.rows);
  share_facts(published.rows);
  return published;
}

namespace {

// The arXiv numbers that a citation names: "… arXiv:2401.10241 Tables 6,8".
std::set<std::string> publications_of(const PublishedRow& row) {
  static const std::regex number(R"(arxiv:\s*(\d{4}\.\d{4,5}))", std::regex::icase);
  std::set<std::string> all;
  const std::string& text = row.citation;
  for (std::sregex_iterator found(text.begin(), text.end(), number), end; found != end; ++found) {
    all.insert((*found)[1].str());
  }
  return all;
}

bool share_one(const std::set<std::string>& some, const std::set<std::string>& others) {
  return std::any_of(some.begin(), some.end(), [&others](const std::string& one) { return others.count(one) > 0; });
}

void mark_publications(std::vector<PublishedRow>& rows) {
  std::set<std::string> with_zero_bubble;
  for (const PublishedRow& row : rows) {
    if (runs_zero_bubble(row)) with_zero_bubble.merge(publications_of(row));
  }
  for (PublishedRow& row : rows) {
    row.beside_zero_bubble = !runs_zero_bubble(row) && share_one(publications_of(row), with_zero_bubble);
  }
}

// Whether a GPT with this vocabulary and tied embeddings has as many parameters as the row says, to the digits it
// gives.
bool agrees(const PublishedRow& row, int vocabulary) {
  if (!row.billion_parameters || !row.layers || !row.hidden || !row.heads || !row.sequence_length) return true;
  if (!is_gpt(row) || row.note.find("untied") != std::string::npos) return true;
  Transformer model;
  model.layers = *row.layers;
  model.hidden = *row.hidden;
  model.heads = *row.heads;
  model.kv_heads = *row.heads;
  model.head_dim = *row.hidden / *row.heads;
  model.ffn = static_cast<int>(kMlpWidthOfGpt * *row.hidden);
  model.vocab = vocabulary;
  model.sequence_length = *row.sequence_length;
  constexpr double kBillion = 1e9;
  const double counted = static_cast<double>(count_parameters(model).total) / kBillion;
  constexpr int kMostDigits = 3;
  double digits = 1.0;
  for (int digit = 0; digit < kMostDigits; ++digit) {
    const double scaled = *row.billion_parameters * digits;
    if (std::abs(scaled - std::round(scaled)) < 1e-6) break;
    digits *= 10.0;
  }
  return std::round(counted * digits) == std::round(*row.billion_parameters * digits);
}

// Of one publication's rows.
int vocabulary_of(const std::vector<PublishedRow*>& rows) {
  const auto stated = std::find_if(rows.begin(), rows.end(), [](const PublishedRow* row) { return row->vocab; });
  if (stated != rows.end()) return *(*stated)->vocab;
  constexpr std::array<int, 4> kUsual = {50257, 32000, 128256, 151936};  // GPT-2, Llama 2, Llama 3, Qwen
  const auto agrees_with_all = [&rows](int vocabulary) {
    return std::all_of(rows.begin(), rows.end(),
                       [vocabulary](const PublishedRow* row) { return agrees(*row, vocabulary); });
  };
  const auto usual = std::find_if(kUsual.begin(), kUsual.end(), agrees_with_all);
  return usual == kUsual.end() ? kUsual.front() : *usual;
}

void fill_vocabularies(std::vector<PublishedRow>& rows) {
  std::map<std::set<std::string>, std::vector<PublishedRow*>> by_publication;
  std::vector<std::vector<PublishedRow*>> groups;
  for (PublishedRow& row : rows) {
    const std::set<std::string> publications = publications_of(row);
    if (publications.empty()) {
      groups.push_back({&row});
    } else {
      by_publication[publications].push_back(&row);
    }
  }
  for (auto& [publications, group] : by_publication) groups.push_back(std::move(group));
  for (const std::vector<PublishedRow*>& group : groups) {
    const int vocabulary = vocabulary_of(group);
    for (PublishedRow* row : group) row->vocab = row->vocab.value_or(vocabulary);
  }
}

}  // namespace

bool is_gpt(const PublishedRow& row) {
  if (!row.hidden || !row.heads) return false;
  return row.ffn.value_or(kMlpWidthOfGpt * *row.hidden) == kMlpWidthOfGpt * *row.hidden &&
         row.kv_heads.value_or(*row.heads) == *row.heads;
}

bool runs_zero_bubble(const PublishedRow& row) {
  return row.schedule.rfind("zb-", 0) == 0;
}

void share_facts(std::vector<PublishedRow>& rows) {
  mark_publications(rows);
  fill_vocabularies(rows);
}

namespace {

using Choices = std::vector<Completion>;

// Each choice so far with each value of one more field.
template <typename Value>
void branch(Choices& choices, const char* name, const std::vector<Value>& values,
            const std::function<void(PublishedRow&, const Value&)>& set) {
  Choices all;
  for (const Completion& choice : choices) {
    for (const Value& value : values) {
      Completion next = choice;
      set(next.row, value);
      next.open += (next.open.empty() ? "" : ", ") + std::string(name);
      all.push_back(std::move(next));
    }
  }
  choices = std::move(all);
}

std::vector<int> micro_batches(const PublishedRow& row) {
  std::vector<int> sizes;
  const int of_replica = *row.global_batch_size / row.dp.value_or(1);
  for (const int size : {1, 2, 4, 8}) {
    if (of_replica % size == 0) sizes.push_back(size);
  }
  return sizes;
}

std::vector<int> chunk_counts(const PublishedRow& row) {
  std::vector<int> counts;
  const int stages = row.pp.value_or(1);
  constexpr int kTables = 2;  // embedding and head, where they count as layers
  for (int count = 2; count * stages <= *row.layers + kTables && stages > 1; ++count) {
    const int chunks = count * stages;
    if (*row.layers % chunks == 0 || (*row.layers + kTables) % chunks == 0) counts.push_back(count);
  }
  return counts;
}

}  // namespace

std::vector<Completion> completions(const PublishedRow& row) {
  const bool known = !row.gpu.empty() && row.layers && row.hidden && row.heads && row.sequence_length &&
                     row.global_batch_size && row.dp && row.ep.value_or(1) <= 1;
  if (row.complete || !known) return {};
  Choices choices = {{row, ""}};
  choices.front().row.complete = true;
  if (!row.micro_batch_size) {
    branch<int>(choices, "micro batch", micro_batches(row),
                [](PublishedRow& open, const int& size) { open.micro_batch_size = size; });
  }
  if (!row.recompute) {
    branch<std::string>(choices, "recompute", {"none", "selective", "full"},
                        [](PublishedRow& open, const std::string& policy) { open.recompute = policy; });
  }
  if (!row.sequence_parallel && row.tp.value_or(1) > 1) {
    branch<bool>(choices, "sequence parallelism", {false, true},
                 [](PublishedRow& open, const bool& split) { open.sequence_parallel = split; });
  }
  const bool interleaved = row.schedule.find("interleaved") != std::string::npos;
  if (interleaved && !row.vpp && row.pp.value_or(1) > 1) {
    branch<int>(choices, "chunks per rank", chunk_counts(row),
                [](PublishedRow& open, const int& count) { open.vpp = count; });
  }
  constexpr int kGradients = 2;
  if (row.zero == kGradients && row.pp.value_or(1) > 1) {
    branch<bool>(choices, "gradients scattered by every microbatch", {false, true},
                 [](PublishedRow& open, const bool& each) { open.scatters_each_microbatch = each; });
  }
  if (choices.empty()) return {};
  return choices;
}

std::vector<PublishedFile> shipped_published() {
  std::vector<PublishedFile> files;
  for (const EmbeddedFile& file : embedded_published()) {
    const std::string_view name = file.path.substr(file.path.rfind('/') + 1);
    const std::string source(name.substr(0, name.rfind('.')));
    files.push_back(read_published(nlohmann::json::parse(file.text), source, std::string(file.path)));
  }
  return files;
}

}  // namespace flopcast
