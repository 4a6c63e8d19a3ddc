// The GEMM fit on unseen GEMMs: linear layers of an A100 and a GH200 measured elsewhere. Every fifth row is held out;
// the figures of each table are printed and bounded.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <numeric>

#include "calibrate/device/fits.hpp"
#include "model/cost/compute.hpp"
#include "tests/golden/held_out.hpp"
#include "tests/golden/operator_tables.hpp"

namespace flopcast {
namespace {

using Row = std::map<std::string, double>;
constexpr double kHalf = 2.0;  // bytes of an fp16 number

GemmShape shape_of(const std::string& table, const Row& row) {
  const double tokens = row.at("b") * row.at("l");
  const double dim = row.at("dim");
  const double mp = row.at("mp");
  const auto shape = [](double m, double n, double k) {
    return GemmShape{std::llround(m), std::llround(n), std::llround(k), 1};
  };
  if (table == "linear1") return shape(tokens, 3 * dim / mp, dim);
  if (table == "linear2") return shape(tokens, dim / mp, dim);
  if (table == "linear3") return shape(tokens, 4 * dim / mp, dim);
  if (table == "linear4") return shape(tokens, dim, 4 * dim / mp);
  // GPT-NeoX pads the vocabulary to a multiple of 128 for each rank.
  const double unit = 128 * mp;
  return shape(tokens, std::ceil(50257.0 / unit) * unit / mp, dim);
}

// A row: time of its forward pass, and of both GEMMs of its backward pass.
struct LinearRow {
  GemmPoint forward;
  double backward_s = 0.0;
};

struct LinearTable {
  std::string name;
  std::vector<LinearRow> fitted;
  std::vector<LinearRow> held;
};

LinearTable read_linear(const std::filesystem::path& folder, const HeldOutMachine& machine, const std::string& name) {
  LinearTable table{name, {}, {}};
  const auto file = folder / machine.folder / "operator" / fmt::format("{}_{}_fp16.csv", machine.device, name);
  for (const Row& row : read_operator_table(file).rows) {
    const LinearRow linear{{shape_of(name, row), row.at("F_dur(us)") * 1e-6}, row.at("B_dur(us)") * 1e-6};
    (is_held_out(row) ? table.held : table.fitted).push_back(linear);
  }
  return table;
}

Device device_of(const GemmFit& fit, int multiprocessors) {
  Device device;
  device.multiprocessors = multiprocessors;
  device.gemm_kernel = fit.kernel;
  device.gemm_efficiency = 1.0;
  device.peak.fill(fit.rate);
  device.kernel_launch = fit.launch;
  device.memory_bandwidth = fit.stream.value_or(BytesPerSecond(1e15));
  device.gemm_kernel.memory_efficiency = 1.0;
  return device;
}

HeldOut errors_of(const std::vector<LinearRow>& rows, const std::vector<double>& predicted) {
  std::vector<double> measured;
  for (const LinearRow& row : rows) measured.push_back(row.forward.seconds);
  return held_out_errors(predicted, measured);
}

std::vector<double> forward_times(const ComputeModel& model, const std::vector<LinearRow>& rows) {
  std::vector<double> times;
  for (const LinearRow& row : rows) times.push_back(model.gemm(row.forward.shape, kHalf).value());
  return times;
}

// Logarithm of the slowdown of each row's backward pass relative to the model.
std::vector<double> slowness(const ComputeModel& model, const std::vector<LinearRow>& rows) {
  std::vector<double> logs;
  for (const LinearRow& row : rows) {
    const auto [m, n, k, batch] = row.forward.shape;
    const double expected =
        model.gemm({m, k, n, batch}, kHalf).value() + model.weight_gradient({k, n, m, batch}, kHalf).value();
    logs.push_back(std::log(row.backward_s / expected));
  }
  return logs;
}

// Forward times of the held-out rows, corrected by the device state that their backward passes reveal: a line through
// the logarithms of the fitted rows.
std::vector<double> times_in_state(const ComputeModel& model, const LinearTable& table) {
  const std::vector<double> state = slowness(model, table.fitted);
  std::vector<double> left = forward_times(model, table.fitted);
  for (std::size_t row = 0; row < left.size(); ++row) {
    left[row] = std::log(table.fitted[row].forward.seconds / left[row]);
  }
  const double count = static_cast<double>(state.size());
  const double mean_state = std::accumulate(state.begin(), state.end(), 0.0) / count;
  const double mean_left = std::accumulate(left.begin(), left.end(), 0.0) / count;
  double both = 0.0;
  double squares = 0.0;
  for (std::size_t row = 0; row < left.size(); ++row) {
    both += (state[row] - mean_state) * (left[row] - mean_left);
    squares += (state[row] - mean_state) * (state[row] - mean_state);
  }
  std::vector<double> times = forward_times(model, table.held);
  const std::vector<double> of_held = slowness(model, table.held);
  for (std::size_t row = 0; row < times.size(); ++row) {
    times[row] *= std::exp(mean_left + both / squares * (of_held[row] - mean_state));
  }
  return times;
}

// One fit per device over the five linear layers together, as in a profile. The A100 ran the same GEMM either at about
// 235 or at about 275 TFLOP/s, forward and backward pass of a row alike, independent of the shape. The second figures
// infer the state from the backward pass.
TEST(HeldOut, Products) {
  const auto folder = held_out_tables();
  if (!folder) GTEST_SKIP() << "no reference folder: the GEMM fit was not tried on measured tables";
  HeldOutTally by_shape(0.05, 0.15);
  HeldOutTally by_state(0.05, 0.15);
  for (const HeldOutMachine& machine : held_out_machines()) {
    std::vector<LinearTable> tables;
    std::vector<GemmPoint> all;
    for (const char* name : {"linear1", "linear2", "linear3", "linear4", "linear_final"}) {
      tables.push_back(read_linear(*folder, machine, name));
      for (const LinearRow& row : tables.back().fitted) all.push_back(row.forward);
    }
    const GemmFit fit = fit_gemm("gemm fp16", all, Precision::kFp16, machine.multiprocessors, gpu_gemm_search());
    const Device device = device_of(fit, machine.multiprocessors);
    const ComputeModel model(device, Precision::kFp16);
    print_held_out_heading("products, one fit a device");
    for (const LinearTable& table : tables) {
      const HeldOut held = errors_of(table.held, forward_times(model, table.held));
      const HeldOut in_state = errors_of(table.held, times_in_state(model, table));
      print_held_out(fmt::format("{} {}", machine.device, table.name), table.fitted.size(), held);
      print_held_out("  as its backward pass was", table.fitted.size(), in_state);
      by_shape.add(held);
      by_state.add(in_state);
      // The worst of the ten, with little margin.
      EXPECT_LT(held.errors.median, 0.062) << table.name;
      EXPECT_LT(held.p90, 0.125) << table.name;
    }
    std::cout << fmt::format("  launch {:.1f} us, rate {:.1f} TFLOP/s, depth {}, share of an empty wave {}\n",
                             1e6 * fit.launch.value(), fit.rate.value() / 1e12, fit.kernel.overhead_depth,
                             fit.kernel.wave_share);
  }
  EXPECT_GE(by_shape.good(), 8);
  EXPECT_EQ(by_state.good(), 10);
}

}  // namespace
}  // namespace flopcast
