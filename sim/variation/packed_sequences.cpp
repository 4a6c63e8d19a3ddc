#include "sim/variation/step_distribution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "base/text/error.hpp"
#include "model/cost/compute.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

namespace {

const char* const kFlag = "--sequence-lengths";

void refuse(const PreparedStep& step) {
  const Job& job = step.job;
  const auto fail = [](const std::string& problem, const std::string& help) {
    throw ConfigError({kFlag, problem, "", help});
  };
  if (job.profile) fail("a layer profile does not contain the time of its attention", "");
  if (!job.training.flash_attention)
    fail("unfused attention does not support packed sequences", "--training.attention flash");
  if (job.layout.cp > 1) fail("sequences split over context-parallel ranks are not modelled", "--cp 1");
  if (job.layout.tensor_parallel != TensorParallel::k1d) fail("tensor parallelism in grids is not modelled", "");
  if (job.model.windowed()) fail("attention windows are not modelled", "--model.windowed_layers 0");
  if (job.training.preference) fail("pairs of answers are not modelled", "remove training.preference");
  if (job.cluster.uneven()) fail("uneven nodes are not modelled", "");
  if (step.program.slices_per_microbatch > 1) fail("token slices are not modelled", "use another schedule");
  if (step.program.asynchronous) fail("an asynchronous schedule has no steps", "use a schedule that flushes");
}

// Attention times of one layer for a microbatch of full sequences.
struct AttentionTimes {
  double forward = 0.0;
  double backward = 0.0;
};

AttentionTimes attention_of_layer(const Job& job) {
  const ComputeModel compute(job.cluster.device, job.training.precision, job.training.stack);
  AttentionTimes ticks;
  for (const Operator& op : block_operators(job.model, job.layout, job.training, BlockKind::kDense)) {
    if (op.kind != OperatorKind::kFusedAttention) continue;
    ticks.forward += compute.fused_attention(op.attention_flops, false).value() * kTicksPerSecond;
    ticks.backward += compute.fused_attention(op.attention_flops, true).value() * kTicksPerSecond;
  }
  if (job.layout.recompute != Recompute::kNone) ticks.backward += ticks.forward;
  return ticks;
}

// A step in which every action's attention takes a fraction of its time with full sequences.
class PackedStep {
 public:
  explicit PackedStep(const PreparedStep& step);

  struct Run {
    double time_s = 0.0;
    double idle = 0.0;  // fraction of the ranks' time, mean over replicas
  };
  /// `shares` has one entry per microbatch of the step; replicas take them in turn.
  Run run(const std::vector<double>& shares);

 private:
  double attention_of(const Action& action) const;
  std::size_t microbatch_of(const Action& action) const { return first_microbatch_[action.stage] + action.microbatch; }

  const PreparedStep& step_;
  SynchronizedReplicas replicas_;
  AttentionTimes layer_;
  std::vector<std::size_t> first_microbatch_;  // indexed by stage: each chain counts its microbatches from 0
  std::vector<Ticks> plain_;                   // indexed by task
  std::vector<Ticks> optimizer_;               // indexed by rank
};

PackedStep::PackedStep(const PreparedStep& step)
    : step_(step), replicas_(step.program, step.times), layer_(attention_of_layer(step.job)) {
  const TaskGraph& graph = replicas_.work().graph;
  for (TaskId task = 0; task < graph.task_count(); ++task) plain_.push_back(graph.duration_of(task));
  first_microbatch_.resize(static_cast<std::size_t>(step.program.stage_count()));
  std::size_t microbatches = 0;
  for (const Chain& chain : step.program.chains) {
    for (int stage = chain.first_stage; stage <= chain.last_stage; ++stage) {
      first_microbatch_[static_cast<std::size_t>(stage)] = microbatches;
    }
    microbatches += static_cast<std::size_t>(step.program.microbatches_of(chain));
  }
  for (const FlushTimes& flush : step.times.flush) optimizer_.push_back(flush.optimizer);
}

double PackedStep::attention_of(const Action& action) const {
  const double layers = step_.costs.stages[action.stage].layers;
  if (action.kind == ActionKind::kForward) return layers * layer_.forward;
  return action.kind == ActionKind::kWeightGradient ? 0.0 : layers * layer_.backward;
}

PackedStep::Run PackedStep::run(const std::vector<double>& shares) {
  const std::vector<TaskLabel>& labels = replicas_.work().labels;
  const auto dp = static_cast<std::size_t>(step_.job.layout.dp);
  const auto in_step = static_cast<std::size_t>(replicas_in_step(step_));
  std::vector<Ticks> durations(plain_.size());
  double busy = 0.0;
  replicas_.begin();
  for (std::size_t replica = 0; replica < dp; ++replica) {
    const auto shortened = [&](const Action& action) {
      return attention_of(action) * (1.0 - shares[microbatch_of(action) * dp + replica]);
    };
    const bool first_of_group = replica % in_step == 0;
    for (TaskId task = 0; task < plain_.size(); ++task) {
      double less = is_action(labels[task].kind) ? shortened(labels[task].action) : 0.0;
      if (const Action* second = replicas_.second_of_pair(task)) less += shortened(*second);
      const Ticks duration = std::max(Ticks{0}, plain_[task] - static_cast<Ticks>(std::llround(less)));
      if (is_action(labels[task].kind)) busy += static_cast<double>(duration);
      durations[task] = first_of_group ? duration : std::max(durations[task], duration);
    }
    if ((replica + 1) % in_step == 0 || replica + 1 == dp) replicas_.add_replica(durations);
  }
  const auto end = static_cast<double>(replicas_.end_of_step(optimizer_));
  for (const Ticks optimizer : optimizer_) busy += static_cast<double>(optimizer) * static_cast<double>(dp);
  return {end * kSecondsPerTick, 1.0 - busy / (end * static_cast<double>(dp * optimizer_.size()))};
}

}  // namespace

