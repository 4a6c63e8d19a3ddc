#include "model/config/read_parallel_forms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

constexpr int kMostRanks = 10'000'000;
constexpr int kLargestBucket = 1'000'000;
constexpr int kHighestStage = 3;

Compression read_compression(ObjectReader& reader) {
  const std::string text = reader.text("compression").value_or("none");
  const auto refuse = [&]() {
    reader.fail("compression", fmt::format("unknown value \"{}\"", text),
                "valid: none, 8bit, 4bit, topk:F with a share F such as 0.01, powersgd:R with a rank R such as 4");
  };
  Compression compression;
  if (text == "none") return compression;
  if (text == "8bit" || text == "4bit") {
    compression.kind = Compression::Kind::kQuantized;
    compression.bits = text == "8bit" ? 8 : 4;
    return compression;
  }
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) refuse();
  const std::string name = text.substr(0, colon);
  const std::string value = text.substr(colon + 1);
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !(number > 0.0)) refuse();
  if (name == "topk" && number <= 1.0) {
    compression.kind = Compression::Kind::kTopK;
    compression.fraction = number;
  } else if (name == "powersgd" && number <= kMostRanks && number == static_cast<int>(number)) {
    compression.kind = Compression::Kind::kPowerSgd;
    compression.rank = static_cast<int>(number);
  } else {
    refuse();
  }
  return compression;
}

void check_replication(const ObjectReader& reader, const Layout& layout, const Job& job) {
  const std::string& form = data_parallel_names()[static_cast<std::size_t>(layout.data_parallel)];
  const bool sharding = layout.data_parallel == DataParallel::kFsdp || layout.data_parallel == DataParallel::kHsdp;
  if (sharding && layout.zero != 0 && layout.zero != kHighestStage) {
    reader.fail("zero", fmt::format("{} contradicts data_parallel {}, which shards everything", layout.zero, form),
                "valid: leave zero out, or data_parallel ddp");
  }
  if (!sharding && layout.data_parallel != DataParallel::kDdp && layout.zero > 0) {
    reader.fail("zero", fmt::format("{} does not exist with data_parallel {}", layout.zero, form),
                "valid: 0, or data_parallel ddp");
  }
  if (layout.data_parallel == DataParallel::kDataParallel &&
      (job.cluster.nodes > 1 || layout.tp * layout.pp * layout.cp > 1)) {
    reader.fail("data_parallel", "dataparallel is one process on one node, without other parallelism",
                "valid here: ddp, fsdp, hsdp, ps, byteps");
  }
  const bool servers = layout.data_parallel == DataParallel::kPs || layout.data_parallel == DataParallel::kByteps;
  if (!servers && layout.spare_hosts > 0) {
    reader.fail("spare_hosts", fmt::format("{} serve nobody with data_parallel {}", layout.spare_hosts, form),
                "valid: 0, or data_parallel ps or byteps");
  }
  if (!sharding && !layout.reshard_after_forward) {
    reader.fail("reshard_after_forward", fmt::format("false does not exist with data_parallel {}", form),
                "valid: true, or data_parallel fsdp or hsdp");
  }
  if (job.profile && (layout.gradient_shards() > 1 || layout.data_parallel == DataParallel::kDataParallel)) {
    reader.fail(sharding || layout.zero == 0 ? "data_parallel" : "zero",
                "weights and gradients of a layer profile cannot be sharded", "valid: data_parallel ddp, zero 0 or 1");
  }
}

void check_compression(const ObjectReader& reader, const Layout& layout, const Job& job) {
  if (layout.compression.kind == Compression::Kind::kNone) return;
  const bool plain = layout.data_parallel == DataParallel::kDdp && layout.zero == 0;
  if (!plain) {
    reader.fail("compression", fmt::format("{} replaces an all-reduce of whole gradients", layout.compression.text()),
                "valid with data_parallel ddp and zero 0; otherwise none");
  }
  if (job.profile && layout.compression.kind == Compression::Kind::kPowerSgd) {
    reader.fail("compression", "powersgd needs the shapes of weights, which a layer profile has not",
                "valid for a layer profile: none, 8bit, 4bit, topk:F");
  }
}

