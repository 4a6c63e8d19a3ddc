#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/hardware/device.hpp"
#include "model/job/fields.hpp"
#include "model/workload/training.hpp"

namespace flopcast {

namespace {

constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;

// Reads {"ampere": [0.57, 0.25]}: forward and backward efficiency by generation.
void read_flash_efficiency(ObjectReader& owner_reader, const FieldInfo& field, Stack& stack) {
  auto reader = owner_reader.object(field.key);
  if (!reader) return;
  for (const std::string& generation : names_of<GpuGeneration>()) {
    const nlohmann::json* pair = reader->find(generation);
    if (pair == nullptr) continue;
    const auto is_share = [](const nlohmann::json& value) {
      return value.is_number() && value.get<double>() > 0.0 && value.get<double>() <= 1.0;
    };
    if (!pair->is_array() || pair->size() != 2 || !is_share(pair->at(0)) || !is_share(pair->at(1))) {
      reader->fail(generation, fmt::format("{} is not a pair of fractions", pair->dump()),
                   "expected [forward, backward]");
    }
    stack.flash_efficiency[generation] = {pair->at(0).get<double>(), pair->at(1).get<double>()};
  }
  reader->refuse_unknown_keys();
}

OrderedJsonValue write_flash_efficiency(const FieldInfo&, const Stack& stack) {
  nlohmann::ordered_json json;
  for (const auto& [generation, share] : stack.flash_efficiency) {
    json[generation] = {share.forward, share.backward};
  }
  return json;
}

// A number format and the bytes of an element.
struct ElementFormat {
  std::string_view name;
  double bytes;
};
constexpr ElementFormat kElementFormats[] = {{"fp32", 4.0}, {"bf16", 2.0}, {"fp16", 2.0}, {"fp8", 1.0}};

// Field that stores the bytes of an element and is spelled as a number format.
template <auto Member>
Entry<OwnerOf<Member>> format(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    if (const auto index = reader.choice(field.key, element_format_names()))
      owner.*Member = kElementFormats[*index].bytes;
  };
  const auto write = [](const FieldInfo&, const OwnerOf<Member>& owner) -> OrderedJsonValue {
    const double bytes = owner.*Member;
    for (const ElementFormat& format : kElementFormats) {
      if (format.bytes == bytes) return format.name;
    }
    return nullptr;
  };
  return entry_of<Member>(key, FieldKind::kChoice, help, read, write).among(&element_format_names);
}

void read_fused(ObjectReader& reader, const FieldInfo& field, Stack& stack) {
  const std::vector<std::string> words = listed_words(reader, field, "expected a list such as [\"norm\", \"rotary\"]");
  auto& fused = stack.fused;
  fused.fill(false);
  for (const std::string& word : words) {
    if (word == "none") continue;
    const std::optional<FusedOperator> op = parse<FusedOperator>(word);
    if (!op) {
      reader.fail(field.key, fmt::format("unknown operator \"{}\"", word),
                  choices_help(word, names_of<FusedOperator>()));
    }
    fused[static_cast<std::size_t>(*op)] = true;
  }
}

OrderedJsonValue write_fused(const FieldInfo&, const Stack& stack) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  const auto& fused = stack.fused;
  for (std::size_t index = 0; index < fused.size(); ++index) {
    if (fused[index]) names.push_back(names_of<FusedOperator>()[index]);
  }
  return names;
}

constexpr int kNcclMajor = 100;

// Parses "2.21" or "2.21.5" as 221; patch releases bring no new algorithms.
std::optional<int> nccl_release(std::string_view text) {
  constexpr int kOldest = 4;
  constexpr int kLatestPatch = 999;
  const std::string_view major = "2.";
  if (!text.starts_with(major)) return std::nullopt;
  const std::string_view rest = text.substr(major.size());
  const std::size_t dot = rest.find('.');
  const std::optional<int> minor = parse_digits(rest.substr(0, dot), kOldest, kNcclMajor - 1);
  const bool is_whole = dot == std::string_view::npos || parse_digits(rest.substr(dot + 1), 0, kLatestPatch);
  if (!minor || !is_whole) return std::nullopt;
  return 2 * kNcclMajor + *minor;
}

