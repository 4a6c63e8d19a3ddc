#include "realrun/network/network.hpp"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "realrun/network/layers.hpp"
#include "realrun/network/recompute.hpp"
#include "realrun/network/tensor_parallel.hpp"

namespace flopcast::realrun {

Microbatch Corpus::microbatch(std::uint64_t first, int count) const {
  const auto size = static_cast<std::uint64_t>(vocab);
  // An affine map is a permutation when its factor has no divisor in common with the size.
  std::uint64_t factor = size / 2 + 1;
  while (std::gcd(factor, size) != 1) ++factor;
  Microbatch batch;
  for (int item = 0; item < count; ++item) {
    const std::uint64_t start = mix(seed ^ mix(first + static_cast<std::uint64_t>(item)));
    std::uint64_t token = start % size;
    for (int position = 0; position < sequence; ++position) {
      batch.tokens.push_back(static_cast<int>(token));
      const std::uint64_t chance = mix(start + 2 * static_cast<std::uint64_t>(position) + 1);
      token = chance % 8 == 0 ? (chance / 8) % size : (token * factor + 1) % size;
      batch.targets.push_back(static_cast<int>(token));
    }
  }
  return batch;
}

Microbatch cut(const Microbatch& whole, std::size_t sequence, const TokenSlice& slice) {
  if (slice.count == 1) return whole;
  Microbatch part;
  for (std::size_t start = slice.first(sequence); start < whole.tokens.size(); start += sequence) {
    for (std::size_t row = start; row < start + slice.length(sequence); ++row) {
      part.tokens.push_back(whole.tokens[row]);
      part.targets.push_back(whole.targets[row]);
    }
  }
  return part;
}

std::vector<StagePart> split_network(const std::vector<int>& stage_blocks) {
  std::vector<StagePart> parts;
  int first = 0;
  for (const int blocks : stage_blocks) {
    parts.push_back({.first_block = first, .blocks = blocks});
    first += blocks;
  }
  parts.front().embedding = true;
  parts.back().head = true;
  return parts;
}

std::string tied_parameter() {
  return "embedding.table";
}

namespace {

constexpr float kTableDeviation = 0.1F;

template <class T>
class Builder {
 public:
  /// `again`: what is recomputed inside blocks.
  Builder(const NetworkSpec& spec, const TensorForm& form, const RecomputeModules& again)
      : spec_(spec), form_(form), again_(again) {}

  LayerPointer<T> embedding() const {
    const Shard shard = rows_of(vocab(), hidden(), index(), ranks());
    return sequence<T>(
        std::make_unique<Embedding<T>>(tied_parameter(), shard, kTableDeviation), leave_group<T>(form_),
        std::make_unique<LearnedPositions<T>>("embedding", static_cast<std::size_t>(spec_.sequence), hidden(),
                                              sharded() ? index() : 0, sharded() ? ranks() : 1));
  }

  /// `index` among the stage's.
  LayerPointer<T> block(int number, int index) const {
    const std::string name = fmt::format("block.{}", number);
    if (!spec_.recompute.whole(index)) return sequence<T>(attention(name), mlp(name));
    const Builder<T> inside(spec_, form_, {});
    const bool cut = spec_.recompute.partitioned && ranks() > 1;
    return std::make_unique<Recomputed<T>>(sequence<T>(inside.attention(name), inside.mlp(name)),
                                           cut ? form_.group : nullptr);
  }

  LayerPointer<T> head() const {
    const Shard shard = rows_of(vocab(), hidden(), index(), ranks());
    auto logits = spec_.tied ? std::make_unique<Linear<T>>(tied_parameter(), shard, kTableDeviation)
                             : std::make_unique<Linear<T>>("head", shard);
    return sequence<T>(norm("head.norm"), enter_group<T>(form_), std::move(logits),
                       std::make_unique<CrossEntropy<T>>(*form_.group));
  }

 private:
  std::size_t hidden() const { return static_cast<std::size_t>(spec_.hidden); }
  std::size_t vocab() const { return static_cast<std::size_t>(spec_.vocab); }
  int ranks() const { return form_.group->size(); }
  int index() const { return form_.group->index(); }
  bool sharded() const { return form_.shares_rows(); }

  LayerPointer<T> norm(const std::string& name) const {
    return std::make_unique<LayerNorm<T>>(name, hidden(), sharded());
  }

  bool redoes(RecomputeModule module) const { return (again_ & bit_of(module)).any(); }
  LayerPointer<T> redone_if(bool again, LayerPointer<T> layer) const {
    return again ? std::make_unique<Recomputed<T>>(std::move(layer)) : std::move(layer);
  }

  // norm, column linear, whatever works on its shares, row linear.
  LayerPointer<T> linear_pair(const std::string& norm_name, const std::string& up, const std::string& down,
                              std::size_t inputs, std::size_t outputs, LayerPointer<T> between, bool again) const {
    LayerPointer<T> linears =
        redone_if(again, sequence<T>(column_linear<T>({up, hidden(), inputs}, form_),
                                     std::make_unique<Bias<T>>(up, columns_of(1, inputs, index(), ranks())),
                                     std::move(between), row_linear<T>({down, outputs, hidden()}, form_)));
    LayerPointer<T> inner = redoes(RecomputeModule::kLayernorm)
                                ? std::make_unique<RebuiltBetween<T>>(norm(norm_name), std::move(linears))
                                : sequence<T>(norm(norm_name), std::move(linears));
    return std::make_unique<Residual<T>>(
        sequence<T>(std::move(inner), std::make_unique<Bias<T>>(down, whole_matrix(1, hidden()), sharded())));
  }

  LayerPointer<T> attention(const std::string& name) const {
    auto core = std::make_unique<CausalAttention<T>>(static_cast<std::size_t>(spec_.heads / ranks()),
                                                     static_cast<std::size_t>(spec_.hidden / spec_.heads),
                                                     static_cast<std::size_t>(spec_.sequence));
    return linear_pair(name + ".attention.norm", name + ".attention.qkv", name + ".attention.output", 3 * hidden(),
                       hidden(), redone_if(redoes(RecomputeModule::kCoreAttention), std::move(core)), false);
  }

  LayerPointer<T> mlp(const std::string& name) const {
    const auto width = static_cast<std::size_t>(spec_.ffn);
    return linear_pair(name + ".mlp.norm", name + ".mlp.up", name + ".mlp.down", width, width,
                       std::make_unique<Gelu<T>>(), redoes(RecomputeModule::kMlp));
  }

  const NetworkSpec& spec_;
  const TensorForm& form_;
  RecomputeModules again_;
};

}  // namespace

template <class T>
std::vector<LayerPointer<T>> build_stage(const NetworkSpec& spec, const StagePart& part, const TensorForm& form) {
  const Builder<T> builder(spec, form, spec.recompute.modules);
  std::vector<LayerPointer<T>> units;
  if (part.embedding) units.push_back(builder.embedding());
  for (int block = 0; block < part.blocks; ++block) units.push_back(builder.block(part.first_block + block, block));
  if (part.head) units.push_back(builder.head());
  return units;
}

template std::vector<LayerPointer<float>> build_stage(const NetworkSpec&, const StagePart&, const TensorForm&);
template std::vector<LayerPointer<double>> build_stage(const NetworkSpec&, const StagePart&, const TensorForm&);

}  // namespace flopcast::realrun
