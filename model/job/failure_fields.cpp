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
  if (!rate) reader.fail(field.key, fmt::format("\"{}\" is no rate", text.value_or("")), kRateHelp);
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

// Without members it is not written.
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
      flopcast::whole<&O::gpus>("gpus", 1, kMostObserved, "of the fleet on which events were counted").flag("N"),
      flopcast::whole<&O::nodes>("nodes", 1, kMostObserved, "of that fleet").flag("N"),
      flopcast::whole<&O::links>("links", 1, kMostObserved, "of its nodes to the network")
          .flag("N")
          .otherwise("one a GPU"),
      flopcast::whole<&O::racks>("racks", 1, kMostObserved, "of that fleet").flag("N"),
      amount<&O::days>("days", "for which it was watched").up_to(kMostDays).flag("DAYS")};
  return fields;
}

const Fields<CheckpointPolicy>& checkpoint_table() {
  using C = CheckpointPolicy;
  static const Fields<CheckpointPolicy> fields = {
      custom<C>("interval", FieldKind::kText, "training between two checkpoints: a time, or auto for the best",
                &read_interval, &write_interval)
          .flag("TIME|auto"),
      quantity<&C::cost>("cost", Dimension::kTime, "the run stands still for each checkpoint")
          .flag("TIME", {"--checkpoint-time"})
          .otherwise("10 s with mtbf, else from the bytes of the job"),
      quantity<&C::restore>("restore", Dimension::kTime, "from a failure found, and a replacement, to the next step")
          .flag("TIME", {"--restart-time"})
          .otherwise("5 min with mtbf, else restart and the time to read the bytes of the job"),
      boolean<&C::asynchronous>("asynchronous", "steps go on while a copy in host memory is written").flag(""),
      quantity<&C::storage_bandwidth>("storage_bandwidth", Dimension::kBandwidth, "that all nodes share")
          .above_zero()
          .flag("RATE")
          .otherwise("1.2 GB/s a node, BLOOM's"),
      boolean<&C::in_memory>("in_memory", "peers keep a copy too, which outlives the loss of a node").flag(""),
      quantity<&C::memory_interval>("memory_interval", Dimension::kTime, "in_memory: training between two copies")
          .above_zero()
          .flag("TIME")
          .otherwise("the best"),
      quantity<&C::memory_cost>("memory_cost", Dimension::kTime, "in_memory: the run stands still for each copy")
          .flag("TIME")
          .otherwise("from the bytes of the job"),
      quantity<&C::memory_restore>("memory_restore", Dimension::kTime, "in_memory: as restore, from peers")
          .flag("TIME")
          .otherwise("restart and the time to fetch the bytes of the job"),
  };
  return fields;
}

const Fields<ElasticReplicas>& elastic_table() {
  using E = ElasticReplicas;
  static const Fields<ElasticReplicas> fields = {
      flopcast::whole<&E::least_dp>("least_dp", 1, kMostReplicas,
                                    "the run goes on with as few replicas, and waits with fewer")
          .flag("N", {"--least-dp"}),
      quantity<&E::regroup>("regroup", Dimension::kTime, "all stand still while the replicas form anew").flag("TIME")};
  return fields;
}

const Fields<SlowPhases>& slow_phase_table() {
  using S = SlowPhases;
  static const Fields<SlowPhases> fields = {
      custom<S>("rate", FieldKind::kText, "of phases in which the job is slow: \"0.6 per job month\"", &read_rate,
                &write_rate)
          .flag("RATE")
          .required(kRateHelp),
      quantity<&S::mean>("mean", Dimension::kTime, "that one lasts, exponentially distributed")
          .above_zero()
          .flag("TIME")
          .required("such as \"72min\""),
      amount<&S::factor>("factor", "of the step time in such a phase")
          .up_to(kMostSlow)
          .flag("F")
          .required("such as 1.35"),
      quantity<&S::evict_after>("evict_after", Dimension::kTime, "after so long what is slow is replaced")
          .flag("TIME")
          .otherwise("never")};
  return fields;
}

