#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/forecast/forecast.hpp"
#include "sim/metrics/memory_over_time.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// What the page shows under one name, "forecast" or "gpipe": any of a result (flopcast.result/1), a timeline with what
/// its ranks did with their time, memory over time, and what each kind of action consists of.
nlohmann::ordered_json page_view(const std::string& name, const Forecast& forecast);
nlohmann::ordered_json page_view(const std::string& name, const Timeline& timeline);
nlohmann::ordered_json page_view(const std::string& name, const Timeline& timeline,
                                 const nlohmann::ordered_json& result);
/// Of a timeline whose transfers are unknown: neither what its ranks waited for nor its critical path is told.
nlohmann::ordered_json page_view_of_spans(const std::string& name, const Timeline& timeline);
/// Of a result alone.
nlohmann::ordered_json page_view(const std::string& name, const nlohmann::ordered_json& result);

/// The terms that pages draw, with their keys, names, colours and explanations: {"step": [...] by the keys of a
/// breakdown, "bubble": [...] by those of a view's metrics, "memory": [...] by those of a rank}. Pages take them from
/// their data, so that they name a term as every other output does.
nlohmann::ordered_json page_terms();

/// Seconds of an action by what it consists of, by letter and stage ("F0"). They sum to the action's time, but for
/// rounding to ticks: a full backward pass has what it hides behind its weight gradient as a negative part.
nlohmann::ordered_json action_parts(const PreparedStep& step);

}  // namespace flopcast
