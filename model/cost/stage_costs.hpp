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

/// Which part of the model each stage of a schedule holds and which pipeline rank runs it. A bidirectional schedule
/// holds the model twice: its stage s has part s mod `model_stages`.
struct StageMap {
  std::vector<int> rank_of_stage;
  int model_stages = 1;
  /// By stage; empty: 1. Its microbatches, in a program whose ranks run all those of a stage in a row, in either
  /// direction: sharded weights are then gathered once for the row, and gradients reduced once at its end.
  std::vector<int> passes_in_a_row;

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  int copies() const { return stages() / model_stages; }
  int model_stage(int stage) const { return stage % model_stages; }
  std::vector<int> stages_of(int rank) const;  ///< ascending
};

/// One pass of one microbatch through one stage, on one rank. Communication is the exposed part: the device waits.
struct PassCost {
  Seconds compute;
  ByAxis<Seconds> comm;  ///< dp: weights gathered and gradients reduced inside the pass; pp: none
  Seconds offload;       ///< activations on their way to or from the host

  Seconds total() const {
    Seconds sum = compute;
    for (const Axis axis : kAxes) sum += comm[axis];
    return sum + offload;
  }
};

/// What one axis sends, whatever of it is hidden behind compute.
struct Traffic {
  Seconds time;
  Bytes sent_per_rank;
  double messages = 0.0;
  Seconds under_way{};  ///< `time` without what the network adds to hops between nodes; collectives of replicas

  Traffic& operator+=(const Traffic& other);
};

/// Gradients reduced together during a stage's last backward pass.
struct GradientBucket {
  double remaining = 0.0;  ///< share of that pass still to run when the last gradient of the bucket is ready
  Seconds reduction;
};

/// Parameters that are not trained, all of them and those of experts.
struct FrozenWeights {
  double parameters = 0.0;
  double experts = 0.0;
  Bytes weights;  ///< as they are stored
  Bytes expert_weights;

  void add(const FrozenWeights& other, double times);
  bool operator==(const FrozenWeights& other) const {
    return parameters == other.parameters && experts == other.experts && weights == other.weights &&
           expert_weights == other.expert_weights;
  }
};

/// What muon and galore do with the trained matrices of blocks, on one rank and in one step; nothing for other
/// optimizers. Other parameters are Adam's.
///
/// muon     five Newton-Schulz steps on each matrix m x n, m <= n, in bf16: X·Xᵀ, its square and a product with X,
///          4m²n + 2m³ FLOPs a step (Liu et al. 2502.16982 §2.1). Each tensor-parallel rank takes its own part of a
///          matrix (Megatron Core's muon_tp_mode blockwise).
/// galore   the gradient is projected on r dimensions of the shorter side and the update back, 4mnr FLOPs; two moments
///          of r·n and a projection of m·r (Zhao et al. 2403.03507 Table 1). Left out: the decompositions that renew
///          the projection every few hundred steps.
struct MatrixUpdate {
  double parameters = 0.0;
  double projected = 0.0;    ///< elements of the projected gradients
  double projections = 0.0;  ///< elements of the projections
  Seconds products;

  void add(const MatrixUpdate& other, double times);
};

/// Replicas hold experts in other parts than the rest.
struct MatrixUpdates {
  MatrixUpdate dense;
  MatrixUpdate experts;

  void add(const MatrixUpdates& other, double times);
};

/// One layer with experts as it runs: what is computed between its exchanges, and these. The gradient of a combine goes
/// to the experts, as long as a dispatch, and that of a dispatch comes back like a combine. Without what the host adds.
struct ExpertLayer {
  Seconds before;          ///< forward, up to the dispatch: attention, router, collectives of other axes
  Seconds experts;         ///< forward, from the dispatch on
  Seconds experts_input;   ///< input gradients of the same
  Seconds experts_weight;  ///< weight gradients
  Seconds before_input;
  Seconds before_weight;
  Seconds dispatch;
  Seconds combine;
  bool delays_weights = false;  ///< beside another pass, weight gradients are computed while gradients are exchanged
  double slower = 0.0;          ///< by which share computation slows down beside an exchange
  double exchange_slower = 0.0;

  Seconds forward() const { return before + dispatch + experts + combine; }
  Seconds backward() const {
    return dispatch + experts_input + experts_weight + combine + before_input + before_weight;
  }
};

