#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "sim/files/result_fields.hpp"
#include "sim/files/result_file.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

constexpr bool always_written(Needed needed) {
  return needed != Needed::kLater && needed != Needed::kLaterComparison;
}

Json object_schema() {
  return {{"type", "object"}, {"required", Json::array()}, {"properties", Json::object()}};
}

void add_property(Json& schema, const std::string& key, bool required, Json property) {
  if (required) schema["required"].push_back(key);
  schema["properties"][key] = std::move(property);
}

struct TypeName {
  const char* of(double) const { return "number"; }
  const char* of(const std::optional<double>&) const { return "number"; }
  const char* of(int) const { return "integer"; }
  const char* of(std::uint64_t) const { return "integer"; }
  const char* of(bool) const { return "boolean"; }
  const char* of(const std::string&) const { return "string"; }
};

Json value_schema(const char* type, int least) {
  Json schema = {{"type", type}};
  const std::string name = type;
  if (least != kAnySign && (name == "number" || name == "integer")) schema["minimum"] = least;
  return schema;
}

template <class Part>
void add_fields(Json& schema, const ResultFields<Part>& fields) {
  for (const ResultField<Part>& field : fields) {
    Json property = std::visit(
        [&](auto member) {
          using Value = std::decay_t<decltype(Part().*member)>;
          if constexpr (std::is_same_v<Value, std::vector<double>> || std::is_same_v<Value, std::vector<int>> ||
                        std::is_same_v<Value, std::vector<std::string>>) {
            const char* const type = TypeName().of(typename Value::value_type());
            return Json{{"type", "array"}, {"items", value_schema(type, field.least)}};
          } else {
            return value_schema(TypeName().of(Value()), field.least);
          }
        },
        field.member);
    if (*field.what != '\0') property["description"] = field.what;
    add_property(schema, field.key, always_written(field.needed), std::move(property));
  }
}

template <class Part>
Json part_schema(const ResultFields<Part>& fields, const char* what = "") {
  Json schema = object_schema();
  add_fields(schema, fields);
  if (*what != '\0') schema["description"] = what;
  return schema;
}

Json communication_schema() {
  Json schema = part_schema(communication_fields());
  for (const Axis axis : kResultAxes)
    add_property(schema, std::string(name_of(axis)), true, part_schema(axis_fields()));
  return schema;
}

Json bubble_schema() {
  Json schema = part_schema(bubble_fields());
  add_property(schema, "by_cause", true, part_schema(cause_fields()));
  add_fields(schema, bubble_by_rank_fields());
  return schema;
}

Json memory_schema() {
  Json schema = part_schema(memory_fields());
  add_property(schema, "per_pipeline_rank", true,
               {{"type", "array"}, {"minItems", 1}, {"items", part_schema(rank_memory_fields())}});
  return schema;
}

Json training_schema() {
  Json schema = part_schema(training_result_fields());
  add_fields(schema, day_fields());
  add_fields(schema, cost_fields());
  return schema;
}

Json run_schema() {
  Json schema = part_schema(run_fields(),
                            "A run of months with interruptions (failures), quantiles over runs drawn. Goodput: the "
                            "steps' time alone over the time on the clock. ETTR: time in which training advances, at "
                            "whatever pace, over the time on the clock, waits and restarts counted in the clock.");
  for (const char* key : {"goodput", "ettr", "days"}) add_property(schema, key, true, part_schema(quantile_fields()));
  add_property(schema, "cost_usd", false, part_schema(quantile_fields()));
  const Json seconds = {{"type", "object"}};
  Json lost = object_schema();
  lost["description"] = "Seconds of a run, means over the runs; both parts have the same sum.";
  add_property(lost, "by_cause", true, seconds);
  add_property(lost, "by_phase", true, seconds);
  add_property(schema, "lost_s", true, std::move(lost));
  add_property(schema, "options", true, {{"type", "array"}, {"items", part_schema(option_fields())}});
  return schema;
}

Json by_axis_schema(const char* what, int least) {
  Json schema = object_schema();
  schema["description"] = what;
  for (const Axis axis : kResultAxes)
    add_property(schema, std::string(name_of(axis)), true, value_schema("number", least));
  return schema;
}

