#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "base/text/numbers.hpp"
#include "base/text/words.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/hardware/device.hpp"
#include "model/job/access.hpp"
#include "model/job/device_profile.hpp"
#include "model/layout/layout.hpp"
#include "model/workload/training.hpp"

namespace flopcast {

namespace {

constexpr int kMostRanks = 1'000'000;
constexpr int kMostHelpers = 10'000'000;
constexpr int kLargestBatch = 1'000'000'000;
constexpr int kLargestBucket = 1'000'000;
constexpr int kHighestStage = 3;
constexpr int kLongestSequence = 100'000'000;
constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;
constexpr std::string_view kFilePrefix = "file:";

// A schedule whose rows are told goes by its file's name: the path means nothing elsewhere.
OrderedJsonValue write_schedule(const Field&, const void* owner) {
  const Layout& layout = *static_cast<const Layout*>(owner);
  if (layout.schedule.empty()) return nullptr;
  const std::size_t slash = layout.schedule.rfind('/');
  if (layout.schedule_csv.empty() || slash == std::string::npos) return layout.schedule;
  return std::string(kFilePrefix) + layout.schedule.substr(slash + 1);
}

void read_schedule(ObjectReader& reader, const Field& field, void* owner) {
  if (const auto name = reader.text(field.key)) static_cast<Layout*>(owner)->schedule = *name;
}

// A list, or a word for how to make one.
void read_stage_layers(ObjectReader& reader, const Field& field, void* owner) {
  Layout& layout = *static_cast<Layout*>(owner);
  const nlohmann::json* value = reader.find(field.key);
  if (value != nullptr && value->is_string()) {
    layout.stage_split = static_cast<StageSplit>(*reader.choice(field.key, names_of<StageSplit>()));
  } else if (const auto layers = reader.whole_list(field.key, 0, kMostRanks)) {
    layout.stage_layers = *layers;
  }
}

OrderedJsonValue write_stage_layers(const Field&, const void* owner) {
  const Layout& layout = *static_cast<const Layout*>(owner);
  if (!layout.stage_layers.empty()) return nlohmann::ordered_json(layout.stage_layers);
  if (layout.stage_split) return name_of(*layout.stage_split);
  return nullptr;
}

void read_placement(ObjectReader& reader, const Field& field, void* owner) {
  const auto text = reader.text(field.key);
  if (!text) return;
  auto placement = kGridAxes;
  const std::string help = "name each of tp, cp, dp, pp once, innermost first: tp-cp-dp-pp";
  std::size_t begin = 0;
  std::size_t count = 0;
  while (begin <= text->size() && count < placement.size()) {
    const std::size_t dash = std::min(text->find('-', begin), text->size());
    const std::string word = text->substr(begin, dash - begin);
    const auto axis = std::find_if(kGridAxes.begin(), kGridAxes.end(), [&](Axis one) { return name_of(one) == word; });
    if (axis == kGridAxes.end()) reader.fail(field.key, fmt::format("unknown axis \"{}\"", word), help);
    placement[count++] = *axis;
    begin = dash + 1;
  }
  auto sorted = placement;
  std::sort(sorted.begin(), sorted.end());
  const bool complete = count == placement.size() && begin == text->size() + 1 &&
                        std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (!complete) reader.fail(field.key, fmt::format("\"{}\" does not name every axis once", *text), help);
  static_cast<Layout*>(owner)->placement = placement;
}

// Ranks along an axis, by its name.
template <Axis kAxis>
Entry ranks_along(std::string_view help, std::initializer_list<std::string_view> flags) {
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    const auto ranks = reader.whole(field.key, static_cast<int>(field.smallest), static_cast<int>(field.largest));
    if (ranks) (*static_cast<Layout*>(owner))[kAxis] = *ranks;
  };
  const auto write = [](const Field&, const void* owner) -> OrderedJsonValue {
    return (*static_cast<const Layout*>(owner))[kAxis];
  };
  Entry entry = custom<Layout>(name_of(kAxis), FieldKind::kWhole, help, read, write);
  entry.field.copy = [](const void* from, void* to) {
    (*static_cast<Layout*>(to))[kAxis] = (*static_cast<const Layout*>(from))[kAxis];
  };
  entry.field.smallest = 1;
  return entry.up_to(kMostRanks).flag("N", flags).chosen();
}

OrderedJsonValue write_placement(const Field&, const void* owner) {
  std::string text;
  for (const Axis axis : static_cast<const Layout*>(owner)->placement) {
    text.append(text.empty() ? "" : "-").append(name_of(axis));
  }
  return text;
}

void read_compression(ObjectReader& reader, const Field& field, void* owner) {
  const auto text = reader.text(field.key);
  if (!text || *text == "none") return;
  const auto refuse = [&]() {
    reader.fail(field.key, fmt::format("unknown value \"{}\"", *text),
                "valid: none, 8bit, 4bit, topk:F with a share F such as 0.01, powersgd:R with a rank R such as 4");
  };
  Compression& compression = static_cast<Layout*>(owner)->compression;
  if (*text == "8bit" || *text == "4bit") {
    compression.kind = Compression::Kind::kQuantized;
    compression.bits = *text == "8bit" ? 8 : 4;
    return;
  }
  const std::size_t colon = text->find(':');
  if (colon == std::string::npos) refuse();
  const std::string name = text->substr(0, colon);
  const std::string value = text->substr(colon + 1);
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !(number > 0.0)) refuse();
  if (name == "topk" && number <= 1.0) {
    compression.kind = Compression::Kind::kTopK;
    compression.fraction = number;
  } else if (name == "powersgd" && number <= kMostHelpers && number == static_cast<int>(number)) {
    compression.kind = Compression::Kind::kPowerSgd;
    compression.rank = static_cast<int>(number);
  } else {
    refuse();
  }
}

