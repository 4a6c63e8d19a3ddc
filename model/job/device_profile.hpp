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

/// A sample and the value that the profile's fit predicts for it.
struct ProfilePoint {
  std::string label;
  double x = 0.0;  ///< bytes of a message, FLOPs of a GEMM
  double measured_s = 0.0;
  double fitted_s = 0.0;
};

/// How well a part of a profile fits its samples. Errors are |fitted / measured - 1|.
struct ProfileFit {
  std::string what;  ///< "gemm fp32", "all_reduce, 8 ranks"
  std::string unit;  ///< of x: "FLOP" or "bytes"
  double median_error = 0.0;
  double p95_error = 0.0;
  double largest_error = 0.0;
  double left_out_median_error = 0.0;  ///< each sample predicted from the others (leave-one-out)
  std::vector<ProfilePoint> points;
};

/// Slowdown of an operation overlapped with another that uses a number of channels: time when overlapped over time
/// alone, at_none + per_channel · channels. Forecasts do not use it, because NCCL chooses the channels of each
/// collective.
struct OverlapLine {
  std::string what;  ///< the two operations; the fit with the same name has the samples
  double at_none = 1.0;
  double per_channel = 0.0;
  int most_channels = 0;  ///< largest number measured

  double factor(double channels) const { return at_none + per_channel * channels; }
};

/// Links on which curves were measured, identified by their figures: the same links inside nodes have the same rate and
/// the same switch or direct links; the same network has the same number of cards with the same rate per node.
/// Unspecified figures are 0. Not compared: any other difference between fabrics of the same rate.
struct MeasuredLinks {
  std::string name;                ///< system, such as "Perlmutter"
  BytesPerSecond intra_bandwidth;  ///< from one device to the others of its node, per direction
  std::vector<DeviceLink> links;   ///< between devices of a node without a switch; empty: a switch
  int devices_per_node = 0;
  int nics_per_node = 0;
  BytesPerSecond nic_bandwidth;  ///< of one network card, per direction
};

/// Measurements of a device, its links and its messages: schema flopcast.profile/1. `cluster` holds the measured keys
/// of a job's cluster section. They override the figures of a catalogue entry, and keys given in the job override them.
struct DeviceProfile {
  std::string name;
  std::string source;
  std::string date;        ///< YYYY-MM-DD
  std::string confidence;  ///< measured, imported or published
  JsonValue cluster = JsonValue::object();
  /// Figures of the measured software, under its "name"; they override the catalogue's for jobs that use it.
  JsonValue stack = JsonValue::object();
  std::optional<RunFit> fitted;  ///< set in profiles written by flopcast fit
  std::vector<GroupCurve> curves;
  /// Absent: the links of any cluster that the profile is used for, as with a user's own measurements.
  std::optional<MeasuredLinks> measured_links;
  std::vector<ProfileFit> fits;
  std::vector<OverlapLine> overlaps;
};

const std::vector<std::string>& confidence_names();

/// Throws ConfigError with the field below `field`. The content of `cluster` is checked when the job's cluster is read.
DeviceProfile read_device_profile(const nlohmann::json& value, const std::string& field, const Origins& origins);

/// Text of its file, schema flopcast.profile/1.
std::string write_profile(const DeviceProfile& profile);

/// The key "curves" of `owner`: measured messages of groups, each of which may appear only once.
std::vector<GroupCurve> read_group_curves(ObjectReader& owner);

/// The profile's curves measured on links like the cluster's; those of another fabric do not apply.
std::vector<GroupCurve> curves_on_links_of(const Cluster& cluster, const DeviceProfile& profile);

/// The cluster section `given`, completed with the profile's keys, which override those of `catalogue`. Throws
/// ConfigError if the profile was measured on another device than the cluster's.
nlohmann::json overlay_profile(const DeviceProfile& profile, const nlohmann::json& given,
                               const nlohmann::json& catalogue, const Origins& origins);

/// Uncertainty of fitted constants, as stored in profiles and jobs. Throws ConfigError with the field below `field`.
RunFit read_run_fit(const nlohmann::json& value, const std::string& field, const Origins& origins);
nlohmann::ordered_json run_fit_json(const RunFit& fit);

/// True if the profile contains anything besides messages: figures of links, device or software.
bool has_figures(const DeviceProfile& profile);

/// The profile's changes to the cluster, as sentences for job.assumptions.
std::vector<std::string> profile_assumptions(const DeviceProfile& profile, const Cluster& cluster);

/// The key "links" of `owner`: pairs of devices of a node, {one, other, links}.
std::vector<DeviceLink> read_links(ObjectReader& owner);

}  // namespace flopcast
