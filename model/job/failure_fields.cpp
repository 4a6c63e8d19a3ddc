#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"
#include "model/workload/failures.hpp"

namespace flopcast {

namespace {

constexpr int kMostObserved = 10'000'000;
constexpr int kMostSpares = 1'000'000;
constexpr int kMostRuns = 100'000;
constexpr int kMostSeeds = 1'000'000'000;
constexpr int kMostReplicas = 1'000'000;
constexpr int kMostRackNodes = 100'000;
constexpr double kMostDays = 36'500.0;
constexpr double kMostSlow = 1'000.0;
constexpr const char* kBestInterval = "auto";
constexpr const char* kRateHelp =
    "N per UNIT PERIOD, such as \"0.6 per job month\"; units job, gpu, node, link, rack; periods hour, day, week, "
    "month, "
    "year";

void read_interval(ObjectReader& reader, const FieldInfo& field, CheckpointPolicy& checkpoint_policy) {
  const nlohmann::json* value = reader.find(field.key);
  auto& interval = checkpoint_policy.interval;
  interval.reset();
  if (value != nullptr && *value == kBestInterval) return;
  const std::optional<double> seconds = reader.quantity(field.key, Dimension::kTime);
  if (seconds && *seconds <= 0.0) reader.fail(field.key, "is zero", "expected auto, or a time such as \"30min\"");
  if (seconds) interval = Seconds(*seconds);
}

OrderedJsonValue write_interval(const FieldInfo&, const CheckpointPolicy& checkpoint_policy) {
  const auto& interval = checkpoint_policy.interval;
  return interval ? nlohmann::ordered_json(quantity_text(interval->value(), Dimension::kTime))
                  : nlohmann::ordered_json(kBestInterval);
}

void read_rate(ObjectReader& reader, const FieldInfo& field, SlowPhases& slow_phases) {
  const std::optional<std::string> text = reader.text(field.key);
  const std::optional<EventRate> rate = text ? parse_event_rate(*text) : std::nullopt;
  if (!rate) reader.fail(field.key, fmt::format("\"{}\" is not a rate", text.value_or("")), kRateHelp);
  slow_phases.rate = *rate;
}

OrderedJsonValue write_rate(const FieldInfo&, const SlowPhases& slow_phases) {
  return text_of(slow_phases.rate);
}

OrderedJsonValue write_causes(const FieldInfo&, const Failures& failures) {
  if (failures.mtbf) return nullptr;
  nlohmann::ordered_json causes = nlohmann::ordered_json::array();
  for (const FailureCause& cause : failures.causes) causes.push_back(write_fields(failure_cause_fields(), cause));
  return causes;
}

// An empty section is not written.
template <auto Member, auto Table>
Entry<Failures> section(std::string_view key, std::string_view help) {
  Entry<Failures> entry = own_part<Member, Table>(key, help);
  entry.field.write = [](const FieldInfo& field, const Failures& failures) -> OrderedJsonValue {
    OrderedJsonValue json = write_object<Member, Table>(field, failures);
    return json->empty() ? nullptr : json;
  };
  return entry;
}

const Fields<ObservedFleet>& observed_table() {
  using O = ObservedFleet;
  static const Fields<ObservedFleet> fields = {
      flopcast::whole<&O::gpus>("gpus", 1, kMostObserved, "GPUs of the fleet whose events were counted").flag("N"),
      flopcast::whole<&O::nodes>("nodes", 1, kMostObserved, "nodes of that fleet").flag("N"),
      flopcast::whole<&O::links>("links", 1, kMostObserved, "network links of that fleet")
          .flag("N")
          .otherwise("one per GPU"),
      flopcast::whole<&O::racks>("racks", 1, kMostObserved, "racks of that fleet").flag("N"),
      amount<&O::days>("days", "days of observation").up_to(kMostDays).flag("DAYS")};
  return fields;
}

const Fields<CheckpointPolicy>& checkpoint_table() {
  using C = CheckpointPolicy;
  static const Fields<CheckpointPolicy> fields = {
      custom<C>("interval", FieldKind::kText, "training time between two checkpoints, or auto for the best interval",
                &read_interval, &write_interval)
          .flag("TIME|auto"),
      quantity<&C::cost>("cost", Dimension::kTime, "time the run stops for each checkpoint")
          .flag("TIME", {"--checkpoint-time"})
          .otherwise("10 s with mtbf, else derived from the checkpoint's size"),
      quantity<&C::restore>("restore", Dimension::kTime,
                            "time from detection, with a replacement available, to the next step")
          .flag("TIME", {"--restart-time"})
          .otherwise("5 min with mtbf, else restart plus the time to read the checkpoint"),
      boolean<&C::asynchronous>("asynchronous", "steps continue while a copy in host memory is written").flag(""),
      quantity<&C::storage_bandwidth>("storage_bandwidth", Dimension::kBandwidth,
                                      "storage bandwidth shared by all nodes")
          .above_zero()
          .flag("RATE")
          .otherwise("1.2 GB/s per node, as measured for BLOOM"),
      boolean<&C::in_memory>("in_memory", "peers also keep a copy, which survives the loss of a node").flag(""),
      quantity<&C::memory_interval>("memory_interval", Dimension::kTime, "in_memory: training time between two copies")
          .above_zero()
          .flag("TIME")
          .otherwise("the best interval"),
      quantity<&C::memory_cost>("memory_cost", Dimension::kTime, "in_memory: time the run stops for each copy")
          .flag("TIME")
          .otherwise("derived from the checkpoint's size"),
      quantity<&C::memory_restore>("memory_restore", Dimension::kTime, "in_memory: like restore, but from peers")
          .flag("TIME")
          .otherwise("restart plus the time to fetch the checkpoint"),
  };
  return fields;
}

const Fields<ElasticReplicas>& elastic_table() {
  using E = ElasticReplicas;
  static const Fields<ElasticReplicas> fields = {
      flopcast::whole<&E::least_dp>("least_dp", 1, kMostReplicas,
                                    "smallest number of replicas with which the run continues; with fewer it waits")
          .flag("N", {"--least-dp"}),
      quantity<&E::regroup>("regroup", Dimension::kTime, "time all replicas stop while they regroup").flag("TIME")};
  return fields;
}

const Fields<SlowPhases>& slow_phase_table() {
  using S = SlowPhases;
  static const Fields<SlowPhases> fields = {
      custom<S>("rate", FieldKind::kText, "rate of phases in which the job is slow, such as \"0.6 per job month\"",
                &read_rate, &write_rate)
          .flag("RATE")
          .required(kRateHelp),
      quantity<&S::mean>("mean", Dimension::kTime, "mean duration of a slow phase (exponential distribution)")
          .above_zero()
          .flag("TIME")
          .required("such as \"72min\""),
      amount<&S::factor>("factor", "factor on the step time in such a phase")
          .up_to(kMostSlow)
          .flag("F")
          .required("such as 1.35"),
      quantity<&S::evict_after>("evict_after", Dimension::kTime,
                                "time after which the cause of the slowdown is replaced")
          .flag("TIME")
          .otherwise("never")};
  return fields;
}

const Fields<SlowNodes>& straggler_table() {
  using S = SlowNodes;
  static const Fields<SlowNodes> fields = {
      share<&S::share>("share", 1.0, "fraction of nodes that are slower").flag("S").required("such as 0.005"),
      amount<&S::factor>("factor", "factor on their computation time").up_to(kMostSlow).flag("F").otherwise("1"),
      amount<&S::link_factor>("link_factor", "factor on the transfer time of their network cards")
          .up_to(kMostSlow)
          .flag("F")
          .otherwise("1"),
      quantity<&S::evict_after>("evict_after", Dimension::kTime, "time after which a slow node is replaced")
          .flag("TIME")
          .otherwise("never")};
  return fields;
}

const Fields<Maintenance>& maintenance_table() {
  using M = Maintenance;
  static const Fields<Maintenance> fields = {
      quantity<&M::every>("every", Dimension::kTime, "time from one planned stop to the next")
          .above_zero()
          .flag("TIME")
          .required("such as \"7d\""),
      quantity<&M::lasts>("lasts", Dimension::kTime, "duration of each stop").flag("TIME").required("such as \"1h\"")};
  return fields;
}

}  // namespace

const Fields<FailureCause>& failure_cause_fields() {
  using C = FailureCause;
  static const Fields<FailureCause> fields = {
      text<&C::name>("name", "name of the cause").required("such as \"gpu\""),
      choice<&C::per>("per", "unit that mtbf and events refer to: gpu, node, link, rack or site"),
      quantity<&C::mtbf>("mtbf", Dimension::kTime, "mean time between failures of one such unit").above_zero(),
      amount<&C::events>("events", "alternative to mtbf: number of events seen on the observed fleet").up_to(1e9),
      optional_choice<&C::takes>("takes", "unit out of service until repaired: nothing, node, rack or site")
          .otherwise("node; rack for causes per rack, site for causes per site"),
      quantity<&C::detection>("detection", Dimension::kTime, "time until it is detected")
          .otherwise("failures.detection"),
      quantity<&C::repair>("repair", Dimension::kTime, "time until it is back in service").otherwise("failures.repair"),
      boolean<&C::silent>("silent", "nothing stops, but results are wrong until it is detected")};
  return fields;
}

const Fields<Failures>& failure_fields() {
  static const Fields<Failures> fields = {
      text<&Failures::preset>("preset", "failure model of a long run (see: flopcast catalog failures)")
          .flag("NAME")
          .names_object()
          .among([] { return catalogue_names(CatalogueKind::kFailures); }),
      quantity<&Failures::mtbf>("mtbf", Dimension::kTime,
                                "single cause: mean time between failures of one GPU (default 50676h, as for Llama 3)")
          .above_zero()
          .flag("TIME", {"--mtbf"}),
      custom<Failures>("causes", FieldKind::kList, "failure causes, each with its rate", nullptr, &write_causes)
          .of<failure_cause_fields>(),
      section<&Failures::observed, observed_table>("observed", "fleet whose failures were counted"),
      other("log", FieldKind::kText, "CSV of interruptions on the observed fleet: cause, per, takes, count")
          .flag("FILE", {"--failure-log"}),
      section<&Failures::checkpoint, checkpoint_table>("checkpoint", "checkpoints to which the run returns"),
      quantity<&Failures::detection>("detection", Dimension::kTime, "time until a failure is detected")
          .flag("TIME")
          .otherwise("0 with mtbf, else 60 s"),
      quantity<&Failures::restart>("restart", Dimension::kTime, "time to restart processes and communicators")
          .flag("TIME")
          .otherwise("5 min"),
      whole<&Failures::spares>("spares", 0, kMostSpares, "standby nodes")
          .flag("N", {"--spares"})
          .otherwise("a replacement is always available"),
      quantity<&Failures::repair>("repair", Dimension::kTime, "time until failed hardware is back in service")
          .flag("TIME"),
      whole<&Failures::rack_nodes>("rack_nodes", 1, kMostRackNodes, "nodes per rack").flag("N"),
      section<&Failures::elastic, elastic_table>("elastic", "continue the run with fewer replicas"),
      section<&Failures::slow_phases, slow_phase_table>("slow_phases", "phases during which the whole job is slow"),
      section<&Failures::stragglers, straggler_table>("stragglers", "nodes that compute or send more slowly"),
      section<&Failures::maintenance, maintenance_table>("maintenance", "planned stops"),
      whole<&Failures::runs>("runs", 1, kMostRuns, "number of runs to simulate").flag("N", {"--runs"}),
      whole<&Failures::seed>("seed", 0, kMostSeeds, "random seed").flag("N"),
  };
  return fields;
}

namespace {

void check_cause(const ObjectReader& reader, const FailureCause& cause, const ObservedFleet& observed) {
  if (cause.mtbf.has_value() == cause.events.has_value()) {
    reader.fail("mtbf", cause.mtbf ? "conflicts with events" : "is missing",
                "give either mtbf or events for each cause");
  }
  if (cause.name.empty()) reader.fail_missing("name", "such as \"gpu\"");
  if (!cause.events) return;
  if (!observed.days || *observed.days <= 0.0 || observed.units(cause.per) <= 0.0) {
    reader.fail("events",
                fmt::format("were counted per {}, but the observed fleet is not specified", name_of(cause.per)),
                fmt::format("give failures.observed.days and failures.observed.{}s", name_of(cause.per)));
  }
}

std::vector<FailureCause> read_causes(ObjectReader& failures, const ObservedFleet& observed) {
  std::vector<FailureCause> causes;
  for (ObjectReader& reader : failures.objects("causes")) {
    FailureCause cause;
    read_fields(failure_cause_fields(), reader, cause);
    reader.refuse_unknown_keys();
    check_cause(reader, cause, observed);
    const auto same = [&cause](const FailureCause& other) { return other.name == cause.name; };
    if (std::any_of(causes.begin(), causes.end(), same)) {
      reader.fail("name", fmt::format("\"{}\" appears twice", cause.name), "give each cause a unique name");
    }
    causes.push_back(std::move(cause));
  }
  return causes;
}

// A preset overridden by the job's keys; keys of nested objects are overridden individually.
nlohmann::json preset_values(const nlohmann::json& given, const Origins& origins) {
  if (!given.contains("preset")) return given;
  const nlohmann::json& name = given.at("preset");
  const std::string text = name.is_string() ? name.get<std::string>() : name.dump();
  nlohmann::json values = catalogue_values(CatalogueKind::kFailures, text);
  if (values.is_null()) {
    throw ConfigError({"failures.preset", fmt::format("unknown preset \"{}\"", text), origins.where("failures"),
                       choices_help(text, catalogue_names(CatalogueKind::kFailures))});
  }
  values.erase("name");
  values.erase("description");
  for (const auto& item : given.items()) {
    const bool part = item.value().is_object() && values.contains(item.key()) && values[item.key()].is_object();
    if (part) {
      values[item.key()].update(item.value());
    } else {
      values[item.key()] = item.value();
    }
  }
  // A job that gives mtbf has no other causes.
  if (given.contains("mtbf")) values.erase("causes");
  return values;
}

void check_factors(const ObjectReader& reader, const Failures& failures) {
  const auto check = [&reader](const char* section, const char* key, double factor) {
    if (factor >= 1.0 && factor <= kMostSlow) return;
    throw ConfigError({fmt::format("failures.{}.{}", section, key), fmt::format("{} is out of range", factor),
                       reader.place(section), fmt::format("expected a factor from 1 to {}, such as 1.35", kMostSlow)});
  };
  if (failures.slow_phases) check("slow_phases", "factor", failures.slow_phases->factor);
  if (!failures.stragglers) return;
  check("stragglers", "factor", failures.stragglers->factor);
  check("stragglers", "link_factor", failures.stragglers->link_factor);
  if (failures.stragglers->factor > 1.0 || failures.stragglers->link_factor > 1.0) return;
  throw ConfigError({"failures.stragglers", "are as fast as the other nodes", reader.place("stragglers"),
                     "set factor (for their computation) or link_factor (for their network cards), such as 1.1"});
}

void check_levels(const ObjectReader& reader, const CheckpointPolicy& policy) {
  const bool speaks_of_memory = policy.memory_interval || policy.memory_cost || policy.memory_restore;
  if (policy.in_memory || !speaks_of_memory) return;
  throw ConfigError({"failures.checkpoint.in_memory", "is false, but memory_* keys are given",
                     reader.place("checkpoint"), "set it to true, or omit the memory_* keys"});
}

}  // namespace

std::optional<Failures> read_failures(ObjectReader& root, Job& job, const Origins& origins) {
  const nlohmann::json* given = root.find("failures");
  if (given == nullptr) return std::nullopt;
  const nlohmann::json named = given->is_string() ? nlohmann::json{{"preset", *given}} : *given;
  if (!named.is_object()) {
    root.fail("failures", fmt::format("{} is neither a preset nor an object", named.dump()),
              choices_help("", catalogue_names(CatalogueKind::kFailures)));
  }
  const nlohmann::json values = preset_values(named, origins);
  ObjectReader reader(values, "failures", origins);
  Failures failures;
  read_fields(failure_fields(), reader, failures);
  reader.refuse_unknown_keys();
  check_factors(reader, failures);
  check_levels(reader, failures.checkpoint);
  if (reader.has("log")) reader.fail("log", "is a file, which cannot be read here", "give causes");
  const bool has_causes = reader.has("causes");
  if (has_causes && failures.mtbf) {
    reader.fail("mtbf", "conflicts with causes", "give either mtbf for a single cause, or causes");
  }
  failures.causes = read_causes(reader, failures.observed);
  if (!has_causes && !failures.mtbf) {
    failures.mtbf = kGpuMtbf;
    job.assumptions.emplace_back("failures.mtbf is 50676 h per GPU, as for Llama 3");
  }
  return failures;
}

}  // namespace flopcast
