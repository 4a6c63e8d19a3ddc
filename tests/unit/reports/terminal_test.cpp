#include "reports/timeline/writers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/text/words.hpp"
#include "tests/unit/reports/sample_timelines.hpp"

namespace flopcast {
namespace {

using namespace testing;  // NOLINT: the samples of these tests

TEST(TerminalDrawing, GPipe) {
  EXPECT_EQ(draw_timeline(lay_out("GPipe", gpipe_orders(4, 8)), {}),
            "GPipe\n"
            "rank 0 |01234567·········0─1─2─3─4─5─6─7─|\n"
            "rank 1 |·01234567······0─1─2─3─4─5─6─7─··|\n"
            "rank 2 |··01234567···0─1─2─3─4─5─6─7─····|\n"
            "rank 3 |···012345670─1─2─3─4─5─6─7─······|\n"
            "1 column = 1 time unit, makespan 33\n"
            "0 forward   0─ backward   · idle\n");
}

TEST(TerminalDrawing, OneForwardOneBackwardInAsciiWithoutLegend) {
  EXPECT_EQ(draw_timeline(lay_out("1F1B", one_f_one_b_orders(4, 8)), {80, false, true, false}),
            "1F1B\n"
            "rank 0 |0123......0-41-52-63-74-.5-.6-.7-|\n"
            "rank 1 |.012....0-31-42-53-64-75-.6-.7-..|\n"
            "rank 2 |..01..0-21-32-43-54-65-76-.7-....|\n"
            "rank 3 |...00-11-22-33-44-55-66-77-......|\n"
            "1 column = 1 time unit, makespan 33\n");
}

TEST(TerminalDrawing, ChunksAreToldApart) {
  const Timeline timeline = lay_out("", interleaved_orders(2, 2, 2));
  EXPECT_EQ(draw_timeline(timeline, {}),
            "rank 0 |01₀₁··₀─·₁─0─1─|\n"
            "rank 1 |·01₀₀─₁₁─0─1─··|\n"
            "1 column = 1 time unit, makespan 15\n"
            "0 forward   0─ backward   · idle\n"
            "2 chunks per rank; chunk 1 in small digits\n");
  const std::string color = draw_timeline(timeline, {80, true, false, true});
  EXPECT_NE(color.find("\x1b[38;5;231;48;5;25m01\x1b[0m\x1b[38;5;16;48;5;110m₀₁\x1b[0m··"), std::string::npos);
  EXPECT_NE(color.find("chunk 1 lighter"), std::string::npos);
}

TEST(TerminalDrawing, CopiesOfTheModelAreCalledThat) {
  Timeline timeline = lay_out("", interleaved_orders(2, 2, 2));
  timeline.model_copies = 2;
  EXPECT_NE(draw_timeline(timeline, {}).find("2 copies of the model; copy 1 in small digits\n"), std::string::npos);
  EXPECT_NE(draw_timeline(timeline, {80, true, false, true}).find("copy 1 lighter"), std::string::npos);
}

TEST(TerminalDrawing, SlicesAreCalledThat) {
  Timeline timeline = lay_out("", gpipe_orders(2, 12));
  timeline.slices_per_microbatch = 4;
  EXPECT_NE(draw_timeline(timeline, {50, false, false, true})
                .find("numbers: last digit of the slice, 4 per microbatch, numbered consecutively\n"),
            std::string::npos);
  EXPECT_NE(draw_timeline(timeline, {200, false, false, true})
                .find("numbers: slices, 4 per microbatch, numbered consecutively\n"),
            std::string::npos);
}

TEST(TerminalDrawing, EqualForwardAndBackwardGetRoomToDiffer) {
  const Timeline timeline = lay_out("", one_f_one_b_orders(2, 2), {1, 1, 1, 1, 0});
  EXPECT_EQ(draw_timeline(timeline, {40, false, true, false}),
            "rank 0 |0 1 ..0-..1-|\n"
            "rank 1 |..0 0-1 1-..|\n"
            "1 column = 0.0000005 time units, makespan 0.000006\n");
}

TEST(TerminalDrawing, SplitBackwardsHaveLetters) {
  const Timeline timeline = lay_out("", {"0F0 0F1 0I0 0W0 0I1 0W1", "1F0 1I0 1F1 1I1 1W0 1W1"});
  EXPECT_EQ(draw_timeline(timeline, {}),
            "rank 0 |0 1 ··0I0W1I1W|\n"
            "rank 1 |··0 0I1 1I0W1W|\n"
            "1 column = 0.5 time units, makespan 7\n"
            "0 forward   0I input gradient   0W weight gradient   · idle\n");
}

TEST(TerminalDrawing, LongNumbersShrinkToTheirLastDigitWhenTheyMust) {
  const Timeline timeline = lay_out("", {"0F98 0F99 0F100 0B98 0B99 0B100"});
  const std::string wide = draw_timeline(timeline, {80, false, true, true});
  EXPECT_NE(wide.find("|98 99 10098----99----100---|"), std::string::npos) << wide;
  EXPECT_EQ(wide.find("last digit"), std::string::npos);
  const std::string narrow = draw_timeline(timeline, {20, false, true, true});
  EXPECT_NE(narrow.find("|8908-9-0-|"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("numbers: last digit of the microbatch"), std::string::npos);
}

TEST(TerminalDrawing, TooManyActionsBecomeTheLetterOfWhatTakesMost) {
  Timeline timeline;
  timeline.ranks.resize(1);
  // Ten columns of a thousand ticks: six of forwards, one mostly idle, three of backwards.
  for (int i = 0; i < 600; ++i) {
    timeline.ranks[0].push_back(compute_span(SpanKind::kForward, 0, i, i * 10 + 1, i * 10 + 10));
  }
  timeline.ranks[0].push_back(compute_span(SpanKind::kForward, 0, 600, 6100, 6500));
  for (int i = 0; i < 300; ++i) {
    timeline.ranks[0].push_back(compute_span(SpanKind::kBackward, 0, i, 7000 + i * 10, 7010 + i * 10));
  }
  EXPECT_EQ(draw_timeline(timeline, {19, false, true, true}),
            "rank 0 |FFFFFF.BBB|\n"
            "1 column = 0.001 time units, makespan 0.01\n"
            "F forward   B backward   . idle\n"
            "each column shows the kind that takes most of it\n");
}

TEST(TerminalDrawing, StreamsFlushAndOverlappedPairs) {
  Timeline timeline;
  timeline.ranks.resize(1);
  // A pair of six columns, a reduction overlapping the last backward and continuing after it, the optimizer.
  timeline.ranks[0] = {compute_span(SpanKind::kForward, 0, 1, 0, 6), compute_span(SpanKind::kBackward, 0, 0, 0, 6),
                       compute_span(SpanKind::kBackward, 0, 1, 6, 9),
                       flush_span(SpanKind::kGradientReduction, StreamKind::kGradient, 8, 12),
                       flush_span(SpanKind::kOptimizer, StreamKind::kCompute, 13, 15)};
  EXPECT_EQ(draw_timeline(timeline, {40, false, true, true}),
            "rank 0 |1  0--1--RRR.OO|\n"
            "1 column = 0.000001 time units, makespan 0.000015\n"
            "0 forward   0- backward   R gradient reduction   O optimizer   . idle\n");
}

TEST(TerminalDrawing, SecondsAreShownInAReadableUnit) {
  const Timeline timeline = in_seconds(lay_out("", {"0F0 0B0"}), 3'100'000'000);
  EXPECT_EQ(draw_timeline(timeline, {40, false, true, false}), "rank 0 |00-|\n1 column = 3.1 ms, makespan 9.3 ms\n");
}

TEST(TerminalDrawing, NothingOneAndHuge) {
  Timeline timeline;
  timeline.title = "empty";
  EXPECT_EQ(draw_timeline(timeline, {}), "empty\nnothing ran\n");
  timeline.ranks.resize(2);
  timeline.ranks[0] = {compute_span(SpanKind::kForward, 0, 0, 0, 0)};
  EXPECT_EQ(draw_timeline(timeline, {}), "empty\nnothing ran\n");
  // Almost the largest possible time, after a span without length.
  timeline.title.clear();
  timeline.time_unit = "s";
  timeline.units_per_tick = 1e-12;
  timeline.ranks[0].push_back(compute_span(SpanKind::kForward, 0, 0, 0, 9'223'372'036'854'775'807));
  EXPECT_EQ(draw_timeline(timeline, {40, false, true, false}),
            "rank 0 |0|\nrank 1 |.|\n1 column = 9223372 s, makespan 9223372 s\n");
}

TEST(TerminalDrawing, NeverWiderThanAskedFor) {
  for (const int width : {20, 41, 80, 133}) {
    for (const int microbatches : {4, 8, 64}) {
      const Times odd{1'000'003, 1'999'993, 0, 0, 17};
      std::istringstream lines(
          draw_timeline(lay_out("", interleaved_orders(4, 2, microbatches), odd), {width, false, true, false}));
      std::string line;
      for (int rank = 0; rank < 4; ++rank) {
        std::getline(lines, line);
        EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
        EXPECT_EQ(line.back(), '|');
      }
    }
  }
}

TEST(SpanText, IdleShareIsTheBubbleOfTheClosedForm) {
  // (p - 1) / (m + p - 1) for GPipe and 1F1B, (p - 1) / (v m + p - 1) interleaved.
  EXPECT_NEAR(idle_share(lay_out("", gpipe_orders(4, 8))), 3.0 / 11.0, 1e-12);
  EXPECT_NEAR(idle_share(lay_out("", one_f_one_b_orders(4, 8))), 3.0 / 11.0, 1e-12);
  EXPECT_NEAR(idle_share(lay_out("", interleaved_orders(4, 2, 8))), 3.0 / 19.0, 1e-12);
  EXPECT_EQ(idle_share(Timeline{}), 0.0);
}

TEST(SpanText, RoundsWithoutScientificNotation) {
  EXPECT_EQ(rounded(12345678.0, 4), "12345678");
  EXPECT_EQ(rounded(0.00001234567, 4), "0.00001235");
  EXPECT_EQ(rounded(3.10004, 4), "3.1");
  EXPECT_EQ(rounded(1000.0, 4), "1000");
  EXPECT_EQ(rounded(0.0, 4), "0");
  EXPECT_EQ(rounded(-2.5, 4), "-2.5");
}

}  // namespace
}  // namespace flopcast
