#include "calibrate/validation/published_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string_view>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/config/codec.hpp"
#include "model/workload/transformer.hpp"

namespace flopcast {

namespace {

using RowFields = Fields<PublishedRow>;

template <auto Member>
Entry<PublishedRow> count(std::string_view key) {
  return whole<Member>(key, 0, std::numeric_limits<int>::max(), "");
}

// A size of the model: at most a billion, so that products of several sizes do not overflow.
template <auto Member>
Entry<PublishedRow> size(std::string_view key) {
  return whole<Member>(key, 1, 1'000'000'000, "");
}

// A key that is read but never written.
Entry<PublishedRow> read_by(std::string_view key, FieldKind kind,
                            void (*read)(ObjectReader&, const FieldInfo&, PublishedRow&)) {
  return custom<PublishedRow>(key, kind, "", read, nullptr);
}

const RowFields& hardware_fields() {
  static const RowFields fields = {
      text<&PublishedRow::gpu>("gpu", ""), count<&PublishedRow::devices_per_node>("gpus_per_node"),
      count<&PublishedRow::devices>("num_gpus"), text<&PublishedRow::intra_node>("intra_node", ""),
      text<&PublishedRow::inter_node>("inter_node", "")};
  return fields;
}

const RowFields& row_model_fields() {
  static const RowFields fields = {
      size<&PublishedRow::layers>("layers"), size<&PublishedRow::hidden>("hidden"),
      size<&PublishedRow::heads>("heads"),   size<&PublishedRow::kv_heads>("kv_heads"),
      size<&PublishedRow::ffn>("ffn"),       size<&PublishedRow::sequence_length>("seq"),
      size<&PublishedRow::vocab>("vocab"),   amount<&PublishedRow::billion_parameters>("params_b", "")};
  return fields;
}

const RowFields& parallel_fields() {
  static const RowFields fields = {
      count<&PublishedRow::dp>("dp"),
      count<&PublishedRow::tp>("tp"),
      count<&PublishedRow::pp>("pp"),
      count<&PublishedRow::vpp>("vp"),
      count<&PublishedRow::cp>("cp"),
      count<&PublishedRow::ep>("ep"),
      read_by("sp", FieldKind::kBoolean,
              [](ObjectReader& reader, const FieldInfo& field, PublishedRow& row) {
                row.sequence_parallel = reader.boolean(field.key);
              }),
      count<&PublishedRow::zero>("zero_stage"),
      count<&PublishedRow::micro_batch_size>("micro_batch"),
      count<&PublishedRow::global_batch_size>("global_batch"),
      read_by("schedule", FieldKind::kText,
              [](ObjectReader& reader, const FieldInfo& field, PublishedRow& row) {
                row.schedule = lower_case(*reader.text(field.key));
              }),
      read_by("recompute", FieldKind::kText, [](ObjectReader& reader, const FieldInfo& field, PublishedRow& row) {
        row.recompute = reader.text(field.key);
      })};
  return fields;
}

const RowFields& measured_fields() {
  const auto read_time = [](ObjectReader& reader, const FieldInfo& field, PublishedRow& row) {
    constexpr double kShortest = 1e-9;  // seconds
    row.iteration_s = reader.amount(field.key);
    if (*row.iteration_s > 0.0 && *row.iteration_s < kShortest) {
      reader.fail(field.key, fmt::format("{} s is not a plausible step time", *row.iteration_s), "seconds");
    }
  };
  static const RowFields fields = {read_by("iteration_s", FieldKind::kNumber, read_time),
                                   amount<&PublishedRow::tflops_per_gpu>("tflops_per_gpu", ""),
                                   amount<&PublishedRow::tokens_per_s_per_gpu>("tokens_per_s_per_gpu", ""),
                                   amount<&PublishedRow::samples_per_s>("samples_per_s", ""),
                                   amount<&PublishedRow::peak_memory_gib>("peak_memory_gib", "")};
  return fields;
}

void read_layer(ObjectReader& reader, const FieldInfo& field, PublishedRow& row) {
  constexpr double kMilli = 1e-3;
  ObjectReader layer = *reader.object(field.key);
  const auto forward = layer.amount("forward_ms");
  const auto backward = layer.amount("backward_ms");
  if (forward && backward) row.layer_s = (*forward + *backward) * kMilli;
}

void read_collective(ObjectReader& reader, const FieldInfo& field, PublishedRow& row) {
  ObjectReader collective = *reader.object(field.key);
  const auto bytes = collective.amount("bytes");
  const auto seconds = collective.amount("time_s_out_of_place");
  if (bytes && seconds) row.collective = PublishedCollective{collective.text("op").value_or(""), *bytes, *seconds};
}

void read_missing(ObjectReader& reader, const FieldInfo& field, PublishedRow& row) {
  const nlohmann::json& list = *reader.find(field.key);
  if (!list.is_array()) reader.fail(field.key, fmt::format("{} is not a list", shown_value(list)), "");
  for (const nlohmann::json& item : list) {
    if (!item.is_string()) reader.fail(field.key, fmt::format("{} is not a string", shown_value(item)), "");
    row.missing.push_back(item.get<std::string>());
  }
}

const RowFields& row_fields() {
  static const RowFields fields = {text<&PublishedRow::id>("id", ""),
                                   text<&PublishedRow::citation>("source", ""),
                                   level<&hardware_fields>("hardware", ""),
                                   level<&row_model_fields>("model", ""),
                                   level<&parallel_fields>("parallel", ""),
                                   level<&measured_fields>("measured", ""),
                                   read_by("measured_layer", FieldKind::kObject, &read_layer),
                                   read_by("collective", FieldKind::kObject, &read_collective),
                                   boolean<&PublishedRow::out_of_memory>("oom", ""),
                                   text<&PublishedRow::flops_convention>("flops_convention", ""),
                                   text<&PublishedRow::note>("note", ""),
                                   text<&PublishedRow::precision>("precision", ""),
                                   boolean<&PublishedRow::complete>("complete_for_e2e", ""),
                                   read_by("missing", FieldKind::kList, &read_missing),
                                   boolean<&PublishedRow::used_in_fit>("used_in_fit", ""),
                                   text<&PublishedRow::group>("group", ""),
                                   text<&PublishedRow::inexpressible>("inexpressible", ""),
                                   object_as_given<&PublishedRow::job>("job", ""),
                                   object_as_given<&PublishedRow::software>("software", "")};
  return fields;
}

// Expands {"columns": ["id", "model.layers"], "common": {…}, "rows": [["a", 24]]} into a list of whole rows.
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
      // Job keys are absent, not null.
      const bool of_job = key.rfind("job.", 0) == 0 || key.rfind("software.", 0) == 0;
      if (of_job && rows[index][column].is_null()) continue;
      row[nlohmann::json::json_pointer(pointer_of(key))] = rows[index][column];
    }
    all.push_back(std::move(row));
  }
  return all;
}

