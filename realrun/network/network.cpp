#include "realrun/network/network.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/text/error.hpp"
#include "realrun/network/adapters.hpp"
#include "realrun/network/context.hpp"
#include "realrun/network/experts.hpp"
#include "realrun/network/layer.hpp"
#include "realrun/network/layers.hpp"
#include "realrun/network/tensor_grid.hpp"
#include "realrun/network/tensor_parallel.hpp"

namespace flopcast::realrun {

Microbatch Corpus::microbatch(std::uint64_t first, int count) const {
  const auto size = static_cast<std::uint64_t>(vocab);
  // An affine map is a permutation if its factor and the size are coprime.
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

Microbatch cut_for_context(const Microbatch& whole, std::size_t sequence, const ContextPart& part) {
  if (part.ranks() == 1) return whole;
  const RowPositions positions = positions_of(sequence, 0, {}, part);
  Microbatch cut;
  for (std::size_t start = 0; start < whole.tokens.size(); start += sequence) {
    for (std::size_t row = 0; row < positions.length; ++row) {
      cut.tokens.push_back(whole.tokens[start + positions.of(row)]);
      cut.targets.push_back(whole.targets[start + positions.of(row)]);
    }
  }
  return cut;
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

HeadLayout NetworkSpec::head_layout(int parts) const {
  const auto share = [parts](int count) { return static_cast<std::size_t>(count / parts); };
  return {share(heads), share(kv_heads > 0 ? kv_heads : heads),
          static_cast<std::size_t>(head_dim > 0 ? head_dim : hidden / heads)};
}

bool NetworkSpec::is_windowed(int layer) const {
  const auto up_to = [this](int count) {
    return static_cast<std::int64_t>(count) * windowed_layers / std::max(1, layers);
  };
  return up_to(layer + 1) > up_to(layer);
}

std::string tied_parameter() {
  return "embedding.table";
}

namespace {

constexpr float kTableDeviation = 0.1F;

template <class T>
class Builder {
 public:
  /// `again`: modules that are recomputed inside blocks.
  Builder(const NetworkSpec& spec, const TensorForm& form, const RecomputeModules& again)
      : spec_(spec), form_(form), again_(again) {}

  LayerPointer<T> embedding() const {
    std::vector<LayerPointer<T>> layers;
    if (grid() != nullptr) {
      layers.push_back(grid_embedding<T>(tied_parameter(), vocab(), hidden(), kTableDeviation, *grid()));
    } else {
      const Shard shard = rows_of(vocab(), hidden(), index(), ranks());
      layers.push_back(std::make_unique<Embedding<T>>(tied_parameter(), shard, kTableDeviation));
      layers.push_back(leave_group<T>(form_));
    }
    if (spec_.positions == Positions::kLearned) {
      const int entries = spec_.position_rows > 0 ? spec_.position_rows : spec_.sequence;
      layers.push_back(held_by_grid(
          std::make_unique<LearnedPositions<T>>("embedding", stream_features(static_cast<std::size_t>(entries)),
                                                length(), sharded() ? index() : 0, sharded() ? ranks() : 1)));
    }
    if (spec_.embedding_norm) layers.push_back(norm("embedding.norm"));
    return in_state(trains_embeddings() ? LayerState::kTrained : LayerState::kFrozenNoGradient,
                    std::make_unique<Sequence<T>>(std::move(layers)));
  }

  /// `index`: position of the block within the stage.
  LayerPointer<T> block(int number, int index) const {
    const std::string name = fmt::format("block.{}", number);
    LayerPointer<T> layer;
    if (spec_.recompute.whole(index)) {
      const Builder<T> inside(spec_, form_, {});
      const bool cut = spec_.recompute.partitioned && ranks() > 1;
      layer = std::make_unique<Recomputed<T>>(inside.body(name, number), cut ? form_.group : nullptr);
    } else {
      layer = body(name, number);
    }
    return in_state(layer_state(spec_.finetune, spec_.layers, number), std::move(layer));
  }

  LayerPointer<T> head() const {
    if (grid() != nullptr) {
      return sequence<T>(norm("head.norm"), grid_linear<T>({"head", hidden(), vocab()}, *grid()),
                         std::make_unique<CrossEntropy<T>>(grid()->row));
    }
    const Shard shard = rows_of(vocab(), hidden(), index(), ranks());
    auto logits = spec_.tied_embeddings ? std::make_unique<Linear<T>>(tied_parameter(), shard, kTableDeviation)
                                        : std::make_unique<Linear<T>>("head", shard);
    logits->exclude_from_float8();  // as Transformer Engine's users do: fp8 is for blocks only
    return in_state(trains_embeddings() ? LayerState::kTrained : LayerState::kFrozenPassThrough,
                    sequence<T>(norm("head.norm"), enter_group<T>(form_), std::move(logits),
                                std::make_unique<CrossEntropy<T>>(*form_.group)));
  }

 private:
  bool adapts() const { return spec_.finetune && spec_.finetune->adapts(); }
  bool trains_embeddings() const {
    return !spec_.finetune || spec_.finetune->method == FinetuneMethod::kFull || spec_.finetune->embeddings;
  }
  LayerPointer<T> in_state(LayerState state, LayerPointer<T> layer) const {
    if (state == LayerState::kTrained) return layer;
    using Below = typename Frozen<T>::Below;
    return std::make_unique<Frozen<T>>(std::move(layer),
                                       state == LayerState::kFrozenNoGradient ? Below::kFrozen : Below::kTrained);
  }
  // A layer of a block; frozen if adapters are trained instead.
  LayerPointer<T> base(LayerPointer<T> layer) const {
    return in_state(adapts() ? LayerState::kFrozenPassThrough : LayerState::kTrained, std::move(layer));
  }

  std::size_t hidden() const { return static_cast<std::size_t>(spec_.hidden); }
  std::size_t vocab() const { return static_cast<std::size_t>(spec_.vocab); }
  std::size_t length() const { return static_cast<std::size_t>(spec_.sequence); }
  int ranks() const { return form_.group->size(); }
  int index() const { return form_.group->index(); }
  bool sharded() const { return form_.shares_rows(); }
  const GridPlace* grid() const { return form_.grid; }

  // Number of parts between the two linears of a pair, and index of this rank's.
  int inner_parts() const { return grid() == nullptr ? ranks() : grid()->grid.q; }
  int inner_part() const { return grid() == nullptr ? index() : grid()->row.index(); }
  Shard inner_features(std::size_t features) const { return columns_of(1, features, inner_part(), inner_parts()); }
  // This rank's share of the hidden states between pairs, for `rows` rows.
  Shard stream_features(std::size_t rows) const {
    if (grid() == nullptr) return whole_matrix(rows, hidden());
    return columns_of(rows, hidden(), grid()->features().index(), grid()->features().size());
  }
  LayerPointer<T> held_by_grid(LayerPointer<T> layer) const {
    return grid() == nullptr ? std::move(layer) : replicated<T>(std::move(layer), grid()->holders());
  }

  LayerPointer<T> norm(const std::string& name) const {
    if (grid() != nullptr) return held_by_grid(line_norm<T>(name, hidden(), spec_.norm, grid()->features()));
    return std::make_unique<RowNorm<T>>(name, hidden(), spec_.norm, sharded());
  }

  LayerPointer<T> body(const std::string& name, int number) const {
    switch (spec_.block) {
      case BlockForm::kSequential:
        return sequence<T>(std::make_unique<Residual<T>>(attention(name, number)),
                           std::make_unique<Residual<T>>(mlp(name, number)));
      case BlockForm::kParallel:
        return std::make_unique<Residual<T>>(std::make_unique<Branches<T>>(attention(name, number), mlp(name, number)));
      case BlockForm::kParallelOneNorm:
        break;
    }
    return std::make_unique<Residual<T>>(
        after_norm(name + ".norm", std::make_unique<Branches<T>>(attention(name, number), mlp(name, number))));
  }

  bool recomputes(RecomputeModule module) const { return (again_ & bit_of(module)).any(); }
  LayerPointer<T> recomputed_if(bool again, LayerPointer<T> layer) const {
    return again ? std::make_unique<Recomputed<T>>(std::move(layer)) : std::move(layer);
  }

  LayerPointer<T> after_norm(const std::string& name, LayerPointer<T> layer) const {
    if (recomputes(RecomputeModule::kLayernorm)) {
      return std::make_unique<RebuiltBetween<T>>(base(norm(name)), std::move(layer));
    }
    return sequence<T>(base(norm(name)), std::move(layer));
  }

  // A norm, a column linear, layers that work on its shares, and a row linear.
  struct LinearPair {
    std::string name;
    std::string up;
    std::string down;
    std::size_t inputs = 0;   // outputs of the first linear
    std::size_t outputs = 0;  // inputs of the second linear
    bool up_bias = false;
    bool again = false;  // the linears are recomputed
    std::vector<AdapterSpec> up_adapters = {};
    std::vector<AdapterSpec> down_adapters = {};
  };
  using Columns = std::array<std::size_t, 4>;  // groups, their width, first column and number of those adapted in each
  AdapterSpec adapter(std::string_view name, const Columns& columns) const {
    const Finetune& finetune = *spec_.finetune;
    return {.name = std::string(name),
            .rank = static_cast<std::size_t>(finetune.rank),
            .scale = finetune.alpha.value_or(finetune.rank) / finetune.rank,
            .groups = columns[0],
            .group_width = columns[1],
            .first = columns[2],
            .width = columns[3]};
  }
  // Adapters of the outputs of one linear; a single one for all if `fused` is targeted.
  struct TargetedColumns {
    AdapterTarget target;
    Columns columns;
  };
  std::vector<AdapterSpec> adapters(const std::vector<TargetedColumns>& parts, std::optional<AdapterTarget> fused,
                                    std::size_t outputs) const {
    std::vector<AdapterSpec> specs;
    if (!adapts()) return specs;
    const AdapterTargets targets = spec_.finetune->targets.any() ? spec_.finetune->targets : all_targets();
    const auto has = [&targets](AdapterTarget target) { return (targets & bit_of(target)).any(); };
    if (fused && has(*fused)) return {adapter(name_of(*fused), {outputs, 1, 0, 1})};
    for (const TargetedColumns& part : parts) {
      if (has(part.target)) specs.push_back(adapter(name_of(part.target), part.columns));
    }
    return specs;
  }
  LayerPointer<T> linear_pair(const LinearPair& pair, std::vector<LayerPointer<T>> between) const {
    std::vector<LayerPointer<T>> layers;
    const LinearSpec up{pair.up, hidden(), pair.inputs, adapts(), pair.up_adapters};
    const LinearSpec down{pair.down, pair.outputs, hidden(), adapts(), pair.down_adapters};
    layers.push_back(grid() == nullptr ? column_linear<T>(up, form_) : grid_linear<T>(up, *grid()));
    if (pair.up_bias) {
      LayerPointer<T> bias = base(std::make_unique<Bias<T>>(pair.up, inner_features(pair.inputs)));
      if (grid() != nullptr) bias = replicated<T>(std::move(bias), {&grid()->column, &grid()->depth});
      layers.push_back(std::move(bias));
    }
    for (LayerPointer<T>& layer : between) layers.push_back(std::move(layer));
    layers.push_back(grid() == nullptr ? row_linear<T>(down, form_) : grid_linear<T>(down, grid()->turned()));
    LayerPointer<T> linears = recomputed_if(pair.again, std::make_unique<Sequence<T>>(std::move(layers)));
    if (spec_.block != BlockForm::kParallelOneNorm) linears = after_norm(pair.name + ".norm", std::move(linears));
    if (spec_.biases) {
      linears = sequence<T>(std::move(linears),
                            base(held_by_grid(std::make_unique<Bias<T>>(pair.down, stream_features(1), sharded()))));
    }
    return spec_.post_norms ? sequence<T>(std::move(linears), base(norm(pair.name + ".post_norm")))
                            : std::move(linears);
  }

  LayerPointer<T> attention(const std::string& block, int number) const {
    const std::string name = block + ".attention";
    const HeadLayout heads = spec_.head_layout(inner_parts());
    AttentionExtent extent{heads, length(), {.causal = spec_.causal}, {}};
    if (spec_.is_windowed(number)) {
      extent.mask.window = static_cast<std::size_t>(spec_.sliding_window);
      extent.mask.chunk = static_cast<std::size_t>(spec_.attention_chunk);
    }
    if (spec_.positions == Positions::kAlibi) {
      extent.biases = {heads.heads * static_cast<std::size_t>(inner_part()), static_cast<std::size_t>(spec_.heads)};
    }
    std::vector<LayerPointer<T>> between;
    // All ranks share these weights; each sums the gradients of its own heads.
    if (spec_.qk_norm) {
      const bool partial = ranks() > 1 && grid() == nullptr;
      LayerPointer<T> norms = std::make_unique<QueryKeyNorm<T>>(name, heads, spec_.norm, spec_.whole_qk_norm, partial);
      if (grid() != nullptr) norms = replicated<T>(std::move(norms), {&grid()->all});
      between.push_back(base(std::move(norms)));
    }
    if (spec_.positions == Positions::kRotary) between.push_back(std::make_unique<RotaryPositions<T>>(heads, length()));
    between.push_back(recomputed_if(recomputes(RecomputeModule::kCoreAttention), core_attention(extent)));
    const HeadLayout whole = spec_.head_layout();
    const std::size_t queries = whole.group() * whole.head_dim;
    const auto columns = [&](std::size_t first, std::size_t width) {
      return Columns{whole.kv_heads, whole.group_width(), first, width};
    };
    std::vector<AdapterSpec> of_inputs =
        adapters({{AdapterTarget::kQuery, columns(0, queries)},
                  {AdapterTarget::kKey, columns(queries, whole.head_dim)},
                  {AdapterTarget::kValue, columns(queries + whole.head_dim, whole.head_dim)}},
                 AdapterTarget::kFusedQkv, whole.width());
    return linear_pair({.name = name,
                        .up = name + ".qkv",
                        .down = name + ".output",
                        .inputs = whole.width(),
                        .outputs = whole.heads * whole.head_dim,
                        .up_bias = spec_.biases || spec_.attention_bias,
                        .up_adapters = std::move(of_inputs),
                        .down_adapters = adapters({{AdapterTarget::kOutput, {hidden(), 1, 0, 1}}}, {}, hidden())},
                       std::move(between));
  }

  LayerPointer<T> core_attention(AttentionExtent extent) const {
    if (form_.context == nullptr) return std::make_unique<Attention<T>>(extent);
    const TensorGroup& ranks = *form_.context;
    const ContextParallel form = form_.context_form;
    using Form = typename ContextAttention<T>::Form;
    const TensorGroup* heads = form == ContextParallel::kUlysses ? &ranks : form_.context_heads;
    if (heads != nullptr) {
      const auto members = static_cast<std::size_t>(heads->size());
      extent.heads.heads /= members;
      extent.heads.kv_heads /= members;
      extent.biases.first_head += static_cast<std::size_t>(heads->index()) * extent.heads.heads;
    }
    if (form == ContextParallel::kUlysses) {
      return std::make_unique<HeadExchange<T>>(std::make_unique<Attention<T>>(extent), ranks, length());
    }
    LayerPointer<T> attention = std::make_unique<ContextAttention<T>>(
        extent, ranks, form == ContextParallel::kAllGather ? Form::kAllGather : Form::kRing);
    if (heads == nullptr) return attention;
    const std::size_t part = length() / static_cast<std::size_t>(ranks.size());
    return std::make_unique<HeadExchange<T>>(std::move(attention), *heads, part);
  }

  LayerPointer<T> mlp(const std::string& block, int number) const {
    const std::string name = block + ".mlp";
    if (spec_.kind_of(number) == BlockKind::kExperts) return mixture(name);
    const auto width = static_cast<std::size_t>(spec_.ffn);
    std::vector<LayerPointer<T>> between;
    between.push_back(activation());
    // Gate and value are adjacent.
    std::vector<AdapterSpec> of_inputs =
        spec_.gated_mlp ? adapters({{AdapterTarget::kGate, {width, 2, 0, 1}}, {AdapterTarget::kUp, {width, 2, 1, 1}}},
                                   AdapterTarget::kFusedUp, 2 * width)
                        : adapters({{AdapterTarget::kUp, {width, 1, 0, 1}}}, AdapterTarget::kFusedUp, width);
    return linear_pair({.name = name,
                        .up = name + ".up",
                        .down = name + ".down",
                        .inputs = spec_.gated_mlp ? 2 * width : width,
                        .outputs = width,
                        .up_bias = spec_.biases,
                        .again = recomputes(RecomputeModule::kMlp),
                        .up_adapters = std::move(of_inputs),
                        .down_adapters = adapters({{AdapterTarget::kDown, {hidden(), 1, 0, 1}}}, {}, hidden())},
                       std::move(between));
  }

  // A norm followed by the routed experts and those that process every token: on the shares of the tensor-parallel
  // ranks, or with sequence parallelism with routed experts on each rank's rows.
  LayerPointer<T> mixture(const std::string& name) const {
    LayerPointer<T> all = routed(name);
    const Experts& experts = *spec_.experts;
    if (experts.shared > 0) {
      // Several shared experts in parallel equal a single one of their total width.
      const int width = experts.shared * experts.shared_ffn;
      LayerPointer<T> seen_by_all =
          sharded() ? shared_pair(name + ".shared", width) : partial_mlp(name + ".shared", width, *form_.group, false);
      all = std::make_unique<Branches<T>>(std::move(all), std::move(seen_by_all));
    }
    LayerPointer<T> layer =
        sharded() ? std::move(all) : sequence<T>(enter_group<T>(form_), std::move(all), leave_group<T>(form_));
    if (spec_.block != BlockForm::kParallelOneNorm) layer = after_norm(name + ".norm", std::move(layer));
    return spec_.post_norms ? sequence<T>(std::move(layer), norm(name + ".post_norm")) : std::move(layer);
  }

  LayerPointer<T> routed(const std::string& name) const {
    static const TensorGroup nobody_else;
    const Experts& experts = *spec_.experts;
    const TensorGroup& holders = form_.experts == nullptr ? nobody_else : *form_.experts;
    const TensorGroup& sharers = form_.sharers == nullptr ? nobody_else : *form_.sharers;
    const int held = experts.count / holders.size();
    std::vector<LayerPointer<T>> own;
    for (int expert = holders.index() * held; expert < (holders.index() + 1) * held; ++expert) {
      own.push_back(partial_mlp(fmt::format("{}.expert.{}", name, expert), experts.ffn,
                                sharded() ? sharers : *form_.group, true));
    }
    RouterSpec router{.name = name + ".router",
                      .hidden = hidden(),
                      .experts = static_cast<std::size_t>(experts.count),
                      .top_k = static_cast<std::size_t>(experts.top_k),
                      .groups = static_cast<std::size_t>(experts.groups),
                      .group_top_k = static_cast<std::size_t>(experts.group_top_k),
                      .bias = experts.router_bias,
                      .partial = ranks() > 1,
                      .capacity_factor = experts.capacity_factor,
                      .balanced = spec_.balanced_routing};
    return std::make_unique<RoutedExperts<T>>(std::move(router), std::move(own), holders,
                                              sharded() ? sharers : nobody_else);
  }

  LayerPointer<T> activation() const { return std::make_unique<Activation<T>>(spec_.gated_mlp); }

  // An MLP whose input is whole on all of the ranks, and whose results they must still sum.
  LayerPointer<T> partial_mlp(const std::string& name, int ffn, const TensorGroup& ranks, bool of_experts) const {
    const auto width = static_cast<std::size_t>(ffn);
    const std::size_t inputs = spec_.gated_mlp ? 2 * width : width;
    std::vector<LayerPointer<T>> layers;
    const auto add = [&](auto layer) {
      if (of_experts) layer->belong_to_expert();
      layers.push_back(std::move(layer));
    };
    add(std::make_unique<Linear<T>>(name + ".up", rows_of(inputs, hidden(), ranks.index(), ranks.size())));
    if (spec_.biases) add(std::make_unique<Bias<T>>(name + ".up", columns_of(1, inputs, ranks.index(), ranks.size())));
    layers.push_back(activation());
    add(std::make_unique<Linear<T>>(name + ".down", columns_of(hidden(), width, ranks.index(), ranks.size())));
    if (spec_.biases) add(std::make_unique<SharedBias<T>>(name + ".down", hidden(), ranks));
    return std::make_unique<Sequence<T>>(std::move(layers));
  }

  // The same on each rank's own rows: they are gathered, and the results scattered.
  LayerPointer<T> shared_pair(const std::string& name, int ffn) const {
    const auto width = static_cast<std::size_t>(ffn);
    const std::size_t inputs = spec_.gated_mlp ? 2 * width : width;
    std::vector<LayerPointer<T>> layers;
    layers.push_back(column_linear<T>({name + ".up", hidden(), inputs}, form_));
    if (spec_.biases) layers.push_back(std::make_unique<Bias<T>>(name + ".up", inner_features(inputs)));
    layers.push_back(activation());
    layers.push_back(row_linear<T>({name + ".down", width, hidden()}, form_));
    if (spec_.biases) layers.push_back(std::make_unique<Bias<T>>(name + ".down", whole_matrix(1, hidden()), true));
    return std::make_unique<Sequence<T>>(std::move(layers));
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

Shard whole_matrix(std::size_t rows, std::size_t columns) {
  return {.whole_rows = rows, .whole_columns = columns, .rows = rows, .columns = columns};
}

Shard rows_of(std::size_t rows, std::size_t columns, int index, int parts) {
  const auto count = static_cast<std::size_t>(parts);
  FLOPCAST_CHECK(rows % count == 0);
  Shard shard = whole_matrix(rows, columns);
  shard.rows = rows / count;
  shard.first_row = static_cast<std::size_t>(index) * shard.rows;
  return shard;
}

Shard columns_of(std::size_t rows, std::size_t columns, int index, int parts) {
  const auto count = static_cast<std::size_t>(parts);
  FLOPCAST_CHECK(columns % count == 0);
  Shard shard = whole_matrix(rows, columns);
  shard.columns = columns / count;
  shard.first_column = static_cast<std::size_t>(index) * shard.columns;
  return shard;
}

std::size_t ParameterList::add(Parameter parameter) {
  parameter.frozen = freezes_;
  std::size_t& size = freezes_ ? frozen_ : trained_;
  const std::size_t offset = split_ ? size + (freezes_ ? *split_ : 0) : this->size();
  size += (parameter.shard.count() + alignment_ - 1) / alignment_ * alignment_;
  parameter.offset = offset;
  const auto behind = std::find_if(parameters_.begin(), parameters_.end(),
                                   [offset](const Parameter& other) { return other.offset > offset; });
  parameters_.insert(behind, std::move(parameter));
  return offset;
}

RowPositions positions_of(std::size_t sequence, std::size_t shift, const TokenSlice& slice, const ContextPart& part) {
  if (part.ranks() == 1) return {shift, slice.length(sequence), slice.first(sequence)};
  const std::size_t length = part.length(sequence);
  const std::size_t of_group = length * static_cast<std::size_t>(part.inner_count);
  const std::size_t before = length * static_cast<std::size_t>(part.inner_index);
  const auto index = static_cast<std::size_t>(part.index);
  if (!part.zigzag) return {shift, length, index * of_group + before};
  const std::size_t half = of_group / 2;
  const std::size_t late = (2 * static_cast<std::size_t>(part.count) - 1 - index) * half;
  if (before >= half) return {shift, length, late + before - half};
  return {shift, length, index * half + before, half - before, late};
}

namespace {

std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = name.size();
  for (const char letter : name) hash = mix(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

}  // namespace

Draw draw_of(const Parameter& parameter, std::uint64_t seed) {
  const Shard& shard = parameter.shard;
  return {.start = mix(seed) ^ hash_of(parameter.name),
          .first = shard.first_row * shard.whole_columns + shard.first_column,
          .columns = shard.columns,
          .whole_columns = shard.whole_columns,
          .value = parameter.value,
          .deviation = parameter.deviation};
}

template <class T>
void initialise(const ParameterList& list, std::uint64_t seed, T* weights) {
  for (const Parameter& parameter : list.parameters()) {
    const Draw draw = draw_of(parameter, seed);
    T* const elements = weights + parameter.offset;
    for (std::size_t index = 0; index < parameter.shard.count(); ++index) elements[index] = draw.at(index);
  }
}

template void initialise(const ParameterList&, std::uint64_t, float*);
template void initialise(const ParameterList&, std::uint64_t, double*);

}  // namespace flopcast::realrun
