#include "sim/forecast/terms.hpp"

#include <algorithm>
#include <numeric>

#include "base/text/by_member.hpp"
#include "base/text/error.hpp"

namespace flopcast {

const std::array<StepTerm, 10>& breakdown_terms() {
  using B = Breakdown;
  static constexpr std::array<StepTerm, 10> kTerms = {{
      {TermId::kCompute, "compute", "compute_s", "#0072B2", "forward and backward passes, without the parts below",
       "clocks and power (nvidia-smi -q -d CLOCK,POWER), fused kernels, data loading; calibrate --trace",
       &B::compute_s},
      {TermId::kRecompute, "recomputation", "recompute_s", "#56B4E9", "forward passes repeated for the backward pass",
       "how many layers are recomputed, and which parts", &B::recompute_s},
      {TermId::kTensorParallel, "tensor-parallel communication", "tp_comm_s", "#CC79A7",
       "collectives of tensor-parallel ranks inside passes",
       "tp inside a node, NVLink up (nvidia-smi topo -m); calibrate --nccl-tests", &B::tp_comm_s, nullptr,
       Axis::kTensor},
      {TermId::kPipeline, "pipeline communication", "pp_comm_s", "#D55E00",
       "waiting for activations and gradients in transit from adjacent stages",
       "p2p over the expected cards (NCCL_DEBUG=INFO), batched or blocking sends", &B::pp_comm_s, nullptr,
       Axis::kPipeline},
      {TermId::kDataParallel, "data-parallel communication", "dp_comm_s", "#E69F00",
       "weights gathered and gradients reduced over replicas, as far as exposed",
       "overlap of the reduction, bucket size, GPUDirect RDMA, one slow link", &B::dp_comm_s, nullptr, Axis::kData},
      {TermId::kContextParallel, "context-parallel communication", "cp_comm_s", "#009E73",
       "keys and values exchanged over the ranks of a sequence", "ranks of a ring on one node; overlap with attention",
       &B::cp_comm_s, nullptr, Axis::kContext},
      {TermId::kExpertParallel, "expert-parallel communication", "ep_comm_s", "#F0E442",
       "tokens sent to their experts and back", "balance of the experts; all-to-all over the network", &B::ep_comm_s,
       nullptr, Axis::kExpert},
      {TermId::kOptimizer, "optimizer", "optimizer_s", "#8C8C8C", "the update of the weights",
       "fused optimizer, sharded states, offload", &B::optimizer_s},
      {TermId::kOffload, "activations to and from the host", "offload_s", "#7F4B68",
       "waiting for activations in transit to or from the host", "pinned memory, PCIe width", &B::offload_s},
      {TermId::kBubble, "bubble", "bubble_s", "", "waiting for anything but a transfer in progress", "", &B::bubble_s},
  }};
  return kTerms;
}

const std::array<StepTerm, 4>& bubble_terms() {
  using W = BubbleResult;
  static constexpr std::array<StepTerm, 4> kTerms = {{
      {TermId::kWarmup, "bubble: warm-up", "warmup_s", "#56B4E9", "waiting before a rank's first backward pass",
       "microbatches per step", nullptr, &W::warmup_s},
      {TermId::kCooldown, "bubble: cool-down", "cooldown_s", "#0072B2", "waiting after a rank's last forward pass",
       "microbatches per step", nullptr, &W::cooldown_s},
      {TermId::kImbalance, "bubble: uneven stages", "imbalance_s", "#E69F00",
       "waiting of ranks that have less work than the busiest",
       "layers of each stage; one slow GPU (step time per rank)", nullptr, &W::imbalance_s},
      {TermId::kDependency, "bubble: dependencies", "dependency_s", "#CC79A7", "waiting for another rank's result",
       "jitter between ranks; transfers that do not overlap", nullptr, &W::dependency_s},
  }};
  return kTerms;
}

const StepTerm& step_term(TermId id) {
  const auto index = static_cast<std::size_t>(id);
  const std::size_t whole = breakdown_terms().size();
  const StepTerm& term = index < whole ? breakdown_terms().at(index) : bubble_terms().at(index - whole);
  FLOPCAST_CHECK(term.id == id);
  return term;
}

const StepTerm& communication_term(Axis axis) {
  const auto* const found =
      std::find_if(breakdown_terms().begin(), breakdown_terms().end(), where(&StepTerm::axis, axis));
  FLOPCAST_CHECK(found != breakdown_terms().end());
  return *found;
}

const std::vector<TermId>& compared_terms() {
  static const std::vector<TermId> order = {TermId::kCompute,         TermId::kRecompute,      TermId::kTensorParallel,
                                            TermId::kContextParallel, TermId::kExpertParallel, TermId::kPipeline,
                                            TermId::kDataParallel,    TermId::kOptimizer,      TermId::kOffload,
                                            TermId::kWarmup,          TermId::kCooldown,       TermId::kImbalance,
                                            TermId::kDependency};
  return order;
}

std::vector<double> compared_seconds(const Result& result) {
  std::vector<double> seconds;
  for (const TermId id : compared_terms()) seconds.push_back(step_term(id).seconds(result));
  // The rounding error of the sum goes to the largest term.
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  *std::max_element(seconds.begin(), seconds.end()) += result.iteration.time_s - sum;
  return seconds;
}

std::vector<ComparedTerm> compare_terms(const Result& a, const Result& b) {
  const std::vector<double> first = compared_seconds(a);
  const std::vector<double> second = compared_seconds(b);
  std::vector<ComparedTerm> terms;
  for (std::size_t index = 0; index < first.size(); ++index) {
    const StepTerm& term = step_term(compared_terms()[index]);
    terms.push_back({term.id, term.name, first[index], second[index]});
  }
  return terms;
}

const std::array<MemoryTerm, 6>& memory_terms() {
  using M = RankMemoryResult;
  static constexpr std::array<MemoryTerm, 6> kTerms = {{
      {"weights", "weights_gib", "#0072B2", "the weights that passes compute with", &M::weights_gib},
      {"gradients", "gradients_gib", "#E69F00", "the sums of the microbatches' gradients", &M::gradients_gib},
      {"optimizer", "optimizer_gib", "#009E73", "fp32 weights and moments", &M::optimizer_gib},
      {"activations", "activations_gib", "#CC79A7", "tensors that forward passes keep for backward passes, at the peak",
       &M::activations_gib},
      {"weight versions", "weight_versions_gib", "#56B4E9", "copies of the weights beyond the first",
       &M::weight_versions_gib},
      {"workspace", "workspace_gib", "#F0E442", "buffers that live within one action", &M::workspace_gib},
  }};
  return kTerms;
}

const MemoryTerm& memory_term(double RankMemoryResult::*gib) {
  const auto* const found = std::find_if(memory_terms().begin(), memory_terms().end(), where(&MemoryTerm::gib, gib));
  FLOPCAST_CHECK(found != memory_terms().end());
  return *found;
}

}  // namespace flopcast
