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

/// Utilisation of a link of the fabric while the step waits; see HotLink.
struct LinkLoad {
  double utilisation = 0.0;
  ByAxis<double> share;
};

/// Messages that follow each other over shared links, of the replica that the timeline shows or of all replicas.
struct SharedMessages {
  struct Message {
    Ticks start = 0;
    Ticks end = 0;
    Ticks alone = 0;  ///< time with its links to itself
  };
  std::string name;  ///< "dp of rank 3", "activations 0 to 1"
  Axis axis = Axis::kData;
  std::string link;  ///< the link on its route that is fullest while the step waits
  std::vector<Message> messages;
};

/// A step whose messages share links.
struct NetworkStep {
  Timeline timeline;             ///< of the pipeline of one replica that ends last
  ByAxis<double> inside_passes;  ///< seconds by which messages inside passes lengthen them, mean over its ranks
  NetworkResult result;          ///< with the ten hottest links
  std::vector<HotLink> links;    ///< all that carry traffic while the step waits, fullest first
  std::vector<LinkLoad> loads;   ///< indexed by link of the fabric
  std::vector<SharedMessages> messages;
};

/// Simulates the step of a job whose cluster has a network: one pipeline per class of replicas, whose messages between
/// nodes are flows of forecast/wiring.hpp.
///
/// A pass is computation followed by its exposed communication, one message per axis. Hidden communication starts with
/// the pass and must end before the exposed messages. Messages of a boundary follow each other and pay latency ahead of
/// their bytes. Gradients are reduced, and weights gathered, as one message of all replicas, which starts with the last
/// of them. Everything else is as in sim/lower: with links that are never full the times are the same, to the
/// picosecond.
/// Contention: along the chain of work and messages that ends the step, the time that each message takes beyond its
/// time alone, scaled so that it sums to the time added by sharing.
/// Left out: asynchronous schedules and parameter servers, which prepare refuses.
NetworkStep simulate_on_network(const PreparedStep& step);

/// Only the time of that step, on each of the allocations or, if there are none, on its own.
std::vector<double> network_step_seconds(const PreparedStep& step, const std::vector<Allocation>& allocations = {});

/// Step times with the seed of the job's network and the seeds after it, for hashed paths.
PathSamples sample_paths(PreparedStep step, int samples);

inline constexpr FlowGraph::Piece kNoPiece = FlowGraph::kNoFlow;

/// A pass, or an overlapped pair, on the compute stream.
struct PassPieces {
  Action action;
  std::optional<Action> second;
  Ticks alone = 0;                                          ///< total time if no link is shared
  FlowGraph::Piece work = 0;                                ///< computation, and communication that shares no links
  FlowGraph::Piece last = 0;                                ///< the end of its messages
  std::vector<std::pair<FlowGraph::Piece, Axis>> messages;  ///< exposed ones, in order
};

/// The pieces that carry a result to another rank.
struct SentPieces {
  Action produced_by;
  FlowGraph::Piece from = 0;            ///< the piece whose end starts the transfer
  FlowGraph::Piece first = kNoPiece;    ///< for a send that blocks its rank, its beginning
  FlowGraph::Piece message = kNoPiece;  ///< none: only a lag
  Ticks lag = 0;                        ///< after `from`, before or instead of the message
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

  // The messages of a pass along one axis: the exposed time, and the time hidden by computation.
  struct PassMessages {
    Axis axis = Axis::kTensor;
    FlowId flow = Wiring::kNone;
    Ticks exposed = 0;
    Ticks hidden = 0;
  };
  struct OpenFlush {
    Piece gradient = kNoPiece;  // the last piece of the gradient stream
    Piece after = kNoPiece;     // what the next such piece waits for in addition
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
  std::vector<std::vector<RankPieces>> ranks_;    // indexed by class
  std::vector<std::vector<SentPieces>> results_;  // indexed by class and result_index
  std::vector<Piece> last_of_actions_;            // indexed by class and rank; none: a rank without actions
  std::vector<std::vector<Piece>> messages_;      // indexed by flow
  std::vector<std::uint32_t> sent_;               // indexed by flow, for the current class
  std::vector<std::vector<std::uint32_t>> sent_of_class_;
};

}  // namespace flopcast
