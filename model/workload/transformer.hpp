#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/hardware/device.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

enum class Norm { kLayerNorm, kRmsNorm };
template <>
struct EnumNames<Norm> {
  static constexpr std::string_view kNames[] = {"layernorm", "rmsnorm"};
};
enum class Positions { kLearned, kRotary, kAlibi, kNone };
template <>
struct EnumNames<Positions> {
  static constexpr std::string_view kNames[] = {"learned", "rotary", "alibi", "none"};
};

/// How a block puts attention and MLP together. Parallel ones add both results to their input at once (GPT-J; PaLM
/// 2204.02311 §2): each has a norm of its own (GPT-NeoX), or both read one (GPT-J, Phi, Cohere, Falcon-7B).
enum class BlockForm { kSequential, kParallel, kParallelOneNorm };
template <>
struct EnumNames<BlockForm> {
  static constexpr std::string_view kNames[] = {"sequential", "parallel", "parallel_one_norm"};
};

/// A mixture of experts in place of the MLP: a router picks `top_k` of `count` experts for each token, and `shared`
/// experts see every token. All are MLPs of the model's form, gated or not.
/// Layer i (from 0) has experts when i >= first_dense_layers and (i + 1) is a multiple of `every`, as in the
/// configurations of Qwen-MoE and DeepSeek; the others keep the MLP of width Transformer::ffn.
/// Left out: the gate of Qwen2-MoE's shared expert, biases that balance the router.
struct Experts {
  int count = 0;
  int top_k = 1;
  int ffn = 0;  ///< width of one expert
  int shared = 0;
  int shared_ffn = 0;  ///< width of one shared expert
  int first_dense_layers = 0;
  /// Each expert takes as many rows: this times its fair share, further tokens are dropped and free rows padded (GShard
  /// 2006.16668 §2.2). Absent: every token is taken and none padded.
  std::optional<double> capacity_factor;
  int every = 1;
  /// The router first chooses group_top_k of so many groups of neighbouring experts, and a token's experts from these
  /// (DeepSeek-V2 2405.04434 §2.2.2, DeepSeek-V3 2412.19437 §2.1.2). 0: from all.
  int groups = 0;
  int group_top_k = 0;
  bool router_bias = false;  ///< a trained bias of the router's scores (gpt-oss)
  /// Standard deviation of an expert's rows over their mean, from layer to layer and microbatch to microbatch. 0: even.
  double imbalance = 0.0;

  /// Rows of the fullest of `ranks` ranks with count/ranks experts each over a rank's mean: 1 + c·z, where c is
  /// imbalance·√(ranks/count·(1 - 1/ranks)), the spread of a rank's sum when loads are drawn independently and add up
  /// to all, and z the `share` quantile of the largest of `ranks` normal variates; the median where 0.5. At most all
  /// rows.
  double fullest_rank(int ranks, double share = 0.5) const;
  /// In how many of `places` with count/places neighbouring experts each a token has experts, on average:
  ///   without groups  D(places, top_k), with D(n, k) = n·(1 - (1 - 1/n)^k), the different ones of k even choices
  ///   with groups     as many groups as top_k even choices hit, at most group_top_k, which ones by chance. A place of
  ///                   several groups is hit where one of its own is; of h groups that q places share each, h·D(q,
  ///                   top_k/h)
  /// A router's groups are those of the best scores, so that nearly every group it may choose from has a token's
  /// expert: for DeepSeek-V2 and V3, on up to 32 places, within 5 % of that rule over random scores. Left out: places
  /// with other than whole groups or equal parts of one, which count as without groups.
  double places_of_token(int places) const;
};

/// Multi-head latent attention (DeepSeek-V2, 2405.04434 §2.1): queries, keys and values come from two narrow latent
/// vectors with a norm each; a part of each head carries the rotary position, its key shared by all heads.
struct LatentAttention {
  int query_rank = 0;  ///< width of the query latent; 0: queries straight from the hidden states
  int key_value_rank = 0;
  int nope_dim = 0;  ///< of a query or key head, without position
  int rope_dim = 0;  ///< of a query or key head, rotated
  int value_dim = 0;
};

