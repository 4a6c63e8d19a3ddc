// The fits on unseen operators and messages: tables of an A100 and a GH200 measured elsewhere. Every fifth row is held
// out; the figures of each table are printed, and bounded if the tables allow it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <numeric>
#include <optional>

#include "base/text/error.hpp"
#include "calibrate/device/fits.hpp"
#include "tests/golden/held_out.hpp"
#include "tests/golden/operator_tables.hpp"
#include "tests/support/product_fit.hpp"

namespace flopcast {
namespace {

using Row = std::map<std::string, double>;

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

// Work of the operator's kernels: elements, and terms that are constant or grow differently with the tokens.
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
  // The rank's part of the table, whose gradient is cleared and summed as a whole.
  if (table == "embedding") return {1.0, tokens * dim, dim / mp, tokens};
  // Angles are read for each position and head dimension.
  if (table == "RoPE") return {1.0, tokens * dim / mp, row.at("l") * dim / row.at("h"), tokens * row.at("h") / mp};
  return {1.0, tokens * dim};
}

// Factors of a product form for the same operators.
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
  double fitted_median = 0.0;  // error of the fitted rows, on which the choice of a form may depend
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

// Elements beyond 2^31 bytes have offsets that exceed 32 bits: PyTorch splits such a tensor in halves until they fit,
// with one kernel per part. The GH200's table gives the time of one of them as that of the forward pass: a half, a
// quarter and an eighth of the time of the same elements below that size.
double parts_in_32_bits(const Row& row) {
  constexpr double kMostBytes = 2147483648.0;
  const double bytes = 2.0 * row.at("b") * row.at("h") / row.at("mp") * row.at("l") * row.at("l");
  double parts = 1.0;
  while (bytes / parts > kMostBytes) parts *= 2.0;
  return parts;
}

OperatorTable read_memory_bound(const std::filesystem::path& folder, const HeldOutMachine& machine,
                                const std::string& name) {
  OperatorTable table =
      read_operator_table(folder / machine.folder / "operator" / fmt::format("{}_{}_fp16.csv", machine.device, name));
  if (name != "fillmask" || std::string(machine.folder) != "Vista") return table;
  for (Row& row : table.rows) row.at("F_dur(us)") *= parts_in_32_bits(row);
  return table;
}

// A launch and a time per element, or powers of the factors: whichever fits the other rows better.
TEST(HeldOut, MemoryBoundOperators) {
  const auto folder = held_out_tables();
  if (!folder) GTEST_SKIP() << "no reference folder: the fits were not tried on measured operators";
  print_held_out_heading("kernels that memory bounds");
  HeldOutTally tally(0.08, HeldOutTally::kAny);
  for (const HeldOutMachine& machine : held_out_machines()) {
    for (const char* name : {"layernorm", "RMSlayernorm", "res_add", "gelu", "RoPE", "softmax", "fillmask",
                             "ScaledUpperTriangMaskedSoftmax", "embedding", "parallel_cross_entropy_128"}) {
      const OperatorTable table = read_memory_bound(*folder, machine, name);
      for (const char* duration : {"F_dur(us)", "B_dur(us)"}) {
        const Predicted sum = predict_sum(table, name, duration);
        const Predicted product = predict_product(table, name, duration);
        const bool as_sum = sum.fitted_median <= product.fitted_median;
        const HeldOut& held = as_sum ? sum.held : product.held;
        print_held_out(fmt::format("{} {} {}, {}", machine.device, name, duration[0] == 'F' ? "forward" : "backward",
                                   as_sum ? "sum" : "product"),
                       table.rows.size() - static_cast<std::size_t>(held.errors.samples), held);
        tally.add(held);
      }
    }
  }
  EXPECT_EQ(tally.good(), 40);
}

// Fused attention pads its head dimension to a multiple of 32, with a separate kernel for each multiple. Time terms: a
// launch, the operands, and the causal FLOPs, padded or not; a last wave of blocks of 128 queries takes as long as a
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

// A backward pass has 2.5 times the FLOPs of the forward pass. The backward times of one table are mostly shorter than
// its forward times and beyond the device's peak, so something else was timed.
bool backward_is_no_pass(const OperatorTable& table) {
  const auto shorter = std::count_if(table.rows.begin(), table.rows.end(),
                                     [](const Row& row) { return row.at("B_dur(us)") < row.at("F_dur(us)"); });
  return 2 * static_cast<std::size_t>(shorter) > table.rows.size();
}

TEST(HeldOut, Attention) {
  const auto folder = held_out_tables();
  if (!folder) GTEST_SKIP() << "no reference folder: the fits were not tried on measured attention";
  print_held_out_heading("launch, operands and causal FLOPs, a fit a kernel");
  HeldOutTally tally(0.08, HeldOutTally::kAny);
  for (const HeldOutMachine& machine : held_out_machines()) {
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
      print_held_out(fmt::format("{} flash {}", machine.device, duration[0] == 'F' ? "forward" : "backward"), trained,
                     held);
      tally.add(held);
    }
  }
  EXPECT_GE(tally.good(), 3);
}

// --- messages ----------------------------------------------------------------------------------------------------

// Some tables contain times of messages that were not sent (1.1 GB in 0.1 ms), and one contains other traffic.
std::optional<MessageCurve> curve_or_refusal(const std::string& name, const std::vector<MessagePoint>& points) {
  try {
    return fit_message_curve(name, points).curve;
  } catch (const ConfigError& error) {
    std::cout << fmt::format("{:<58} refused: {}\n", name, error.diagnostic().problem);
    return std::nullopt;
  }
}

TEST(HeldOut, Collectives) {
  const auto folder = held_out_tables();
  if (!folder) GTEST_SKIP() << "no reference folder: the curves were not tried on measured collectives";
  print_held_out_heading("curves");
  HeldOutTally tally(0.08, HeldOutTally::kAny);
  int refused = 0;
  for (const HeldOutMachine& machine : held_out_machines()) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(*folder / machine.folder / "nccl")) {
      files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const std::filesystem::path& file : files) {
      const std::string name = file.stem().string();
      // Skips the summary of the models, and tables that are contained in others.
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
      print_held_out(name, fitted.size(), errors);
      tally.add(errors);
    }
  }
  EXPECT_EQ(tally.good(), 28);
  EXPECT_EQ(refused, 3);
}

}  // namespace
}  // namespace flopcast
