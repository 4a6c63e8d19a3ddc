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

/// Adds the samples of `more`, read from `file`; what is there already becomes a further pass. Throws ConfigError when
/// both name a device and it is not the same.
void add_samples(Measurement& all, const Measurement& more, const std::string& file);

/// Takes out what cannot be fitted: products of a precision that no forecast uses or with too few shapes, kernels,
/// copies and messages of a group with too few sizes. One sentence for each, for the user. For files that hold what
/// happened to run, or what the time sufficed for.
std::vector<std::string> leave_out_small_groups(Measurement& measurement);

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
///   kernels      memory, attention, launches, host copies (describe.cpp)
///   messages     a curve for each kind and group of ranks and nodes (fits.hpp)
///   overlaps     how much slower products and messages are beside each other (describe.cpp)
/// Passes are pooled: a sample's time is the median of all its repetitions. Throws ConfigError when a fit refuses its
/// data, or when there is nothing to fit. Kinds that no forecast uses (broadcast, reduce) are left out. A fit of which
/// no figure follows and that refuses its data, and a precision that ran above its peak, are left out too; `notes`
/// tells of them, a sentence each.
DeviceProfile build_profile(const Measurement& measurement, const ProfileRequest& request,
                            std::vector<std::string>* notes = nullptr);

/// The fits of a measurement's kernels beside products, added to `profile`, and the figures of `device` and of the
/// profile's cluster that follow:
///   norm, elementwise           memory_efficiency: the rate of all of them together over `bandwidth`
///   optimizer                   adam_efficiency: the rate of Adam's update over `bandwidth`, where a fit is possible;
///                               of SGD's a fit, and no figure
///   embedding, loss             a fit each, and no figure: a forecast knows their bytes
///   attention                   flash_forward_efficiency and flash_backward_efficiency, shares of the peak; a fit and
///                               no figure where `operator` names the kernel: it is not the one that others train with
///   launch                      kernel_launch, the median
///   host_copy                   the cluster's host_bandwidth
/// `catalogue` is the catalogue's device, for its peaks; `bandwidth` is the one that a forecast will use. Host
/// dispatches, and what ran beside something else, are kept in measurements; no figure of a device tells of them.
/// A fit that gives no figure and refuses its data is left out, with the reason in `notes`. Throws ConfigError when
/// another one does, or a kernel was faster than the device can be.
void describe_kernels(const Measurement& measurement, const Device& catalogue, BytesPerSecond bandwidth,
                      DeviceProfile& profile, nlohmann::json& device, std::vector<std::string>& notes);

/// The slowdowns of what ran beside something else, over the channels of the message or channel copy of the two: added
/// to `profile` as fits and as `overlaps`. A sample counts when the same one was measured alone too; kinds with fewer
/// than three numbers of channels are left out. No figure of a device follows: what forecasts assume of computation
/// beside communication is fitted to whole steps (model/cost/stage_costs.cpp).
/// Where a fit refuses its data it is left out, with the reason in `notes`.
void describe_overlaps(const Measurement& measurement, DeviceProfile& profile, std::vector<std::string>& notes);

/// How far two passes over the same samples lie apart, as |t1 / t2 - 1| of their medians with the larger on top.
struct Agreement {
  int compared = 0;
  double median = 0.0;
  double largest = 0.0;
  std::string worst;  ///< the sample of the largest
};

/// The median that two passes may differ by. One sample may be unlucky; when half of them moved by more, the machine
/// was not the same machine.
inline constexpr double kAgreementTolerance = 0.10;

/// Samples that only one pass holds are left out.
Agreement compare_passes(const Measurement& measurement);

/// Throws EnvironmentError when the passes disagree by more than kAgreementTolerance in the median. `file` is named as
/// the place of the measurements.
void require_agreement(const Measurement& measurement, const std::string& file);

/// Wall time over CPU time of the samples that tell both, median: 1.0 on a machine of one's own. Absent when none does.
std::optional<double> disturbance(const Measurement& measurement);
/// Above it a run counts as disturbed: something else used its cores.
inline constexpr double kDisturbedFrom = 1.03;

}  // namespace flopcast
