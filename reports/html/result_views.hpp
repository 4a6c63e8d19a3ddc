#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// The views of a JSON result of this program: flopcast.result/1, flopcast.run/1 (forecast, then measured),
/// flopcast.timeline/1, flopcast.comparison/1 (every layout by its name). A result holds the job that it answers; where
/// forecasting that job again gives the same step time, its timeline is shown too. `name` is what a single result is
/// called. A view tells its layout as "description", and what of it had to be left out as "note". Throws ConfigError
/// for anything else.
std::vector<nlohmann::ordered_json> views_of_result(const nlohmann::ordered_json& json, const std::string& name,
                                                    const std::string& file, const ReadFile& read_file);

/// What was measured on what, for people, from a flopcast.run/1: the cluster that its job names need not be there.
std::string describe_run(const Job& job, const nlohmann::ordered_json& run);

}  // namespace flopcast
