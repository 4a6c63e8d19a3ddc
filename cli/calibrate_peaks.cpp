#include "cli/calibrate_peaks.hpp"

#include <algorithm>
#include <optional>

#include "model/catalog/catalogue.hpp"
#include "model/config/sections.hpp"

namespace flopcast {

namespace {

std::optional<Device> catalogued(const DeviceProfile& profile) {
  const auto device = profile.cluster.find("device");
  if (device == profile.cluster.end() || !device->is_object() || !device->contains("name")) return std::nullopt;
  const nlohmann::json& name = device->at("name");
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kDevices);
  if (!name.is_string() || std::find(names.begin(), names.end(), name.get<std::string>()) == names.end()) {
    return std::nullopt;
  }
  std::vector<std::string> ignored;
  return read_device(name, "device", ignored, {});
}

// "gemm bf16 (dgrad)": the precision is the second word.
std::optional<Precision> precision_of(const std::string& what) {
  const std::string kind = "gemm ";
  if (what.rfind(kind, 0) != 0) return std::nullopt;
  const std::string word = what.substr(kind.size(), what.find(' ', kind.size()) - kind.size());
  const auto& names = precision_names();
  const auto match = std::find(names.begin(), names.end(), word);
  if (match == names.end()) return std::nullopt;
  return static_cast<Precision>(match - names.begin());
}

}  // namespace

std::vector<AchievedPeak> achieved_peaks(const DeviceProfile& profile) {
  const std::optional<Device> device = catalogued(profile);
  if (!device) return {};
  std::vector<AchievedPeak> peaks;
  for (const ProfileFit& fit : profile.fits) {
    if (fit.points.empty()) continue;
    const std::optional<Precision> precision = fit.unit == "FLOP" ? precision_of(fit.what) : std::nullopt;
    const bool copies = fit.what == "memory_copy";
    if (!precision && !copies) continue;
    const auto best = std::max_element(fit.points.begin(), fit.points.end(), [&](const auto& a, const auto& b) {
      return copies ? a.x < b.x : a.x / a.measured_s < b.x / b.measured_s;
    });
    const double datasheet = copies ? device->memory_bandwidth.value() : device->peak_of(*precision).value();
    if (datasheet > 0.0) peaks.push_back({fit.what, best->label, best->x / best->measured_s, datasheet});
  }
  return peaks;
}

}  // namespace flopcast
