#include "calibrate/verdict/verdict.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <functional>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/device/fits.hpp"
#include "model/cost/compute.hpp"
#include "model/layout/rank_grid.hpp"

namespace flopcast {

namespace {

struct Evidence {
  double explains_s = 0.0;
  double weight = 0.0;  // multiplies the prior
  std::string evidence;
};
struct Beliefs {
  std::array<Evidence, kGapCauses> all;

  Evidence& operator[](GapCause cause) { return all[static_cast<std::size_t>(cause)]; }
};

Job without_overlap(Job job) {
  Stack& stack = job.training.stack;
  stack.overlap_gradient_reduction = false;
  stack.overlap_parameter_gather = false;
  stack.overlap_tp_with_weight_gradient = false;
  stack.overlap_tp_in_pieces = false;
  stack.overlap_experts = ExpertOverlap::kNone;
  return job;
}

// Probability weight of a deviation: a normal curve.
double believable(double off) {
  return std::exp(-0.5 * std::min(off * off, 60.0));
}
// Probability weight of a factor: a normal curve over its logarithm.
double plausible(double factor, double usual) {
  return believable(std::log(factor) / usual);
}

// How well an effect of a given size explains the gap.
double fit_to_gap(double explains_s, double gap_s, double forecast_s) {
  constexpr double kShare = 0.2;   // of the gap
  constexpr double kFloor = 0.03;  // of the step: a typical forecast error
  return believable((explains_s - gap_s) / (kShare * std::abs(gap_s) + kFloor * forecast_s));
}

// The factor on one figure of the job at which the step takes as long as measured.
struct Needed {
  double factor = 1.0;
  double explains_s = 0.0;
};

class WhatIf {
 public:
  WhatIf(const Forecast& answer, double measured_s, const ReadFile& read_file)
      : job_(answer.step.job),
        memory_(answer.result.memory),
        time_s_(answer.result.iteration.time_s),
        measured_s_(measured_s),
        read_file_(read_file) {
    job_.training.fitted.reset();
  }

  double effect_of(const Job& changed) const { return step_time(changed, read_file_) - time_s_; }

  // Finds the factor by bisection over its logarithm, from 1 to `farthest`.
  Needed needed(double farthest, const std::function<void(Job&, double)>& scale) const {
    const auto effect = [&](double factor) {
      Job changed = job_;
      scale(changed, factor);
      return effect_of(changed);
    };
    const double gap = measured_s_ - time_s_;
    const double most = effect(farthest);
    if (std::abs(most) <= std::abs(gap) || most * gap <= 0.0) return {farthest, most * gap > 0.0 ? most : 0.0};
    constexpr int kHalvings = 12;
    double near = 0.0;
    double far = std::log(farthest);
    for (int halving = 0; halving < kHalvings; ++halving) {
      const double middle = (near + far) / 2.0;
      (std::abs(effect(std::exp(middle))) < std::abs(gap) ? near : far) = middle;
    }
    return {std::exp(far), gap};
  }

  // `what` states the needed figure.
  Evidence belief_in(const Needed& needed, double usual, const std::string& what) const {
    return {needed.explains_s, fit_to_gap(needed.explains_s) * plausible(needed.factor, usual),
            fmt::format("{} would explain {} of the gap", what, time_in_seconds(std::abs(needed.explains_s)))};
  }

  double fit_to_gap(double explains_s) const { return flopcast::fit_to_gap(explains_s, gap_s(), time_s_); }
  const Job& job() const { return job_; }
  const MemoryResult& memory() const { return memory_; }
  double gap_s() const { return measured_s_ - time_s_; }
  double time_s() const { return time_s_; }

