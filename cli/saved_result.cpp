#include "cli/saved_result.hpp"

#include <nlohmann/json.hpp>

#include "model/config/document.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::json;

struct Field {
  const char* pointer;
  double* value;
};

}  // namespace

std::optional<Result> read_saved_result(const std::string& text, const std::string& file) {
  if (text.find("flopcast.result/1") == std::string::npos) return std::nullopt;
  const Json json = parse_json(text, file);
  if (!json.is_object() || json.value("schema", "") != "flopcast.result/1") return std::nullopt;
  Result result;
  const Field fields[] = {{"/iteration/time_s", &result.iteration.time_s},
                          {"/iteration/mfu", &result.iteration.mfu},
                          {"/breakdown/compute_s", &result.breakdown.compute_s},
                          {"/breakdown/recompute_s", &result.breakdown.recompute_s},
                          {"/breakdown/tp_comm_s", &result.breakdown.tp_comm_s},
                          {"/breakdown/pp_comm_s", &result.breakdown.pp_comm_s},
                          {"/breakdown/dp_comm_s", &result.breakdown.dp_comm_s},
                          {"/breakdown/cp_comm_s", &result.breakdown.cp_comm_s},
                          {"/breakdown/ep_comm_s", &result.breakdown.ep_comm_s},
                          {"/breakdown/optimizer_s", &result.breakdown.optimizer_s},
                          {"/breakdown/offload_s", &result.breakdown.offload_s},
                          {"/breakdown/bubble_s", &result.breakdown.bubble_s},
                          {"/communication/exposed_fraction", &result.communication.exposed_fraction},
                          {"/bubble/fraction", &result.bubble.fraction},
                          {"/bubble/by_cause/warmup_s", &result.bubble.warmup_s},
                          {"/bubble/by_cause/cooldown_s", &result.bubble.cooldown_s},
                          {"/bubble/by_cause/imbalance_s", &result.bubble.imbalance_s},
                          {"/bubble/by_cause/dependency_s", &result.bubble.dependency_s},
                          {"/memory/peak_gib", &result.memory.peak_gib}};
  for (const Field& field : fields) {
    const Json::json_pointer pointer(field.pointer);
    if (!json.contains(pointer) || !json.at(pointer).is_number()) {
      throw ConfigError({field.pointer, "a result must hold this number", file, "what simulate --format json writes"});
    }
    *field.value = json.at(pointer).get<double>();
  }
  const Json::json_pointer fits("/memory/fits");
  result.memory.fits = !json.contains(fits) || json.at(fits) == true;
  return result;
}

}  // namespace flopcast
