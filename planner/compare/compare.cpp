#include "planner/compare/compare.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <utility>

namespace flopcast {

namespace {

constexpr double kNinetyPercent = 1.6448536269514722;  // standard deviations of a normal distribution

// One relative error for every term, chosen so that the terms together give the interval of the whole step.
std::optional<double> term_error(const Result& result) {
  if (!result.interval) return std::nullopt;
  double squares = 0.0;
  for (const double seconds : compared_seconds(result)) {
    const double share = seconds / result.iteration.time_s;
    squares += share * share;
  }
  return result.interval->half_width / std::sqrt(squares);
}

// Draws from the standard normal distribution; the sequence is the same with every standard library.
double normal(std::mt19937& random) {
  const double range = static_cast<double>(std::mt19937::max()) + 2.0;
  const auto uniform = [&] { return (static_cast<double>(random()) + 1.0) / range; };
  const double radius = std::sqrt(-2.0 * std::log(uniform()));
  constexpr double kTurn = 6.283185307179586;
  return radius * std::cos(kTurn * uniform());
}

}  // namespace

std::optional<TimeRatio> compare_times(const Result& a, const Result& b) {
  const std::optional<double> error = term_error(a);
  if (!error) return std::nullopt;
  const std::vector<double> first = compared_seconds(a);
  const std::vector<double> second = compared_seconds(b);
  double squares = 0.0;
  for (std::size_t term = 0; term < first.size(); ++term) {
    const double difference = first[term] / a.iteration.time_s - second[term] / b.iteration.time_s;
    squares += difference * difference;
  }
  const double ratio = b.iteration.time_s / a.iteration.time_s;
  return TimeRatio{ratio, ratio * *error * std::sqrt(squares)};
}

std::optional<RankingCertainty> certainty_of(const std::vector<const Result*>& ranked) {
  if (ranked.empty()) return std::nullopt;
  const std::optional<double> half_width = term_error(*ranked.front());
  if (!half_width) return std::nullopt;
  const double error = *half_width / kNinetyPercent;
  std::vector<std::vector<double>> seconds;
  for (const Result* result : ranked) seconds.push_back(compared_seconds(*result));
  constexpr int kDraws = 2'000;
  std::mt19937 random(1);
  std::vector<int> beaten(ranked.size(), 0);
  int best = 0;
  double sum = 0.0;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<double> times(ranked.size(), 0.0);
    for (std::size_t term = 0; term < seconds.front().size(); ++term) {
      const double factor = 1.0 + error * normal(random);
      for (std::size_t row = 0; row < ranked.size(); ++row) times[row] += factor * seconds[row][term];
    }
    const double fastest = *std::min_element(times.begin(), times.end());
    best += times.front() <= fastest ? 1 : 0;
    sum += fastest / times.front();
    for (std::size_t row = 1; row < ranked.size(); ++row) beaten[row] += times.front() < times[row] ? 1 : 0;
  }
  RankingCertainty certainty;
  certainty.first_is_best = static_cast<double>(best) / kDraws;
  certainty.optimism = 1.0 - sum / kDraws;
  constexpr double kSure = 0.9;
  for (std::size_t row = 0; row < ranked.size(); ++row)
    certainty.alike.push_back(row > 0 && beaten[row] < kSure * kDraws);
  return certainty;
}

Reasons reasons_for(const Result& a, const Result& b, double share) {
  Reasons reasons;
  for (const ComparedTerm& term : compare_terms(a, b)) {
    if (std::abs(term.delta_s()) < share * a.iteration.time_s) continue;
    (term.delta_s() > 0.0 ? reasons.in_favour : reasons.against).push_back(term);
  }
  const auto larger = [](const ComparedTerm& one, const ComparedTerm& other) {
    return std::abs(one.delta_s()) > std::abs(other.delta_s());
  };
  std::stable_sort(reasons.in_favour.begin(), reasons.in_favour.end(), larger);
  std::stable_sort(reasons.against.begin(), reasons.against.end(), larger);
  return reasons;
}

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> all = {{"DP", true, false, false},   {"PP", false, false, true},
                                            {"TP", false, true, false},   {"DP+PP", true, false, true},
                                            {"DP+TP", true, true, false}, {"DP+PP+TP", true, true, true}};
  return all;
}

namespace {

std::optional<PlannedLayout> fastest(const Job& job, const SearchSpace& space, const ParallelFor& parallel_for) {
  SearchOptions options;
  options.ranked = 1;
  options.pareto_reach = 1.0;
  LayoutSearch search(space, options, parallel_for);
  search.explore(job, std::numeric_limits<double>::infinity(), "");
  const SearchResult result = search.result();
  if (result.ranked.empty()) return std::nullopt;
  return result.ranked.front();
}

}  // namespace