// "notes.md line 917 (Rebalancing, 2022-02-28)": document and line number; empty without a line.
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

bool states_formats(const PublishedRow& row) {
  const std::string words = row.note + row.precision;
  return words.find("fp16") != std::string::npos || words.find("bf16") != std::string::npos ||
         words.find("fp8") != std::string::npos;
}

// A log states its number formats when they change, so a row that states none uses those of the row above it in the
// same document.
void inherit_formats(std::vector<PublishedRow>& rows) {
  std::vector<std::pair<std::size_t, std::string>> notes;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const Place place = place_of(rows[index]);
    if (place.line == 0 || states_formats(rows[index])) continue;
    const PublishedRow* above = nullptr;
    for (const PublishedRow& row : rows) {
      const Place other = place_of(row);
      const bool nearer = above == nullptr || other.line > place_of(*above).line;
      if (other.document == place.document && other.line < place.line && nearer && states_formats(row)) above = &row;
    }
    if (above != nullptr) notes.emplace_back(index, above->note);
  }
  for (const auto& [index, note] : notes) rows[index].note += "; as the row above: " + note;
}

// All texts of the file's "meta", concatenated.
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
    throw ConfigError({"rows", "is missing: this is not a file of published measurements", file,
                       R"(expected {"meta": {…}, "rows": [{"id": …, "hardware": …, "model": …, …}]})"});
  }
  PublishedFile published;
  published.source = source;
  published.about = text_of(json.value("meta", nlohmann::json::object()));
  const nlohmann::json rows = expanded_rows(json, file);
  Origins origins;
  origins.file = file;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    ObjectReader reader(rows[index], fmt::format("rows.{}", index), origins, JsonStyle::kData);
    PublishedRow& row = published.rows.emplace_back();
    read_fields(row_fields(), reader, row);
    if (row.id.empty()) reader.fail("id", "is missing", "");
  }
  inherit_formats(published.rows);
  share_facts(published.rows);
  return published;
}

namespace {

// The arXiv numbers in a citation: "… arXiv:2401.10241 Tables 6,8".
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
    row.in_zero_bubble_publication = !runs_zero_bubble(row) && share_one(publications_of(row), with_zero_bubble);
  }
}

// True if a GPT with this vocabulary and tied embeddings has the number of parameters that the row states, to the given
// digits.
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

// Vocabulary for the rows of one publication.
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

// Combines each choice so far with each value of one more field.
template <auto Member, typename Value>
void branch(Choices& choices, const std::string& name, const std::vector<Value>& values) {
  Choices all;
  for (const Completion& choice : choices) {
    for (const Value& value : values) {
      Completion& next = all.emplace_back(choice);
      next.row.*Member = value;
      next.open += (next.open.empty() ? "" : ", ") + name;
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
  constexpr int kTables = 2;  // embedding and head, which may count as layers
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
  if (!row.micro_batch_size) branch<&PublishedRow::micro_batch_size>(choices, "micro batch", micro_batches(row));
  if (!row.recompute) {
    branch<&PublishedRow::recompute, std::string>(choices, "recompute", {"none", "selective", "full"});
  }
  if (!row.sequence_parallel && row.tp.value_or(1) > 1) {
    branch<&PublishedRow::sequence_parallel, int>(choices, "sequence parallelism", {0, 1});
  }
  const bool interleaved = row.schedule.find("interleaved") != std::string::npos;
  if (interleaved && !row.vpp && row.pp.value_or(1) > 1) {
    branch<&PublishedRow::vpp>(choices, "chunks per rank", chunk_counts(row));
  }
  constexpr int kGradients = 2;
  if (row.zero == kGradients && row.pp.value_or(1) > 1) {
    branch<&PublishedRow::scatters_each_microbatch, int>(choices, "gradients scattered by every microbatch", {0, 1});
  }
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
