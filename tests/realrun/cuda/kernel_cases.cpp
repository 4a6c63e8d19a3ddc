#include "tests/realrun/cuda/kernel_cases.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "realrun/compute/cuda/launch.hpp"
#include "realrun/compute/host_device.hpp"

namespace flopcast::realrun {

namespace {

using Values = std::vector<float>;

double relative_error(const Values& actual, const Values& expected) {
  double difference = 0;
  double size = 0;
  for (std::size_t index = 0; index < expected.size(); ++index) {
    const double off = static_cast<double>(actual[index]) - static_cast<double>(expected[index]);
    difference += off * off;
    size += static_cast<double>(expected[index]) * static_cast<double>(expected[index]);
  }
  return std::sqrt(difference) / std::max(std::sqrt(size), 1e-30);
}

/// The same random inputs in both memories, and the results of both.
class Comparison {
 public:
  explicit Comparison(const KernelsUnderTest& test, unsigned seed) : test_(test), random_(seed) {}

  struct Pair {
    Tensor<float> host;
    Tensor<float> device;
  };

  Pair random(std::size_t rows, std::size_t columns) {
    std::normal_distribution<float> normal;
    Values values(rows * columns);
    for (float& value : values) value = normal(random_);
    return given(values, rows, columns);
  }
  Pair given(const Values& values, std::size_t rows, std::size_t columns) {
    Pair pair{Tensor<float>(rows, columns), on_device(rows, columns)};
    std::copy(values.begin(), values.end(), pair.host.data());
    upload(values, pair.device);
    return pair;
  }
  Pair poisoned(std::size_t rows, std::size_t columns) {
    return given(Values(rows * columns, std::numeric_limits<float>::quiet_NaN()), rows, columns);
  }
  std::vector<int> tokens(std::size_t count, int below) {
    std::vector<int> drawn(count);
    for (int& token : drawn) token = std::uniform_int_distribution<int>(0, below - 1)(random_);
    return drawn;
  }
  int size_up_to(int largest) { return std::uniform_int_distribution<int>(1, largest)(random_); }

  void expect_equal(const Pair& pair, const std::string& what, double tolerance) const {
    expect_equal(pair.host, pair.device, what, tolerance);
  }
  double error(const Tensor<float>& host, const Tensor<float>& device) const {
    Values actual(host.size());
    test_.device.download(device.buffer(), reinterpret_cast<std::byte*>(actual.data()));
    return relative_error(actual, {host.data(), host.data() + host.size()});
  }
  void expect_equal(const Tensor<float>& host, const Tensor<float>& device, const std::string& what,
                    double tolerance) const {
    const double off = error(host, device);
    record_error(off, tolerance);
    // Phrased so that NaN fails.
    EXPECT_TRUE(off <= tolerance) << what << ": relative error " << off << " of " << host.rows() << " × "
                                  << host.columns();
  }

 private:
  Tensor<float> on_device(std::size_t rows, std::size_t columns) {
    return Tensor<float>(test_.device.reserve(rows * columns * sizeof(float)), rows, columns);
  }
  void upload(const Values& values, const Tensor<float>& to) {
    test_.device.upload(reinterpret_cast<const std::byte*>(values.data()), to.buffer());
  }

