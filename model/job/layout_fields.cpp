#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/job/fields.hpp"
#include "model/layout/layout.hpp"

namespace flopcast {

namespace {

constexpr int kMostHelpers = 10'000'000;
constexpr int kLargestBucket = 1'000'000;
constexpr int kHighestStage = 3;
constexpr std::string_view kFilePrefix = "file:";

// A schedule whose rows are included is named after its file without the folder, which means nothing elsewhere.
OrderedJsonValue write_schedule(const FieldInfo&, const Layout& layout) {
  if (layout.schedule.empty()) return nullptr;
  const std::size_t slash = layout.schedule.rfind('/');
  if (layout.schedule_csv.empty() || slash == std::string::npos) return layout.schedule;
  return std::string(kFilePrefix) + layout.schedule.substr(slash + 1);
}

void read_schedule(ObjectReader& reader, const FieldInfo& field, Layout& layout) {
  if (const auto name = reader.text(field.key)) layout.schedule = *name;
}

// Reads a list of layers, or the name of a method to split them.
void read_stage_layers(ObjectReader& reader, const FieldInfo& field, Layout& layout) {
  const nlohmann::json* value = reader.find(field.key);
  if (value != nullptr && value->is_string()) {
    layout.stage_split = static_cast<StageSplit>(*reader.choice(field.key, names_of<StageSplit>()));
  } else if (const auto layers = reader.whole_list(field.key, 0, kMostRanks)) {
    layout.stage_layers = *layers;
  }
}

OrderedJsonValue write_stage_layers(const FieldInfo&, const Layout& layout) {
  if (!layout.stage_layers.empty()) return nlohmann::ordered_json(layout.stage_layers);
  if (layout.stage_split) return name_of(*layout.stage_split);
  return nullptr;
}

void read_placement(ObjectReader& reader, const FieldInfo& field, Layout& layout) {
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
  layout.placement = placement;
}

// Field of the number of ranks along an axis, with the axis's name as key.
template <Axis kAxis>
Entry<Layout> ranks_along(std::string_view help, std::initializer_list<std::string_view> flags) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, Layout& layout) {
    const auto ranks = reader.whole(field.key, static_cast<int>(field.smallest), static_cast<int>(field.largest));
    if (ranks) layout[kAxis] = *ranks;
  };
  const auto write = [](const FieldInfo&, const Layout& layout) -> OrderedJsonValue { return layout[kAxis]; };
  Entry<Layout> entry = custom<Layout>(name_of(kAxis), FieldKind::kWhole, help, read, write);
  entry.field.copy = [](const Layout& from, Layout& to) { to[kAxis] = from[kAxis]; };
  entry.field.smallest = 1;
  return entry.up_to(kMostRanks).flag("N", flags).chosen();
}

OrderedJsonValue write_placement(const FieldInfo&, const Layout& layout) {
  std::string text;
  for (const Axis axis : layout.placement) {
    text.append(text.empty() ? "" : "-").append(name_of(axis));
  }
  return text;
}

void read_compression(ObjectReader& reader, const FieldInfo& field, Layout& layout) {
  const auto text = reader.text(field.key);
  if (!text || *text == "none") return;
  const auto refuse = [&]() {
    reader.fail(field.key, fmt::format("unknown value \"{}\"", *text),
                "valid: none, 8bit, 4bit, topk:F with a fraction F such as 0.01, powersgd:R with a rank R such as 4");
  };
  Compression& compression = layout.compression;
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

OrderedJsonValue write_compression(const FieldInfo&, const Layout& layout) {
  return layout.compression.text();
}

void read_recompute_modules(ObjectReader& reader, const FieldInfo& field, Layout& layout) {
  if (reader.find(field.key)->is_null()) return;
  RecomputeModules modules;
  for (const std::string& word : listed_words(reader, field, "expected a list such as [\"core_attn\", \"moe_act\"]")) {
    const std::optional<RecomputeModule> module = parse<RecomputeModule>(word);
    if (!module) {
      reader.fail(field.key, fmt::format("unknown module \"{}\"", word),
                  choices_help(word, names_of<RecomputeModule>()));
    }
    modules |= bit_of(*module);
  }
  if (modules.none()) reader.fail(field.key, "does not name a module", "leave it out, or use --recompute none");
  layout.recompute_modules = modules;
}

OrderedJsonValue write_recompute_modules(const FieldInfo&, const Layout& layout) {
  const std::optional<RecomputeModules>& modules = layout.recompute_modules;
  if (!modules) return nullptr;
  return nlohmann::ordered_json(names_in(*modules));
}

}  // namespace