void check_offload(const ObjectReader& reader, const Layout& layout, const Cluster& cluster) {
  if (layout.offload == Offload::kNone) return;
  const auto need = [&](BytesPerSecond rate, const char* key, const char* example) {
    if (rate.value() > 0.0) return;
    reader.fail("offload", fmt::format("needs cluster.{}, which cluster {} does not say", key, cluster.name),
                fmt::format("give cluster.{}, such as \"{}\", or use none", key, example));
  };
  need(cluster.host_bandwidth, "host_bandwidth", "32GB/s");
  if (layout.offloads_optimizer()) need(cluster.host_memory_bandwidth, "host_memory_bandwidth", "400GB/s");
}

void check_partitioned_checkpoints(const ObjectReader& reader, const Layout& layout) {
  if (!layout.partition_checkpoints) return;
  const auto refuse = [&reader](const char* reason) { reader.fail("partition_checkpoints", reason, "valid: false"); };
  if (layout.recompute != Recompute::kFull) refuse("true belongs to recompute full, which keeps block inputs alone");
  if (layout.tp == 1) refuse("true needs tensor-parallel ranks to cut block inputs over");
  if (layout.sequence_parallel || layout.tensor_parallel != TensorParallel::k1d) {
    refuse("true changes nothing: block inputs are cut over the tensor-parallel ranks already");
  }
}

// Groups of `shards` neighbours; by default those of one node.
void settle_shards(const ObjectReader& reader, Layout& layout, Job& job) {
  if (layout.data_parallel != DataParallel::kHsdp) return;
  const int replicas = layout.replicas();
  std::vector<int> valid;
  for (int shards = 1; shards <= replicas; ++shards) {
    const auto beside = [shards](int ranks) { return shards % ranks == 0 || ranks % shards == 0; };
    if (replicas % shards == 0 && beside(layout.cp) && beside(layout.ep)) valid.push_back(shards);
  }
  if (reader.has("shards")) {
    if (std::find(valid.begin(), valid.end(), layout.shards) != valid.end()) return;
    reader.fail("shards",
                fmt::format("{} shards do not split {} replicas, cp {} and ep {}", layout.shards, replicas, layout.cp,
                            layout.ep),
                fmt::format("valid: {}", fmt::join(valid, ", ")));
  }
  const int on_node = std::max(1, job.cluster.devices_per_node / layout.tp);
  for (const int shards : valid) {
    if (shards <= on_node) layout.shards = shards;
  }
  job.assumptions.push_back(fmt::format("layout.shards is {}: the replicas of one node", layout.shards));
}

}  // namespace

void read_parallel_forms(ObjectReader& reader, Layout& layout, const Job& job) {
  const auto choose = [&reader](const char* key, const std::vector<std::string>& names) {
    return reader.choice(key, names).value_or(0);
  };
  layout.tensor_parallel = static_cast<TensorParallel>(choose("tensor_parallel", tensor_parallel_names()));
  layout.context_parallel = static_cast<ContextParallel>(choose("context_parallel", context_parallel_names()));
  layout.partition_checkpoints = reader.boolean("partition_checkpoints").value_or(false);
  layout.tensor_depth = reader.whole("tensor_depth", 1, kMostRanks).value_or(1);
  layout.data_parallel = static_cast<DataParallel>(choose("data_parallel", data_parallel_names()));
  layout.zero = reader.whole("zero", 0, kHighestStage).value_or(0);
  layout.bucket_mb = reader.whole("bucket_mb", 1, kLargestBucket);
  layout.reshard_after_forward = reader.boolean("reshard_after_forward").value_or(true);
  layout.shards = reader.whole("shards", 1, kMostRanks).value_or(1);
  layout.spare_hosts = reader.whole("spare_hosts", 0, kMostRanks).value_or(0);
  layout.compression = read_compression(reader);
  layout.offload = static_cast<Offload>(choose("offload", offload_names()));
  if (layout.tensor_parallel != TensorParallel::k25d && layout.tensor_depth > 1) {
    reader.fail("tensor_depth", fmt::format("{} belongs to tensor_parallel 2.5d", layout.tensor_depth), "valid: 1");
  }
  if (layout.data_parallel != DataParallel::kHsdp && layout.shards > 1) {
    reader.fail("shards", fmt::format("{} belongs to data_parallel hsdp", layout.shards), "valid: leave shards out");
  }
  if (job.profile && layout.tensor_parallel != TensorParallel::k1d) {
    reader.fail("tensor_parallel", "a layer that is known by its time alone cannot be split", "valid: 1d");
  }
  check_partitioned_checkpoints(reader, layout);
  check_compression(reader, layout, job);
  check_offload(reader, layout, job.cluster);
}

