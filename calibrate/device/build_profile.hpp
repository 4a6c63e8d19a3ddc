#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "model/hardware/device.hpp"
#include "model/job/device_profile.hpp"

namespace flopcast {

/// The catalogue's device that a GPU's own name tells: "NVIDIA H100 80GB HBM3" is h100. Every word of the catalogue's
/// name is one of the GPU's ("80g" also of "80GB"); of several such devices the one with the most words. Absent when
/// there is none, or no single one, and where a word says that it is another: NVL, unless the catalogue's name has it
/// too, and a part of a GPU (MIG).
std::optional<std::string> catalogued_device(const std::string& gpu);

/// "NVIDIA H200 MIG 1g.18gb": its multiprocessors and memory are a part of the GPU's.
bool is_part_of_gpu(const std::string& gpu);

/// What a measurement file does not say of itself.
struct ProfileRequest {
  std::string name;        ///< of the profile; empty: the device's
  std::string source;      ///< who measured, or where the figures are published
  std::string confidence;  ///< measured, imported or published
  std::string device;      ///< the catalogue's device that was measured; empty: the profile describes it itself
  /// Keys of the cluster that are known without a measurement, such as how a node is wired.
  JsonValue cluster = JsonValue::object();
  bool in_step = false;  ///< products were timed inside training steps, where clocks and power are those of a step
  bool host = false;     ///< the cores of a host: a device of generation cpu, whose links are its memory
};

/// The profile that fits the measurement. What is fitted depends on what was measured:
///   gemm         launch, rate, tiles (fits.hpp); several precisions: each has its peak, the kernel is the one
///                with the most shapes
///   memory_copy  bandwidth: the slope of the last piece of the curve over sizes, which no cache holds; of a host,
///                whose caches hold most sizes, that from a quarter of the largest copy to the largest
///   kernels      memory, attention, launches, host copies
///   messages     a curve for each kind and group of ranks and nodes (fits.hpp)
///   overlaps     how much slower products and messages are beside each other
/// Passes are pooled: a sample's time is the median of all its repetitions. Throws ConfigError when a fit refuses its
/// data, or when there is nothing to fit. Kinds that no forecast uses (broadcast, reduce) are left out. A fit of which
/// no figure follows and that refuses its data, and a precision that ran above its peak, are left out too; `notes`
/// tells of them, a sentence each.
DeviceProfile build_profile(const Measurement& measurement, const ProfileRequest& request,
                            std::vector<std::string>* notes = nullptr);

}  // namespace flopcast
