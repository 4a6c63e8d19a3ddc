#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/units/quantity.hpp"
#include "model/workload/transformer.hpp"

namespace flopcast {

/// A set of layers that can run before all others: what the stages up to some cut hold together.
struct CutState {
  std::vector<std::uint64_t> layers;  ///< a bit for each layer of the graph
  Seconds time;                       ///< of all its layers, forward and backward
  Bytes activation;                   ///< outputs of all its layers
  Bytes parameters;
  Bytes crossing;    ///< outputs made inside and needed outside
  Bytes transition;  ///< what PipeDream's optimizer sends over the cut: the last layers and every layer that has a
                     ///< successor which some last layer does not need

  bool holds(std::size_t layer) const { return (layers[layer / 64] >> (layer % 64) & 1U) != 0; }
  bool is_within(const CutState& other) const;
};

/// The cuts among which a planner may choose, sorted such that a state comes after every state within it; the last one
/// holds the whole model.
struct CutStates {
  std::vector<CutState> states;
  std::vector<std::size_t> kept;  ///< layers that count, in the row's order
  bool in_a_row = false;          ///< too many cuts: the graph was put in a row, and only cuts of the row are listed
};

/// All cuts of the graph that PipeDream's optimizer visits (its antichains, Narayanan et al. SOSP'19 §3.1): from the
/// first layer of the file without predecessors, one ready layer more at a time, together with what it needs.
/// As there, Inputs are left out, and so is what only hands on a part of a result that nobody uses ("__getitem__").
/// A graph with more than `most_states` cuts is put in a row instead.
CutStates cut_states(const LayerGraph& graph, std::size_t most_states = 2500);

/// PipeDream's hierarchical planner: layers to pipeline stages, each replicated over some workers, level by level of
/// the network (Harlap et al. 1806.03377 §3.2; Narayanan et al. SOSP'19 §3.1). A^L(i→j, m) is the time of the slowest
/// stage when m units of level L run layers i to j; a unit of level L is all M of level L - 1, of level 1 a worker:
///
///   T(i→j, m) = 1/m · max(A^(L-1)(i→j, M), 2(m-1)/B · Σ|w|)
///   A(i→j, m) = min(T(i→j, m), min over k, m' of max(A(i→k, m-m'), 2·a_k/B, T(k+1→j, m')))
///
/// kPaper says that. Its memory test: a stage of m' units with m - m' before it holds ⌈(M-m+m')/m'⌉ versions, of
/// weights and activations, the minibatches in flight from there on (§3.3).
///
/// kPublishedCode is what the optimizer of msr-fiddle/pipedream does at HEAD, which differs: T(m) = (A + 4(m-1)/(mB) ·
/// Σ|w|)/m, a sum with twice the bytes and a division by m twice; for a stage that no cut precedes the communication is
/// also divided by the units of the level below. Activations are free unless a compression ratio is given; then 2a/(B·
/// m'·ratio) counts before and behind the last stage. Versions held: ⌈(M-m)/m'⌉, none behind the last stage.
///
/// Left out, as there: communication does not slow computation, replicas are equally fast, the optimizer takes no
/// time.
enum class PlannerRules { kPaper, kPublishedCode };

struct PlannerLevel {
  int units = 1;  ///< of the level below
  BytesPerSecond bandwidth;
};

struct PlannerOptions {
  PlannerRules rules = PlannerRules::kPaper;
  bool straight = false;        ///< no replication
  bool fewer_workers = false;   ///< units may stay idle where that is faster
  std::optional<Bytes> memory;  ///< of a worker
  std::optional<double> activation_compression;
};

struct PlannedStage {
  std::size_t first_state = 0;  ///< the stage holds what is in state last_state and not in first_state - 1
  std::size_t last_state = 0;
  int replicas = 1;
  Seconds compute;  ///< of one minibatch on one worker
  Bytes parameters;
};

struct PipelinePlan {
  std::vector<PlannedStage> stages;
  Seconds time_per_minibatch;  ///< of the slowest stage: throughput is one minibatch in that time
  Seconds one_worker;
  Seconds data_parallel;  ///< the whole model on all workers
  int workers = 1;        ///< that are used
};

/// Nothing when no plan fits the memory, or without replication no split has as many stages as there are workers.
/// Throws ConfigError for no levels, fewer than one unit, bandwidths that are not positive, and problems too large.
/// Ties: an undivided stage first, then the most replicas of the last stage, which leaves the fewest stages.
///
/// The recurrence over all cuts takes O(S³M²) for S states. Here states are sorted by time, and the time on both sides
/// of a cut bounds what the cut can give, so that only cuts near the balanced one are looked at.
std::optional<PipelinePlan> plan_pipeline(const CutStates& cuts, const std::vector<PlannerLevel>& levels,
                                          const PlannerOptions& options);

}  // namespace flopcast
