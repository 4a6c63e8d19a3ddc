#include "sim/files/result_fields.hpp"

#include "sim/forecast/terms.hpp"

namespace flopcast {

const ResultFields<ModelResult>& parameter_fields() {
  using P = ModelResult;
  static const ResultFields<P> table = {
      {"parameters", &P::parameters},
      {"active_parameters", &P::active_parameters, Needed::kWritten, 0, "those that a token passes"},
  };
  return table;
}

const ResultFields<IterationResult>& iteration_fields() {
  using P = IterationResult;
  static const ResultFields<P> table = {
      {"time_s", &P::time_s, Needed::kBoth},
      {"tokens_per_s", &P::tokens_per_s, Needed::kPage},
      {"tokens_per_s_per_gpu", &P::tokens_per_s_per_gpu},
      {"samples_per_s", &P::samples_per_s},
      {"model_tflops_per_gpu", &P::model_tflops_per_gpu},
      {"hardware_tflops_per_gpu", &P::hardware_tflops_per_gpu},
      {"mfu", &P::mfu, Needed::kBoth, 0, "model FLOPs, attention in full, over the device's peak"},
      {"mfu_causal", &P::mfu_causal, Needed::kLater, 0, "the same with causal attention by half"},
      {"hfu", &P::hfu, Needed::kWritten, 0, "recomputed FLOPs included"},
  };
  return table;
}

const ResultFields<Breakdown>& breakdown_fields() {
  static const ResultFields<Breakdown> table = [] {
    ResultFields<Breakdown> fields;
    for (const StepTerm& term : breakdown_terms()) {
      const Needed needed = term.id == TermId::kOffload ? Needed::kLaterComparison : Needed::kComparison;
      fields.push_back({term.key, term.spent, needed, kAnySign, term.what});
    }
    return fields;
  }();
  return table;
}

const ResultFields<AxisCommunication>& axis_fields() {
  using P = AxisCommunication;
  static const ResultFields<P> table = {
      {"total_s", &P::total_s, Needed::kWritten, 0, "under way, hidden or not; mean over pipeline ranks"},
      {"exposed_s", &P::exposed_s, Needed::kWritten, 0, "the device waits for it"},
      {"bytes_sent_per_rank", &P::bytes_sent_per_rank},
      {"messages", &P::messages}};
  return table;
}

const ResultFields<CommunicationResult>& communication_fields() {
  using P = CommunicationResult;
  static const ResultFields<P> table = {
      {"fraction", &P::fraction, Needed::kWritten, 0, "of time_s; above 1 when axes overlap"},
      {"exposed_fraction", &P::exposed_fraction, Needed::kBoth}};
  return table;
}

const ResultFields<BubbleResult>& bubble_fields() {
  using P = BubbleResult;
  static const ResultFields<P> table = {
      {"fraction", &P::fraction, Needed::kBoth, 0, "waiting that is no communication, over ranks and time_s"},
      {"ratio", &P::ratio, Needed::kWritten, kAnySign, "time_s over the busiest rank's work, less 1"},
      {"span_s", &P::span_s, Needed::kWritten, 0, "the longest time from a rank's first start to its last end"}};
  return table;
}

const ResultFields<BubbleResult>& cause_fields() {
  static const ResultFields<BubbleResult> table = [] {
    ResultFields<BubbleResult> fields;
    for (const StepTerm& term : bubble_terms()) {
      fields.push_back({term.key, term.waited, Needed::kComparison, 0, term.what});
    }
    return fields;
  }();
  return table;
}

const ResultFields<BubbleResult>& bubble_by_rank_fields() {
  static const ResultFields<BubbleResult> table = {
      {"per_pipeline_rank", &BubbleResult::per_pipeline_rank, Needed::kWritten, 0, "each rank's bubble over time_s"}};
  return table;
}

const ResultFields<MemoryResult>& memory_fields() {
  using P = MemoryResult;
  static const ResultFields<P> table = {
      {"capacity_gib", &P::capacity_gib, Needed::kPage, 0, "of the smallest device"},
      {"peak_gib", &P::peak_gib, Needed::kBoth},
      {"reserved_gib", &P::reserved_gib, Needed::kLater, 0, "by the framework's allocator, its fragmentation included"},
      {"shown_gib", &P::shown_gib, Needed::kLater, 0,
       "as nvidia-smi shows it: the tensors and what the stack holds beyond them"},
      {"fits", &P::fits, Needed::kWritten, 0, "all that nvidia-smi shows, on every rank"}};
  return table;
}

const ResultFields<RankMemoryResult>& rank_memory_fields() {
  using P = RankMemoryResult;
  static const ResultFields<P> table = [] {
    ResultFields<P> fields;
    for (const MemoryTerm& term : memory_terms()) fields.push_back({term.key, term.gib, Needed::kPage, 0, term.what});
    fields.push_back({"total_gib", &P::total_gib, Needed::kPage});
    fields.push_back({"reserved_gib", &P::reserved_gib, Needed::kLater, 0, "by the framework's allocator"});
    fields.push_back({"shown_gib", &P::shown_gib, Needed::kLater, 0, "as nvidia-smi shows it"});
    fields.push_back({"capacity_gib", &P::capacity_gib, Needed::kLater, 0, "of the smallest device among its ranks"});
    fields.push_back(
        {"peak_in_flight", &P::peak_in_flight, Needed::kWritten, 0, "activations of one stage and microbatch each"});
    return fields;
  }();
  return table;
}

const ResultFields<StepTimeInterval>& interval_fields() {
  using P = StepTimeInterval;
  static const ResultFields<P> table = {{"level", &P::level},
                                        {"half_width", &P::half_width},
                                        {"low_s", &P::low_s},
                                        {"high_s", &P::high_s},
                                        {"stalls_s", &P::stalls_s, Needed::kWritten, 0},
                                        {"factor", &P::factor, Needed::kWritten, 1},
                                        {"sources", &P::sources, Needed::kWritten, 1},
                                        {"evidence", &P::evidence}};
  return table;
}

const ResultFields<TrainingResult>& training_result_fields() {
  using P = TrainingResult;
  static const ResultFields<P> table = {{"steps", &P::steps}, {"days", &P::days}, {"gpu_hours", &P::gpu_hours}};
  return table;
}
const ResultFields<DayInterval>& day_fields() {
  static const ResultFields<DayInterval> table = {{"days_low", &DayInterval::low, Needed::kLater},
                                                  {"days_high", &DayInterval::high, Needed::kLater}};
  return table;
}
const ResultFields<TrainingResult>& cost_fields() {
  static const ResultFields<TrainingResult> table = {{"cost_usd", &TrainingResult::cost_usd, Needed::kLater}};
  return table;
}

const ResultFields<SteadyResult>& steady_fields() {
  using P = SteadyResult;
  static const ResultFields<P> table = {
      {"period_s", &P::period_s, Needed::kWritten, 0, "from one microbatch to the next"},
      {"fill_s", &P::fill_s, Needed::kWritten, kAnySign, "paid once, to fill and drain"},
      {"throughput_samples_per_s", &P::throughput_samples_per_s},
      {"weight_versions", &P::weight_versions, Needed::kWritten, 0, "by pipeline rank"},
      {"staleness", &P::staleness, Needed::kWritten, 0,
       "updates between a microbatch's weights and those its gradient is applied to"}};
  return table;
}

const ResultFields<DistributionResult>& distribution_fields() {
  using P = DistributionResult;
  static const ResultFields<P> table = {
      {"samples", &P::samples, Needed::kWritten, 1},
      {"seed", &P::seed},
      {"jitter", &P::jitter, Needed::kWritten, 0, "Standard deviation of a pass's time over its mean."},
      {"stragglers", &P::stragglers},
      {"mean_s", &P::mean_s},
      {"std_s", &P::std_s},
      {"p5_s", &P::p5_s},
      {"p50_s", &P::p50_s},
      {"p95_s", &P::p95_s},
      {"p99_s", &P::p99_s},
      {"slowdown", &P::slowdown, Needed::kWritten, kAnySign, "mean_s over iteration.time_s, less 1."}};
  return table;
}

const ResultFields<PackingResult>& packing_fields() {
  using P = PackingResult;
  static const ResultFields<P> table = {
      {"sequences", &P::sequences, Needed::kWritten, 1},
      {"filled", &P::filled},
      {"attention", &P::attention, Needed::kWritten, 0, "Its work over that of full sequences."},
      {"time_s", &P::time_s},
      {"idle", &P::idle, Needed::kWritten, kAnySign},
      {"equal_s", &P::equal_s, Needed::kWritten, 0, "Were every microbatch's attention the mean."},
      {"equal_idle", &P::equal_idle, Needed::kWritten, kAnySign},
      {"tokens_per_s", &P::tokens_per_s, Needed::kWritten, 0, "Without padding."},
      {"padded_filled", &P::padded_filled, Needed::kWritten, 0, "One sequence a row, padded to the sequence length."},
      {"longest_filled", &P::longest_filled, Needed::kWritten, 0, "Padded to the longest row of its microbatch."},
      {"padded_tokens_per_s", &P::padded_tokens_per_s, Needed::kWritten, 0,
       "Padded to the sequence length, without padding."}};
  return table;
}

const ResultFields<Quantiles>& quantile_fields() {
  using P = Quantiles;
  static const ResultFields<P> table = {{"p5", &P::p5}, {"p50", &P::p50}, {"p95", &P::p95}};
  return table;
}

const ResultFields<RunOption>& option_fields() {
  using P = RunOption;
  static const ResultFields<P> table = {
      {"change", &P::change},
      {"goodput_p50", &P::goodput_p50},
      {"days_p50", &P::days_p50},
      {"days_saved", &P::days_saved, Needed::kWritten, kAnySign, "Against the run as it is."},
      {"saved_usd", &P::saved_usd, Needed::kLater, kAnySign}};
  return table;
}

const ResultFields<RunResult>& run_fields() {
  using P = RunResult;
  static const ResultFields<P> table = {
      {"runs", &P::runs, Needed::kWritten, 1},
      {"seed", &P::seed},
      {"steps", &P::steps},
      {"interruptions_per_day", &P::interruptions_per_day},
      {"checkpoint_interval_s", &P::checkpoint_interval_s, Needed::kWritten, 0,
       "Training between two checkpoints of the kind that is taken more often; 0: none is worth it."},
      {"storage_interval_s", &P::storage_interval_s},
      {"memory_interval_s", &P::memory_interval_s, Needed::kWritten, 0, "Of copies in the memory of peers; 0: none."},
      {"checkpoint_gib", &P::checkpoint_gib},
      {"checkpoint_cost_s", &P::checkpoint_cost_s, Needed::kWritten, 0, "The run stands still for each."},
      {"restore_s", &P::restore_s, Needed::kWritten, 0, "From a replacement at hand to the next step, from storage."},
      {"nodes_in_repair", &P::nodes_in_repair, Needed::kWritten, 0, "On average."},
      {"spares_for_95", &P::spares_for_95, Needed::kWritten, 0,
       "Nodes; more are in repair for less than 5 % of the time."},
      {"spares_worth", &P::spares_worth, Needed::kWritten, 0,
       "Nodes; one more costs more than the waits that it saves."},
      {"closed_form_goodput", &P::closed_form_goodput, Needed::kWritten, 0, "Daly 2006, eq. 20, all causes as one."}};
  return table;
}

const ResultFields<NetworkResult>& network_result_fields() {
  using P = NetworkResult;
  static const ResultFields<P> table = {
      {"without_sharing_s", &P::without_sharing_s, Needed::kWritten, 0, "The step, had every group its links alone."},
      {"waiting_s", &P::waiting_s, Needed::kWritten, 0, "Of the step: for messages that others make slower."},
      {"replica_classes", &P::replica_classes, Needed::kWritten, 1, "Of replicas, which links tell apart."},
      {"replica", &P::replica, Needed::kWritten, 0, "That the timeline shows: one that ends last."}};
  return table;
}
const ResultFields<HotLink>& hot_link_fields() {
  using P = HotLink;
  static const ResultFields<P> table = {
      {"link", &P::link, Needed::kWritten, 0, "The first of those alike."},
      {"links", &P::links, Needed::kWritten, 1, "How many are alike."},
      {"utilisation", &P::utilisation, Needed::kWritten, 0, "While the step waits for messages on it."}};
  return table;
}
const ResultFields<GroupBandwidth>& bandwidth_fields() {
  using P = GroupBandwidth;
  static const ResultFields<P> table = {
      {"collective", &P::collective},
      {"ranks", &P::ranks, Needed::kWritten, 1},
      {"bytes", &P::bytes},
      {"alone_busbw_gb_per_s", &P::alone_busbw_gb_per_s},
      {"busbw_gb_per_s", &P::busbw_gb_per_s, Needed::kWritten, 0, "All groups at once."}};
  return table;
}

const ResultFields<PathSamples>& path_fields() {
  using P = PathSamples;
  static const ResultFields<P> table = {{"samples", &P::samples, Needed::kWritten, 1},
                                        {"mean_s", &P::mean_s},
                                        {"p5_s", &P::p5_s},
                                        {"p50_s", &P::p50_s},
                                        {"p95_s", &P::p95_s},
                                        {"least_s", &P::least_s},
                                        {"most_s", &P::most_s}};
  return table;
}

}  // namespace flopcast