void read_nccl(ObjectReader& reader, const FieldInfo& field, Stack& stack) {
  const auto text = reader.text(field.key);
  if (!text) return;
  const std::optional<int> release = nccl_release(*text);
  if (!release) {
    reader.fail(field.key, fmt::format("\"{}\" is not an NCCL release", *text),
                "use 2.4 or later, such as 2.18, 2.21 or 2.27");
  }
  stack.nccl = *release;
}

OrderedJsonValue write_nccl(const FieldInfo&, const Stack& stack) {
  const int release = stack.nccl;
  if (release == 0) return nullptr;
  return fmt::format("{}.{}", release / kNcclMajor, release % kNcclMajor);
}

void read_dispatch(ObjectReader& reader, Stack& stack) {
  auto dispatch = reader.object("experts_dispatch");
  if (!dispatch) return;
  if (const auto index = dispatch->choice("dispatcher", names_of<ExpertDispatcher>())) {
    stack.experts_dispatcher = static_cast<ExpertDispatcher>(*index);
  }
  if (const auto index = dispatch->choice("dtype", element_format_names())) {
    stack.experts_dispatch_bytes = kElementFormats[*index].bytes;
  }
  if (const auto nodes = dispatch->whole("node_limit", 1, kMostRanks)) stack.experts_node_limit = *nodes;
  dispatch->refuse_unknown_keys();
}

}  // namespace

const std::vector<std::string>& attention_names() {
  static const std::vector<std::string> names = {"flash", "unfused"};
  return names;
}

std::vector<std::string> element_format_names() {
  std::vector<std::string> names;
  for (const ElementFormat& format : kElementFormats) names.emplace_back(format.name);
  return names;
}

const Fields<Stack>& software_fields() {
  static const Fields<Stack> fields = {
      boolean<&Stack::fp8_parameters>("fp8_parameters", "gather weights in 8 bits").flag("", {"--fp8-param-gather"}),
      boolean<&Stack::fp8_attention>("fp8_attention", "fused attention with 8-bit operands")
          .flag("", {"--fp8-dot-product-attention"}),
      boolean<&Stack::fp8_activations>("fp8_activations", "store the saved inputs of activation functions in 8 bits")
          .flag("", {"--activation-func-fp8-input-store"}),
      boolean<&Stack::compile>("compile", "generate fused element-wise kernels, like torch.compile").flag(""),
      entry_of<&Stack::fused>("fused", FieldKind::kList, "operators that run as a single fused kernel", &read_fused,
                              &write_fused)
          .among([] { return names_of<FusedOperator>(); })
          .flag("NAME,…"),
      choice<&Stack::cuda_graphs>("cuda_graphs", "use of CUDA graphs: none, scoped or full").flag("KIND"),
      choice<&Stack::grouped_kernel>("grouped_kernel", "launches of the local experts' GEMMs: per_expert or one")
          .flag("KIND"),
      optional_choice<&Stack::flash_kernels>("flash_attention", "generation of the fused attention kernels")
          .flag("2|3|cudnn"),
      choice<&Stack::amax_reduction>("amax_reduction",
                                     "ranks that share the scales of delayed fp8: none, tensor or replicas")
          .flag("RANKS"),
      entry_of<&Stack::nccl>("nccl", FieldKind::kText, "NCCL release, such as 2.21, which determines its algorithms",
                             &read_nccl, &write_nccl)
          .flag("2.N"),
      format<&Stack::reduce_bytes>("reduce_dtype", "format in which replicas reduce gradients").flag("FORMAT"),
      format<&Stack::moment_bytes>("moment_dtype", "format of the optimizer's moments")
          .flag("FORMAT", {"--exp-avg-dtype"}),
  };
  return fields;
}

