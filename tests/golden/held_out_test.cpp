// The fits against operators and messages that they have not seen: tables of an A100 and a GH200 measured elsewhere.
// Every fifth row is held out; the figures of each table are printed, and bounded where the tables allow it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <numeric>
#include <optional>

#include "calibrate/device/fit/gemm_fit.hpp"
#include "calibrate/device/fit/message_fit.hpp"
#include "calibrate/device/fit/product_fit.hpp"
#include "calibrate/device/fit/relative_fit.hpp"
#include "model/cost/compute.hpp"
#include "model/error/error.hpp"
#include "tests/golden/operator_tables.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

using Row = std::map<std::string, double>;

struct Machine {
  const char* folder;
  const char* device;
  int multiprocessors;
};
const std::vector<Machine>& machines() {
  static const std::vector<Machine> all = {{"Perlmutter", "NVIDIAA100-SXM4-80GB", 108},
                                           {"Vista", "NVIDIAGH200120GB", 132}};
  return all;
}

std::optional<std::filesystem::path> tables_folder() {
  const auto reference = reference_folder();
  if (!reference || !std::filesystem::is_directory(*reference / "measured" / "estimate-train-time"))
    return std::nullopt;
  return *reference / "measured" / "estimate-train-time";
}

struct HeldOut {
  RelativeErrors errors;
  double p90 = 0.0;
};

HeldOut held_out_errors(const std::vector<double>& fitted, const std::vector<double>& measured) {
  std::vector<double> sizes;
  for (std::size_t index = 0; index < fitted.size(); ++index) {
    sizes.push_back(std::abs(fitted[index] / measured[index] - 1.0));
  }
  return {relative_errors(fitted, measured), quantile_of(sizes, 0.9)};
}

void print(const std::string& name, std::size_t trained, const HeldOut& held) {
  std::cout << fmt::format("{:<58} {:>6} {:>6} {:>8.1f} {:>8.1f} {:>8.1f}\n", name, trained, held.errors.samples,
                           1e2 * held.errors.median, 1e2 * held.p90, 1e2 * held.errors.largest);
}

// How many of the tables that a fit accepts are predicted well.
class Tally {
 public:
  Tally(double median, double p90) : median_(median), p90_(p90) {}
  void add(const HeldOut& held) {
    ++tables_;
    good_ += held.errors.median < median_ && held.p90 < p90_ ? 1 : 0;
  }
  /// Printed and returned.
  int good() const {
    std::cout << fmt::format("  {} of {} tables below {:.0f} % in the median{}\n", good_, tables_, 1e2 * median_,
                             p90_ < kAny ? fmt::format(" and {:.0f} % at p90", 1e2 * p90_) : "");
    return good_;
  }
  static constexpr double kAny = 1e9;

 private:
  double median_;
  double p90_;
  int tables_ = 0;
  int good_ = 0;
};

void print_heading(const char* what) {
  std::cout << fmt::format("{:<58} {:>6} {:>6} {:>8} {:>8} {:>8}\n", what, "fitted", "held", "median %", "p90 %",
                           "max %");
}

// --- products ----------------------------------------------------------------------------------------------------

GemmShape shape_of(const std::string& table, const Row& row) {
  const double tokens = row.at("b") * row.at("l");
  const double dim = row.at("dim");
  const double mp = row.at("mp");
  const auto shape = [](double m, double n, double k, double batch = 1.0) {
    return GemmShape{std::llround(m), std::llround(n), std::llround(k), std::llround(batch)};
  };
  if (table == "linear1") return shape(tokens, 3 * dim / mp, dim);
  if (table == "linear2") return shape(tokens, dim / mp, dim);
  if (table == "linear3") return shape(tokens, 4 * dim / mp, dim);
  if (table == "linear4") return shape(tokens, dim, 4 * dim / mp);
  if (table == "linear_final") {
    // GPT-NeoX pads the vocabulary to a multiple of 128 for each rank.
    const double unit = 128 * mp;
    return shape(tokens, std::ceil(50257.0 / unit) * unit / mp, dim);
  }
  const double heads = row.at("h");
  const double batch = row.at("b") * heads / mp;
  if (table == "baddbmm") return shape(row.at("l"), row.at("l"), dim / heads, batch);
  return shape(row.at("l"), dim / heads, row.at("l"), batch);
}

struct Products {
  std::string table;
  std::vector<GemmPoint> fitted;
  std::vector<GemmPoint> held;
};

