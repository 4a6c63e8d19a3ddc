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

/// The message with the input that the action needs from another stage, or with the result it sends to one; empty if
/// there is none.
std::optional<MessageKey> input_of(const Needs& needs, const Action& action);
std::optional<MessageKey> result_of(const Needs& needs, const Action& action);

/// True if the action completes the weight gradients of its microbatch.
constexpr bool ends_a_backward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}

/// A message that another rank will send.
struct Incoming {
  MessageKey key;
  Action produced_by;
};
/// Messages to `rank` by sending rank, in the order they are sent: the only order in which both ends can post their
/// halves on a transport without message keys.
std::map<int, std::vector<Incoming>> incoming_messages(const Program& program, int rank);

/// Position of a pass among those of its stage.
struct PassPlace {
  int version = 0;         ///< of the weights it uses
  bool backward = false;   ///< full, or input or weight gradients only
  bool completes = false;  ///< no later pass adds to the gradients of this update
  /// The rank runs the stage's next pass in the same direction without another stage in between, in a program where
  /// this holds for all passes (StageMap::passes_in_a_row): weights gathered for this pass, and gradients not yet
  /// reduced, also serve the next one.
  bool row_continues = false;
};

/// The weights, gradients and optimizer state of one rank's stages, as the executor uses them. The version of a stage's
/// weights is the number of updates since begin_step().
class TrainingState : public Interface {
 public:
  /// The newest weights become version 0.
  virtual void begin_step() = 0;
  /// Opens the weights for one pass of a microbatch. Valid until the next call.
  virtual UnitStore& open(int stage, const PassPlace& place) = 0;
  /// Applies and clears the gradients accumulated since the stage's last update, and makes a new version. Versions
  /// below `oldest_needed` will not be requested again.
  virtual void update(int stage, int oldest_needed) = 0;
  /// Ends a step with a flush: one update of all stages, in place.
  virtual void finish_step() = 0;
};

/// One end of a transfer: the time it left, or the time it had arrived in the receiver's memory.
struct TransferEnd {
  MessageKey key;
  Action produced_by;
  int peer = 0;  ///< pipeline rank of the other end
  Ticks at = 0;
};

/// Measurements of one rank, in ticks of host_clock().
struct RankRecord {
  std::vector<Span> spans;
  std::vector<TransferEnd> sent;
  std::vector<TransferEnd> received;
};

/// Collects marks while a rank works, and asks the device for their times afterwards: asynchronous devices do not know
/// them earlier.
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

/// Merges the records of a step into one timeline that begins with its earliest span; records are ordered by pipeline
/// rank. Reductions between pipeline ranks begin when the last of these ranks arrives, as in a forecast.
Timeline merge_records(const std::vector<RankRecord>& by_pipeline_rank);

/// How and when weights change while a program runs.
struct UpdateRules {
  WeightPolicy policy = WeightPolicy::kFlushed;
  int accumulation = 1;  ///< microbatches per update if there is no flush
};

/// One rank's position in the run of a program.
struct RankPlace {
  int pipeline_rank = 0;
  std::vector<int> transport_ranks;  ///< of the pipeline that this rank belongs to, by pipeline rank
};

/// Executes one pipeline rank's part of a program, action by action, on any compute and transport.
///
/// An action waits for its input, runs, and passes its result on: to the rank of the neighbouring stage by a send that
/// never waits, or directly if that stage is on the same rank. Receives are posted a few messages ahead, for each peer
/// in the order it sends. A valid program (sim/program/validate.hpp) therefore cannot deadlock. The halves of an
/// overlapped pair run one after the other, forward first, because one CPU core cannot overlap them. If the compute
/// overlaps pairs, both halves wait for both inputs, and the results leave together. Spans record when each action ran,
/// not pairs.
class Executor {
 public:
  /// The program must be valid; it and all other arguments must outlive the executor.
  Executor(const Program& program, const UpdateRules& rules, RankPlace place, StageCompute& compute,
           TrainingState& state, RankTransport& transport, ComputeDevice& device, Recording& recording);

  /// Runs all actions once, and the flush of a synchronous program.
  void run_step(int step);

 private:
  struct StageProgress {
    StageVersions versions;
    std::vector<int> pending;  // backward passes that still need a version, by version
    int backwards = 0;         // finished in this step
    int per_update = 1;
    bool in_a_row = false;  // all passes of a direction run without another stage in between
    int forwards_left = 0;  // remaining in this step, for a stage with rows
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
  std::map<MessageKey, Buffer> local_;  // results for other stages on this rank
};

}  // namespace flopcast::realrun
