#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/config/codec.hpp"
#include "reports/html/page.hpp"
#include "sim/files/result_file.hpp"
#include "sim/files/run_file.hpp"
#include "tests/unit/model/jobs.hpp"
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
    const Timeline timeline = testing::lay_out("1f1b", testing::one_f_one_b_orders(4, microbatches));
    return pack_timeline(timeline, critical_path(timeline))["columns"].dump().size();
  };
  EXPECT_LT(size(2000), size(200) + 64);
}

TEST(Page, ShowsTheFabricAndItsHotLinks) {
  const auto page_on = [](const char* network) {
    const Forecast answer =
        forecast(job_from(R"({"model": "gpt3-13b", "cluster": {"name": "dgx-h100", "nodes": 8, "network": )" +
                          std::string(network) + R"(}, "layout": {"tp": 8, "pp": 2, "global_batch_size": 64}})"),
                 no_files);
    return forecast_page({"a fabric", "flopcast", ""}, answer);
  };
  const std::string page = page_on(R"({"tiers": [{"nodes": 2, "oversubscription": 8}]})");
  for (const char* part : {"Links between nodes", "tier0.3", "total contention", "hot links", "nccl-tests"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page_on("\"none\"").find("Links between nodes"), std::string::npos);
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

TEST(Page, NamesThatLookLikePartsOfItAreJustNames) {
  const std::string page =
      write_page({"{{script}} {{title}}", "flopcast", ""}, {page_view("{{data}}", nlohmann::ordered_json::object())});
  EXPECT_NE(page.find("<title>{{script}} {{title}}</title>"), std::string::npos);
  EXPECT_NE(page.find(R"("name":"{{data}}")"), std::string::npos);
  EXPECT_EQ(page.find("function showReport("), page.rfind("function showReport("));
}

TEST(TimelineJson, ReadsBackWhatItWrote) {
  testing::Times times;
  times.transfer = 250'000;
  const Timeline timeline = testing::lay_out("gpipe: 3 ranks", testing::gpipe_orders(3, 5), times);
  const Timeline again = read_timeline(timeline_json(timeline), "a.json", "timelines[0]");
  ASSERT_EQ(again.ranks.size(), timeline.ranks.size());
  EXPECT_EQ(timeline_json(again), timeline_json(timeline));
}

TEST(TimelineJson, OfARunTooInWholePicoseconds) {
  testing::Times times;
  times.transfer = 250'000;
  Timeline timeline = testing::lay_out("measured", testing::one_f_one_b_orders(3, 5), times);
  timeline.time_unit = "s";
  timeline.units_per_tick = 1e-12;
  const nlohmann::json json = nlohmann::json::parse(run_timeline_json(timeline).dump());
  const Timeline again = read_run_timeline(json, "run.json", "run.steps[0].timeline");
  EXPECT_EQ(timeline_json(again), timeline_json(timeline));
  EXPECT_FALSE(again.transfers.empty());
}

TEST(TimelineJson, TellsThatMicrobatchesAreCut) {
  Timeline timeline = testing::lay_out("terapipe", testing::gpipe_orders(2, 4));
  EXPECT_FALSE(timeline_json(timeline).contains("slices_per_microbatch"));
  EXPECT_EQ(page_view("whole", timeline).at("slices"), 1);
  timeline.slices_per_microbatch = 2;
  auto json = nlohmann::ordered_json::parse(timeline_json(timeline).dump());
  EXPECT_EQ(page_view("cut", read_timeline(json, "a.json", "timelines[0]")), page_view("cut", timeline));
  EXPECT_EQ(page_view("cut", timeline).at("slices"), 2);
  json["slices_per_microbatch"] = 0;
  EXPECT_THROW(read_timeline(json, "a.json", "timelines[0]"), ConfigError);
}

// Halves of pairs overlap, and ranks wait for transfers: a saved timeline must keep both, or its figures change.
TEST(TimelineJson, APageOfASavedTimelineIsThatOfTheTimeline) {
  testing::Times times;
  times.transfer = 250'000;
  Timeline timeline = testing::lay_out("1f1b", testing::one_f_one_b_orders(4, 8), times);
  Span half = timeline.ranks[3].back();
  timeline.ranks[3].back().action.overlaps_next = true;
  half.action.microbatch = 8;
  timeline.ranks[3].push_back(half);
  const auto json = nlohmann::ordered_json::parse(timeline_json(timeline).dump());
  const auto view = page_view("1f1b", timeline);
  EXPECT_EQ(page_view("1f1b", read_timeline(json, "a.json", "timelines[0]")), view);
  EXPECT_GT(view.at("/metrics/ranks/1/pipeline"_json_pointer).get<double>(), 0.0);
}

TEST(TimelineJson, ComplaintsPointAtTheTransfer) {
  testing::Times times;
  times.transfer = 250'000;
  const auto good = timeline_json(testing::lay_out("gpipe", testing::gpipe_orders(2, 2), times));
  const auto field_of = [&](const char* key, const nlohmann::ordered_json& value) {
    auto json = good;
    json["transfers"][1][key] = value;
    try {
      read_timeline(json, "a.json", "timelines[0]");
    } catch (const ConfigError& error) {
      return error.diagnostic().field;
    }
    return std::string("accepted");
  };
  EXPECT_EQ(field_of("from", 2), "timelines[0].transfers[1]");
  EXPECT_EQ(field_of("to", -1), "timelines[0].transfers[1]");
  EXPECT_EQ(field_of("to_stage", 65536), "timelines[0].transfers[1]");
  EXPECT_EQ(field_of("action", "send"), "timelines[0].transfers[1]");
  EXPECT_EQ(field_of("end", 0.5), "timelines[0].transfers[1]");
}

// Early versions wrote no waits: they must not be invented.
TEST(ResultViews, ATimelineWithoutTransfersTellsNoWaiting) {
  const auto no_files = [](const std::string&) { return std::string(); };
  auto timeline = timeline_json(testing::lay_out("gpipe", testing::gpipe_orders(2, 2)));
  nlohmann::ordered_json file = {{"schema", "flopcast.timeline/1"}, {"timelines", {timeline}}};
  auto view = views_of_result(file, "a", "a.json", no_files).at(0);
  EXPECT_TRUE(view.contains("metrics"));
  EXPECT_FALSE(view.contains("note"));
  file["timelines"][0].erase("transfers");
  view = views_of_result(file, "a", "a.json", no_files).at(0);
  EXPECT_FALSE(view.contains("metrics"));
  EXPECT_EQ(view.at("/timeline/critical/steps"_json_pointer), 0);
  EXPECT_NE(view.at("note").get<std::string>().find("a.json"), std::string::npos);
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

TEST(ResultViews, ActivationsOverTimeNeedTheBytesOfEveryStage) {
  const Timeline timeline = testing::lay_out("measured", testing::one_f_one_b_orders(2, 4));
  const auto parsed = [](const char* text) { return nlohmann::ordered_json::parse(text); };
  const auto view_with = [&](const char* told) {
    nlohmann::ordered_json result = {{"schema", "flopcast.result/1"}};
    result.update(write_fields(result_fields(), Result()));
    nlohmann::ordered_json run = {{"schema", "flopcast.run/1"},
                                  {"forecast", result},
                                  {"measured", result},
                                  {"timelines", {{"measured", timeline_json(timeline)}}}};
    run.update(parsed(told));
    return views_of_result(run, "", "a.json", [](const std::string&) { return std::string(); }).at(1);
  };
  EXPECT_FALSE(view_with("{}").contains("memory"));
  const nlohmann::ordered_json view = view_with(R"({"activation_bytes":{"forecast":[],"measured":[
      {"from_forward":3,"after_input_gradient":1},{"from_forward":5,"after_input_gradient":1}]}})");
  EXPECT_EQ(view.at("/memory/changes"_json_pointer), parsed("[3, 0, -3, 5, -5]"));
  for (const char* bad :
       {R"({"activation_bytes":3})", R"({"activation_bytes":{"forecast":[]}})",
        R"({"activation_bytes":{"measured":[{"from_forward":3,"after_input_gradient":1}]}})",
        R"({"activation_bytes":{"measured":[{"from_forward":3},{"from_forward":null,"after_input_gradient":1}]}})"}) {
    EXPECT_THROW(view_with(bad), ConfigError) << bad;
  }
}

TEST(ResultViews, RefuseWhatIsNoResult) {
  const auto no_files = [](const std::string&) { return std::string(); };
  for (const char* text :
       {"[]", "{}", "3", R"({"schema":"flopcast.result/1"})", R"({"schema":"flopcast.run/1"})",
        R"({"schema":"flopcast.timeline/1","timelines":[]})", R"({"schema":"flopcast.timeline/1","timelines":3})",
        R"({"schema":"flopcast.run/1","timelines":3})", R"({"schema":"flopcast.measurement/1","run":{}})",
        R"({"schema":"flopcast.measurement/1","comparison":{}})",
        R"({"schema":"flopcast.measurement/1","comparison":3})", R"({"schema":"flopcast.comparison/1"})",
        R"({"schema":"flopcast.comparison/1","a":{"name":"x","result":{}},"b":{"name":"y"}})"}) {
    EXPECT_THROW(views_of_result(nlohmann::ordered_json::parse(text), "a", "a.json", no_files), ConfigError) << text;
  }
}

}  // namespace
}  // namespace flopcast
