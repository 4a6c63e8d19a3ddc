#include "reports/result/result_tables.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text/words.hpp"
#include "model/config/document.hpp"
#include "model/cost/compute.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/operators.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/forecast/terms.hpp"

namespace flopcast {

namespace {

// Follows "± n %", which excludes stalls.
std::string if_stalled(const StepTimeInterval& interval) {
  if (interval.stalls_s <= 0) return "";
  return fmt::format(" (up to {} if transfers between nodes stall)", time_in_seconds(interval.high_s));
}

constexpr double kRoomy =
    0.95;  // of the capacity: beyond it a longer sample or a library's buffer can run out of memory

// True for assumptions that affect a forecast by more than the choice of a default.
bool matters_most(const std::string& assumption) {
  for (const char* word : {"overhead", "profile", "not modelled", "sequence length"}) {
    if (assumption.find(word) != std::string::npos) return true;
  }
  return false;
}

std::string billions(double count) {
  constexpr double kBillion = 1e9;
  constexpr double kMillion = 1e6;
  constexpr double kThousand = 1e3;
  if (count >= kBillion) return fmt::format("{:.1f} B", count / kBillion);
  if (count >= kMillion) return fmt::format("{:.0f} M", count / kMillion);
  return count >= kThousand ? fmt::format("{:.0f} K", count / kThousand) : fmt::format("{:.0f}", count);
}

Table step_table(const Forecast& forecast, ShownMfu mfu) {
  const Result& result = forecast.result;
  const IterationResult& iteration = result.iteration;
  Table table = {.title = answer_line(forecast.result) + "\n" + describe_job(forecast.step.job),
                 .columns = {text_column("step"), {"value"}}};
  const auto add = [&table](const std::string& name, const std::string& value) { table.rows.push_back({name, value}); };
  add("step time", time_in_seconds(iteration.time_s));
  if (result.interval)
    add(fmt::format("{:.0f} % interval", 1e2 * result.interval->level),
        plus_minus(*result.interval) + if_stalled(*result.interval));
  if (forecast.step.job.profile) {
    // A profile has neither tokens nor FLOPs.
    add("samples per second", rounded(iteration.samples_per_s, 4));
  } else {
    add("tokens per second", thousands(iteration.tokens_per_s));
    add("model TFLOP/s per GPU", fmt::format("{:.1f}", iteration.model_tflops_per_gpu));
    constexpr double kPoint = 0.01;
    const bool causal_too = mfu == ShownMfu::kBoth && iteration.mfu - iteration.mfu_causal > kPoint;
    const bool same = mfu != ShownMfu::kCausal && percent(iteration.mfu) == percent(iteration.hfu);
    if (mfu != ShownMfu::kCausal) add(same ? "MFU and HFU" : "MFU", percent(iteration.mfu) + " %");
    if (mfu == ShownMfu::kCausal || causal_too) {
      add("MFU (causal attention halved)", percent(iteration.mfu_causal) + " %");
    }
    if (!same) add("HFU", percent(iteration.hfu) + " %");
  }
  add("bubble (share of all device time)", percent(result.bubble.fraction) + " %");
  add("bubble ratio (over the busiest rank)", percent(result.bubble.ratio) + " %");
  add("exposed communication", percent(result.communication.exposed_fraction) + " %");
  add("peak memory", fmt::format("{:.1f} of {:.0f} GiB", result.memory.peak_gib, result.memory.capacity_gib));
  if (result.memory.shown_gib > result.memory.peak_gib) {
    add("peak shown by nvidia-smi", fmt::format("{:.1f} GiB", result.memory.shown_gib));
  }
  if (result.steady) {
    add("period per microbatch", time_in_seconds(result.steady->period_s));
    add("pipeline fill (once)", time_in_seconds(result.steady->fill_s));
  }
  if (result.training) {
    add("steps", thousands(result.training->steps));
    const std::string days = rounded(result.training->days, 4);
    add(result.run ? "days without failures" : "days",
        result.interval ? days + " " + plus_minus(*result.interval) : days);
    add("GPU hours", thousands(result.training->gpu_hours));
    if (result.training->cost_usd) add("cost", "$" + thousands(*result.training->cost_usd));
  }
  return table;
}

Table breakdown_table(const Result& result) {
  const CommunicationResult& sent = result.communication;
  Table table;
  table.columns = {text_column("where the step goes"),
                   {"exposed"},
                   {"share"},
                   {"total", Align::kRight, "under_way"},
                   {"GB sent per GPU", Align::kRight, "gb_sent"}};
  const auto add = [&](const std::string& name, double seconds, const AxisCommunication* axis) {
    if (seconds == 0.0 && (axis == nullptr || axis->total_s == 0.0)) return;
    constexpr double kGiga = 1e9;
    table.rows.push_back({name, time_in_seconds(seconds), percent(seconds / result.iteration.time_s) + " %",
                          axis == nullptr ? "" : time_in_seconds(axis->total_s),
                          axis == nullptr ? "" : rounded(axis->bytes_sent_per_rank / kGiga, 3)});
  };
  const auto add_term = [&](const StepTerm& term) {
    add(term.name, term.seconds(result), term.axis ? &sent[*term.axis] : nullptr);
  };
  for (const StepTerm& term : breakdown_terms()) {
    if (term.id != TermId::kBubble) add_term(term);
  }
  for (const StepTerm& term : bubble_terms()) add_term(term);
  return table;
}

Table distribution_table(const Result& result) {
  const DistributionResult& distribution = *result.distribution;
  const double forecast = result.iteration.time_s;
  Table table;
  table.columns = {text_column(fmt::format("step time over {} samples", distribution.samples), "figure"),
                   {"value"},
                   {"above forecast", Align::kRight, "over_forecast"}};
  const auto add = [&](const std::string& name, double seconds) {
    constexpr double kShown = 0.0005;  // half of the last digit; smaller values have no sign
    const double over = seconds / forecast - 1.0;
    table.rows.push_back(
        {name, time_in_seconds(seconds), fmt::format("{:+.1f} %", std::abs(over) < kShown ? 0.0 : 100.0 * over)});
  };
  add("mean", distribution.mean_s);
  table.rows.push_back({"standard deviation", time_in_seconds(distribution.std_s), ""});
  add("5th percentile", distribution.p5_s);
  add("median", distribution.p50_s);
  add("95th percentile", distribution.p95_s);
  add("99th percentile", distribution.p99_s);
  table.notes.push_back(fmt::format("sampled with jitter {:g} %{}{}; seed {}", 100.0 * distribution.jitter,
                                    distribution.stragglers.empty() ? "" : "; ",
                                    fmt::join(distribution.stragglers, "; "), distribution.seed));
  return table;
}

}  // namespace

Table packing_table(const Result& result) {
  const PackingResult& packing = *result.packing;
  Table table;
  table.notes.push_back(fmt::format(
      "share of tokens that are data: {} % with one sequence per row, {} % with rows padded to the longest of their "
      "microbatch, {} % packed, which processes {:.2f} times the data per second",
      percent(packing.padded_filled), percent(packing.longest_filled), percent(packing.filled),
      packing.tokens_per_s / packing.padded_tokens_per_s));
  table.columns = {text_column("sequences of varying length", "packing"), {"step time"}, {"idle"}};
  table.rows = {
      {"full sequences (the forecast)", time_in_seconds(result.iteration.time_s), ""},
      {"same work in equal microbatches", time_in_seconds(packing.equal_s), percent(packing.equal_idle) + " %"},
      {"packed in arrival order", time_in_seconds(packing.time_s), percent(packing.idle) + " %"}};
  table.notes.push_back(fmt::format(
      "{} sequences per step fill {} of the microbatches; attention takes {} of the work of full sequences; {:.0f} "
      "tokens "
      "per second without padding; idle: neither a pass nor an optimizer step",
      packing.sequences, percent(packing.filled) + " %", percent(packing.attention) + " %", packing.tokens_per_s));
  return table;
}

namespace {

std::string gib(double amount) {
  return fmt::format("{:.2f}", amount);
}

// Flattens an object into dotted keys; lists become "a;b;c", so that a row stays one row.
void flatten(const nlohmann::ordered_json& json, const std::string& prefix, Table& row) {
  for (const auto& item : json.items()) {
    const std::string key = prefix.empty() ? item.key() : prefix + "." + item.key();
    const auto& value = item.value();
    if (value.is_object()) {
      flatten(value, key, row);
      continue;
    }
    if (value.is_array() && !value.empty() && value.front().is_object()) continue;
    std::string cell;
    if (value.is_array()) {
      for (const auto& element : value)
        cell += (cell.empty() ? "" : ";") + (element.is_string() ? element.get<std::string>() : dumped(element));
    } else {
      cell = value.is_string() ? value.get<std::string>() : dumped(value);
    }
    row.columns.push_back(value.is_number() ? number_column(key, key) : text_column(key, key));
    row.rows.front().push_back(cell);
  }
}

}  // namespace

std::string device_names(const Cluster& cluster) {
  if (!cluster.uneven()) return cluster.device.name;
  std::vector<std::string> names;
  for (const Device& device : cluster.node_devices) names.push_back(device.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string parameters_text(const Job& job) {
  if (job.profile) return billions(job.profile->parameters()) + " parameters";
  const ParameterCounts counts = count_parameters(job.model);
  std::string text = billions(static_cast<double>(counts.total)) + " parameters";
  if (counts.active != counts.total) text += fmt::format(" ({} active)", billions(static_cast<double>(counts.active)));
  return text;
}

namespace {

// The unit with its blank: " days" of "33 days".
std::string unit_of(const std::string& time) {
  return time.substr(std::min(time.size(), time.rfind(' ')));
}

}  // namespace

std::string answer_line(const Result& result) {
  const MemoryResult& memory = result.memory;
  std::string text = rounded(result.iteration.time_s, 3) + " s per step";
  if (result.iteration.time_s < 1.0) text = time_in_seconds(result.iteration.time_s) + " per step";
  if (result.interval) text += " " + plus_minus(*result.interval) + if_stalled(*result.interval);
  if (result.run) {
    const std::string low = time_in_days(result.run->days.p5 * kSecondsADay);
    const std::string middle = time_in_days(result.run->days.p50 * kSecondsADay);
    const std::string high = time_in_days(result.run->days.p95 * kSecondsADay);
    const std::string unit = unit_of(middle);
    const bool alike = unit_of(low) == unit && unit_of(high) == unit;
    const std::size_t told = alike ? unit.size() : 0;
    text += fmt::format(", {} ({} to {}) with failures", middle, low.substr(0, low.size() - told),
                        high.substr(0, high.size() - told));
    if (result.run->cost_usd) text += ", " + dollars(result.run->cost_usd->p50);
  } else if (result.training) {
    text += ", " + time_in_days(result.training->days * kSecondsADay);
    if (result.training->cost_usd) text += ", " + dollars(*result.training->cost_usd);
  }
  const double shown = std::max(memory.peak_gib, memory.shown_gib);
  const std::string of = fmt::format("{:.1f} of {:.0f} GiB", shown, memory.capacity_gib);
  if (!memory.fits) return text + " · does not fit: " + of;
  return text + " · fits, " + of + (shown > kRoomy * memory.capacity_gib ? " (tight)" : "");
}

namespace {

// Settings that differ from the defaults: "  sp  zero 1", "  hsdp 8".
std::string forms_text(const Layout& layout) {
  std::string text;
  if (layout.tensor_parallel != TensorParallel::k1d) text += fmt::format("  {}", name_of(layout.tensor_parallel));
  if (layout.context_parallel != ContextParallel::kRing) text += fmt::format("  {}", name_of(layout.context_parallel));
  if (layout.sequence_parallel) text += "  sp";
  if (layout.data_parallel != DataParallel::kDdp) text += fmt::format("  {}", name_of(layout.data_parallel));
  if (layout.data_parallel == DataParallel::kHsdp) text += fmt::format(" {}", layout.shards);
  if (layout.data_parallel == DataParallel::kDdp && layout.zero > 0) text += fmt::format("  zero {}", layout.zero);
  return text;
}

}  // namespace

std::string describe_job(const Job& job) {
  const Layout& layout = job.layout;
  std::string text = fmt::format("{}, {} on {} x {} ({} {})\n", job.model.name, parameters_text(job), job.cluster.nodes,
                                 job.cluster.name, job.cluster.devices(), device_names(job.cluster));
  text += fmt::format("tp {}  pp {}", layout.tp, layout.pp);
  if (layout.vpp.value_or(1) > 1) text += fmt::format("  vpp {}", *layout.vpp);
  if (layout.cp > 1) text += fmt::format("  cp {}", layout.cp);
  if (layout.ep > 1) text += fmt::format("  ep {}", layout.ep);
  if (layout.folds_experts()) text += fmt::format("  etp {}", *layout.etp);
  text += fmt::format("  dp {}{}  schedule {}  recompute {}", layout.dp, forms_text(layout), layout.schedule,
                      recompute_text(layout));
  if (layout.offload != Offload::kNone) text += fmt::format("  offload {}", name_of(layout.offload));
  text += fmt::format("\n{} microbatches per pipeline = gbs {} / (dp {} x mbs {}), sequence length {}, {}, {}",
                      layout.microbatches(), layout.global_batch_size, layout.dp, layout.micro_batch_size,
                      job.training.sequence_length, name_of(job.training.precision), job.training.stack.name);
  return text;
}

Table memory_table(const Forecast& forecast, bool all_ranks) {
  Table table;
  table.columns = {number_column("rank"), text_column("layers")};
  for (const MemoryTerm& term : memory_terms()) {
    table.columns.push_back(number_column(term.name, term.key));
    if (term.gib == &RankMemoryResult::activations_gib) {
      table.columns.push_back(number_column("in flight", "peak_in_flight"));
    }
  }
  table.columns.push_back(number_column("total GiB"));
  const MemoryResult& memory = forecast.result.memory;
  // A separate column only if the stack's description covers more than the tensors.
  const bool shows_more = memory.shown_gib > memory.peak_gib;
  if (shows_more) table.columns.push_back(number_column("nvidia-smi GiB", "shown_gib"));
  const PreparedStep& step = forecast.step;
  const std::size_t ranks = memory.per_pipeline_rank.size();
  const std::size_t fullest = static_cast<std::size_t>(fullest_rank(memory));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (!all_ranks && rank != fullest) continue;
    const RankMemoryResult& row = memory.per_pipeline_rank[rank];
    std::string layers;
    for (std::size_t stage = 0; stage < step.costs.stages.size(); ++stage) {
      if (step.stages.rank_of_stage[stage] != static_cast<int>(rank)) continue;
      const StageCosts& costs = step.costs.stages[stage];
      layers += fmt::format("{}{}{}{}", layers.empty() ? "" : "+", costs.has_embedding ? "emb+" : "", costs.layers,
                            costs.has_head ? "+head" : "");
    }
    std::vector<std::string> cells = {fmt::format("{}", rank), layers};
    for (const MemoryTerm& term : memory_terms()) {
      cells.push_back(gib(row.*term.gib));
      if (term.gib == &RankMemoryResult::activations_gib) cells.push_back(fmt::format("{}", row.peak_in_flight));
    }
    cells.push_back(gib(row.total_gib));
    table.rows.push_back(std::move(cells));
    if (shows_more) table.rows.back().push_back(gib(row.shown_gib));
  }
  table.notes.push_back(fmt::format(
      "GiB (2^30 bytes) per GPU; capacity {:.0f} GiB; fits: {}; in flight: number of activations, each of one "
      "stage and one microbatch",
      memory.capacity_gib, memory.fits ? "yes" : "no"));
  return table;
}

Table memory_parts_table(const Forecast& forecast) {
  Table table;
  table.columns = {text_column("kind"), text_column("tensor"), number_column("MiB each", "each_mib"),
                   number_column("count"), number_column("GiB")};
  const int rank = fullest_rank(forecast.result.memory);
  for (const MemoryPart& part : fullest_rank_parts(forecast.step, forecast.result.memory, forecast.memory)) {
    constexpr double kMebi = 1024.0;
    table.rows.push_back({part.group, part.name, fmt::format("{:.2f}", gibibytes(part.each) * kMebi),
                          fmt::format("{:.6g}", part.count), fmt::format("{:.3f}", gibibytes(part.total()))});
  }
  const RankMemoryResult& memory = forecast.result.memory.per_pipeline_rank[static_cast<std::size_t>(rank)];
  table.notes.push_back(fmt::format("rank {} at its peak: {:.2f} GiB", rank, memory.total_gib));
  return table;
}

std::string plus_minus(const StepTimeInterval& interval) {
  return fmt::format("± {:.2g} %", 1e2 * interval.half_width);
}

Table memory_over_time_table(const Forecast& forecast) {
  Table table;
  table.columns = {number_column("rank"), number_column("time s"), number_column("GiB")};
  for (std::size_t rank = 0; rank < forecast.memory.size(); ++rank) {
    for (const MemoryPoint& point : forecast.memory[rank].points) {
      table.rows.push_back({fmt::format("{}", rank),
                            fmt::format("{:.6f}", static_cast<double>(point.time) * forecast.timeline.units_per_tick),
                            fmt::format("{:.4f}", gibibytes(Bytes(point.bytes)))});
    }
  }
  return table;
}

Table critical_path_table(const Timeline& timeline, const CriticalPath& path) {
  Table table;
  table.columns = {text_column("critical path"), {"time"}, {"share"}};
  const double total = static_cast<double>(path.total());
  const auto add = [&](std::string name, Ticks ticks) {
    if (ticks == 0) return;
    const double time = static_cast<double>(ticks);
    table.rows.push_back(
        {std::move(name), time_in_seconds(time * timeline.units_per_tick), percent(time / total) + " %"});
  };
  for (std::size_t kind = 0; kind < path.time_by_kind.size(); ++kind) {
    add(std::string(name_of(static_cast<SpanKind>(kind))), path.time_by_kind[kind]);
  }
  add("transfers between ranks", path.lag);
  add("waiting", path.wait);
  return table;
}

std::string shares_text(const ByAxis<double>& shares) {
  std::string text;
  constexpr double kShown = 0.005;
  for (const Axis axis : kResultAxes) {
    if (shares[axis] < kShown) continue;
    text += fmt::format("{}{} {} %", text.empty() ? "" : ", ", name_of(axis), percent(shares[axis]));
  }
  return text;
}

namespace {

Table network_table(const Result& result) {
  const NetworkResult& network = *result.network;
  const double time_s = result.iteration.time_s;
  Table table;
  table.columns = {
      text_column("contention on shared links", "network"), {"added time", Align::kRight, "adds"}, {"share"}};
  for (const Axis axis : kResultAxes) {
    const double added = network.contention_s[axis];
    if (added <= 0.0) continue;
    table.rows.push_back({fmt::format("waiting for {}", communication_term(axis).name), time_in_seconds(added),
                          percent(added / time_s) + " %"});
  }
  const double added = time_s - network.without_sharing_s;
  table.rows.push_back({"total contention", time_in_seconds(added), percent(added / time_s) + " %"});
  if (network.paths) {
    const PathSamples& paths = *network.paths;
    table.notes.push_back(
        fmt::format("step time over {} random choices of paths: {} (5 %), {} (median), {} (95 %), worst {}",
                    paths.samples, time_in_seconds(paths.p5_s), time_in_seconds(paths.p50_s),
                    time_in_seconds(paths.p95_s), time_in_seconds(paths.most_s)));
  }
  for (const GroupBandwidth& group : network.nccl_tests) {
    table.notes.push_back(fmt::format(
        "nccl-tests, {} of 1 GiB over {} ranks: {:.1f} GB/s of bus bandwidth alone, {:.1f} with all {} groups at "
        "once",
        group.collective, group.ranks, group.alone_busbw_gb_per_s, group.busbw_gb_per_s, name_of(group.axis)));
  }
  return table;
}

}  // namespace

Table hot_links_table(const Result& result) {
  const NetworkResult& network = *result.network;
  Table table;
  table.columns = {text_column("hot links", "link"), number_column("count", "links"),
                   number_column("used %", "used_percent"), text_column("used by", "share")};
  for (const HotLink& link : network.hot_links) {
    table.rows.push_back(
        {link.link, fmt::format("{}", link.links), percent(link.utilisation), shares_text(link.share)});
  }
  table.notes.push_back(fmt::format("used: utilisation while the step waits for messages on the link, {} in total",
                                    time_in_seconds(network.waiting_s)));
  return table;
}

std::vector<Table> network_tables(const Result& result) {
  std::vector<Table> tables = {network_table(result)};
  if (!result.network->hot_links.empty()) tables.push_back(hot_links_table(result));
  return tables;
}

std::vector<Table> result_tables(const Forecast& forecast, bool verbose, ShownMfu mfu) {
  const std::size_t ranks = forecast.result.memory.per_pipeline_rank.size();
  Table memory = memory_table(forecast, verbose || ranks < 2);
  std::vector<std::string> assumptions = forecast.result.assumptions;
  constexpr std::size_t kFirst = 2;
  if (!verbose && assumptions.size() > kFirst) {
    std::stable_partition(assumptions.begin(), assumptions.end(), matters_most);
    const std::size_t more = assumptions.size() - kFirst;
    assumptions.resize(kFirst);
    assumptions.push_back(fmt::format("{} more{}: --verbose lists them", more,
                                      ranks > 1 ? fmt::format("; memory of the fullest of {} ranks", ranks) : ""));
  } else if (!verbose && ranks > 1) {
    memory.notes.push_back(fmt::format("memory of the fullest of {} ranks: --verbose lists all", ranks));
  }
  for (const std::string& assumption : assumptions) memory.notes.push_back("assumed: " + assumption);
  std::vector<Table> tables = {step_table(forecast, mfu), breakdown_table(forecast.result)};
  // For fine-tuning, the waste of padding outweighs everything else, so its table comes first.
  const bool first = forecast.result.packing && forecast.step.job.training.finetune;
  if (first) tables.insert(tables.begin(), packing_table(forecast.result));
  if (forecast.result.distribution) tables.push_back(distribution_table(forecast.result));
  if (forecast.result.packing && !first) tables.push_back(packing_table(forecast.result));
  for (Table& table : run_tables(forecast.result, verbose)) tables.push_back(std::move(table));
  if (forecast.result.network) {
    for (Table& table : network_tables(forecast.result)) tables.push_back(std::move(table));
  }
  tables.push_back(std::move(memory));
  return tables;
}

Table result_row(const Forecast& forecast) {
  Table row;
  row.rows.emplace_back();
  flatten(result_json(forecast), "", row);
  return row;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Explanation, name, aliases, what, formulas, yours, source, see)

namespace {

std::string normal_form(std::string_view term) {
  std::string form;
  for (const char character : term) {
    const auto byte = static_cast<unsigned char>(character);
    if (std::isspace(byte) || character == '-' || character == '_' || character == '/' || character == '.') continue;
    form += static_cast<char>(std::tolower(byte));
  }
  return form;
}

}  // namespace

std::vector<Explanation> read_explanations() {
  std::vector<Explanation> explanations;
  for (const EmbeddedFile& file : embedded_explanations()) {
    const nlohmann::json json = nlohmann::json::parse(file.text);
    for (const nlohmann::json& term : json.at("terms")) {
      explanations.push_back(term.get<Explanation>());
      explanations.back().group = json.at("group").get<std::string>();
    }
  }
  return explanations;
}

const Explanation* find_explanation(const std::vector<Explanation>& explanations, std::string_view term) {
  const std::string wanted = normal_form(term);
  for (const Explanation& explanation : explanations) {
    if (normal_form(explanation.name) == wanted) return &explanation;
  }
  for (const Explanation& explanation : explanations) {
    for (const std::string& alias : explanation.aliases) {
      if (normal_form(alias) == wanted) return &explanation;
    }
  }
  return nullptr;
}

}  // namespace flopcast
