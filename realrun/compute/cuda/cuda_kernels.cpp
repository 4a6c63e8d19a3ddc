#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/compute/cuda/cuda_device.hpp"
#include "realrun/compute/cuda/launch.hpp"
#include "realrun/compute/cuda/runtime.hpp"

namespace flopcast::realrun::cuda {

namespace {

Extent extent_of(const Tensor<float>& tensor) {
  return {tensor.rows(), tensor.columns()};
}

const int* ints(const Buffer& buffer) {
  return reinterpret_cast<const int*>(buffer.address());
}

AttentionSize size_of_attention(const AttentionExtent& shape, const Tensor<float>& input) {
  return {static_cast<int>(input.rows() / shape.length), static_cast<int>(shape.heads.heads),
          static_cast<int>(shape.heads.head_dim),        static_cast<int>(shape.length),
          static_cast<int>(shape.heads.kv_heads),        shape.mask.causal,
          static_cast<int>(shape.mask.window),           static_cast<int>(shape.mask.chunk)};
}

/// The rows of each token that is held here, grouped by token.
struct TokenGroups {
  std::vector<int> order;
  std::vector<int> starts;
  std::vector<int> places;
};

TokenGroups group_by_token(const std::vector<int>& tokens, const VocabularyShare& share) {
  const auto place_of = [&](std::size_t row) -> std::optional<std::size_t> {
    const auto token = static_cast<std::size_t>(tokens[row]);
    return token < share.first || token - share.first >= share.count ? std::nullopt
                                                                     : std::optional(token - share.first);
  };
  std::vector<int> counts(share.count);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    if (const auto place = place_of(row)) ++counts[*place];
  }
  TokenGroups groups;
  std::vector<int>& next = counts;  // next position in `order` for each place, once the counts are summed
  int before = 0;
  for (std::size_t place = 0; place < share.count; ++place) {
    const int count = std::exchange(next[place], before);
    if (count == 0) continue;
    groups.starts.push_back(before);
    groups.places.push_back(static_cast<int>(place));
    before += count;
  }
  groups.starts.push_back(before);
  groups.order.resize(static_cast<std::size_t>(before));
  // In row order, so that the rows of a token are summed in this order.
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    if (const auto place = place_of(row))
      groups.order[static_cast<std::size_t>(next[*place]++)] = static_cast<int>(row);
  }
  return groups;
}

class CudaKernels : public Kernels<float> {
 public:
  CudaKernels(CudaDevice& device, MatrixProducts& products, GemmPrecision precision)
      : device_(device), products_(products), precision_(precision) {}