/// What a forward and a backward pass of two microbatches gain where they run as a pair, over n layers with experts:
/// each · n - ends, and not less than nothing.
struct PairGain {
  Seconds each;
  Seconds ends;  ///< at the ends of a pair some exchanges have nothing beside them

  Seconds of(int layers) const { return std::max(Seconds(0), each * static_cast<double>(layers) - ends); }
};

/// Everything the simulator and the planner need to know of a stage; times per microbatch unless said otherwise.
/// The full backward pass B is recompute + input_gradient + weight_gradient, less what overlaps: tp_hidden.
struct StageCosts {
  int layers = 0;
  bool has_embedding = false;
  bool has_head = false;

  PassCost forward;
  PassCost recompute;  ///< forward work redone in the backward pass, before the input gradient
  PassCost input_gradient;
  PassCost weight_gradient;
  Seconds split_slowdown;  ///< what the input gradient takes longer where its weight gradient comes later
  Seconds tp_hidden;       ///< TP communication of the input gradient that a full B hides behind its weight gradient
  /// Where passes run as pairs: what F of this stage and B of a stage with as many layers with experts take less than
  /// one after the other, and what of their exchanges nobody waits for. Of two stages the lesser counts.
  Seconds pair_saved;
  Seconds pair_hidden;
  int expert_layers = 0;
  ExpertLayer expert_layer;  ///< each of these

  ByAxis<Traffic> sent;  ///< in all passes together; what follows the last microbatch is the flush's

  std::vector<GradientBucket> buckets;  ///< in the order they become ready; empty: reduced after the flush
  Traffic bucket_traffic;               ///< of all buckets, once a step

  Flops model_flops;  ///< of this rank, forward and backward, without recomputation
  Flops recompute_flops;

  Bytes activation;          ///< kept per microbatch in flight
  Bytes recompute_buffer;    ///< one block's activations, alive while its backward pass redoes them
  Bytes gradient_buffer;     ///< gradients of activations inside one block's backward pass
  Bytes saved_logits;        ///< of activation: what the loss keeps, on the stage with the head
  Bytes logits_buffer;       ///< gradients of the logits and of their input, on the stage with the head
  Bytes placeholders;        ///< gradients of linears that are allocated and never read
  Bytes gathered_weights;    ///< whole weights of the units at work and on their way, where weights are sharded
  Bytes gathered_gradients;  ///< whole gradients of one unit before they are scattered; outputs on nn.DataParallel's
                             ///< GPU 0
  Bytes offload_buffer;      ///< activations of two layers on their way to or from the host

  Bytes dequantised_weight;  ///< the largest of those that are stored in few bits, while it is multiplied with

  double parameters = 0.0;            ///< of this rank
  double expert_parameters = 0.0;     ///< of these, the ones that expert-parallel ranks split
  FrozenWeights frozen;               ///< of these, the ones that are not trained
  MatrixUpdates matrices;             ///< of the trained ones
  double low_rank_elements = 0.0;     ///< what PowerSGD sends of the dense ones; 0: not known
  double tensors = 0.0;               ///< operators with parameters
  double embedding_parameters = 0.0;  ///< the tied table, whose gradients the first and last stage add up

  /// Forward and whole backward pass of a microbatch, each without another pass that it overlaps with.
  Seconds passes() const {
    return forward.total() + recompute.total() + input_gradient.total() + weight_gradient.total() - tp_hidden;
  }
};

/// The costs of every stage, in order. Stages that are alike may share one entry.
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
  void push_like(std::size_t stage);   ///< one more stage, that is like `stage`
  StageCosts& own(std::size_t stage);  ///< to be changed, without the stages that were like it

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

/// The transfer over the boundary between stage s and s + 1, per rank and microbatch, or slice of one.
struct BoundaryCosts {
  Seconds forward;
  Seconds backward;
  Seconds slowdown;  ///< of a pass at its lower end, beside which it travels; 0 where transfers occupy the sender
  Bytes bytes;       ///< sent per rank, one direction
};

/// What follows the last microbatch, by pipeline rank.
struct FlushCosts {
  Seconds gradient_reduction;
  Seconds embedding_reduction;
  Seconds gradient_norm;
  Seconds optimizer;
  Seconds parameter_gather;
  Traffic dp;
  Traffic replicas;  ///< of dp, gradients reduced and weights handed out among all that hold the same
  double parameters = 0.0;
};

