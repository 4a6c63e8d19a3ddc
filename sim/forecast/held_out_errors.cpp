#include "sim/forecast/held_out_errors.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/catalog/catalogue.hpp"
#include "model/config/sections.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

// Whether kernels take as long on both: a device that bears a catalogue name and figures of its own is another one.
bool same_figures(const Device& a, const Device& b) {
  const GemmKernel& kernel = a.gemm_kernel;
  const GemmKernel& other = b.gemm_kernel;
  return a.peak == b.peak && a.memory_bandwidth == b.memory_bandwidth && a.multiprocessors == b.multiprocessors &&
         a.gemm_efficiency == b.gemm_efficiency && a.gemm_efficiency_by_precision == b.gemm_efficiency_by_precision &&
         a.memory_efficiency == b.memory_efficiency && a.flash_forward_efficiency == b.flash_forward_efficiency &&
         a.flash_backward_efficiency == b.flash_backward_efficiency && a.kernel_launch == b.kernel_launch &&
         kernel.tile == other.tile && kernel.overhead_depth == other.overhead_depth &&
         kernel.memory_efficiency == other.memory_efficiency && kernel.overlapped == other.overlapped &&
         kernel.weight_gradient_depth == other.weight_gradient_depth && kernel.wave_share == other.wave_share;
}

bool as_catalogued(const Device& device) {
  if (catalogue_values(CatalogueKind::kDevices, device.name).is_null()) return false;
  std::vector<std::string> ignored;
  return same_figures(device, read_device(device.name, "device", ignored, {}));
}

// What of a job no published run has; empty where all of it has been seen.
std::string unlike_all_runs(const Job& job) {
  if (job.profile) return "layers that were measured one by one";
  if (job.cluster.uneven()) return "nodes that differ";
  if (job.model.experts) return "a mixture of experts";
  const Precision precision = job.training.precision;
  if (precision == Precision::kFp32 || precision == Precision::kTf32) {
    return "training in " + std::string(name_of(precision));
  }
  if (!as_catalogued(job.cluster.device)) return "a device whose figures are not the catalogue's";
  return "";
}

GpuGeneration generation_of(const std::string& name) {
  const auto& names = generation_names();
  const auto found = std::find(names.begin(), names.end(), name);
  FLOPCAST_CHECK(found != names.end());
  return static_cast<GpuGeneration>(found - names.begin());
}

std::vector<HeldOutErrors> read_held_out_errors() {
  std::vector<HeldOutErrors> all;
  const nlohmann::json file = nlohmann::json::parse(embedded_held_out_errors().front().text);
  for (const nlohmann::json& group : file.at("groups")) {
    ForecastFacts facts;
    facts.device = group.at("device");
    facts.generation = generation_of(group.at("generation"));
    facts.stack = group.at("stack");
    facts.software = group.at("software");
    facts.several_nodes = group.at("several_nodes");
    facts.devices = group.at("devices");
    all.push_back({facts, group.at("model"), group.at("errors")});
  }
  return all;
}

}  // namespace

ForecastFacts facts_of(const Job& job) {
  ForecastFacts facts;
  facts.unlike = unlike_all_runs(job);
  if (facts.unlike.empty()) facts.device = job.cluster.device.name;
  facts.generation = job.cluster.device.generation;
  facts.stack = job.training.stack.name;
  facts.software = job.training.stack.based_on;
  facts.several_nodes = job.cluster.nodes > 1;
  facts.devices = job.cluster.devices();
  return facts;
}

const std::vector<HeldOutErrors>& shipped_held_out_errors() {
  static const std::vector<HeldOutErrors> all = read_held_out_errors();
  return all;
}

}  // namespace flopcast
