#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "model/layout/rank_grid.hpp"
#include "realrun/network/network.hpp"
#include "realrun/network/tensor_grid.hpp"
#include "realrun/parallel/rank_state.hpp"
#include "realrun/training/training_plan.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

// What the ranks of a plan, and the servers on spare hosts, make of it alike. Groups are made by all of them in the
// same order; returned is the one that this rank is in.

RankGrid grid_of(const TrainingPlan& plan);

/// All groups of the axis.
Group form_groups(RankTransport& transport, const RankGrid& grid, Axis axis);

/// Of the replicas, every so many neighbours: those of each of these groups, or the first, second, ... of all of them.
/// Their traffic counts under `axis`.
enum class Cut { kNeighbours, kSamePlace };
Group form_cut_groups(RankTransport& transport, const RankGrid& grid, int neighbours, Cut cut, Axis axis = Axis::kData);

/// Of the ranks of each stage in the order of their tensor, context and data places: in every run of ranks · every of
/// them, those that lie `every` apart.
Group form_strided_groups(RankTransport& transport, const RankGrid& grid, int ranks, int every, Axis axis);

/// What a server on a spare host needs to know of the ranks it serves.
struct ServerPlace {
  int worker = 0;             ///< the first of them
  int index = 0;              ///< among their servers
  std::vector<Group> pushes;  ///< by peer
  Group pull;
};
/// The links of this rank with its servers, or of this server with its ranks.
struct ServerGroups {
  std::vector<ServerLink> links;
  ServerPlace place;
};
ServerGroups form_server_groups(RankTransport& transport, const TrainingPlan& plan, const RankGrid& grid);

/// The lines of tensor-parallel ranks that this rank is part of; none where they are one line.
GridPlace form_tensor_grid(RankTransport& transport, const TrainingPlan& plan, const RankGrid& grid);

/// By shared set, for the replica this rank is in.
std::vector<Group> form_shared_groups(RankTransport& transport, const RankGrid& grid,
                                      const std::vector<std::vector<int>>& holders);

/// The pairs of ranks with neighbouring stages, of every pipeline, each once.
std::vector<std::pair<int, int>> neighbours_of(const TrainingPlan& plan, const RankGrid& grid);

/// By stage of the program.
std::vector<StagePart> parts_of(const TrainingPlan& plan);

BucketRules bucket_rules(const TrainingPlan& plan);

/// Of parameters: buckets are cut among the replicas, or among those of a node and then of the nodes.
std::size_t alignment_of(const TrainingPlan& plan, ComputeDevice& device);

}  // namespace flopcast::realrun