OrderedJsonValue write_compression(const Field&, const void* owner) {
  return static_cast<const Layout*>(owner)->compression.text();
}

const std::vector<std::string>& attention_names() {
  static const std::vector<std::string> names = {"flash", "unfused"};
  return names;
}

// flash or unfused, kept as whether it is flash.
template <auto Member>
Entry attention(std::string_view help) {
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    if (const auto index = reader.choice(field.key, attention_names())) member_of<Member>(owner) = *index == 0;
  };
  const auto write = [](const Field&, const void* owner) -> OrderedJsonValue {
    return attention_names()[member_of<Member>(owner) ? 0 : 1];
  };
  return entry_of<Member>("attention", FieldKind::kChoice, help, read, write).among([] { return attention_names(); });
}

// {"ampere": [0.57, 0.25]}: forward and backward, by generation.
void read_flash_efficiency(ObjectReader& owner_reader, const Field& field, void* owner) {
  auto reader = owner_reader.object(field.key);
  if (!reader) return;
  Stack& stack = *static_cast<Stack*>(owner);
  for (const std::string& generation : names_of<GpuGeneration>()) {
    const nlohmann::json* pair = reader->find(generation);
    if (pair == nullptr) continue;
    const auto is_share = [](const nlohmann::json& value) {
      return value.is_number() && value.get<double>() > 0.0 && value.get<double>() <= 1.0;
    };
    if (!pair->is_array() || pair->size() != 2 || !is_share(pair->at(0)) || !is_share(pair->at(1))) {
      reader->fail(generation, fmt::format("{} is no pair of shares", pair->dump()), "expected [forward, backward]");
    }
    stack.flash_efficiency[generation] = {pair->at(0).get<double>(), pair->at(1).get<double>()};
  }
  reader->refuse_unknown_keys();
}

OrderedJsonValue write_flash_efficiency(const Field&, const void* owner) {
  nlohmann::ordered_json json;
  for (const auto& [generation, share] : static_cast<const Stack*>(owner)->flash_efficiency) {
    json[generation] = {share.forward, share.backward};
  }
  return json;
}

// A format by its bytes.
struct Format {
  std::string_view name;
  double bytes;
};
constexpr Format kFormats[] = {{"fp32", 4.0}, {"bf16", 2.0}, {"fp16", 2.0}, {"fp8", 1.0}};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

// Bytes of an element, said as a format.
template <auto Member>
Entry format(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    if (const auto index = reader.choice(field.key, format_names())) member_of<Member>(owner) = kFormats[*index].bytes;
  };
  const auto write = [](const Field&, const void* owner) -> OrderedJsonValue {
    const double bytes = member_of<Member>(owner);
    for (const Format& format : kFormats) {
      if (format.bytes == bytes) return format.name;
    }
    return nullptr;
  };
  return entry_of<Member>(key, FieldKind::kChoice, help, read, write).among(&format_names);
}

template <auto Member>
Entry optional_choice(std::string_view key, std::string_view help) {
  using Enum = typename ValueOf<Member>::value_type;
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    if (const auto index = reader.choice(field.key, names_of<Enum>())) {
      member_of<Member>(owner) = static_cast<Enum>(*index);
    }
  };
  const auto write = [](const Field&, const void* owner) -> OrderedJsonValue {
    const auto& value = member_of<Member>(owner);
    return value ? nlohmann::ordered_json(name_of(*value)) : nlohmann::ordered_json(nullptr);
  };
  return entry_of<Member>(key, FieldKind::kChoice, help, read, write).among([] { return names_of<Enum>(); });
}

// ["norm", "rotary"]; flags name them with commas between.
std::vector<std::string> listed_words(ObjectReader& reader, const Field& field, const char* such_as) {
  const nlohmann::json* value = reader.find(field.key);
  std::vector<std::string> words;
  if (value->is_string()) {
    words = split(value->get<std::string>());
  } else if (value->is_array()) {
    for (const nlohmann::json& word : *value) words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
  } else {
    reader.fail(field.key, fmt::format("{} is no list", shown_value(*value)), such_as);
  }
  return words;
}