  const KernelsUnderTest& test_;
  std::mt19937 random_;
};

constexpr unsigned kRounds = 4;

Kernels<float>& host() {
  return host_kernels<float>();
}

MatrixView<const float> stored(const Tensor<float>& tensor, bool transposed) {
  return {tensor.data(), tensor.rows(), tensor.columns(), tensor.columns(),
          transposed ? Transposed::kYes : Transposed::kNo};
}

MatrixView<float> target(Tensor<float>& tensor) {
  return {tensor.data(), tensor.rows(), tensor.columns(), tensor.columns()};
}

}  // namespace

namespace {

std::string name_of(const testing::TestInfo& test) {
  return fmt::format("{}.{}", test.test_suite_name(), test.name());
}

// Appends to the file that FLOPCAST_TEST_RECORDS names.
void add_record(const nlohmann::json& line) {
  const char* path = std::getenv("FLOPCAST_TEST_RECORDS");
  if (path != nullptr) std::ofstream(path, std::ios::app) << line.dump() << std::endl;
}

}  // namespace

void record_error(double error, double tolerance) {
  static const testing::TestInfo* of = nullptr;
  static double largest = 0;
  const testing::TestInfo* running = testing::UnitTest::GetInstance()->current_test_info();
  if (running != of) largest = -1;
  of = running;
  const double share = error == 0 ? 0 : error / tolerance;
  // NaN counts as larger than everything, and is kept.
  if (!(share > largest) && !std::isnan(share)) return;
  largest = share;
  const std::string text = fmt::format("{:.1e}", error);
  const std::string allowed = fmt::format("{:.0e}", tolerance);
  testing::Test::RecordProperty("error", text);
  testing::Test::RecordProperty("tolerance", allowed);
  add_record({{"test", name_of(*running)}, {"status", "running"}, {"error", text}, {"tolerance", allowed}});
}

namespace {

/// Adds a line of JSON to a file when a test begins and when it ends, so that a process that is killed, or ended by a
/// GPU error, leaves the earlier tests and the name of the running one.
class RecordFile : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    add_record({{"test", name_of(test)}, {"status", "running"}});
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    const testing::TestResult& result = *test.result();
    const char* status = result.Skipped() ? "skipped" : result.Failed() ? "failed" : "passed";
    nlohmann::json line = {
        {"test", name_of(test)}, {"status", status}, {"seconds", static_cast<double>(result.elapsed_time()) * 1e-3}};
    for (int property = 0; property < result.test_property_count(); ++property) {
      line[result.GetTestProperty(property).key()] = result.GetTestProperty(property).value();
    }
    for (int part = 0; part < result.total_part_count() && !line.contains("message"); ++part) {
      const testing::TestPartResult& told = result.GetTestPartResult(part);
      if (!told.passed()) line["message"] = told.message();
    }
    add_record(line);
  }
};

const bool records = [] {
  const bool wanted = std::getenv("FLOPCAST_TEST_RECORDS") != nullptr;
  if (wanted) testing::UnitTest::GetInstance()->listeners().Append(new RecordFile);
  return wanted;
}();

}  // namespace

void check_products(const KernelsUnderTest& test) {
  for (unsigned form = 0; form < 8; ++form) {
    Comparison with(test, form);
    const bool left = (form & 1U) != 0;
    const bool right = (form & 2U) != 0;
    const bool adds = (form & 4U) != 0;
    // Multiples of sixteen, and odd numbers.
    for (const std::size_t odd : {std::size_t{0}, std::size_t{3}}) {
      const std::size_t m = 16 * static_cast<std::size_t>(with.size_up_to(4)) + odd;
      const std::size_t n = 16 * static_cast<std::size_t>(with.size_up_to(4)) + odd;
      const std::size_t k = 16 * static_cast<std::size_t>(with.size_up_to(4)) + odd;
      const auto a = left ? with.random(k, m) : with.random(m, k);
      const auto b = right ? with.random(n, k) : with.random(k, n);
      auto result = adds ? with.random(m, n) : with.poisoned(m, n);
      host().multiply(stored(a.host, left), stored(b.host, right), target(result.host), 0.5F, adds);
      test.kernels.multiply(stored(a.device, left), stored(b.device, right), target(result.device), 0.5F, adds);
      with.expect_equal(result, "product, form " + std::to_string(form), test.product_tolerance);
      EXPECT_GE(with.error(result.host, result.device), test.least_product_error) << "form " << form;
    }
  }
}

