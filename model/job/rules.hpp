#pragma once

#include <string_view>
#include <vector>

#include "model/job.hpp"

namespace flopcast {

/// A condition between the keys of a layout. The ranges of single keys are checked where they are read.
struct LayoutRule {
  std::string_view sentence;  ///< a planner counts the layouts that break it by this
  std::string_view keys;      ///< of the layout, with spaces between: those it reads, the one to blame first
  bool (*broken)(const Job& job, const Layout& layout);
  std::string_view problem;          ///< the complaint: {tp} stands for the value of a key or of another figure
  std::string_view valid = "valid";  ///< in front of the values that mend it
  std::string_view help = {};        ///< instead of these values, where no value of a key mends it
  bool within_node = false;          ///< the values are looked for up to the devices of a node
};

std::vector<std::string_view> keys_of(const LayoutRule& rule);

/// All rules, in the order in which they are asked: a rule may divide by what an earlier one has found to be valid.
/// They read a layout that is settled (model/job/mend.hpp). A sentence that blames one key or another has several
/// rules.
const std::vector<LayoutRule>& layout_rules();

/// Null where the job obeys all.
const LayoutRule* first_broken(const Job& job);

/// Ascending, up to `largest`.
std::vector<int> divisors_of(int number, int largest);

/// Groups of `shards` neighbours must not cut those of the other axes.
bool shards_fit(const Layout& layout, int shards);

/// Ranks that hold one copy of the model.
inline std::int64_t model_ranks(const Layout& layout) {
  return std::int64_t{layout.tp} * layout.pp * layout.cp;
}

/// The heads of a tensor-parallel rank that ulysses hands out.
inline int rank_heads(const Job& job) {
  return job.model.heads / job.layout.tp;
}
inline int rank_kv_heads(const Job& job) {
  return (job.model.latent ? job.model.heads : job.model.kv_heads) / job.layout.tp;
}

/// The width of the experts that every token passes.
inline int shared_width(const Transformer& model) {
  return model.experts ? model.experts->shared * model.experts->shared_ffn : 0;
}

inline TensorGrid layout_grid(const Layout& layout) {
  return tensor_grid(layout.tensor_parallel, layout.tp, layout.tensor_depth);
}

/// A width of the model that the grid of tensor-parallel ranks does not cut evenly in so many parts; 0 parts: none.
struct UncutWidth {
  std::string_view what;
  int number = 0;
  int parts = 0;
};
UncutWidth uncut_by_grid(const Transformer& model, const Layout& layout);

}  // namespace flopcast