void read_fused(ObjectReader& reader, const Field& field, void* owner) {
  const std::vector<std::string> words = listed_words(reader, field, "such as [\"norm\", \"rotary\"]");
  auto& fused = static_cast<Stack*>(owner)->fused;
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

OrderedJsonValue write_fused(const Field&, const void* owner) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  const auto& fused = static_cast<const Stack*>(owner)->fused;
  for (std::size_t index = 0; index < fused.size(); ++index) {
    if (fused[index]) names.push_back(names_of<FusedOperator>()[index]);
  }
  return names;
}

constexpr int kNcclMajor = 100;

// "2.21" or "2.21.5", as 221: a patch brings no algorithm.
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

void read_nccl(ObjectReader& reader, const Field& field, void* owner) {
  const auto text = reader.text(field.key);
  if (!text) return;
  const std::optional<int> release = nccl_release(*text);
  if (!release) {
    reader.fail(field.key, fmt::format("\"{}\" is no release of NCCL", *text),
                "such as 2.18, 2.21 or 2.27, from 2.4 on");
  }
  static_cast<Stack*>(owner)->nccl = *release;
}

OrderedJsonValue write_nccl(const Field&, const void* owner) {
  const int release = static_cast<const Stack*>(owner)->nccl;
  if (release == 0) return nullptr;
  return fmt::format("{}.{}", release / kNcclMajor, release % kNcclMajor);
}

void read_recompute_modules(ObjectReader& reader, const Field& field, void* owner) {
  if (reader.find(field.key)->is_null()) return;
  RecomputeModules modules;
  for (const std::string& word : listed_words(reader, field, "such as [\"core_attn\", \"moe_act\"]")) {
    const std::optional<RecomputeModule> module = parse<RecomputeModule>(word);
    if (!module) {
      reader.fail(field.key, fmt::format("unknown module \"{}\"", word),
                  choices_help(word, names_of<RecomputeModule>()));
    }
    modules |= bit_of(*module);
  }
  if (modules.none()) reader.fail(field.key, "names no module", "leave it out, or give --recompute none");
  static_cast<Layout*>(owner)->recompute_modules = modules;
}

OrderedJsonValue write_recompute_modules(const Field&, const void* owner) {
  const std::optional<RecomputeModules>& modules = static_cast<const Layout*>(owner)->recompute_modules;
  if (!modules) return nullptr;
  return nlohmann::ordered_json(names_in(*modules));
}

}  // namespace

const Fields& software_fields() {
  static const Fields fields = {
      boolean<&Stack::fp8_parameters>("fp8_parameters", "weights are gathered in 8 bits")
          .flag("", {"--fp8-param-gather"}),
      boolean<&Stack::fp8_attention>("fp8_attention", "fused attention multiplies 8-bit operands")
          .flag("", {"--fp8-dot-product-attention"}),
      boolean<&Stack::fp8_activations>("fp8_activations", "what an activation keeps of its inputs is cast to 8 bits")
          .flag("", {"--activation-func-fp8-input-store"}),
      boolean<&Stack::compile>("compile", "element-wise kernels are generated and fused, as torch.compile does")
          .flag(""),
      entry_of<&Stack::fused>("fused", FieldKind::kList, "operators of one kernel each", &read_fused, &write_fused)
          .among([] { return names_of<FusedOperator>(); })
          .flag("NAME,…"),
      choice<&Stack::cuda_graphs>("cuda_graphs", "launches in graphs: none, scoped or full").flag("KIND"),
      choice<&Stack::grouped_kernel>("grouped_kernel", "launches of local experts' products: per_expert or one")
          .flag("KIND"),
      optional_choice<&Stack::flash_kernels>("flash_attention", "generation of the fused attention kernels")
          .flag("2|3|cudnn"),
      choice<&Stack::amax_reduction>("amax_reduction",
                                     "ranks that agree on scales of delayed fp8: none, tensor or replicas")
          .flag("RANKS"),
      entry_of<&Stack::nccl>("nccl", FieldKind::kText, "release of NCCL, such as 2.21: which algorithms it has",
                             &read_nccl, &write_nccl)
          .flag("2.N"),
      format<&Stack::reduce_bytes>("reduce_dtype", "of gradients on their way between replicas").flag("FORMAT"),
      format<&Stack::moment_bytes>("moment_dtype", "of the optimizer's moments").flag("FORMAT", {"--exp-avg-dtype"}),
  };
  return fields;
}

const Fields& overlap_fields() {
  static const Fields fields = {
      other("gradients", FieldKind::kBoolean, "gradient reduction beside the last backward pass")
          .flag("", {"--overlap-grad-reduce"}),
      other("parameters", FieldKind::kBoolean, "the gather of updated weights beside the first forward passes")
          .flag("", {"--overlap-param-gather"}),
      other("p2p", FieldKind::kBoolean, "pipeline transfers").flag(""),
      other("tp", FieldKind::kBoolean, "tensor-parallel collectives beside the products, in pieces")
          .flag("", {"--tp-comm-overlap"}),
      other("experts", FieldKind::kChoice, "exchanges of routed tokens: none, 1f1b, 1f1b_delayed or dualpipe")
          .among([] { return names_of<ExpertOverlap>(); })
          .flag("KIND"),
  };
  return fields;
}