// e4m3 has 3 mantissa bits, e5m2 has 2; the scales compensate for the small right factor.
void check_float8_products(const KernelsUnderTest& test) {
  constexpr std::size_t kRows = 32;
  constexpr std::size_t kInner = 48;
  for (const bool flips : {false, true}) {
    const auto error_of = [&](Float8 of_left, Float8 of_right, std::size_t inner) {
      Comparison with(test, 1);
      const auto left = flips ? with.random(inner, kRows) : with.random(kRows, inner);
      Values small(inner * kRows);
      for (std::size_t index = 0; index < small.size(); ++index) {
        small[index] = 1e-4F * left.host.data()[(7 * index + 3) % small.size()];
      }
      const auto right = flips ? with.given(small, kRows, inner) : with.given(small, inner, kRows);
      auto result = with.given(Values(kRows * kRows, 0.0F), kRows, kRows);
      const auto view = [flips](const Tensor<float>& tensor, Float8 float8) {
        MatrixView<const float> stands = stored(tensor, flips);
        stands.float8 = float8;
        return stands;
      };
      host().multiply(view(left.host, of_left), view(right.host, of_right), target(result.host), 1.0F, true);
      test.kernels.multiply(view(left.device, of_left), view(right.device, of_right), target(result.device), 1.0F,
                            true);
      return with.error(result.host, result.device);
    };
    const double forward = error_of(Float8::kE4m3, Float8::kE4m3, kInner);
    const double backward = error_of(Float8::kE5m2, Float8::kE4m3, kInner);
    EXPECT_GT(forward, 0.01);
    EXPECT_LT(forward, 0.06);
    EXPECT_GT(backward, forward);
    EXPECT_LT(backward, 0.1);
    EXPECT_LT(error_of(Float8::kE4m3, Float8::kNo, kInner), 0.005);
    EXPECT_LT(error_of(Float8::kE4m3, Float8::kE4m3, kInner - 1), 0.005) << "not a multiple of 16";
  }
}

// Bit patterns of OCP's specification of 8-bit floats, table 2; a matrix's largest magnitude maps to the format's
// largest.
void check_float8_numbers(const KernelsUnderTest& test) {
  using Bits = std::vector<std::uint8_t>;
  const auto buffer_of = [&](const Values& values) {
    const Buffer buffer = test.device.reserve(values.size() * sizeof(float));
    test.device.upload(reinterpret_cast<const std::byte*>(values.data()), buffer);
    return buffer;
  };
  const auto bits_of = [&](const Values& values, std::size_t rows, cuda::Float8Format format, float& undoes) {
    constexpr std::size_t kWord = 4;
    const Buffer from = buffer_of(values);
    const Buffer scratch = test.device.reserve(cuda::kFloat8Scratch * sizeof(float));
    const Buffer to = test.device.reserve((values.size() + kWord - 1) / kWord * kWord);
    const Buffer scale = test.device.reserve(sizeof(float));
    const auto floats = [](const Buffer& buffer) { return reinterpret_cast<float*>(buffer.address()); };
    cuda::to_float8(floats(from), {rows, values.size() / rows}, format, floats(scratch), to.address(), floats(scale),
                    static_cast<cudaStream_t>(test.stream));
    test.device.download(scale, reinterpret_cast<std::byte*>(&undoes));
    Bits bits(values.size());
    test.device.download(to.slice(0, bits.size()), reinterpret_cast<std::byte*>(bits.data()));
    return bits;
  };
  float scale = 0;
  // The largest number, one, the smallest normal, the largest and the smallest subnormal number, and one between two.
  const Values e4m3 = {448.0F, -1.0F, 0.015625F, 0.875F * 0.015625F, 0.001953125F, 1.0625F};
  EXPECT_EQ(bits_of(e4m3, 2, {}, scale), (Bits{0x7e, 0xb8, 0x08, 0x07, 0x01, 0x38}));
  EXPECT_EQ(scale, 1.0F);
  EXPECT_EQ(bits_of(e4m3, 2, {.wide = false, .flips = true}, scale), (Bits{0x7e, 0x07, 0xb8, 0x01, 0x08, 0x38}));
  const Values e5m2 = {57344.0F, -1.0F, 6.103515625e-05F, 0.75F * 6.103515625e-05F, 0.0F, 1.375F};
  EXPECT_EQ(bits_of(e5m2, 2, {.wide = true, .flips = false}, scale), (Bits{0x7b, 0xbc, 0x04, 0x03, 0x00, 0x3e}));
  bits_of({896.0F, 1.0F}, 1, {}, scale);
  EXPECT_EQ(scale, 2.0F);
  // Zeros, and values too small to be scaled up.
  EXPECT_EQ(bits_of({0.0F, -0.0F, 0.0F, 0.0F}, 1, {}, scale), (Bits{0x00, 0x80, 0x00, 0x00}));
  EXPECT_EQ(scale, 1.0F);
  EXPECT_EQ(bits_of({1e-31F, 0.0F, 0.0F, -1e-31F}, 1, {}, scale), (Bits{0x00, 0x00, 0x00, 0x80}));
  EXPECT_EQ(scale, 1.0F);
  // NaN stays NaN, even among numbers; an infinity leaves no other numbers.
  for (const bool wide : {false, true}) {
    const Bits bits =
        bits_of({1.0F, std::numeric_limits<float>::quiet_NaN()}, 1, {.wide = wide, .flips = false}, scale);
    EXPECT_EQ(bits[0], wide ? 0x7b : 0x7e);
    EXPECT_EQ(bits[1] % 128, 0x7f);
    EXPECT_EQ(
        bits_of({1.0F, std::numeric_limits<float>::infinity()}, 1, {.wide = wide, .flips = false}, scale)[1] % 128,
        0x7f);
    EXPECT_TRUE(std::isinf(scale));
  }
  // More elements than the blocks have threads: the largest is at the end.
  const std::size_t rows = 300;
  Values many(rows * 250, 1.0F);
  many.back() = 896.0F;
  const Bits bits = bits_of(many, rows, {.wide = false, .flips = true}, scale);
  EXPECT_EQ(scale, 2.0F);
  EXPECT_EQ(bits.back(), 0x7e);
  EXPECT_EQ(std::count(bits.begin(), bits.end(), 0x30), static_cast<std::ptrdiff_t>(many.size()) - 1);
}

