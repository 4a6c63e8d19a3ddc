#include "tests/golden/held_out.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iostream>

#include "tests/support/folders.hpp"

namespace flopcast {

const std::vector<HeldOutMachine>& held_out_machines() {
  static const std::vector<HeldOutMachine> all = {{"Perlmutter", "NVIDIAA100-SXM4-80GB", 108},
                                                  {"Vista", "NVIDIAGH200120GB", 132}};
  return all;
}

std::optional<std::filesystem::path> held_out_tables() {
  const auto reference = reference_folder();
  if (!reference || !std::filesystem::is_directory(*reference / "measured" / "estimate-train-time"))
    return std::nullopt;
  return *reference / "measured" / "estimate-train-time";
}

HeldOut held_out_errors(const std::vector<double>& fitted, const std::vector<double>& measured) {
  std::vector<double> sizes;
  for (std::size_t index = 0; index < fitted.size(); ++index) {
    sizes.push_back(std::abs(fitted[index] / measured[index] - 1.0));
  }
  return {relative_errors(fitted, measured), quantile_of(sizes, 0.9)};
}

void print_held_out_heading(const char* what) {
  std::cout << fmt::format("{:<58} {:>6} {:>6} {:>8} {:>8} {:>8}\n", what, "fitted", "held", "median %", "p90 %",
                           "max %");
}

void print_held_out(const std::string& name, std::size_t trained, const HeldOut& held) {
  std::cout << fmt::format("{:<58} {:>6} {:>6} {:>8.1f} {:>8.1f} {:>8.1f}\n", name, trained, held.errors.samples,
                           1e2 * held.errors.median, 1e2 * held.p90, 1e2 * held.errors.largest);
}

void HeldOutTally::add(const HeldOut& held) {
  ++tables_;
  good_ += held.errors.median < median_ && held.p90 < p90_ ? 1 : 0;
}

int HeldOutTally::good() const {
  std::cout << fmt::format("  {} of {} tables below {:.0f} % in the median{}\n", good_, tables_, 1e2 * median_,
                           p90_ < kAny ? fmt::format(" and {:.0f} % at p90", 1e2 * p90_) : "");
  return good_;
}

}  // namespace flopcast