std::vector<StrategyAnswer> compare_strategies(const Job& job, const SearchSpace& space,
                                               const ParallelFor& parallel_for) {
  Job unlimited = job;
  constexpr double kAnything = 1e9;
  unlimited.cluster.device.memory_capacity = job.cluster.device.memory_capacity * kAnything;
  for (Device& device : unlimited.cluster.node_devices) device.memory_capacity *= kAnything;
  std::vector<int> several;
  for (int ranks = 2; ranks <= job.cluster.devices(); ++ranks) {
    if (job.cluster.devices() % ranks == 0) several.push_back(ranks);
  }
  std::vector<StrategyAnswer> answers;
  for (const Strategy& strategy : strategies()) {
    SearchSpace part = space;
    part.cp = {1};
    part.dp = strategy.dp ? several : std::vector<int>{1};
    part.tp = strategy.tp ? several : std::vector<int>{1};
    part.pp = strategy.pp ? several : std::vector<int>{1};
    StrategyAnswer answer;
    answer.strategy = strategy;
    answer.planned = fastest(job, part, parallel_for);
    answer.fits = answer.planned.has_value();
    if (!answer.fits) answer.planned = fastest(unlimited, part, parallel_for);
    answers.push_back(std::move(answer));
  }
  return answers;
}

namespace {

Job with_transport(const Job& job, Transport transport) {
  Job changed = job;
  if (job.training.transport != Transport::kNccl) changed.training.transport = transport;
  changed.training.gradient_transport = transport;
  return changed;
}

Optimization nccl_instead_of(const Job& job, Transport transport, const char* name) {
  const bool all = job.training.transport != Transport::kNccl;
  const char* axes = all ? "all axes" : job.layout.cp > 1 ? "dp with cp" : "dp";
  return {fmt::format("NCCL instead of {}", name), fmt::format("{}: {} to nccl", axes, name_of(transport)), "2-3x",
          with_transport(job, transport), with_transport(job, Transport::kNccl)};
}

Job with_kept_buffers(const Job& job) {
  Job changed = job;
  changed.training.stack.gather_allocation = Seconds(0);
  return changed;
}

Job with_bits(const Job& job, int bits) {
  Job changed = job;
  changed.layout.compression = Compression();
  if (bits == 0) return changed;
  changed.layout.compression.kind = Compression::Kind::kQuantized;
  changed.layout.compression.bits = bits;
  return changed;
}

Job with_overlap(const Job& job, bool overlap) {
  Job changed = job;
  changed.training.stack.overlap_gradient_reduction = overlap;
  return changed;
}

// One optimizer step per microbatch of a replica: the baseline that accumulation is compared with.
Job one_microbatch(const Job& job) {
  Job changed = job;
  changed.layout.global_batch_size = job.layout.dp * job.layout.micro_batch_size;
  return changed;
}

}  // namespace

std::vector<Optimization> optimizations_of(const Job& job) {
  std::vector<Optimization> list;
  if (job.cluster.host_bandwidth.value() > 0.0) {
    list.push_back(nccl_instead_of(job, Transport::kGloo, "Gloo"));
    list.push_back(nccl_instead_of(job, Transport::kMpi, "MPI"));
  }
  constexpr double kBitsPerByte = 8.0;
  const double full_bits = kBitsPerByte * job.training.stack.gradient_bytes;
  const bool compressible = job.layout.data_parallel == DataParallel::kDdp && job.layout.zero == 0;
  for (const int bits : {8, 4}) {
    if (!compressible) continue;
    list.push_back({fmt::format("{}-bit gradients", bits),
                    fmt::format("dp: gradients of {:.0f} bits to {} bits", full_bits, bits), "2-4x", with_bits(job, 0),
                    with_bits(job, bits)});
  }
  const int microbatches = job.layout.microbatches();
  if (microbatches > 1 && job.layout.pp == 1) {
    list.push_back({fmt::format("accumulation over {} microbatches", microbatches),
                    fmt::format("dp: one reduction per microbatch to one per {} microbatches", microbatches),
                    fmt::format("{}x less often", microbatches), one_microbatch(job), job});
  }
  list.push_back({"overlapped gradient reduction", "dp: reduction after the backward pass to overlapped with it",
                  "20-30 %", with_overlap(job, false), with_overlap(job, true)});
  if (job.layout.weight_shards() > 1 && job.training.stack.gather_allocation.value() > 0.0) {
    list.push_back({"preallocated gather buffers", "dp: gathers that allocate to gathers into preallocated buffers", "",
                    job, with_kept_buffers(job)});
  }
  return list;
}

}  // namespace flopcast
