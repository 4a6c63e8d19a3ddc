#include "sim/schedules/catalogue.hpp"

#include <gtest/gtest.h>

#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "base/text/error.hpp"

namespace flopcast {
namespace {

TEST(Catalogue, ListsTheSchedulesSimplestFirst) {
  std::vector<std::string> names;
  for (const ScheduleInfo& info : schedule_catalogue()) names.emplace_back(info.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"naive",   "gpipe",   "1f1b",     "eager-1f1b", "dapple",    "interleaved",
                                      "gis",     "bfs",     "terapipe", "zb-h1",      "zb-h2",     "interleaved-zb",
                                      "zb-auto", "1f1b-v",  "zbv",      "v-half",     "v-min",     "v-auto",
                                      "hanayo",  "chimera", "dualpipe", "dualpipev",  "pipedream", "pipedream-2bw",
                                      "pipemare"}));
}

TEST(Catalogue, EveryEntrySaysWhatItIs) {
  std::set<std::string_view> summaries;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    EXPECT_EQ(find_schedule(info.name), &info);
    EXPECT_TRUE(summaries.insert(info.summary).second) << info.name;
    for (const std::string_view text : {info.summary, info.source, info.peak_in_flight, info.makespan}) {
      EXPECT_FALSE(text.empty()) << info.name;
    }
    EXPECT_EQ(info.default_chunks, info.uses_chunks ? 2 : 1) << info.name;
    EXPECT_EQ(info.constraints.empty(), info.refuse == nullptr) << info.name;
    EXPECT_FALSE(refuse_request(info, {.pipeline_ranks = 2, .microbatches = 4, .chunks = info.default_chunks}))
        << info.name;
  }
  EXPECT_EQ(find_schedule("zbv-nonsense"), nullptr);
}

TEST(ScheduleNames, SuffixesSetVariantAndChunks) {
  const ScheduleName plain = parse_schedule_name("1f1b");
  EXPECT_EQ(plain.info->name, "1f1b");
  EXPECT_TRUE(plain.variant.empty());
  EXPECT_FALSE(plain.chunks.has_value());
  EXPECT_EQ(parse_schedule_name("gpipe:lifo").variant, "lifo");
  EXPECT_EQ(parse_schedule_name("interleaved:3").chunks, 3);
  const ScheduleName both = parse_schedule_name("bfs:fifo:4");
  EXPECT_EQ(both.variant, "fifo");
  EXPECT_EQ(both.chunks, 4);
  EXPECT_EQ(parse_schedule_name("bfs:4:fifo").chunks, 4);
  EXPECT_EQ(parse_schedule_name("gpipe:1").chunks, 1);
}

struct BadName {
  std::string text;
  std::string problem;
  std::string help;

  friend void PrintTo(const BadName& name, std::ostream* out) { *out << name.problem; }
};

class BadScheduleName : public testing::TestWithParam<BadName> {};

TEST_P(BadScheduleName, IsNamedWithTheValidChoices) {
  try {
    parse_schedule_name(GetParam().text);
    FAIL() << "accepted " << GetParam().text;
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "schedule");
    EXPECT_NE(error.diagnostic().problem.find(GetParam().problem), std::string::npos) << error.what();
    EXPECT_NE(error.diagnostic().help.find(GetParam().help), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Texts, BadScheduleName,
    testing::Values(BadName{"1f2b", "unknown schedule '1f2b'", "did you mean 1f1b"},
                    BadName{"", "unknown schedule ''", "valid: naive, gpipe"},
                    BadName{"GPipe:lifo", "unknown schedule 'GPipe:lifo'", "did you mean gpipe?"},
                    BadName{"gpipe:", "gpipe does not accept suffix '' in 'gpipe:'", "gpipe:fifo, gpipe:lifo"},
                    BadName{"gpipe:2", "not accept suffix '2'", "valid: gpipe, gpipe:fifo"},
                    BadName{"1f1b:fifo", "not accept suffix 'fifo'", "valid: 1f1b"},
                    BadName{"interleaved:0", "not accept suffix '0'", "interleaved:2"},
                    BadName{"interleaved:-1", "not accept suffix '-1'", "interleaved:2"},
                    BadName{"interleaved:99999999999", "not accept suffix '99999999999'", "interleaved:2"},
                    BadName{"interleaved:2:3", "not accept suffix '3'", "interleaved:2"},
                    BadName{"bfs:lifo:fifo", "not accept suffix 'fifo'", "bfs:lifo"},
                    BadName{std::string(1'000'000, '\x01'),
                            "unknown schedule '?"
                            "???",
                            "valid: naive"}));

struct Refused {
  std::string_view schedule;
  ScheduleRequest request;
  std::string problem;
  std::string help;

  friend void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.problem; }
};

