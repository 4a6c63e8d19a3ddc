#include "calibrate/validation/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "calibrate/device/fits.hpp"

namespace flopcast {

namespace {

// Error of a forecast that knows only FLOPs and the ideal pipeline; its single efficiency is the source's median.
std::optional<double> naive_error(const std::vector<EvaluatedRow>& rows) {
  std::vector<double> efficiencies;
  for (const EvaluatedRow& row : rows) {
    if (row.measured_s && row.ideal_s > 0.0) efficiencies.push_back(row.ideal_s / *row.measured_s);
  }
  if (efficiencies.empty()) return std::nullopt;
  const double median = upper_median(efficiencies);
  double sum = 0.0;
  for (const double efficiency : efficiencies) sum += std::abs(efficiency / median - 1.0);
  return sum / static_cast<double>(efficiencies.size());
}

using Rows = std::vector<const EvaluatedRow*>;

double chosen_over_fastest(const Rows& rows) {
  const auto by = [&rows](auto time) {
    return *std::min_element(rows.begin(), rows.end(),
                             [&time](const EvaluatedRow* a, const EvaluatedRow* b) { return time(*a) < time(*b); });
  };
  const EvaluatedRow* chosen = by([](const EvaluatedRow& row) { return row.predicted_s; });
  const EvaluatedRow* fastest = by([](const EvaluatedRow& row) { return *row.measured_s; });
  return *chosen->measured_s / *fastest->measured_s - 1.0;
}

// Spearman's rank correlation; equal values share their mean rank.
double rank_correlation_of(const Rows& rows) {
  const auto ranks = [&rows](auto value) {
    std::vector<double> all;
    for (const EvaluatedRow* row : rows) {
      double rank = 0.0;
      for (const EvaluatedRow* other : rows) {
        rank += value(*other) < value(*row) ? 1.0 : value(*other) == value(*row) ? 0.5 : 0.0;
      }
      all.push_back(rank - static_cast<double>(rows.size()) / 2.0);
    }
    return all;
  };
  const std::vector<double> forecast = ranks([](const EvaluatedRow& row) { return row.predicted_s; });
  const std::vector<double> measured = ranks([](const EvaluatedRow& row) { return *row.measured_s; });
  double both = 0.0;
  double one = 0.0;
  double other = 0.0;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    both += forecast[index] * measured[index];
    one += forecast[index] * forecast[index];
    other += measured[index] * measured[index];
  }
  return one > 0.0 && other > 0.0 ? both / std::sqrt(one * other) : 0.0;
}

// Rows with the same question: how to train this model on these devices with this batch.
auto question_of(const PublishedRow& row) {
  return std::make_tuple(row.gpu, row.devices, row.layers, row.hidden, row.heads, row.kv_heads, row.ffn, row.vocab,
                         row.sequence_length, row.global_batch_size, row.precision);
}

// Fields that two rows must share for their times to be comparable, apart from tensor parallelism and microbatch.
auto layout_of(const PublishedRow& row) {
  return std::make_tuple(row.pp, row.vpp, row.cp, row.ep, row.zero, row.sequence_parallel, row.schedule, row.recompute);
}

constexpr int kUsualNode = 8;

bool inside_node(const PublishedRow& row) {
  return row.tp.value_or(1) <= row.devices_per_node.value_or(kUsualNode);
}

// Time without the bubble of an ideal pipeline; 0 if the row does not state enough.
double time_without_bubble(const ComparedRow& row) {
  const PublishedRow& said = *row.published;
  const bool known = row.evaluated->measured_s && said.micro_batch_size && said.global_batch_size;
  if (!known) return 0.0;
  const double microbatches =
      static_cast<double>(*said.global_batch_size) / (said.dp.value_or(1) * *said.micro_batch_size);
  return *row.evaluated->measured_s / (1.0 + (said.pp.value_or(1) - 1) / (microbatches * said.vpp.value_or(1)));
}

// True if nothing in the first row could make it lose less time than the second.
bool must_be_slower(const PublishedRow& one, const PublishedRow& other) {
  if (question_of(one) != question_of(other) || layout_of(one) != layout_of(other)) return false;
  const int tp = one.tp.value_or(1);
  if (tp > other.tp.value_or(1)) return inside_node(one) && *one.micro_batch_size <= *other.micro_batch_size;
  return tp == other.tp.value_or(1) && one.dp == other.dp && *one.micro_batch_size < *other.micro_batch_size;
}

}  // namespace

std::optional<double> EvaluatedRow::error() const {
  if (!measured_s || *measured_s <= 0.0) return std::nullopt;
  return predicted_s / *measured_s - 1.0;
}

