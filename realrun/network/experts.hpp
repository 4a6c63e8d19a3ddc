#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/network/layers.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// How tokens are routed to experts.
struct RouterSpec {
  std::string name;  ///< of its parameters
  std::size_t hidden = 1;
  std::size_t experts = 1;  ///< on all ranks together
  std::size_t top_k = 1;
  std::size_t groups = 0;  ///< groups of adjacent experts; each token first selects group_top_k of them; 0: no groups
  std::size_t group_top_k = 0;
  bool bias = false;     ///< adds a bias to the scores
  bool partial = false;  ///< see Parameter: each tensor-parallel rank has a part of the experts' answers
  /// Rows per expert and pass as a multiple of the fair share; later tokens beyond the limit are dropped, unused
  /// rows are padded with zeros (GShard 2006.16668 §2.2). Absent: all tokens are accepted.
  std::optional<double> capacity_factor;
  /// Assigns tokens in turn instead of by score, so that all experts get the same number: for tests of traffic.
  bool balanced = false;
};

/// A mixture of experts in place of an MLP: scores x·Wᵀ (+ b) of all experts; each token selects the `top_k` highest
/// (the first of equals), if there are groups, from those whose two best scores have the largest sum (DeepSeek-V3
/// 2412.19437 §2.1.2); y = Σ softmax over these scores · expert(x) (Jiang et al. 2401.04088 §2.1).
/// Expert-parallel ranks hold equal numbers of adjacent experts. An all-to-all sends the selected rows to their experts
/// and another returns them, and likewise for the gradients (Lepikhin et al. 2006.16668 §3.2). Row counts are exchanged
/// before each forward pass, 4 bytes per expert. With sequence parallelism every tensor-parallel rank routes its own
/// rows: ranks that share their experts, each holding a part of them, gather the received rows and reduce-scatter the
/// answers (Megatron Core's alltoall dispatcher). Routing runs on the host: tensors must be in host memory. Left out:
/// losses and biases that balance the router, jitter.
template <class T>
class RoutedExperts : public Layer<T> {
 public:
  /// `experts`: those of this rank. `sharers`: ranks that hold other parts of the same experts and contribute other
  /// rows. Both groups must outlive the layer.
  RoutedExperts(RouterSpec router, std::vector<LayerPointer<T>> experts, const TensorGroup& ranks,
                const TensorGroup& sharers)
      : router_(std::move(router)), experts_(std::move(experts)), ranks_(ranks), sharers_(sharers) {
    FLOPCAST_CHECK(experts_.size() * group_size() == router_.experts);
  }
  void declare(ParameterList& list) override {
    const float deviation = 1.0F / std::sqrt(static_cast<float>(router_.hidden));
    weight_ = list.add({.name = router_.name + ".weight",
                        .shard = weight_shard(),
                        .deviation = deviation,
                        .partial = router_.partial,
                        .multiplies = true});
    if (router_.bias) {
      bias_ = list.add({.name = router_.name + ".bias",
                        .shard = whole_matrix(1, router_.experts),
                        .deviation = 0.1F,
                        .partial = router_.partial});
    }
    for (const LayerPointer<T>& expert : experts_) expert->declare(list);
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    FLOPCAST_CHECK(pass.kernels == &host_kernels<T>());
    Routing routing = choose(input, pass);
    saved.parts.assign(experts_.size(), {});
    Tensor<T> packed(routing.copies.size(), router_.hidden);
    for (std::size_t place = 0; place < routing.copies.size(); ++place) {
      const Copy& copy = routing.copies[place];
      if (copy.is_token) std::copy_n(input.row(copy.row), router_.hidden, packed.row(place));
    }
    exchange_counts(routing);
    const Tensor<T> answers = through_experts(packed, routing, [&](std::size_t expert, const Tensor<T>& rows) {
      return experts_[expert]->forward(rows, pass, saved.parts[expert]);
    });
    Tensor<T> output(input.rows(), router_.hidden);
    for (std::size_t place = 0; place < routing.copies.size(); ++place) {
      const Copy& copy = routing.copies[place];
      if (copy.is_token) add_scaled(answers.row(place), static_cast<T>(copy.weight), output.row(copy.row));
    }
    saved.tensors = {input, answers, to_tensor(routing)};
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T> answers = saved.tensors[1];
    const Routing routing = from_tensor(saved.tensors[2], output_gradient.rows());
    Tensor<T> packed(routing.copies.size(), router_.hidden);
    Tensor<T> of_scores(output_gradient.rows(), router_.experts);
    for (std::size_t place = 0; place < routing.copies.size(); ++place) {
      const Copy& copy = routing.copies[place];
      if (!copy.is_token) continue;
      const T* given = output_gradient.row(copy.row);
      add_scaled(given, static_cast<T>(copy.weight), packed.row(place));
      const T of_weight = std::inner_product(given, given + router_.hidden, answers.row(place), T(0));
      of_scores.row(copy.row)[copy.expert] = of_weight;
    }
    score_gradients(routing, of_scores);
    const Tensor<T> gradients = through_experts(packed, routing, [&](std::size_t expert, const Tensor<T>& rows) {
      return experts_[expert]->input_gradient(rows, pass, saved.parts[expert]);
    });
    Tensor<T> gradient(output_gradient.rows(), router_.hidden);
    pass.kernels->multiply(of_scores.view(), weight_view(pass, weight_shard(), weight_), gradient.target(), T(1),
                           false);
    for (std::size_t place = 0; place < routing.copies.size(); ++place) {
      const Copy& copy = routing.copies[place];
      if (copy.is_token) add_scaled(gradients.row(place), T(1), gradient.row(copy.row));
    }
    saved.tensors = {saved.tensors[0], of_scores};
    return gradient;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T>& of_scores = saved.tensors[1];
    pass.kernels->multiply(of_scores.view(Transposed::kYes), saved.tensors[0].view(),
                           gradient_view(pass, weight_shard(), weight_), T(1), true);
    if (router_.bias) pass.kernels->add_up_rows(of_scores, pass.gradients + bias_);
    for (std::size_t expert = 0; expert < experts_.size(); ++expert) {
      // An expert without rows has kept nothing.
      if (!saved.parts[expert].tensors.empty() || !saved.parts[expert].parts.empty()) {
        experts_[expert]->weight_gradient(pass, saved.parts[expert]);
      }
    }
  }

