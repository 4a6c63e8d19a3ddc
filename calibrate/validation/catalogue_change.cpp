#include "calibrate/validation/catalogue_change.hpp"

namespace flopcast {

namespace {

// An entry by its name, or by an object that names it.
bool names(const nlohmann::json& value, const std::string& entry) {
  return value.is_object() ? value.value("name", "") == entry : value == entry;
}

bool apply_to(nlohmann::json& place, const CatalogueChange& change) {
  if (!names(place, change.entry)) return false;
  if (!place.is_object()) place = {{"name", change.entry}};
  if (!place.contains(change.figure)) place[change.figure] = change.value;
  return true;
}

}  // namespace

bool apply(const CatalogueChange& change, nlohmann::json& job) {
  if (change.kind == CatalogueKind::kDevices) return apply_to(job["cluster"]["device"], change);
  const bool has_stack = job.contains("training") && job["training"].contains("stack");
  return change.kind == CatalogueKind::kStacks && has_stack && apply_to(job["training"]["stack"], change);
}

}  // namespace flopcast
