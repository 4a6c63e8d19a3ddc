#include "model/cost/model_parts.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "model/cost/axis_costs.hpp"
#include "model/cost/data_parallel.hpp"
#include "model/cost/expert_costs.hpp"

namespace flopcast {

namespace {

using Block = PricedBlock;

// Fraction of a collective that an overlapped GEMM hides; both slow down. Fitted to Korthikanti et al. 2205.05198,
// Tables 4 and 5.
double hidden_share(const Device& device) {
  constexpr double kOfGpus = 0.76;
  return device.generation == GpuGeneration::kCpu ? 1.0 : kOfGpus;
}

void add_gathered(const Operator& op, const OperatorTimes& times, TensorCollectives& tensor) {
  if (op.gathered_input == GatheredInput::kNone) return;
  TensorCollectives::Products& products =
      op.gathered_input == GatheredInput::kAttention ? tensor.attention : tensor.mlp;
  products.input_gradient += times.input_gradient;
  products.weight_gradient += times.weight_gradient;
}

// Empty if a price depends on more than a Key.
std::optional<SharedPrices::Key> key_of(const PricingContext& pricing) {
  const Job& job = pricing.job;
  const Layout& layout = job.layout;
  const bool more_counts = job.training.finetune || job.laws != nullptr || layout.placement != kGridAxes ||
                           layout.tensor_parallel != TensorParallel::k1d ||
                           job.training.stack.collective_stall > Seconds(0) || job.training.preference;
  if (more_counts) return std::nullopt;
  SharedPrices::Key key;
  key.tp = layout.tp;
  key.cp = layout.cp;
  key.micro_batch_size = layout.micro_batch_size;
  key.sequence_parallel = layout.sequence_parallel;
  key.tensor_ranks = pricing.tp_group;
  if (layout.cp > 1) {
    const bool hierarchical = layout.context_parallel == ContextParallel::kHierarchical;
    const int inner = hierarchical ? layout.ulysses_ranks() : layout.cp;
    key.context_ranks = pricing.grid.part_placement(Axis::kContext, inner, 1, job.cluster);
    key.context_ring = pricing.grid.part_placement(Axis::kContext, layout.cp / inner, inner, job.cluster);
  }
  if (!job.model.experts) return key;
  key.ep = layout.ep;
  key.expert_tensor_ranks = layout.expert_tensor_ranks();
  if (layout.ep > 1) key.expert_ranks = expert_ranks(pricing);
  key.overlap = overlap_of_experts(job);
  return key;
}

// Update of the matrix of a linear in a block; parameters that are not matrices or not trained need none.
MatrixUpdate matrix_update(const Operator& op, const PricingContext& pricing) {
  const Training& training = pricing.job.training;
  const bool muon = training.optimizer == Optimizer::kMuon;
  const bool trained = op.parameters > op.frozen_parameters && !op.frozen && !op.still;
  if ((!muon && training.optimizer != Optimizer::kGalore) || op.kind != OperatorKind::kLinear || !trained ||
      op.name == "logits") {
    return {};
  }
  const std::int64_t shorter = std::min(op.shape.n, op.shape.k);
  const std::int64_t longer = std::max(op.shape.n, op.shape.k);
  const double matrices = static_cast<double>(op.shape.batch);
  MatrixUpdate update;
  update.parameters = static_cast<double>(shorter) * static_cast<double>(longer) * matrices;
  // Newton-Schulz runs in bf16 even if weights are fp32.
  const Device& device = pricing.job.cluster.device;
  const bool narrower =
      muon && training.precision == Precision::kFp32 && device.peak_of(Precision::kBf16).value() > 0.0;
  const Precision precision = narrower ? Precision::kBf16 : training.precision;
  const double element = element_size(precision).value();
  std::optional<ComputeModel> bf16;
  if (narrower) bf16.emplace(device, precision, training.stack, std::nullopt, pricing.compute.laws());
  const ComputeModel& compute = bf16 ? *bf16 : pricing.compute;
  const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return compute.gemm({m, n, k, op.shape.batch}, element);
  };
  if (muon) {
    constexpr double kSteps = 5.0;
    update.products =
        (product(shorter, shorter, longer) + product(shorter, shorter, shorter) + product(shorter, longer, shorter)) *
        kSteps;
    return update;
  }
  const std::int64_t rank = std::min<std::int64_t>(training.optimizer_rank, shorter);
  update.projected = static_cast<double>(rank) * static_cast<double>(longer) * matrices;
  update.projections = static_cast<double>(rank) * static_cast<double>(shorter) * matrices;
  update.products = product(rank, longer, shorter) + product(shorter, longer, rank);
  return update;
}

void add_weights(const Operator& op, Section& section) {
  section.parameters += op.parameters;
  if (op.of_experts) section.expert_parameters += op.parameters;
  section.frozen.parameters += op.frozen_parameters;
  section.frozen.weights += op.frozen_bytes;
  if (op.of_experts) section.frozen.experts += op.frozen_parameters;
  if (op.of_experts) section.frozen.expert_weights += op.frozen_bytes;
}

Section price_operators(const PricingContext& pricing, PricedParts parts, const std::vector<Operator>& operators) {
  const Job& job = pricing.job;
  Section section;
  std::vector<Seconds> backward;
  backward.reserve(operators.size());
  bool behind_dispatch = false;
  for (const Operator& op : operators) {
    if (parts == PricedParts::kLeastTime && op.routed) continue;
    if (parts == PricedParts::kMemory) {
      add_weights(op, section);
      continue;
    }
    const OperatorTimes times = operator_times(op, pricing.compute, job.training);
    section.forward.compute += times.forward;
    section.input_gradient.compute += times.input_gradient;
    section.weight_gradient.compute += times.weight_gradient;
    behind_dispatch = behind_dispatch || op.routed;
    if (behind_dispatch) {
      section.expert_layer.experts += times.forward;
      section.expert_layer.experts_input += times.input_gradient;
      section.expert_layer.experts_weight += times.weight_gradient;
    }
    backward.push_back(times.input_gradient + times.weight_gradient);
    section.flops += forward_flops(op) * passes_of(op);
    section.forward_flops += forward_flops(op);
    add_weights(op, section);
    section.dequantised = std::max(section.dequantised, op.dequantised);
    (op.of_experts ? section.matrices.experts : section.matrices.dense).add(matrix_update(op, pricing), 1.0);
    if (op.attention_core) {
      section.attention += times.forward;
      section.attention_backward += times.input_gradient + times.weight_gradient;
    }
    add_gathered(op, times, section.tensor);
    if (const double redone = redone_selectively(op, job.layout, job.training.stack); redone > 0.0) {
      section.core.compute += times.forward * redone;
      section.core_flops += forward_flops(op) * redone;
    }
  }
  if (parts == PricedParts::kMemory || parts == PricedParts::kLeastTime) return section;
  section.gradients = gradient_pieces(operators, backward, job.layout);
  for (const GradientPiece& piece : section.gradients) {
    if (!piece.of_experts) section.low_rank_elements += piece.amount.low_rank_elements;
  }
  return section;
}

// Input gradients that no layer needs are not sent either.
void leave_out_backward(Section& section) {
  for (const Axis axis : kAxes) {
    section.input_gradient.comm[axis] = section.weight_gradient.comm[axis] = Seconds(0);
    section.sent[axis] = scaled(section.sent[axis], 0.5);
  }
  section.sent.cp = section.context_forward;  // keys and values are sent again only with their gradients
  section.tensor = {};
}

Block price_block(const PricingContext& pricing, PricedParts parts, BlockKind kind, LayerState state) {
  const Job& job = pricing.job;
  Block block;
  block.kind = kind;
  block.state = state;
  block.operators = block_operators(job.model, job.layout, job.training, kind, state);
  block.cost = price_operators(pricing, parts, block.operators);
  block.priced = true;
  if (parts == PricedParts::kMemory) return block;
  if (job.layout.tensor_parallel == TensorParallel::k1d) {
    add_block_collectives(pricing, kind, block.operators, block.cost);
  } else {
    add_grid_collectives(pricing, block.operators, block.cost);
  }
  add_context_exchange(pricing, block.cost);
  const bool exchanges = kind == BlockKind::kExperts && parts != PricedParts::kLeastTime;
  if (exchanges) add_expert_exchange(pricing, block.cost);
  if (job.training.finetune) add_adapter_collectives(pricing, block.operators, block.cost);
  if (state == LayerState::kFrozenNoGradient) leave_out_backward(block.cost);
  // The last piece has no GEMM to overlap with, and the device slows down during the others.
  const Seconds beside = std::min(block.cost.tp_in_pieces, block.cost.forward.compute);
  block.cost.forward.comm.tp -= beside * std::min(hidden_share(job.cluster.device), 1.0 - 1.0 / job.layout.tp);
  if (job.training.stack.overlap_tp_with_weight_gradient) {
    block.cost.tp_hidden = block.cost.tensor.beside() * hidden_share(job.cluster.device);
  }
  if (parts == PricedParts::kLeastTime) return block;
  if (exchanges) {
    add_expert_host_floor(pricing, block.operators, block.cost);
  } else {
    add_host_floor(pricing, block.operators, block.cost);
  }
  // Adapters that are switched off leave frozen blocks.
  const bool without_adapters = job.training.preference && job.training.finetune && job.training.finetune->adapts() &&
                                state == LayerState::kTrained;
  block.reference = without_adapters ? price_block(pricing, parts, kind, LayerState::kFrozenNoGradient).cost.forward
                                     : block.cost.forward;
  return block;
}

void price_ends(const PricingContext& pricing, PricedParts parts, ModelSections& sections) {
  const Job& job = pricing.job;
  sections.embedding_operators = embedding_operators(job.model, job.layout, job.training);
  sections.head_operators = head_operators(job.model, job.layout, job.training);
  sections.embedding = price_operators(pricing, parts, sections.embedding_operators);
  sections.head = price_operators(pricing, parts, sections.head_operators);
  if (job.layout.tensor_parallel == TensorParallel::k1d) {
    add_embedding_collectives(pricing, embedding_state(job.training), sections.embedding);
    add_head_collectives(pricing, sections.head);
  } else {
    add_grid_embedding(pricing, sections.embedding);
    add_grid_collectives(pricing, sections.embedding_operators, sections.embedding);  // a norm after the embedding
    add_grid_collectives(pricing, sections.head_operators, sections.head);
    add_grid_loss(pricing, sections.head);
  }
  sections.tied_head = sections.head;
  sections.tied_head.parameters -= sections.head_operators[1].parameters;
  if (sections.head_operators[1].frozen) {
    sections.tied_head.frozen.parameters -= sections.head_operators[1].frozen_parameters;
    sections.tied_head.frozen.weights -= sections.head_operators[1].frozen_bytes;
  } else if (!sections.tied_head.gradients.empty()) {
    sections.tied_head.gradients.erase(sections.tied_head.gradients.begin());
  }
  sections.has_ends = true;
}

bool lacks(const std::array<int, kLayerStates>& layers, const std::array<Block, kLayerStates>& blocks) {
  for (std::size_t state = 0; state < kLayerStates; ++state) {
    if (layers[state] > 0 && !blocks[state].priced) return true;
  }
  return false;
}

// Returns the parts cached in `shared`, completed first if `lacking`. Without `shared` or a key, all parts are priced.
template <class Parts, class Lacking, class Complete>
std::shared_ptr<const Parts> parts_of(SharedPrices* shared, const std::optional<SharedPrices::Key>& key,
                                      const Lacking& lacking, const Complete& complete) {
  const bool keeps = shared != nullptr && key;
  std::shared_ptr<const Parts> known = keeps ? shared->find<Parts>(*key) : nullptr;
  if (known != nullptr && !lacking(*known)) return known;
  auto made = known != nullptr ? std::make_shared<Parts>(*known) : std::make_shared<Parts>();
  complete(*made);
  if (keeps) shared->keep<Parts>(*key, made);
  return made;
}

SharedPrices::Key without_experts(SharedPrices::Key key) {
  const SharedPrices::Key none;
  key.ep = none.ep;
  key.expert_tensor_ranks = none.expert_tensor_ranks;
  key.expert_ranks = none.expert_ranks;
  key.overlap = none.overlap;
  return key;
}

void price_blocks(const PricingContext& pricing, PricedParts parts, BlockKind kind,
                  const std::array<int, kLayerStates>& layers, std::array<Block, kLayerStates>& blocks) {
  for (const LayerState state : {LayerState::kTrained, LayerState::kFrozenPassThrough, LayerState::kFrozenNoGradient}) {
    const std::size_t index = static_cast<std::size_t>(state);
    if (layers[index] > 0 && !blocks[index].priced) blocks[index] = price_block(pricing, parts, kind, state);
  }
}

}  // namespace

