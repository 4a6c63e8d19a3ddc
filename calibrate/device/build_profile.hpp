#pragma once

#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "model/config/device_profile.hpp"

namespace flopcast {

/// What a measurement file does not say of itself.
struct ProfileRequest {
  std::string name;        ///< of the profile; empty: the device's
  std::string source;      ///< who measured, or where the figures are published
  std::string confidence;  ///< measured, imported or published
  std::string device;      ///< the catalogue's device that was measured; empty: the profile describes it itself
  /// Keys of the cluster that are known without a measurement, such as how a node is wired.
  nlohmann::json cluster = nlohmann::json::object();
  bool in_step = false;  ///< products were timed inside training steps, where clocks and power are those of a step
  bool host = false;     ///< the cores of a host: a device of generation cpu, whose links are its memory
};

/// The profile that fits the measurement. What is fitted depends on what was measured:
///   gemm         launch, rate, tiles (fit/gemm_fit.hpp); several precisions: each has its peak, the kernel is the one
///                with the most shapes
///   memory_copy  bandwidth: the slope of the last piece of the curve over sizes, which no cache holds
///   kernels      memory, attention, launches, host copies (describe_kernels.hpp)
///   messages     a curve for each kind and group of ranks and nodes (fit/message_fit.hpp)
///   overlaps     how much slower products and messages are beside each other (describe_overlaps.hpp)
/// Passes are pooled: a sample's time is the median of all its repetitions. Throws ConfigError when a fit refuses its
/// data, or when there is nothing to fit. Kinds that no forecast uses (broadcast, reduce) are left out. A fit of which
/// no figure follows and that refuses its data, and a precision that ran above its peak, are left out too; `notes`
/// tells of them, a sentence each.
DeviceProfile build_profile(const Measurement& measurement, const ProfileRequest& request,
                            std::vector<std::string>* notes = nullptr);

/// The profile's file, schema flopcast.profile/1.
std::string write_profile(const DeviceProfile& profile);

}  // namespace flopcast