Products read_products(const std::filesystem::path& folder, const Machine& machine, const std::string& table) {
  const OperatorTable rows =
      read_operator_table(folder / machine.folder / "operator" / fmt::format("{}_{}_fp16.csv", machine.device, table));
  Products products{table, {}, {}};
  for (const Row& row : rows.rows) {
    const GemmPoint point{shape_of(table, row), row.at("F_dur(us)") * 1e-6};
    (is_held_out(row) ? products.held : products.fitted).push_back(point);
  }
  return products;
}

HeldOut predict(const GemmFit& fit, int multiprocessors, const std::vector<GemmPoint>& held) {
  Device device;
  device.multiprocessors = multiprocessors;
  device.gemm_kernel = fit.kernel;
  device.gemm_efficiency = 1.0;
  device.peak.fill(fit.rate);
  device.kernel_launch = fit.launch;
  device.memory_bandwidth = fit.stream.value_or(BytesPerSecond(1e15));
  device.gemm_kernel.memory_efficiency = 1.0;
  const ComputeModel model(device, Precision::kFp16);
  std::vector<double> fitted;
  std::vector<double> measured;
  for (const GemmPoint& point : held) {
    fitted.push_back(model.gemm(point.shape, 2.0).value());
    measured.push_back(point.seconds);
  }
  return held_out_errors(fitted, measured);
}

// One fit for each device, of the five linear layers together: what a profile would hold.
TEST(HeldOut, Products) {
  const auto folder = tables_folder();
  if (!folder) GTEST_SKIP() << "no reference folder: the GEMM fit was not tried on measured tables";
  print_heading("products, one fit a device");
  Tally tally(0.05, 0.15);
  for (const Machine& machine : machines()) {
    std::vector<Products> tables;
    std::vector<GemmPoint> all;
    for (const char* table : {"linear1", "linear2", "linear3", "linear4", "linear_final"}) {
      tables.push_back(read_products(*folder, machine, table));
      all.insert(all.end(), tables.back().fitted.begin(), tables.back().fitted.end());
    }
    const GemmFit fit = fit_gemm("gemm fp16", all, Precision::kFp16, machine.multiprocessors, gpu_gemm_search());
    for (const Products& products : tables) {
      const HeldOut held = predict(fit, machine.multiprocessors, products.held);
      print(fmt::format("{} {}", machine.device, products.table), products.fitted.size(), held);
      tally.add(held);
      // The worst of the ten, with little room.
      EXPECT_LT(held.errors.median, 0.065) << products.table;
      EXPECT_LT(held.p90, 0.16) << products.table;
    }
    std::cout << fmt::format("  launch {:.1f} us, rate {:.1f} TFLOP/s, depth {}\n", 1e6 * fit.launch.value(),
                             fit.rate.value() / 1e12, fit.kernel.overhead_depth);
  }
  EXPECT_GE(tally.good(), 7);
}

// --- operators of memory and attention ---------------------------------------------------------------------------

struct Samples {
  std::vector<FitRow> fitted;
  std::vector<FitRow> held;
};

Samples split(const OperatorTable& table, const std::string& duration,
              const std::function<std::vector<double>(const Row&)>& terms) {
  Samples samples;
  for (const Row& row : table.rows) {
    FitRow sample{terms(row), row.at(duration) * 1e-6};
    if (sample.measured <= 0.0) continue;
    (is_held_out(row) ? samples.held : samples.fitted).push_back(std::move(sample));
  }
  return samples;
}

std::vector<double> predictions(const Samples& samples) {
  const RelativeFit fit = fit_relative(samples.fitted);
  std::vector<double> fitted;
  for (const FitRow& row : samples.held) {
    fitted.push_back(std::inner_product(row.terms.begin(), row.terms.end(), fit.unknowns.begin(), 0.0));
  }
  return fitted;
}

HeldOut predict_linear(const Samples& samples) {
  std::vector<double> measured;
  for (const FitRow& row : samples.held) measured.push_back(row.measured);
  return held_out_errors(predictions(samples), measured);
}

double value(const Row& row, const char* name, double otherwise = 1.0) {
  const auto found = row.find(name);
  return found == row.end() ? otherwise : found->second;
}

// What the operator's kernels go over: elements, and what does not grow with the tokens or grows otherwise.
std::vector<double> memory_terms(const std::string& table, const Row& row) {
  const double tokens = row.at("b") * row.at("l");
  const double mp = value(row, "mp");
  const double dim = value(row, "dim");
  if (table == "fillmask") return {1.0, tokens * row.at("h") / mp * row.at("l")};
  if (table == "softmax" || table == "ScaledUpperTriangMaskedSoftmax") {
    const double rows = row.at("b") * row.at("h") / mp * row.at("l");
    return {1.0, rows * row.at("l"), rows};
  }
  if (table == "gelu") return {1.0, tokens * 4 * dim / mp};
  if (table == "parallel_cross_entropy_128") return {1.0, tokens / mp, tokens};
  // The rank's part of the table: its gradient is cleared and added up as a whole.
  if (table == "embedding") return {1.0, tokens * dim, dim / mp, tokens};
  // Angles are read for each position and head dimension.
  if (table == "RoPE") return {1.0, tokens * dim / mp, row.at("l") * dim / row.at("h"), tokens * row.at("h") / mp};
  return {1.0, tokens * dim};
}