const Fields<SlowNodes>& straggler_table() {
  using S = SlowNodes;
  static const Fields<SlowNodes> fields = {
      share<&S::share>("share", 1.0, "of nodes that are slower").flag("S").required("such as 0.005"),
      amount<&S::factor>("factor", "of the time of their computation").up_to(kMostSlow).flag("F").otherwise("1"),
      amount<&S::link_factor>("link_factor", "of the time of what passes their network cards")
          .up_to(kMostSlow)
          .flag("F")
          .otherwise("1"),
      quantity<&S::evict_after>("evict_after", Dimension::kTime, "after so long in the run a slow node is replaced")
          .flag("TIME")
          .otherwise("never")};
  return fields;
}

const Fields<Maintenance>& maintenance_table() {
  using M = Maintenance;
  static const Fields<Maintenance> fields = {
      quantity<&M::every>("every", Dimension::kTime, "planned stops: from one to the next")
          .above_zero()
          .flag("TIME")
          .required("such as \"7d\""),
      quantity<&M::lasts>("lasts", Dimension::kTime, "of each").flag("TIME").required("such as \"1h\"")};
  return fields;
}

}  // namespace

const Fields<FailureCause>& failure_cause_fields() {
  using C = FailureCause;
  static const Fields<FailureCause> fields = {
      text<&C::name>("name", "of the cause").required("such as \"gpu\""),
      choice<&C::per>("per", "what mtbf and events are of: gpu, node, link, rack or site"),
      quantity<&C::mtbf>("mtbf", Dimension::kTime, "mean time between failures of one of them").above_zero(),
      amount<&C::events>("events", "instead of mtbf: so many were seen on the observed fleet").up_to(1e9),
      optional_choice<&C::takes>("takes", "what is out of service until repaired: nothing, node, rack or site")
          .otherwise("the node; of a rack the rack, of the site the site"),
      quantity<&C::detection>("detection", Dimension::kTime, "until it is found").otherwise("failures.detection"),
      quantity<&C::repair>("repair", Dimension::kTime, "until it is back").otherwise("failures.repair"),
      boolean<&C::silent>("silent", "nothing stops, results are wrong until it is found")};
  return fields;
}

const Fields<Failures>& failure_fields() {
  static const Fields<Failures> fields = {
      text<&Failures::preset>("preset", "what interrupts a run of months (flopcast catalog failures)")
          .flag("NAME")
          .names_object()
          .among([] { return catalogue_names(CatalogueKind::kFailures); }),
      quantity<&Failures::mtbf>("mtbf", Dimension::kTime,
                                "one cause: mean time between failures of one GPU (default 50676h, Llama 3's)")
          .above_zero()
          .flag("TIME", {"--mtbf"}),
      custom<Failures>("causes", FieldKind::kList, "causes, each with its rate", nullptr, &write_causes)
          .of<failure_cause_fields>(),
      section<&Failures::observed, observed_table>("observed", "the fleet on which causes were counted"),
      other("log", FieldKind::kText, "CSV of interruptions on the observed fleet: cause, per, takes, count")
          .flag("FILE", {"--failure-log"}),
      section<&Failures::checkpoint, checkpoint_table>("checkpoint", "what a run returns to"),
      quantity<&Failures::detection>("detection", Dimension::kTime, "until a failure is found")
          .flag("TIME")
          .otherwise("0 with mtbf, else 60 s"),
      quantity<&Failures::restart>("restart", Dimension::kTime, "to start processes and communicators anew")
          .flag("TIME")
          .otherwise("5 min"),
      whole<&Failures::spares>("spares", 0, kMostSpares, "nodes that stand by")
          .flag("N", {"--spares"})
          .otherwise("a replacement is always at hand"),
      quantity<&Failures::repair>("repair", Dimension::kTime, "until what failed is back").flag("TIME"),
      whole<&Failures::rack_nodes>("rack_nodes", 1, kMostRackNodes, "nodes that a rack holds").flag("N"),
      section<&Failures::elastic, elastic_table>("elastic", "the run goes on with fewer replicas"),
      section<&Failures::slow_phases, slow_phase_table>("slow_phases", "phases in which the whole job is slow"),
      section<&Failures::stragglers, straggler_table>("stragglers", "nodes that compute or send slower"),
      section<&Failures::maintenance, maintenance_table>("maintenance", "planned stops"),
      whole<&Failures::runs>("runs", 1, kMostRuns, "runs to draw").flag("N", {"--runs"}),
      whole<&Failures::seed>("seed", 0, kMostSeeds, "of the drawing").flag("N"),
  };
  return fields;
}