 private:
  Job job_;
  const MemoryResult& memory_;
  double time_s_ = 0.0;
  double measured_s_ = 0.0;
  const ReadFile& read_file_;
};

// Scales measured message rates inside nodes or between them.
void scale_rates(std::vector<GroupCurve>& curves, bool between, double factor) {
  for (GroupCurve& curve : curves) {
    if ((curve.nodes > 1) != between) continue;
    std::vector<MessageSegment> segments = curve.curve.segments();
    for (MessageSegment& segment : segments) segment.beta /= factor;
    curve.curve = MessageCurve(std::move(segments));
  }
}

Evidence slow_link(const WhatIf& what_if) {
  constexpr double kFarthest = 0.02;
  constexpr double kUsual = 1.2;  // slow links typically run at a half, a quarter or a tenth of their rate
  const auto belief = [&](bool between) {
    const Needed needed =
        what_if.needed(what_if.gap_s() > 0.0 ? kFarthest : 1.0 / kFarthest, [between](Job& job, double factor) {
          (between ? job.cluster.nic_efficiency : job.cluster.intra_efficiency) *= factor;
          scale_rates(job.cluster.curves, between, factor);
        });
    return what_if.belief_in(needed, kUsual,
                             fmt::format("links {} at {:.0f} % of their rate",
                                         between ? "between nodes" : "inside nodes", 1e2 * needed.factor));
  };
  Evidence inside = belief(false);
  Evidence between = belief(true);
  return inside.weight > between.weight ? inside : between;
}

Evidence clocks(const WhatIf& what_if) {
  constexpr double kFarthest = 0.3;
  constexpr double kUsual = 0.25;
  const Needed needed =
      what_if.needed(what_if.gap_s() > 0.0 ? kFarthest : 1.0 / kFarthest, [](Job& job, double factor) {
        for (FlopsPerSecond& peak : job.cluster.device.peak) peak *= factor;
      });
  return what_if.belief_in(needed, kUsual, fmt::format("GEMMs at {:.0f} % of their rate", 1e2 * needed.factor));
}

Evidence host_bound(const WhatIf& what_if) {
  // Launch times of a kernel range from those of compiled graphs to those of eager Python on a slow core.
  constexpr double kUsualHost = 10e-6;
  constexpr double kSlowHost = 200e-6;
  constexpr double kUsual = 1.0;
  const double now = std::max(kUsualHost, what_if.job().training.stack.host_time_per_kernel.value());
  const Needed needed = what_if.needed(kSlowHost / now, [now](Job& job, double factor) {
    job.training.stack.host_time_per_kernel = Seconds(now * factor);
  });
  return what_if.belief_in(needed, kUsual, fmt::format("{:.0f} us of host time per kernel", 1e6 * now * needed.factor));
}

Evidence no_overlap(const WhatIf& what_if) {
  const double effect = what_if.effect_of(without_overlap(what_if.job()));
  // On shared links, messages that do not overlap may also contend with fewer others.
  if (effect <= 0.0) return {0.0, 0.0, "communication overlap does not shorten this step"};
  return {effect, what_if.fit_to_gap(effect),
          fmt::format("without communication overlap the step would take {} longer", time_in_seconds(effect))};
}

Evidence recomputed(const WhatIf& what_if) {
  Job job = what_if.job();
  const bool more = what_if.gap_s() > 0.0;
  const Recompute other = more ? Recompute::kFull : Recompute::kNone;
  if (job.layout.recompute == other) {
    return {0.0, 0.0, fmt::format("the job already recomputes {}", more ? "everything" : "nothing")};
  }
  job.layout.recompute = other;
  const double effect = what_if.effect_of(job);
  return {effect, what_if.fit_to_gap(effect),
          fmt::format("{} would make the step {} {}", more ? "recomputing everything" : "recomputing nothing",
                      time_in_seconds(std::abs(effect)), more ? "longer" : "shorter")};
}

Evidence straggler(const WhatIf& what_if) {
  constexpr double kUsual = 0.3;
  if (what_if.gap_s() <= 0.0) return {0.0, 0.0, "a slow rank cannot shorten a step"};
  const double factor = 1.0 + what_if.gap_s() / what_if.time_s();
  return {
      what_if.gap_s(), plausible(factor, kUsual),
      fmt::format("one rank that is {:.0f} % slower than the others would delay all of them", 1e2 * (factor - 1.0))};
}

Evidence data_loader(const WhatIf& what_if) {
  constexpr double kUsual = 0.5;
  if (what_if.gap_s() <= 0.0) return {0.0, 0.0, "waiting for data cannot shorten a step"};
  return {what_if.gap_s(), plausible(1.0 + what_if.gap_s() / what_if.time_s(), kUsual),
          fmt::format("waiting {} for a batch in each step would explain the gap", time_in_seconds(what_if.gap_s()))};
}

Evidence memory_pressure(const WhatIf& what_if) {
  constexpr double kFrom = 0.85;
  const double filled = what_if.memory().shown_gib / what_if.memory().capacity_gib;
  if (what_if.gap_s() <= 0.0) return {0.0, 0.0, "a full memory cannot shorten a step"};
  const std::string told = fmt::format("the forecast fills {:.0f} % of the memory", 1e2 * filled);
  if (filled < kFrom) return {0.0, 0.02, told};
  return {what_if.gap_s(), 1.0 + 10.0 * (filled - kFrom), told};
}

struct CauseRule {
  Evidence (*belief)(const WhatIf& what_if);
  // Chosen: how often this is the cause if nothing else is known. The thresholds of the evidence below are chosen too,
  // because no published collection of explained gaps was found to fit them to.
  double prior;
  const char* check;
};
// In the order of GapCause.
constexpr std::array<CauseRule, kGapCauses> kRules = {{
    {&slow_link, 0.2,
     "compare nccl-tests of the job's groups with the cluster's bandwidths; run ibstat and nvidia-smi nvlink -s"},
    {&no_overlap, 0.17,
     "check that gradients, parameters and tensor-parallel traffic are overlapped "
     "(--overlap-grad-reduce, --overlap-param-gather, --tp-comm-overlap), and CUDA_DEVICE_MAX_CONNECTIONS"},
    {&host_bound, 0.15,
     "record a trace: if the GPU is idle between short kernels, larger microbatches, CUDA graphs or fused kernels "
     "shorten the step"},
    {&clocks, 0.13,
     "run nvidia-smi -q -d CLOCK,PERFORMANCE,POWER on every node: SM clock, throttle reasons, power cap"},
    {&data_loader, 0.1,
     "repeat the run with random tokens instead of the data set, or with more workers: does the step get shorter?"},
    {&straggler, 0.1,
     "compare step time and GEMM rate by rank: is one rank slow while the others wait? run nvidia-smi and dcgmi diag "
     "there"},
    {&recomputed, 0.1,
     "compare the program's recomputation (--recompute-granularity, activation checkpointing) with the job's"},
    {&memory_pressure, 0.05,
     "check torch.cuda.memory_stats: num_alloc_retries above 0, reserved memory near the capacity; try "
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
}};

void add_evidence(Evidence& belief, double times, const std::string& why) {
  belief.weight *= times;
  belief.evidence += "; " + why;
}

// Weighs how steps vary, and whether they grow longer.
void weigh_steps(const StepsOfLog& steps, Beliefs& beliefs) {
  constexpr std::size_t kEnough = 8;
  constexpr double kSpiky = 1.12;
  if (steps.seconds.size() < kEnough) return;
  const double tail = steps.p95_s / steps.median_s;
  const double low = steps.p5_s / steps.median_s;
  const std::size_t quarter = steps.seconds.size() / 4;
  const auto first = steps.seconds.begin();
  const double early = upper_median<double>({first, first + static_cast<std::ptrdiff_t>(quarter)});
  const double late =
      upper_median<double>({steps.seconds.end() - static_cast<std::ptrdiff_t>(quarter), steps.seconds.end()});
  constexpr double kDrift = 1.04;
  if (late > early * kDrift && tail < kSpiky) {
    add_evidence(beliefs[GapCause::kClocks], 3.0,
                 fmt::format("steps grew from {} to {} over the log, as they do when devices heat up",
                             time_in_seconds(early), time_in_seconds(late)));
  }
  if (tail > kSpiky || low < 1.0 / kSpiky) {
    const std::string why = fmt::format("steps vary: 5th to 95th percentile {} to {}", time_in_seconds(steps.p5_s),
                                        time_in_seconds(steps.p95_s));
    add_evidence(beliefs[GapCause::kDataLoader], 2.5, why);
    add_evidence(beliefs[GapCause::kMemoryPressure], 2.5, why);
    for (const GapCause cause : {GapCause::kNoOverlap, GapCause::kRecompute, GapCause::kHostBound, GapCause::kClocks}) {
      beliefs[cause].weight *= 0.5;
    }
  } else {
    beliefs[GapCause::kDataLoader].weight *= 0.7;
    beliefs[GapCause::kMemoryPressure].weight *= 0.7;
  }
}

// Weighs timers over ranks, as Megatron prints them, and memory.
void weigh_log(const TrainingLog& log, double gap_s, const Result& forecast, Beliefs& beliefs) {
  constexpr double kRelevantShare = 0.02;
  const double felt = kRelevantShare * forecast.iteration.time_s;
  const auto timer = [&log](const char* name) {
    const auto found = log.timers.find(name);
    return found == log.timers.end() ? nullptr : &found->second;
  };
  const auto weigh = [&](GapCause cause, double seconds, double times, const std::string& found,
                         const std::string& none) {
    Evidence& belief = beliefs[cause];
    if (seconds <= felt) return add_evidence(belief, 0.05, none);
    belief.explains_s = std::min(seconds, std::max(gap_s, 0.0));
    add_evidence(belief, times * std::min(1.0, seconds / std::max(gap_s, felt)), found);
  };
  if (const LoggedTimer* data = timer("batch-generator")) {
    const std::string taken = fmt::format("the timer batch-generator shows {}", time_in_seconds(data->longest_s));
    weigh(GapCause::kDataLoader, data->longest_s, 20.0, taken, taken + ", too little to matter");
  }
  double compute_spread = 0.0;
  bool tells_ranks = false;
  for (const char* name : {"forward-compute", "backward-compute"}) {
    const LoggedTimer* compute = timer(name);
    if (compute == nullptr || !compute->shortest_s) continue;
    tells_ranks = true;
    compute_spread += compute->longest_s - *compute->shortest_s;
  }
  if (tells_ranks) {
    weigh(GapCause::kStraggler, compute_spread, 15.0,
          fmt::format("passes of the slowest rank take {} longer than those of the fastest",
                      time_in_seconds(compute_spread)),
          "passes take equally long on all ranks");
  }
  if (log.max_reserved_gib) {
    Evidence& belief = beliefs[GapCause::kMemoryPressure];
    const double filled = *log.max_reserved_gib / forecast.memory.capacity_gib;
    constexpr double kFull = 0.93;
    if (filled > kFull) {
      belief.explains_s = std::max(gap_s, 0.0);
      belief.weight = std::max(belief.weight, 1.0);
      add_evidence(belief, 4.0, fmt::format("the log reports {:.1f} GiB reserved", *log.max_reserved_gib));
    } else {
      add_evidence(belief, 0.1, fmt::format("the log reports at most {:.1f} GiB reserved", *log.max_reserved_gib));
    }
  }
}

double idle_of(const TracedFigures& figures, IdleCause cause) {
  return figures.idle_s[static_cast<std::size_t>(cause)];
}

// Communication of the forecast: total and exposed.
struct ForecastTraffic {
  double total_s = 0.0;
  double exposed_s = 0.0;
};
// In spans of `flopcast run`, passes include their communication: only pipeline messages and the flush remain.
ForecastTraffic traffic_of(const Result& result, bool outside_passes) {
  ForecastTraffic traffic;
  for (const Axis axis : kResultAxes) {
    if (outside_passes && axis != Axis::kPipeline && axis != Axis::kData) continue;
    traffic.total_s += result.communication[axis].total_s;
    traffic.exposed_s += result.communication[axis].exposed_s;
  }
  return traffic;
}

// Median ratio of measured to modelled time of GEMMs of known shape; absent for fewer than three shapes.
std::optional<double> slowdown_of(const std::vector<Sample>& products, const Job& job) {
  constexpr std::size_t kFewest = 3;
  constexpr double kLeast = 50e-6;  // shorter ones are dominated by launches and do not reflect clocks
  std::vector<double> ratios;
  for (const Sample& sample : products) {
    const std::optional<Precision> precision = parse<Precision>(sample.key.dtype);
    if (!precision || !sample.key.shape || sample.seconds.empty()) continue;
    if (!(job.cluster.device.peak_of(*precision).value() > 0.0)) continue;
    const GemmShape shape{sample.key.shape->m, sample.key.shape->n, sample.key.shape->k, 1};
    const double expected = ComputeModel(job.cluster.device, *precision)
                                .gemm(shape, element_size(*precision).value(), *precision == Precision::kFp8)
                                .value();
    if (expected > kLeast) ratios.push_back(upper_median(sample.seconds) / expected);
  }
  if (ratios.size() < kFewest) return std::nullopt;
  return upper_median(ratios);
}

// Share of the excess computation that is done again rather than done more slowly.
double share_computed_again(const TracedFigures& seen, const Forecast& answer, const std::vector<Sample>& products,
                            double recomputing_s, double more_s) {
  constexpr double kTwice = 1.5;
  constexpr double kSlow = 1.08;
  if (answer.step.job.layout.recompute != Recompute::kNone) return 0.0;
  // Recomputation happens in backward passes, while slow kernels are slow in both directions.
  if (seen.forward_slowdown > 0.0 && more_s > 0.0) {
    const double slower_s = (seen.forward_slowdown - 1.0) * (seen.compute_s - more_s);
    return std::clamp(1.0 - slower_s / more_s, 0.0, 1.0);
  }
  if (seen.forwards_per_backward > 0.0) return seen.forwards_per_backward > kTwice ? 1.0 : 0.0;
  if (const std::optional<double> slower = slowdown_of(products, answer.step.job)) return *slower > kSlow ? 0.0 : 1.0;
  return fit_to_gap(recomputing_s, more_s, answer.result.iteration.time_s);
}

// Replaces the evidence of forecasts by that of traces: each cause explains the part that the traces show.
void weigh_traces(const std::vector<TracedRank>& traces, const std::vector<Sample>& products, const Forecast& answer,
                  double gap_s, Beliefs& beliefs) {
  const Result& result = answer.result;
  const TracedFigures seen = figures_of(traces, answer);
  const ForecastTraffic traffic = traffic_of(result, seen.waiting_separate);
  const auto set = [&](GapCause cause, double explains_s, const std::string& evidence) {
    Evidence& belief = beliefs[cause];
    belief.explains_s = explains_s;
    const double share = gap_s > 0.0 ? std::clamp(explains_s / gap_s, 0.0, 1.0) : 0.0;
    constexpr double kLeast = 0.003;
    belief.weight = kLeast + share * share;
    belief.evidence = evidence;
  };
  // Communication: first the time of the links, then the part that is no longer hidden.
  const double longer = seen.communication_s - traffic.total_s;
  const double hidden = traffic.total_s > 0.0 ? 1.0 - traffic.exposed_s / traffic.total_s : 0.0;
  const double lost =
      std::max(0.0, hidden * std::min(traffic.total_s, seen.communication_s) - (seen.communication_s - seen.exposed_s));
  const double more_exposed = std::max(0.0, seen.exposed_s - traffic.exposed_s);
  const double by_links = std::clamp(longer, 0.0, more_exposed);
  set(GapCause::kSlowLink, by_links,
      fmt::format("the rank with the {} communicates for {} (forecast: {})",
                  seen.waiting_separate ? "most exposed communication" : "least waiting",
                  time_in_seconds(seen.communication_s), time_in_seconds(traffic.total_s)));
  set(GapCause::kNoOverlap, std::min(lost, more_exposed - by_links),
      fmt::format("computation hides {:.0f} % of communication (forecast: {:.0f} %)", 1e2 * seen.hidden_share,
                  1e2 * hidden));
  // Differences between ranks.
  set(GapCause::kStraggler, seen.straggler_excess_s,
      traces.size() > 1 ? seen.slowest : "only one rank was traced, so there are no others to compare it with");
  // Computation: done again, or slower.
  const double more_compute = std::max(0.0, seen.more_compute_s);
  const double again =
      share_computed_again(seen, answer, products, beliefs[GapCause::kRecompute].explains_s, more_compute);
  const std::optional<double> slower = slowdown_of(products, answer.step.job);
  const std::string of_products =
      slower ? fmt::format("; GEMMs of known shape take {:.2f} times as long as forecast", *slower) : "";
  set(GapCause::kRecompute, again * more_compute,
      (seen.forward_slowdown > 0.0
           ? fmt::format("forward passes take {:.2f} times their forecast", seen.forward_slowdown)
       : seen.forwards_per_backward > 0.0
           ? fmt::format("{:.2g} forward attention kernels per backward one", seen.forwards_per_backward)
           : "the trace has no fused-attention kernels") +
          of_products);
  set(GapCause::kClocks, (1.0 - again) * more_compute,
      fmt::format("kernels run for {} on the median rank, {} {} than forecast", time_in_seconds(seen.compute_s),
                  time_in_seconds(std::abs(seen.more_compute_s)), seen.more_compute_s < 0.0 ? "shorter" : "longer") +
          of_products);
  // Idle devices.
  const auto idle = [&](GapCause cause, IdleCause why, const char* what) {
    set(cause, idle_of(seen, why),
        fmt::format("the device is idle for {} {}", time_in_seconds(idle_of(seen, why)), what));
  };
  idle(GapCause::kDataLoader, IdleCause::kData, "while the host waits for data");
  idle(GapCause::kMemoryPressure, IdleCause::kMemory, "while the host allocates or frees device memory");
  idle(GapCause::kHostBound, IdleCause::kLaunch,
       seen.has_launches ? "before kernels that were launched late" : "in gaps of less than 0.1 ms");
  // Idle time that no host activity explains: a wait at the start of every step is usually one for data.
  constexpr double kMostly = 0.6;
  const double unknown = idle_of(seen, IdleCause::kOther) - result.breakdown.bubble_s;
  if (unknown > 0.0 && seen.leading_idle_s > kMostly * unknown &&
      idle_of(seen, IdleCause::kData) < seen.leading_idle_s) {
    const double leading = std::min(seen.leading_idle_s, unknown);
    set(GapCause::kDataLoader, leading,
        fmt::format("the device is idle for {} at the start of a step", time_in_seconds(leading)));
  }
}

// Key that sorts "node2" before "node10": numbers without leading zeros, each preceded by its number of digits.
std::string natural_key(const std::string& name) {
  const auto is_digit = [](char letter) { return std::isdigit(static_cast<unsigned char>(letter)) != 0; };
  std::string key;
  for (auto letter = name.begin(); letter != name.end();) {
    const auto end = std::find_if_not(letter, name.end(), is_digit);
    if (end == letter) {
      key += *letter++;
      continue;
    }
    const std::string digits(std::find_if(letter, end, [](char digit) { return digit != '0'; }), end);
    key += fmt::format("0{:03}{}", digits.size(), digits);
    letter = end;
  }
  return key;
}

// Numbers traces without ranks if they cover all ranks: by file, and within a file by process and device.
std::vector<TracedRank> numbered(std::vector<TracedRank> traces, const Job& job) {
  const bool told = std::any_of(traces.begin(), traces.end(), [](const TracedRank& r) { return r.rank.has_value(); });
  if (told || traces.size() != static_cast<std::size_t>(RankGrid(job.layout).ranks())) return traces;
  std::stable_sort(traces.begin(), traces.end(),
                   [](const TracedRank& a, const TracedRank& b) { return natural_key(a.file) < natural_key(b.file); });
  for (std::size_t rank = 0; rank < traces.size(); ++rank) traces[rank].rank = static_cast<int>(rank);
  return traces;
}

// Runs of `flopcast run` have one rank per place in the pipeline.
void refuse_other_pipelines(const std::vector<TracedRank>& traces, std::size_t ranks) {
  std::map<std::string, std::size_t> by_file;
  for (const TracedRank& rank : traces) by_file[rank.file] += rank.waiting_separate ? 1 : 0;
  for (const auto& [file, found] : by_file) {
    if (found == 0 || found == ranks) continue;
    refuse_at(file, fmt::format("the run has {} pipeline ranks, but the job has {}", found, ranks),
              "compare with the job that was run");
  }
}

}  // namespace

std::vector<Hypothesis> explain_gap(const Forecast& answer, const GapEvidence& evidence, const ReadFile& read_file) {
  refuse_other_pipelines(evidence.traces, answer.timeline.ranks.size());
  const WhatIf what_if(answer, evidence.measured_s, read_file);
  Beliefs beliefs;
  for (std::size_t index = 0; index < kGapCauses; ++index) beliefs.all[index] = kRules[index].belief(what_if);
  // If a step is no longer than forecast, waiting that a trace shows has nothing to explain.
  if (!evidence.traces.empty() && what_if.gap_s() > 0.0) {
    weigh_traces(numbered(evidence.traces, answer.step.job), evidence.products, answer, what_if.gap_s(), beliefs);
  }
  if (evidence.steps) weigh_steps(*evidence.steps, beliefs);
  if (evidence.log) weigh_log(*evidence.log, what_if.gap_s(), answer.result, beliefs);
  std::vector<Hypothesis> all;
  double total = 0.0;
  for (std::size_t index = 0; index < kGapCauses; ++index) total += kRules[index].prior * beliefs.all[index].weight;
  for (std::size_t index = 0; index < kGapCauses; ++index) {
    const Evidence& belief = beliefs.all[index];
    const double score = total > 0.0 ? kRules[index].prior * belief.weight / total : 0.0;
    all.push_back({static_cast<GapCause>(index), score, belief.explains_s, belief.evidence, kRules[index].check});
  }
  std::stable_sort(all.begin(), all.end(), [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return all;
}

}  // namespace flopcast
