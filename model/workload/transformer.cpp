#include "model/workload/transformer.hpp"

#include <algorithm>
#include <cmath>

namespace flopcast {

namespace {

std::int64_t norm_parameters(const Transformer& model, std::int64_t width) {
  return model.norm == Norm::kLayerNorm ? 2 * width : width;
}

std::int64_t attention_parameters(const Transformer& model) {
  const std::int64_t h = model.hidden;
  const std::int64_t queries = model.attention_width();
  std::int64_t count = static_cast<std::int64_t>(model.context_width()) * h + (model.biases ? h : 0);
  if (model.latent) {
    const LatentAttention& latent = *model.latent;
    const std::int64_t q = latent.query_rank;
    const std::int64_t c = latent.key_value_rank;
    const std::int64_t heads = model.heads;
    count += q > 0 ? h * q + norm_parameters(model, q) + q * queries : h * queries;
    count += h * (c + latent.rope_dim) + norm_parameters(model, c) + c * heads * (latent.nope_dim + latent.value_dim);
    return count;
  }
  const std::int64_t qkv = queries + model.key_width() + model.value_width();
  count += h * qkv + (model.query_bias() ? qkv : 0);
  if (model.qk_norm && model.whole_qk_norm) {
    count += norm_parameters(model, queries) + norm_parameters(model, model.key_width());
  } else if (model.qk_norm) {
    count += 2 * norm_parameters(model, model.head_dim);
  }
  if (model.attention_sinks) count += model.heads;
  return count;
}

std::int64_t block_norm_parameters(const Transformer& model) {
  const int before = model.block == BlockForm::kParallelOneNorm ? 1 : 2;
  return (before + (model.post_norms ? 2 : 0)) * norm_parameters(model, model.hidden);
}

std::int64_t mlp_parameters(const Transformer& model, std::int64_t width) {
  const std::int64_t h = model.hidden;
  const std::int64_t inputs = model.gated_mlp ? 2 : 1;
  return (inputs + 1) * h * width + (model.biases ? inputs * width + h : 0);
}

}  // namespace

namespace {

// Quantile of the standard normal distribution, by bisection.
double normal_quantile(double share) {
  constexpr double kFarthest = 9.0;
  double low = -kFarthest;
  double high = kFarthest;
  constexpr int kHalvings = 50;
  for (int step = 0; step < kHalvings; ++step) {
    const double middle = (low + high) / 2.0;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return (low + high) / 2.0;
}

}  // namespace

double Experts::fullest_rank(int ranks, double share) const {
  if (imbalance <= 0.0 || ranks <= 1 || capacity_factor) return 1.0;
  const double of_rank = imbalance * std::sqrt((1.0 - 1.0 / ranks) * ranks / count);
  const double largest = normal_quantile(std::pow(share, 1.0 / ranks));
  return std::clamp(1.0 + of_rank * largest, 1.0, static_cast<double>(ranks));
}

double Experts::places_of_token(int places) const {
  const auto distinct = [](double cells, double choices) {
    return cells * (1.0 - std::pow(1.0 - 1.0 / cells, choices));
  };
  const bool grouped = groups > 1 && group_top_k < groups;
  if (!grouped || (groups % places != 0 && places % groups != 0)) return distinct(places, top_k);
  const auto places_of_groups = [&](int hit) {
    if (places % groups == 0) {
      const double parts = 1.0 * places / groups;
      return hit * distinct(parts, 1.0 * top_k / hit);
    }
    const int own = groups / places;
    double none = 1.0;
    for (int other = 0; other < hit; ++other) none *= std::max(0.0, 1.0 * (groups - own - other) / (groups - other));
    return places * (1.0 - none);
  };
  // Distribution of the number of distinct groups hit, one choice at a time.
  std::vector<double> chance(static_cast<std::size_t>(groups) + 1, 0.0);
  chance[0] = 1.0;
  for (int choice = 0; choice < top_k; ++choice) {
    for (std::size_t hit = chance.size() - 1; hit > 0; --hit) {
      const double again = static_cast<double>(hit) / groups;
      chance[hit] = chance[hit] * again + chance[hit - 1] * (1.0 - again + 1.0 / groups);
    }
    chance[0] = 0.0;
  }
  double reached = 0.0;
  for (int hit = 1; hit <= groups; ++hit) {
    reached += chance[static_cast<std::size_t>(hit)] * places_of_groups(std::min(hit, group_top_k));
  }
  return reached;
}

double Transformer::attended_share(double sequence) const {
  if (!windowed() || sequence <= 0.0) return 1.0;
  double share = 1.0;
  if (sliding_window > 0 && sliding_window < sequence) {
    const double window = sliding_window / sequence;
    share = window * (2.0 - window);
  } else if (attention_chunk > 0 && attention_chunk < sequence) {
    const double rest = std::fmod(sequence, attention_chunk);
    share = ((sequence - rest) * attention_chunk + rest * rest) / (sequence * sequence);
  }
  const double windowed = static_cast<double>(std::min(windowed_layers, layers)) / layers;
  return 1.0 - windowed * (1.0 - share);
}

BlockKind Transformer::kind_of(int layer) const {
  const bool sparse = experts && layer >= experts->first_dense_layers && (layer + 1) % experts->every == 0;
  return sparse ? BlockKind::kExperts : BlockKind::kDense;
}

int Transformer::expert_layers(int first, int count) const {
  if (!experts) return 0;
  const int begin = std::max(first, experts->first_dense_layers);
  const int end = first + count;
  return begin < end ? end / experts->every - begin / experts->every : 0;
}

ParameterCounts count_parameters(const Transformer& model) {
  const std::int64_t h = model.hidden;
  const std::int64_t norm = norm_parameters(model, h);
  const std::int64_t attention = attention_parameters(model);

  ParameterCounts counts;
  counts.block = attention + mlp_parameters(model, model.ffn) + block_norm_parameters(model);
  counts.embedding = static_cast<std::int64_t>(model.vocab) * h;
  if (model.positions == Positions::kLearned) counts.embedding += static_cast<std::int64_t>(model.sequence_length) * h;
  if (model.embedding_norm) counts.embedding += norm;
  counts.head = norm;
  if (!model.tied_embeddings) counts.head += static_cast<std::int64_t>(model.vocab) * h;

  const std::int64_t sparse = model.expert_layers(0, model.layers);
  counts.total = (model.layers - sparse) * counts.block + counts.embedding + counts.head;
  counts.active = counts.total;
  if (model.experts) {
    const Experts& experts = *model.experts;
    const std::int64_t one = mlp_parameters(model, experts.ffn);
    const std::int64_t always = attention + block_norm_parameters(model) + h * experts.count +
                                (experts.router_bias ? experts.count : 0) +
                                experts.shared * mlp_parameters(model, experts.shared_ffn);
    counts.expert_block = always + experts.count * one;
    counts.total += sparse * counts.expert_block;
    counts.active += sparse * (always + experts.top_k * one);
    if (model.mtp_layers > 0) counts.active -= model.mtp_layers * (experts.count - experts.top_k) * one;
  }
  if (model.mtp_layers == 0) return counts;
  counts.mtp = 3 * norm + 2 * h * h + (model.experts ? counts.expert_block : counts.block);
  counts.total += model.mtp_layers * counts.mtp;
  counts.active += model.mtp_layers * counts.mtp;
  return counts;
}

int padded_vocab(int vocab, int divisor, int tp) {
  const std::int64_t multiple = static_cast<std::int64_t>(divisor) * tp;
  return static_cast<int>((vocab + multiple - 1) / multiple * multiple);
}

}  // namespace flopcast
