#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/config/read_parallel_forms.hpp"
#include "model/config/read_profile.hpp"
#include "model/config/sections.hpp"

namespace flopcast {

namespace {

constexpr int kMostRanks = 1'000'000;
constexpr int kLargestBatch = 1'000'000'000;

std::array<Axis, kAxisCount> read_placement(ObjectReader& reader) {
  std::array<Axis, kAxisCount> placement = Layout().placement;
  const auto text = reader.text("placement");
  if (!text) return placement;
  const std::string help = "name each of tp, cp, dp, pp once, innermost first: tp-cp-dp-pp";
  std::size_t begin = 0;
  std::size_t count = 0;
  while (begin <= text->size() && count < placement.size()) {
    const std::size_t dash = std::min(text->find('-', begin), text->size());
    const std::string word = text->substr(begin, dash - begin);
    const auto axis = std::find(axis_names().begin(), axis_names().end(), word);
    if (axis == axis_names().end()) reader.fail("placement", fmt::format("unknown axis \"{}\"", word), help);
    placement[count++] = static_cast<Axis>(axis - axis_names().begin());
    begin = dash + 1;
  }
  auto sorted = placement;
  std::sort(sorted.begin(), sorted.end());
  const bool complete = count == placement.size() && begin == text->size() + 1 &&
                        std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (!complete) reader.fail("placement", fmt::format("\"{}\" does not name every axis once", *text), help);
  return placement;
}

// A list, or a word for how to make one.
void read_stage_layers(ObjectReader& reader, Layout& layout) {
  const nlohmann::json* value = reader.find("stage_layers");
  if (value != nullptr && value->is_string()) {
    layout.stage_split = static_cast<StageSplit>(*reader.choice("stage_layers", stage_split_names()));
  } else {
    layout.stage_layers = reader.whole_list("stage_layers", 0, kMostRanks).value_or(std::vector<int>());
  }
}

std::string divisors_up_to(int number, int largest) {
  std::vector<int> divisors;
  for (int candidate = 1; candidate <= std::min(number, largest); ++candidate) {
    if (number % candidate == 0) divisors.push_back(candidate);
  }
  constexpr std::size_t kMostShown = 24;
  if (divisors.size() > kMostShown) divisors.resize(kMostShown);
  return fmt::format("{}", fmt::join(divisors, ", "));
}

bool splits_model(const Transformer& model, int tp) {
  return model.heads % tp == 0 && model.kv_heads % tp == 0 && model.ffn % tp == 0;
}

void check_tensor_parallel(const ObjectReader& reader, const Layout& layout, const Job& job) {
  const int node = job.cluster.devices_per_node;
  const auto refuse = [&](int number, std::string_view what) {
    std::vector<int> valid;
    for (int tp = 1; tp <= std::min(node, job.cluster.devices()); ++tp) {
      const int others = layout.pp * layout.cp;
      const bool fills_cluster = job.cluster.devices() % (static_cast<std::int64_t>(tp) * others) == 0;
      if (fills_cluster && splits_model(job.model, tp)) valid.push_back(tp);
    }
    reader.fail("tp", fmt::format("{} does not divide {} {}", layout.tp, what, number),
                valid.empty() ? "no tp fits beside this pp and cp"
                              : fmt::format("valid for this model on {}-GPU nodes: {}", node, fmt::join(valid, ", ")));
  };
  if (job.model.heads % layout.tp != 0) refuse(job.model.heads, "attention heads");
  if (job.model.kv_heads % layout.tp != 0) refuse(job.model.kv_heads, "key/value heads");
  if (job.model.ffn % layout.tp != 0) refuse(job.model.ffn, "MLP width");
  if (layout.sequence_parallel && job.training.sequence_length / layout.cp % layout.tp != 0) {
    reader.fail("sequence_parallel",
                fmt::format("{} tokens of a sequence cannot be split over tp {}",
                            job.training.sequence_length / layout.cp, layout.tp),
                "valid: false, or a sequence length that tp divides");
  }
}

void check_context_parallel(const ObjectReader& reader, const Layout& layout, const Job& job) {
  // Causal balance gives each rank an early and a late part of the sequence, so it is cut in 2·cp (2310.01889 §4).
  if (layout.cp == 1 || job.training.sequence_length % (2 * layout.cp) == 0) return;
  reader.fail("cp",
              fmt::format("2 · {} does not divide the sequence length {}", layout.cp, job.training.sequence_length),
              fmt::format("valid: {}", divisors_up_to(job.training.sequence_length / 2, 64)));
}

// All-to-alls hand each rank whole heads, of queries and of keys and values.
void check_ulysses(const ObjectReader& reader, const Layout& layout, const Job& job) {
  if (layout.context_parallel != ContextParallel::kUlysses) return;
  if (layout.cp == 1) reader.fail("context_parallel", "ulysses needs cp above 1", "valid: ring, or cp of at least 2");
  const int queries = job.model.heads / layout.tp;
  const int keys = job.model.latent ? queries : job.model.kv_heads / layout.tp;
  if (queries % layout.cp == 0 && keys % layout.cp == 0) return;
  std::vector<int> valid;
  for (int cp = 2; cp <= keys; ++cp) {
    if (queries % cp == 0 && keys % cp == 0) valid.push_back(cp);
  }
  reader.fail("cp",
              fmt::format("{} ranks do not share {} heads and {} key/value heads of a tensor-parallel rank, as ulysses "
                          "needs",
                          layout.cp, queries, keys),
              valid.empty() ? "use context_parallel ring" : fmt::format("valid: {}", fmt::join(valid, ", ")));
}

// Empty where cp itself does not divide the devices.
std::string tensor_ranks_beside(int cp, const Job& job) {
  const int devices = job.cluster.devices();
  std::vector<int> valid;
  for (int tp = 1; tp <= std::min(devices, std::max(1, job.model.heads)); ++tp) {
    if (devices % (static_cast<std::int64_t>(tp) * cp) == 0 && splits_model(job.model, tp)) valid.push_back(tp);
  }
  return fmt::format("{}", fmt::join(valid, ", "));
}

std::string context_ranks(int devices, int sequence_length) {
  constexpr int kMostShown = 64;
  std::vector<int> valid = {1};
  for (int cp = 2; cp <= std::min(devices, kMostShown); ++cp) {
    if (devices % cp == 0 && sequence_length % (2 * cp) == 0) valid.push_back(cp);
  }
  return fmt::format("{}", fmt::join(valid, ", "));
}

// dp is what the other axes leave over.
int read_data_parallel(ObjectReader& reader, const Layout& layout, const Job& job) {
  const int devices = job.cluster.devices();
  const std::int64_t model_ranks = static_cast<std::int64_t>(layout.tp) * layout.pp * layout.cp;
  const auto dp = reader.whole("dp", 1, kMostRanks);
  const bool pipeline_is_last_chance = devices % (static_cast<std::int64_t>(layout.tp) * layout.cp) == 0;
  if (model_ranks > devices || devices % model_ranks != 0) {
    const std::string problem = fmt::format("tp {} · pp {} · cp {} = {} ranks do not divide the cluster's {} devices",
                                            layout.tp, layout.pp, layout.cp, model_ranks, devices);
    if (pipeline_is_last_chance) {
      const int rest = devices / (layout.tp * layout.cp);
      reader.fail("pp", problem, fmt::format("valid pp: {}", divisors_up_to(rest, std::min(rest, job.model.layers))));
    }
    const std::string tps = tensor_ranks_beside(layout.cp, job);
    if (layout.tp > 1 && !tps.empty()) reader.fail("tp", problem, fmt::format("valid tp: {}", tps));
    if (devices % layout.tp == 0) {
      reader.fail("cp", problem,
                  fmt::format("valid cp: {}", context_ranks(devices / layout.tp, job.training.sequence_length)));
    }
    reader.fail("tp", problem,
                fmt::format("no tp fits beside cp {}; valid tp with cp 1: {}", layout.cp, tensor_ranks_beside(1, job)));
  }
  const int left_over = static_cast<int>(devices / model_ranks);
  if (dp && *dp != left_over) {
    reader.fail("dp",
                fmt::format("dp {} · tp {} · pp {} · cp {} = {} ranks, but the cluster has {} devices", *dp, layout.tp,
                            layout.pp, layout.cp, model_ranks * *dp, devices),
                fmt::format("valid: {}, or leave dp out", left_over));
  }
  return left_over;
}

bool fits_experts(int ep, const Layout& layout, const Experts& experts) {
  const bool among_contexts = layout.cp % ep == 0;
  const bool over_replicas = ep % layout.cp == 0 && layout.dp % (ep / layout.cp) == 0;
  return experts.count % ep == 0 && (among_contexts || over_replicas);
}

void check_expert_parallel(const ObjectReader& reader, const Layout& layout, const Job& job) {
  if (!job.model.experts) {
    if (layout.ep == 1) return;
    reader.fail("ep", fmt::format("{} expert-parallel ranks for a model without experts", layout.ep), "valid: 1");
  }
  const Experts& experts = *job.model.experts;
  const auto refuse_width = [&](int width, std::string_view what) {
    reader.fail("tp", fmt::format("{} does not divide {} {}", layout.tp, what, width), "");
  };
  if (experts.ffn % layout.tp != 0) refuse_width(experts.ffn, "the width of an expert");
  if (experts.shared * experts.shared_ffn % layout.tp != 0) {
    refuse_width(experts.shared * experts.shared_ffn, "the width of the shared experts");
  }
  if (fits_experts(layout.ep, layout, experts)) return;
  std::vector<int> valid;
  for (int ep = 1; ep <= std::min(experts.count, layout.dp * layout.cp); ++ep) {
    if (fits_experts(ep, layout, experts)) valid.push_back(ep);
  }
  reader.fail("ep",
              fmt::format("{} expert-parallel ranks do not split {} experts over dp {} · cp {} ranks", layout.ep,
                          experts.count, layout.dp, layout.cp),
              fmt::format("valid: {}", fmt::join(valid, ", ")));
}

// Other programs say the accumulation and leave the batch to the number of devices.
int batch_of_accumulation(const ObjectReader& reader, Layout& layout, Job& job) {
  if (!layout.accumulation) reader.fail_missing("global_batch_size", "give --gbs N, the sequences per step");
  const double batch = static_cast<double>(layout.dp) * layout.micro_batch_size * *layout.accumulation;
  if (batch > kLargestBatch) reader.fail("accumulation", fmt::format("makes a batch of {:.0f} sequences", batch), "");
  job.assumptions.push_back(
      fmt::format("layout.global_batch_size is dp {} · micro_batch_size {} · accumulation {} = {}", layout.dp,
                  layout.micro_batch_size, *layout.accumulation, batch));
  layout.accumulation.reset();
  return static_cast<int>(batch);
}

void check_batch(const ObjectReader& reader, const Layout& layout) {
  const std::int64_t slice = static_cast<std::int64_t>(layout.dp) * layout.micro_batch_size;
  if (layout.global_batch_size % slice == 0) return;
  const std::int64_t below = layout.global_batch_size / slice * slice;
  const std::string nearest = below > 0 ? fmt::format("{}, {}", below, below + slice) : fmt::format("{}", slice);
  reader.fail("global_batch_size",
              fmt::format("{} is no multiple of dp {} · micro_batch_size {} = {}", layout.global_batch_size, layout.dp,
                          layout.micro_batch_size, slice),
              fmt::format("nearest valid values: {}", nearest));
}

}  // namespace

Layout read_layout(ObjectReader& root, Job& job, const Origins& origins) {
  const nlohmann::json* section = root.find("layout");
  const nlohmann::json values = section == nullptr ? nlohmann::json::object() : *section;
  ObjectReader reader(values, "layout", origins);
  Layout layout;
  layout.tp = reader.whole("tp", 1, kMostRanks).value_or(1);
  layout.pp = reader.whole("pp", 1, kMostRanks).value_or(1);
  layout.cp = reader.whole("cp", 1, kMostRanks).value_or(1);
  layout.ep = reader.whole("ep", 1, kMostRanks).value_or(1);
  layout.vpp = reader.whole("vpp", 1, kMostRanks);
  layout.sequence_parallel = reader.boolean("sequence_parallel").value_or(false);
  layout.micro_batch_size = reader.whole("micro_batch_size", 1, kLargestBatch).value_or(1);
  layout.schedule = reader.text("schedule").value_or("");
  layout.chains = reader.text("chains").value_or("");
  layout.group_size = reader.whole("group_size", 1, kLargestBatch);
  layout.accumulation = reader.whole("accumulation", 1, kLargestBatch);
  layout.memory_limit = reader.whole("memory_limit", 1, kLargestBatch);
  layout.slices = reader.whole("slices", 1, kLargestBatch);
  read_stage_layers(reader, layout);
  if (const auto recompute = reader.choice("recompute", recompute_names()))
    layout.recompute = static_cast<Recompute>(*recompute);
  layout.placement = read_placement(reader);
  read_parallel_forms(reader, layout, job);
  if (job.profile) check_profile_layout(reader, layout);
  check_context_parallel(reader, layout, job);
  if (layout.tensor_parallel == TensorParallel::k1d) {
    check_tensor_parallel(reader, layout, job);
  } else {
    check_tensor_grid(reader, layout, job);
  }
  check_ulysses(reader, layout, job);
  layout.dp = read_data_parallel(reader, layout, job);
  check_expert_parallel(reader, layout, job);
  const auto batch = reader.whole("global_batch_size", 1, kLargestBatch);
  reader.refuse_unknown_keys();
  layout.global_batch_size = batch ? *batch : batch_of_accumulation(reader, layout, job);
  check_batch(reader, layout);
  check_parallel_forms(reader, layout, job);
  return layout;
}

}  // namespace flopcast