/// The one source of costs for simulator and planner.
struct StepCosts {
  CostsByStage stages;
  std::vector<BoundaryCosts> boundaries;
  std::vector<FlushCosts> ranks;
};

struct ModelSections;
struct ExpertBlocks;

/// Prices of blocks, embedding and head, reused between the layouts of one job. Key holds everything that decides them;
/// pp, dp, ZeRO's stage, the batch, the schedule and the choice of recomputation do not. Jobs that share an object may
/// differ only in Key, in those, in which layers have experts, in MTP modules, and in whether gradients are reduced
/// during the backward pass. Do not share an object between price_memory, least_pass_time and the other functions, nor
/// between threads. At kMost entries all are dropped.
class SharedPrices {
 public:
  struct Key {
    int tp = 1;
    int cp = 1;
    int micro_batch_size = 1;
    bool sequence_parallel = false;
    GroupPlacement tensor_ranks;
    GroupPlacement context_ranks;
    GroupPlacement context_ring;  ///< of the context ranks, those of different inner groups
    int ep = 1;                   ///< this and what follows: for blocks with experts
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
  /// Parts is one of the two. Null where none is kept.
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

/// Prices a job operator by operator. `stage_layers` has one entry per model stage. The same with and without `shared`,
/// to the bit. Where more than SharedPrices::Key counts (adapters, laws of one's own, ranks in another order, tensor
/// grids, stalls that neighbours on other nodes cause, uneven nodes, layer profiles) nothing is kept.
StepCosts price_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers,
                     SharedPrices* shared = nullptr);

/// The stages of price_step alone, without boundaries, flushes and gradient buckets. Tied tables count on both stages.
CostsByStage price_passes(const Job& job, const StageMap& map, const std::vector<int>& stage_layers,
                          SharedPrices* shared = nullptr);

/// The whole model on one stage: only `activation`, parameters and frozen weights: the same as price_step's, without
/// a price of any time. For layouts that do not offload activations.
StageCosts price_memory(const Job& job, SharedPrices& shared);

/// A lower bound of a microbatch's forward and backward pass through the whole model, for any experts, expert ranks, pp
/// and recomputation. It counts computation and the collectives of tensor and context ranks. Left out: the experts'
/// products and exchange, waits for the host, sharded weights. Expects a layout with ep 1 and without recomputation,
/// and a job without fine-tuning.
Seconds least_pass_time(const Job& job, SharedPrices& shared);

/// Whether the products of causal attention count in full or by half. Both are called MFU: PaLM 2204.02311 and Megatron
/// count in full, FlashAttention-2 2307.08691 and PyTorch's counters by half.
enum class AttentionFlops { kFull, kCausal };

/// FLOPs of one step over all ranks as MFU counts them: GEMMs forward and twice backward, attention in full unless
/// said otherwise. For GPT: 72BLsh²(1 + s/6h + V/12hL) (Narayanan et al. 2104.04473 eq. 3, without recomputation).
/// 0 for a layer profile, which knows no FLOPs.
Flops model_flops_per_step(const Job& job, AttentionFlops counted = AttentionFlops::kFull);

/// Prices a step on a cluster whose nodes hold different devices. All ranks of a pipeline rank (its tensor-, context-
/// and data-parallel peers) wait for each other, so each stage, and what follows the last microbatch, takes the time of
/// the slowest device among them.
/// Left out: giving slower replicas fewer microbatches, and groups whose ends differ in NCCL's tuning.
StepCosts price_uneven_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers);

/// The memory of the smallest device among the ranks of a pipeline rank.
Bytes memory_capacity(const Job& job, int pipeline_rank);

/// The mean over all devices: what MFU is a share of.
FlopsPerSecond mean_peak(const Job& job);

/// price_step for a job whose model is a layer profile (job.profile).
///
///   stage      the sums of its layers' times, activations and parameters, times the microbatch's scale
///   boundary   the bytes that cross the cut, over the link between the two ranks
///   flush      as for any model, from the parameters; gradients are reduced after the last backward pass
/// Full recomputation keeps the stage's input only and runs its forward pass again (Chen et al. 1604.06174; a stage at
/// a time as in GPipe, Huang et al. 1811.06965 §2.3); the first stage's input is data and not counted.
StepCosts price_profile_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers);

}  // namespace flopcast
