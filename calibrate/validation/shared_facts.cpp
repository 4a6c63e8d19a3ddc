#include "calibrate/validation/shared_facts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>
#include <set>
#include <string>

#include "model/workload/transformer.hpp"

namespace flopcast {

namespace {

// "… arXiv:2401.10241 Tables 6,8" -> "2401.10241"; the whole citation where there is no such number.
std::string publication_of(const PublishedRow& row) {
  static const std::regex number(R"((\d{4}\.\d{5}))");
  std::smatch found;
  return std::regex_search(row.citation, found, number) ? found[1].str() : row.citation;
}

void mark_publications(std::vector<PublishedRow>& rows) {
  std::set<std::string> with_zero_bubble;
  for (const PublishedRow& row : rows) {
    if (runs_zero_bubble(row)) with_zero_bubble.insert(publication_of(row));
  }
  for (PublishedRow& row : rows) {
    row.beside_zero_bubble = !runs_zero_bubble(row) && with_zero_bubble.count(publication_of(row)) > 0;
  }
}

// Whether a GPT with this vocabulary has as many parameters as the row says, to the digits it gives.
bool agrees(const PublishedRow& row, int vocabulary) {
  if (!row.billion_parameters || !row.layers || !row.hidden || !row.heads || !row.sequence_length) return true;
  constexpr int kMlpWidthOfGpt = 4;
  const int hidden = *row.hidden;
  if (row.ffn.value_or(kMlpWidthOfGpt * hidden) != kMlpWidthOfGpt * hidden) return true;
  Transformer model;
  model.layers = *row.layers;
  model.hidden = hidden;
  model.heads = *row.heads;
  model.kv_heads = row.kv_heads.value_or(*row.heads);
  model.head_dim = hidden / *row.heads;
  model.ffn = kMlpWidthOfGpt * hidden;
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

void fill_vocabularies(std::vector<PublishedRow>& rows) {
  constexpr std::array<int, 4> kUsual = {50257, 32000, 128256, 151936};  // GPT-2, Llama 2, Llama 3, Qwen
  const auto agrees_with_all = [&rows](int vocabulary) {
    return std::all_of(rows.begin(), rows.end(),
                       [vocabulary](const PublishedRow& row) { return row.vocab || agrees(row, vocabulary); });
  };
  const auto usual = std::find_if(kUsual.begin(), kUsual.end(), agrees_with_all);
  const int vocabulary = usual == kUsual.end() ? kUsual.front() : *usual;
  for (PublishedRow& row : rows) {
    if (!row.vocab) row.vocab = vocabulary;
  }
}

}  // namespace

bool runs_zero_bubble(const PublishedRow& row) {
  return row.schedule.rfind("zb-", 0) == 0;
}

void share_facts(std::vector<PublishedRow>& rows) {
  mark_publications(rows);
  fill_vocabularies(rows);
}

}  // namespace flopcast
