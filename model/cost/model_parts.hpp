#pragma once

#include <array>
#include <memory>
#include <vector>

#include "model/cost/pricing.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

/// How much of the prices is asked for: of kMemory only parameters, of kLeastTime neither what routed operators take
/// nor what the host does.
enum class PricedParts { kAll, kPasses, kMemory, kLeastTime };

/// The operators and the cost of one kind of block.
struct PricedBlock {
  BlockKind kind = BlockKind::kDense;
  LayerState state = LayerState::kTrained;
  std::vector<Operator> operators;
  Section cost;
  PassCost reference;  ///< its forward pass in the reference of preference training
  bool priced = false;
};

/// The parts of stages. Only those are priced that some job needed.
struct ModelSections {
  bool has_ends = false;  ///< embedding and head
  bool has_mtp = false;
  std::vector<Operator> embedding_operators;
  std::vector<Operator> head_operators;
  std::vector<Operator> mtp_operators;
  std::array<PricedBlock, kLayerStates> dense;
  Section embedding;
  Section head;
  Section mtp;        ///< of one module, without its block
  Section tied_head;  ///< on the stage that also has the embedding, whose table it shares
};

struct ExpertBlocks {
  std::array<PricedBlock, kLayerStates> blocks;
};

/// All that the stages of a job are made of.
struct ModelParts {
  std::shared_ptr<const ModelSections> sections;
  std::shared_ptr<const ExpertBlocks> experts;
};

/// The parts kept in `shared`, completed first where they lack something that the job needs. Without `shared`, or where
/// a price follows from more than a SharedPrices::Key, all parts are priced.
ModelParts price_parts(const PricingContext& pricing, PricedParts parts, SharedPrices* shared);

}  // namespace flopcast
