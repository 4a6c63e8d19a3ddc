#pragma once

#include <string_view>
#include <vector>

#include "model/config/object_reader.hpp"
#include "model/job.hpp"
#include "model/job/rules.hpp"

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
/// They read a layout that is settled (settle_layout, below). A sentence that blames one key or another has several
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

/// The keys that a layout may leave to the others.
struct GivenKeys {
  bool dp = false;
  bool global_batch_size = false;
  bool shards = false;
};

/// Fills in what the layout leaves open: dp is what the other axes leave over, the batch follows from the accumulation
/// (0: it is larger than kLargestBatch), and hsdp shards over the replicas of one node.
void settle_layout(Job& job, const GivenKeys& given);

/// The keys that the reader's layout gives.
GivenKeys given_keys(const ObjectReader& reader);

/// The complaint about a rule that the settled job breaks. Its help are the values that obey every rule: of the key to
/// blame, and of each other key that the rule reads; where no key alone mends it, those of two together. The
/// trial ends at a rule that would blame a key which the layout leaves open: values may break a rule behind it.
[[noreturn]] void refuse_layout(const ObjectReader& reader, const Job& job, const LayoutRule& rule);

}  // namespace flopcast
