// `flopcast report`: a page of saved results says what the page of the command that saved them does.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/report_page.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

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
  Json page(const std::string& file) { return data_of_page(read_text(scratch_.path() / file)); }
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
