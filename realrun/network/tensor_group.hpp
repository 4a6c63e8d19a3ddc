#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "model/layout/layout.hpp"
#include "realrun/device/device.hpp"
#include "realrun/network/kernels.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

template <class T>
inline constexpr Element kElementOf = std::is_same_v<T, float> ? Element::kFloat32 : Element::kFloat64;

/// A group of tensor-, expert- or context-parallel ranks as layers see it. A default-constructed group has one rank:
/// every operation returns its argument.
class TensorGroup {
 public:
  TensorGroup() = default;
  /// Results are in the memory of `device`, or in host memory if it is null.
  TensorGroup(RankTransport& transport, Group group, ComputeDevice* device = nullptr)
      : transport_(&transport), group_(std::move(group)), device_(device) {}

  int size() const { return transport_ == nullptr ? 1 : group_.size(); }
  int index() const { return transport_ == nullptr ? 0 : group_.index; }

  template <class T>
  Tensor<T> keep(const Tensor<T>& tensor) const {
    return tensor;
  }
  template <class T>
  Tensor<T> sum(const Tensor<T>& tensor) const {
    return collect(CollectiveKind::kAllReduce, tensor, tensor.rows());
  }
  template <class T>
  Tensor<T> maximum(const Tensor<T>& tensor) const {
    return collect(CollectiveKind::kAllReduce, tensor, tensor.rows(), Reduction::kMax);
  }
  /// Rows of all ranks, ordered by index.
  template <class T>
  Tensor<T> gather_rows(const Tensor<T>& tensor) const {
    return collect(CollectiveKind::kAllGather, tensor, tensor.rows() * ranks());
  }
  /// This rank's part of the elements of a tensor that all ranks hold, in newly allocated memory. The number of
  /// elements must be divisible by the number of ranks.
  template <class T>
  Tensor<T> own_part(const Tensor<T>& tensor) const {
    const std::size_t bytes = tensor.buffer().bytes() / ranks();
    FLOPCAST_CHECK(bytes * ranks() == tensor.buffer().bytes() && bytes % sizeof(T) == 0);
    const Buffer part = tensor.buffer().slice(static_cast<std::size_t>(index()) * bytes, bytes);
    Buffer own = allocate(bytes);
    if (device_ == nullptr) {
      copy_bytes(own.address(), part.address(), bytes);
    } else {
      device_->copy(part, own);
    }
    return {own, 1, bytes / sizeof(T)};
  }
  /// The whole tensor from the ranks' own_part()s.
  template <class T>
  Tensor<T> from_parts(const Tensor<T>& part, std::size_t rows, std::size_t columns) const {
    const Tensor<T> whole = gather_rows(part);
    FLOPCAST_CHECK(whole.size() == rows * columns);
    return {whole.buffer(), rows, columns};
  }
  /// This rank's share of the rows of the sum.
  template <class T>
  Tensor<T> scatter_rows(const Tensor<T>& tensor) const {
    FLOPCAST_CHECK(tensor.rows() % ranks() == 0);
    return collect(CollectiveKind::kReduceScatter, tensor, tensor.rows() / ranks());
  }

  /// The root's tensor on every rank, with the shape of the argument; other ranks' arguments are not read.
  template <class T>
  Tensor<T> broadcast(const Tensor<T>& tensor, int root) const {
    if (size() == 1) return tensor;
    Tensor<T> result = index() == root ? tensor : Tensor<T>(tensor.rows(), tensor.columns());
    run({.kind = CollectiveKind::kBroadcast, .output = result.buffer(), .element = kElementOf<T>, .root = root});
    return result;
  }

  /// Receives the previous member's tensor and sends this one to the next member.
  template <class T>
  Tensor<T> pass_on(const Tensor<T>& tensor) const {
    const std::size_t self = static_cast<std::size_t>(index());
    std::vector<std::size_t> sent(ranks(), 0);
    std::vector<std::size_t> received(ranks(), 0);
    sent[(self + 1) % ranks()] = tensor.rows();
    received[(self + ranks() - 1) % ranks()] = tensor.rows();
    return exchange_rows(tensor, sent, received);
  }
  /// Exchanges parts of equal size with every member.
  void exchange(const Buffer& sent, const Buffer& received) const {
    run({.kind = CollectiveKind::kAllToAll, .input = sent, .output = received, .element = Element::kByte});
  }
  /// Sends `sent` and receives `received` rows per member, in the order of the members. Host memory only.
  template <class T>
  Tensor<T> exchange_rows(const Tensor<T>& rows, const std::vector<std::size_t>& sent,
                          const std::vector<std::size_t>& received) const {
    if (size() == 1) return rows;
    const std::size_t width = rows.columns() * sizeof(T);
    Collective exchange{.kind = CollectiveKind::kAllToAll, .input = rows.buffer(), .element = kElementOf<T>};
    std::size_t count = 0;
    for (const std::size_t part : sent) exchange.sent.push_back(part * width);
    for (const std::size_t part : received) {
      exchange.received.push_back(part * width);
      count += part;
    }
    Tensor<T> arrived(count, rows.columns());
    exchange.output = arrived.buffer();
    run(exchange);
    return arrived;
  }

 protected:
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }

  Buffer allocate(std::size_t bytes) const {
    return device_ == nullptr ? allocate_host(bytes) : device_->allocate(bytes);
  }
  void run(const Collective& collective) const { transport_->run(group_, collective); }
  /// Result of a collective on the tensor, with `rows` rows.
  template <class T>
  Tensor<T> collect(CollectiveKind kind, const Tensor<T>& tensor, std::size_t rows,
                    Reduction reduction = Reduction::kSum) const {
    if (size() == 1) return tensor;
    const std::size_t bytes = rows * tensor.columns() * sizeof(T);
    const Tensor<T> result(allocate(bytes), rows, tensor.columns());
    run({kind, tensor.buffer(), result.buffer(), kElementOf<T>, reduction});
    return result;
  }

 private:
  RankTransport* transport_ = nullptr;
  Group group_;
  ComputeDevice* device_ = nullptr;
};

struct GridPlace;

/// How the ranks split each layer.
struct TensorForm {
  const TensorGroup* group = nullptr;  ///< outlives the layers; never null
  const GridPlace* grid = nullptr;     ///< of the ranks of `group`; outlives the layers. Null: they form a line
  const TensorGroup* experts =
      nullptr;  ///< ranks that hold different experts; outlives the layers. Null: one rank holds all
  const TensorGroup* sharers =
      nullptr;  ///< ranks that hold parts of each expert, with sequence parallelism. Null: one rank
  const TensorGroup* context =
      nullptr;  ///< ranks that hold parts of the sequences; outlives the layers. Null: sequences are whole
  const TensorGroup* context_heads = nullptr;  ///< ranks of a hierarchy that exchange heads; `context` is the ring
  ContextParallel context_form = ContextParallel::kRing;
  bool sequence_parallel = false;  ///< activations between linears are split by rows

  /// True if rows are actually split.
  bool shares_rows() const { return sequence_parallel && group->size() > 1; }
};

}  // namespace flopcast::realrun
