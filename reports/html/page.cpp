#include "reports/html/page.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/error.hpp"
#include "model/job/read_job.hpp"
#include "reports/html/packed_timeline.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/svg/canvas.hpp"
#include "sim/files/result_file.hpp"
#include "sim/files/result_json.hpp"
#include "sim/files/timeline_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/metrics/critical_path.hpp"
#include "sim/metrics/memory_over_time.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;
using Views = std::vector<Json>;

// Adds the parts of a pass that take any time, each name after what the pass is for.
void add_parts(Json& parts, const std::string& prefix, const PassCost& pass, double slices) {
  const auto add = [&](TermId id, Seconds time) {
    if (time.value() > 0.0) {
      parts.push_back({{"name", prefix + step_term(id).name}, {"seconds", time.value() / slices}});
    }
  };
  add(TermId::kCompute, pass.compute);
  for (const Axis axis : kAxes) add(communication_term(axis).id, pass.comm[axis]);
  add(TermId::kOffload, pass.offload);
}

Json metrics_json(const Timeline& timeline) {
  const TimelineMetrics metrics = measure(timeline);
  const auto time = [&timeline](Ticks ticks) { return static_cast<double>(ticks) * timeline.units_per_tick; };
  Json ranks = Json::array();
  for (const RankMetrics& rank : metrics.ranks) {
    Json row = {{"busy", time(rank.busy)},
                {"pipeline", time(rank.exposed_pipeline)},
                {"data_parallel", time(rank.exposed_data_parallel)}};
    for (std::size_t cause = 0; cause < kBubbleCauses; ++cause) {
      row[std::string(name_of(static_cast<BubbleCause>(cause)))] = time(rank.bubble_by_cause.at(cause));
    }
    row["peak_in_flight"] = rank.peak_in_flight;
    ranks.push_back(std::move(row));
  }
  return {{"makespan", time(metrics.makespan)},       {"span", time(metrics.longest_span())},
          {"idle_fraction", metrics.idle_fraction()}, {"bubble_fraction", metrics.bubble_fraction()},
          {"bubble_ratio", metrics.bubble_ratio()},   {"ranks", std::move(ranks)}};
}

bool is_result(const Json& json) {
  return json.is_object() && json.value("schema", Json()) == "flopcast.result/1";
}

