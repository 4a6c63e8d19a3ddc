#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "model/job.hpp"
#include "model/layout/layout.hpp"
#include "model/layout/rank_grid.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// Which part of the model each stage of a schedule holds, and which pipeline rank runs it. A bidirectional schedule
/// holds the model twice: its stage s holds part s mod `model_stages`.
struct StageMap {
  std::vector<int> rank_of_stage;
  int model_stages = 1;
  /// Per stage; empty: 1. Number of microbatches whose passes through the stage the ranks run in a row, in each
  /// direction: sharded weights are then gathered once per row, and gradients reduced once at its end.
  std::vector<int> passes_in_a_row;

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  int copies() const { return stages() / model_stages; }
  int model_stage(int stage) const { return stage % model_stages; }
  std::vector<int> stages_of(int rank) const;  ///< ascending
};

/// One pass of one microbatch through one stage on one rank. Communication is the exposed part, during which the device
/// waits.
struct PassCost {
  Seconds compute;
  ByAxis<Seconds> comm;  ///< dp: gathering weights and reducing gradients during the pass; pp: always 0
  Seconds offload;       ///< exposed transfer of activations to or from the host

  Seconds total() const {
    Seconds sum = compute;
    for (const Axis axis : kAxes) sum += comm[axis];
    return sum + offload;
  }
};

/// Traffic of one axis, whether or not compute hides it.
struct Traffic {
  Seconds time;
  Bytes sent_per_rank;
  double messages = 0.0;
  Seconds on_links{};  ///< `time` without the network's latency per hop between nodes; collectives of replicas only

  Traffic& operator+=(const Traffic& other);
};

/// Gradients reduced together during a stage's last backward pass.
struct GradientBucket {
  double remaining = 0.0;  ///< fraction of that pass still to run when the bucket's last gradient is ready
  Seconds reduction;
};

/// Parameters that are not trained: in total and those of experts.
struct FrozenWeights {
  double parameters = 0.0;
  double experts = 0.0;
  Bytes weights;  ///< in their storage format
  Bytes expert_weights;

  void add(const FrozenWeights& other, double times);
  bool operator==(const FrozenWeights& other) const {
    return parameters == other.parameters && experts == other.experts && weights == other.weights &&
           expert_weights == other.expert_weights;
  }
};

/// Updates of the trained matrices of blocks by muon and galore, for one rank and step; zero for other optimizers. Adam
/// updates the other parameters.
///
/// muon     five Newton-Schulz steps on each matrix m x n, m <= n, in bf16: X·Xᵀ, its square and a product with X,
///          4m²n + 2m³ FLOPs per step (Liu et al. 2502.16982 §2.1). Each tensor-parallel rank processes its own part of
///          a matrix (Megatron Core's muon_tp_mode blockwise).
/// galore   the gradient is projected on r dimensions of the shorter side and the update back, 4mnr FLOPs; two moments
///          of r·n and a projection of m·r (Zhao et al. 2403.03507 Table 1). Not modelled: the decompositions that
///          renew the projection every few hundred steps.
struct MatrixUpdate {
  double parameters = 0.0;
  double projected = 0.0;    ///< elements of the projected gradients
  double projections = 0.0;  ///< elements of the projections
  Seconds products;

  void add(const MatrixUpdate& other, double times);
};

/// Replicas split expert matrices differently from the others.
struct MatrixUpdates {
  MatrixUpdate dense;
  MatrixUpdate experts;

  void add(const MatrixUpdates& other, double times);
};

/// Timeline of one layer with experts: its exchanges and the computation between them. The gradient of a combine
/// travels to the experts and takes as long as a dispatch; that of a dispatch comes back like a combine. Excludes host
/// overhead.
struct ExpertLayer {
  Seconds before;          ///< forward pass up to the dispatch: attention, router, collectives of other axes
  Seconds experts;         ///< forward pass from the dispatch on
  Seconds experts_input;   ///< input gradients of these operators
  Seconds experts_weight;  ///< weight gradients of these operators
  Seconds before_input;
  Seconds before_weight;
  Seconds dispatch;
  Seconds combine;
  bool delays_weights = false;  ///< in overlapped passes, weight gradients are computed while gradients are exchanged
  double slower = 0.0;          ///< relative slowdown of computation during an exchange
  double exchange_slower = 0.0;