  Tensor<float> tensor(std::size_t rows, std::size_t columns) override {
    return Tensor<float>(device_.reserve(rows * columns * sizeof(float)), rows, columns);
  }
  void weights_changed() override {
    rounded_weights_.clear();
    float8_weights_.clear();
  }
  void multiply(const MatrixView<const float>& a, const MatrixView<const float>& b, const MatrixView<float>& result,
                float factor, bool accumulate) override {
    FLOPCAST_CHECK(a.stride == a.columns && b.stride == b.columns && result.stride == result.columns);
    const bool a_transposed = a.transposed == Transposed::kYes;
    Product product{.m = result.rows,
                    .n = result.columns,
                    .k = a_transposed ? a.rows : a.columns,
                    .a_transposed = a_transposed,
                    .b_transposed = b.transposed == Transposed::kYes,
                    .accumulate = accumulate,
                    .factors = in_16_bits() ? Factors::kBfloat16 : Factors::kFloat32};
    if (fits_float8(product, a, b)) return multiply_float8(product, a, b, result, factor);
    if (product.factors == Factors::kFloat32) return products_.multiply(product, a.data, b.data, result.data, factor);
    const Buffer left = rounded(a);
    const Buffer right = rounded(b);
    products_.multiply(product, left.address(), right.address(), result.data, factor);
  }
  void add(const Tensor<float>& a, const Tensor<float>& b, Tensor<float>& sum) override {
    cuda::add(a.data(), b.data(), sum.data(), sum.size(), stream());
  }
  void add_bias(const Tensor<float>& x, const float* bias, Tensor<float>& y) override {
    cuda::add_bias(x.data(), bias, y.data(), extent_of(x), stream());
  }
  void add_up_rows(const Tensor<float>& x, float* sums) override { sum_rows(x, nullptr, sums); }
  void norm(const Tensor<float>& x, const float* gain, const float* bias, Tensor<float>& normalised,
            Tensor<float>& scale, Tensor<float>& y) override {
    cuda::norm(x.data(), gain, bias, normalised.data(), scale.data(), y.data(), extent_of(x), stream());
  }
  void norm_input_gradient(const Tensor<float>& dy, const Tensor<float>& normalised, const Tensor<float>& scale,
                           const float* gain, bool centred, Tensor<float>& dx) override {
    cuda::norm_input_gradient(dy.data(), normalised.data(), scale.data(), gain, centred, dx.data(), extent_of(dy),
                              stream());
  }
  void norm_weight_gradient(const Tensor<float>& dy, const Tensor<float>& normalised, float* gain,
                            float* bias) override {
    sum_rows(dy, normalised.data(), gain);
    if (bias != nullptr) sum_rows(dy, nullptr, bias);
  }
  void gated_silu(const Tensor<float>& x, Tensor<float>& y) override {
    cuda::gated_silu(x.data(), y.data(), y.size(), stream());
  }
  void gated_silu_gradient(const Tensor<float>& dy, const Tensor<float>& x, Tensor<float>& dx) override {
    cuda::gated_silu_gradient(dy.data(), x.data(), dx.data(), dy.size(), stream());
  }
  void copy(const MatrixView<const float>& from, const MatrixView<float>& to) override {
    copy_rectangle(from.data, from.stride, to.data, to.stride, {from.rows, from.columns}, stream());
  }
  void rotate_heads(const Tensor<float>& x, const HeadLayout& heads, const RowPositions& positions, float direction,
                    Tensor<float>& y) override {
    const RotatedHeads rotated{static_cast<int>(heads.width() / heads.head_dim), static_cast<int>(heads.group() + 2),
                               static_cast<int>(heads.head_dim)};
    cuda::rotate_heads(x.data(), rotated, {positions.shift, positions.length, positions.first}, direction, y.data(),
                       x.rows(), stream());
  }
  void gelu(const Tensor<float>& x, Tensor<float>& y) override { cuda::gelu(x.data(), y.data(), x.size(), stream()); }
  void gelu_gradient(const Tensor<float>& dy, const Tensor<float>& x, Tensor<float>& dx) override {
    cuda::gelu_gradient(dy.data(), x.data(), dx.data(), x.size(), stream());
  }
  /// Keeps the output and, for each row and head, the logarithm of the sum of exponentials.
  std::vector<Tensor<float>> attention(const AttentionExtent& shape, const std::vector<Tensor<float>>& slices,
                                       Tensor<float>& output) override {
    FLOPCAST_CHECK(slices.size() == 1 && shape.heads.head_dim <= static_cast<std::size_t>(kLargestHead) &&
                   shape.biases.heads == 0);
    const Tensor<float>& input = slices.front();
    Tensor<float> logsumexp = tensor(input.rows(), shape.heads.heads);
    const auto attend = in_16_bits() ? cuda::tensor_attention : cuda::attention;
    attend(input.data(), output.data(), logsumexp.data(), size_of_attention(shape, input), stream());
    return {output, logsumexp};
  }
  void attention_gradient(const AttentionExtent& shape, const std::vector<Tensor<float>>& slices,
                          const std::vector<Tensor<float>>& kept, const Tensor<float>& output_gradient,
                          std::vector<Tensor<float>>& gradients) override {
    FLOPCAST_CHECK(slices.size() == 1 && gradients.front().empty());
    const Tensor<float>& input = slices.front();
    Tensor<float> projection = tensor(input.rows(), shape.heads.heads);
    gradients.front() = tensor(input.rows(), input.columns());
    const auto gradient = in_16_bits() ? cuda::tensor_attention_gradient : cuda::attention_gradient;
    gradient(input.data(), kept[0].data(), kept[1].data(), output_gradient.data(), projection.data(),
             gradients.front().data(), size_of_attention(shape, input), stream());
  }
  void look_up(const std::vector<int>& tokens, const VocabularyShare& share, const float* table,
               Tensor<float>& rows) override {
    const Buffer on_device = device_.constants(tokens);
    cuda::look_up(ints(on_device), static_cast<int>(share.first), static_cast<int>(share.count), table, rows.data(),
                  extent_of(rows), stream());
  }
  void add_to_table(const std::vector<int>& tokens, const VocabularyShare& share, const Tensor<float>& rows,
                    float* table) override {
    const TokenGroups groups = group_by_token(tokens, share);
    const Buffer order = device_.constants(groups.order);
    const Buffer starts = device_.constants(groups.starts);
    const Buffer places = device_.constants(groups.places);
    cuda::add_to_table(ints(order), ints(starts), ints(places), static_cast<int>(groups.places.size()), rows.data(),
                       table, rows.columns(), stream());
  }
  void add_positions(const Tensor<float>& x, const RowPositions& positions, const float* table,
                     Tensor<float>& y) override {
    cuda::add_positions(x.data(), {positions.shift, positions.length, positions.first}, table, y.data(), extent_of(x),
                        stream());
  }
  void add_to_positions(const Tensor<float>& dy, const RowPositions& positions, float* table) override {
    cuda::add_to_positions(dy.data(), {positions.shift, positions.length, positions.first}, table, extent_of(dy),
                           stream());
  }
  void row_maxima(const Tensor<float>& logits, Tensor<float>& maxima) override {
    cuda::row_maxima(logits.data(), maxima.data(), extent_of(logits), stream());
  }
  void exponentials(const Tensor<float>& logits, const Tensor<float>& maxima, const std::vector<int>& targets,
                    const VocabularyShare& share, Tensor<float>& exponentials, Tensor<float>& sums,
                    Tensor<float>& target_logits) override {
    const Buffer on_device = device_.constants(targets);
    cuda::exponentials(logits.data(), maxima.data(), ints(on_device), static_cast<int>(share.first),
                       exponentials.data(), sums.data(), target_logits.data(), extent_of(logits), stream());
  }
  Loss normalise(Tensor<float>& exponentials, const Tensor<float>& sums, const Tensor<float>& target_logits) override {
    const Buffer mean = device_.reserve(sizeof(double));
    cuda::normalise(exponentials.data(), sums.data(), target_logits.data(), reinterpret_cast<double*>(mean.address()),
                    extent_of(exponentials), stream());
    return [&device = device_, mean] {
      double value = 0;
      device.download(mean, reinterpret_cast<std::byte*>(&value));
      return value;
    };
  }
  void cross_entropy_gradient(const Tensor<float>& probabilities, const std::vector<int>& targets,
                              const VocabularyShare& share, float weight, Tensor<float>& gradient) override {
    const Buffer on_device = device_.constants(targets);
    cuda::cross_entropy_gradient(probabilities.data(), ints(on_device), static_cast<int>(share.first), weight,
                                 gradient.data(), extent_of(gradient), stream());
  }

