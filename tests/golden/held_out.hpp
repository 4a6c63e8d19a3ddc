#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/device/fits.hpp"

namespace flopcast {

/// Evaluates fits on rows of a measured table that were held out (is_held_out), and prints the errors of each table.

struct HeldOutMachine {
  const char* folder;
  const char* device;
  int multiprocessors;
};
const std::vector<HeldOutMachine>& held_out_machines();

/// Folder of the tables; nullopt without the reference folder.
std::optional<std::filesystem::path> held_out_tables();

struct HeldOut {
  RelativeErrors errors;
  double p90 = 0.0;
};
HeldOut held_out_errors(const std::vector<double>& fitted, const std::vector<double>& measured);

void print_held_out_heading(const char* what);
void print_held_out(const std::string& name, std::size_t trained, const HeldOut& held);

/// Counts how many of the tables that a fit accepts are predicted well.
class HeldOutTally {
 public:
  HeldOutTally(double median, double p90) : median_(median), p90_(p90) {}
  void add(const HeldOut& held);
  /// Prints and returns the number.
  int good() const;
  static constexpr double kAny = 1e9;

 private:
  double median_;
  double p90_;
  int tables_ = 0;
  int good_ = 0;
};

}  // namespace flopcast
