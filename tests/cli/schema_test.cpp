// JSON output of the commands conforms to docs/schema.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

void expect_schema(const char* schema, const std::vector<std::string>& arguments) {
  const Json rules =
      Json::parse(read_text(project_folder() / "docs" / "schema" / (std::string(schema) + ".schema.json")));
  std::vector<std::string> command = arguments;
  command.insert(command.end(), {"--format", "json"});
  const CommandResult result = run_flopcast(command);
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json answer = Json::parse(result.standard_output);
  EXPECT_EQ(schema_violation(rules, answer), "");
  // Every printed key has a rule, that is, is documented.
  const bool is_list = rules["type"] == "array";
  const Json& one = is_list ? rules["items"] : rules;
  if (!one.contains("properties")) return;
  for (const Json& object : is_list ? answer : Json::array({answer})) {
    for (const auto& item : object.items())
      EXPECT_TRUE(one["properties"].contains(item.key())) << schema << " does not know " << item.key();
  }
}

TEST(Schema, ResultsFollowTheirSchemas) {
  const std::string job = (project_folder() / "examples" / "gpt3-175b-64-gpus" / "job.json").string();
  expect_schema("result-1", {"simulate", job});
  expect_schema("result-1", {"simulate", job, "--tokens", "300B", "--price", "2"});
  expect_schema("result-1", {"simulate", job, "--jitter", "3%", "--straggler", "0.1%:1.5", "--samples", "10"});
  const TemporaryFolder folder;
  write_text(folder.path() / "lengths.txt", "2048 512*4, 1000");
  expect_schema("result-1", {"simulate", job, "--stack", "megatron-core", "--training.attention", "flash",
                             "--sequence-lengths", (folder.path() / "lengths.txt").string()});
  expect_schema("result-1", {"simulate", job, "--schedule", "pipedream-2bw", "--vpp", "1"});
  expect_schema("plan-1", {"plan", job, "--top", "3"});
  expect_schema("comparison-1", {"compare", job, "recompute=full"});
  expect_schema("gap-1", {"compare", job, "--measured", "15s"});
  expect_schema("strategies-1", {"compare", job, "--strategies"});
  expect_schema("strategies-1",
                {"compare", "--model", "gpt3-1.3b", "--cluster", "one-gpu", "--gbs", "4", "--strategies"});
  expect_schema("optimizations-1", {"compare", job, "--optimizations"});
  expect_schema("sweep-1", {"sweep", job, "--vary", "recompute=none,full"});
  expect_schema("memory-1", {"memory", job});
  expect_schema("memory-1", {"memory", job, "--over-time"});
  expect_schema("timeline-1", {"timeline", job});
  expect_schema("timeline-1", {"timeline", "--schedule", "gpipe,1f1b", "--pp", "2", "--microbatches", "3"});
  expect_schema("partition-1", {"partition", job});
  expect_schema("validation-1", {"validate", "--source", "simumax"});
  expect_schema("partition-1", {"partition", "--costs", "3,1,4", "--stages", "2"});
  const std::string graph = (project_folder() / "examples" / "heavy-head" / "two-branches.graph.txt").string();
  expect_schema("partition-1", {"partition", "--graph", graph, "--workers", "2", "--bandwidth", "1GB/s"});
  expect_schema("schedule-comparison-1", {"schedule", "compare", "--pp", "4", "--microbatches", "10"});
  expect_schema("schedule-comparison-1",
                {"schedule", "compare", "--pp", "4", "--microbatches", "1", "--at-memory", "2"});
  expect_schema("schedule-metrics-1", {"schedule", "simulate", "--schedule", "1f1b", "--pp", "3", "--microbatches", "5",
                                       "--forward", "1.5", "--backward", "2"});
  expect_schema("schedule-metrics-1", {"schedule", "simulate", "--schedule", "pipedream", "--pp", "2", "--replicas",
                                       "3,1", "--microbatches", "12", "--forward", "3,1", "--backward", "6,2"});
}

TEST(Schema, TheCheckerFindsViolations) {
  const Json rules = Json::parse(
      R"({"type": "object", "required": ["a"], "properties": {"a": {"type": "array", "minItems": 1, "items": {"type": "number", "minimum": 0}}}})");
  EXPECT_EQ(schema_violation(rules, Json::parse(R"({"a": [1, 2]})")), "");
  EXPECT_NE(schema_violation(rules, Json::parse(R"({})")), "");
  EXPECT_NE(schema_violation(rules, Json::parse(R"({"a": []})")), "");
  EXPECT_EQ(schema_violation(rules, Json::parse(R"({"a": [1, -2]})")), "$.a[1]: -2 is below 0");
  const Json referring = Json::parse(
      R"({"properties": {"own": {"$ref": "#/definitions/one"}, "layout": {"$ref": "job-1.schema.json#/properties/layout"}},
          "definitions": {"one": {"type": ["integer", "array"]}}, "additionalProperties": false})");
  EXPECT_EQ(schema_violation(referring, Json::parse(R"({"own": 1, "layout": {"tp": 2}})")), "");
  EXPECT_EQ(schema_violation(referring, Json::parse(R"({"own": "1"})")),
            "$.own: \"1\" is not of type [\"integer\",\"array\"]");
  EXPECT_EQ(schema_violation(referring, Json::parse(R"({"layout": {"tpp": 2}})")), "$.layout must not have tpp");
  EXPECT_EQ(schema_violation(referring, Json::parse(R"({"other": 1})")), "$ must not have other");
  EXPECT_THROW(schema_violation(Json::parse(R"({"oneOf": []})"), Json::parse("1")), std::runtime_error);
}

}  // namespace
}  // namespace flopcast
