#pragma once

#include <map>
#include <vector>

#include <optional>
#include "realrun/compute/stage_compute.hpp"
#include "realrun/device/buffer.hpp"
#include "realrun/device/device.hpp"
#include "realrun/transport/transport.hpp"
#include "sim/program/needs.hpp"
#include "sim/program/program.hpp"
#include "sim/timeline.hpp"

namespace flopcast::realrun {

/// The message that carries what the action needs from another stage, or makes for one; nothing where it needs or makes
/// none.
std::optional<MessageKey> input_of(const Needs& needs, const Action& action);
std::optional<MessageKey> result_of(const Needs& needs, const Action& action);

/// Whether the weights' gradients of a microbatch are complete with it.
constexpr bool ends_a_backward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}

/// A message on its way to a rank.
struct Incoming {
  MessageKey key;
  Action produced_by;
};
/// By sending rank, in the order in which it sends them: the only order in which both ends can post their halves on a
/// transport without message keys.
std::map<int, std::vector<Incoming>> incoming_messages(const Program& program, int rank);

/// Where a pass stands among those of its stage.
struct PassPlace {
  int version = 0;         ///< of the weights it is computed with
  bool backward = false;   ///< full, or of inputs or weights alone
  bool completes = false;  ///< no later pass adds to the gradients of this update
  /// The rank runs the next pass of the stage in the same direction with no other stage in between, in a program where
  /// that holds for all passes (StageMap::passes_in_a_row): weights gathered for this pass, and gradients not yet
  /// reduced, serve the next one too.
  bool row_goes_on = false;
};

/// The weights, gradients and optimizer state of one rank's stages, as the executor drives them. A version of a stage's
/// weights is the number of updates before it since begin_step().
class TrainingState : public Interface {
 public:
  /// The newest weights become version 0.
  virtual void begin_step() = 0;
  /// For one pass of a microbatch. Valid until the next call.
  virtual UnitStore& open(int stage, const PassPlace& place) = 0;
  /// Applies the gradients added since the last update of the stage and clears them; makes a new version. Versions
  /// below `oldest_needed` are not asked for again.
  virtual void update(int stage, int oldest_needed) = 0;
  /// Ends a step with a flush: the one update of all stages, in place.
  virtual void finish_step() = 0;
};

/// One end of a transfer: when it left, or when it had arrived in the receiver's memory.
struct TransferEnd {
  MessageKey key;
  Action produced_by;
  int peer = 0;  ///< pipeline rank at the other end
  Ticks at = 0;
};

/// What one rank measured, in ticks of host_clock().
struct RankRecord {
  std::vector<Span> spans;
  std::vector<TransferEnd> sent;
  std::vector<TransferEnd> received;
};

/// Collects marks while a rank works, and asks the device for their times when it is done: on devices that run behind
/// the host's back the times are not known before.
class Recording {
 public:
  explicit Recording(ComputeDevice& device) : device_(device) {}

  void span(SpanKind kind, StreamKind stream, const Action& action, const Mark& start, const Mark& end);
  void span(SpanKind kind, StreamKind stream, const Interval& interval);
  void sent(const MessageKey& key, const Action& produced_by, int peer, const Mark& at);
  void received(const MessageKey& key, const Action& produced_by, int peer, const Mark& at);
  /// Everything since the last call.
  RankRecord take();

 private:
  struct MarkedSpan {
    Span span;
    Mark start;
    Mark end;
  };
  struct MarkedEnd {
    TransferEnd end;
    Mark at;
  };
  std::vector<TransferEnd> resolve(const std::vector<MarkedEnd>& ends);

  ComputeDevice& device_;
  std::vector<MarkedSpan> marked_;
  std::vector<MarkedEnd> sent_;
  std::vector<MarkedEnd> received_;
};

/// The records of a step as one timeline that begins with its earliest span: by pipeline rank, in order. Reductions
/// between pipeline ranks begin when the last of them is there, as in a forecast.
Timeline merge_records(const std::vector<RankRecord>& by_pipeline_rank);

/// How and when the weights change while a program runs.
struct UpdateRules {
  WeightPolicy policy = WeightPolicy::kFlushed;
  int accumulation = 1;  ///< microbatches per update where there is no flush
};

/// The place of one rank in the run of a program.
struct RankPlace {
  int pipeline_rank = 0;
  std::vector<int> transport_ranks;  ///< of the pipeline this rank belongs to, by pipeline rank
};

/// Executes one pipeline rank's list of a program, action by action, on whatever computes and transports.
///
/// An action waits for its input, runs, and hands its result on: to the neighbouring stage's rank by a send that never
/// waits, or directly where that is the same rank. Receives are posted a few ahead, for each peer in the order in which
/// it sends. A program without faults (sim/program/validate.hpp) therefore cannot deadlock. The halves of an
/// overlapped pair run one after the other, forward first: one CPU core has nothing to overlap. Where the compute
/// overlaps pairs, both wait for both inputs, and the results leave together. Spans tell what ran when, without pairs.
class Executor {
 public:
  /// The program must be valid, and outlive the executor like everything else handed in.
  Executor(const Program& program, const UpdateRules& rules, RankPlace place, StageCompute& compute,
           TrainingState& state, RankTransport& transport, ComputeDevice& device, Recording& recording);

  /// All actions once, and the flush of a synchronous program.
  void run_step(int step);

 private:
  struct StageProgress {
    StageVersions versions;
    std::vector<int> pending;  // by version: backward passes that still need it
    int backwards = 0;         // finished in this step
    int per_update = 1;
    bool in_a_row = false;  // all its passes of a direction
    int forwards_left = 0;  // in this step, of a stage with rows
    int others_left = 0;
  };
  struct Channel {
    std::vector<Incoming> messages;
    std::size_t posted = 0;
  };
  struct Posted {
    Request request;
    Buffer buffer;
    Action produced_by;
  };

  void begin_step(int step);
  void execute(const Action& action);
  void execute_pair(const Action& first, const Action& second);
  Buffer measured(const Action& action, const Buffer& input);
  Buffer compute(const Action& action, const Buffer& input);
  static int version_of(const StageProgress& progress, const Action& action);
  PassPlace place_of(const Action& action);
  void hand_on(const Action& action, const Buffer& result);
  Buffer input_for(const Action& action);
  void post(int peer, Channel& channel);
  void finish_backward(const Action& action);

  const Program& program_;
  UpdateRules rules_;
  RankPlace place_;
  StageCompute& compute_;
  TrainingState& state_;
  RankTransport& transport_;
  ComputeDevice& device_;
  Recording& recording_;
  Needs needs_;
  std::map<int, StageProgress> progress_;  // by stage of this rank
  std::map<int, Channel> channels_;        // by peer
  std::map<MessageKey, Posted> posted_;
  std::map<MessageKey, Buffer> local_;  // results for stages of this rank
};

}  // namespace flopcast::realrun