class RefusedRequest : public testing::TestWithParam<Refused> {};

TEST_P(RefusedRequest, SaysWhyAndWhatWouldDo) {
  const ScheduleInfo& info = *find_schedule(GetParam().schedule);
  const auto refusal = refuse_request(info, GetParam().request);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_NE(refusal->problem.find(GetParam().problem), std::string::npos) << refusal->problem;
  EXPECT_NE(refusal->help.find(GetParam().help), std::string::npos) << refusal->help;
  try {
    generate_schedule(info, GetParam().request);
    FAIL() << "generated";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "schedule");
    EXPECT_EQ(error.diagnostic().problem, refusal->problem);
  }
}

ScheduleRequest shape(int ranks, int microbatches, int chunks) {
  return {.pipeline_ranks = ranks, .microbatches = microbatches, .chunks = chunks};
}

ScheduleRequest grouped(int ranks, int microbatches, int chunks, int group_size) {
  ScheduleRequest request = shape(ranks, microbatches, chunks);
  request.group_size = group_size;
  return request;
}

ScheduleRequest accumulated(int ranks, int microbatches, int accumulation) {
  ScheduleRequest request = shape(ranks, microbatches, 1);
  request.accumulation = accumulation;
  return request;
}

ScheduleRequest replicated(int stages, int microbatches, const std::vector<int>& replicas,
                           const std::string& variant = {}) {
  ScheduleRequest request = shape(stages, microbatches, 1);
  request.stage_replicas = replicas;
  request.variant = variant;
  return request;
}