 private:
  /// A row sent to an expert.
  struct Copy {
    std::size_t row = 0;
    std::size_t expert = 0;
    double weight = 0;
    bool is_token = true;  ///< false: padding with zeros
  };
  struct Routing {
    std::vector<Copy> copies;           ///< by expert, then by row
    std::vector<std::size_t> sent;      ///< rows by expert, over all experts
    std::vector<std::size_t> received;  ///< rows by sharer, member and that member's own expert
    std::vector<double> weights;        ///< by row and expert; 0: not selected
  };

  std::size_t group_size() const { return static_cast<std::size_t>(ranks_.size()); }
  std::size_t sharer_count() const { return static_cast<std::size_t>(sharers_.size()); }

  static void add_scaled(const T* from, T factor, T* to_row, std::size_t count) {
    for (std::size_t index = 0; index < count; ++index) to_row[index] += factor * from[index];
  }
  void add_scaled(const T* from, T factor, T* to_row) const { add_scaled(from, factor, to_row, router_.hidden); }

  Shard weight_shard() const { return whole_matrix(router_.experts, router_.hidden); }

  // Selected experts of one row, ordered by score.
  std::vector<std::size_t> best_of(const T* scores, std::size_t row) const {
    std::vector<std::size_t> experts(router_.experts);
    std::iota(experts.begin(), experts.end(), std::size_t{0});
    if (router_.balanced) {
      for (std::size_t& expert : experts) expert = (row * router_.top_k + expert) % router_.experts;
    } else {
      std::stable_sort(experts.begin(), experts.end(),
                       [scores](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
      if (router_.groups > 0) best_groups_first(scores, experts);
    }
    experts.resize(router_.top_k);
    return experts;
  }

  // `experts` must be ordered by score.
  void best_groups_first(const T* scores, std::vector<std::size_t>& experts) const {
    const std::size_t in_group = router_.experts / router_.groups;
    std::vector<double> of_group(router_.groups, 0.0);
    std::vector<int> counted(router_.groups, 0);
    for (const std::size_t expert : experts) {
      const std::size_t group = expert / in_group;
      if (counted[group]++ < 2) of_group[group] += static_cast<double>(scores[expert]);
    }
    std::vector<std::size_t> groups(router_.groups);
    std::iota(groups.begin(), groups.end(), std::size_t{0});
    std::stable_sort(groups.begin(), groups.end(),
                     [&](std::size_t a, std::size_t b) { return of_group[a] > of_group[b]; });
    std::vector<bool> chosen(router_.groups, false);
    for (std::size_t place = 0; place < router_.group_top_k; ++place) chosen[groups[place]] = true;
    std::stable_partition(experts.begin(), experts.end(),
                          [&](std::size_t expert) { return chosen[expert / in_group]; });
  }

  Routing choose(const Tensor<T>& input, const Pass<T>& pass) const {
    Tensor<T> scores(input.rows(), router_.experts);
    pass.kernels->multiply(input.view(), weight_view(pass, weight_shard(), weight_, Transposed::kYes), scores.target(),
                           T(1), false);
    if (router_.bias) pass.kernels->add_bias(Tensor<T>(scores), pass.weights + bias_, scores);
    Routing routing;
    routing.weights.assign(input.rows() * router_.experts, 0.0);
    for (std::size_t row = 0; row < input.rows(); ++row) {
      const std::vector<std::size_t> chosen = best_of(scores.row(row), row);
      double largest = -1e300;
      for (const std::size_t expert : chosen) largest = std::max(largest, static_cast<double>(scores.row(row)[expert]));
      double sum = 0;
      for (const std::size_t expert : chosen) {
        sum += routing.weights[row * router_.experts + expert] =
            std::exp(static_cast<double>(scores.row(row)[expert]) - largest);
      }
      for (const std::size_t expert : chosen) routing.weights[row * router_.experts + expert] /= sum;
    }
    place_copies(input.rows(), routing);
    return routing;
  }

  void place_copies(std::size_t rows, Routing& routing) const {
    routing.copies.clear();
    routing.sent.assign(router_.experts, 0);
    std::optional<std::size_t> capacity;
    if (router_.capacity_factor) {
      const double fair = static_cast<double>(rows * router_.top_k) / static_cast<double>(router_.experts);
      capacity = static_cast<std::size_t>(std::ceil(*router_.capacity_factor * fair));
    }
    for (std::size_t expert = 0; expert < router_.experts; ++expert) {
      std::size_t& count = routing.sent[expert];
      for (std::size_t row = 0; row < rows && (!capacity || count < *capacity); ++row) {
        const double weight = routing.weights[row * router_.experts + expert];
        if (weight == 0.0) continue;
        routing.copies.push_back({row, expert, weight});
        ++count;
      }
      for (; capacity && count < *capacity; ++count) routing.copies.push_back({0, expert, 0.0, false});
    }
  }

  // d score = weight · (d weight - Σ weight · d weight) over a row's selected experts; replaces d weight.
  void score_gradients(const Routing& routing, Tensor<T>& of_weights) const {
    for (std::size_t row = 0; row < of_weights.rows(); ++row) {
      T* given = of_weights.row(row);
      const double* weights = routing.weights.data() + row * router_.experts;
      double mean = 0;
      for (std::size_t expert = 0; expert < router_.experts; ++expert) {
        mean += weights[expert] * static_cast<double>(given[expert]);
      }
      for (std::size_t expert = 0; expert < router_.experts; ++expert) {
        given[expert] = static_cast<T>(weights[expert] * (static_cast<double>(given[expert]) - mean));
      }
    }
  }

  // Packs what is kept between the passes: the weights of all experts, then the rows from each member for each local
  // expert.
  Tensor<T> to_tensor(const Routing& routing) const {
    const std::size_t bytes = (routing.weights.size() + routing.received.size()) * sizeof(double);
    Tensor<T> kept(1, bytes / sizeof(T));
    auto* numbers = reinterpret_cast<double*>(kept.buffer().address());
    numbers = std::copy(routing.weights.begin(), routing.weights.end(), numbers);
    std::transform(routing.received.begin(), routing.received.end(), numbers,
                   [](std::size_t count) { return static_cast<double>(count); });
    return kept;
  }
  Routing from_tensor(const Tensor<T>& kept, std::size_t rows) const {
    Routing routing;
    const auto* numbers = reinterpret_cast<const double*>(kept.buffer().address());
    const std::size_t weights = rows * router_.experts;
    routing.weights.assign(numbers, numbers + weights);
    place_copies(rows, routing);
    numbers += weights;
    for (std::size_t index = 0; index < router_.experts * sharer_count(); ++index) {
      routing.received.push_back(static_cast<std::size_t>(numbers[index]));
    }
    return routing;
  }

  void exchange_counts(Routing& routing) const {
    const std::vector<std::size_t> arriving = group_size() == 1 ? routing.sent : told(ranks_, routing.sent);
    std::vector<std::size_t> to_all;  // the same for every sharer
    for (std::size_t sharer = 0; sharer < sharer_count(); ++sharer) {
      to_all.insert(to_all.end(), arriving.begin(), arriving.end());
    }
    routing.received = sharer_count() == 1 ? arriving : told(sharers_, to_all);
  }
  // Exchanges equal parts of the counts with every member.
  static std::vector<std::size_t> told(const TensorGroup& ranks, const std::vector<std::size_t>& counts) {
    const Buffer leaving = allocate_host(counts.size() * sizeof(std::uint32_t));
    const Buffer heard = allocate_host(leaving.bytes());
    std::transform(counts.begin(), counts.end(), reinterpret_cast<std::uint32_t*>(leaving.address()),
                   [](std::size_t count) { return static_cast<std::uint32_t>(count); });
    ranks.exchange(leaving, heard);
    const auto* theirs = reinterpret_cast<const std::uint32_t*>(heard.address());
    return {theirs, theirs + counts.size()};
  }

  // Sends rows to their experts, applies `work` to each expert's rows, and returns the results to the ranks that sent
  // the rows.
  template <class Work>
  Tensor<T> through_experts(const Tensor<T>& rows, const Routing& routing, Work work) const {
    const std::vector<std::size_t> sent = rows_by_member(routing.sent);
    const auto own = routing.received.begin() + sharers_.index() * static_cast<std::ptrdiff_t>(router_.experts);
    const std::vector<std::size_t> received = rows_by_member({own, own + static_cast<std::ptrdiff_t>(router_.experts)});
    const Tensor<T> arrived = gather(ranks_.exchange_rows(rows, sent, received), routing);
    // Regroups by expert; rows arrive by sharer, member and expert.
    std::vector<std::size_t> starts(routing.received.size() + 1, 0);
    std::partial_sum(routing.received.begin(), routing.received.end(), starts.begin() + 1);
    Tensor<T> results(arrived.rows(), router_.hidden);
    for (std::size_t expert = 0; expert < experts_.size(); ++expert) {
      std::size_t count = 0;
      for (std::size_t slot = expert; slot < routing.received.size(); slot += experts_.size()) {
        count += routing.received[slot];
      }
      if (count == 0) continue;
      Tensor<T> at_hand(count, router_.hidden);
      const auto each_slot = [&](auto move) {
        std::size_t next = 0;
        for (std::size_t slot = expert; slot < routing.received.size(); slot += experts_.size()) {
          move(starts[slot], next, routing.received[slot] * router_.hidden);
          next += routing.received[slot];
        }
      };
      each_slot([&](std::size_t from, std::size_t to, std::size_t elements) {
        std::copy_n(arrived.row(from), elements, at_hand.row(to));
      });
      const Tensor<T> done = work(expert, at_hand);
      each_slot([&](std::size_t to, std::size_t from, std::size_t elements) {
        std::copy_n(done.row(from), elements, results.row(to));
      });
    }
    return ranks_.exchange_rows(scatter(results, routing), received, sent);
  }

  // Gathers the rows of all sharers, in their order. Sharers have different numbers of rows, so this is an all-to-all
  // that sends the same rows to all.
  Tensor<T> gather(const Tensor<T>& own, const Routing& routing) const {
    if (sharer_count() == 1) return own;
    Tensor<T> for_all(own.rows() * sharer_count(), own.columns());
    for (std::size_t sharer = 0; sharer < sharer_count(); ++sharer) {
      std::copy_n(own.data(), own.size(), for_all.row(sharer * own.rows()));
    }
    return sharers_.exchange_rows(for_all, std::vector<std::size_t>(sharer_count(), own.rows()),
                                  rows_by_sharer(routing));
  }
  // The reverse: sums all sharers' results for this rank's rows, in their order.
  Tensor<T> scatter(const Tensor<T>& results, const Routing& routing) const {
    if (sharer_count() == 1) return results;
    const std::vector<std::size_t> rows = rows_by_sharer(routing);
    const std::size_t own = rows[static_cast<std::size_t>(sharers_.index())];
    const Tensor<T> parts = sharers_.exchange_rows(results, rows, std::vector<std::size_t>(sharer_count(), own));
    Tensor<T> sum(own, results.columns());
    for (std::size_t sharer = 0; sharer < sharer_count() && own > 0; ++sharer) {
      add_scaled(parts.row(sharer * own), T(1), sum.data(), sum.size());
    }
    return sum;
  }
  std::vector<std::size_t> rows_by_sharer(const Routing& routing) const {
    std::vector<std::size_t> rows(sharer_count(), 0);
    for (std::size_t index = 0; index < routing.received.size(); ++index) {
      rows[index / router_.experts] += routing.received[index];
    }
    return rows;
  }
  std::vector<std::size_t> rows_by_member(const std::vector<std::size_t>& by_expert) const {
    std::vector<std::size_t> rows(group_size(), 0);
    for (std::size_t index = 0; index < by_expert.size(); ++index) rows[index / experts_.size()] += by_expert[index];
    return rows;
  }

  RouterSpec router_;
  std::vector<LayerPointer<T>> experts_;
  const TensorGroup& ranks_;
  const TensorGroup& sharers_;
  std::size_t weight_ = 0;
  std::size_t bias_ = 0;
};

/// A bias added only by the tensor-parallel rank with index 0, for results that are summed later.
template <class T>
class SharedBias : public Bias<T> {
 public:
  SharedBias(std::string name, std::size_t width, const TensorGroup& ranks)
      : Bias<T>(std::move(name), whole_matrix(1, width), ranks.size() > 1), is_mine_(ranks.index() == 0) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    return is_mine_ ? Bias<T>::forward(input, pass, saved) : input;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    if (is_mine_) Bias<T>::weight_gradient(pass, saved);
  }

 private:
  bool is_mine_ = true;
};

}  // namespace flopcast::realrun