std::vector<PackedMicrobatch> pack_sequences(const std::vector<int>& lengths, int room, int microbatches) {
  if (lengths.empty())
    throw ConfigError({kFlag, "there are no sequences", "", "give whole numbers, such as 512 2048*3"});
  for (const int length : lengths) {
    if (length >= 1 && length <= room) continue;
    throw ConfigError({kFlag, fmt::format("a sequence of {} tokens does not fit into a microbatch of {}", length, room),
                       "", "a microbatch has micro_batch_size x sequence_length tokens"});
  }
  std::vector<PackedMicrobatch> packed(static_cast<std::size_t>(microbatches));
  std::size_t next = 0;
  for (PackedMicrobatch& microbatch : packed) {
    while (microbatch.tokens + lengths[next] <= room) {
      const double length = lengths[next];
      ++microbatch.sequences;
      microbatch.tokens += length;
      microbatch.squares += length * length;
      next = next + 1 == lengths.size() ? 0 : next + 1;
    }
  }
  return packed;
}

PaddedRows pad_sequences(const std::vector<int>& lengths, int length, int rows) {
  double tokens = 0.0;
  double longest = 0.0;
  // With as many microbatches as sequences, every sequence appears `rows` times.
  constexpr std::size_t kMostRows = 10'000'000;
  const std::size_t microbatches =
      std::min(lengths.size(), std::max<std::size_t>(1, kMostRows / static_cast<std::size_t>(rows)));
  std::size_t next = 0;
  for (std::size_t microbatch = 0; microbatch < microbatches; ++microbatch) {
    int most = 0;
    for (int row = 0; row < rows; ++row) {
      const int cut = std::min(lengths[next], length);
      tokens += cut;
      most = std::max(most, cut);
      next = next + 1 == lengths.size() ? 0 : next + 1;
    }
    longest += static_cast<double>(most) * rows;
  }
  const double all = static_cast<double>(length) * rows * static_cast<double>(microbatches);
  return {tokens / all, tokens / longest};
}

PackingResult pack_step(const PreparedStep& step, const std::vector<int>& lengths) {
  refuse(step);
  const Layout& layout = step.job.layout;
  const double length = step.job.training.sequence_length;
  const int room = layout.micro_batch_size * step.job.training.sequence_length;
  const int microbatches = layout.microbatches() * layout.dp;
  PackingResult result;
  std::vector<double> shares;
  double tokens = 0.0;
  double mean = 0.0;
  for (const PackedMicrobatch& microbatch : pack_sequences(lengths, room, microbatches)) {
    result.sequences += microbatch.sequences;
    tokens += microbatch.tokens;
    shares.push_back(microbatch.squares / (layout.micro_batch_size * length * length));
    mean += shares.back() / microbatches;
  }
  result.filled = tokens / (static_cast<double>(room) * microbatches);
  result.attention = mean;
  PackedStep packed(step);
  const PackedStep::Run as_packed = packed.run(shares);
  const PackedStep::Run equal = packed.run(std::vector<double>(shares.size(), mean));
  result.time_s = as_packed.time_s;
  result.idle = as_packed.idle;
  result.equal_s = equal.time_s;
  result.equal_idle = equal.idle;
  result.tokens_per_s = tokens / as_packed.time_s;
  const PaddedRows padded = pad_sequences(lengths, step.job.training.sequence_length, layout.micro_batch_size);
  result.padded_filled = padded.to_length;
  result.longest_filled = padded.to_longest;
  const PackedStep::Run full = packed.run(std::vector<double>(shares.size(), 1.0));
  result.padded_tokens_per_s = padded.to_length * room * microbatches / full.time_s;
  return result;
}

void add_packing(const std::vector<int>& lengths, Forecast& forecast) {
  forecast.result.packing = pack_step(forecast.step, lengths);
  forecast.result.assumptions.emplace_back(
      "packed sequences: microbatches keep their shape, padding costs as much as tokens except in attention");
}

}  // namespace flopcast