  Seconds forward() const { return before + dispatch + experts + combine; }
  Seconds backward() const {
    return dispatch + experts_input + experts_weight + combine + before_input + before_weight;
  }
};

/// Time saved when a forward and a backward pass of two microbatches run as a pair over n layers with experts: each · n
/// - ends, but at least 0.
struct PairGain {
  Seconds each;
  Seconds ends;  ///< at the ends of a pair, some exchanges have nothing to overlap with

  Seconds of(int layers) const { return std::max(Seconds(0), each * static_cast<double>(layers) - ends); }
};

/// Everything the simulator and the planner need to know about a stage; times are per microbatch unless stated
/// otherwise.
/// The full backward pass B is recompute + input_gradient + weight_gradient - tp_hidden, the overlapped part.
struct StageCosts {
  int layers = 0;
  bool has_embedding = false;
  bool has_head = false;

  PassCost forward;
  PassCost recompute;  ///< forward work repeated in the backward pass, before the input gradient
  PassCost input_gradient;
  PassCost weight_gradient;
  Seconds split_slowdown;  ///< extra time of an input gradient whose weight gradient is computed later
  Seconds tp_hidden;       ///< TP communication of the input gradient that a full B hides behind its weight gradient
  /// For passes that run as pairs: the time that F of this stage and B of a stage with as many expert layers save
  /// compared to running one after the other, and the hidden part of their exchanges. For two different stages, the
  /// smaller value applies.
  Seconds pair_saved;
  Seconds pair_hidden;
  int expert_layers = 0;
  ExpertLayer expert_layer;  ///< one of these layers

  ByAxis<Traffic> sent;  ///< all passes together; traffic after the last microbatch is in FlushCosts

  std::vector<GradientBucket> buckets;  ///< in the order in which they become ready; empty: reduced after the flush
  Traffic bucket_traffic;               ///< all buckets, once per step

  Flops model_flops;  ///< of this rank, forward and backward, without recomputation
  Flops recompute_flops;

  Bytes activation;          ///< kept per microbatch in flight
  Bytes recompute_buffer;    ///< activations of one block, alive while its backward pass recomputes them
  Bytes gradient_buffer;     ///< gradients of activations within one block's backward pass
  Bytes saved_logits;        ///< part of `activation` that the loss keeps, on the stage with the head
  Bytes logits_buffer;       ///< gradients of the logits and of their input, on the stage with the head
  Bytes placeholders;        ///< gradients of linears that are allocated but never read
  Bytes gathered_weights;    ///< whole weights of the current and the prefetched units if weights are sharded
  Bytes gathered_gradients;  ///< whole gradients of one unit before they are scattered; with nn.DataParallel the
                             ///< outputs on GPU 0
  Bytes offload_buffer;      ///< activations of two layers on their way to or from the host

  Bytes dequantised_weight;  ///< largest quantised weight, widened while it is multiplied

  double parameters = 0.0;            ///< of this rank
  double expert_parameters = 0.0;     ///< the part of them that expert-parallel ranks split
  FrozenWeights frozen;               ///< the part of them that is not trained
  MatrixUpdates matrices;             ///< of the trained ones
  double low_rank_elements = 0.0;     ///< elements PowerSGD sends for the dense ones; 0: unknown
  double tensors = 0.0;               ///< operators with parameters
  double embedding_parameters = 0.0;  ///< the tied table, whose gradients are summed over first and last stage

  /// Forward and full backward pass of a microbatch, without overlap with other passes.
  Seconds passes() const {
    return forward.total() + recompute.total() + input_gradient.total() + weight_gradient.total() - tp_hidden;
  }
};

/// The costs of all stages, in order. Equal stages may share one entry.
class CostsByStage {
 public:
  class Iterator;

