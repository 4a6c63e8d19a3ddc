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

/// How a block combines attention and MLP. Parallel forms add both results to their input together (GPT-J; PaLM
/// 2204.02311 §2): with separate norms (GPT-NeoX) or one shared norm (GPT-J, Phi, Cohere, Falcon-7B).
enum class BlockForm { kSequential, kParallel, kParallelOneNorm };
template <>
struct EnumNames<BlockForm> {
  static constexpr std::string_view kNames[] = {"sequential", "parallel", "parallel_one_norm"};
};

/// A mixture of experts that replaces the MLP: a router picks `top_k` of `count` experts for each token, and `shared`
/// experts process every token. All are MLPs of the model's form, gated or not.
/// Layer i (from 0) has experts if i >= first_dense_layers and (i + 1) is a multiple of `every`, as in the
/// configurations of Qwen-MoE and DeepSeek; the others keep the MLP of width Transformer::ffn.
/// Not modelled: the gate of Qwen2-MoE's shared expert, biases that balance the router.
struct Experts {
  int count = 0;
  int top_k = 1;
  int ffn = 0;  ///< width of one expert
  int shared = 0;
  int shared_ffn = 0;  ///< width of one shared expert
  int first_dense_layers = 0;
  /// Each expert processes this multiple of an equal share of rows; tokens above it are dropped and free rows padded
  /// (GShard 2006.16668 §2.2). Absent: no tokens are dropped and no rows padded.
  std::optional<double> capacity_factor;
  int every = 1;
  /// The router first chooses group_top_k of `groups` groups of adjacent experts, and then a token's experts from these
  /// (DeepSeek-V2 2405.04434 §2.2.2, DeepSeek-V3 2412.19437 §2.1.2). 0: from all.
  int groups = 0;
  int group_top_k = 0;
  bool router_bias = false;  ///< a trained bias on the router's scores (gpt-oss)
  /// Standard deviation of the rows per expert relative to their mean, over layers and microbatches. 0: even.
  double imbalance = 0.0;

  /// Rows of the fullest of `ranks` ranks with count/ranks experts each, relative to the mean: 1 + c·z. c =
  /// imbalance·√(ranks/count·(1 - 1/ranks)) is the spread of a rank's sum for independent loads with a fixed total, and
  /// z is the `share` quantile of the largest of `ranks` normal variates (0.5: the median). At most all rows.
  double fullest_rank(int ranks, double share = 0.5) const;
  /// Mean number of places, of `places` places with count/places adjacent experts each, that hold experts of a token:
  ///   without groups  D(places, top_k), where D(n, k) = n·(1 - (1 - 1/n)^k) is the number of distinct ones among k
  ///                   uniform choices
  ///   with groups     the number of groups hit by top_k uniform choices, at most group_top_k, chosen at random. A
  ///   place
  ///                   with several groups is hit if one of them is; if q places share each group and h groups are
  ///                   hit, h·D(q, top_k/h)
  /// A router chooses the groups with the best scores, so nearly every group it may choose from has an expert of the
  /// token: for DeepSeek-V2 and V3, on up to 32 places, the rule is within 5 % of simulated random scores. Not
  /// modelled: places that hold neither whole groups nor equal parts of one; they count as without groups.
  double places_of_token(int places) const;
};

/// Multi-head latent attention (DeepSeek-V2, 2405.04434 §2.1): queries, keys and values are computed from two narrow
/// latent vectors with a norm each. A part of each head carries the rotary position; its key is shared by all heads.
struct LatentAttention {
  int query_rank = 0;  ///< width of the query latent; 0: queries are computed directly from the hidden states
  int key_value_rank = 0;
  int nope_dim = 0;  ///< unrotated part of a query or key head
  int rope_dim = 0;  ///< rotated part of a query or key head
  int value_dim = 0;
};

/// The part of a layer's block after attention: an MLP or experts.
enum class BlockKind { kDense, kExperts };

/// A transformer: embedding, `layers` blocks of attention and MLP (or experts) with residuals, a final norm and a head
/// over the vocabulary.
/// Shapes: hidden h, `heads` query heads and `kv_heads` key/value heads of `head_dim` each, MLP width `ffn`.
/// Windows: in `windowed_layers` layers a token attends to the last `sliding_window` tokens, including itself (Mistral
/// 2310.06825 §2), or to those in its chunk of `attention_chunk` tokens (Llama 4); in the other layers to all tokens
/// before it.
/// Not modelled: encoder-decoder models and cross attention, bidirectional windows, token type embeddings; for BERT
/// also the pooler and the dense layer of the masked-language head.
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
      0;  ///< published sequence length: default of training.sequence_length, number of learned positions
  bool gated_mlp = false;        ///< SwiGLU and similar: three MLP matrices instead of two
  bool biases = true;            ///< biases on every linear of a block, as in GPT but not Llama
  bool attention_bias = false;   ///< biases only on the query, key and value projections, as in Qwen2
  bool qk_norm = false;          ///< a norm over each query and key head, as in Qwen3
  bool whole_qk_norm = false;    ///< qk_norm spans all heads, as in OLMo 2, OLMoE and MiniMax-M2
  bool attention_sinks = false;  ///< one trained score per head without a value, as in gpt-oss
  bool dropout = true;  ///< dropout after attention, MLP and softmax, whose masks are stored for the backward pass
  bool causal = true;   ///< false: every token attends to all others (BERT)
  bool embedding_norm = false;  ///< a norm after the embedding, as in BLOOM
  bool post_norms = false;      ///< additional norms after attention and MLP, as in Gemma 2 and GLM-4
  BlockForm block = BlockForm::kSequential;
  int sliding_window = 0;   ///< tokens; 0: none
  int attention_chunk = 0;  ///< tokens; 0: none
  int windowed_layers = 0;  ///< number of layers with a window or chunks
  Norm norm = Norm::kLayerNorm;
  Positions positions = Positions::kLearned;
  bool tied_embeddings = true;
  std::optional<Experts> experts;
  std::optional<LatentAttention> latent;
  /// Number of multi-token prediction modules (DeepSeek-V3 2412.19437 §2.2), one after the other behind the last layer.
  /// Each has norms on the previous states and on the next token's embedding, a linear 2h -> h over both, a block like
  /// the last layers', and a final norm; embedding and head are the model's.
  int mtp_layers = 0;

  /// Total widths over all heads: queries, keys, values, and the context passed to the output projection.
  int attention_width() const { return heads * key_dim(); }
  int key_width() const { return latent ? heads * key_dim() : kv_heads * head_dim; }
  int value_width() const { return latent ? heads * value_dim() : kv_heads * head_dim; }
  int context_width() const { return heads * value_dim(); }
  int key_dim() const { return latent ? latent->nope_dim + latent->rope_dim : head_dim; }
  int value_dim() const { return latent ? latent->value_dim : head_dim; }
  bool windowed() const { return windowed_layers > 0; }
  /// Fraction of the query-key pairs of full causal attention, s²/2, that windowed attention computes, averaged over
  /// the layers. For a window w < s: (w·s − w²/2) / (s²/2); for chunks c < s: (⌊s/c⌋·c² + (s mod c)²) / s².
  double attended_share(double sequence) const;
  bool query_bias() const { return biases || attention_bias; }

  BlockKind kind_of(int layer) const;
  /// Number of layers with experts among those in [first, first + count).
  int expert_layers(int first, int count) const;
};

