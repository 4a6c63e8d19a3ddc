#pragma once

#include <optional>
#include <string>

#include "import/programs/imported_job.hpp"
#include "model/config/object_reader.hpp"

namespace flopcast {

/// Tells that a key was read and changes nothing, when it is there.
void has_no_effect(JsonReader& object, std::string_view key, const std::string& why, ImportedJob& imported);
/// One note that names every key that was not asked for; a warning where one looks like a slip of the pen.
void note_unread(const JsonReader& object, ImportedJob& imported);
/// One note that names every key whose value is "auto".
void note_auto(const JsonReader& object, ImportedJob& imported);

/// The one place that knows which keys of the job file sharding and offloading become.

/// The catalogue's stack for a program, named as an assumption.
void put_stack(const std::string& stack, const std::string& program, const std::string& place, ImportedJob& imported);
/// Where optimizer states and weights live, "cpu" or "nvme", as DeepSpeed and FSDP say it.
void put_offload(const std::optional<std::string>& optimizer, const std::optional<std::string>& weights,
                 const std::string& place, ImportedJob& imported);
/// Checkpointed activations live in host memory.
void put_activation_offload(const std::string& place, ImportedJob& imported);
/// The bytes of a gradient bucket.
void put_bucket(double bytes, const std::string& place, ImportedJob& imported);
/// Adam and its kin, or SGD; throws for an optimizer with other states.
void put_optimizer(JsonReader& object, const std::string& key, ImportedJob& imported);

/// A mixture of experts and latent attention as other programs describe them; absent members were not given. The one
/// place that knows which keys of the job file they become.
struct ForeignExperts {
  int count = 0;  ///< 0: a dense model
  int top_k = 1;
  std::optional<int> ffn;         ///< width of one routed expert
  int shared = 0;                 ///< experts that every token visits
  std::optional<int> shared_ffn;  ///< width of one shared expert; absent: as wide as a routed one
  int first_dense = 0;            ///< layers in front that keep a dense MLP
  int every = 1;                  ///< a mixture in every n-th layer after those
};
void put_experts(const ForeignExperts& experts, const std::string& place, ImportedJob& imported);

struct ForeignLatentAttention {
  std::optional<int> q_rank;  ///< absent: queries are not compressed
  int kv_rank = 0;
  int qk_nope_dim = 0;
  int qk_rope_dim = 0;
  int v_dim = 0;
};
void put_latent_attention(const ForeignLatentAttention& attention, const std::string& place, ImportedJob& imported);

}  // namespace flopcast
