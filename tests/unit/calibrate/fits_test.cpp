// Fits of synthetic data with known parameters, with and without disturbance.

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <cmath>
#include <limits>
#include <random>

#include "base/text/error.hpp"
#include "calibrate/device/fits.hpp"
#include "model/cost/compute.hpp"
#include "tests/support/product_fit.hpp"

namespace flopcast {
namespace {

std::vector<MessagePoint> line(double alpha, double beta, double from, double to) {
  std::vector<MessagePoint> points;
  for (double bytes = from; bytes <= to; bytes *= 2) points.push_back({bytes, alpha + beta * bytes});
  return points;
}

std::string refusal(const std::vector<MessagePoint>& points) {
  try {
    fit_message_curve("p2p", points);
  } catch (const ConfigError& error) {
    return error.diagnostic().problem;
  }
  return "";
}

TEST(Errors, QuantilesInterpolate) {
  EXPECT_DOUBLE_EQ(median_of({3, 1, 2}), 2.0);
  EXPECT_DOUBLE_EQ(median_of({4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(quantile_of({0, 10}, 0.95), 9.5);
  EXPECT_DOUBLE_EQ(median_of({}), 0.0);
  const RelativeErrors errors = relative_errors({1.1, 2.0, 2.0}, {1.0, 2.0, 4.0});
  EXPECT_DOUBLE_EQ(errors.largest, 0.5);
  EXPECT_NEAR(errors.median, 0.1, 1e-12);
}

TEST(NonNegative, HandComputed) {
  // x = 2 solves both rows.
  EXPECT_NEAR(solve_non_negative({{1.0}, {2.0}}, {2.0, 4.0}).at(0), 2.0, 1e-12);
  // Unconstrained, the second unknown would be -1; with it at zero, the first is the mean.
  const auto clipped = solve_non_negative({{1.0, 0.0}, {1.0, 1.0}}, {3.0, 2.0});
  EXPECT_NEAR(clipped[0], 2.5, 1e-12);
  EXPECT_EQ(clipped[1], 0.0);
  // A term that is zero in every row determines nothing.
  EXPECT_EQ(solve_non_negative({{0.0}}, {1.0}).at(0), 0.0);
  EXPECT_EQ(solve_non_negative({{0.0, 2.0}, {0.0, 2.0}}, {2.0, 2.0}), (std::vector<double>{0.0, 1.0}));
  // Zero is the only feasible solution.
  EXPECT_EQ(solve_non_negative({{1.0}}, {-1.0}).at(0), 0.0);
}

RC_GTEST_PROP(NonNegative, NoNeighbourIsBetter, ()) {
  const int unknowns = *rc::gen::inRange(1, 5);
  const int rows = *rc::gen::inRange(unknowns, 9);
  std::vector<std::vector<double>> matrix;
  std::vector<double> right;
  for (int row = 0; row < rows; ++row) {
    std::vector<double> terms;
    for (int column = 0; column < unknowns; ++column) terms.push_back(*rc::gen::inRange(-9, 10));
    matrix.push_back(terms);
    right.push_back(*rc::gen::inRange(-9, 10));
  }
  const auto residual = [&](const std::vector<double>& x) {
    double sum = 0;
    for (std::size_t row = 0; row < matrix.size(); ++row) {
      double difference = -right[row];
      for (std::size_t column = 0; column < x.size(); ++column) difference += matrix[row][column] * x[column];
      sum += difference * difference;
    }
    return sum;
  };
  const std::vector<double> best = solve_non_negative(matrix, right);
  for (std::size_t column = 0; column < best.size(); ++column) {
    RC_ASSERT(best[column] >= 0.0);
    for (const double step : {-1e-3, 1e-3}) {
      std::vector<double> moved = best;
      moved[column] = std::max(0.0, moved[column] + step);
      RC_ASSERT(residual(moved) >= residual(best) - 1e-9);
    }
  }
}

TEST(RelativeFit, AnOutlierHardlyPulls) {
  std::vector<FitRow> rows;
  for (double bytes = 1024; bytes <= 1 << 30; bytes *= 2) rows.push_back({{1.0, bytes}, 10e-6 + bytes / 100e9});
  rows[5].measured *= 20;
  const RelativeFit fit = fit_relative(rows);
  EXPECT_NEAR(fit.unknowns[0], 10e-6, 0.1e-6);
  EXPECT_NEAR(fit.unknowns[1], 1 / 100e9, 0.01 / 100e9);
}

TEST(ProductFit, FindsPowers) {
  std::vector<ProductRow> rows;
  for (const double tokens : {512.0, 1024.0, 2048.0, 8192.0}) {
    for (const double width : {256.0, 1024.0, 4096.0}) {
      rows.push_back({{tokens, width}, 3e-9 * tokens * std::pow(width, 0.8)});
    }
  }
  rows[5].measured *= 3.0;  // an outlier
  const ProductFit fit(rows);
  const double expected = 3e-9 * 4096.0 * std::pow(512.0, 0.8);
  EXPECT_NEAR(fit.time({4096.0, 512.0}), expected, 0.1 * expected);
  EXPECT_THROW(ProductFit({{{1.0, 2.0}, 1.0}}), ConfigError);
  rows[0].factors[0] = 0.0;
  EXPECT_THROW(ProductFit{rows}, ConfigError);
  // A factor that never varies must not prevent the fit.
  std::vector<ProductRow> plain;
  for (const double size : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0}) plain.push_back({{size, 7.0}, 1e-6 * size});
  EXPECT_NEAR(ProductFit(plain).time({24.0, 7.0}), 24e-6, 1e-8);
}

TEST(MessageCurve, NeverFalls) {
  const MessageCurve curve({{Bytes(0), Seconds(1), 1.0}, {Bytes(10), Seconds(2), 0.5}});
  EXPECT_DOUBLE_EQ(curve.time(Bytes(0)).value(), 1.0);
  EXPECT_DOUBLE_EQ(curve.time(Bytes(9)).value(), 10.0);
  EXPECT_DOUBLE_EQ(curve.time(Bytes(10)).value(), 11.0);  // the second segment alone would give 7
  EXPECT_DOUBLE_EQ(curve.time(Bytes(30)).value(), 17.0);
}

TEST(MessageFit, FindsOneLine) {
  const MessageFit fit = fit_message_curve("p2p", line(5e-6, 1e-10, 1024, 1 << 28));
  ASSERT_EQ(fit.curve.segments().size(), 1u);
  EXPECT_NEAR(fit.curve.segments()[0].alpha.value(), 5e-6, 1e-9);
  EXPECT_NEAR(fit.curve.segments()[0].beta, 1e-10, 1e-13);
  EXPECT_LT(fit.errors.largest, 1e-6);
  EXPECT_LT(fit.left_out.largest, 1e-6);
}

TEST(MessageFit, FindsWhereProtocolsChange) {
  std::vector<MessagePoint> points = line(5e-6, 4e-10, 1024, 128 * 1024);
  const std::vector<MessagePoint> large = line(40e-6, 1e-10, 256 * 1024, 1 << 28);
  points.insert(points.end(), large.begin(), large.end());
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(0.99, 1.01);
  for (MessagePoint& point : points) point.seconds *= noise(random);
  points[12].seconds *= 3;
  const MessageFit fit = fit_message_curve("p2p", points);
  ASSERT_EQ(fit.curve.segments().size(), 2u);
  EXPECT_GE(fit.curve.segments()[1].from.value(), 128 * 1024);
  EXPECT_LE(fit.curve.segments()[1].from.value(), 256 * 1024);
  EXPECT_NEAR(fit.curve.segments()[1].beta, 1e-10, 2e-12);
  EXPECT_LT(fit.errors.median, 0.01);
  EXPECT_GT(fit.errors.largest, 0.5) << "the outlier is reported, not hidden";
}

RC_GTEST_PROP(MessageFit, TimesNeverFallWithSize, ()) {
  std::vector<MessagePoint> points;
  double seconds = 1e-6;
  for (double bytes = 512; bytes < 1e7; bytes *= 2) {
    seconds *= 1.0 + 0.3 * *rc::gen::inRange(0, 8);
    points.push_back({bytes, seconds * (1.0 + 0.02 * *rc::gen::inRange(-5, 6))});
  }
  const MessageFit fit = fit_message_curve("p2p", points);
  RC_ASSERT(fit.curve.segments().size() <= 4u);
  double before = 0;
  for (double bytes = 100; bytes < 1e9; bytes *= 1.07) {
    const double time = fit.curve.time(Bytes(bytes)).value();
    RC_ASSERT(time >= before);
    before = time;
  }
}

TEST(MessageFit, RefusesWhatCannotBeFitted) {
  EXPECT_NE(refusal(line(1e-6, 1e-10, 1024, 4096)).find("only 3 sizes"), std::string::npos);
  std::vector<MessagePoint> points = line(1e-6, 1e-10, 1024, 1 << 24);
  points[3].seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(refusal(points).find("is not a valid measurement"), std::string::npos);
  points[3].seconds = 0;
  EXPECT_NE(refusal(points).find("is not a valid measurement"), std::string::npos);
  std::vector<MessagePoint> falling = line(1e-6, 1e-10, 1024, 1 << 24);
  falling.back().seconds = falling[8].seconds / 2;
  EXPECT_NE(refusal(falling).find("times fall as sizes grow"), std::string::npos);
}

TEST(MessageFit, RefusesTimesThatDoNotFollowTheSize) {
  std::vector<MessagePoint> points;
  constexpr int kSizes = 64;
  for (int index = 0; index < kSizes; ++index) {
    const double bytes = 1e8 + 2e6 * index;
    points.push_back({bytes, 1e-5 + bytes * 1e-10});
  }
  EXPECT_EQ(refusal(points), "");
  // Every fourth message is delayed by other traffic: outliers, which the curve ignores.
  std::vector<MessagePoint> disturbed = points;
  for (std::size_t index = 0; index < disturbed.size(); index += 4) disturbed[index].seconds *= 3.0;
  EXPECT_EQ(refusal(disturbed), "");
  for (std::size_t index = 0; index < disturbed.size(); index += 2)
    disturbed[index].seconds = 2.0 * points[index].seconds;
  EXPECT_NE(refusal(disturbed).find("neighbouring sizes differ by"), std::string::npos);
}

Device synthetic(const GemmKernel& kernel, int multiprocessors) {
  Device device;
  device.multiprocessors = multiprocessors;
  device.gemm_kernel = kernel;
  device.gemm_efficiency = 0.8;
  device.peak.fill(FlopsPerSecond(300e12));
  // Slow enough that some GEMMs are bound by it.
  device.memory_bandwidth = BytesPerSecond(0.5e12);
  device.kernel_launch = Seconds(4e-6);
  return device;
}

std::vector<GemmPoint> products(const Device& device, Precision precision) {
  const ComputeModel model(device, precision);
  std::vector<GemmPoint> points;
  for (const int m : {128, 384, 1024, 4096}) {
    for (const int n : {192, 1024, 5120}) {
      for (const int k : {64, 512, 4096}) {
        const GemmShape shape{m, n, k, 1};
        points.push_back({shape, model.gemm(shape, element_size(precision).value()).value()});
      }
    }
  }
  return points;
}

TEST(GemmFit, FindsTheGpuItWasMadeWith) {
  const Device device = synthetic({}, 108);
  const GemmFit fit =
      fit_gemm("gemm bf16", products(device, Precision::kBf16), Precision::kBf16, 108, gpu_gemm_search());
  EXPECT_EQ(fit.kernel.overhead_depth, 200.0);
  EXPECT_EQ(fit.kernel.wave_share, 1.0);
  EXPECT_NEAR(fit.rate.value(), 240e12, 1e9);
  EXPECT_NEAR(fit.launch.value(), 4e-6, 1e-9);
  ASSERT_TRUE(fit.stream.has_value());
  EXPECT_NEAR(fit.stream->value(), 0.85 * 0.5e12, 1e9);
  EXPECT_LT(fit.errors.largest, 1e-4);
  EXPECT_LT(fit.left_out.largest, 0.05);
}

TEST(GemmFit, FindsHowMuchALastWaveCosts) {
  GemmKernel kernel;
  kernel.wave_share = 0.25;
  const Device device = synthetic(kernel, 108);
  const GemmFit fit =
      fit_gemm("gemm bf16", products(device, Precision::kBf16), Precision::kBf16, 108, gpu_gemm_search());
  EXPECT_EQ(fit.kernel.wave_share, 0.25);
  EXPECT_EQ(fit.kernel.overhead_depth, 200.0);
  EXPECT_NEAR(fit.rate.value(), 240e12, 1e9);
  EXPECT_LT(fit.errors.largest, 1e-4);
}

TEST(GemmFit, FindsTheCoreItWasMadeWith) {
  const GemmKernel kernel{16, 8.0, 3.0, false};
  const Device device = synthetic(kernel, 1);
  std::vector<GemmPoint> points = products(device, Precision::kFp32);
  for (std::size_t index = 0; index < points.size(); index += 9) points[index].seconds *= 2.5;
  const GemmFit fit = fit_gemm("gemm fp32", points, Precision::kFp32, 1, cpu_gemm_search());
  EXPECT_NEAR(fit.rate.value(), 240e12, 0.02 * 240e12);
  EXPECT_LT(fit.errors.median, 0.01);
  EXPECT_GT(fit.errors.largest, 0.5) << "a disturbed sample is reported, not hidden";
}

TEST(GemmFit, RefusesWhatCannotBeFitted) {
  const auto problem = [](const std::vector<GemmPoint>& points) {
    try {
      fit_gemm("gemm fp32", points, Precision::kFp32, 1, cpu_gemm_search());
    } catch (const ConfigError& error) {
      return error.diagnostic().problem;
    }
    return std::string();
  };
  std::vector<GemmPoint> points = products(synthetic({16, 8.0, 3.0, false}, 1), Precision::kFp32);
  EXPECT_NE(problem({points[0], points[1]}).find("only 2 shapes"), std::string::npos);
  std::vector<GemmPoint> flat = points;
  for (GemmPoint& point : flat) point.seconds = 1e-6;
  EXPECT_NE(problem(flat).find("do not grow with the work"), std::string::npos);
  points[2].seconds = -1;
  EXPECT_NE(problem(points).find("is not a valid measurement"), std::string::npos);
}

std::vector<OverlapPoint> beside(double at_none, double per_channel, double noise = 0.0) {
  std::vector<OverlapPoint> points;
  int index = 0;
  for (const int channels : {1, 2, 4, 8, 16, 32}) {
    for (const double alone : {2e-4, 1.5e-3}) {
      const double factor = (at_none + per_channel * channels) * (1.0 + (index++ % 2 == 0 ? noise : -noise));
      points.push_back({"a sample", channels, alone, alone * factor});
    }
  }
  return points;
}

TEST(OverlapFit, FindsTheLineItWasMadeOf) {
  for (const auto& [at_none, per_channel] : {std::pair{1.0, 0.012}, {1.3, 0.0}, {1.5, -0.01}, {1.0, 0.0}}) {
    const OverlapFit fit = fit_overlap("gemm", beside(at_none, per_channel));
    EXPECT_NEAR(fit.at_none, at_none, 1e-6);
    EXPECT_NEAR(fit.per_channel, per_channel, 1e-7);
    EXPECT_LT(fit.errors.largest, 1e-6);
    EXPECT_LT(fit.left_out.largest, 1e-5);
    EXPECT_EQ(fit.left_out.samples, 12);
  }
  const OverlapFit noisy = fit_overlap("gemm", beside(1.1, 0.02, 0.03));
  EXPECT_NEAR(noisy.at_none + 16 * noisy.per_channel, 1.1 + 16 * 0.02, 0.05);
  EXPECT_GT(noisy.left_out.largest, noisy.errors.largest);
}

// Waves of tiles add steps to the slowdown, which a line cannot represent; the errors report it.
TEST(OverlapFit, TellsWhatALineMisses) {
  std::vector<OverlapPoint> points;
  for (const int channels : {1, 2, 4, 8, 16, 32}) {
    points.push_back({"a wave", channels, 1e-3, 1e-3 * (channels < 8 ? 1.0 : 2.0)});
  }
  const OverlapFit fit = fit_overlap("gemm", points);
  EXPECT_GT(fit.errors.largest, 0.1);
  EXPECT_GT(fit.left_out.largest, 0.2);
}

TEST(OverlapFit, RefusesWhatCannotBe) {
  std::vector<OverlapPoint> points = beside(1.0, 0.01);
  points.resize(4);
  EXPECT_THROW(fit_overlap("gemm", points), ConfigError) << "two channel counts";
  EXPECT_THROW(fit_overlap("gemm", beside(0.7, 0.0)), ConfigError) << "faster than alone";
  points = beside(1.0, 0.01);
  points[3].overlapped_s = std::nan("");
  EXPECT_THROW(fit_overlap("gemm", points), ConfigError);
  points[3].overlapped_s = 1e-3;
  points[3].alone_s = 0.0;
  EXPECT_THROW(fit_overlap("gemm", points), ConfigError);
}

}  // namespace
}  // namespace flopcast
