#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "calibrate/validation/refit.hpp"

namespace flopcast {

/// {"fits": [{"name", "constants": [{"entry", "figure", "unit", "shipped", "refitted", "at_bound"}],
///            "sources": [{"source", "rows", "models", "shipped", "refitted", "left_out"}]}]}; errors are fractions.
nlohmann::ordered_json refit_json(const std::vector<Refit>& fits);

/// calibrate/validation/residuals.json, as `flopcast validate --refit --format json` wrote it: what the constants of
/// the catalogue leave on the rows that come with the program, and what they leave on models they were not fitted to.
std::vector<Refit> stored_refits();

}  // namespace flopcast