// The job of a result, if this program can read it.
std::optional<Job> job_of(const Json& result) {
  if (!result.contains("job")) return std::nullopt;
  try {
    return read_job(nlohmann::json(result.at("job")), Origins{});
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// A result with the timeline of forecasting its job again; a note where this program, or what the job's files hold now,
// says otherwise than the result.
Json view_of(const Json& result, const std::string& name, const ReadFile& read_file) {
  Json view = page_view(name, result);
  std::string reason = "it does not tell its job";
  if (result.contains("job")) {
    try {
      const Forecast again = forecast(read_job(nlohmann::json(result.at("job")), Origins{}), read_file);
      const double said = result.at("iteration").at("time_s").get<double>();
      const double says = again.result.iteration.time_s;
      constexpr double kSame = 1e-9;
      if (std::abs(says - said) <= kSame * said) {
        view = page_view(name, again);
        view["result"] = result;
        view["description"] = describe_job(again.step.job);
        return view;
      }
      reason = fmt::format("this version forecasts {:.6g} s a step for its job, where it tells {:.6g} s", says, said);
    } catch (const ConfigError& error) {
      reason =
          fmt::format("its job cannot be forecast again: {} {}", error.diagnostic().field, error.diagnostic().problem);
    }
  }
  if (const std::optional<Job> job = job_of(result)) view["description"] = describe_job(*job);
  view["note"] = fmt::format("{}: no timeline; {}", name, reason);
  return view;
}

// A timeline from a file, with what its ranks waited for where the file tells that.
Json view_of_timeline(const Json& json, const std::string& name, const std::string& file, const std::string& field) {
  const Timeline timeline = read_timeline(json, file, field);
  const std::string shown = name.empty() ? timeline.title.substr(0, timeline.title.find(": ")) : name;
  if (tells_transfers(json)) return page_view(shown, timeline);
  Json view = page_view_of_spans(shown, timeline);
  view["note"] = fmt::format("{} of {} tells no transfers, as early versions wrote it: no waiting and no critical path",
                             field, file);
  return view;
}

std::vector<HeldBytes> read_held(const Json& stages, const std::string& field, const std::string& file) {
  std::vector<HeldBytes> held;
  const auto fail = [&](const std::string& problem) {
    throw ConfigError({field, problem, file, "expected what `flopcast run --format json` writes"});
  };
  if (!stages.is_array()) fail("is no list");
  for (const Json& stage : stages) {
    for (const char* key : {"from_forward", "after_input_gradient"}) {
      if (!stage.is_object() || !stage.contains(key) || !stage.at(key).is_number()) {
        fail(fmt::format("a stage tells no {}", key));
      }
    }
    held.push_back({stage.at("from_forward").get<double>(), stage.at("after_input_gradient").get<double>()});
  }
  return held;
}

Views views_of_run(const Json& run, const std::string& file) {
  Views views;
  const Json timelines = run.value("timelines", Json::object());
  if (!timelines.is_object()) throw ConfigError({"timelines", "is no object", file, "give forecast and measured"});
  for (const char* side : {"forecast", "measured"}) {
    if (!run.contains(side) || !is_result(run.at(side))) {
      throw ConfigError({side, "is no flopcast.result/1", file, "expected what `flopcast run --format json` writes"});
    }
    if (timelines.contains(side)) {
      Json view = view_of_timeline(timelines.at(side), side, file, fmt::format("timelines.{}", side));
      view["result"] = run.at(side);
      add_activations(view, read_timeline(timelines.at(side), file, fmt::format("timelines.{}", side)), run, file);
      views.push_back(std::move(view));
    } else {
      views.push_back(page_view(side, run.at(side)));
    }
    if (const std::optional<Job> job = job_of(run.at(side))) views.back()["description"] = describe_run(*job, run);
  }
  return views;
}

// What `run -o` keeps: the measurement, with the comparison beside it if the run ended well.
const Json& comparison_of(const Json& json, const std::string& file) {
  if (!json.contains("comparison")) {
    throw ConfigError({"comparison", "is missing", file,
                       "a report shows the file of a `flopcast run -o` that ended well; of other measurements it shows "
                       "nothing"});
  }
  const Json& comparison = json.at("comparison");
  if (!comparison.is_object() || comparison.value("schema", Json()) != "flopcast.run/1") {
    throw ConfigError({"comparison", "is no flopcast.run/1", file, "expected what `flopcast run -o` writes"});
  }
  return comparison;
}

Views views_of_timelines(const Json& json, const std::string& file) {
  Views views;
  const Json timelines = json.value("timelines", Json::array());
  if (!timelines.is_array()) throw ConfigError({"timelines", "is no list", file, "give at least one timeline"});
  for (std::size_t index = 0; index < timelines.size(); ++index) {
    views.push_back(view_of_timeline(timelines[index], "", file, fmt::format("timelines[{}]", index)));
  }
  if (views.empty()) throw ConfigError({"timelines", "holds nothing", file, "give at least one timeline"});
  return views;
}

Views views_of_comparison(const Json& json, const std::string& file, const ReadFile& read_file) {
  Views views;
  const auto add = [&](const Json& holder, const char* side) {
    const Json layout = holder.is_object() ? holder.value(side, Json::object()) : Json::object();
    if (!layout.contains("result") || !is_result(layout.at("result"))) {
      throw ConfigError({side, "holds no result", file, "expected what `flopcast compare --format json` writes"});
    }
    const bool named = layout.contains("name") && layout.at("name").is_string();
    views.push_back(view_of(layout.at("result"), named ? layout.at("name").get<std::string>() : side, read_file));
  };
  add(json, "a");
  add(json, "b");
  const Json others = json.value("others", Json::array());
  if (!others.is_array()) throw ConfigError({"others", "is no list", file, "as `flopcast compare` writes it"});
  for (const Json& other : others) add(other, "b");
  return views;
}

std::string all_with_ending(std::string_view ending) {
  std::string text;
  for (const EmbeddedFile& file : embedded_page()) {
    if (std::string_view(file.path).ends_with(ending)) text += file.text;
  }
  return text;
}

// The template with every {{mark}} replaced, in one pass: what is filled in is not searched, since a name may look like
// a mark.
std::string filled(const std::string& page, const std::map<std::string, std::string>& texts) {
  std::string text;
  std::size_t at = 0;
  for (std::size_t mark = page.find("{{"); mark != std::string::npos; mark = page.find("{{", at)) {
    const std::size_t end = page.find("}}", mark);
    FLOPCAST_CHECK(end != std::string::npos);
    text.append(page, at, mark - at);
    text += texts.at(page.substr(mark + 2, end - mark - 2));
    at = end + 2;
  }
  return text.append(page, at, std::string::npos);
}

// JSON may hold text that HTML reads as the end of the script around it.
std::string escaped(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char character : json) {
    if (character == '<') {
      text += "\\u003c";
    } else {
      text += character;
    }
  }
  return text;
}

}  // namespace

