#pragma once

#include <array>
#include <memory>
#include <vector>

#include "model/cost/pricing.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

/// Which prices are needed. kMemory: parameters only; kLeastTime: without the time of routed operators and of the host.
enum class PricedParts { kAll, kPasses, kMemory, kLeastTime };

/// The operators and the cost of one kind of block.
struct PricedBlock {
  BlockKind kind = BlockKind::kDense;
  LayerState state = LayerState::kTrained;
  std::vector<Operator> operators;
  Section cost;
  PassCost reference;  ///< forward pass in the reference model of preference training
  bool priced = false;
};

/// The parts that stages consist of. Only parts that some job needs are priced.
struct ModelSections {
  bool has_ends = false;  ///< embedding and head are priced
  bool has_mtp = false;
  std::vector<Operator> embedding_operators;
  std::vector<Operator> head_operators;
  std::vector<Operator> mtp_operators;
  std::array<PricedBlock, kLayerStates> dense;
  Section embedding;
  Section head;
  Section mtp;        ///< one module without its block
  Section tied_head;  ///< head on the stage that also has the embedding, whose table it shares
};

struct ExpertBlocks {
  std::array<PricedBlock, kLayerStates> blocks;
};

/// All parts that the stages of a job consist of.
struct ModelParts {
  std::shared_ptr<const ModelSections> sections;
  std::shared_ptr<const ExpertBlocks> experts;
};

/// The parts cached in `shared`, completed first if they lack something the job needs. Without `shared`, or if a price
/// depends on more than a SharedPrices::Key, all parts are priced.
ModelParts price_parts(const PricingContext& pricing, PricedParts parts, SharedPrices* shared);

}  // namespace flopcast
