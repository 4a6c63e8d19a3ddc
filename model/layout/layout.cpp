#include "model/layout/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>

#include "base/text/error.hpp"

namespace flopcast {

std::string Compression::text() const {
  switch (kind) {
    case Kind::kNone:
      return "none";
    case Kind::kQuantized:
      return fmt::format("{}bit", bits);
    case Kind::kTopK:
      return fmt::format("topk:{}", fraction);
    case Kind::kPowerSgd:
      return fmt::format("powersgd:{}", rank);
  }
  return "none";
}

TensorGrid tensor_grid(TensorParallel form, int ranks, int depth) {
  if (form == TensorParallel::k1d) return {1, 1, 1, ranks};
  for (int q = 1; q <= ranks; ++q) {
    const TensorGrid grid = form == TensorParallel::k2d    ? TensorGrid{q, 1, q, q * q}
                            : form == TensorParallel::k25d ? TensorGrid{q, depth, q * depth, q * q}
                                                           : TensorGrid{q, 1, q * q, q * q * q};
    if (grid.ranks() == ranks) return grid;
    if (grid.ranks() > ranks) break;
  }
  return {0, 1, 0, 0};
}

std::vector<int> tensor_grid_sizes(TensorParallel form, int depth, int most) {
  std::vector<int> sizes;
  for (int ranks = 1; ranks <= most; ++ranks) {
    if (tensor_grid(form, ranks, depth).q > 0) sizes.push_back(ranks);
  }
  return sizes;
}

int Layout::ranks() const {
  int product = 1;
  for (const Axis axis : kGridAxes) product *= (*this)[axis];
  return product;
}

namespace {

int shards_from(const Layout& layout, int stage) {
  if (layout.data_parallel == DataParallel::kHsdp) return layout.shards;
  if (layout.data_parallel == DataParallel::kFsdp) return layout.replicas();
  return layout.zero >= stage ? layout.replicas() : 1;
}

}  // namespace

int Layout::weight_shards() const {
  return shards_from(*this, kShardsWeights);
}
int Layout::gradient_shards() const {
  return shards_from(*this, kShardsGradients);
}
int Layout::optimizer_shards() const {
  return shards_from(*this, kShardsOptimizer);
}

int Layout::recomputed(int layers) const {
  if (recompute != Recompute::kFull) return 0;
  if (recompute_every) return layers / *recompute_every;
  return recompute_layers ? std::min(layers, *recompute_layers) : layers;
}

int Layout::ulysses_ranks() const {
  if (context_parallel == ContextParallel::kUlysses) return cp;
  return context_parallel == ContextParallel::kHierarchical ? context_inner.value_or(1) : 1;
}

std::vector<std::string_view> names_in(const RecomputeModules& modules) {
  std::vector<std::string_view> names;
  for (std::size_t index = 0; index < modules.size(); ++index) {
    if (modules.test(index)) names.push_back(name_of(static_cast<RecomputeModule>(index)));
  }
  return names;
}

std::string recompute_text(const Layout& layout) {
  std::string text(name_of(layout.recompute));
  if (layout.recompute_layers) {
    text += fmt::format(" ({} layer{} per stage)", *layout.recompute_layers, *layout.recompute_layers == 1 ? "" : "s");
  }
  if (layout.recompute_every) text += fmt::format(" (1 in {} layers)", *layout.recompute_every);
  if (!layout.recompute_modules) return text;
  return text + fmt::format(" ({})", fmt::join(names_in(*layout.recompute_modules), ", "));
}

std::vector<int> even_stage_layers(int layers, int stages) {
  FLOPCAST_CHECK(stages > 0 && layers >= 0);
  std::vector<int> counts(static_cast<std::size_t>(stages), layers / stages);
  const int left_over = layers % stages;
  for (int index = 0; index < left_over; ++index) {
    const int stage =
        stages == 1 ? 0 : (index + 1 < stages - 1 ? index + 1 : (index + 1 == stages - 1 ? 0 : stages - 1));
    ++counts[static_cast<std::size_t>(stage)];
  }
  return counts;
}

}  // namespace flopcast
