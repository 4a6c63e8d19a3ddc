#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/transformer.hpp"

namespace flopcast {

/// The contiguous split of `costs` into `parts` parts, at least one each, whose dearest part is as cheap as possible;
/// returns the sizes. Exact: Nicol's probing search (J. Parallel Distrib. Comput. 23, 1994) over the sums that occur,
/// O(n + p² log² n), where the recurrence over all last cuts takes O(n² p). Of equally good splits the one that fills
/// early parts first. torchgpipe's splitter (Bárány & Grinberg, 1308.2452) stops when parts differ by one cost and can
/// be worse. Sums are doubles: exact for whole numbers up to 2^53.
///
/// Throws ConfigError for no costs, costs that are negative or not finite, parts below one or more parts than costs.
std::vector<int> min_max_partition(const std::vector<double>& costs, int parts);

/// The cost of each part, in order.
std::vector<double> part_costs(const std::vector<double>& costs, const std::vector<int>& sizes);

/// What a split of a transformer's layers is judged by, in seconds a microbatch, forward and backward.
struct SplitCosts {
  std::vector<int> rank_of_stage;          ///< of every stage; a bidirectional schedule holds the model twice
  int model_stages = 1;                    ///< stage s has part s mod model_stages
  std::vector<double> fixed;               ///< by stage, without any layer: embedding, head, loss
  std::vector<std::vector<double>> layer;  ///< by stage and layer: its rank's device, dense or with experts
};

/// From price_step: each stage without layers, and with one of each kind. Recomputation and the communication inside
/// passes count; transfers between stages and the flush do not. What grows less than the layers do (weights gathered
/// behind compute) counts as if it grew with them.
SplitCosts split_costs(const Job& job, const StageMap& map, SharedPrices* shared = nullptr);

/// How good a split is, the most important first: the busiest rank sets the pace of the steady state, then its dearest
/// chunk that of filling and draining.
struct SplitQuality {
  double busiest_rank = 0.0;  ///< the sum of its stages
  double rank_squares = 0.0;  ///< of the ranks' sums: evenness beyond the busiest
  double dearest_stage = 0.0;
  double stage_squares = 0.0;

  bool better_than(const SplitQuality& other) const;
};
SplitQuality quality_of(const SplitCosts& costs, const std::vector<int>& stage_layers);

/// Layers of each model stage, 0 allowed. With one stage a rank and up to a few hundred layers the busiest rank is
/// exactly optimal, and of those splits the squares are least; ties leave fewer layers to early stages, which hold the
/// most activations. Otherwise (several stages a rank, bidirectional schedules) single layers move from `start` as long
/// as that is better: exact when all layers cost alike on every rank, for the loads are then separable and convex; a
/// heuristic when they differ.
std::vector<int> balanced_split(const SplitCosts& costs, const std::vector<int>& start);

/// Layers of each of `stages` stages, 0 allowed, where software balances the parameters of products: 4·h·a + 3·h·f a
/// layer (2·h·f without a gate; h hidden, a the width of attention, f of the MLP), V·h for the head on the last stage,
/// nothing for the embedding (nanotron, models/llama.py: get_block_compute_costs). The dearest stage is as cheap as
/// possible, then all are as even as possible; of equally good splits the one that fills early stages first.
std::vector<int> split_by_parameters(const Transformer& model, int stages);

/// Layers of each of `stages` stages, at least one each, such that the slowest stage is as fast as possible: the exact
/// min-max over contiguous splits of forward and backward time. Communication is not weighed. Of equally good splits
/// the one that fills early stages first. Needs at least as many layers as stages.
std::vector<int> balanced_stage_layers(const LayerProfile& profile, int stages);

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
