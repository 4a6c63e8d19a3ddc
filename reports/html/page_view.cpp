#include "reports/html/page_view.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "reports/html/packed_timeline.hpp"
#include "reports/result/result_json.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/metrics/critical_path.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

// Adds the parts of a pass that take any time, each name after what the pass is for.
void add_parts(Json& parts, const std::string& prefix, const PassCost& pass, double slices) {
  const auto add = [&](TermId id, Seconds time) {
    if (time.value() > 0.0) {
      parts.push_back({{"name", prefix + step_term(id).name}, {"seconds", time.value() / slices}});
    }
  };
  add(TermId::kCompute, pass.compute);
  add(TermId::kTensorParallel, pass.tp_comm);
  add(TermId::kContextParallel, pass.cp_comm);
  add(TermId::kExpertParallel, pass.ep_comm);
  add(TermId::kDataParallel, pass.dp_comm);
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

}  // namespace flopcast
