#include "reports/timeline/writers.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "tests/unit/reports/sample_timelines.hpp"

namespace flopcast {
namespace {

using namespace testing;  // NOLINT: the samples of these tests
using TraceJson = nlohmann::json;

/// Whole nanoseconds, truncated, as in Perfetto.
std::int64_t nanoseconds(const TraceJson& microseconds) {
  return static_cast<std::int64_t>(std::floor(microseconds.get<double>() * 1000.0 + 1e-6));
}

struct Slice {
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::string name;
  int stage = 0;
};

/// Requirements of trace readers: every slice is on a named thread and overlaps no other of its thread, events are in
/// order of time, each arrow goes from a slice that is open at its tail to one that is open at its head, and counters
/// change.
class TraceChecker {
 public:
  explicit TraceChecker(const std::string& text) : trace_(TraceJson::parse(text)) {
    for (const TraceJson& event : trace_.at("traceEvents")) {
      const std::string phase = event.at("ph");
      if (phase == "M") {
        check_name(event);
        continue;
      }
      EXPECT_GE(event.at("ts").get<double>(), last_ts_) << event;
      last_ts_ = event.at("ts");
      EXPECT_EQ(processes_.count(event.at("pid")), 1U) << event;
      if (phase == "X") add_slice(event);
      if (phase == "s" || phase == "f") add_flow(event, phase == "s");
      if (phase == "C") add_counter(event);
    }
    for (const auto& [id, tail] : tails_) {
      const auto head = heads_.find(id);
      if (head != heads_.end()) arrows.emplace_back(tail, head->second);
    }
    EXPECT_EQ(arrows.size(), tails_.size()) << "arrows without a head";
    EXPECT_EQ(arrows.size(), heads_.size()) << "arrows without a tail";
  }

  const TraceJson& document() const { return trace_; }

  std::map<std::pair<int, int>, std::vector<Slice>> slices;  ///< by (pid, tid)
  std::vector<std::pair<Slice, Slice>> arrows;
  std::map<std::pair<int, std::string>, std::vector<double>> counters;

 private:
  using FlowId = std::tuple<std::string, std::string, std::int64_t>;

  void check_name(const TraceJson& event) {
    if (event.at("name") == "process_name") processes_.insert(event.at("pid").get<int>());
    if (event.at("name") == "thread_name") threads_.emplace(event.at("pid").get<int>(), event.at("tid").get<int>());
  }

  void add_slice(const TraceJson& event) {
    const std::pair<int, int> thread{event.at("pid"), event.at("tid")};
    EXPECT_EQ(threads_.count(thread), 1U) << event;
    EXPECT_FALSE(event.at("cat").get<std::string>().empty());
    std::vector<Slice>& of_thread = slices[thread];
    const std::int64_t start = nanoseconds(event.at("ts"));
    if (!of_thread.empty()) {
      EXPECT_LE(of_thread.back().end, start) << event;
    }
    const int stage = event.value("args", TraceJson::object()).value("stage", -1);
    of_thread.push_back({start, start + nanoseconds(event.at("dur")), event.at("name"), stage});
  }

  void add_flow(const TraceJson& event, bool tail) {
    const std::vector<Slice>& of_thread = slices[{event.at("pid"), event.at("tid")}];
    const std::int64_t at = nanoseconds(event.at("ts"));
    ASSERT_FALSE(of_thread.empty()) << event;
    EXPECT_TRUE(of_thread.back().start <= at && at < of_thread.back().end) << "arrow outside its slice: " << event;
    EXPECT_EQ(event.value("bp", ""), tail ? "" : "e");
    const FlowId id{event.at("cat"), event.at("name"), event.at("id")};
    EXPECT_TRUE((tail ? tails_ : heads_).emplace(id, of_thread.back()).second) << "used twice: " << event;
    EXPECT_EQ(tails_.count(id), 1U) << "head before tail: " << event;
  }

  void add_counter(const TraceJson& event) {
    for (const auto& [key, value] : event.at("args").items()) {
      std::vector<double>& values = counters[{event.at("pid"), key}];
      if (!values.empty()) {
        EXPECT_NE(values.back(), value.get<double>()) << "no change: " << event;
      }
      values.push_back(value);
    }
  }

