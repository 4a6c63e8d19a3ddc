#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "model/hardware/device.hpp"
#include "model/job/device_profile.hpp"

namespace flopcast {

/// The fits of a measurement's kernels beside products, added to `profile`, and the figures of `device` and of the
/// profile's cluster that follow:
///   norm, elementwise           memory_efficiency: the rate of all of them together over `bandwidth`
///   embedding, loss, optimizer  a fit each, and no figure: a forecast knows their bytes
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