/// What the block of a layer holds after its attention.
enum class BlockKind { kDense, kExperts };

/// A transformer: embedding, `layers` blocks of attention and MLP (or experts) with residuals, a final norm and a head
/// over the vocabulary.
/// Shapes: hidden h, `heads` query heads and `kv_heads` key/value heads of `head_dim` each, MLP width `ffn`.
/// Windows: in `windowed_layers` layers a token attends to the `sliding_window` last tokens, itself included (Mistral
/// 2310.06825 §2), or to those of its own chunk of `attention_chunk` tokens (Llama 4); in the others to all before it.
/// Left out: encoder-decoder models and cross attention, windows to both sides, embeddings of token types; of BERT also
/// the pooler and the dense layer of the masked-language head.
struct Transformer {
  std::string name;  ///< catalogue name, or "inline"
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;
  int vocab = 0;
  int sequence_length =
      0;  ///< the length it was published with: default of training.sequence_length, rows of learned positions
  bool gated_mlp = false;        ///< SwiGLU and kin: three MLP matrices instead of two
  bool biases = true;            ///< biases on every linear of a block, as GPT has and Llama has not
  bool attention_bias = false;   ///< biases on the query, key and value projections alone, as Qwen2 has
  bool qk_norm = false;          ///< a norm over each query and key head, as Qwen3 has
  bool whole_qk_norm = false;    ///< that norm spans all heads, as in OLMo 2, OLMoE and MiniMax-M2
  bool attention_sinks = false;  ///< a trained score a head that no value answers to, as gpt-oss has
  bool dropout = true;           ///< dropout after attention, MLP and softmax: its masks are stored for backward
  bool causal = true;            ///< false: every token attends to every other (BERT)
  bool embedding_norm = false;   ///< a norm after the embedding, as BLOOM has
  bool post_norms = false;       ///< norms behind attention and MLP beside those before them, as Gemma 2 and GLM-4 have
  BlockForm block = BlockForm::kSequential;
  int sliding_window = 0;   ///< tokens, 0: none
  int attention_chunk = 0;  ///< tokens, 0: none
  int windowed_layers = 0;  ///< with a window or chunks
  Norm norm = Norm::kLayerNorm;
  Positions positions = Positions::kLearned;
  bool tied_embeddings = true;
  std::optional<Experts> experts;
  std::optional<LatentAttention> latent;
  /// Multi-token prediction (DeepSeek-V3 2412.19437 §2.2): so many modules behind the last layer, one after the other.
  /// Each has norms of the states before it and of the next token's embedding, a product 2h -> h of both, a block like
  /// the last layers', and a final norm; embedding and head are the model's.
  int mtp_layers = 0;

  /// Widths over all heads: of the queries, the keys, the values, and of what attention hands to the output projection.
  int attention_width() const { return heads * key_dim(); }
  int key_width() const { return latent ? heads * key_dim() : kv_heads * head_dim; }
  int value_width() const { return latent ? heads * value_dim() : kv_heads * head_dim; }
  int context_width() const { return heads * value_dim(); }
  int key_dim() const { return latent ? latent->nope_dim + latent->rope_dim : head_dim; }
  int value_dim() const { return latent ? latent->value_dim : head_dim; }
  bool windowed() const { return windowed_layers > 0; }
  /// Pairs of query and key that causal attention computes over those of layers without windows, s²/2, mean over the
  /// layers. Of a window w < s: (w·s − w²/2) / (s²/2); of chunks c < s: (⌊s/c⌋·c² + (s mod c)²) / s².
  double attended_share(double sequence) const;
  bool query_bias() const { return biases || attention_bias; }

  BlockKind kind_of(int layer) const;
  /// Layers with experts among those in [first, first + count).
  int expert_layers(int first, int count) const;
};