std::optional<double> EvaluatedRow::memory_error() const {
  if (!memory_measured_gib || !memory_predicted_gib || *memory_measured_gib <= 0.0) return std::nullopt;
  return *memory_predicted_gib / *memory_measured_gib - 1.0;
}

std::optional<bool> EvaluatedRow::inside() const {
  if (!interval || !error()) return std::nullopt;
  return interval->low_s <= *measured_s && *measured_s <= interval->high_s;
}

ErrorStatistics statistics_of(const std::vector<double>& signed_errors) {
  ErrorStatistics statistics;
  statistics.rows = static_cast<int>(signed_errors.size());
  if (signed_errors.empty()) return statistics;
  std::vector<double> errors;
  for (const double error : signed_errors) {
    errors.push_back(std::abs(error));
    statistics.mape += std::abs(error);
    statistics.bias += error;
  }
  const double count = static_cast<double>(errors.size());
  statistics.mape /= count;
  statistics.bias /= count;
  std::sort(errors.begin(), errors.end());
  const std::size_t middle = errors.size() / 2;
  statistics.median = errors.size() % 2 == 1 ? errors[middle] : (errors[middle - 1] + errors[middle]) / 2.0;
  constexpr double kNineTenths = 0.9;
  statistics.p90 = errors[static_cast<std::size_t>(std::ceil(kNineTenths * count)) - 1];
  statistics.max = errors.back();
  return statistics;
}

void summarise(SourceSummary& summary) {
  std::vector<double> times;
  std::vector<double> memories;
  summary.fit_rows = summary.out_of_memory_rows = summary.out_of_memory_found = 0;
  for (const EvaluatedRow& row : summary.evaluated) {
    if (row.used_in_fit) ++summary.fit_rows;
    if (const auto error = row.error()) times.push_back(*error);
    if (const auto error = row.memory_error()) memories.push_back(*error);
    if (row.out_of_memory) ++summary.out_of_memory_rows;
    if (row.out_of_memory && row.predicted_out_of_memory) ++summary.out_of_memory_found;
  }
  summary.time = statistics_of(times);
  summary.memory = statistics_of(memories);
  summary.naive_mape = naive_error(summary.evaluated);
  summary.of_group = group_statistics(summary.evaluated);
}

std::vector<EqualJobs> equal_jobs(const std::vector<EvaluatedRow>& rows) {
  std::map<std::string, Rows> by_job;
  for (const EvaluatedRow& row : rows) {
    if (!row.job.empty() && row.measured_s) by_job[row.job].push_back(&row);
  }
  std::vector<EqualJobs> all;
  for (const auto& [job, equal] : by_job) {
    if (equal.size() < 2) continue;
    EqualJobs found;
    double fastest = *equal.front()->measured_s;
    double slowest = fastest;
    for (const EvaluatedRow* row : equal) {
      found.ids.push_back(row->id);
      fastest = std::min(fastest, *row->measured_s);
      slowest = std::max(slowest, *row->measured_s);
    }
    found.spread = slowest / fastest - 1.0;
    all.push_back(std::move(found));
  }
  return all;
}

GroupStatistics group_statistics(const std::vector<EvaluatedRow>& rows) {
  GroupStatistics statistics;
  double inside = 0.0;
  double width = 0.0;
  int with_interval = 0;
  std::map<std::string, Rows> by_question;
  for (const EvaluatedRow& row : rows) {
    if (!row.error()) continue;
    if (!row.question.empty()) by_question[row.question].push_back(&row);
    if (!row.interval) continue;
    ++with_interval;
    inside += *row.inside() ? 1.0 : 0.0;
    width += row.interval->half_width;
  }
  if (with_interval > 0) {
    statistics.inside = inside / with_interval;
    statistics.half_width = width / with_interval;
  }
  constexpr std::size_t kFewestLayouts = 5;
  int questions = 0;
  double regret = 0.0;
  double correlation = 0.0;
  for (const auto& [question, answers] : by_question) {
    if (answers.size() < kFewestLayouts) continue;
    ++questions;
    regret += chosen_over_fastest(answers);
    correlation += rank_correlation_of(answers);
  }
  if (questions > 0) {
    statistics.regret = regret / questions;
    statistics.rank_correlation = correlation / questions;
  }
  for (const EqualJobs& equal : equal_jobs(rows)) {
    statistics.floor = std::max(statistics.floor.value_or(0.0), equal.spread);
  }
  return statistics;
}