const Fields<Stack>& overlap_fields() {
  static const Fields<Stack> fields = {
      other("gradients", FieldKind::kBoolean, "overlap gradient reduction with the last backward pass")
          .flag("", {"--overlap-grad-reduce"}),
      other("parameters", FieldKind::kBoolean, "overlap the gather of updated weights with the first forward passes")
          .flag("", {"--overlap-param-gather"}),
      other("p2p", FieldKind::kBoolean, "overlap pipeline transfers with computation").flag(""),
      other("tp", FieldKind::kBoolean, "overlap tensor-parallel collectives with GEMMs, in pieces")
          .flag("", {"--tp-comm-overlap"}),
      other("experts", FieldKind::kChoice,
            "overlap of the exchange of routed tokens: none, 1f1b, 1f1b_delayed or dualpipe")
          .among([] { return names_of<ExpertOverlap>(); })
          .flag("KIND"),
  };
  return fields;
}

const Fields<Stack>& dispatch_fields() {
  static const Fields<Stack> fields = {
      other("dispatcher", FieldKind::kChoice, "dispatcher of routed tokens: alltoall, allgather, deepep or hybridep")
          .among([] { return names_of<ExpertDispatcher>(); })
          .flag("KIND"),
      other("dtype", FieldKind::kChoice, "format in which tokens are sent to their experts")
          .among(&element_format_names)
          .flag("FORMAT"),
      other("node_limit", FieldKind::kWhole, "largest number of nodes that hold a token's experts").flag("N"),
  };
  return fields;
}

void read_software(ObjectReader& reader, Stack& stack) {
  read_fields(software_fields(), reader, stack);
  if (const auto index = reader.choice("gradient_dtype", element_format_names()))
    stack.gradient_bytes = kElementFormats[*index].bytes;
  read_dispatch(reader, stack);
  auto overlap = reader.object("overlap");
  if (!overlap) return;
  if (const auto on = overlap->boolean("gradients")) stack.overlap_gradient_reduction = *on;
  if (const auto on = overlap->boolean("parameters")) stack.overlap_parameter_gather = *on;
  if (const auto on = overlap->boolean("p2p")) stack.blocking_sends = !*on;
  if (const auto on = overlap->boolean("tp")) {
    stack.overlap_tp_in_pieces = *on;
    stack.overlap_tp_with_weight_gradient = *on;
  }
  if (const auto index = overlap->choice("experts", names_of<ExpertOverlap>())) {
    stack.overlap_experts = static_cast<ExpertOverlap>(*index);
  }
  overlap->refuse_unknown_keys();
}

