#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/error/error.hpp"
#include "reports/html/column.hpp"
#include "reports/html/packed_timeline.hpp"
#include "reports/html/page.hpp"
#include "reports/html/page_view.hpp"
#include "reports/html/result_views.hpp"
#include "reports/timeline/timeline_json.hpp"
#include "tests/unit/reports/sample_timelines.hpp"

namespace flopcast {
namespace {

std::string column_of(const std::vector<std::int64_t>& numbers) {
  ColumnWriter column;
  for (const std::int64_t number : numbers) column.add(number);
  return column.finish();
}

TEST(Base64, KnownAnswersOfTheStandard) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

TEST(ColumnWriter, ZigzagSevenBitsAByte) {
  EXPECT_EQ(column_of({0, -1, 1, -2}), base64(std::string("\0\1\2\3", 4)));
  EXPECT_EQ(column_of({64}), base64("\x80\x01"));
  EXPECT_EQ(column_of({-65}), base64("\x81\x01"));
}

TEST(ColumnWriter, AfterTwoEqualNumbersHowManyMoreCome) {
  EXPECT_EQ(column_of({5, 5}), base64(std::string("\x0a\x0a\0", 3)));
  EXPECT_EQ(column_of({5, 5, 5, 5, 7}), base64(std::string("\x0a\x0a\x02\x0e", 4)));
  EXPECT_EQ(column_of(std::vector<std::int64_t>(1'000'000, 3)).size(), 8u);
}

TEST(PackedTimeline, WhatRepeatsTakesNoRoom) {
  const auto size = [](int microbatches) {
    return pack_timeline(testing::lay_out("1f1b", testing::one_f_one_b_orders(4, microbatches)))["columns"]
        .dump()
        .size();
  };
  EXPECT_LT(size(2000), size(200) + 64);
}

TEST(Page, DataCannotEndItsScriptAndNothingIsLoaded) {
  nlohmann::ordered_json result = {{"assumptions", {"</script><b>"}}};
  const std::string page = write_page({"a < b", "flopcast", ""}, {page_view("forecast", result)});
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  EXPECT_NE(page.find("\\u003c/script>\\u003cb>"), std::string::npos);
  EXPECT_NE(page.find("<title>a &lt; b</title>"), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos);
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
}

TEST(TimelineJson, ReadsBackWhatItWrote) {
  testing::Times times;
  times.transfer = 250'000;
  const Timeline timeline = testing::lay_out("gpipe: 3 ranks", testing::gpipe_orders(3, 5), times);
  const Timeline again = read_timeline(timeline_json(timeline), "a.json", "timelines[0]");
  ASSERT_EQ(again.ranks.size(), timeline.ranks.size());
  EXPECT_EQ(timeline_json(again), timeline_json(timeline));
}

TEST(TimelineJson, ComplaintsPointAtTheSpan) {
  auto json = timeline_json(testing::lay_out("gpipe", testing::gpipe_orders(2, 2)));
  json["ranks"][1][0]["kind"] = "froward";
  try {
    read_timeline(json, "a.json", "timelines[0]");
    FAIL() << "accepted an unknown kind";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "timelines[0].ranks[1]");
    EXPECT_NE(error.diagnostic().problem.find("froward"), std::string::npos);
  }
}

TEST(ResultViews, RefuseWhatIsNoResult) {
  const auto no_files = [](const std::string&) { return std::string(); };
  for (const char* text :
       {"[]", "{}", "3", R"({"schema":"flopcast.result/1"})", R"({"schema":"flopcast.run/1"})",
        R"({"schema":"flopcast.timeline/1","timelines":[]})", R"({"schema":"flopcast.comparison/1"})",
        R"({"schema":"flopcast.comparison/1","a":{"name":"x","result":{}},"b":{"name":"y"}})"}) {
    EXPECT_THROW(views_of_result(nlohmann::ordered_json::parse(text), "a", "a.json", no_files), ConfigError) << text;
  }
}

}  // namespace
}  // namespace flopcast