void check_parallel_forms(const ObjectReader& reader, Layout& layout, Job& job) {
  settle_shards(reader, layout, job);
  check_replication(reader, layout, job);
  const bool hidden = job.training.stack.overlap_gradient_reduction;
  const bool in_buckets = hidden && layout.replicas() > 1 && layout.gradient_shards() == 1 && !job.profile &&
                          layout.data_parallel != DataParallel::kDataParallel;
  if (in_buckets && !layout.bucket_mb) job.assumptions.push_back("layout.bucket_mb is 25, and 1 for the first bucket");
  if (layout.zero == 2 && layout.microbatches() > 1) {
    job.assumptions.push_back("zero 2 reduces the gradients of every microbatch");
  }
  const bool travels_beside = layout.weight_shards() > 1 || (layout.gradient_shards() > 1 && hidden);
  if (travels_beside && (layout.microbatches() > 1 || layout.vpp.value_or(1) > 1)) {
    job.assumptions.push_back(
        "sharded weights and gradients travel beside the neighbouring passes of a rank; "
        "the ends of one pass a step are exposed");
  }
}

void check_tensor_grid(const ObjectReader& reader, const Layout& layout, const Job& job) {
  const std::string& form = tensor_parallel_names()[static_cast<std::size_t>(layout.tensor_parallel)];
  const TensorGrid grid = tensor_grid(layout.tensor_parallel, layout.tp, layout.tensor_depth);
  if (grid.q == 0) {
    constexpr std::string_view kShapes[] = {"", "q²", "q²·tensor_depth", "q³"};
    const std::vector<int> valid =
        tensor_grid_sizes(layout.tensor_parallel, layout.tensor_depth, job.cluster.devices());
    reader.fail("tp",
                fmt::format("{} is no {}, as tensor_parallel {} needs", layout.tp,
                            kShapes[static_cast<std::size_t>(layout.tensor_parallel)], form),
                fmt::format("valid on {} devices: {}", job.cluster.devices(), fmt::join(valid, ", ")));
  }
  const int parts = layout.tensor_parallel == TensorParallel::k3d ? grid.q * grid.q : grid.q;
  const auto need = [&](int number, int divisor, std::string_view what) {
    if (number % divisor == 0) return;
    reader.fail(
        "tp", fmt::format("{} {} cannot be cut in {} parts, as tensor_parallel {} needs", what, number, divisor, form),
        "");
  };
  need(job.model.heads, grid.q, "attention heads");
  need(job.model.kv_heads, grid.q, "key/value heads");
  need(job.model.ffn, parts, "MLP width");
  need(job.model.hidden, parts, "hidden size");
  if (layout.micro_batch_size % grid.token_parts != 0) {
    reader.fail("micro_batch_size",
                fmt::format("{} sequences cannot be cut in {} parts, as tensor_parallel {} with tp {} needs",
                            layout.micro_batch_size, grid.token_parts, form, layout.tp),
                fmt::format("valid: multiples of {}", grid.token_parts));
  }
  if (layout.sequence_parallel) {
    reader.fail("sequence_parallel", fmt::format("true does not exist with tensor_parallel {}", form),
                "valid: false; every activation is split already");
  }
  if (job.model.experts || job.model.latent) {
    reader.fail("tensor_parallel", fmt::format("{} is modelled without experts and latent attention", form),
                "valid for this model: 1d");
  }
}

}  // namespace flopcast