const Fields<Stack>& stack_fields() {
  constexpr int kLargestDivisor = 1'000'000;
  constexpr int kLargestGradient = 8;
  constexpr int kMostSoftmaxRows = 1024;
  constexpr int kMostLossBytes = 1'000;
  static const Fields<Stack> own = {
      text<&Stack::name>("name", "training software: a name (see: flopcast catalog stacks) or a JSON file")
          .flag("NAME|FILE", {"--stack"})
          .names_object()
          .among([] { return catalogue_names(CatalogueKind::kStacks); }),
      other("description", FieldKind::kText, "description of the stack"),
      text<&Stack::based_on>("based_on", "catalogue entry of whose software this is a version")
          .otherwise("the stack itself"),
      whole<&Stack::vocab_divisor>("vocab_divisor", 1, kLargestDivisor,
                                   "the vocabulary is padded to a multiple of this number times tp"),
      attention<&Stack::flash_attention>(
          "flash: one kernel for scores, softmax and context; unfused: separate kernels"),
      boolean<&Stack::fused_bias_dropout_add>("fused_bias_dropout_add", "one kernel for bias, dropout and residual"),
      whole<&Stack::fused_softmax_group>("fused_softmax_group", 1, kMostSoftmaxRows,
                                         "number of score rows that the fused softmax kernel processes together")
          .of_gpus(),
      boolean<&Stack::fused_gradient_accumulation>(
          "fused_gradient_accumulation", "the weight-gradient GEMM accumulates directly into the gradient buffer"),
      whole<&Stack::gradient_bytes>("gradient_bytes", 1, kLargestGradient,
                                    "bytes per parameter of the buffer that accumulates gradients over microbatches"),
      whole<&Stack::optimizer_gradient_bytes>("optimizer_gradient_bytes", 0, kLargestGradient,
                                              "bytes per parameter of a copy of the gradients kept by the optimizer"),
      boolean<&Stack::keeps_pass_gradients>("keeps_pass_gradients",
                                            "the gradients of a pass stay in memory in addition to that buffer"),
      boolean<&Stack::placeholder_gradients>(
          "placeholder_gradients", "with fused accumulation, allocate a gradient of each linear that is never read")
          .of_gpus(),
      boolean<&Stack::blocking_sends>("blocking_sends", "pipeline transfers block the sender"),
      quantity<&Stack::transfer_synchronization>("transfer_synchronization", Dimension::kTime,
                                                 "time device and host wait for each other after a transfer")
          .of_gpus(),
      quantity<&Stack::gather_allocation>("gather_allocation", Dimension::kTime,
                                          "time device and host wait while the output of a gather is allocated")
          .of_gpus(),
      boolean<&Stack::scatter_gather_transfers>(
          "scatter_gather_transfers",
          "without sequence parallelism, each tensor-parallel rank sends 1/tp of a pipeline transfer"),
      boolean<&Stack::overlap_gradient_reduction>("overlap_gradient_reduction",
                                                  "gradients are reduced in buckets during the last backward pass"),
      boolean<&Stack::overlap_tp_with_weight_gradient>(
          "overlap_tp_with_weight_gradient",
          "tensor-parallel collectives of the backward pass overlap with the weight-gradient GEMM"),
      boolean<&Stack::overlap_tp_in_pieces>(
          "overlap_tp_in_pieces", "tensor-parallel collectives are split into tp pieces that overlap with GEMMs"),
      boolean<&Stack::overlap_parameter_gather>("overlap_parameter_gather",
                                                "the gather of updated weights overlaps with the first forward passes"),
      boolean<&Stack::reduces_whole_gradients>(
          "reduces_whole_gradients",
          "with sharded optimizer state, one all-reduce of all gradients after the last pass"),
      boolean<&Stack::gathers_each_parameter>("gathers_each_parameter",
                                              "updated weights are gathered with one collective per parameter"),
      boolean<&Stack::balances_by_parameters>("balances_by_parameters",
                                              "balanced stages have equal GEMM parameters instead of equal time"),
      choice<&Stack::experts_dispatcher>("experts_dispatcher", "default of training.experts_dispatch.dispatcher"),
      format<&Stack::experts_dispatch_bytes>("experts_dispatch_dtype", "default of training.experts_dispatch.dtype"),
      whole<&Stack::experts_node_limit>("experts_node_limit", 0, kMostRanks,
                                        "default of training.experts_dispatch.node_limit; 0: all nodes"),
      optional_choice<&Stack::overlap_experts>("overlap_experts", "default of training.overlap.experts"),
      choice<&Stack::selective_recompute>("selective_recompute", "what recompute selective recomputes"),
      boolean<&Stack::fp8_gathers>("fp8_gathers", "with fp8, tensor-parallel ranks gather operands in 8 bits"),
      optional_choice<&Stack::fp8_recipe>("fp8_recipe", "default of training.fp8_recipe"),
      quantity<&Stack::fp8_on_blackwell>("fp8_on_blackwell", Dimension::kCount,
                                         "speed of 8-bit GEMMs on Blackwell relative to cuBLAS 12.9")
          .up_to(1.0)
          .of_gpus(),
      quantity<&Stack::ring_merge_forward_bytes>(
          "ring_merge_forward_bytes", Dimension::kCount,
          "bytes moved per token and context feature to merge a ring's partial results, in each step")
          .up_to(1'000.0)
          .of_gpus(),
      quantity<&Stack::ring_merge_backward_bytes>("ring_merge_backward_bytes", Dimension::kCount,
                                                  "the same for the backward pass")
          .up_to(1'000.0)
          .of_gpus(),
      boolean<&Stack::single_pass_norm>(
          "single_pass_norm", "norms read their input once; false: separate passes for statistics and result"),
      quantity<&Stack::softmax_forward_bytes>("softmax_forward_bytes", Dimension::kCount,
                                              "bytes moved per score by scale, mask and softmax; 0: the minimum")
          .up_to(1'000.0)
          .of_gpus(),
      quantity<&Stack::split_backward_slowdown>(
          "split_backward_slowdown", Dimension::kCount,
          "relative slowdown of an input gradient whose weight gradient is computed later")
          .up_to(1.0)
          .of_gpus(),
      whole<&Stack::loss_forward_bytes>("loss_forward_bytes", 0, kMostLossBytes, "bytes moved per logit by the loss")
          .of_gpus(),
      whole<&Stack::loss_backward_bytes>("loss_backward_bytes", 0, kMostLossBytes,
                                         "bytes moved per logit by the loss's backward pass")
          .of_gpus(),
      whole<&Stack::loss_saved_bytes>("loss_saved_bytes", 0, kMostLossBytes,
                                      "bytes per logit kept until the backward pass")
          .of_gpus(),
      quantity<&Stack::host_time_per_kernel>("host_time_per_kernel", Dimension::kTime, "host time to launch a kernel")
          .of_gpus(),
      quantity<&Stack::host_time_per_collective>("host_time_per_collective", Dimension::kTime,
                                                 "host time to launch a collective")
          .of_gpus(),
      quantity<&Stack::host_time_per_microbatch>("host_time_per_microbatch", Dimension::kTime,
                                                 "host time of a microbatch beyond its layers")
          .of_gpus(),
      quantity<&Stack::host_time_per_hand_over>("host_time_per_hand_over", Dimension::kTime,
                                                "host time of a transfer between pipeline stages")
          .of_gpus(),
      quantity<&Stack::host_time_per_checkpoint>("host_time_per_checkpoint", Dimension::kTime,
                                                 "host time of a recomputed region")
          .of_gpus(),
      quantity<&Stack::host_time_per_ring_step>("host_time_per_ring_step", Dimension::kTime,
                                                "host time per layer pass and context-parallel rank")
          .of_gpus(),
      quantity<&Stack::host_time_per_parameter>("host_time_per_parameter", Dimension::kTime,
                                                "host time of ZeRO 3 per parameter tensor and layer pass")
          .of_gpus(),
      quantity<&Stack::host_time_per_step>("host_time_per_step", Dimension::kTime,
                                           "host time of a step beyond its microbatches")
          .of_gpus(),
      quantity<&Stack::host_time_per_tensor>("host_time_per_tensor", Dimension::kTime,
                                             "host time of a step per tensor of the optimizer on a rank")
          .of_gpus(),
      boolean<&Stack::host_waits_for_hops>(
          "host_waits_for_hops", "the launching thread waits while a tensor-parallel collective crosses nodes")
          .of_gpus(),
      quantity<&Stack::collective_stall>(
          "collective_stall", Dimension::kTime,
          "delay of a tensor-parallel collective per rank if pipeline neighbours are on other nodes")
          .of_gpus(),
      quantity<&Stack::hand_over_stall>(
          "hand_over_stall", Dimension::kTime,
          "delay of a pipeline transfer between nodes in some runs; raises only the upper end of the interval")
          .of_gpus(),
      entry_of<&Stack::flash_efficiency>(
          "flash_efficiency", FieldKind::kObject,
          "[forward, backward] fractions of the peak that fused attention reaches, by generation",
          &read_flash_efficiency, &write_flash_efficiency)
          .among([] { return names_of<GpuGeneration>(); })
          .of_gpus(),
      quantity<&Stack::allocator_slack>(
          "allocator_slack", Dimension::kCount,
          "additional memory reserved by the allocator, as a fraction of the layers' activations")
          .up_to(10.0)
          .of_gpus(),
      quantity<&Stack::memory_overhead_gib>("memory_overhead", Dimension::kBytes,
                                            "memory shown by nvidia-smi beyond the tensors")
          .in_units_of(kBytesPerGib)
          .of_gpus(),
  };
  static const Fields<Stack> fields = [] {
    Fields<Stack> all = own;
    for (Field<Stack> field : software_fields()) {
      field.listed = false;
      field.aliases.clear();
      all.push_back(field);
    }
    return all;
  }();
  return fields;
}

}  // namespace flopcast