void check_elementwise(const KernelsUnderTest& test) {
  for (unsigned round = 0; round < kRounds; ++round) {
    Comparison with(test, round);
    const auto rows = static_cast<std::size_t>(with.size_up_to(test.largest));
    const auto columns = static_cast<std::size_t>(with.size_up_to(test.largest));
    const auto x = with.random(rows, columns);
    const auto other = with.random(rows, columns);
    const auto bias = with.random(1, columns);
    auto y = with.poisoned(rows, columns);
    host().add(x.host, other.host, y.host);
    test.kernels.add(x.device, other.device, y.device);
    with.expect_equal(y, "sum", test.tolerance);
    y = with.poisoned(rows, columns);
    host().add_bias(x.host, bias.host.data(), y.host);
    test.kernels.add_bias(x.device, bias.device.data(), y.device);
    with.expect_equal(y, "bias", test.tolerance);
    y = with.poisoned(rows, columns);
    host().gelu(x.host, y.host);
    test.kernels.gelu(x.device, y.device);
    with.expect_equal(y, "GELU", test.tolerance);
    y = with.poisoned(rows, columns);
    host().gelu_gradient(other.host, x.host, y.host);
    test.kernels.gelu_gradient(other.device, x.device, y.device);
    with.expect_equal(y, "gradient of GELU", test.tolerance);
  }
}

void check_row_sums(const KernelsUnderTest& test) {
  for (unsigned round = 0; round < kRounds; ++round) {
    Comparison with(test, round);
    // Several chunks of rows.
    const auto x = with.random(static_cast<std::size_t>(with.size_up_to(4 * test.largest)),
                               static_cast<std::size_t>(with.size_up_to(100)));
    auto sums = with.random(1, x.host.columns());
    host().add_up_rows(x.host, sums.host.data());
    test.kernels.add_up_rows(x.device, sums.device.data());
    with.expect_equal(sums, "sum of rows", test.tolerance);
  }
}

void check_layer_norm(const KernelsUnderTest& test) {
  for (unsigned round = 0; round < kRounds; ++round) {
    Comparison with(test, round);
    const auto rows = static_cast<std::size_t>(with.size_up_to(40));
    const auto columns = static_cast<std::size_t>(with.size_up_to(3 * test.largest) + 1);
    const auto x = with.random(rows, columns);
    const auto dy = with.random(rows, columns);
    const auto gain = with.random(1, columns);
    const auto bias = with.random(1, columns);
    auto normalised = with.poisoned(rows, columns);
    auto scale = with.poisoned(rows, 1);
    auto y = with.poisoned(rows, columns);
    host().norm(x.host, gain.host.data(), bias.host.data(), normalised.host, scale.host, y.host);
    test.kernels.norm(x.device, gain.device.data(), bias.device.data(), normalised.device, scale.device, y.device);
    with.expect_equal(y, "LayerNorm", test.tolerance);
    with.expect_equal(normalised, "normalised rows", test.tolerance);
    with.expect_equal(scale, "scales", test.tolerance);
    auto dx = with.poisoned(rows, columns);
    host().norm_input_gradient(dy.host, normalised.host, scale.host, gain.host.data(), true, dx.host);
    test.kernels.norm_input_gradient(dy.device, normalised.device, scale.device, gain.device.data(), true, dx.device);
    with.expect_equal(dx, "input gradient of LayerNorm", test.tolerance);
    auto of_gain = with.random(1, columns);
    auto of_bias = with.random(1, columns);
    host().norm_weight_gradient(dy.host, normalised.host, of_gain.host.data(), of_bias.host.data());
    test.kernels.norm_weight_gradient(dy.device, normalised.device, of_gain.device.data(), of_bias.device.data());
    with.expect_equal(of_gain, "gradient of gains", test.tolerance);
    with.expect_equal(of_bias, "gradient of biases", test.tolerance);
  }
}

