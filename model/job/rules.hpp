#pragma once

#include <string_view>
#include <vector>

#include "model/config/object_reader.hpp"
#include "model/job.hpp"
#include "model/job/rules.hpp"

namespace flopcast {

/// A condition between the keys of a layout. The ranges of single keys are checked when they are read.
struct LayoutRule {
  std::string_view sentence;  ///< planners count the rejected layouts under this name
  std::string_view keys;      ///< keys of the layout that it reads, separated by spaces; the first one is blamed
  bool (*broken)(const Job& job, const Layout& layout);
  std::string_view problem;          ///< error text; {tp} is replaced by the value of that key or figure
  std::string_view valid = "valid";  ///< precedes the list of valid values
  std::string_view help = {};        ///< replaces that list if no value of the key satisfies the rule
  bool within_node = false;          ///< search valid values only up to the number of devices per node
};

std::vector<std::string_view> keys_of(const LayoutRule& rule);

/// All rules in the order in which they are checked: a rule may divide by a value that an earlier rule has validated.
/// They expect a layout completed by settle_layout. Several rules may share a sentence but blame different keys.
const std::vector<LayoutRule>& layout_rules();

/// Null if the job obeys all rules.
const LayoutRule* first_broken(const Job& job);

/// In ascending order, up to `largest`.
std::vector<int> divisors_of(int number, int largest);

/// True if groups of `shards` neighbours do not split the groups of the other axes.
bool shards_fit(const Layout& layout, int shards);

/// Number of ranks that hold one copy of the model.
inline std::int64_t model_ranks(const Layout& layout) {
  return std::int64_t{layout.tp} * layout.pp * layout.cp;
}

/// Heads of a tensor-parallel rank, which Ulysses distributes.
inline int rank_heads(const Job& job) {
  return job.model.heads / job.layout.tp;
}
inline int rank_kv_heads(const Job& job) {
  return (job.model.latent ? job.model.heads : job.model.kv_heads) / job.layout.tp;
}

/// Total width of the shared experts.
inline int shared_width(const Transformer& model) {
  return model.experts ? model.experts->shared * model.experts->shared_ffn : 0;
}

inline TensorGrid layout_grid(const Layout& layout) {
  return tensor_grid(layout.tensor_parallel, layout.tp, layout.tensor_depth);
}

/// A width of the model that the tensor-parallel grid cannot divide evenly into `parts`; 0 parts: none.
struct IndivisibleWidth {
  std::string_view what;
  int number = 0;
  int parts = 0;
};
IndivisibleWidth uncut_by_grid(const Transformer& model, const Layout& layout);

/// Which of the keys with derived defaults the layout gives.
struct GivenKeys {
  bool dp = false;
  bool global_batch_size = false;
  bool shards = false;
};

/// Fills in derived defaults: dp uses all remaining devices, the batch follows from accumulation (0 if it exceeds
/// kLargestBatch), and hsdp shards over the replicas of one node.
void settle_layout(Job& job, const GivenKeys& given);

/// The keys given by the reader's layout.
GivenKeys given_keys(const ObjectReader& reader);

/// Throws the error for a rule that the completed job breaks. Its help lists values that obey every rule: of the blamed
/// key and of each other key that the rule reads, or of two keys together if no single key fixes it. A trial is
/// accepted if it next breaks a rule that blames a key the layout does not give; later rules are then not checked.
[[noreturn]] void refuse_layout(const ObjectReader& reader, const Job& job, const LayoutRule& rule);

}  // namespace flopcast
