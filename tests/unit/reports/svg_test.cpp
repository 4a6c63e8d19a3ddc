#include "reports/timeline/writers.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "reports/svg/canvas.hpp"
#include "tests/unit/reports/sample_timelines.hpp"

namespace flopcast {
namespace {

using namespace testing;  // NOLINT: the samples of these tests

bool entity_starts(std::string_view text) {
  for (const std::string_view entity : {"&amp;", "&lt;", "&gt;", "&quot;"}) {
    if (text.substr(0, entity.size()) == entity) return true;
  }
  return false;
}

/// End of a tag that starts with `<`: a name, then ` name="value"` without '<' inside, then `>` or `/>`; npos if it has
/// another form.
std::size_t end_of_tag(std::string_view xml, std::size_t at) {
  const auto skip_name = [&xml](std::size_t from) {
    while (from < xml.size() && (std::isalpha(static_cast<unsigned char>(xml[from])) != 0 || xml[from] == '-')) ++from;
    return from;
  };
  const std::size_t name = at + (xml.substr(at, 2) == "</" ? 2 : 1);
  std::size_t i = skip_name(name);
  if (i == name) return std::string_view::npos;
  while (i < xml.size() && xml[i] == ' ') {
    const std::size_t equals = skip_name(i + 1);
    if (equals == i + 1 || xml.substr(equals, 2) != "=\"") return std::string_view::npos;
    i = xml.find_first_of("\"<", equals + 2);
    if (i == std::string_view::npos || xml[i] == '<') return std::string_view::npos;
    ++i;
  }
  if (xml.substr(i, 2) == "/>") return i + 1;
  return xml.substr(i, 1) == ">" ? i : std::string_view::npos;
}

/// Well-formed as far as our figures need it: one root, nested tags, attributes in double quotes, no stray '<' or '&'.
::testing::AssertionResult is_well_formed(std::string_view xml) {
  std::vector<std::string_view> open;
  bool rooted = false;
  for (std::size_t at = 0; at < xml.size(); ++at) {
    if (xml[at] == '&' && !entity_starts(xml.substr(at))) return ::testing::AssertionFailure() << "stray & at " << at;
    if (xml[at] != '<') continue;
    const std::size_t end = end_of_tag(xml, at);
    if (end == std::string_view::npos) return ::testing::AssertionFailure() << "malformed: " << xml.substr(at, 60);
    const std::size_t letters = at + (xml[at + 1] == '/' ? 2 : 1);
    const std::string_view name = xml.substr(letters, xml.find_first_of(" />", letters) - letters);
    if (xml[at + 1] == '/') {
      if (open.empty() || open.back() != name) return ::testing::AssertionFailure() << "not open: " << name;
      open.pop_back();
    } else {
      if (open.empty() && rooted) return ::testing::AssertionFailure() << "a second root: " << name;
      rooted = true;
      if (xml[end - 1] != '/') open.push_back(name);
    }
    at = end;
  }
  if (!open.empty() || !rooted) return ::testing::AssertionFailure() << "unclosed elements";
  return ::testing::AssertionSuccess();
}

/// The opening tags that begin with `start`, "<rect class=\"F\"".
std::vector<std::string> tags(std::string_view svg, std::string_view start) {
  std::vector<std::string> found;
  for (std::size_t at = svg.find(start); at != std::string_view::npos; at = svg.find(start, at + 1)) {
    found.emplace_back(svg.substr(at, end_of_tag(svg, at) + 1 - at));
  }
  return found;
}

std::string attribute(const std::string& tag, const std::string& name) {
  const std::size_t at = tag.find(" " + name + "=\"");
  if (at == std::string::npos) return {};
  const std::size_t value = at + name.size() + 3;
  return tag.substr(value, tag.find('"', value) - value);
}

double number(const std::string& tag, const std::string& name) {
  return std::stod(attribute(tag, name));
}

int count(std::string_view text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST(Svg, EveryActionIsARectangleWithItsTooltipAndNumber) {
  const std::string svg = write_svg(lay_out("1F1B", one_f_one_b_orders(4, 8)), {});
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(count(svg, "<rect class=\"F\""), 32 + 1);  // and one in the legend
  EXPECT_EQ(count(svg, "<rect class=\"B\""), 32 + 1);
  EXPECT_EQ(count(svg, "<text class=\"l\""), 32);
  EXPECT_EQ(count(svg, "<text class=\"d\""), 32);
  EXPECT_TRUE(contains(svg, "<title>backward of microbatch 7, stage 0\nstart 31, duration 2</title>"));
  EXPECT_TRUE(contains(svg, ">4 ranks, makespan 33, idle 27.3 %</text>"));
  EXPECT_TRUE(contains(svg, "role=\"img\""));
  EXPECT_TRUE(contains(svg, "<desc>"));
}

TEST(Svg, PositionsFollowTime) {
  // A plot from x to 944 for 10 units: the second span starts at 4/10 of it.
  const Timeline timeline = lay_out("", {"0F0 0B0"}, {4'000'000, 6'000'000, 0, 0, 0});
  const std::string svg = write_svg(timeline, {});
  const double first = number(tags(svg, "<rect class=\"F\"").at(0), "x");
  const double second = number(tags(svg, "<rect class=\"B\"").at(0), "x");
  EXPECT_NEAR(second, first + 0.4 * (944.0 - first), 0.011);
}

TEST(Svg, ShadesAreChunksOrCopiesOfTheModel) {
  const Timeline chunks = lay_out("", interleaved_orders(2, 2, 2));
  Timeline copies = chunks;
  copies.model_copies = 2;
  EXPECT_TRUE(contains(write_svg(copies, {}), ">forward, copy 1</text>"));
  EXPECT_TRUE(contains(write_svg({copies, chunks}, {}), ">forward, chunk or copy 1</text>"));
  EXPECT_TRUE(contains(write_svg({copies, lay_out("", gpipe_orders(2, 2))}, {}), ">forward, copy 1</text>"));
}

TEST(Svg, ALegendNamesVersionsOfTheWeightsThatOccur) {
  const auto legend_up_to = [](int newest) {
    Timeline timeline = lay_out("", gpipe_orders(1, newest + 1));
    WeightTrack track;
    track.forward.emplace_back();
    for (int version = 0; version <= newest; ++version) track.forward.front().push_back(version);
    track.backward = track.forward;
    track.updates.resize(1);
    timeline.weights = std::move(track);
    return write_svg(timeline, {});
  };
  EXPECT_TRUE(contains(legend_up_to(1), ">forward, weights of version 1</text>"));
  EXPECT_FALSE(contains(legend_up_to(1), "weights of version 2</text>"));
  EXPECT_TRUE(contains(legend_up_to(7), ">forward, weights of version 1, 4, 7</text>"));
  EXPECT_TRUE(contains(legend_up_to(7), ">forward, weights of version 2, 5</text>"));
  EXPECT_TRUE(contains(legend_up_to(10), ">forward, weights of version 1, 4, 7 …</text>"));
}

TEST(Svg, SlicesAreToldAsPartsOfTheirMicrobatch) {
  Timeline timeline = lay_out("", gpipe_orders(2, 4));
  EXPECT_FALSE(contains(write_svg(timeline, {}), "slice"));
  timeline.slices_per_microbatch = 2;
  const std::string svg = write_svg(timeline, {});
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_TRUE(contains(svg, "<title>forward of microbatch 1, slice 1, stage 0\nstart 3, duration 1</title>"));
  EXPECT_TRUE(contains(svg, ">F1.1</text>"));
  EXPECT_TRUE(contains(svg, ">3.1: slice 1 of microbatch 3</text>"));
}

TEST(Svg, LegendHoldsOnlyWhatOccurs) {
  Timeline timeline = lay_out("", interleaved_orders(2, 2, 2));
  std::string svg = write_svg(timeline, {});
  EXPECT_TRUE(contains(svg, ">forward, chunk 1</text>"));
  EXPECT_FALSE(contains(svg, "optimizer"));
  EXPECT_FALSE(contains(svg, "gradient</text>"));
  timeline.ranks[0].push_back(flush_span(SpanKind::kOptimizer, StreamKind::kCompute, 14'000'000, 15'000'000));
  timeline.ranks[0].push_back(flush_span(SpanKind::kGradientReduction, StreamKind::kGradient, 14'000'000, 15'000'000));
  svg = write_svg(timeline, {});
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_TRUE(contains(svg, ">O optimizer</text>"));
  EXPECT_TRUE(contains(svg, ">R gradient reduction</text>"));
}

TEST(Svg, SeveralTimelinesShareOneScale) {
  const Timeline gpipe = lay_out("GPipe", gpipe_orders(4, 8));
  Timeline interleaved = lay_out("interleaved", interleaved_orders(4, 2, 8), {500'000, 1'000'000, 0, 0, 0});
  SvgOptions options;
  options.title = "two";
  const std::string svg = write_svg({gpipe, interleaved}, options);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(count(svg, "<path class=\"axis\""), 1);
  std::set<double> widths;
  for (const std::string& tag : tags(svg, "<rect class=\"idle\"")) {
    if (number(tag, "width") != number(tag, "height")) widths.insert(number(tag, "width"));  // excludes the legend
  }
  ASSERT_EQ(widths.size(), 2U);
  EXPECT_NEAR(*widths.begin() / *widths.rbegin(), 28.5 / 33.0, 1e-4);
  EXPECT_THROW((void)write_svg({gpipe, in_seconds(gpipe, 1'000'000)}, {}), InternalError);
}

TEST(Svg, OptionsAreHonoured) {
  const Timeline timeline = lay_out("mine", one_f_one_b_orders(2, 2), {1'000'000, 2'000'000, 0, 0, 500'000});
  SvgOptions options;
  options.title = "a < b & \"c\" \x01 \xFF";
  options.subtitle = "below";
  options.width = 400.0;
  const std::string svg = write_svg(timeline, options);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_TRUE(contains(svg, ">a &lt; b &amp; &quot;c&quot; \xEF\xBF\xBD \xEF\xBF\xBD</text>"));
  EXPECT_TRUE(contains(svg, ">below</text>"));
  EXPECT_TRUE(contains(svg, "width=\"400\""));
  EXPECT_FALSE(contains(svg, "prefers-color-scheme"));
  options.dark_mode = true;
  EXPECT_TRUE(contains(write_svg(timeline, options), "prefers-color-scheme"));
  EXPECT_TRUE(contains(write_svg(timeline, {}), ">mine</text>"));
  options = {};
  options.titles = false;
  EXPECT_FALSE(contains(write_svg(timeline, options), ">mine</text>"));
}

// A figure for a paper's column: 84 mm, nothing below 6 pt, and kinds that remain distinct in grey.
TEST(Svg, AColumnOfAPaperCanBeRead) {
  constexpr double kMillimetre = 96.0 / 25.4;
  SvgOptions options;
  options.width = 84.0 * kMillimetre;
  options.in_print = true;
  options.titles = false;
  const std::vector<std::string> orders = {"0F0 0F1 0I0 0F2 0I1 0W0 0I2 0W1 0W2",
                                           "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"};
  const std::string svg = write_svg(lay_out("zero bubble", orders), options);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_TRUE(contains(svg, "width=\"84.00mm\""));
  EXPECT_TRUE(contains(svg, "viewBox=\"0 0 317.48 "));
  EXPECT_TRUE(contains(svg, "font-size:9px"));
  for (std::size_t at = svg.find("font-size=\""); at != std::string::npos; at = svg.find("font-size=\"", at + 1)) {
    EXPECT_GE(std::stod(svg.substr(at + 11)), kSmallestText);
  }
  for (const char* label : {">F2</text>", ">I2</text>", ">W2</text>"}) EXPECT_TRUE(contains(svg, label)) << label;
  EXPECT_TRUE(contains(svg, ".W{fill:url(#hatch45-009e73)}"));
  EXPECT_TRUE(contains(svg, "<pattern id=\"hatch45-009e73\""));
  EXPECT_FALSE(contains(svg, ".F{fill:url"));
  for (const std::string& tag : tags(svg, "<rect class=\"W\"")) {
    EXPECT_LE(number(tag, "x") + number(tag, "width"), options.width);
  }
  // If the longest label of a kind does not fit its letter, no action of the figure has one.
  const std::string dense = write_svg(lay_out("", one_f_one_b_orders(4, 12)), options);
  EXPECT_FALSE(contains(dense, ">F0</text>"));
  EXPECT_TRUE(contains(dense, ">0</text>"));
}

TEST(Svg, OverlappedPairsShareTheRow) {
  Timeline timeline;
  timeline.ranks = {{compute_span(SpanKind::kForward, 0, 1, 0, 6), compute_span(SpanKind::kBackward, 0, 0, 0, 6),
                     compute_span(SpanKind::kBackward, 0, 1, 6, 9)}};
  const std::string svg = write_svg(timeline, {});
  const std::vector<std::string> forwards = tags(svg, "<rect class=\"F\"");
  const std::vector<std::string> backwards = tags(svg, "<rect class=\"B\"");
  const auto place = [](const std::string& tag) { return std::pair(number(tag, "y"), number(tag, "height")); };
  EXPECT_EQ(place(forwards.at(0)), std::pair(0.0, 11.0));
  EXPECT_EQ(place(backwards.at(0)), std::pair(11.0, 11.0));
  EXPECT_EQ(place(backwards.at(1)), std::pair(0.0, 22.0));
}

TEST(Svg, ThousandsOfActionsStayCompact) {
  const std::string svg = write_svg(lay_out("", one_f_one_b_orders(64, 1000)), {});
  EXPECT_TRUE(contains(svg, "<path class=\"B\""));
  EXPECT_LT(svg.size(), 4'000'000U) << "128,000 actions";
  // Far below 0.2 px the figure's size depends on its width rather than on the number of actions.
  const std::string denser = write_svg(lay_out("", one_f_one_b_orders(4, 50'000)), {});
  EXPECT_LT(denser.size(), 400'000U);
  EXPECT_TRUE(is_well_formed(denser));
}

TEST(Svg, NothingOneZeroLengthAndHuge) {
  Timeline timeline;
  EXPECT_TRUE(is_well_formed(write_svg(timeline, {})));
  EXPECT_TRUE(is_well_formed(write_svg(std::vector<Timeline>{}, {})));
  timeline.time_unit = "s";
  timeline.units_per_tick = 1e-12;
  timeline.ranks = {{compute_span(SpanKind::kForward, 0, 0, 0, 0)}, {}};
  EXPECT_TRUE(contains(write_svg(timeline, {}), "nothing ran"));
  timeline.ranks[1] = {compute_span(SpanKind::kForward, 1, 0, 5, 9'223'372'036'854'775'807)};
  const std::string svg = write_svg(timeline, {});
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_TRUE(contains(svg, "makespan 9223372 s"));
  EXPECT_TRUE(contains(svg, ">8000000</text>"));
  EXPECT_FALSE(contains(svg, "nan"));
  EXPECT_FALSE(contains(svg, "inf"));
}

TEST(Svg, TheAxisHasANiceUnit) {
  const std::string svg = write_svg(in_seconds(lay_out("", {"0F0 0B0"}), 3'100'000'000), {});
  EXPECT_TRUE(contains(svg, ">time (ms)</text>"));
  EXPECT_TRUE(contains(svg, "start 3.1 ms, duration 6.2 ms"));
}

TEST(SvgStyle, TextStandsOutOnEveryFill) {
  EXPECT_TRUE(needs_light_text(fill_color(SpanKind::kForward, ChunkIndex(0), 1)));
  EXPECT_FALSE(needs_light_text(fill_color(SpanKind::kBackward, ChunkIndex(0), 1)));
  EXPECT_FALSE(needs_light_text(fill_color(SpanKind::kForward, ChunkIndex(1), 2)));
  EXPECT_EQ(hex_color(fill_color(SpanKind::kForward, ChunkIndex(0), 3)), "#0072b2");
  EXPECT_EQ(hex_color(fill_color(SpanKind::kForward, ChunkIndex(2), 3)), "#99c7e0");
}

TEST(SvgStyle, EscapesWhatXmlForbids) {
  EXPECT_EQ(escape_xml("gr\xC3\xB6\xC3\x9F"
                       "e <1>"),
            "gr\xC3\xB6\xC3\x9F"
            "e &lt;1&gt;");
  EXPECT_EQ(escape_xml("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(escape_xml("\xC3"), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace flopcast
