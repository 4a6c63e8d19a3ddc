#pragma once

#include <vector>

#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"
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

}  // namespace flopcast
