#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "model/config/device_profile.hpp"
#include "model/hardware/device.hpp"

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

}  // namespace flopcast