void check_rms_norm(const KernelsUnderTest& test) {
  for (unsigned round = 0; round < kRounds; ++round) {
    Comparison with(test, round);
    const auto rows = static_cast<std::size_t>(with.size_up_to(40));
    const auto columns = static_cast<std::size_t>(with.size_up_to(3 * test.largest) + 1);
    const auto x = with.random(rows, columns);
    const auto dy = with.random(rows, columns);
    const auto gain = with.random(1, columns);
    auto normalised = with.poisoned(rows, columns);
    auto scale = with.poisoned(rows, 1);
    auto y = with.poisoned(rows, columns);
    host().norm(x.host, gain.host.data(), nullptr, normalised.host, scale.host, y.host);
    test.kernels.norm(x.device, gain.device.data(), nullptr, normalised.device, scale.device, y.device);
    with.expect_equal(y, "RMSNorm", test.tolerance);
    with.expect_equal(normalised, "normalised rows", test.tolerance);
    with.expect_equal(scale, "scales", test.tolerance);
    auto dx = with.poisoned(rows, columns);
    host().norm_input_gradient(dy.host, normalised.host, scale.host, gain.host.data(), false, dx.host);
    test.kernels.norm_input_gradient(dy.device, normalised.device, scale.device, gain.device.data(), false, dx.device);
    with.expect_equal(dx, "input gradient of RMSNorm", test.tolerance);
    auto of_gain = with.random(1, columns);
    host().norm_weight_gradient(dy.host, normalised.host, of_gain.host.data(), nullptr);
    test.kernels.norm_weight_gradient(dy.device, normalised.device, of_gain.device.data(), nullptr);
    with.expect_equal(of_gain, "gradient of gains", test.tolerance);
  }
}

void check_gated_silu(const KernelsUnderTest& test) {
  for (unsigned round = 0; round < kRounds; ++round) {
    Comparison with(test, round);
    const auto rows = static_cast<std::size_t>(with.size_up_to(60));
    const auto columns = static_cast<std::size_t>(with.size_up_to(test.largest));
    const auto x = with.random(rows, 2 * columns);
    const auto dy = with.random(rows, columns);
    auto y = with.poisoned(rows, columns);
    host().gated_silu(x.host, y.host);
    test.kernels.gated_silu(x.device, y.device);
    with.expect_equal(y, "gated SiLU", test.tolerance);
    auto dx = with.poisoned(rows, 2 * columns);
    host().gated_silu_gradient(dy.host, x.host, dx.host);
    test.kernels.gated_silu_gradient(dy.device, x.device, dx.device);
    with.expect_equal(dx, "gradient of gated SiLU", test.tolerance);
  }
}

void check_heads(const KernelsUnderTest& test) {
  for (const HeadLayout& heads : {HeadLayout{1, 1, 2}, HeadLayout{6, 2, 10}, HeadLayout{4, 4, 16}}) {
    Comparison with(test, static_cast<unsigned>(heads.heads));
    constexpr std::size_t kRows = 21;
    const auto x = with.random(kRows, heads.width());
    auto y = with.poisoned(kRows, heads.width());
    const RowPositions positions{3, 7, 4000};
    host().rotate_heads(x.host, heads, positions, -1.0F, y.host);
    test.kernels.rotate_heads(x.device, heads, positions, -1.0F, y.device);
    with.expect_equal(y, "rotated heads", test.tolerance);
    auto part = with.random(kRows, heads.width());
    const auto copy = [&](Kernels<float>& kernels, const Tensor<float>& from, Tensor<float>& to) {
      kernels.copy({from.data() + 1, kRows - 1, heads.width() - 1, heads.width()},
                   {to.data(), kRows - 1, heads.width() - 1, heads.width()});
    };
    copy(host(), x.host, part.host);
    copy(test.kernels, x.device, part.device);
    with.expect_equal(part, "copied rectangle", test.tolerance);
  }
}

