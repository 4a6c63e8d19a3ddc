// `flopcast report`: a page of saved results says what the page of the command that saved them does.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/report_page.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

class Report : public testing::Test {
 protected:
  CommandResult run(const std::vector<std::string>& arguments) {
    CommandOptions options;
    options.working_directory = scratch_.path();
    return run_flopcast(arguments, options);
  }
  CommandResult simulate(const std::string& file, const std::vector<std::string>& more = {}) {
    const auto job = project_folder() / "examples" / "gpt3-175b-64-gpus" / "job.json";
    std::vector<std::string> words = {"simulate", job.string(), "--format", "json", "-o", file};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  Json page(const std::string& file) { return Json::parse(data_of_page(read_text(scratch_.path() / file))); }
  void write(const std::string& file, const Json& json) { std::ofstream(scratch_.path() / file) << json.dump(); }
  Json read(const std::string& file) { return Json::parse(read_text(scratch_.path() / file)); }

 private:
  TemporaryFolder scratch_;
};

TEST_F(Report, SavedTimelinesTellWhatTheirOwnPageDoes) {
  const CommandResult drawn = run({"timeline", "--pp", "4", "-m", "8", "--schedule", "1f1b,chimera,dualpipe,zb-h1",
                                   "--p2p", "0.25", "--format", "json", "-o", "t.json", "--html", "t.html"});
  ASSERT_EQ(drawn.exit_code, 0) << drawn.standard_error;
  const CommandResult reported = run({"report", "t.json", "-o", "r.html"});
  ASSERT_EQ(reported.exit_code, 0) << reported.standard_error;
  EXPECT_EQ(reported.standard_error, "");
  const Json views = page("t.html").at("views");
  ASSERT_EQ(views.size(), 4U);
  EXPECT_GT(views.at(0).at("metrics").at("ranks").at(1).at("pipeline").get<double>(), 0.0);
  EXPECT_EQ(page("r.html").at("views"), views);
}

TEST_F(Report, LayoutsSideBySideAreToldApart) {
  ASSERT_EQ(simulate("a.json", {"--html", "own.html"}).exit_code, 0);
  ASSERT_EQ(simulate("b.json", {"--tp", "4", "--pp", "16"}).exit_code, 0);
  ASSERT_EQ(run({"report", "a.json", "b.json", "-o", "r.html"}).exit_code, 0);
  const auto both = page("r.html").at("question").get<std::string>();
  EXPECT_NE(both.find("tp 8  pp 8"), std::string::npos) << both;
  EXPECT_NE(both.find("\nb: gpt3-175b"), std::string::npos) << both;
  EXPECT_NE(both.find("tp 4  pp 16"), std::string::npos) << both;
  ASSERT_EQ(run({"report", "a.json", "-o", "r.html"}).exit_code, 0);
  EXPECT_EQ(page("r.html").at("question"), page("own.html").at("question"));
}

TEST_F(Report, AResultOfAnotherVersionLosesItsTimelineWithANote) {
  ASSERT_EQ(simulate("a.json").exit_code, 0);
  Json result = read("a.json");
  result["iteration"]["time_s"] = 12.5;
  write("other.json", result);
  CommandResult reported = run({"report", "other.json", "-o", "r.html"});
  ASSERT_EQ(reported.exit_code, 0) << reported.standard_error;
  EXPECT_NE(reported.standard_error.find("no timeline"), std::string::npos) << reported.standard_error;
  Json data = page("r.html");
  EXPECT_NE(data.at("question").get<std::string>().find("12.5 s"), std::string::npos);
  EXPECT_NE(data.at("question").get<std::string>().find("tp 8  pp 8"), std::string::npos);
  EXPECT_FALSE(data.at("views").at(0).contains("timeline"));

  result.erase("job");
  write("jobless.json", result);
  reported = run({"report", "jobless.json", "-o", "r.html"});
  ASSERT_EQ(reported.exit_code, 0) << reported.standard_error;
  EXPECT_NE(page("r.html").at("question").get<std::string>().find("does not tell its job"), std::string::npos);
}

TEST_F(Report, MalformedResultsAreLocated) {
  ASSERT_EQ(simulate("a.json").exit_code, 0);
  const Json good = read("a.json");
  const auto refused = [&](const Json& json, const std::string& field) {
    write("bad.json", json);
    const CommandResult reported = run({"report", "bad.json", "-o", "r.html"});
    EXPECT_EQ(reported.exit_code, 2) << field << ": " << reported.standard_error;
    EXPECT_NE(reported.standard_error.find("bad.json"), std::string::npos) << reported.standard_error;
    EXPECT_NE(reported.standard_error.find(field), std::string::npos) << field << ": " << reported.standard_error;
  };
  const auto changed = [&](const char* pointer, const Json& value) {
    Json json = good;
    json[Json::json_pointer(pointer)] = value;
    return json;
  };
  refused(changed("/iteration/time_s", nullptr), "iteration.time_s");
  refused(changed("/iteration", Json::array()), "iteration");
  refused(changed("/memory", nullptr), "memory");
  refused(changed("/memory/per_pipeline_rank", nullptr), "memory.per_pipeline_rank");
  refused(changed("/memory/per_pipeline_rank/1/weights_gib", "3"), "memory.per_pipeline_rank[1].weights_gib");
  refused(changed("/memory/fits", 1), "memory.fits");
  refused(changed("/breakdown/compute_s", "much"), "breakdown.compute_s");
  refused(changed("/assumptions", Json{{"a", 1}}), "assumptions");
  refused(changed("/warnings", Json::array({1})), "warnings");
  refused(changed("/job", Json::array()), "job");
  refused(changed("/job/model", "gpt"), "job.model");
  refused(changed("/job/model/name", 3), "job.model.name");
  const Json run = {
      {"schema", "flopcast.run/1"}, {"forecast", good}, {"measured", changed("/bubble/fraction", nullptr)}};
  refused(run, "measured.bubble.fraction");
  refused({{"schema", "flopcast.run/1"}, {"forecast", good}, {"measured", good}, {"timelines", 3}}, "timelines");
  refused({{"schema", "flopcast.timeline/1"}, {"timelines", {{"ranks", 1}}}}, "timelines");
  refused({{"schema", "flopcast.timeline/1"}, {"timelines", 3}}, "timelines");
}

TEST_F(Report, AModelMayBeCalledLikeAPartOfThePage) {
  ASSERT_EQ(simulate("a.json").exit_code, 0);
  Json result = read("a.json");
  result["job"]["model"]["name"] = "{{script}} {{data}}";
  write("a.json", result);
  ASSERT_EQ(run({"report", "a.json", "-o", "r.html"}).exit_code, 0);
  EXPECT_EQ(page("r.html").at("title"), "{{script}} {{data}}");
  EXPECT_EQ(page("r.html").at("views").size(), 1U);
}

// The curves over the timeline are tensors, so their limit is what is left for tensors.
TEST_F(Report, TheLimitOfMemoryCurvesIsThatOfTensors) {
  ASSERT_EQ(simulate("a.json", {"--stack", "megatron-deepspeed", "--html", "a.html"}).exit_code, 0);
  const Json view = page("a.html").at("views").at(0);
  EXPECT_NEAR(view.at("memory").at("capacity_gib").at(0).get<double>(), 72.0, 1e-9);
}

TEST_F(Report, TimelinesOfEarlyVersionsTellNoWaiting) {
  ASSERT_EQ(
      run({"timeline", "--pp", "2", "-m", "4", "--schedule", "1f1b", "--format", "json", "-o", "t.json"}).exit_code, 0);
  Json saved = read("t.json");
  saved.at("timelines").at(0).erase("transfers");
  write("early.json", saved);
  const CommandResult reported = run({"report", "early.json", "-o", "r.html"});
  ASSERT_EQ(reported.exit_code, 0) << reported.standard_error;
  EXPECT_NE(reported.standard_error.find("tells no transfers"), std::string::npos) << reported.standard_error;
  EXPECT_NE(page("r.html").at("question").get<std::string>().find("tells no transfers"), std::string::npos);
}

}  // namespace
}  // namespace flopcast
