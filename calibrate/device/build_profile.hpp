#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "model/hardware/device.hpp"
#include "model/job/device_profile.hpp"

namespace flopcast {

/// Device of the catalogue that a GPU's reported name refers to: "NVIDIA H100 80GB HBM3" is h100. Every word of the
/// catalogue's name must occur in the GPU's name ("80g" also matches "80GB"); if several devices match, the one with
/// the most words wins. Absent if none matches, if the best match is ambiguous, or if a word marks another variant:
/// NVL, unless the catalogue's name has it too, and a partition of a GPU (MIG).
std::optional<std::string> catalogued_device(const std::string& gpu);

/// True for "NVIDIA H200 MIG 1g.18gb": its multiprocessors and memory are only part of the GPU's.
bool is_part_of_gpu(const std::string& gpu);

/// Facts about a profile that its measurement file does not contain.
struct ProfileRequest {
  std::string name;        ///< name of the profile; empty: the device's name
  std::string source;      ///< who measured, or where the figures are published
  std::string confidence;  ///< measured, imported or published
  std::string device;  ///< device of the catalogue that was measured; empty: the profile describes the device itself
  /// Cluster keys that are known without a measurement, such as how a node is wired.
  JsonValue cluster = JsonValue::object();
  bool in_step = false;  ///< GEMMs were timed inside training steps, at the clocks and power of a step
  bool host = false;     ///< the device is the cores of a host: generation cpu, and its links are the host's memory
};

/// Fits a profile to the measurement. The fits depend on which samples the measurement has:
///   gemm         launch, rate, tiles (fits.hpp); if several precisions were measured, each has its own peak, and the
///                kernel comes from the one with the most shapes
///   memory_copy  bandwidth: the slope of the last segment of the curve over sizes, beyond every cache; on a host,
///                whose caches hold most sizes, the slope from a quarter of the largest copy to the largest
///   kernels      memory, attention, launches, host copies
///   messages     one curve per kind and group of ranks and nodes (fits.hpp)
///   overlaps     slowdown of GEMMs and messages while they overlap
/// Passes are pooled: a sample's time is the median of all its repetitions. Throws ConfigError when a fit rejects its
/// data or when there is nothing to fit. Kinds that no forecast uses (broadcast, reduce) are left out. So are fits that
/// no figure depends on if they reject their data, and precisions that ran above their peak; `notes` gets one sentence
/// for each.
DeviceProfile build_profile(const Measurement& measurement, const ProfileRequest& request,
                            std::vector<std::string>* notes = nullptr);

}  // namespace flopcast