 private:
  cudaStream_t stream() const { return device_.stream(Queue::kCompute); }
  // True if products that are not 8-bit are 16-bit.
  bool in_16_bits() const { return precision_ == GemmPrecision::kBf16 || precision_ == GemmPrecision::kFp8; }
  bool fits_float8(const Product& product, const MatrixView<const float>& a, const MatrixView<const float>& b) const {
    constexpr std::size_t kMultiple = 16;
    const bool wanted = precision_ == GemmPrecision::kFp8 && a.float8 != Float8::kNo && b.float8 != Float8::kNo;
    return wanted && product.m % kMultiple == 0 && product.n % kMultiple == 0 && product.k % kMultiple == 0;
  }
  // Both factors are stored so that the summed dimension is contiguous.
  void multiply_float8(Product product, const MatrixView<const float>& a, const MatrixView<const float>& b,
                       const MatrixView<float>& result, float factor) {
    const InFloat8 left = in_float8(a, product.a_transposed);
    const InFloat8 right = in_float8(b, !product.b_transposed);
    product.a_transposed = false;
    product.b_transposed = true;
    product.factors = Factors::kFloat8;
    FLOPCAST_CHECK(b.float8 == Float8::kE4m3);
    product.a_wide = a.float8 == Float8::kE5m2;
    product.a_scale = floats(left.scale);
    product.b_scale = floats(right.scale);
    products_.multiply(product, left.values.address(), right.values.address(), result.data, factor);
  }
  struct InFloat8 {
    Buffer values;
    Buffer scale;
  };
  InFloat8 in_float8(const MatrixView<const float>& view, bool flips) {
    if (!view.lasting) return round_to_float8(view, flips);
    const std::tuple key{view.data, view.rows * view.columns, flips};
    const auto kept = float8_weights_.find(key);
    if (kept != float8_weights_.end()) return kept->second;
    return float8_weights_.emplace(key, round_to_float8(view, flips)).first->second;
  }
  InFloat8 round_to_float8(const MatrixView<const float>& view, bool flips) {
    InFloat8 result{device_.reserve(view.rows * view.columns), device_.reserve(sizeof(float))};
    const Buffer scratch = device_.reserve(kFloat8Scratch * sizeof(float));
    to_float8(view.data, {view.rows, view.columns}, {view.float8 == Float8::kE5m2, flips}, floats(scratch),
              result.values.address(), floats(result.scale), stream());
    return result;
  }
  Buffer rounded(const MatrixView<const float>& view) {
    if (!view.lasting) return round(view);
    const std::pair key{view.data, view.rows * view.columns};
    const auto kept = rounded_weights_.find(key);
    if (kept != rounded_weights_.end()) return kept->second;
    return rounded_weights_.emplace(key, round(view)).first->second;
  }
  Buffer round(const MatrixView<const float>& view) {
    const std::size_t count = view.rows * view.columns;
    Buffer buffer = device_.reserve(count * sizeof(std::uint16_t));
    to_bfloat16(view.data, buffer.address(), count, stream());
    return buffer;
  }
  void sum_rows(const Tensor<float>& x, const float* factor, float* sums) {
    const Buffer scratch = device_.reserve(column_scratch(extent_of(x)) * sizeof(float));
    cuda::add_up_rows(x.data(), factor, sums, extent_of(x), floats(scratch), stream());
  }

  CudaDevice& device_;
  MatrixProducts& products_;
  GemmPrecision precision_;
  std::map<std::pair<const float*, std::size_t>, Buffer> rounded_weights_;
  std::map<std::tuple<const float*, std::size_t, bool>, InFloat8> float8_weights_;  // bool: transposed
};

}  // namespace

std::unique_ptr<Kernels<float>> make_cuda_kernels(CudaDevice& device, MatrixProducts& products,
                                                  GemmPrecision precision) {
  return std::make_unique<CudaKernels>(device, products, precision);
}

}  // namespace flopcast::realrun::cuda