/// Exact parameter counts.
///   attention  h·(a·d + 2·k·d) + a·d·h; latent: h·q + q + q·a·(n+r), h·(c+r) + c + c·a·(n+v), a·v·h
///   MLP        h·f·(2, or 3 gated); experts: h·E for the router and E·(2 or 3)·h·f_e, likewise the shared ones
///   block      attention + MLP + biases + 2 norms, 1 of a parallel block that shares it (+ 2 behind attention and MLP,
///              + 2·d norms of queries and keys, or over all heads their widths; + a sinks; + E biases of the router)
///   embedding  V·h (+ sequence_length·h with learned positions, + a norm)
///   head       final norm + V·h when untied
///   module of multi-token prediction: 3 norms + 2h·h + a block
/// Source: Narayanan et al. 2021 (2104.04473) §3 eq. 2 for the GPT form, 12Lh²(1 + 13/12h + (V+s)/12Lh); the
/// checkpoints' own tensor lists for the others.
struct ParameterCounts {
  std::int64_t block = 0;         ///< of a dense layer
  std::int64_t expert_block = 0;  ///< of a layer with experts; 0 without any
  std::int64_t embedding = 0;
  std::int64_t head = 0;  ///< with tied embeddings: only the final norm
  std::int64_t mtp = 0;   ///< one module's
  std::int64_t total = 0;
  std::int64_t active = 0;  ///< those a token passes: of the experts only top_k and the shared ones
};
ParameterCounts count_parameters(const Transformer& model);

/// The vocabulary as the stack stores it: rounded up to a multiple of `divisor`·tp, so that every tensor-parallel rank
/// holds as many rows. divisor 1 leaves it as it is where tp divides it.
int padded_vocab(int vocab, int divisor, int tp);

/// One layer of a measured model: what one microbatch costs.
struct ProfiledLayer {
  std::string name;
  Seconds forward;
  Seconds input_gradient;
  Seconds weight_gradient;
  Bytes activation;  ///< kept from forward until backward
  Bytes output;      ///< what crosses a cut behind this layer: its own output and those of earlier layers still needed
  double parameters = 0.0;
};

/// A model known by measurement instead of by its operators: layers in an order in which they can run, any consecutive
/// ones of which make a stage. PipeDream plans from such profiles (Harlap et al. 1806.03377 §3.1).
///
/// Times and bytes are proportional to the microbatch's samples: a microbatch twice the profile's takes twice as long.
/// Times are those of the device that was measured, whatever the cluster's device is.
/// Left out: FLOPs, so there is no MFU; tensor and context parallelism; kernels that grow less than the batch does.
struct LayerProfile {
  std::string measured_on;              ///< device and software, in words; empty when the profile does not say
  std::optional<int> micro_batch_size;  ///< samples that were measured; absent: one microbatch of the layout
  Precision precision = Precision::kFp32;
  int sequence_length = 1;  ///< tokens of a sample
  std::vector<ProfiledLayer> layers;

  double parameters() const {
    double sum = 0.0;
    for (const ProfiledLayer& layer : layers) sum += layer.parameters;
    return sum;
  }
  /// Samples of a microbatch over those of the measurement.
  double scale(int layout_micro_batch_size) const {
    return micro_batch_size ? static_cast<double>(layout_micro_batch_size) / *micro_batch_size : 1.0;
  }
};

/// One measured layer of a graph: what one minibatch costs on one worker.
struct GraphLayer {
  std::string name;  ///< as edges name it: "node17"
  std::string description;
  Seconds forward;
  Seconds backward;
  Bytes activation;
  Bytes parameters;
  bool is_input = false;  ///< stands for loading data
  std::size_t line = 0;   ///< of the file, for messages
  long number = 0;        ///< of the name, for the order
  std::vector<std::size_t> successors;
  std::size_t predecessors = 0;
};

/// A model as measured layers and who needs whose output. Free of cycles once read.
struct LayerGraph {
  std::vector<GraphLayer> layers;  ///< in the order of the file
  std::vector<std::size_t> row;    ///< topological order, the smaller number first where the graph leaves a choice
};

}  // namespace flopcast