INSTANTIATE_TEST_SUITE_P(
    Requests, RefusedRequest,
    testing::Values(
        Refused{"naive", shape(0, 1, 1), "0 pipeline ranks", "at least 1"},
        Refused{"gpipe", shape(2, -3, 1), "-3 microbatches", "at least 1"},
        Refused{"bfs", shape(2, 2, 0), "0 chunks", "at least 1"},
        Refused{"1f1b", shape(2'000'000'000, 2, 1), "too many stages", "at most 65535 stages"},
        Refused{"bfs", shape(60'000, 2, 2), "too many stages", "at most 65535 stages"},
        Refused{"1f1b", shape(4, 2'000'000'000, 1), "2000000000 microbatches on 4 stages", "at most 2500000"},
        Refused{"naive", shape(4, 8, 2), "naive has one chunk per rank, not 2",
                "several chunks: interleaved, gis, bfs"},
        Refused{"gpipe", shape(4, 8, 3), "gpipe has one chunk per rank, not 3",
                "several chunks: interleaved, gis, bfs"},
        Refused{"1f1b", shape(4, 8, 2), "1f1b has one chunk per rank, not 2", "several chunks: interleaved, gis, bfs"},
        Refused{"eager-1f1b", shape(4, 8, 2), "eager-1f1b has one chunk", "several chunks: interleaved, gis, bfs"},
        Refused{"pipedream", shape(4, 8, 2), "pipedream has one chunk", "several chunks: interleaved, gis, bfs"},
        Refused{"pipedream-2bw", shape(4, 8, 2), "pipedream-2bw has one chunk",
                "several chunks: interleaved, gis, bfs"},
        Refused{"1f1b", grouped(4, 8, 1, 4), "1f1b does not support group size 4", "interleaved"},
        Refused{"interleaved", grouped(4, 8, 1, 4), "does not use group size 4", "at least 2 chunks"},
        Refused{"interleaved", shape(4, 11, 2), "cannot split 11 microbatches",
                "nearest valid microbatch counts: 7, 8, 10, 12, 15; or group size 6, 7, 11"},
        Refused{"interleaved", shape(2, 7, 2), "7 microbatches into equal groups for 2 pipeline ranks",
                "nearest valid microbatch counts: 4, 6, 8, 10; or group size 4, 5, 7"},
        Refused{"interleaved", grouped(4, 8, 2, 3), "group size 3 with 8 microbatches and 4 pipeline ranks",
                "nearest valid group sizes: 4, 8"},
        Refused{"interleaved", grouped(4, 8, 2, 100), "group size 100", "nearest valid group sizes: 4, 8"},
        Refused{"interleaved", grouped(4, 8, 2, 0), "group size 0", "nearest valid group sizes: 4, 8"},
        Refused{"interleaved", grouped(4, 3, 2, 4), "group size 4 with 3 microbatches", "nearest valid group sizes: 3"},
        Refused{"1f1b", accumulated(4, 8, 4), "after all 8 microbatches, not after 4", "pipedream-2bw"},
        Refused{"pipedream", accumulated(4, 8, 4), "after every microbatch, not after 4", "accumulation 1"},
        Refused{"pipedream-2bw", accumulated(4, 8, 3), "with 4 pipeline ranks cannot update the weights after 3",
                "accumulation >= 4"},
        Refused{"pipedream", replicated(3, 8, {2, 1}), "replicas 2,1: 2 numbers for 3 stages", "one number per stage"},
        Refused{"pipedream", replicated(2, 8, {2, 0}), "replicas 2,0: 0 replicas", "at least 1"},
        Refused{"pipedream", replicated(2, 2, {3, 1}), "3 replicas with only 2 microbatches", "at least 3"},
        Refused{"pipedream", replicated(2, 8, {3, 1}, "vertical-sync"), "vertical-sync", "pipedream:stashing"},
        Refused{"1f1b", replicated(2, 8, {3, 1}), "1f1b does not support replicated stages", "pipedream"},
        Refused{"pipemare", accumulated(4, 8, 0), "after 0 microbatches", "accumulation >= 1"},
        Refused{"pipedream-2bw", shape(4, 1, 1), "after 1 microbatch:", "microbatches >= 4"},
        Refused{"dualpipe", shape(3, 6, 1), "must be even, not 3", "such as 4"},
        Refused{"dualpipe", shape(4, 9, 1), "must be even, not 9", "such as 10"},
        Refused{"dualpipe", shape(4, 3, 1), "must be even, not 3", "such as 8"},
        Refused{"dualpipe", shape(4, 6, 1), "needs more than 6 microbatches", "at least 8"},
        Refused{"dualpipe", shape(4, 8, 2), "dualpipe has one chunk per rank, not 2",
                "several chunks: interleaved, gis, bfs"},
        Refused{"dualpipev", shape(4, 8, 3), "two chunks per rank, not 3", "2 chunks"},
        Refused{"dualpipev", shape(4, 7, 2), "with 8 stages needs more than 7", "at least 8"},
        Refused{"chimera", shape(3, 6, 1), "collide on 3 pipeline ranks", "such as 4"},
        Refused{"chimera", shape(4, 7, 1), "there are 7 microbatches", "6 or 8 microbatches"},
        Refused{"chimera", shape(4, 1, 1), "there are 1 microbatches", "2 microbatches"},
        Refused{"chimera", ScheduleRequest{.pipeline_ranks = 4, .microbatches = 6, .variant = "doubling"},
                "chimera:doubling must divide its pairs", "4 or 8 microbatches"},
        Refused{"hanayo", shape(4, 8, 3), "3 is odd", "such as 4"},
        Refused{"hanayo", ScheduleRequest{.pipeline_ranks = 2, .microbatches = 2, .chunks = 2, .memory_limit = 0},
                "memory limit of 0", "at least 1"},
        Refused{"gis", grouped(4, 8, 2, 1), "cannot use group size 1", "a group size from 2 to 4"},
        Refused{"gis", grouped(4, 8, 2, 5), "cannot use group size 5", "a group size from 2 to 4"},
        Refused{"gis", grouped(4, 8, 2, 3), "8 microbatches into groups of 3", "6 or 9 microbatches"},
        Refused{"gis", shape(4, 5, 2), "5 microbatches into equal groups of 2 to 4", "4 or 6 microbatches"},
        Refused{"gis", shape(4, 1, 2), "1 microbatches into equal groups", "2 microbatches"},
        Refused{"dapple", ScheduleRequest{.pipeline_ranks = 2, .microbatches = 2, .memory_limit = 0},
                "memory limit of 0", "at least 1"},
        Refused{"1f1b", ScheduleRequest{.pipeline_ranks = 2, .microbatches = 2, .memory_limit = 4},
                "1f1b does not support memory limit 4", "dapple"},
        Refused{"terapipe", ScheduleRequest{.pipeline_ranks = 2, .microbatches = 2, .slices = 0}, "into 0 slices",
                "at least 1"},
        Refused{"terapipe", ScheduleRequest{.pipeline_ranks = 2, .microbatches = 1000, .slices = 2'000'000},
                "2000000 slices of 1000 microbatches", "at most 5000 slices"},
        Refused{"gpipe", ScheduleRequest{.pipeline_ranks = 2, .microbatches = 2, .slices = 4},
                "does not support slice count 4", "terapipe"},
        Refused{"zb-h1", shape(4, 8, 2), "zb-h1 has one chunk per rank, not 2", "interleaved"},
        Refused{"zb-auto", shape(4, 8, 2), "zb-auto has one chunk per rank, not 2", "interleaved"},
        Refused{"zbv", shape(4, 8, 3), "zbv has two chunks per rank, not 3", "2 chunks"},
        Refused{"zbv", shape(4, 8, 1), "zbv has two chunks per rank, not 1", "2 chunks"},
        Refused{"v-half", shape(4, 8, 1), "v-half has two chunks", "2 chunks"},
        Refused{"v-min", shape(4, 8, 4), "v-min has two chunks", "2 chunks"},
        Refused{"1f1b-v", shape(4, 8, 1), "1f1b-v has two chunks", "2 chunks"},
        Refused{"v-auto", shape(4, 8, 1), "v-auto has two chunks", "2 chunks"},
        Refused{"interleaved-zb", shape(4, 11, 2), "interleaved-zb cannot split 11 microbatches", "10, 12"},
        Refused{"zb-auto", ScheduleRequest{.pipeline_ranks = 2, .microbatches = 2, .memory_limit = 0},
                "memory limit of 0", "at least 1"},
        Refused{"v-auto", ScheduleRequest{.pipeline_ranks = 2, .microbatches = 2, .chunks = 2, .memory_limit = -4},
                "memory limit of -4", "at least 1"},
        Refused{"zb-h2", ScheduleRequest{.pipeline_ranks = 2, .microbatches = 2, .memory_limit = 4},
                "zb-h2 does not support memory limit 4", "zb-auto"},
        Refused{"gpipe", ScheduleRequest{.pipeline_ranks = 2, .microbatches = 2, .variant = "random"},
                "gpipe has no variant 'random'", "gpipe:fifo, gpipe:lifo"}));

TEST(AcceptedRequest, AccumulationThatChangesNothingIsFine) {
  EXPECT_FALSE(refuse_request(*find_schedule("1f1b"), accumulated(4, 8, 8)));
  EXPECT_FALSE(refuse_request(*find_schedule("pipedream"), accumulated(4, 8, 1)));
  EXPECT_FALSE(refuse_request(*find_schedule("pipedream-2bw"), accumulated(4, 8, 4)));
  EXPECT_FALSE(refuse_request(*find_schedule("pipedream-2bw"), accumulated(4, 8, 16)));
}

}  // namespace
}  // namespace flopcast