Json page_terms() {
  Json terms = {{"step", Json::array()}, {"bubble", Json::array()}, {"memory", Json::array()}};
  const auto add = [&terms](const char* group, std::string_view key, const auto& term) {
    terms[group].push_back({{"key", key}, {"name", term.name}, {"color", term.color}, {"what", term.what}});
  };
  for (const StepTerm& term : breakdown_terms()) add("step", term.key, term);
  for (std::size_t cause = 0; cause < kBubbleCauses; ++cause) {
    add("bubble", name_of(static_cast<BubbleCause>(cause)), bubble_terms().at(cause));
  }
  for (const MemoryTerm& term : memory_terms()) add("memory", term.key, term);
  add("memory", kBeyondTensors.key, kBeyondTensors);
  return terms;
}

Json action_parts(const PreparedStep& step) {
  Json all = Json::object();
  const double slices = step.program.slices_per_microbatch;
  for (std::size_t index = 0; index < step.costs.stages.size(); ++index) {
    const StageCosts& stage = step.costs.stages[index];
    Json forward = Json::array();
    add_parts(forward, "", stage.forward, slices);
    Json input = Json::array();
    add_parts(input, "recomputation: ", stage.recompute, slices);
    add_parts(input, "input gradient: ", stage.input_gradient, slices);
    Json weight = Json::array();
    add_parts(weight, "weight gradient: ", stage.weight_gradient, slices);
    Json backward = input;
    for (const Json& part : weight) backward.push_back(part);
    if (stage.tp_hidden.value() > 0.0) {
      backward.push_back(
          {{"name", fmt::format("{} hidden behind the weight gradient", step_term(TermId::kTensorParallel).name)},
           {"seconds", -stage.tp_hidden.value() / slices}});
    }
    if (stage.split_slowdown.value() > 0.0) {
      input.push_back(
          {{"name", "slower without its weight gradient"}, {"seconds", stage.split_slowdown.value() / slices}});
    }
    all[fmt::format("F{}", index)] = std::move(forward);
    all[fmt::format("B{}", index)] = std::move(backward);
    all[fmt::format("I{}", index)] = std::move(input);
    all[fmt::format("W{}", index)] = std::move(weight);
  }
  return all;
}

Json page_view(const std::string& name, const Timeline& timeline) {
  return {{"name", name},
          {"timeline", pack_timeline(timeline, critical_path(timeline))},
          {"metrics", metrics_json(timeline)},
          {"slices", timeline.slices_per_microbatch}};
}

Json page_view_of_spans(const std::string& name, const Timeline& timeline) {
  return {{"name", name},
          {"timeline", pack_timeline(timeline, CriticalPath{})},
          {"slices", timeline.slices_per_microbatch}};
}

