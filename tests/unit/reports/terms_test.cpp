// One name per term in tables, pages and JSON, and one table of a result's fields.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/text/error.hpp"
#include "model/config/codec.hpp"
#include "reports/html/page.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/terms.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::ordered_json;

Result some_result() {
  Result result;
  double value = 1.0;
  for (const StepTerm& term : breakdown_terms()) result.breakdown.*term.spent = value++;
  for (const StepTerm& term : bubble_terms()) result.bubble.*term.waited = value++;
  result.memory.per_pipeline_rank.emplace_back();
  for (const MemoryTerm& term : memory_terms()) result.memory.per_pipeline_rank[0].*term.gib = value++;
  result.iteration.time_s = 55.0;
  result.memory.fits = false;
  return result;
}

Json result_file() {
  Json json = {{"schema", "flopcast.result/1"}};
  json.update(write_fields(result_fields(), some_result()));
  return json;
}

TEST(Terms, EachIsThereOnceUnderOneName) {
  std::set<std::string> names;
  for (std::size_t index = 0; index < breakdown_terms().size() + bubble_terms().size(); ++index) {
    const StepTerm& term = step_term(static_cast<TermId>(index));
    EXPECT_TRUE(names.insert(term.name).second) << term.name;
    const bool is_whole_bubble = term.id == TermId::kBubble;
    EXPECT_EQ(std::string(term.check).empty(), is_whole_bubble) << term.name;
    EXPECT_EQ(std::string(term.color).empty(), is_whole_bubble) << term.name;
  }
  std::set<TermId> compared(compared_terms().begin(), compared_terms().end());
  EXPECT_EQ(compared.size(), compared_terms().size());
  EXPECT_EQ(compared.size(), names.size() - 1);
  EXPECT_EQ(compared.count(TermId::kBubble), 0u);
}

TEST(Terms, KeysAreThoseOfAResult) {
  const Json json = result_file();
  const Json terms = page_terms();
  for (const Json& term : terms.at("step")) EXPECT_TRUE(json["breakdown"].contains(term.at("key"))) << term;
  EXPECT_EQ(json["breakdown"].size(), terms.at("step").size());
  for (const StepTerm& term : bubble_terms()) EXPECT_TRUE(json["bubble"]["by_cause"].contains(term.key)) << term.key;
  for (const MemoryTerm& term : memory_terms()) {
    EXPECT_TRUE(json["memory"]["per_pipeline_rank"][0].contains(term.key)) << term.key;
  }
}

TEST(ResultFile, AComparisonReadsWhatWasWritten) {
  const Result result = some_result();
  const std::optional<Result> read = read_result(result_file().dump(), "a.json");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->iteration.time_s, result.iteration.time_s);
  for (const StepTerm& term : breakdown_terms()) EXPECT_EQ(term.seconds(*read), term.seconds(result)) << term.name;
  for (const StepTerm& term : bubble_terms()) EXPECT_EQ(term.seconds(*read), term.seconds(result)) << term.name;
  EXPECT_FALSE(read->memory.fits);
  EXPECT_FALSE(read_result("{}", "a.json").has_value());
}

TEST(ResultFile, SaysWhichNumberIsMissing) {
  Json json = result_file();
  json["breakdown"].erase("offload_s");
  try {
    read_result(json.dump(), "a.json");
    FAIL() << "accepted an invalid file";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "/breakdown/offload_s");
  }
  // A page also draws files of early versions.
  EXPECT_NO_THROW(check_results(json, "a.json"));
  json["memory"]["per_pipeline_rank"][0]["workspace_gib"] = "much";
  EXPECT_THROW(check_results({{"a", json}}, "a.json"), ConfigError);
}

}  // namespace
}  // namespace flopcast
