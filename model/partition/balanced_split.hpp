#pragma once

#include <vector>

#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"
#include "model/workload/transformer.hpp"

namespace flopcast {

/// Splits `costs` into `parts` contiguous parts of at least one entry each such that the largest part is minimal;
/// returns the sizes. Exact: Nicol's probing search (J. Parallel Distrib. Comput. 23, 1994) over the sums that occur,
/// O(n + p² log² n), whereas the recurrence over all last cuts takes O(n² p). Of equally good splits it returns the one
/// that fills early parts first. torchgpipe's splitter (Bárány & Grinberg, 1308.2452) stops when parts differ by one
/// cost and can be worse. Sums are doubles: exact for integers up to 2^53.
///
/// Throws ConfigError if there are no costs, a cost is negative or not finite, or parts is below one or above the
/// number of costs.
std::vector<int> min_max_partition(const std::vector<double>& costs, int parts);

/// The cost of each part, in order.
std::vector<double> part_costs(const std::vector<double>& costs, const std::vector<int>& sizes);

/// Costs by which a split of a transformer's layers is judged: seconds per microbatch, forward and backward.
struct SplitCosts {
  std::vector<int> rank_of_stage;  ///< per stage; a bidirectional schedule holds the model twice
  int model_stages = 1;            ///< stage s has part s mod model_stages
  std::vector<double> fixed;       ///< per stage, without layers: embedding, head, loss
  std::vector<std::vector<double>>
      layer;  ///< per stage and layer: depends on the rank's device, and on dense or expert layers
};

/// Computed with price_step: each stage without layers, and with one of each kind. Recomputation and communication
/// during the passes count; transfers between stages and the flush do not. Costs that grow more slowly than the number
/// of layers (weights gathered during compute) count as proportional.
SplitCosts split_costs(const Job& job, const StageMap& map, SharedPrices* shared = nullptr);

/// Quality of a split, most important criterion first: the busiest rank sets the pace of the steady state, then its
/// most expensive chunk that of filling and draining.
struct SplitQuality {
  double busiest_rank = 0.0;  ///< the sum of its stages
  double rank_squares = 0.0;  ///< of the ranks' sums; measures evenness among the other ranks
  double dearest_stage = 0.0;
  double stage_squares = 0.0;

  bool better_than(const SplitQuality& other) const;
};
SplitQuality quality_of(const SplitCosts& costs, const std::vector<int>& stage_layers);

/// Number of layers in each model stage, 0 allowed. With one stage per rank and up to a few hundred layers, the busiest
/// rank is exactly optimal, and among such splits the sum of squares is minimal; ties leave fewer layers to early
/// stages, which hold the most activations. Otherwise (several stages per rank, bidirectional schedules) single layers
/// are moved from `start` as long as that improves the split: exact if all layers cost the same on every rank, because
/// the loads are then separable and convex; a heuristic otherwise.
std::vector<int> balanced_split(const SplitCosts& costs, const std::vector<int>& start);

/// Number of layers in each of `stages` stages, 0 allowed, for software that balances GEMM parameters: 4·h·a + 3·h·f
/// per layer (2·h·f without a gate; h hidden, a the width of attention, f of the MLP), V·h for the head on the last
/// stage, nothing for the embedding (nanotron, models/llama.py: get_block_compute_costs). Minimises the most expensive
/// stage, then makes all as even as possible; of equally good splits it returns the one that fills early stages first.
std::vector<int> split_by_parameters(const Transformer& model, int stages);

/// Number of layers in each of `stages` stages, at least one each, such that the slowest stage is as fast as possible:
/// the exact min-max over contiguous splits of forward and backward time. Communication is ignored. Of equally good
/// splits it returns the one that fills early stages first. Needs at least as many layers as stages.
std::vector<int> balanced_stage_layers(const LayerProfile& profile, int stages);

}  // namespace flopcast
