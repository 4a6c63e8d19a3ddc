#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/forecast/prepare.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// The views of a JSON result of this program: flopcast.result/1, flopcast.run/1 (forecast, then measured), the one in
/// a flopcast.measurement/1, flopcast.timeline/1, flopcast.comparison/1 (every layout by its name). A result holds the
/// job that it answers; where forecasting that job again gives the same step time, its timeline is shown too. `name` is
/// what a single result is called. A view tells its layout as "description", and what of it had to be left out as
/// "note". Throws ConfigError for anything else.
std::vector<nlohmann::ordered_json> views_of_result(const nlohmann::ordered_json& json, const std::string& name,
                                                    const std::string& file, const ReadFile& read_file);

/// Adds to a view of a flopcast.run/1, "forecast" or "measured", its activations over time: what the spans of its
/// timeline hold, by the bytes that the run tells for each stage. Does nothing where it tells none. Throws ConfigError.
void add_activations(nlohmann::ordered_json& view, const Timeline& timeline, const nlohmann::ordered_json& run,
                     const std::string& file);

/// What was measured on what, for people, from a flopcast.run/1: the cluster that its job names need not be there.
std::string describe_run(const Job& job, const nlohmann::ordered_json& run);

}  // namespace flopcast
