#pragma once

#include <vector>

#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"

namespace flopcast {

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
SplitCosts split_costs(const Job& job, const StageMap& map);

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

}  // namespace flopcast