ModelParts price_parts(const PricingContext& pricing, PricedParts parts, SharedPrices* shared) {
  const Job& job = pricing.job;
  ModelParts all;
  LayersByState layers = layers_by_state(job.model, job.training, 0, job.model.layers);
  // Blocks of MTP modules are like the model's trained blocks, even if the model has none of that kind.
  (job.model.experts ? layers.with_experts : layers.dense)[static_cast<std::size_t>(LayerState::kTrained)] +=
      job.model.mtp_layers;
  std::optional<SharedPrices::Key> key = shared != nullptr ? key_of(pricing) : std::nullopt;
  all.experts = parts_of<ExpertBlocks>(
      shared, key, [&](const ExpertBlocks& experts) { return lacks(layers.with_experts, experts.blocks); },
      [&](ExpertBlocks& experts) {
        price_blocks(pricing, parts, BlockKind::kExperts, layers.with_experts, experts.blocks);
      });
  const bool mtp = job.model.mtp_layers > 0;
  if (key) key = without_experts(*key);
  all.sections = parts_of<ModelSections>(
      shared, key,
      [&](const ModelSections& sections) {
        return !sections.has_ends || (mtp && !sections.has_mtp) || lacks(layers.dense, sections.dense);
      },
      [&](ModelSections& sections) {
        if (!sections.has_ends) price_ends(pricing, parts, sections);
        price_blocks(pricing, parts, BlockKind::kDense, layers.dense, sections.dense);
        if (!mtp || sections.has_mtp) return;
        sections.mtp_operators = mtp_operators(job.model, job.layout, job.training);
        sections.mtp = price_operators(pricing, parts, sections.mtp_operators);
        add_head_collectives(pricing, sections.mtp);
        sections.has_mtp = true;
      });
  return all;
}

SharedPrices::SharedPrices() = default;
SharedPrices::~SharedPrices() = default;

}  // namespace flopcast