Json network_schema() {
  Json schema = object_schema();
  schema["description"] = "What links that are shared between nodes do to the step (cluster.network).";
  add_property(schema, "contention_s", true,
               by_axis_schema("What sharing adds to the step, by whose messages it waits for.", 0));
  Json link = part_schema(hot_link_fields());
  add_property(link, "share", true, by_axis_schema("Of what the link carries.", 0));
  add_property(schema, "hot_links", true, {{"type", "array"}, {"items", std::move(link)}});
  add_fields(schema, network_result_fields());
  add_property(schema, "paths", false,
               part_schema(path_fields(), "The step over seeds of hashed paths (--path-samples)."));
  Json group = object_schema();
  add_property(group, "axis", true, {{"type", "string"}});
  add_fields(group, bandwidth_fields());
  add_property(schema, "nccl_tests", true,
               {{"type", "array"},
                {"description", "What nccl-tests should print where all groups of an axis run at once."},
                {"items", std::move(group)}});
  return schema;
}

Json texts_schema() {
  return {{"type", "array"}, {"items", {{"type", "string"}}}};
}

// The beginning of a file's schema: its name, and the job that it answers.
Json file_schema(const char* name, const char* what) {
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", name}, {"description", what}};
  schema.update(object_schema());
  add_property(schema, "schema", true, {{"const", name}});
  add_property(schema, "job", true,
               {{"type", "object"},
                {"description", "The resolved job, in the form of a job file."},
                {"required", {"model", "cluster", "layout", "training"}}});
  return schema;
}

// What `simulate` adds.
Json critical_path_schema() {
  const Json seconds = value_schema("number", 0);
  Json schema = object_schema();
  schema["description"] = "The longest chain of work and transfers of the timeline; its parts sum to total_s.";
  add_property(schema, "total_s", true, seconds);
  add_property(schema, "steps", true, value_schema("integer", 0));
  add_property(schema, "by_kind_s", true, {{"type", "object"}});
  add_property(schema, "transfers_s", true, seconds);
  add_property(schema, "waiting_s", true, seconds);
  return schema;
}

}  // namespace

Json result_schema() {
  Json schema =
      file_schema(kResultName, "A forecast. Times in seconds, memory in GiB (2^30 bytes), shares between 0 and 1.");
  add_property(schema, "iteration", true, part_schema(iteration_fields()));
  add_property(
      schema, "breakdown", true,
      part_schema(breakdown_fields(), "Exposed times, mean over pipeline ranks; they sum to iteration.time_s."));
  add_property(schema, "communication", true, communication_schema());
  add_property(schema, "bubble", true, bubble_schema());
  add_property(schema, "memory", true, memory_schema());
  add_property(schema, "model", false, part_schema(parameter_fields(), "Weights of the model, counted exactly."));
  add_property(
      schema, "step_time_interval", false,
      part_schema(interval_fields(),
                  "Nine of ten measured steps are expected between low_s and high_s. From the errors of so many "
                  "sources of published runs; factor: by how much the distance from them widens it."));
  add_property(schema, "training", false, training_schema());
  add_property(schema, "steady", false, part_schema(steady_fields()));
  add_property(schema, "distribution", false,
               part_schema(distribution_fields(), "Of the step time when passes vary (--jitter, --straggler)."));
  add_property(schema, "packing", false,
               part_schema(packing_fields(),
                           "A step whose microbatches hold sequences of several lengths (--sequence-lengths)."));
  add_property(schema, "run", false, run_schema());
  add_property(schema, "network", false, network_schema());
  add_property(schema, "assumptions", true, texts_schema());
  add_property(schema, "warnings", true, texts_schema());
  add_property(schema, "critical_path", false, critical_path_schema());
  return schema;
}

Json memory_file_schema() {
  Json schema = file_schema(kMemoryName, "Memory of each pipeline rank, in GiB (2^30 bytes).");
  add_property(schema, "memory", true, memory_schema());
  const Json amount = value_schema("number", 0);
  Json tensor = object_schema();
  for (const char* key : {"kind", "tensor"}) add_property(tensor, key, true, {{"type", "string"}});
  for (const char* key : {"each_gib", "count", "gib"}) add_property(tensor, key, true, amount);
  Json fullest = object_schema();
  fullest["description"] = "The tensors of the fullest rank at its fullest moment, largest first.";
  add_property(fullest, "rank", true, value_schema("integer", 0));
  add_property(fullest, "tensors", true, {{"type", "array"}, {"items", std::move(tensor)}});
  add_property(schema, "fullest_rank", false, std::move(fullest));
  const Json point = {{"type", "array"}, {"minItems", 2}, {"maxItems", 2}, {"items", amount}};
  add_property(schema, "over_time", false,
               {{"type", "array"},
                {"description", "By pipeline rank: [seconds, GiB] at every change."},
                {"items", {{"type", "array"}, {"items", point}}}});
  add_property(schema, "packing", false,
               part_schema(packing_fields(), "Sequences of several lengths (--sequence-lengths)."));
  add_property(schema, "assumptions", true, texts_schema());
  add_property(schema, "warnings", true, texts_schema());
  return schema;
}

}  // namespace flopcast