Json page_view(const std::string& name, const Timeline& timeline, const Json& result) {
  Json view = page_view(name, timeline);
  view["result"] = result;
  return view;
}

Json page_view(const std::string& name, const Json& result) {
  return {{"name", name}, {"result", result}};
}

Json page_view(const std::string& name, const Forecast& forecast) {
  Json view = page_view(name, forecast.timeline, result_json(forecast));
  std::vector<double> capacities;
  // The curves are tensors: what the stack takes beyond them is taken off the limit.
  for (const RankMemoryResult& rank : forecast.result.memory.per_pipeline_rank) {
    capacities.push_back(rank.capacity_gib - (rank.shown_gib - rank.total_gib));
  }
  view["memory"] = pack_memory(forecast.timeline, forecast.memory, capacities);
  view["parts"] = action_parts(forecast.step);
  return view;
}

void add_activations(Json& view, const Timeline& timeline, const Json& run, const std::string& file) {
  if (!run.contains("activation_bytes")) return;
  const std::string side = view.at("name").get<std::string>();
  const std::string field = "activation_bytes." + side;
  const Json& sides = run.at("activation_bytes");
  const std::vector<HeldBytes> held = read_held(sides.is_object() ? sides.value(side, Json()) : Json(), field, file);
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) {
      if (!is_action(span.kind) || span.action.stage < held.size()) continue;
      throw ConfigError({field, fmt::format("tells nothing of stage {}", span.action.stage), file, "give every stage"});
    }
  }
  std::vector<RankMemory> ranks;
  for (int rank = 0; rank < timeline.rank_count(); ++rank) ranks.push_back(memory_over_time(timeline, rank, 0.0, held));
  view["memory"] = pack_memory(timeline, ranks, std::vector<double>(ranks.size(), 0.0));
  view["memory"]["of"] = "activations";
}

std::string describe_run(const Job& job, const Json& run) {
  const auto text_of = [&run](const char* key) {
    return run.contains(key) && run.at(key).is_string() ? run.at(key).get<std::string>() : std::string();
  };
  std::string text = describe_job(job);
  if (text_of("backend").empty()) return text;
  text += fmt::format("\nmeasured with backend {}", text_of("backend"));
  if (!text_of("conditions").empty()) text += ", " + text_of("conditions");
  text += "; the cluster above is the one that the job names\n";
  if (run.contains("activation_bytes")) {
    return text +
           "under each rank: activations over time, from the times of its actions and the bytes that each keeps by its "
           "costs; of memory only peak activations were measured";
  }
  if (text_of("compute") == "sleep") return text + "no memory over time: the ranks slept and kept no activations";
  return text + "no memory over time: the run does not tell what its actions keep, as early versions wrote it";
}

Views views_of_result(const Json& json, const std::string& name, const std::string& file, const ReadFile& read_file) {
  const Json schema = json.is_object() ? json.value("schema", Json()) : Json();
  if (schema == "flopcast.measurement/1") return views_of_result(comparison_of(json, file), name, file, read_file);
  check_results(json, file);
  if (is_result(json)) return {view_of(json, name, read_file)};
  if (schema == "flopcast.run/1") return views_of_run(json, file);
  if (schema == "flopcast.timeline/1") return views_of_timelines(json, file);
  if (schema == "flopcast.comparison/1") return views_of_comparison(json, file, read_file);
  throw ConfigError({"", fmt::format("{} holds no result that a report shows", file), file,
                     "expected what simulate, compare, timeline or run write with --format json"});
}

std::string write_page(const PageInfo& info, const std::vector<Json>& views) {
  const Json data = {{"title", info.title},
                     {"tool", info.tool},
                     {"question", info.question},
                     {"terms", page_terms()},
                     {"views", views}};
  return filled(all_with_ending(".html"),
                {{"title", escape_xml(info.title)},
                 {"style", all_with_ending(".css")},
                 {"script", all_with_ending(".js")},
                 {"data", escaped(data.dump(-1, ' ', false, Json::error_handler_t::replace))}});
}

}  // namespace flopcast