const Fields& dispatch_fields() {
  static const Fields fields = {
      other("dispatcher", FieldKind::kChoice, "of routed tokens: alltoall, allgather, deepep or hybridep")
          .among([] { return names_of<ExpertDispatcher>(); })
          .flag("KIND"),
      other("dtype", FieldKind::kChoice, "of tokens on their way to their experts").among(&format_names).flag("FORMAT"),
      other("node_limit", FieldKind::kWhole, "nodes that a token's experts may be on").flag("N"),
  };
  return fields;
}

namespace {

constexpr int kHighestRank = 65'536;

void read_targets(ObjectReader& reader, const Field& field, void* owner) {
  AdapterTargets targets;
  for (const std::string& word : listed_words(reader, field, "such as [\"q_proj\", \"v_proj\"], or all")) {
    const AdapterTargets named = targets_of(word);
    if (named.none()) {
      reader.fail(field.key, fmt::format("unknown linear \"{}\"", word), choices_help(word, field.choices()));
    }
    targets |= named;
  }
  if (targets.none()) reader.fail(field.key, "names no linear", "leave it out for all of a block's");
  static_cast<Finetune*>(owner)->targets = targets;
}

OrderedJsonValue write_targets(const Field&, const void* owner) {
  const AdapterTargets& targets = static_cast<const Finetune*>(owner)->targets;
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (std::size_t index = 0; index < targets.size(); ++index) {
    if (targets[index]) names.push_back(names_of<AdapterTarget>()[index]);
  }
  if (names.empty()) return nullptr;
  return names;
}

std::vector<std::string> target_choices() {
  std::vector<std::string> names = names_of<AdapterTarget>();
  names.emplace_back("all");
  return names;
}

OrderedJsonValue write_fitted(const Field&, const void* owner) {
  const std::optional<RunFit>& fitted = static_cast<const Training*>(owner)->fitted;
  return fitted ? run_fit_json(*fitted) : nlohmann::ordered_json();
}

// Only what counts for its method.
OrderedJsonValue write_finetune(const Field&, const void* owner) {
  const std::optional<Finetune>& finetune = static_cast<const Training*>(owner)->finetune;
  if (!finetune) return nullptr;
  nlohmann::ordered_json json = write_fields(finetune_fields(), &*finetune);
  if (finetune->adapts()) {
    json.erase("trainable_layers");
  } else {
    for (const char* key : {"rank", "alpha", "targets", "dropout", "base", "double_quant"}) json.erase(key);
  }
  return json;
}

}  // namespace

const Fields& finetune_fields() {
  static const Fields fields = {
      choice<&Finetune::method>("method", "what is trained: full, lora, qlora or freeze")
          .names_object()
          .flag("METHOD", {"--finetune"}),
      whole<&Finetune::rank>("rank", 1, kHighestRank, "of the adapters' matrices").flag("N", {"--lora-rank"}),
      amount<&Finetune::alpha>("alpha", "alpha / rank scales what adapters add; no time depends on it").flag("A"),
      entry_of<&Finetune::targets>("targets", FieldKind::kList, "linears with adapters, or all", &read_targets,
                                   &write_targets)
          .among(&target_choices)
          .flag("NAME,…", {"--lora-targets"})
          .otherwise("all linears of a block"),
      amount<&Finetune::dropout>("dropout", "share dropped before the adapters").up_to(1.0).flag("P"),
      choice<&Finetune::base>("base", "how frozen linears are stored: bf16, fp8, int8 or nf4")
          .flag("FORMAT")
          .otherwise("bf16, nf4 with qlora"),
      boolean<&Finetune::double_quant>("double_quant", "nf4: scales in 8 bits").flag("").otherwise("with qlora's nf4"),
      whole<&Finetune::trainable_layers>("trainable_layers", -kLargestLayers, kLargestLayers,
                                         "freeze: the last N layers are trained, below 0 the first")
          .flag("N"),
      boolean<&Finetune::embeddings>("embeddings", "embedding and head are trained as well").flag(""),
  };
  return fields;
}

const Fields& preference_fields() {
  static const Fields fields = {
      choice<&Preference::method>("method", "what answers are judged by: dpo, orpo, simpo, reward, kto or grpo")
          .names_object()
          .required()
          .flag("METHOD", {"--preference"}),
      boolean<&Preference::reference>("reference", "a forward pass of the model as it was before, for comparison")
          .flag("")
          .otherwise("true with dpo, kto and grpo"),
  };
  return fields;
}

