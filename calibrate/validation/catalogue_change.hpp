#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/catalog/catalogue.hpp"

namespace flopcast {

/// Another value for a figure of a device or a stack, as a job file would give it inline.
struct CatalogueChange {
  CatalogueKind kind = CatalogueKind::kDevices;
  std::string entry;
  std::string figure;
  nlohmann::json value;
};

/// Whether the job is priced with that entry; if so it gets the value, unless it gives one of its own.
bool apply(const CatalogueChange& change, nlohmann::json& job);

}  // namespace flopcast