  std::size_t size() const { return entry_of_.size(); }
  const StageCosts& operator[](std::size_t stage) const { return entries_[entry_of_[stage]]; }
  const StageCosts& at(std::size_t stage) const { return entries_[entry_of_.at(stage)]; }
  const StageCosts& front() const { return entries_[entry_of_.front()]; }
  const StageCosts& back() const { return entries_[entry_of_.back()]; }
  Iterator begin() const;
  Iterator end() const;

  void reserve(std::size_t stages);
  void push_back(StageCosts costs);
  void push_shared(std::size_t stage);  ///< appends a stage equal to `stage`
  StageCosts& own(std::size_t stage);   ///< mutable access that does not change equal stages

 private:
  std::vector<StageCosts> entries_;
  std::vector<std::size_t> entry_of_;
};

class CostsByStage::Iterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = StageCosts;
  using difference_type = std::ptrdiff_t;
  using pointer = const StageCosts*;
  using reference = const StageCosts&;

  Iterator() = default;
  Iterator(const CostsByStage& costs, std::size_t stage) : costs_(&costs), stage_(stage) {}

  reference operator*() const { return (*costs_)[stage_]; }
  pointer operator->() const { return &(*costs_)[stage_]; }
  Iterator& operator++() {
    ++stage_;
    return *this;
  }
  Iterator operator++(int) {
    Iterator before = *this;
    ++stage_;
    return before;
  }
  bool operator==(const Iterator& other) const { return stage_ == other.stage_; }

 private:
  const CostsByStage* costs_ = nullptr;
  std::size_t stage_ = 0;
};

inline CostsByStage::Iterator CostsByStage::begin() const {
  return {*this, 0};
}
inline CostsByStage::Iterator CostsByStage::end() const {
  return {*this, size()};
}

/// The transfer between stages s and s + 1, per rank and microbatch (or slice of one).
struct BoundaryCosts {
  Seconds forward;
  Seconds backward;
  Seconds slowdown;  ///< of the overlapped pass at the receiving end; 0 if transfers block the sender
  Bytes bytes;       ///< sent per rank, one direction
};

/// Costs after the last microbatch, by pipeline rank.
struct FlushCosts {
  Seconds gradient_reduction;
  Seconds embedding_reduction;
  Seconds gradient_norm;
  Seconds optimizer;
  Seconds parameter_gather;
  Traffic dp;
  Traffic replicas;  ///< part of dp: gradients reduced and weights distributed among ranks that hold the same
  double parameters = 0.0;
};

/// The only source of costs for simulator and planner.
struct StepCosts {
  CostsByStage stages;
  std::vector<BoundaryCosts> boundaries;
  std::vector<FlushCosts> ranks;
};

struct ModelSections;
struct ExpertBlocks;

/// Cached prices of blocks, embedding and head, shared by the layouts of one job. Key holds everything that determines
/// them; pp, dp, the ZeRO stage, the batch, the schedule and the choice of recomputation do not. Jobs that share an
/// object may differ only in Key, in these settings, in which layers have experts, in MTP modules, and in whether
/// gradients are reduced during the backward pass. An object must not be shared between price_memory, least_pass_time
/// and the other functions, nor between threads. When it reaches kMost entries, all are dropped.
class SharedPrices {
 public:
  struct Key {
    int tp = 1;
    int cp = 1;
    int micro_batch_size = 1;
    bool sequence_parallel = false;
    GroupPlacement tensor_ranks;
    GroupPlacement context_ranks;
    GroupPlacement context_ring;  ///< context ranks of different inner groups
    int ep = 1;                   ///< this and the following members: for blocks with experts
    int expert_tensor_ranks = 1;
    GroupPlacement expert_ranks;
    ExpertOverlap overlap = ExpertOverlap::kNone;

    auto operator<=>(const Key&) const = default;
  };

  static constexpr std::size_t kMost = 1024;

