#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/config/document.hpp"
#include "model/config/object_reader.hpp"
#include "model/hardware/cluster.hpp"
#include "model/workload/training.hpp"

namespace flopcast {

/// One sample beside what the profile's fit says of it.
struct ProfilePoint {
  std::string label;
  double x = 0.0;  ///< bytes of a message, FLOPs of a product
  double measured_s = 0.0;
  double fitted_s = 0.0;
};

/// How well a part of a profile fits what it was fitted to. Errors are |fitted / measured - 1|.
struct ProfileFit {
  std::string what;  ///< "gemm fp32", "all_reduce, 8 ranks"
  std::string unit;  ///< of x: "FLOP" or "bytes"
  double median_error = 0.0;
  double p95_error = 0.0;
  double largest_error = 0.0;
  double left_out_median_error = 0.0;  ///< each sample predicted from the others
  std::vector<ProfilePoint> points;
};

/// How much slower something is beside something else of so many channels: time beside over time alone, at_none +
/// per_channel · channels. No forecast uses it: what it would need, the channels of each collective, is NCCL's choice.
struct OverlapLine {
  std::string what;  ///< "gemm bf16 beside channel_copy"; a fit of this name has the samples
  double at_none = 1.0;
  double per_channel = 0.0;
  int most_channels = 0;  ///< that were measured

  double factor(double channels) const { return at_none + per_channel * channels; }
};

/// On which links curves were measured. A link is known by its figures: the same ones inside nodes have the same rate
/// and the same switch or direct links, the same network has as many cards of the same rate in a node. What is not told
/// is 0. Left out: what fabrics of the same rate differ by.
struct MeasuredLinks {
  std::string name;                ///< whose they are, "Perlmutter"
  BytesPerSecond intra_bandwidth;  ///< of one device to the others of its node, per direction
  std::vector<DeviceLink> links;   ///< between devices of a node that has no switch; empty: a switch
  int devices_per_node = 0;
  int nics_per_node = 0;
  BytesPerSecond nic_bandwidth;  ///< of one network card, per direction
};

/// A device, its links and its messages as they were measured: schema flopcast.profile/1. `cluster` holds keys of a
/// job's cluster section, as few or as many as were measured; over a catalogue entry they replace its figures, and a
/// job that says a key itself has the last word.
struct DeviceProfile {
  std::string name;
  std::string source;
  std::string date;        ///< YYYY-MM-DD
  std::string confidence;  ///< measured, imported or published
  JsonValue cluster = JsonValue::object();
  /// Figures of the software that was measured, under its "name": they replace the catalogue's where a job has it.
  JsonValue stack = JsonValue::object();
  std::optional<RunFit> fitted;  ///< of a profile that flopcast fit wrote
  std::vector<GroupCurve> curves;
  /// Absent: on those of whatever cluster the profile is given for, as with one's own measurements.
  std::optional<MeasuredLinks> measured_links;
  std::vector<ProfileFit> fits;
  std::vector<OverlapLine> overlaps;
};

const std::vector<std::string>& confidence_names();

/// Throws ConfigError with the field below `field`. What `cluster` holds is checked where the job's cluster is read.
DeviceProfile read_device_profile(const nlohmann::json& value, const std::string& field, const Origins& origins);

/// Its file, schema flopcast.profile/1.
std::string write_profile(const DeviceProfile& profile);

/// The key "curves" of `owner`: measured messages of groups, each of which may be given once.
std::vector<GroupCurve> read_group_curves(ObjectReader& owner);

/// The profile's curves that were measured on links such as the cluster has: those of another fabric say nothing of
/// its.
std::vector<GroupCurve> curves_on_links_of(const Cluster& cluster, const DeviceProfile& profile);

/// The cluster section `given` with the profile's keys below its own and above those of `catalogue`. Throws ConfigError
/// when the profile was measured on another device than the cluster holds.
nlohmann::json overlay_profile(const DeviceProfile& profile, const nlohmann::json& given,
                               const nlohmann::json& catalogue, const Origins& origins);

/// How sure fitted constants are, as profiles and jobs hold it. Throws ConfigError with the field below `field`.
RunFit read_run_fit(const nlohmann::json& value, const std::string& field, const Origins& origins);
nlohmann::ordered_json run_fit_json(const RunFit& fit);

/// Whether the profile tells anything but messages: figures of links, device or software.
bool tells_figures(const DeviceProfile& profile);

/// What the profile changes on the cluster, for job.assumptions.
std::vector<std::string> profile_assumptions(const DeviceProfile& profile, const Cluster& cluster);

/// The key "links" of `owner`: pairs of devices of a node, {one, other, links}.
std::vector<DeviceLink> read_links(ObjectReader& owner);

}  // namespace flopcast
