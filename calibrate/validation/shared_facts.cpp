#include "calibrate/validation/shared_facts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "model/workload/transformer.hpp"

namespace flopcast {

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

}  // namespace flopcast