void check_attention(const KernelsUnderTest& test) {
  struct Case {
    std::size_t sequences, heads, head_dim, length;
    std::size_t kv_heads = 0;
    AttentionMask mask = {};
  };
  // Below, at and above each width of the tiles, one tile and several, whole and partial.
  for (const Case& size :
       {Case{2, 2, 4, 5}, Case{1, 3, 16, 64}, Case{1, 1, 20, 70}, Case{2, 1, 32, 130}, Case{1, 2, 64, 129},
        Case{1, 1, 80, 65}, Case{1, 1, 128, 100}, Case{3, 1, 128, 1}, Case{2, 4, 8, 70, 2}, Case{1, 6, 64, 65, 2},
        Case{2, 3, 4, 70, 3, {.causal = false}}, Case{1, 4, 4, 200, 2, {.window = 37}},
        Case{1, 2, 20, 150, 1, {.chunk = 70}}, Case{1, 2, 128, 200, 1, {.window = 20}},
        Case{2, 1, 64, 190, 1, {.chunk = 50}}, Case{1, 2, 30, 129, 2, {.causal = false}}}) {
    Comparison with(test, static_cast<unsigned>(size.head_dim));
    const std::size_t kv_heads = size.kv_heads > 0 ? size.kv_heads : size.heads;
    const AttentionExtent shape{{size.heads, kv_heads, size.head_dim}, size.length, size.mask, {}};
    const std::size_t rows = size.sequences * size.length;
    const std::size_t width = size.heads * size.head_dim;
    const auto qkv = with.random(rows, shape.heads.width());
    const auto dy = with.random(rows, width);
    auto y = with.poisoned(rows, width);
    const auto host_kept = host().attention(shape, {qkv.host}, y.host);
    const auto device_kept = test.kernels.attention(shape, {qkv.device}, y.device);
    const std::string what = "attention, heads of " + std::to_string(size.head_dim);
    with.expect_equal(y, what, test.product_tolerance);
    EXPECT_GE(with.error(y.host, y.device), test.least_product_error) << what;
    std::vector<Tensor<float>> host_gradient(1);
    std::vector<Tensor<float>> device_gradient(1);
    host().attention_gradient(shape, {qkv.host}, host_kept, dy.host, host_gradient);
    test.kernels.attention_gradient(shape, {qkv.device}, device_kept, dy.device, device_gradient);
    with.expect_equal(host_gradient.front(), device_gradient.front(), "gradient of " + what, test.product_tolerance);
    EXPECT_GE(with.error(host_gradient.front(), device_gradient.front()), test.least_product_error) << what;
  }
}

void check_embedding(const KernelsUnderTest& test) {
  for (unsigned round = 0; round < kRounds; ++round) {
    Comparison with(test, round);
    const auto rows = static_cast<std::size_t>(with.size_up_to(60));
    const auto width = static_cast<std::size_t>(with.size_up_to(test.largest));
    // The second of two shares of a vocabulary: half of the tokens are held elsewhere.
    const VocabularyShare share{10, 10};
    const std::vector<int> tokens = with.tokens(rows, 20);
    const auto table = with.random(share.count, width);
    auto found = with.poisoned(rows, width);
    host().look_up(tokens, share, table.host.data(), found.host);
    test.kernels.look_up(tokens, share, table.device.data(), found.device);
    with.expect_equal(found, "rows of the table", test.tolerance);
    auto gradients = with.random(share.count, width);
    const auto dy = with.random(rows, width);
    host().add_to_table(tokens, share, dy.host, gradients.host.data());
    test.kernels.add_to_table(tokens, share, dy.device, gradients.device.data());
    with.expect_equal(gradients, "gradient of the table", test.tolerance);

    const RowPositions positions{rows, 7, 3};
    const auto places = with.random(10, width);
    host().add_positions(dy.host, positions, places.host.data(), found.host);
    test.kernels.add_positions(dy.device, positions, places.device.data(), found.device);
    with.expect_equal(found, "positions", test.tolerance);
    auto of_places = with.random(10, width);
    host().add_to_positions(dy.host, positions, of_places.host.data());
    test.kernels.add_to_positions(dy.device, positions, of_places.device.data());
    with.expect_equal(of_places, "gradient of positions", test.tolerance);
  }
}

