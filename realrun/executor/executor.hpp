#pragma once

#include <map>
#include <utility>
#include <vector>

#include "realrun/compute/device.hpp"
#include "realrun/compute/stage_compute.hpp"
#include "realrun/executor/recording.hpp"
#include "realrun/executor/training_state.hpp"
#include "realrun/executor/transfers.hpp"
#include "realrun/transport/transport.hpp"
#include "sim/program/program.hpp"
#include "sim/program/weight_versions.hpp"

namespace flopcast::realrun {

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
/// overlapped pair run one after the other, forward first: one CPU core has nothing to overlap.
class Executor {
 public:
  /// The program must be valid, and outlive the executor like everything else handed in.
  Executor(const Program& program, const UpdateRules& rules, RankPlace place, StageCompute& compute,
           TrainingState& state, Transport& transport, Device& device, Recording& recording);

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
  Transport& transport_;
  Device& device_;
  Recording& recording_;
  StageNeighbours neighbours_;
  std::map<int, StageProgress> progress_;  // by stage of this rank
  std::map<int, Channel> channels_;        // by peer
  std::map<MessageKey, Posted> posted_;
  std::map<MessageKey, Buffer> local_;  // results for stages of this rank
};

}  // namespace flopcast::realrun
