#include "realrun/measure/gpu/gpu_samples.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

constexpr int kPasses = 2;
constexpr double kKib = 1024.0;
constexpr double kMib = kKib * kKib;
constexpr double kGib = kMib * kKib;
constexpr int kFirstWithFp8 = 89;
// A multiple of what a row takes in every kernel that memory bounds: two to seven tensors, 1024 to 8192 columns, 32
// bits.
constexpr double kWholeRows = 420.0 * 16384.0;

using Keys = std::vector<SampleKey>;
using Shapes = std::vector<SampleShape>;

SampleKey product(const SampleShape& shape, const std::string& dtype, const std::string& op) {
  SampleKey key;
  key.kind = SampleKind::kGemm;
  key.shape = shape;
  key.dtype = dtype;
  key.op = op;
  return key;
}

SampleKey moved(SampleKind kind, const std::string& op, double bytes) {
  SampleKey key;
  key.kind = kind;
  key.op = op;
  key.bytes = bytes;
  return key;
}

void add_products(Keys& keys, const Shapes& shapes, const std::string& dtype, const std::string& op = {}) {
  for (const SampleShape& shape : shapes) keys.push_back(product(shape, dtype, op));
}

void add_sizes(Keys& keys, SampleKind kind, const std::string& op, const std::vector<double>& sizes) {
  for (const double bytes : sizes) keys.push_back(moved(kind, op, bytes));
}

std::vector<double> sizes(double from, double to, double factor) {
  std::vector<double> all;
  for (double size = from; size <= to; size *= factor) all.push_back(size);
  return all;
}

// Products of transformer layers, and squares that show launch and rate.
Shapes training_shapes() {
  return {{256, 256, 256},    {1024, 1024, 1024},  {2048, 2048, 2048},  {4096, 4096, 4096},
          {8192, 8192, 8192}, {4096, 12288, 4096}, {4096, 4096, 16384}, {8192, 4096, 1024},
          {2048, 8192, 2048}, {1024, 4096, 4096},  {128, 4096, 4096},   {16384, 2048, 512}};
}

// Skinny, odd and huge ones; grids of 128 x 256 tiles that are one wave of the multiprocessors, and one row more.
Shapes edge_shapes(int multiprocessors) {
  constexpr int kTileRows = 128;
  constexpr int kColumns = 512;  // two tiles
  constexpr int kDepth = 2048;
  const int wave = kTileRows * std::max(1, multiprocessors / 2);
  return {
      {128, 128, 128},      {128, 128, 16384},     {16384, 128, 4096},         {128, 16384, 1024},
      {512, 512, 512},      {256, 8192, 8192},     {2056, 3080, 1544},         {1000, 5000, 3000},
      {520, 1032, 8200},    {4096, 1024, 8192},    {wave, kColumns, kDepth},   {wave + kTileRows, kColumns, kDepth},
      {16384, 4096, 16384}, {16384, 16384, 16384}, {2 * wave, kColumns, 1024}, {2 * wave + kTileRows, kColumns, 1024}};
}

// Input and weight gradients of linears with the activations' rows first.
Shapes layout_shapes() {
  return {{4096, 4096, 4096}, {8192, 8192, 2048}, {2048, 8192, 2048},  {4096, 4096, 12288},
          {1024, 1024, 8192}, {512, 2048, 4096},  {4096, 1024, 16384}, {256, 4096, 1024}};
}

// Enough for a fit of each further precision.
Shapes precision_shapes() {
  return {{512, 512, 512},     {1024, 1024, 1024},  {2048, 2048, 2048}, {4096, 4096, 4096}, {8192, 8192, 8192},
          {4096, 12288, 4096}, {4096, 4096, 16384}, {256, 4096, 4096},  {2048, 8192, 512}};
}

Keys basics(const GpuSet& set) {
  Keys keys;
  keys.push_back(moved(SampleKind::kLaunch, {}, 0.0));
  keys.push_back(moved(SampleKind::kHostDispatch, {}, 0.0));
  for (SampleKey& key : keys) key.bytes.reset();
  add_sizes(keys, SampleKind::kMemoryCopy, {}, sizes(256 * kKib, set.quick ? 1 * kGib : 4 * kGib, 4.0));
  add_products(keys, training_shapes(), "bf16");
  return keys;
}

Keys memory_kernels(const GpuSet& set) {
  const std::vector<double> all =
      set.quick ? sizes(4 * kWholeRows, 144 * kWholeRows, 6.0) : sizes(kWholeRows, 256 * kWholeRows, 4.0);
  Keys keys;
  for (const char* op : {"layernorm forward", "layernorm backward"}) add_sizes(keys, SampleKind::kNorm, op, all);
  for (const char* op : {"gelu", "gelu backward", "add", "to bf16"}) add_sizes(keys, SampleKind::kElementwise, op, all);
  for (const char* op : {"adam", "sgd"}) add_sizes(keys, SampleKind::kOptimizerStep, op, all);
  const std::vector<double> copies = sizes(kMib, 256 * kMib, 4.0);
  for (const char* op : {"to device", "to host"}) add_sizes(keys, SampleKind::kHostCopy, op, copies);
  return keys;
}