namespace {

// Only what counts for its optimizer.
OrderedJsonValue write_optimizer_rank(const Field&, const void* owner) {
  const Training& training = *static_cast<const Training*>(owner);
  if (training.optimizer != Optimizer::kGalore) return nullptr;
  return training.optimizer_rank;
}

OrderedJsonValue write_preference(const Field&, const void* owner) {
  const std::optional<Preference>& preference = static_cast<const Training*>(owner)->preference;
  if (!preference) return nullptr;
  return write_fields(preference_fields(), &*preference);
}

void read_dispatch(ObjectReader& reader, Stack& stack) {
  auto dispatch = reader.object("experts_dispatch");
  if (!dispatch) return;
  if (const auto index = dispatch->choice("dispatcher", names_of<ExpertDispatcher>())) {
    stack.experts_dispatcher = static_cast<ExpertDispatcher>(*index);
  }
  if (const auto index = dispatch->choice("dtype", format_names())) {
    stack.experts_dispatch_bytes = kFormats[*index].bytes;
  }
  if (const auto nodes = dispatch->whole("node_limit", 1, kMostRanks)) stack.experts_node_limit = *nodes;
  dispatch->refuse_unknown_keys();
}

}  // namespace

void read_software(ObjectReader& reader, Stack& stack) {
  read_fields(software_fields(), reader, &stack);
  if (const auto index = reader.choice("gradient_dtype", format_names())) stack.gradient_bytes = kFormats[*index].bytes;
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

const Fields& layout_fields() {
  static const Fields fields = {
      ranks_along<Axis::kData>("data-parallel replicas (default: the devices left over)", {"--dp"})
          .otherwise("the devices left over"),
      ranks_along<Axis::kTensor>("tensor-parallel ranks", {"--tp", "--tensor-model-parallel-size"}),
      ranks_along<Axis::kPipeline>("pipeline ranks", {"--pp", "--pipeline-model-parallel-size"}),
      whole<&Layout::vpp>("vpp", 1, kMostRanks, "stages per pipeline rank")
          .flag("N", {"--vpp", "--num-virtual-stages-per-pipeline-rank"})
          .otherwise("the schedule's")
          .chosen(),
      ranks_along<Axis::kContext>("context-parallel ranks", {"--cp", "--context-parallel-size"}),
      choice<&Layout::context_parallel>("context_parallel", "how cp ranks bring queries to keys")
          .flag("FORM")
          .possible(),
      whole<&Layout::context_inner>(
          "context_inner", 2, kMostRanks,
          "context_parallel hierarchical: neighbours that exchange heads, the ring is of cp/N")
          .flag("N")
          .possible(),
      boolean<&Layout::zigzag>("zigzag", "cp ranks hold an early and a late part of a sequence: equal causal work")
          .flag(""),
      ranks_along<Axis::kExpert>("expert-parallel ranks", {"--ep", "--expert-model-parallel-size"}),
      whole<&Layout::etp>("etp", 1, kMostRanks, "tensor-parallel ranks of an expert")
          .flag("N", {"--etp", "--expert-tensor-parallel-size"})
          .otherwise("tp")
          .chosen(),
      choice<&Layout::tensor_parallel>("tensor_parallel", "1d, 2d, 2.5d or 3d").flag("FORM").possible(),
      whole<&Layout::tensor_depth>("tensor_depth", 1, kMostHelpers, "depth d of tensor_parallel 2.5d, tp = q²·d")
          .flag("D")
          .possible(),
      boolean<&Layout::sequence_parallel>("sequence_parallel", "split norms and dropouts over tp")
          .flag("", {"--sp", "--sequence-parallel"})
          .chosen(),
      whole<&Layout::micro_batch_size>("micro_batch_size", 1, kLargestBatch, "sequences per microbatch")
          .flag("N", {"--mbs", "--micro-batch-size"})
          .chosen(),
      whole<&Layout::global_batch_size>("global_batch_size", 1, kLargestBatch, "sequences per step")
          .flag("N", {"--gbs", "--global-batch-size"})
          .otherwise("dp · micro_batch_size · accumulation; required without accumulation")
          .chosen(),
      custom<Layout>("schedule", FieldKind::kText, "pipeline schedule (see: flopcast schedule list)", &read_schedule,
                     &write_schedule)
          .flag("NAME[:V]", {"--schedule"})
          .otherwise("naive for one microbatch, interleaved with vpp, else 1f1b")
          .chosen(),
      text<&Layout::schedule_csv>("schedule_csv", "rows of a schedule file:NAME, in place of the file's"),
      text<&Layout::chains>("chains", "stage ranges of a bidirectional schedule in a file")
          .flag("A-B,C-D", {"--chains"}),
      whole<&Layout::group_size>("group_size", 1, kLargestBatch, "interleaving group")
          .flag("N", {"--group"})
          .otherwise("pp"),
      whole<&Layout::accumulation>("accumulation", 1, kLargestBatch, "microbatches per update of pipedream-2bw")
          .flag("N", {"--accumulation"})
          .otherwise("a step's microbatches"),
      whole<&Layout::memory_limit>("memory_limit", 1, kLargestBatch, "activations a rank may hold, in microbatches")
          .flag("N", {"--memory-limit"}),
      whole<&Layout::slices>("slices", 1, kLargestBatch, "token slices that a microbatch is cut into")
          .flag("N", {"--slices"})
          .otherwise("the schedule's"),
      custom<Layout>("stage_layers", FieldKind::kWholeList, "layers of each stage, or uniform or balanced",
                     &read_stage_layers, &write_stage_layers)
          .flag("N,N,…")
          .otherwise("as even as possible; balanced for a layer profile")
          .among([] { return names_of<StageSplit>(); })
          .up_to(kMostRanks)
          .chosen(),
      choice<&Layout::recompute>("recompute", "none, selective or full")
          .flag("KIND", {"--recompute", "--recompute-granularity"})
          .chosen(),
      boolean<&Layout::partition_checkpoints>("partition_checkpoints", "recompute full: cut kept block inputs over tp")
          .flag("", {"--distribute-saved-activations"})
          .possible(),
      whole<&Layout::recompute_layers>("recompute_layers", 1, kLargestLayers,
                                       "recompute full: of each stage only the first so many layers")
          .flag("N", {"--recompute-num-layers"})
          .otherwise("all of them")
          .possible(),
      whole<&Layout::recompute_every>("recompute_every", 1, kLargestLayers,
                                      "recompute full: of each stage every so many-th layer")
          .flag("N")
          .otherwise("all of them")
          .possible(),
      entry_of<&Layout::recompute_modules>("recompute_modules", FieldKind::kList, "recompute selective: what is redone",
                                           &read_recompute_modules, &write_recompute_modules)
          .among([] { return names_of<RecomputeModule>(); })
          .flag("NAME,…", {"--recompute-modules"})
          .otherwise("what the stack redoes, of most core_attn")
          .possible(),
      choice<&Layout::data_parallel>("data_parallel", "ddp, fsdp, hsdp, dataparallel, ps or byteps").flag("FORM"),
      whole<&Layout::shards>("shards", 1, kMostHelpers, "hsdp: ranks that share one copy of the model")
          .flag("N")
          .otherwise("hsdp: the replicas of one node"),
      boolean<&Layout::reshard_after_forward>("reshard_after_forward",
                                              "fsdp, hsdp: gather weights again for the backward pass")
          .flag(""),
      whole<&Layout::spare_hosts>("spare_hosts", 0, kMostHelpers, "ps, byteps: hosts without GPUs that hold parameters")
          .flag("K"),
      whole<&Layout::zero>("zero", 0, kHighestStage, "shard optimizer state (1), gradients (2), weights (3)")
          .flag("0..3", {"--zero"})
          .chosen(),
      whole<&Layout::bucket_mb>("bucket_mb", 1, kLargestBucket, "gradient bucket of ddp (default 25, the first 1)")
          .flag("MIB"),
      custom<Layout>("compression", FieldKind::kText, "of gradients: none, 8bit, 4bit, topk:F or powersgd:R",
                     &read_compression, &write_compression)
          .flag("KIND"),
      choice<&Layout::offload>("offload", "to the host: none, optimizer, activations or all").flag("KIND"),
      custom<Layout>("placement", FieldKind::kText, "axes, innermost first: tp-cp-dp-pp", &read_placement,
                     &write_placement)
          .flag("AXES"),
  };
  return fields;
}

const Fields& stack_fields() {
  constexpr int kLargestDivisor = 1'000'000;
  constexpr int kLargestGradient = 8;
  constexpr int kMostSoftmaxRows = 1024;
  constexpr int kMostLossBytes = 1'000;
  static const Fields own = {
      text<&Stack::name>("name", "training software: a name (flopcast catalog stacks) or a JSON file")
          .flag("NAME|FILE", {"--stack"})
          .names_object()
          .among([] { return catalogue_names(CatalogueKind::kStacks); }),
      other("description", FieldKind::kText, "what it is"),
      text<&Stack::based_on>("based_on", "of which entry's software this one is a version")
          .otherwise("the stack itself"),
      whole<&Stack::vocab_divisor>("vocab_divisor", 1, kLargestDivisor,
                                   "the vocabulary is padded to a multiple of this times tp"),
      attention<&Stack::flash_attention>("flash: one kernel for scores, softmax and context; unfused: a kernel each"),
      boolean<&Stack::fused_bias_dropout_add>("fused_bias_dropout_add", "one kernel for bias, dropout and residual"),
      whole<&Stack::fused_softmax_group>("fused_softmax_group", 1, kMostSoftmaxRows,
                                         "rows of scores that the softmax kernel takes at once")
          .of_gpus(),
      boolean<&Stack::fused_gradient_accumulation>("fused_gradient_accumulation",
                                                   "the weight-gradient product adds into the gradient buffer itself"),
      whole<&Stack::gradient_bytes>("gradient_bytes", 1, kLargestGradient,
                                    "per parameter, of the buffer that microbatches add their gradients to"),
      whole<&Stack::optimizer_gradient_bytes>("optimizer_gradient_bytes", 0, kLargestGradient,
                                              "per parameter, of a copy of the gradients that the optimizer keeps"),
      boolean<&Stack::keeps_pass_gradients>("keeps_pass_gradients",
                                            "the gradients of a pass stay in memory beside that buffer"),
      boolean<&Stack::placeholder_gradients>("placeholder_gradients",
                                             "with fused accumulation: a gradient of each linear that nobody reads")
          .of_gpus(),
      boolean<&Stack::blocking_sends>("blocking_sends", "pipeline transfers occupy the sender"),
      quantity<&Stack::transfer_synchronization>("transfer_synchronization", Dimension::kTime,
                                                 "device and host wait for each other after a transfer")
          .of_gpus(),
      quantity<&Stack::gather_allocation>("gather_allocation", Dimension::kTime,
                                          "device and host wait while the output of a gather is allocated")
          .of_gpus(),
      boolean<&Stack::scatter_gather_transfers>("scatter_gather_transfers",
                                                "without sequence parallelism: each tensor-parallel rank sends 1/tp"),
      boolean<&Stack::overlap_gradient_reduction>("overlap_gradient_reduction",
                                                  "gradients are reduced in buckets during the last backward pass"),
      boolean<&Stack::overlap_tp_with_weight_gradient>(
          "overlap_tp_with_weight_gradient",
          "tensor-parallel collectives of the backward pass run beside the weight-gradient product"),
      boolean<&Stack::overlap_tp_in_pieces>("overlap_tp_in_pieces",
                                            "tensor-parallel collectives are cut in tp pieces beside the products"),
      boolean<&Stack::overlap_parameter_gather>("overlap_parameter_gather",
                                                "updated weights are gathered beside the first forward passes"),
      boolean<&Stack::reduces_whole_gradients>(
          "reduces_whole_gradients",
          "with sharded optimizer state: one all-reduce of all gradients after the last pass"),
      boolean<&Stack::gathers_each_parameter>("gathers_each_parameter",
                                              "updated weights are gathered by one collective a parameter"),
      boolean<&Stack::balances_by_parameters>("balances_by_parameters",
                                              "balanced stages hold equal parameters of products, not equal time"),
      choice<&Stack::experts_dispatcher>("experts_dispatcher", "of training.experts_dispatch.dispatcher"),
      format<&Stack::experts_dispatch_bytes>("experts_dispatch_dtype", "of training.experts_dispatch.dtype"),
      whole<&Stack::experts_node_limit>("experts_node_limit", 0, kMostRanks,
                                        "of training.experts_dispatch.node_limit, 0: all nodes"),
      optional_choice<&Stack::overlap_experts>("overlap_experts", "of training.overlap.experts"),
      choice<&Stack::selective_recompute>("selective_recompute", "what recompute selective redoes"),
      boolean<&Stack::fp8_gathers>("fp8_gathers", "with fp8: tensor-parallel ranks gather operands in 8 bits"),
      optional_choice<&Stack::fp8_recipe>("fp8_recipe", "of training.fp8_recipe where a job says none"),
      quantity<&Stack::fp8_on_blackwell>("fp8_on_blackwell", Dimension::kCount,
                                         "share of what 8-bit products on Blackwell reach with cuBLAS 12.9")
          .up_to(1.0)
          .of_gpus(),
      quantity<&Stack::ring_merge_forward_bytes>(
          "ring_merge_forward_bytes", Dimension::kCount,
          "bytes a token and feature of the context that joining a ring's parts moves in each step")
          .up_to(1'000.0)
          .of_gpus(),
      quantity<&Stack::ring_merge_backward_bytes>("ring_merge_backward_bytes", Dimension::kCount,
                                                  "the same in the backward pass")
          .up_to(1'000.0)
          .of_gpus(),
      boolean<&Stack::single_pass_norm>("single_pass_norm", "false: statistics and result of a norm in two passes"),
      quantity<&Stack::softmax_forward_bytes>("softmax_forward_bytes", Dimension::kCount,
                                              "bytes a score that scale, mask and softmax move, 0: what they must")
          .up_to(1'000.0)
          .of_gpus(),
      quantity<&Stack::split_backward_slowdown>(
          "split_backward_slowdown", Dimension::kCount,
          "share by which an input gradient takes longer where its weight gradient is left for later")
          .up_to(1.0)
          .of_gpus(),
      whole<&Stack::loss_forward_bytes>("loss_forward_bytes", 0, kMostLossBytes, "bytes a logit that the loss moves")
          .of_gpus(),
      whole<&Stack::loss_backward_bytes>("loss_backward_bytes", 0, kMostLossBytes,
                                         "bytes a logit that the loss's backward pass moves")
          .of_gpus(),
      whole<&Stack::loss_saved_bytes>("loss_saved_bytes", 0, kMostLossBytes,
                                      "bytes a logit that are kept until the backward pass")
          .of_gpus(),
      quantity<&Stack::host_time_per_kernel>("host_time_per_kernel", Dimension::kTime, "to launch a kernel").of_gpus(),
      quantity<&Stack::host_time_per_collective>("host_time_per_collective", Dimension::kTime, "to launch a collective")
          .of_gpus(),
      boolean<&Stack::host_waits_for_hops>(
          "host_waits_for_hops", "the launching thread waits while a tensor-parallel collective crosses nodes")
          .of_gpus(),
      quantity<&Stack::collective_stall>(
          "collective_stall", Dimension::kTime,
          "of a tensor-parallel collective, for each of its ranks, where pipeline neighbours are on other nodes")
          .of_gpus(),
      quantity<&Stack::hand_over_stall>(
          "hand_over_stall", Dimension::kTime,
          "of a hand-over between nodes in some runs: raises the upper end of the interval, not the forecast")
          .of_gpus(),
      entry_of<&Stack::flash_efficiency>("flash_efficiency", FieldKind::kObject,
                                         "[forward, backward] shares that fused attention reaches, by generation",
                                         &read_flash_efficiency, &write_flash_efficiency)
          .among([] { return names_of<GpuGeneration>(); })
          .of_gpus(),
      quantity<&Stack::allocator_slack>("allocator_slack", Dimension::kCount,
                                        "share of the layers' activations that the allocator reserves beyond them")
          .up_to(10.0)
          .of_gpus(),
      quantity<&Stack::memory_overhead_gib>("memory_overhead", Dimension::kBytes,
                                            "what nvidia-smi shows beyond the tensors")
          .in_units_of(kBytesPerGib)
          .of_gpus(),
  };
  static const Fields fields = [] {
    Fields all = own;
    for (Field field : software_fields()) {
      field.listed = false;
      field.aliases.clear();
      all.push_back(field);
    }
    return all;
  }();
  return fields;
}

const Fields& training_fields() {
  static const Fields own = {
      whole<&Training::sequence_length>("sequence_length", 1, kLongestSequence, "tokens per sequence")
          .flag("N", {"--seq", "--seq-length"})
          .otherwise("the model's"),
      whole<&Training::document_length>("document_length", 0, kLongestSequence,
                                        "tokens of the documents packed in a sequence, each attends to itself; 0: none")
          .flag("N"),
      choice<&Training::precision>("precision", "fp32, tf32, fp16, bf16 or fp8")
          .flag("FORMAT", {"--precision"})
          .otherwise("bf16, or fp16 where a device has none; a layer profile's own"),
      choice<&Training::optimizer>("optimizer", "adam, sgd, adam8bit, lion, adafactor, muon or galore").flag("NAME"),
      whole<&Training::optimizer_rank>("optimizer_rank", 1, kHighestRank,
                                       "galore: dimensions that gradients are projected on")
          .flag("N"),
      boolean<&Training::paged_optimizer>("paged_optimizer",
                                          "optimizer states that do not fit wait in the host's memory")
          .flag(""),
      boolean<&Training::master_weights>("master_weights", "an fp32 copy of the weights beside those of the precision")
          .flag(""),
      attention<&Training::flash_attention>("flash or unfused").flag("KIND").otherwise("the stack's"),
      choice<&Training::transport>("transport", "nccl, gloo or mpi").flag("NAME"),
      choice<&Training::gradient_transport>("gradient_transport", "of data-parallel traffic alone (default: transport)")
          .flag("NAME")
          .otherwise("transport"),
      other("stack", FieldKind::kObject, "what the training software does").of(stack_fields),
      optional_choice<&Training::fp8_recipe>("fp8_recipe", "scales of the operands of precision fp8")
          .flag("NAME", {"--fp8-recipe"})
          .otherwise("the stack's; else delayed, mxfp8 on Blackwell"),
      other("gradient_dtype", FieldKind::kChoice, "of the buffer that microbatches accumulate into")
          .among(&format_names)
          .flag("FORMAT", {"--main-grads-dtype"})
          .otherwise("the stack's"),
      custom<Training>("finetune", FieldKind::kObject, "what of the weights is trained", nullptr, &write_finetune)
          .of(finetune_fields),
      custom<Training>("preference", FieldKind::kObject, "training by preferences or rewards", nullptr,
                       &write_preference)
          .of(preference_fields),
      other("overlap", FieldKind::kObject, "what runs beside computation").of(overlap_fields),
      other("experts_dispatch", FieldKind::kObject, "how tokens reach their experts").of(dispatch_fields),
      // Products of these two stay numbers.
      quantity<&Training::tokens>("tokens", Dimension::kCount, "tokens of the whole run, such as 300B")
          .up_to(1e18)
          .flag("COUNT", {"--tokens"}),
      quantity<&Training::price_per_gpu_hour>("price_per_gpu_hour", Dimension::kMoney, "price of a GPU hour")
          .up_to(1e9)
          .flag("DOLLARS", {"--price"}),
      other("profile", FieldKind::kObject, "device profile (see: flopcast calibrate --help, flopcast catalog profiles)")
          .flag("FILE|NAME", {"--profile"}),
      custom<Training>("fitted", FieldKind::kObject, "how sure constants are that flopcast fit found", nullptr,
                       &write_fitted),
  };
  // What a job says of its software is said to the stack.
  static const Fields fields = [] {
    Fields all = own;
    for (Field& field : all) {
      if (field.key == "optimizer_rank") field.write = &write_optimizer_rank;
    }
    for (Field field : software_fields()) {
      field.read = nullptr;
      field.write = nullptr;
      field.fallback = nullptr;
      field.otherwise = "the stack's";
      all.push_back(field);
    }
    return all;
  }();
  return fields;
}

}  // namespace flopcast
