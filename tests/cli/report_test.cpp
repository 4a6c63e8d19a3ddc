// `flopcast report`: a page of saved results equals the page of the command that saved them.
#include <gtest/gtest.h>

#include <cstdio>
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
  const std::filesystem::path& scratch() const { return scratch_.path(); }
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
  EXPECT_NE(page("r.html").at("question").get<std::string>().find("does not contain its job"), std::string::npos);
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

// The curves over the timeline are tensors, so their limit is the memory available for tensors.
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
  EXPECT_NE(reported.standard_error.find("lacks transfers"), std::string::npos) << reported.standard_error;
  EXPECT_NE(page("r.html").at("question").get<std::string>().find("lacks transfers"), std::string::npos);
}

// The page of a command whose answer consists of tables.
TEST_F(Report, PlansSweepsMemoryAndErrorsArePagesToo) {
  const auto wrote = [this](const std::vector<std::string>& words) {
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    return page("page.html");
  };
  Json data = wrote({"plan", "--model", "gpt3-6.7b", "--cluster", "2xdgx-a100-80g", "--gbs", "64", "--top", "4",
                     "--format", "json", "-o", "plan.json", "--html", "page.html"});
  const Json plan = read("plan.json");
  EXPECT_EQ(data.at("tables")[0].at("rows").size(), plan.at("ranked").size());
  ASSERT_EQ(data.at("views").size(), 3u);
  for (std::size_t place = 0; place < 3; ++place) {
    EXPECT_EQ(data.at("views")[place].at("result").at("iteration"),
              plan.at("ranked")[place].at("result").at("iteration"));
    EXPECT_TRUE(data.at("views")[place].contains("timeline"));
  }
  EXPECT_NE(data.at("figures")[0].at("svg").get<std::string>().find("on the front"), std::string::npos);
  EXPECT_NE(data.at("answer").get<std::string>().find("s per step"), std::string::npos);
  EXPECT_NE(data.at("command").get<std::string>().find("flopcast plan --model gpt3-6.7b"), std::string::npos);

  const std::string job = (project_folder() / "examples" / "gpt3-175b-64-gpus" / "job.json").string();
  data = wrote(
      {"sweep", job, "--vary", "vpp=1,3", "--vary", "mbs=1,2", "--schedule", "interleaved", "--html", "page.html"});
  EXPECT_EQ(data.at("tables")[0].at("rows").size(), 4u);
  EXPECT_EQ(data.at("figures").size(), 1u);
  EXPECT_EQ(wrote({"sweep", job, "--vary", "mbs=1,2", "--html", "page.html"}).at("figures").size(), 0u);

  data = wrote({"memory", job, "--html", "page.html"});
  EXPECT_EQ(data.at("tables")[0].at("rows").size(), 8u);
  EXPECT_EQ(data.at("figures").size(), 1u);
  EXPECT_TRUE(data.at("views")[0].contains("memory"));

  data = wrote({"validate", "--source", "zero_bubble", "--html", "page.html"});
  EXPECT_GE(data.at("tables").size(), 3u);
  EXPECT_EQ(data.at("figures").size(), 1u);

  const std::string profile = (project_folder() / "model" / "catalog" / "profiles" / "a100-nccl.json").string();
  data = wrote({"calibrate", "--report", profile, "--html", "page.html"});
  EXPECT_GE(data.at("tables").size(), 1u);
  EXPECT_EQ(run({"validate", "--documented", profile, "--html", "page.html"}).exit_code, 2);
}

// Gains promised on a page equal the forecasts of the changes.
TEST_F(Report, AdviceIsForecast) {
  ASSERT_EQ(simulate("now.json", {"--html", "page.html"}).exit_code, 0);
  ASSERT_EQ(simulate("twice.json", {"--gbs", "128"}).exit_code, 0);
  const Json advice = page("page.html").at("advice");
  const double now = read("now.json").at("iteration").at("samples_per_s");
  const double twice = read("twice.json").at("iteration").at("samples_per_s");
  ASSERT_GT(twice, 1.01 * now);
  ASSERT_GE(advice.size(), 2u);
  EXPECT_EQ(advice[0].get<std::string>().rfind("80.6 % of the step is compute; the largest other part is", 0), 0u)
      << advice;
  char told[100];
  std::snprintf(told, sizeof told, "twice the batch, 128 sequences per step: %.1f %% more samples per second",
                100.0 * (twice / now - 1.0));
  bool found = false;
  for (const Json& line : advice) found = found || line.get<std::string>().rfind(told, 0) == 0;
  EXPECT_TRUE(found) << told << " is not in " << advice;
  // For a job that does not fit: changes that make it fit.
  ASSERT_EQ(
      simulate("large.json", {"--pp", "4", "--vpp", "2", "--dp", "2", "--recompute", "none", "--html", "page.html"})
          .exit_code,
      0);
  const Json fitting = page("page.html").at("advice");
  EXPECT_NE(fitting[1].get<std::string>().find("needs"), std::string::npos) << fitting;
}

TEST_F(Report, FiguresAreWrittenAsTheirEndingSays) {
  const auto draw = [this](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"timeline", "--pp", "4", "-m", "8", "--schedule", "zb-h1"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const auto begins = [this](const std::string& file, const std::string& with) {
    return read_text(scratch() / file).rfind(with, 0) == 0;
  };
  ASSERT_EQ(draw({"--svg", "a.svg", "--svg-width", "84mm", "--no-title"}).exit_code, 0);
  EXPECT_NE(read_text(scratch() / "a.svg").find("width=\"84.00mm\""), std::string::npos);
  for (const auto& [file, magic] :
       {std::pair("a.png", "\x89PNG"), std::pair("a.pdf", "%PDF"), std::pair("b.PDF", "%PDF")}) {
    const CommandResult result = draw({"--svg", file, "--svg-width", "84mm"});
    if (result.exit_code == 4) {
      EXPECT_NE(result.standard_error.find("librsvg2-bin"), std::string::npos) << result.standard_error;
      continue;
    }
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    EXPECT_TRUE(begins(file, magic)) << file;
  }
  const auto refused = [&](const std::vector<std::string>& more, const std::string& said) {
    const CommandResult result = draw(more);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.standard_error.find(said), std::string::npos) << result.standard_error;
  };
  refused({"--svg", "a.jpg"}, ".svg, .png, .pdf");
  refused({"--svg", "-"}, "/dev/stdout");
  refused({"--svg", "a.svg", "--svg-width", "84"}, "84mm");
  refused({"--svg", "a.svg", "--svg-width", "1mm"}, "40mm to 500cm");
  refused({"--svg-width", "84mm"}, "add --svg FILE");
  refused({"--no-title"}, "add --svg FILE");
}

}  // namespace
}  // namespace flopcast