void check_cross_entropy(const KernelsUnderTest& test) {
  for (unsigned round = 0; round < kRounds; ++round) {
    Comparison with(test, round);
    const auto rows = static_cast<std::size_t>(with.size_up_to(50));
    const auto columns = static_cast<std::size_t>(with.size_up_to(2 * test.largest));
    const VocabularyShare share{columns, columns};
    const std::vector<int> targets = with.tokens(rows, static_cast<int>(2 * columns));
    const auto logits = with.random(rows, columns);
    auto maxima = with.poisoned(rows, 1);
    host().row_maxima(logits.host, maxima.host);
    test.kernels.row_maxima(logits.device, maxima.device);
    with.expect_equal(maxima, "maxima", test.tolerance);
    auto values = with.poisoned(rows, columns);
    auto sums = with.poisoned(rows, 1);
    auto of_targets = with.poisoned(rows, 1);
    host().exponentials(logits.host, maxima.host, targets, share, values.host, sums.host, of_targets.host);
    test.kernels.exponentials(logits.device, maxima.device, targets, share, values.device, sums.device,
                              of_targets.device);
    with.expect_equal(values, "exponentials", test.tolerance);
    with.expect_equal(sums, "their sums", test.tolerance);
    with.expect_equal(of_targets, "logits of the targets", test.tolerance);
    const Loss expected = host().normalise(values.host, sums.host, of_targets.host);
    const Loss actual = test.kernels.normalise(values.device, sums.device, of_targets.device);
    EXPECT_NEAR(actual(), expected(), test.tolerance * std::abs(expected()));
    with.expect_equal(values, "probabilities", test.tolerance);
    auto gradient = with.poisoned(rows, columns);
    host().cross_entropy_gradient(values.host, targets, share, 0.25F, gradient.host);
    test.kernels.cross_entropy_gradient(values.device, targets, share, 0.25F, gradient.device);
    with.expect_equal(gradient, "gradient of the logits", test.tolerance);
  }
}

// Draws equal the host's to the bit: training starts from the same weights on all devices.
void check_draws(const KernelsUnderTest& test) {
  Comparison with(test, 1);
  for (const float deviation : {0.0F, 0.02F}) {
    for (const std::size_t columns : {std::size_t{1}, std::size_t{7}, std::size_t{64}}) {
      const std::size_t rows = static_cast<std::size_t>(with.size_up_to(test.largest));
      auto drawn = with.poisoned(rows, columns);
      const Draw draw{.start = mix(columns),
                      .first = 3 * columns + 2,
                      .columns = columns,
                      .whole_columns = columns + 5,
                      .value = 1.5F,
                      .deviation = deviation};
      HostDevice().draw(draw, drawn.host.buffer());
      test.device.draw(draw, drawn.device.buffer());
      with.expect_equal(drawn, "draws", 0);
    }
  }
}

void check_optimizers(const KernelsUnderTest& test) {
  for (const Optimizer kind : {Optimizer::kSgd, Optimizer::kAdam}) {
    Comparison with(test, 1);
    const auto count = static_cast<std::size_t>(with.size_up_to(10 * test.largest));
    const UpdateRule rule{.kind = kind};
    const auto weights = with.random(1, count);
    auto updated = with.poisoned(1, count);
    std::vector<Comparison::Pair> states;
    for (int state = 0; state < rule.states(); ++state) states.push_back(with.given(Values(count, 0.0F), 1, count));
    std::vector<Buffer> host_states;
    std::vector<Buffer> device_states;
    for (const Comparison::Pair& state : states) {
      host_states.push_back(state.host.buffer());
      device_states.push_back(state.device.buffer());
    }
    for (int step = 1; step <= 3; ++step) {
      const auto gradients = with.random(1, count);
      HostDevice().optimize(rule, step, weights.host.buffer(), gradients.host.buffer(), host_states,
                            updated.host.buffer());
      test.device.optimize(rule, step, weights.device.buffer(), gradients.device.buffer(), device_states,
                           updated.device.buffer());
      with.expect_equal(updated, "weights", test.tolerance);
      for (const Comparison::Pair& state : states) with.expect_equal(state, "state", test.tolerance);
    }
  }
}

}  // namespace flopcast::realrun
