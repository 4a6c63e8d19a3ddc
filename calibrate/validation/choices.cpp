#include "calibrate/validation/choices.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>

namespace flopcast {

namespace {

// Rows that answer the same question: how to train this model on these devices with this batch.
auto question_of(const PublishedRow& row) {
  return std::make_tuple(row.gpu, row.devices, row.layers, row.hidden, row.heads, row.kv_heads, row.ffn, row.vocab,
                         row.sequence_length, row.global_batch_size, row.precision);
}

// What two rows must share for their times to be comparable but for tensor parallelism and microbatch.
auto layout_of(const PublishedRow& row) {
  return std::make_tuple(row.pp, row.vpp, row.cp, row.ep, row.zero, row.sequence_parallel, row.schedule, row.recompute);
}

constexpr int kUsualNode = 8;

bool inside_node(const PublishedRow& row) {
  return row.tp.value_or(1) <= row.devices_per_node.value_or(kUsualNode);
}

// Time less the bubble of an ideal pipeline; 0 where the row does not say enough.
double time_without_bubble(const ComparedRow& row) {
  const PublishedRow& said = *row.published;
  const bool known = row.evaluated->measured_s && said.micro_batch_size && said.global_batch_size;
  if (!known) return 0.0;
  const double microbatches =
      static_cast<double>(*said.global_batch_size) / (said.dp.value_or(1) * *said.micro_batch_size);
  return *row.evaluated->measured_s / (1.0 + (said.pp.value_or(1) - 1) / (microbatches * said.vpp.value_or(1)));
}

// Whether the first has nothing that could make it lose less than the second.
bool ought_to_lose_more(const PublishedRow& one, const PublishedRow& other) {
  if (question_of(one) != question_of(other) || layout_of(one) != layout_of(other)) return false;
  const int tp = one.tp.value_or(1);
  if (tp > other.tp.value_or(1)) return inside_node(one) && *one.micro_batch_size <= *other.micro_batch_size;
  return tp == other.tp.value_or(1) && one.dp == other.dp && *one.micro_batch_size < *other.micro_batch_size;
}

}  // namespace

ChoiceStatistics choice_statistics(const std::vector<ComparedRow>& rows) {
  std::map<decltype(question_of(*rows.front().published)), std::vector<const EvaluatedRow*>> groups;
  for (const ComparedRow& row : rows) {
    if (row.evaluated->measured_s && row.published->layers) {
      groups[question_of(*row.published)].push_back(row.evaluated);
    }
  }
  ChoiceStatistics statistics;
  constexpr std::size_t kFewest = 3;
  for (const auto& group : groups) {
    const std::vector<const EvaluatedRow*>& answers = group.second;
    if (answers.size() < kFewest) continue;
    const auto by = [&answers](auto time) {
      return *std::min_element(answers.begin(), answers.end(),
                               [&time](const EvaluatedRow* a, const EvaluatedRow* b) { return time(*a) < time(*b); });
    };
    const EvaluatedRow* chosen = by([](const EvaluatedRow& row) { return row.predicted_s; });
    const EvaluatedRow* fastest = by([](const EvaluatedRow& row) { return *row.measured_s; });
    const double regret = *chosen->measured_s / *fastest->measured_s - 1.0;
    ++statistics.groups;
    statistics.rows += static_cast<int>(answers.size());
    statistics.mean += regret;
    statistics.worst = std::max(statistics.worst, regret);
  }
  if (statistics.groups > 0) statistics.mean /= statistics.groups;
  return statistics;
}

std::vector<double> speed_up_errors(const std::vector<ComparedRow>& rows) {
  std::vector<double> errors;
  const std::string plain = "1f1b";
  const auto ranks_of = [](const PublishedRow& row) {
    return std::make_tuple(row.tp, row.pp, row.dp, row.cp, row.sequence_parallel, row.recompute);
  };
  for (const ComparedRow& row : rows) {
    const PublishedRow& said = *row.published;
    if (said.schedule == plain || said.pp.value_or(1) == 1 || !row.evaluated->error()) continue;
    const auto before = std::find_if(rows.begin(), rows.end(), [&](const ComparedRow& other) {
      return other.published->schedule == plain && other.evaluated->error() &&
             question_of(*other.published) == question_of(said) && ranks_of(*other.published) == ranks_of(said);
    });
    if (before == rows.end()) continue;
    errors.push_back((1.0 + *before->evaluated->error()) / (1.0 + *row.evaluated->error()) - 1.0);
  }
  return errors;
}

std::vector<bool> contradicted_rows(const std::vector<ComparedRow>& rows) {
  constexpr double kRepeats = 0.01;  // times printed with two or three digits differ by this much without meaning it
  std::vector<bool> contradicted(rows.size(), false);
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const double time = time_without_bubble(rows[index]);
    if (time <= 0.0) continue;
    contradicted[index] = std::any_of(rows.begin(), rows.end(), [&](const ComparedRow& other) {
      const double others = time_without_bubble(other);
      return others > 0.0 && ought_to_lose_more(*other.published, *rows[index].published) &&
             others < time * (1.0 - kRepeats);
    });
  }
  return contradicted;
}

}  // namespace flopcast