// What a product form of the same operators takes.
std::vector<double> memory_factors(const std::string& table, const Row& row) {
  const double tokens = row.at("b") * row.at("l");
  const double mp = value(row, "mp");
  const double dim = value(row, "dim");
  if (table == "fillmask" || table == "softmax" || table == "ScaledUpperTriangMaskedSoftmax") {
    return {row.at("b") * row.at("h") / mp * row.at("l"), row.at("l")};
  }
  if (table == "gelu") return {tokens, 4 * dim / mp};
  if (table == "parallel_cross_entropy_128") return {tokens, mp};
  if (table == "embedding") return {tokens, dim, mp};
  if (table == "RoPE") return {tokens, dim / mp, dim / row.at("h"), row.at("l")};
  return {tokens, dim};
}

struct Predicted {
  HeldOut held;
  double fitted_median = 0.0;  // error of the rows that were fitted: what a choice of form may look at
};

Predicted predict_sum(const OperatorTable& table, const std::string& name, const std::string& duration) {
  const Samples samples = split(table, duration, [&](const Row& row) { return memory_terms(name, row); });
  return {predict_linear(samples), predict_linear({samples.fitted, samples.fitted}).errors.median};
}

Predicted predict_product(const OperatorTable& table, const std::string& name, const std::string& duration) {
  std::vector<ProductRow> rows;
  std::vector<ProductRow> held;
  for (const Row& row : table.rows) {
    ProductRow sample{memory_factors(name, row), row.at(duration) * 1e-6};
    if (sample.measured > 0.0) (is_held_out(row) ? held : rows).push_back(std::move(sample));
  }
  const ProductFit fit(rows);
  const auto errors_of = [&fit](const std::vector<ProductRow>& of) {
    std::vector<double> fitted;
    std::vector<double> measured;
    for (const ProductRow& row : of) {
      fitted.push_back(fit.time(row.factors));
      measured.push_back(row.measured);
    }
    return held_out_errors(fitted, measured);
  };
  return {errors_of(held), errors_of(rows).errors.median};
}

// A launch and a time an element, or powers of what the time depends on: whichever fits the other rows better.
TEST(HeldOut, MemoryBoundOperators) {
  const auto folder = tables_folder();
  if (!folder) GTEST_SKIP() << "no reference folder: the fits were not tried on measured operators";
  print_heading("kernels that memory bounds");
  Tally tally(0.08, Tally::kAny);
  for (const Machine& machine : machines()) {
    for (const char* name : {"layernorm", "RMSlayernorm", "res_add", "gelu", "RoPE", "softmax", "fillmask",
                             "ScaledUpperTriangMaskedSoftmax", "embedding", "parallel_cross_entropy_128"}) {
      const OperatorTable table = read_operator_table(*folder / machine.folder / "operator" /
                                                      fmt::format("{}_{}_fp16.csv", machine.device, name));
      for (const char* duration : {"F_dur(us)", "B_dur(us)"}) {
        const Predicted sum = predict_sum(table, name, duration);
        const Predicted product = predict_product(table, name, duration);
        const bool as_sum = sum.fitted_median <= product.fitted_median;
        const HeldOut& held = as_sum ? sum.held : product.held;
        print(fmt::format("{} {} {}, {}", machine.device, name, duration[0] == 'F' ? "forward" : "backward",
                          as_sum ? "sum" : "product"),
              table.rows.size() - static_cast<std::size_t>(held.errors.samples), held);
        tally.add(held);
      }
    }
  }
  EXPECT_GE(tally.good(), 38);
}

// Fused attention pads its head dimension to a multiple of 32, and each multiple is a kernel of its own. What it takes:
// a launch, its operands, and its causal FLOPs, padded or not; a last wave of blocks of 128 queries is as long as a
// full one.
int padded_dimension(const Row& row) {
  constexpr int kUnit = 32;
  return kUnit * static_cast<int>(std::ceil(row.at("dim") / row.at("h") / kUnit));
}

std::vector<double> attention_terms(const Row& row, int multiprocessors) {
  constexpr double kBlock = 128.0;
  const double heads = row.at("b") * row.at("h") / row.at("mp");
  const double blocks = heads * std::ceil(row.at("l") / kBlock);
  const double waves = std::ceil(blocks / multiprocessors) * multiprocessors / blocks;
  const double dimension = row.at("dim") / row.at("h");
  const double scores = heads * row.at("l") * row.at("l") * waves;
  return {1.0, heads * row.at("l") * dimension, scores * padded_dimension(row), scores * dimension};
}