  TraceJson trace_;
  double last_ts_ = 0.0;
  std::set<int> processes_;
  std::set<std::pair<int, int>> threads_;
  std::map<FlowId, Slice> tails_;
  std::map<FlowId, Slice> heads_;
};

TEST(ChromeTrace, SmallGolden) {
  const Timeline timeline =
      in_seconds(lay_out("tiny \"job\"", one_f_one_b_orders(2, 1), {1'000'000, 2'000'000, 0, 0, 0}), 3'123'456'789);
  EXPECT_EQ(write_chrome_trace(timeline, {}),
            R"({"displayTimeUnit":"ms","otherData":{"title":"tiny \"job\""},"traceEvents":[
{"ph":"M","pid":0,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"M","pid":0,"name":"process_sort_index","args":{"sort_index":0}},
{"ph":"M","pid":0,"tid":0,"name":"thread_name","args":{"name":"compute"}},
{"ph":"M","pid":0,"tid":0,"name":"thread_sort_index","args":{"sort_index":0}},
{"ph":"M","pid":1,"name":"process_name","args":{"name":"rank 1"}},
{"ph":"M","pid":1,"name":"process_sort_index","args":{"sort_index":1}},
{"ph":"M","pid":1,"tid":0,"name":"thread_name","args":{"name":"compute"}},
{"ph":"M","pid":1,"tid":0,"name":"thread_sort_index","args":{"sort_index":0}},
{"ph":"X","pid":0,"tid":0,"ts":0,"dur":3123.455,"name":"F 0","cat":"forward","args":{"stage":0,"microbatch":0}},
{"ph":"s","pid":0,"tid":0,"ts":3123.453,"id":0,"cat":"p2p","name":"activation"},
{"ph":"X","pid":1,"tid":0,"ts":3123.456,"dur":3123.456,"name":"F 0","cat":"forward","args":{"stage":1,"microbatch":0}},
{"ph":"f","bp":"e","pid":1,"tid":0,"ts":3123.456,"id":0,"cat":"p2p","name":"activation"},
{"ph":"X","pid":1,"tid":0,"ts":6246.913,"dur":6246.913,"name":"B 0","cat":"backward","args":{"stage":1,"microbatch":0}},
{"ph":"s","pid":1,"tid":0,"ts":12493.824,"id":1,"cat":"p2p","name":"gradient"},
{"ph":"X","pid":0,"tid":0,"ts":12493.827,"dur":6246.912,"name":"B 0","cat":"backward","args":{"stage":0,"microbatch":0}},
{"ph":"f","bp":"e","pid":0,"tid":0,"ts":12493.827,"id":1,"cat":"p2p","name":"gradient"}
]}
)");
}

TEST(ChromeTrace, NestsAndBindsOnEverySchedule) {
  const Times times{1'000'003, 2'000'117, 0, 0, 50'021};
  for (const auto& orders : {gpipe_orders(4, 8), one_f_one_b_orders(8, 40), interleaved_orders(4, 3, 16)}) {
    for (const Ticks unit : {Ticks{1'000'003}, Ticks{3'123'456'789}}) {
      const Timeline timeline = in_seconds(lay_out("", orders, times), unit);
      const TraceChecker trace(write_chrome_trace(timeline, {}));
      EXPECT_EQ(trace.arrows.size(), timeline.transfers.size());
      for (const auto& [tail, head] : trace.arrows) {
        EXPECT_EQ(tail.name, head.name);
        EXPECT_EQ(std::abs(tail.stage - head.stage), 1);
        EXPECT_EQ(head.stage - tail.stage, tail.name.front() == 'F' ? 1 : -1);
      }
      std::size_t count = 0;
      for (const auto& [thread, slices] : trace.slices) count += slices.size();
      std::size_t spans = 0;
      for (const auto& rank : timeline.ranks) spans += rank.size();
      EXPECT_EQ(count, spans);
    }
  }
}

/// For readers that add starts and durations as floating-point numbers: slices of a thread do not overlap, and a slice
/// inside another ends with it.
TEST(ChromeTrace, AddsUpAsFloatingPointNumbers) {
  const Timeline timeline =
      in_seconds(lay_out("", one_f_one_b_orders(8, 40), {1'000'003, 2'000'117, 0, 0, 50'021}), 1'123'456'781);
  TraceOptions options;
  for (int stage = 0; stage < 8; ++stage) {
    options.inside[fmt::format("F{}", stage)] = {{"compute", TermId::kCompute, 2.0},
                                                 {"sent", TermId::kTensorParallel, 1.0}};
    options.inside[fmt::format("B{}", stage)] = {{"compute", TermId::kCompute, 1.0}};
  }
  const TraceJson trace = TraceJson::parse(write_chrome_trace(timeline, options));
  struct Open {
    double end = 0.0;
    std::string name;
  };
  std::map<int, std::vector<Open>> open;
  std::map<int, double> firsts;
  std::map<std::string, int> count;
  double sent = 0.0;
  for (const TraceJson& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    // Some readers subtract the first time first.
    const double first = firsts.try_emplace(event.at("pid"), event.at("ts").get<double>()).first->second;
    const double start = event.at("ts").get<double>() - first;
    const double end = start + event.at("dur").get<double>();
    EXPECT_NEAR(start * 1000.0, std::round(start * 1000.0), 1e-3) << event;
    std::vector<Open>& stack = open[event.at("pid")];
    while (!stack.empty() && stack.back().end <= start) stack.pop_back();
    const bool inside = event.at("cat") == "inside";
    ++count[event.at("cat")];
    ASSERT_EQ(stack.size(), inside ? 1U : 0U) << event;
    if (inside) {
      EXPECT_LT(end, stack.back().end) << event;
      if (event.at("name") == "tensor-parallel communication") sent += event.at("dur").get<double>();
    }
    stack.push_back({end, event.at("name")});
  }
  EXPECT_EQ(count["forward"], 320);
  EXPECT_EQ(count["backward"], 320);
  EXPECT_EQ(count["inside"], 640) << "a single part needs no distinction";
  double forward = 0.0;
  for (const auto& spans : timeline.ranks) {
    for (const Span& span : spans) {
      if (span.kind == SpanKind::kForward) forward += static_cast<double>(span.end - span.start) * 1e-6;
    }
  }
  EXPECT_NEAR(sent, forward / 3.0, 1.0);
  options.max_inside = 639;
  EXPECT_EQ(TraceJson::parse(write_chrome_trace(timeline, options)).at("otherData").at("inside passes"),
            "left out: the number of slices exceeds the limit of 639");
}

TEST(ChromeTrace, SplitBackwardsSendGradientsFromTheirInputGradient) {
  const Timeline timeline = lay_out("", {"0F0 0F1 0I0 0W0 0I1 0W1", "1F0 1I0 1F1 1I1 1W0 1W1"});
  const TraceChecker trace(write_chrome_trace(timeline, {}));
  ASSERT_EQ(trace.arrows.size(), 4U);
  EXPECT_EQ(std::count_if(trace.arrows.begin(), trace.arrows.end(),
                          [](const auto& arrow) { return arrow.first.name.front() == 'I'; }),
            2);
  EXPECT_EQ(trace.document().at("otherData").at("time_unit"), "1 us represents 1 unit of time");
}

TEST(ChromeTrace, OverlappedPairsAndStreamsHaveThreadsOfTheirOwn) {
  Timeline timeline;
  timeline.ranks.resize(2);
  timeline.ranks[0] = {compute_span(SpanKind::kForward, 0, 1, 0, 6'000'000),
                       compute_span(SpanKind::kBackward, 0, 0, 0, 6'000'000),
                       compute_span(SpanKind::kBackward, 0, 1, 6'000'000, 9'000'000),
                       flush_span(SpanKind::kGradientReduction, StreamKind::kGradient, 8'000'000, 12'000'000),
                       flush_span(SpanKind::kOptimizer, StreamKind::kCompute, 13'000'000, 15'000'000)};
  timeline.ranks[0].push_back(
      {13'500'000, 14'000'000, {4, 0, ActionKind::kForward}, SpanKind::kSend, StreamKind::kPipeline});
  timeline.ranks[1] = {compute_span(SpanKind::kForward, 1, 1, 7'000'000, 8'000'000)};
  timeline.transfers = {{6'000'000, 7'000'000, {1, 0, ActionKind::kForward}, 1, 0, 1}};
  const TraceChecker trace(write_chrome_trace(timeline, {}));
  ASSERT_EQ(trace.slices.size(), 5U);
  EXPECT_EQ(trace.slices.at({0, 0}).size(), 3U);
  EXPECT_EQ(trace.slices.at({0, 10}).front().name, "B 0");
  EXPECT_EQ(trace.slices.at({0, 3}).front().name, "gradient reduction");
  EXPECT_EQ(trace.slices.at({0, 2}).front().name, "send F 4");
  ASSERT_EQ(trace.arrows.size(), 1U);
  EXPECT_EQ(trace.arrows.front().first.name, "F 1");
}

TEST(ChromeTrace, SlicesNameTheirMicrobatch) {
  Timeline timeline = lay_out("", gpipe_orders(2, 4));
  timeline.slices_per_microbatch = 2;
  const TraceChecker trace(write_chrome_trace(timeline, {}));
  EXPECT_EQ(trace.slices.at({1, 0}).at(3).name, "F 1.1");
  const TraceJson& events = trace.document().at("traceEvents");
  const auto last_forward = std::find_if(events.begin(), events.end(), [](const TraceJson& event) {
    return event.at("name") == "F 1.1" && event.at("pid") == 1;
  });
  ASSERT_NE(last_forward, events.end());
  EXPECT_EQ(last_forward->at("args"), TraceJson({{"stage", 1}, {"microbatch", 1}, {"slice", 1}}));
}

TEST(ChromeTrace, RepeatedActionsBindInTime) {
  Timeline timeline;
  timeline.ranks.resize(2);
  for (const Ticks step : {0, 100}) {
    timeline.ranks[0].push_back(compute_span(SpanKind::kForward, 0, 0, step, step + 10));
    timeline.ranks[1].push_back(compute_span(SpanKind::kForward, 1, 0, step + 20, step + 30));
    timeline.transfers.push_back({step + 10, step + 20, {0, 0, ActionKind::kForward}, 1, 0, 1});
  }
  timeline.time_unit = "s";
  timeline.units_per_tick = 1e-6;
  const TraceChecker trace(write_chrome_trace(timeline, {}));
  ASSERT_EQ(trace.arrows.size(), 2U);
  EXPECT_EQ(trace.arrows[0].first.end, 9'999);
  EXPECT_EQ(trace.arrows[0].second.start, 20'000);
  EXPECT_EQ(trace.arrows[1].first.end, 109'999);
  EXPECT_EQ(trace.arrows[1].second.start, 120'000);
}

TEST(ChromeTrace, CountersAppearWhereTheyChange) {
  const Timeline timeline = lay_out("", {"0F0 0B0"});
  TraceOptions options;
  options.counters = {
      {"memory GiB", "total", {{{0, 1.0}, {5000, 1.0}, {10000, 2.0}, {10000, 3.5}, {20000, 3.5}, {30000, 1.0}}}}};
  const TraceChecker trace(write_chrome_trace(timeline, options));
  EXPECT_EQ(trace.counters.at({0, "total"}), (std::vector<double>{1.0, 3.5, 1.0}));
  options.counters[0].ranks.resize(2);
  EXPECT_THROW((void)write_chrome_trace(timeline, options), InternalError);
}

TEST(ChromeTrace, NamesOtherDataAndTheLimitOfFlows) {
  const Timeline timeline = lay_out("t", one_f_one_b_orders(2, 4));
  TraceOptions options;
  options.rank_names = {"stage 0 <a\n\"b\">", "stage 1"};
  options.other_data = {{"tool", "flopcast 0.1.0"}};
  options.max_flows = 7;
  const TraceChecker trace(write_chrome_trace(timeline, options));
  EXPECT_TRUE(trace.arrows.empty());
  EXPECT_EQ(trace.document().at("traceEvents")[0].at("args").at("name"), options.rank_names[0]);
  EXPECT_EQ(trace.document().at("otherData").at("tool"), "flopcast 0.1.0");
  EXPECT_EQ(trace.document().at("otherData").at("flows"), "left out: 8 transfers exceed the limit of 7");
  options.max_flows = 8;
  EXPECT_EQ(TraceChecker(write_chrome_trace(timeline, options)).arrows.size(), 8U);
}

TEST(ChromeTrace, EveryStreamHasAThreadOfItsOwn) {
  Timeline timeline;
  timeline.ranks.resize(1);
  for (std::size_t stream = 0; stream < kStreamKindCount; ++stream) {
    Span span = compute_span(SpanKind::kForward, 0, 0, 0, 1'000'000);
    span.stream = static_cast<StreamKind>(stream);
    if (span.stream != StreamKind::kCompute) span.kind = SpanKind::kDispatch;
    timeline.ranks[0].push_back(span);
  }
  const TraceChecker trace(write_chrome_trace(timeline, {}));
  std::set<int> threads;
  for (const auto& event : trace.document().at("traceEvents")) {
    if (event.at("name") == "thread_name") threads.insert(event.at("tid").get<int>());
  }
  EXPECT_EQ(threads.size(), kStreamKindCount);
}

TEST(ChromeTrace, MessagesOnSharedLinksAreAProcessOfTheirOwn) {
  const Timeline timeline = in_seconds(lay_out("t", one_f_one_b_orders(2, 4)), 1'000'000);
  TraceOptions options;
  options.messages = {
      {"dp of rank 1", Axis::kData, "tier0.0.up", {{0, 3'000'000, 1'000'000}, {3'000'000, 5'000'000, 2'000'000}}},
      {"activations 0 to 1", Axis::kPipeline, "tier0.1.up", {{1'000'000, 2'000'000, 1'000'000}}}};
  const TraceChecker trace(write_chrome_trace(timeline, options));
  EXPECT_EQ(trace.slices.at({2, 0}).size(), 2U) << "after the ranks";
  EXPECT_EQ(trace.slices.at({2, 1}).size(), 1U);
  std::vector<double> times;
  std::set<std::string> rows;
  for (const TraceJson& event : trace.document().at("traceEvents")) {
    if (event.value("cat", "") == "message") times.push_back(event.at("args").at("times_alone"));
    if (event.at("pid") == 2 && event.at("name") == "thread_name") rows.insert(event.at("args").at("name"));
  }
  EXPECT_EQ(times, std::vector<double>({3.0, 1.0, 1.0}));
  EXPECT_EQ(rows, std::set<std::string>({"dp of rank 1, over tier0.0.up", "activations 0 to 1, over tier0.1.up"}));
  options.max_inside = 2;
  const TraceChecker without(write_chrome_trace(timeline, options));
  EXPECT_EQ(without.slices.count({2, 0}), 0U);
  EXPECT_EQ(without.document().at("otherData").at("fabric"), "left out: the number of messages exceeds the limit of 2");
}

TEST(ChromeTrace, EmptyZeroLengthAndHuge) {
  Timeline timeline;
  EXPECT_TRUE(TraceChecker(write_chrome_trace(timeline, {})).slices.empty());
  timeline.time_unit = "s";
  timeline.units_per_tick = 1e-12;
  timeline.ranks.resize(2);
  timeline.ranks[0] = {compute_span(SpanKind::kForward, 0, 0, 7, 7),
                       compute_span(SpanKind::kForward, 0, 1, 7, 9'223'372'036'854'775'807)};
  timeline.ranks[1] = {compute_span(SpanKind::kForward, 1, 0, 7, 9)};
  timeline.transfers = {{7, 7, {0, 0, ActionKind::kForward}, 1, 0, 1}};
  const std::string text = write_chrome_trace(timeline, {});
  EXPECT_NE(text.find("\"ts\":0,\"dur\":9223372036854.774,"), std::string::npos) << text;
  EXPECT_TRUE(TraceChecker(text).arrows.empty()) << "an arrow needs slices with some length";
  timeline.units_per_tick = 0.3;
  EXPECT_THROW((void)write_chrome_trace(timeline, {}), InternalError);
}

}  // namespace
}  // namespace flopcast
