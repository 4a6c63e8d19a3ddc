#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/units/quantity.hpp"
#include "model/workload/transformer.hpp"

namespace flopcast {

/// A set of layers that can run before all others: all layers of the stages up to some cut.
struct CutState {
  std::vector<std::uint64_t> layers;  ///< one bit per layer of the graph
  Seconds time;                       ///< of all its layers, forward and backward
  Bytes activation;                   ///< outputs of all its layers
  Bytes parameters;
  Bytes crossing;    ///< outputs produced inside and needed outside
  Bytes transition;  ///< bytes PipeDream's optimizer sends across the cut: the last layers, and every layer that has a
                     ///< successor not needed by some last layer

  bool holds(std::size_t layer) const { return (layers[layer / 64] >> (layer % 64) & 1U) != 0; }
  bool is_within(const CutState& other) const;
};

/// The cuts available to a planner, sorted such that a state comes after every state it contains; the last one is the
/// whole model.
struct CutStates {
  std::vector<CutState> states;
  std::vector<std::size_t> kept;  ///< layers that count, in row order
  bool in_a_row =
      false;  ///< too many cuts: the graph was put in topological order and only cuts of that row are listed
};

/// All cuts of the graph that PipeDream's optimizer visits (its antichains, Narayanan et al. SOSP'19 §3.1): starting
/// from the file's first layer without predecessors, one more ready layer at a time, together with everything it needs.
/// As in PipeDream, Inputs are omitted, as are "__getitem__" layers that only pass on an unused part of a result. A
/// graph with more than `most_states` cuts is put in topological order instead.
CutStates cut_states(const LayerGraph& graph, std::size_t most_states = 2500);

/// PipeDream's hierarchical planner: assigns layers to pipeline stages, each replicated over some workers, one network
/// level at a time (Harlap et al. 1806.03377 §3.2; Narayanan et al. SOSP'19 §3.1). A^L(i→j, m) is the time of the
/// slowest stage when m units of level L run layers i to j. A unit of level L consists of all M units of level L - 1; a
/// unit of level 1 is a worker:
///
///   T(i→j, m) = 1/m · max(A^(L-1)(i→j, M), 2(m-1)/B · Σ|w|)
///   A(i→j, m) = min(T(i→j, m), min over k, m' of max(A(i→k, m-m'), 2·a_k/B, T(k+1→j, m')))
///
/// kPaper implements this. Its memory check: a stage of m' units with m - m' before it holds ⌈(M-m+m')/m'⌉ versions of
/// weights and activations, the minibatches in flight from there on (§3.3).
///
/// kPublishedCode implements the optimizer of msr-fiddle/pipedream at HEAD, which differs: T(m) = (A + 4(m-1)/(mB) ·
/// Σ|w|)/m, a sum with twice the bytes and two divisions by m; for a stage without a preceding cut, communication is
/// also divided by the number of units of the level below. Activations are free unless a compression ratio is given;
/// then 2a/(B·m'·ratio) counts before and after the last stage. Versions held: ⌈(M-m)/m'⌉, none after the last stage.
///
/// Not modelled, as in PipeDream: communication does not slow computation, replicas are equally fast, the optimizer
/// takes no time.
enum class PlannerRules { kPaper, kPublishedCode };

struct PlannerLevel {
  int units = 1;  ///< number of units of the level below
  BytesPerSecond bandwidth;
};

struct PlannerOptions {
  PlannerRules rules = PlannerRules::kPaper;
  bool straight = false;        ///< no replication
  bool fewer_workers = false;   ///< leave units idle if that is faster
  std::optional<Bytes> memory;  ///< per worker
  std::optional<double> activation_compression;
};

struct PlannedStage {
  std::size_t first_state =
      0;  ///< the stage holds the layers of state last_state that are not in state first_state - 1
  std::size_t last_state = 0;
  int replicas = 1;
  Seconds compute;  ///< one minibatch on one worker
  Bytes parameters;
};

struct PipelinePlan {
  std::vector<PlannedStage> stages;
  Seconds time_per_minibatch;  ///< of the slowest stage; throughput is one minibatch per this time
  Seconds one_worker;
  Seconds data_parallel;  ///< the whole model on all workers
  int workers = 1;        ///< number of workers used
};

/// Returns nothing if no plan fits the memory or, without replication, no split has as many stages as there are
/// workers. Throws ConfigError if there are no levels, a level has fewer than one unit, a bandwidth is not positive, or
/// the problem is too large. Ties are broken in favour of an undivided stage, then of the most replicas of the last
/// stage, which leaves the fewest stages.
///
/// The recurrence over all cuts takes O(S³M²) for S states. Here states are sorted by time, and the times on both sides
/// of a cut bound its result, so that only cuts near the balanced one are examined.
std::optional<PipelinePlan> plan_pipeline(const CutStates& cuts, const std::vector<PlannerLevel>& levels,
                                          const PlannerOptions& options);

}  // namespace flopcast