namespace {

void check_cause(const ObjectReader& reader, const FailureCause& cause, const ObservedFleet& observed) {
  if (cause.mtbf.has_value() == cause.events.has_value()) {
    reader.fail("mtbf", cause.mtbf ? "stands beside events" : "is not given", "give mtbf or events of every cause");
  }
  if (cause.name.empty()) reader.fail_missing("name", "such as \"gpu\"");
  if (!cause.events) return;
  if (!observed.days || *observed.days <= 0.0 || observed.units(cause.per) <= 0.0) {
    reader.fail("events", fmt::format("were counted per {} on a fleet that is not told", name_of(cause.per)),
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
      reader.fail("name", fmt::format("\"{}\" stands twice", cause.name), "give each cause a name of its own");
    }
    causes.push_back(std::move(cause));
  }
  return causes;
}

// A preset with the job's own keys over it; parts of parts are replaced one by one.
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
  // Who names one cause means no others.
  if (given.contains("mtbf")) values.erase("causes");
  return values;
}

void check_factors(const ObjectReader& reader, const Failures& failures) {
  const auto check = [&reader](const char* section, const char* key, double factor) {
    if (factor >= 1.0 && factor <= kMostSlow) return;
    throw ConfigError({fmt::format("failures.{}.{}", section, key), fmt::format("{} is out of range", factor),
                       reader.place(section),
                       fmt::format("a factor of the time from 1 to {}, such as 1.35", kMostSlow)});
  };
  if (failures.slow_phases) check("slow_phases", "factor", failures.slow_phases->factor);
  if (!failures.stragglers) return;
  check("stragglers", "factor", failures.stragglers->factor);
  check("stragglers", "link_factor", failures.stragglers->link_factor);
  if (failures.stragglers->factor > 1.0 || failures.stragglers->link_factor > 1.0) return;
  throw ConfigError({"failures.stragglers", "are as quick as the other nodes", reader.place("stragglers"),
                     "give factor (of their computation) or link_factor (of their cards), such as 1.1"});
}

void check_levels(const ObjectReader& reader, const CheckpointPolicy& policy) {
  const bool speaks_of_memory = policy.memory_interval || policy.memory_cost || policy.memory_restore;
  if (policy.in_memory || !speaks_of_memory) return;
  throw ConfigError({"failures.checkpoint.in_memory", "is false, and the copy in memory is told of",
                     reader.place("checkpoint"), "set it to true, or leave memory_* out"});
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
  if (reader.has("log")) reader.fail("log", "is a file, and this reader reads none", "give causes");
  const bool has_causes = reader.has("causes");
  if (has_causes && failures.mtbf) {
    reader.fail("mtbf", "stands beside causes", "give one cause by mtbf, or all of them by causes");
  }
  failures.causes = read_causes(reader, failures.observed);
  if (!has_causes && !failures.mtbf) {
    failures.mtbf = kGpuMtbf;
    job.assumptions.emplace_back("failures.mtbf is 50676 h a GPU, Llama 3's");
  }
  return failures;
}

}  // namespace flopcast