std::vector<SourceSummary> groups_of(const SourceSummary& summary) {
  std::map<std::string, SourceSummary> groups;
  for (const EvaluatedRow& row : summary.evaluated) {
    if (row.group.empty()) continue;
    SourceSummary& group = groups[row.group];
    group.source = summary.source;
    group.group = row.group;
    group.evaluated.push_back(row);
    ++group.rows;
  }
  std::vector<SourceSummary> all;
  for (auto& [name, group] : groups) {
    summarise(group);
    all.push_back(std::move(group));
  }
  return all;
}

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
    const double regret = chosen_over_fastest(answers);
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
  constexpr double kRepeats = 0.01;  // times printed with two or three digits differ by this much through rounding
  std::vector<bool> contradicted(rows.size(), false);
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const double time = time_without_bubble(rows[index]);
    if (time <= 0.0) continue;
    contradicted[index] = std::any_of(rows.begin(), rows.end(), [&](const ComparedRow& other) {
      const double others = time_without_bubble(other);
      return others > 0.0 && must_be_slower(*other.published, *rows[index].published) &&
             others < time * (1.0 - kRepeats);
    });
  }
  return contradicted;
}

namespace {

// Four digits are more precise than any published time.
double rounded_error(double value) {
  constexpr double kDigits = 1e4;
  return std::round(value * kDigits) / kDigits;
}

bool alike(const ForecastFacts& a, const ForecastFacts& b) {
  return a.device == b.device && a.stack == b.stack && a.precision == b.precision && a.experts == b.experts &&
         a.slow_launches == b.slow_launches && a.exposed == b.exposed;
}

}  // namespace

std::vector<SourceErrors> source_errors(const std::vector<SourceSummary>& sources) {
  constexpr double kSharesApart = 20.0;  // exposed shares are rounded to a twentieth
  std::vector<SourceErrors> groups;
  int number = 0;
  for (const SourceSummary& source : sources) {
    for (const EvaluatedRow& row : source.evaluated) {
      if (!row.facts || !row.facts->unlike.empty() || !row.error()) continue;
      ForecastFacts facts = *row.facts;
      facts.exposed = std::round(facts.exposed * kSharesApart) / kSharesApart;
      auto group = std::find_if(groups.begin(), groups.end(), [&](const SourceErrors& one) {
        return one.source == number && alike(one.facts, facts);
      });
      if (group == groups.end()) group = groups.insert(groups.end(), {number, facts, {}});
      group->errors.push_back(-std::log1p(*row.error()));
    }
    ++number;
  }
  return groups;
}

std::string source_errors_file(const std::vector<SourceErrors>& groups) {
  std::string text = "{\n  \"groups\": [";
  const char* separator = "\n    ";
  for (const SourceErrors& group : groups) {
    nlohmann::ordered_json json = {{"source", group.source},
                                   {"device", group.facts.device},
                                   {"generation", name_of(group.facts.generation)},
                                   {"stack", group.facts.stack},
                                   {"precision", name_of(group.facts.precision)},
                                   {"experts", group.facts.experts},
                                   {"slow_launches", group.facts.slow_launches},
                                   {"exposed", group.facts.exposed},
                                   {"errors", nlohmann::ordered_json::array()}};
    for (const double error : group.errors) json["errors"].push_back(rounded_error(error));
    text += separator + json.dump();
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

std::vector<Coverage> interval_coverage(const std::vector<SourceErrors>& known) {
  struct Names {
    std::set<std::string> devices;
    std::set<std::string> stacks;
  };
  std::map<int, Coverage> by_source;
  std::map<int, Names> names;
  for (const SourceErrors& group : known) by_source[group.source].source = group.source;
  for (auto& [source, coverage] : by_source) {
    const IntervalModel model(known, source);
    for (const SourceErrors& group : known) {
      if (group.source != source) continue;
      names[source].devices.insert(group.facts.device);
      names[source].stacks.insert(group.facts.stack);
      const auto interval = model.interval(group.facts, 1.0);
      if (!interval) continue;
      for (const double error : group.errors) {
        const double measured = std::exp(error);
        ++coverage.rows;
        coverage.covered += interval->low_s <= measured && measured <= interval->high_s ? 1 : 0;
        coverage.half_width += interval->half_width;
      }
    }
  }
  const auto joined = [](const std::set<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
  };
  std::vector<Coverage> coverages;
  for (auto& [source, coverage] : by_source) {
    if (coverage.rows == 0) continue;
    coverage.half_width /= coverage.rows;
    coverage.devices = joined(names[source].devices);
    coverage.stacks = joined(names[source].stacks);
    coverages.push_back(coverage);
  }
  return coverages;
}

double mean_coverage(const std::vector<Coverage>& coverages) {
  double sum = 0.0;
  for (const Coverage& coverage : coverages) sum += static_cast<double>(coverage.covered) / coverage.rows;
  return coverages.empty() ? 0.0 : sum / static_cast<double>(coverages.size());
}

}  // namespace flopcast
