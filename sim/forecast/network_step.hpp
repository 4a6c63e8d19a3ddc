#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/hardware/network_fabric.hpp"
#include "sim/flow/flow_graph.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"
#include "sim/forecast/wiring.hpp"
#include "sim/program/needs.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// How full a link of the fabric is while the step waits; see HotLink.
struct LinkLoad {
  double utilisation = 0.0;
  ByAxis<double> share;
};

/// Messages that follow each other over shared links, of the replica that the timeline shows or of all.
struct SharedMessages {
  struct Message {
    Ticks start = 0;
    Ticks end = 0;
    Ticks alone = 0;  ///< what it takes with its links to itself
  };
  std::string name;  ///< "dp of rank 3", "activations 0 to 1"
  Axis axis = Axis::kData;
  std::string link;  ///< on its way, the one that is fullest while the step waits
  std::vector<Message> messages;
};

/// A step whose messages share links.
struct NetworkStep {
  Timeline timeline;             ///< of one replica's pipeline, which ends last
  ByAxis<double> inside_passes;  ///< seconds by which messages inside passes lengthen them, mean over its ranks
  NetworkResult result;          ///< with the ten hottest links
  std::vector<HotLink> links;    ///< all that carry something while the step waits, fullest first
  std::vector<LinkLoad> loads;   ///< by link of the fabric
  std::vector<SharedMessages> messages;
};

/// Plays the step of a job whose cluster has a network: a pipeline for each class of replicas, whose messages between
/// nodes are flows of forecast/wiring.hpp.
///
/// A pass is computation, then what of its communication nothing hides, one message an axis. What it hides starts with
/// the pass and must be through before that. Messages of a boundary follow each other; they pay latency ahead of their
/// bytes. Gradients are reduced, and weights handed out, as one message of all replicas, which starts with the last of
/// them. The rest is as sim/lower has it: with links that are never full the times are the same, to the picosecond.
/// Contention: along the chain of work and messages that ends the step, what each message takes longer than alone, in
/// proportion, so that it sums to what sharing adds.
/// Left out: asynchronous schedules and parameter servers, which prepare refuses.
NetworkStep simulate_on_network(const PreparedStep& step);

/// The time of that step alone, on each of the allocations or, without any, on its own.
std::vector<double> network_step_seconds(const PreparedStep& step, const std::vector<Allocation>& allocations = {});

/// Step times with the seed of the job's network and those after it, where paths are hashed.
PathSamples sample_paths(PreparedStep step, int samples);

inline constexpr FlowGraph::Piece kNoPiece = FlowGraph::kNoFlow;

/// A pass, or an overlapped pair, on the compute stream.
struct PassPieces {
  Action action;
  std::optional<Action> second;
  Ticks alone = 0;                                          ///< whole, where nothing is shared
  FlowGraph::Piece work = 0;                                ///< computation, and what of communication meets nobody
  FlowGraph::Piece last = 0;                                ///< the end of its messages
  std::vector<std::pair<FlowGraph::Piece, Axis>> messages;  ///< that nothing hides, in their order
};

/// What carries a result to another rank.
struct SentPieces {
  Action produced_by;
  FlowGraph::Piece from = 0;            ///< after whose end it is on its way
  FlowGraph::Piece first = kNoPiece;    ///< of a send that blocks its rank, where it begins
  FlowGraph::Piece message = kNoPiece;  ///< none: a lag
  Ticks lag = 0;                        ///< after `from`, ahead of the message or in place of it
};

struct FlushPiece {
  SpanKind kind = SpanKind::kOptimizer;
  FlowGraph::Piece piece = 0;
};

struct RankPieces {
  std::vector<PassPieces> passes;
  std::vector<SentPieces> sent;
  std::vector<FlushPiece> flush;
};

/// The graph of all classes of replicas.
class NetworkGraph {
 public:
  NetworkGraph(const PreparedStep& step, const Wiring& wiring);

  void build();

  const FlowGraph& graph() const { return graph_; }
  const std::vector<RankPieces>& ranks_of(std::size_t of_class) const { return ranks_[of_class]; }
  const Needs& needs() const { return needs_; }

 private:
  using Piece = FlowGraph::Piece;

  // What a pass sends along one axis: how much of it waits, and how much travels beside the computation.
  struct PassMessages {
    Axis axis = Axis::kTensor;
    FlowId flow = Wiring::kNone;
    Ticks exposed = 0;
    Ticks hidden = 0;
  };
  struct OpenFlush {
    Piece gradient = kNoPiece;  // the last of the gradient stream
    Piece after = kNoPiece;     // what the next of it waits for beside that
  };

  Piece message(FlowId flow, Ticks alone, std::vector<std::uint32_t>& sent);
  void add_class(std::size_t of_class);
  void add_pass(std::size_t of_class, Piece before, PassPieces& pass);
  std::vector<PassMessages> messages_of(std::size_t of_class, const Action& action) const;
  void add_sends(std::size_t of_class, const Action& action, Piece done, Piece& before, RankPieces& rank);
  std::size_t result_index(std::size_t stage, bool forward, std::uint32_t microbatch) const;
  void enter(const Action& action, const SentPieces& sent);
  void add_inputs(std::size_t of_class);
  void add_input(std::size_t of_class, const Action& action, Piece piece);
  void wait_if(Piece piece, Piece before);
  void add_flushes();
  Piece replicas_message(std::size_t of_class, std::size_t rank, Ticks alone);
  void add_to_gradients(std::size_t of_class, std::size_t rank, Piece piece, SpanKind kind, OpenFlush& flush);
  void add_collective(SpanKind kind, Ticks alone, const std::vector<std::size_t>& ranks, std::vector<OpenFlush>& open);
  void add_update(std::size_t of_class, std::size_t rank, OpenFlush& flush);
  void add_reductions(std::size_t of_class, std::size_t rank, OpenFlush& flush);

  const PreparedStep& step_;
  const StepTimes& times_;
  const Wiring& wiring_;
  Needs needs_;
  double slices_;
  Ticks latency_;
  FlowGraph graph_;
  std::vector<std::vector<RankPieces>> ranks_;    // by class
  std::vector<std::vector<SentPieces>> results_;  // by class, by result_index
  std::vector<Piece> last_of_actions_;            // by class and rank; none: a rank without
  std::vector<std::vector<Piece>> messages_;      // by flow
  std::vector<std::uint32_t> sent_;               // by flow, of the class at hand
  std::vector<std::vector<std::uint32_t>> sent_of_class_;
};

}  // namespace flopcast