/// Exact parameter counts.
///   attention  h·(a·d + 2·k·d) + a·d·h; latent: h·q + q + q·a·(n+r), h·(c+r) + c + c·a·(n+v), a·v·h
///   MLP        h·f·(2, or 3 gated); experts: h·E for the router and E·(2 or 3)·h·f_e, likewise for shared experts
///   block      attention + MLP + biases + 2 norms, 1 in a parallel block that shares it (+ 2 after attention and MLP,
///              + 2·d for query and key norms, or their widths over all heads; + a sinks; + E biases of the router)
///   embedding  V·h (+ sequence_length·h with learned positions, + a norm)
///   head       final norm + V·h if untied
///   multi-token prediction module: 3 norms + 2h·h + a block
/// Source: Narayanan et al. 2021 (2104.04473) §3 eq. 2 for the GPT form, 12Lh²(1 + 13/12h + (V+s)/12Lh); the
/// checkpoints' own tensor lists for the others.
struct ParameterCounts {
  std::int64_t block = 0;         ///< of a dense layer
  std::int64_t expert_block = 0;  ///< of a layer with experts; 0 if there are none
  std::int64_t embedding = 0;
  std::int64_t head = 0;  ///< with tied embeddings: only the final norm
  std::int64_t mtp = 0;   ///< of one module
  std::int64_t total = 0;
  std::int64_t active = 0;  ///< used per token: of the experts, only top_k and the shared ones
};
ParameterCounts count_parameters(const Transformer& model);

/// The vocabulary as stored by the stack: rounded up to a multiple of `divisor`·tp, so that all tensor-parallel ranks
/// hold the same number of rows. divisor 1 leaves it unchanged if tp divides it.
int padded_vocab(int vocab, int divisor, int tp);

/// One layer of a measured model: costs of one microbatch.
struct ProfiledLayer {
  std::string name;
  Seconds forward;
  Seconds input_gradient;
  Seconds weight_gradient;
  Bytes activation;  ///< kept from the forward to the backward pass
  Bytes output;  ///< bytes that cross a stage boundary after this layer: its output and earlier outputs still needed
  double parameters = 0.0;
};

/// A model described by measurements instead of operators: layers in an executable order, any consecutive ones of which
/// can form a stage. PipeDream plans from such profiles (Harlap et al. 1806.03377 §3.1).
///
/// Times and bytes are proportional to the number of samples in a microbatch. Times are those of the measured device,
/// regardless of the cluster's device. Not modelled: FLOPs (so there is no MFU), tensor and context parallelism,
/// kernels whose time grows more slowly than the batch.
struct LayerProfile {
  std::string measured_on;              ///< device and software, as text; empty if unspecified
  std::optional<int> micro_batch_size;  ///< number of samples measured; absent: one microbatch of the layout
  Precision precision = Precision::kFp32;
  int sequence_length = 1;  ///< tokens per sample
  std::vector<ProfiledLayer> layers;

  double parameters() const {
    double sum = 0.0;
    for (const ProfiledLayer& layer : layers) sum += layer.parameters;
    return sum;
  }
  /// Samples of a microbatch relative to the measurement.
  double scale(int layout_micro_batch_size) const {
    return micro_batch_size ? static_cast<double>(layout_micro_batch_size) / *micro_batch_size : 1.0;
  }
};

/// One measured layer of a graph: costs of one minibatch on one worker.
struct GraphLayer {
  std::string name;  ///< as used by edges: "node17"
  std::string description;
  Seconds forward;
  Seconds backward;
  Bytes activation;
  Bytes parameters;
  bool is_input = false;  ///< represents loading data
  std::size_t line = 0;   ///< in the file, for messages
  long number = 0;        ///< from the name, for ordering
  std::vector<std::size_t> successors;
  std::size_t predecessors = 0;
};

/// A model as measured layers and the dependencies between them. Acyclic after reading.
struct LayerGraph {
  std::vector<GraphLayer> layers;  ///< in the order of the file
  std::vector<std::size_t> row;    ///< topological order, smaller numbers first where the graph leaves a choice
};

}  // namespace flopcast