const Fields<Layout>& layout_fields() {
  static const Fields<Layout> fields = {
      ranks_along<Axis::kData>("data-parallel replicas (default: all remaining devices)", {"--dp"})
          .otherwise("all remaining devices"),
      ranks_along<Axis::kTensor>("tensor-parallel ranks", {"--tp", "--tensor-model-parallel-size"}),
      ranks_along<Axis::kPipeline>("pipeline ranks", {"--pp", "--pipeline-model-parallel-size"}),
      whole<&Layout::vpp>("vpp", 1, kMostRanks, "stages per pipeline rank")
          .flag("N", {"--vpp", "--num-virtual-stages-per-pipeline-rank"})
          .otherwise("as the schedule needs")
          .chosen(),
      ranks_along<Axis::kContext>("context-parallel ranks", {"--cp", "--context-parallel-size"}),
      choice<&Layout::context_parallel>("context_parallel", "how cp ranks exchange queries, keys and values")
          .flag("FORM")
          .possible(),
      whole<&Layout::context_inner>("context_inner", 2, kMostRanks,
                                    "context_parallel hierarchical: ranks that exchange heads; rings have cp/N ranks")
          .flag("N")
          .possible(),
      boolean<&Layout::zigzag>("zigzag",
                               "each cp rank holds an early and a late part of the sequence, for equal causal work")
          .flag(""),
      ranks_along<Axis::kExpert>("expert-parallel ranks", {"--ep", "--expert-model-parallel-size"}),
      whole<&Layout::etp>("etp", 1, kMostRanks, "tensor-parallel ranks per expert")
          .flag("N", {"--etp", "--expert-tensor-parallel-size"})
          .otherwise("tp")
          .chosen(),
      choice<&Layout::tensor_parallel>("tensor_parallel", "1d, 2d, 2.5d or 3d").flag("FORM").possible(),
      whole<&Layout::tensor_depth>("tensor_depth", 1, kMostHelpers, "depth d of tensor_parallel 2.5d, where tp = q²·d")
          .flag("D")
          .possible(),
      boolean<&Layout::sequence_parallel>("sequence_parallel", "split norms and dropouts over tp ranks")
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
      text<&Layout::schedule_csv>("schedule_csv", "rows of schedule file:NAME, used instead of reading the file"),
      text<&Layout::chains>("chains", "stage ranges of a bidirectional schedule given as a file")
          .flag("A-B,C-D", {"--chains"}),
      whole<&Layout::group_size>("group_size", 1, kLargestBatch, "microbatches in an interleaving group")
          .flag("N", {"--group"})
          .otherwise("pp"),
      whole<&Layout::accumulation>("accumulation", 1, kLargestBatch, "microbatches per update of pipedream-2bw")
          .flag("N", {"--accumulation"})
          .otherwise("all microbatches of a step"),
      whole<&Layout::memory_limit>("memory_limit", 1, kLargestBatch,
                                   "largest number of microbatches whose activations a rank may hold")
          .flag("N", {"--memory-limit"}),
      whole<&Layout::slices>("slices", 1, kLargestBatch, "token slices per microbatch")
          .flag("N", {"--slices"})
          .otherwise("as the schedule needs"),
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
      boolean<&Layout::partition_checkpoints>("partition_checkpoints",
                                              "recompute full: split the saved block inputs over tp ranks")
          .flag("", {"--distribute-saved-activations"})
          .possible(),
      whole<&Layout::recompute_layers>("recompute_layers", 1, kLargestLayers,
                                       "recompute full: recompute only the first N layers of each stage")
          .flag("N", {"--recompute-num-layers"})
          .otherwise("all layers")
          .possible(),
      whole<&Layout::recompute_every>("recompute_every", 1, kLargestLayers,
                                      "recompute full: recompute every N-th layer of each stage")
          .flag("N")
          .otherwise("all layers")
          .possible(),
      entry_of<&Layout::recompute_modules>("recompute_modules", FieldKind::kList,
                                           "recompute selective: modules to recompute", &read_recompute_modules,
                                           &write_recompute_modules)
          .among([] { return names_of<RecomputeModule>(); })
          .flag("NAME,…", {"--recompute-modules"})
          .otherwise("the stack's own, usually core_attn")
          .possible(),
      choice<&Layout::data_parallel>("data_parallel", "ddp, fsdp, hsdp, dataparallel, ps or byteps").flag("FORM"),
      whole<&Layout::shards>("shards", 1, kMostHelpers, "hsdp: ranks over which one copy of the model is sharded")
          .flag("N")
          .otherwise("hsdp: the replicas of one node"),
      boolean<&Layout::reshard_after_forward>("reshard_after_forward",
                                              "fsdp, hsdp: gather weights again for the backward pass")
          .flag(""),
      whole<&Layout::spare_hosts>("spare_hosts", 0, kMostHelpers,
                                  "ps, byteps: hosts without GPUs that serve parameters")
          .flag("K"),
      whole<&Layout::zero>("zero", 0, kHighestStage, "shard optimizer state (1), gradients (2), weights (3)")
          .flag("0..3", {"--zero"})
          .chosen(),
      whole<&Layout::bucket_mb>("bucket_mb", 1, kLargestBucket,
                                "size of ddp's gradient buckets (default 25, the first one 1)")
          .flag("MIB"),
      entry_of<&Layout::compression>("compression", FieldKind::kText,
                                     "gradient compression: none, 8bit, 4bit, topk:F or powersgd:R", &read_compression,
                                     &write_compression)
          .flag("KIND"),
      choice<&Layout::offload>("offload", "state offloaded to the host: none, optimizer, activations or all")
          .flag("KIND"),
      custom<Layout>("placement", FieldKind::kText, "order of the axes, innermost first: tp-cp-dp-pp", &read_placement,
                     &write_placement)
          .flag("AXES"),
  };
  return fields;
}

}  // namespace flopcast