Keys messages(const GpuSet& set, const GpuFacts& facts) {
  Keys keys;
  if (facts.gpus < 2) return keys;
  std::vector<int> groups = set.ranks;
  if (groups.empty()) groups = facts.gpus == 2 ? std::vector<int>{2} : std::vector<int>{2, facts.gpus};
  const std::vector<double> all = sizes(kKib, set.quick ? 64 * kMib : 1 * kGib, set.quick ? 8.0 : 4.0);
  for (const int ranks : groups) {
    for (const SampleKind kind : {SampleKind::kPointToPoint, SampleKind::kAllReduce, SampleKind::kAllGather,
                                  SampleKind::kReduceScatter, SampleKind::kAllToAll}) {
      const bool pair = kind == SampleKind::kPointToPoint;
      if (pair && ranks != groups.front()) continue;  // of two ranks, whatever the groups
      for (const double bytes : all) {
        SampleKey key = moved(kind, {}, bytes);
        key.ranks = pair ? 2 : ranks;
        key.dtype = pair ? "" : "fp32";
        keys.push_back(key);
      }
    }
  }
  return keys;
}

Keys layouts(const GpuSet& set, const GpuFacts& facts) {
  Keys keys;
  if (!set.quick) add_products(keys, edge_shapes(facts.multiprocessors), "bf16");
  for (const char* op : {"dgrad", "wgrad"}) add_products(keys, layout_shapes(), "bf16", op);
  return keys;
}

// Each alone and beside the other, for every number of channels. Where there are several GPUs, an all-reduce of them
// too.
Keys overlaps(const GpuSet& set, const GpuFacts& facts) {
  constexpr double kCopied = 256 * kMib;
  const Shapes shapes = set.quick ? Shapes{{4096, 4096, 4096}} : Shapes{{4096, 4096, 4096}, {8192, 8192, 8192}};
  Keys keys;
  for (const int channels : set.quick ? std::vector<int>{2, 8, 24} : std::vector<int>{1, 2, 4, 8, 16, 24, 32}) {
    for (const SampleKind kind : {SampleKind::kChannelCopy, SampleKind::kAllReduce}) {
      const bool message = kind == SampleKind::kAllReduce;
      if (message && facts.gpus < 2) continue;
      SampleKey traffic = moved(kind, {}, kCopied);
      traffic.channels = channels;
      if (message) traffic.ranks = facts.gpus;
      if (message) traffic.dtype = "fp32";
      keys.push_back(traffic);
      traffic.beside = SampleKind::kGemm;
      keys.push_back(traffic);
      for (const SampleShape& shape : shapes) {
        SampleKey slowed = product(shape, "bf16", {});
        slowed.beside = kind;
        slowed.channels = channels;
        keys.push_back(slowed);
      }
    }
  }
  return keys;
}

Keys other_precisions(const GpuSet& set, const GpuFacts& facts) {
  Keys keys;
  add_products(keys, precision_shapes(), "tf32");
  add_products(keys, precision_shapes(), "fp16");
  if (facts.compute_capability >= kFirstWithFp8) add_products(keys, precision_shapes(), "fp8");
  const std::vector<double> all = sizes(4 * kWholeRows, 144 * kWholeRows, set.quick ? 6.0 : 3.0);
  for (const char* op : {"forward", "backward"}) {
    add_sizes(keys, SampleKind::kEmbedding, op, all);
    add_sizes(keys, SampleKind::kLoss, op, all);
  }
  return keys;
}

Keys least_important(const GpuSet& set) {
  Keys keys;
  for (const int head_dim : {64, 128}) {
    for (const int sequence : {512, 1024, 2048, 4096}) {
      for (const SampleKind kind : {SampleKind::kAttentionForward, SampleKind::kAttentionBackward}) {
        SampleKey key;
        key.kind = kind;
        key.attention = AttentionShape{2, 16, sequence, head_dim, true};
        key.dtype = "fp32";
        key.op = kOwnKernel;
        keys.push_back(key);
      }
    }
  }
  if (set.quick) return keys;
  for (const char* dtype : {"tf32", "fp16"}) {
    for (const char* op : {"dgrad", "wgrad"}) add_products(keys, layout_shapes(), dtype, op);
  }
  return keys;
}

double element_bytes(const std::string& dtype) {
  return dtype == "fp8" ? 1.0 : dtype == "fp16" || dtype == "bf16" ? 2.0 : 4.0;
}

}  // namespace

double buffer_bytes(const SampleKey& key) {
  if (key.shape) {
    const double m = key.shape->m;
    const double n = key.shape->n;
    const double k = key.shape->k;
    constexpr double kWidest = 4.0;  // of the result
    return element_bytes(key.dtype) * (m * k + k * n) + kWidest * m * n;
  }
  if (key.attention) {
    const AttentionShape& shape = *key.attention;
    constexpr double kTensors = 9.0;  // queries, keys and values, their gradients, the output and its gradient, sums
    return kTensors * sizeof(float) * static_cast<double>(shape.batch) * shape.sequence * shape.heads * shape.head_dim;
  }
  return key.bytes.value_or(0.0);
}

std::vector<SampleKey> gpu_samples(const GpuSet& set, const GpuFacts& facts) {
  std::vector<Keys> groups = {basics(set), memory_kernels(set), layouts(set, facts), other_precisions(set, facts),
                              least_important(set)};
  const auto append = [](Keys& keys, const Keys& more) { keys.insert(keys.end(), more.begin(), more.end()); };
  append(groups[1], messages(set, facts));
  append(groups[2], overlaps(set, facts));
  Keys all;
  for (const Keys& group : groups) {
    for (int pass = 1; pass <= kPasses; ++pass) {
      for (SampleKey key : group) {
        key.pass = pass;
        if (buffer_bytes(key) <= facts.workspace_bytes) all.push_back(std::move(key));
      }
    }
  }
  return all;
}

}  // namespace flopcast
