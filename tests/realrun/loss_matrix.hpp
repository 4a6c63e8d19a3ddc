#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {

/// Trains a plan: on threads, over MPI, … Returns the results of all ranks; empty on a process that does not have them,
/// where nothing is compared.
using Trainer = std::function<std::vector<RankResult>(const TrainingPlan&)>;

struct MatrixCase {
  std::string name;
  TrainingPlan plan;
  std::string network = {};  ///< network name, if not tiny_transformer
};

/// {naive, gpipe, 1f1b, interleaved, zb-h1, zbv, dualpipev, pipedream, pipedream-2bw} × {PP2, PP4, DP2×PP2, TP2×PP2,
/// DP2×TP2×PP2} × ZeRO {0, 1}, where valid.
std::vector<MatrixCase> schedules_by_layouts();
/// Every schedule of the catalogue, in every variant and with several chunks, on 2 and on 4 pipeline ranks; the
/// synchronous ones with tied embeddings too.
std::vector<MatrixCase> whole_catalogue();
/// ZeRO 1, 2 and 3, sequence parallelism, uneven stages, microbatches that the pipeline ranks do not divide, chunks,
/// several mini-batches between updates, compressed gradients.
std::vector<MatrixCase> further_layouts();

/// Every form of network_forms in layouts of pipeline, replicas, tensor and sequence parallelism and ZeRO.
std::vector<MatrixCase> network_forms_by_layouts();
/// Context parallelism: rings, all-gathers and head exchanges over the forms, schedules, replicas, ZeRO and tensor
/// ranks.
std::vector<MatrixCase> context_layouts();
/// `count` cases from `first_seed` on: any network of random_network in any layout of the axes above.
std::vector<MatrixCase> random_networks(std::uint64_t first_seed, int count);
/// Blocks recomputed whole, the first of a stage, every other one, with partitioned inputs, or by modules; over
/// schedules, replicas with ZeRO 3 and tensor-parallel ranks.
std::vector<MatrixCase> recomputed_layouts();

/// FSDP and HSDP, resharding or not, over schedules, replicas and tensor-parallel ranks.
std::vector<MatrixCase> fully_sharded_layouts();

/// Gradients through parameter servers, on the ranks and on spare hosts.
std::vector<MatrixCase> served_layouts();

/// Trains every case and compares losses and final weights: with one rank if the schedule flushes, otherwise with
/// serial training with the defined delays. Fails the running test if they differ. Prints and returns the number of
/// compared cases.
int compare_with_references(const std::vector<MatrixCase>& cases, const Trainer& train);

}  // namespace flopcast::realrun