  SharedPrices();
  SharedPrices(const SharedPrices&) = delete;
  SharedPrices& operator=(const SharedPrices&) = delete;
  ~SharedPrices();
  /// Parts is ModelSections or ExpertBlocks. Null if none is cached.
  template <class Parts>
  std::shared_ptr<const Parts> find(const Key& key) const {
    const auto& known = std::get<Kept<Parts>>(known_);
    const auto parts = known.find(key);
    return parts != known.end() ? parts->second : nullptr;
  }
  template <class Parts>
  void keep(const Key& key, std::shared_ptr<const Parts> parts) {
    auto& known = std::get<Kept<Parts>>(known_);
    if (known.size() >= kMost && !known.contains(key)) known.clear();
    known[key] = std::move(parts);
  }

 private:
  template <class Parts>
  using Kept = std::map<Key, std::shared_ptr<const Parts>>;

  std::tuple<Kept<ModelSections>, Kept<ExpertBlocks>> known_;
};

/// Prices a job operator by operator. `stage_layers` has one entry per model stage. Results are bit-identical with and
/// without `shared`. Nothing is cached if more than SharedPrices::Key matters (adapters, preference training,
/// user-defined costs, reordered ranks, tensor grids, stalls caused by neighbours on other nodes, uneven nodes, layer
/// profiles).
StepCosts price_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers,
                     SharedPrices* shared = nullptr);

/// Only the stages of price_step, without boundaries, flushes and gradient buckets. Tied tables count on both stages.
CostsByStage price_passes(const Job& job, const StageMap& map, const std::vector<int>& stage_layers,
                          SharedPrices* shared = nullptr);

/// The whole model on one stage, with only `activation`, parameters and frozen weights, equal to those of price_step
/// but without pricing any times. For layouts that do not offload activations.
StageCosts price_memory(const Job& job, SharedPrices& shared);

/// A lower bound of a microbatch's forward and backward pass through the whole model, for any experts, expert ranks, pp
/// and recomputation. It counts computation and the collectives of tensor and context ranks. Left out: the experts'
/// GEMMs and exchange, waiting for the host, sharded weights. Expects a layout with ep 1 and without recomputation, and
/// a job without fine-tuning.
Seconds least_pass_time(const Job& job, SharedPrices& shared);

/// Counting of causal attention: with all or half of its FLOPs. Both are called MFU: PaLM 2204.02311 and Megatron count
/// it in full, FlashAttention-2 2307.08691 and PyTorch's counters by half.
enum class AttentionFlops { kFull, kCausal };

/// FLOPs of one step over all ranks as counted for MFU: GEMMs once forward and twice backward, attention in full unless
/// specified otherwise. For GPT: 72BLsh²(1 + s/6h + V/12hL) (Narayanan et al. 2104.04473 eq. 3, without recomputation).
/// 0 for a layer profile, which does not know FLOPs.
Flops model_flops_per_step(const Job& job, AttentionFlops counted = AttentionFlops::kFull);

/// Prices a step on a cluster whose nodes hold different devices. All ranks of a pipeline rank (its tensor-, context-
/// and data-parallel peers) wait for each other, so each stage, and the flush, takes the time of the slowest device
/// among them.
/// Not modelled: giving slower replicas fewer microbatches, and groups whose ends differ in NCCL's tuning.
StepCosts price_uneven_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers);

/// Memory of the smallest device among the ranks of a pipeline rank.
Bytes memory_capacity(const Job& job, int pipeline_rank);

/// Mean peak of all devices, the reference of MFU.
FlopsPerSecond mean_peak(const Job& job);

/// price_step for a job whose model is a layer profile (job.profile).
///
///   stage      sums of its layers' times, activations and parameters, scaled to the microbatch
///   boundary   bytes that cross the boundary, over the link between the two ranks
///   flush      as for any model, from the parameters; gradients are reduced after the last backward pass
/// Full recomputation keeps only the stage's input and repeats its forward pass (Chen et al. 1604.06174; one stage at a
/// time as in GPipe, Huang et al. 1811.06965 §2.3); the first stage's input is data and not counted.
StepCosts price_profile_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers);

}  // namespace flopcast