// A backward pass has 2.5 times the FLOPs of the forward pass. One table's backward times are mostly shorter than its
// forward ones, and beyond the device's peak: something else was timed.
bool backward_is_no_pass(const OperatorTable& table) {
  const auto shorter = std::count_if(table.rows.begin(), table.rows.end(),
                                     [](const Row& row) { return row.at("B_dur(us)") < row.at("F_dur(us)"); });
  return 2 * static_cast<std::size_t>(shorter) > table.rows.size();
}

TEST(HeldOut, Attention) {
  const auto folder = tables_folder();
  if (!folder) GTEST_SKIP() << "no reference folder: the fits were not tried on measured attention";
  print_heading("launch, operands and causal FLOPs, a fit a kernel");
  Tally tally(0.08, Tally::kAny);
  for (const Machine& machine : machines()) {
    const OperatorTable table = read_operator_table(*folder / machine.folder / "operator" /
                                                    fmt::format("{}_flash_atten_fp16.csv", machine.device));
    std::map<int, OperatorTable> kernels;
    for (const Row& row : table.rows) kernels[padded_dimension(row)].rows.push_back(row);
    for (const char* duration : {"F_dur(us)", "B_dur(us)"}) {
      if (duration[0] == 'B' && backward_is_no_pass(table)) {
        std::cout << fmt::format("{:<58} refused: backward passes shorter than forward ones\n", table.name);
        continue;
      }
      std::vector<double> fitted;
      std::vector<double> measured;
      std::size_t trained = 0;
      for (const auto& [dimension, rows] : kernels) {
        const Samples samples =
            split(rows, duration, [&](const Row& row) { return attention_terms(row, machine.multiprocessors); });
        const std::vector<double> predicted = predictions(samples);
        fitted.insert(fitted.end(), predicted.begin(), predicted.end());
        for (const FitRow& row : samples.held) measured.push_back(row.measured);
        trained += samples.fitted.size();
      }
      const HeldOut held = held_out_errors(fitted, measured);
      print(fmt::format("{} flash {}", machine.device, duration[0] == 'F' ? "forward" : "backward"), trained, held);
      tally.add(held);
    }
  }
  EXPECT_GE(tally.good(), 3);
}

// --- messages ----------------------------------------------------------------------------------------------------

// Some tables hold times of messages that were not sent: 1.1 GB in 0.1 ms.
std::optional<MessageCurve> curve_or_refusal(const std::string& name, const std::vector<MessagePoint>& points) {
  try {
    return fit_message_curve(name, points).curve;
  } catch (const ConfigError& error) {
    std::cout << fmt::format("{:<58} refused: {}\n", name, error.diagnostic().problem);
    return std::nullopt;
  }
}

TEST(HeldOut, Collectives) {
  const auto folder = tables_folder();
  if (!folder) GTEST_SKIP() << "no reference folder: the curves were not tried on measured collectives";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "fitting a thousand curves takes a sanitizer ten minutes; fits_test runs the same code";
#endif
  print_heading("curves");
  Tally tally(0.08, Tally::kAny);
  int refused = 0;
  for (const Machine& machine : machines()) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(*folder / machine.folder / "nccl")) {
      files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const std::filesystem::path& file : files) {
      const std::string name = file.stem().string();
      // The summary of the models, and tables that the others are parts of.
      const bool grouped = name.size() > 4 && name[name.size() - 2] == '_' && name[name.size() - 4] == '_';
      if (!grouped) continue;
      std::vector<MessagePoint> fitted;
      std::vector<MessagePoint> held;
      for (const Row& row : read_operator_table(file).rows) {
        const MessagePoint point{row.at("shape") * 2.0, row.at("dur(us)") * 1e-6};
        (is_held_out(row) ? held : fitted).push_back(point);
      }
      const std::optional<MessageCurve> curve = curve_or_refusal(name, fitted);
      if (!curve) {
        ++refused;
        continue;
      }
      std::vector<double> predicted;
      std::vector<double> measured;
      for (const MessagePoint& point : held) {
        predicted.push_back(curve->time(Bytes(point.bytes)).value());
        measured.push_back(point.seconds);
      }
      const HeldOut errors = held_out_errors(predicted, measured);
      print(name, fitted.size(), errors);
      tally.add(errors);
    }
  }
  EXPECT_GE(tally.good(), 27);
  EXPECT_LE(refused, 2);
}

}  // namespace
}  // namespace flopcast
