// Traces in formats other than Kineto: Chakra, Nsight Systems and flopcast's own, hand-written and round trip.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/unit/model/jobs.hpp"

#ifdef FLOPCAST_HAS_SQLITE
#include <sqlite3.h>
#endif

namespace flopcast {
namespace {

constexpr std::size_t kNoneOf = static_cast<std::size_t>(IdleCause::kOther);

double idle_for(const TracedStep& step, IdleCause cause) {
  return step.idle_by_cause_s[static_cast<std::size_t>(cause)];
}

TracedRank chakra_rank(const std::string& text, const std::string& file = "step.et") {
  std::istringstream stream(text);
  return read_chakra_steps(stream, file, 0.0);
}

TEST(ChakraSteps, WhatIsWrittenIsReadAgain) {
  const Forecast answer = forecast(job_from(R"({"model": "llama3-8b", "cluster": {"name": "dgx-h100", "nodes": 4},
      "layout": {"tp": 2, "pp": 4, "zero": 1, "sequence_parallel": true, "global_batch_size": 32},
      "training": {"stack": "nemo"}})"),
                                   no_files);
  const Result& result = answer.result;
  double compute = 0.0;
  double collectives = 0.0;
  double messages = 0.0;
  const int devices = 32;
  for (int device = 0; device < devices; ++device) {
    const TracedRank rank = chakra_rank(chakra_trace(answer, device), fmt::format("folder.7/step.{}.et", device));
    EXPECT_EQ(rank.rank, device);
    ASSERT_EQ(rank.steps.size(), 1u);
    const TracedStep& step = rank.steps.front();
    compute += step.compute_s / devices;
    // In a chain, nothing overlaps and nothing waits.
    EXPECT_NEAR(step.communication_s, step.exposed_s, 1e-9);
    EXPECT_NEAR(step.time_s, step.compute_s + step.exposed_s, 1e-9);
    messages += step.collectives.at("p2p").seconds / devices;
    collectives +=
        (step.collectives.at("all_gather").seconds + step.collectives.at("reduce_scatter").seconds) / devices;
  }
  EXPECT_NEAR(compute, result.breakdown.compute_s + result.breakdown.optimizer_s, 1e-3 * compute);
  // A forecast message counts at both ends.
  EXPECT_NEAR(2.0 * messages, result.communication[Axis::kPipeline].total_s, 0.01 * messages);
  double data = 0.0;  // sum over four pipeline ranks
  for (const FlushCosts& flush : answer.step.costs.ranks) {
    data += (flush.gradient_reduction + flush.parameter_gather).value() / 4.0;
  }
  EXPECT_GT(data, 0.0);
  EXPECT_NEAR(collectives, result.breakdown.tp_comm_s + data, 0.01 * collectives);
}

// Helpers that write protobuf messages.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value /= 128) bytes += static_cast<char>(value % 128 + 128);
  return bytes + static_cast<char>(value);
}
std::string number(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3U) + varint(value);
}
std::string bytes_field(int field, const std::string& bytes) {
  return varint((static_cast<std::uint64_t>(field) << 3U) | 2U) + varint(bytes.size()) + bytes;
}
std::string framed(const std::string& message) {
  return varint(message.size()) + message;
}

struct Node {
  std::uint64_t id;
  const char* name;
  int type;
  std::uint64_t start;
  std::uint64_t duration;
  bool on_host = false;
  std::vector<std::uint64_t> after = {};
  bool packs = true;
};

std::string chakra_of(const std::vector<Node>& nodes) {
  std::string text = framed(bytes_field(1, "0.0.4") + bytes_field(2, bytes_field(1, "schema")));
  for (const Node& node : nodes) {
    std::string message =
        number(1, node.id) + bytes_field(2, node.name) + number(3, static_cast<std::uint64_t>(node.type));
    std::string packed;
    for (const std::uint64_t id : node.after) {
      packed += varint(id);
      if (!node.packs) message += number(4, id);
    }
    if (node.packs && !packed.empty()) message += bytes_field(5, packed);
    if (node.start > 0) message += number(6, node.start);
    if (node.duration > 0) message += number(7, node.duration);
    message += bytes_field(8, bytes_field(1, "[]"));
    message += bytes_field(10, bytes_field(1, "is_cpu_op") + number(27, node.on_host ? 1 : 0));
    if (node.type == 7) message += bytes_field(10, bytes_field(1, "comm_type") + number(9, 7));
    message += bytes_field(10, bytes_field(1, "a double") + varint((3U << 3U) | 1U) + "12345678");
    text += framed(message);
  }
  return text;
}

TEST(ChakraSteps, NodesWithTheirTimes) {
  // Two steps of 1000 us: a batch of 100, computation of 600, and a collective of 400, half of which is hidden.
  std::vector<Node> nodes;
  for (std::uint64_t step = 0; step < 2; ++step) {
    const std::uint64_t begin = 1'000'000 + 1000 * step;
    nodes.push_back({10 * step + 1, step == 0 ? "ProfilerStep#1" : "ProfilerStep#2", 4, begin, 1000, true});
    nodes.push_back({10 * step + 2, "loader", 9, begin, 100, true});
    nodes.push_back({10 * step + 3, "flash_fwd_kernel", 4, begin + 100, 600});
    nodes.push_back({10 * step + 4, "ncclDevKernel_ReduceScatter", 7, begin + 500, 400});
    nodes.push_back({10 * step + 5, "aten::mm", 4, begin + 50, 20, true});
  }
  const TracedRank rank = chakra_rank(chakra_of(nodes), "a.12.et");
  EXPECT_EQ(rank.rank, 12);
  ASSERT_EQ(rank.steps.size(), 2u);
  const TracedStep& step = rank.steps[1];
  EXPECT_EQ(step.name, "ProfilerStep#2");
  EXPECT_NEAR(step.time_s, 1e-3, 1e-12);
  EXPECT_NEAR(step.compute_s, 6e-4, 1e-12);
  EXPECT_NEAR(step.communication_s, 4e-4, 1e-12);
  EXPECT_NEAR(step.overlapped_s(), 2e-4, 1e-12);
  EXPECT_NEAR(step.idle_s, 2e-4, 1e-12);
  EXPECT_NEAR(idle_for(step, IdleCause::kData), 1e-4, 1e-12);
  EXPECT_EQ(step.attention_forward, 1);
  EXPECT_EQ(step.collectives.at("reduce_scatter").kernels, 1);
}

TEST(ChakraSteps, WithoutStartsDependenciesTellThem) {
  // 2 and 3 run in parallel after 1; 4 waits for both: 100 + max(300, 200) + 50.
  const std::string text = chakra_of({{4, "d", 4, 0, 50, false, {2, 3}, false},
                                      {1, "a", 4, 0, 100},
                                      {2, "b", 4, 0, 300, false, {1, 99}},
                                      {3, "c", 7, 0, 200, false, {1}}});
  const TracedStep step = chakra_rank(text).steps.at(0);
  EXPECT_NEAR(step.time_s, 450e-6, 1e-12);
  EXPECT_NEAR(step.compute_s, 450e-6, 1e-12);
  EXPECT_NEAR(step.communication_s, 200e-6, 1e-12);
  EXPECT_NEAR(step.exposed_s, 0.0, 1e-12);
  EXPECT_THROW(chakra_rank(chakra_of({{1, "a", 4, 0, 5, false, {2}}, {2, "b", 4, 0, 5, false, {1}}})), ConfigError);
}

// Metadata as written by MLCommons' converter of PyTorch traces: attributes, but no version.
std::string converters_metadata(std::size_t padding) {
  constexpr int kText = 29;
  constexpr int kWhole = 9;
  return framed(bytes_field(2, bytes_field(1, "schema") + bytes_field(kText, "1.0.2-chakra.0.0.4")) +
                bytes_field(2, bytes_field(1, "pid") + number(kWhole, 1234)) +
                bytes_field(2, bytes_field(1, "time") + bytes_field(kText, std::string(padding, '2'))));
}

std::string converted_of(const std::vector<Node>& nodes, std::size_t padding) {
  const std::string whole = chakra_of(nodes);
  return converters_metadata(padding) + whole.substr(chakra_of({}).size());
}

TEST(ChakraSteps, ConvertersTellNoVersionAndCountFrom1970) {
  constexpr std::uint64_t kNow = 1'760'000'000'000'000;
  for (const std::size_t padding : {std::size_t{20}, std::size_t{200}, std::size_t{20'000}}) {
    const std::string text = converted_of({{1, "root", 1, 0, 0, true},
                                           {2, "aten::mm", 4, kNow, 30, true},
                                           {3, "gemm", 4, kNow + 100, 600},
                                           {4, "nccl", 7, kNow + 500, 400}},
                                          padding);
    const TracedStep step = chakra_rank(text).steps.at(0);
    EXPECT_NEAR(step.time_s, 800e-6, 1e-12);
    EXPECT_NEAR(step.compute_s, 600e-6, 1e-12);
    EXPECT_NEAR(step.exposed_s, 200e-6, 1e-12);
  }
  // A node without a start begins with the first of the others.
  const std::string text = converted_of({{1, "loader", 9, 0, 50, true}, {2, "gemm", 4, kNow, 600}}, 0);
  EXPECT_NEAR(idle_for(chakra_rank(text).steps.at(0), IdleCause::kData), 0.0, 1e-12);
  EXPECT_NEAR(chakra_rank(text).steps.at(0).time_s, 600e-6, 1e-12);
  EXPECT_EQ(chakra_rank(text, "llama.3.et.gz").rank, 3);
  // A node in place of the metadata, whose first field is the name.
  EXPECT_THROW(chakra_rank(framed(bytes_field(2, "gemm") + number(3, 4) + number(7, 5)) + text), ConfigError);
  EXPECT_THROW(chakra_rank(text + framed("")), ConfigError) << "an empty message is not a node";
}

TEST(ChakraSteps, WhatIsNoneIsRefused) {
  const std::string whole = chakra_of({{1, "a", 4, 0, 100}, {2, "b", 7, 0, 300, false, {1}}});
  for (const std::string& text :
       {std::string(), std::string("text"), chakra_of({}), chakra_of({{1, "host", 4, 0, 100, true}}),
        chakra_of({{1, "no duration", 4, 5, 0}}), chakra_of({{1, "endless", 4, 0, ~std::uint64_t{0}}}),
        chakra_of({{1, "never", 4, ~std::uint64_t{0}, 1}}), std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8)}) {
    EXPECT_THROW(chakra_rank(text), ConfigError) << text;
  }
  // Truncated or damaged anywhere: the file is refused, or its remainder is read.
  std::mt19937 random(1);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    std::string text = whole.substr(0, length);
    for (int damage = 0; damage < 50; ++damage) {
      try {
        EXPECT_FALSE(chakra_rank(text).steps.empty());
      } catch (const ConfigError& error) {
        EXPECT_NE(std::string(error.what()).find("step.et"), std::string::npos) << error.what();
      }
      text = whole;
      text[length] = static_cast<char>(random());
    }
  }
}

class TracedFile : public testing::Test {
 protected:
  ~TracedFile() override { std::remove(path_.c_str()); }
  std::vector<TracedRank> read(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return read_traced_file(path_, 0.0);
  }

  std::string path_ = testing::TempDir() + "/traced 50%#?.file";
};

TEST_F(TracedFile, ATraceOfOurOwnShowsWhatTheForecastHas) {
  const Forecast answer = forecast(job_from(R"({"model": "gpt3-13b", "cluster": {"name": "dgx-a100-80g", "nodes": 2},
      "layout": {"tp": 2, "pp": 4, "global_batch_size": 16}, "training": {"stack": "megatron-2022"}})"),
                                   no_files);
  TraceOptions options = trace_options_of(answer);
  options.other_data = {{"tool", "flopcast 1.0"}};
  const std::vector<TracedRank> ranks = read(write_chrome_trace(answer.timeline, options));
  ASSERT_EQ(ranks.size(), 4u);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(ranks[rank].rank, static_cast<int>(rank));
    EXPECT_TRUE(ranks[rank].waiting_separate);
    const TracedStep& step = ranks[rank].typical();
    double busy = 0.0;
    double forward = 0.0;
    for (const Span& span : answer.timeline.ranks[rank]) {
      const double seconds = static_cast<double>(span.end - span.start) * kSecondsPerTick;
      if (is_action(span.kind) || span.kind == SpanKind::kOptimizer) busy += seconds;
      if (span.kind == SpanKind::kForward) forward += seconds;
    }
    EXPECT_NEAR(step.time_s, answer.result.iteration.time_s, 1e-6);
    EXPECT_NEAR(step.compute_s, busy, 1e-6);
    EXPECT_NEAR(step.forward_s, forward, 1e-6);
    // Idle time is that of the bubble: no launch was late.
    EXPECT_NEAR(step.idle_by_cause_s[kNoneOf], step.idle_s, 1e-3 * step.time_s);
  }
}

TEST_F(TracedFile, FormatsAreToldApart) {
  const auto format_of = [this](const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return trace_format_of(path_);
  };
  EXPECT_EQ(format_of("{\n  \"traceEvents\": []}"), TraceFormat::kKineto);
  EXPECT_EQ(format_of("[]"), TraceFormat::kKineto);
  EXPECT_EQ(format_of(""), TraceFormat::kKineto);
  EXPECT_EQ(format_of(chakra_of({})), TraceFormat::kChakra);
  for (const std::size_t padding : {std::size_t{0}, std::size_t{20}, std::size_t{200}, std::size_t{20'000}}) {
    EXPECT_EQ(format_of(converters_metadata(padding)), TraceFormat::kChakra) << padding;
  }
  EXPECT_EQ(format_of("\xef\xbb\xbf{\n \"traceEvents\": []}"), TraceFormat::kKineto);
  // A first message of 123 bytes begins like JSON.
  EXPECT_EQ(format_of("{\n\x05"
                      "0.0.4"),
            TraceFormat::kChakra);
  EXPECT_EQ(format_of(R"({"schema": "flopcast.measurement/1", )"), TraceFormat::kOwnRun);
  EXPECT_EQ(format_of("SQLite format 3"), TraceFormat::kNsight);
  EXPECT_THROW(read("SQLite format 3"), ConfigError);
  EXPECT_THROW(read(R"({"schema": "flopcast.measurement/1", )"), ConfigError);
  EXPECT_THROW(read(R"({"otherData":{"tool":"flopcast 1"},"traceEvents":[]})"), ConfigError);
  EXPECT_THROW(read(R"({"otherData":{"tool":"flopcast 1"},"traceEvents":[{"ph":"X","cat":"forward","pid":-1}]})"),
               ConfigError);
  EXPECT_THROW(read(R"({"otherData":{"tool":"flopcast 1"},"traceEvents":[{"ph":"X","cat":"forward","pid":0,"ts":9e12,)"
                    R"("dur":9e12}]})"),
               ConfigError);
}

#ifdef FLOPCAST_HAS_SQLITE

// An export as written by nsys, with the columns that always exist.
class NsightSteps : public TracedFile {
 protected:
  static constexpr std::int64_t kProcess = std::int64_t{0x1000012} << 24U;  // machine and process
  static constexpr std::int64_t kThread = kProcess | 77;

  void SetUp() override {
    std::remove(path_.c_str());
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database_), SQLITE_OK);
    run("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)");
    run("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT "
        "NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, "
        "globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, "
        "launchType "
        "INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, graphNodeId "
        "INTEGER)");
    run("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT "
        "NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, "
        "globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL)");
    run("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER "
        "NOT "
        "NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, "
        "callchainId INTEGER)");
    run("CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, "
        "category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId "
        "INTEGER)");
    run("CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT)");
    run("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H100 80GB HBM3', '0000:1b:00.0')");
  }
  ~NsightSteps() override { sqlite3_close(database_); }

  void run(const std::string& statement) const {
    char* problem = nullptr;
    EXPECT_EQ(sqlite3_exec(database_, statement.c_str(), nullptr, nullptr, &problem), SQLITE_OK) << problem;
  }
  int text_id(const std::string& text) {
    run(fmt::format("INSERT INTO StringIds VALUES ({}, '{}')", ++texts_, text));
    return texts_;
  }
  // Times in microseconds.
  void call(const std::string& name, int start, int end, std::int64_t thread = kThread) {
    run(fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({}000, {}000, 0, {}, {}, {}, 0, NULL)", start, end,
                    thread, ++correlation_, text_id(name)));
  }
  // The kernel is launched by the last call.
  void kernel(const std::string& name, int start, int end, int device = 0) {
    const int id = text_id(name);
    run(fmt::format(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}000, {}000, {}, 1, NULL, 7, {}, {}, {}, {}, NULL, "
        "0, 0, 32, 1, NULL)",
        start, end, device, correlation_, kProcess, id, id));
  }
  void range(const std::string& name, int start, int end, std::int64_t thread = kThread, bool by_id = false,
             int type = 59) {
    const std::string text = by_id ? "NULL" : "'" + name + "'";
    const std::string id = by_id ? std::to_string(text_id(name)) : "NULL";
    run(fmt::format("INSERT INTO NVTX_EVENTS VALUES ({}000, {}000, {}, NULL, NULL, NULL, {}, {}, NULL, {}, 0)", start,
                    end, type, text, thread, id));
  }

  sqlite3* database_ = nullptr;
  int texts_ = 0;
  int correlation_ = 100;
};

TEST_F(NsightSteps, FiguresByHand) {
  for (int step = 0; step < 3; ++step) {
    const int at = 1000 * step;
    range("iteration " + std::to_string(step), at, at + 1000, kThread, step == 1);
    range("microstep", at + 10, at + 20);
    range("dataloader next", at, at + 100);
    call("cudaLaunchKernel_v7000", at + 50, at + 55);
    kernel("void flash::flash_fwd_kernel<bf16>(Params)", at + 100, at + 400);
    call("cudaLaunchKernel_v7000", at + 60, at + 65);
    kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)", at + 300, at + 500);
    call("cudaMalloc_v3020", at + 500, at + 560);
    call("cudaMemcpyAsync_v3020", at + 600, at + 610);
    run(fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({}000, {}000, 0, 1, NULL, 7, {}, {}, 4096, 1)",
                    at + 650, at + 700, correlation_, kProcess));
    call("cuLaunchKernelEx", at + 790, at + 795);
    kernel("nvjet_tst_256x128", at + 800, at + 900);
  }
  const std::vector<TracedRank> ranks = read_traced_file(path_, 0.0);
  ASSERT_EQ(ranks.size(), 1u);
  const TracedRank& rank = ranks[0];
  EXPECT_EQ(rank.device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(rank.file, path_);
  EXPECT_TRUE(rank.has_launches);
  ASSERT_EQ(rank.steps.size(), 3u);
  const TracedStep& step = rank.steps[1];
  EXPECT_EQ(step.name, "iteration 1");
  EXPECT_NEAR(step.time_s, 1e-3, 1e-12);
  EXPECT_NEAR(step.compute_s, 450e-6, 1e-12);  // 300, 50 and 100
  EXPECT_NEAR(step.communication_s, 200e-6, 1e-12);
  EXPECT_NEAR(step.exposed_s, 100e-6, 1e-12);
  EXPECT_NEAR(step.idle_s, 450e-6, 1e-12);
  EXPECT_NEAR(idle_for(step, IdleCause::kData), 100e-6, 1e-12);
  EXPECT_NEAR(idle_for(step, IdleCause::kMemory), 60e-6, 1e-12);
  // Late launches: 90 before the copy, after subtracting memory calls; before the GEMM; and up to the next step, whose
  // first call is late too.
  EXPECT_NEAR(idle_for(step, IdleCause::kLaunch), 290e-6, 1e-12);
  EXPECT_EQ(step.work[static_cast<std::size_t>(TraceWork::kCopy)].kernels, 1);
  EXPECT_EQ(step.collectives.at("all_reduce").kernels, 1);
  EXPECT_EQ(step.attention_forward, 1);
}

TEST_F(NsightSteps, DevicesAreRanks) {
  for (int device = 0; device < 2; ++device) {
    call("cudaLaunchKernel", 0, 5);
    kernel("gemm", 100, 300 + 100 * device, device);
  }
  const std::vector<TracedRank> ranks = read_traced_file(path_, 0.0);
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[1].file, path_ + ", rank 1 of the file");
  EXPECT_NEAR(ranks[0].typical().compute_s, 200e-6, 1e-12);
  EXPECT_NEAR(ranks[1].typical().compute_s, 300e-6, 1e-12);
}

TEST_F(NsightSteps, APathMayBeginWithTwoSlashes) {
  call("cudaLaunchKernel", 0, 5);
  kernel("gemm", 100, 300);
  ASSERT_EQ(path_.front(), '/');
  EXPECT_EQ(read_traced_file("/" + path_, 0.0).size(), 1u);
}

TEST_F(NsightSteps, ATextOfManyRowsCountsOnce) {
  run("DROP TABLE StringIds");
  run("CREATE TABLE StringIds (id INTEGER, value TEXT)");
  call("cudaLaunchKernel", 0, 5);
  kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)", 100, 300);
  for (int again = 0; again < 3; ++again) run("INSERT INTO StringIds SELECT id, 'gemm' FROM StringIds");
  const TracedStep step = read_traced_file(path_, 0.0).at(0).typical();
  EXPECT_EQ(step.collectives.at("all_reduce").kernels, 1);
  EXPECT_NEAR(step.compute_s, 0.0, 1e-12);
  // A long name is recognised by its beginning.
  run("UPDATE StringIds SET value = value || printf('%.*c', 100000, 'x')");
  EXPECT_EQ(read_traced_file(path_, 0.0).at(0).typical().collectives.at("all_reduce").kernels, 1);
}

TEST_F(NsightSteps, RangesOfOurOwnRunsAreItsSteps) {
  // Two ranks as threads of one process on one GPU, with calibrations before and after.
  for (int rank = 0; rank < 2; ++rank) {
    const std::int64_t thread = kThread + rank;
    int at = 10 * rank;
    const auto step = [&](int length) {
      range("0F0", at, at + length / 2, thread);
      call("cudaLaunchKernel", at, at + 1, thread);
      kernel("gemm", at + 2, at + length - 20 - rank);
      range("0B0", at + length / 2, at + length - 10, thread);
      range("the end of the step", at + length - 10, at + length, thread);
      at += length;
    };
    step(100);
    range("its set-up", at, at + 50, thread);
    at += 50;
    step(200);
    step(210);
    step(220);
    range("its set-up", at, at + 50, thread);
    at += 50;
    step(100);
  }
  const std::vector<TracedRank> ranks = read_traced_file(path_, 0.0);
  ASSERT_EQ(ranks.size(), 2u);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ranks[rank].steps.size(), 3u);
    EXPECT_NEAR(ranks[rank].steps[1].time_s, 210e-6, 1e-12);
    EXPECT_NEAR(ranks[rank].steps[1].compute_s, (188 - static_cast<double>(rank)) * 1e-6, 1e-12);
  }
}

TEST_F(NsightSteps, WhatCannotBeReadIsRefused) {
  EXPECT_THROW(read_traced_file(path_, 0.0), ConfigError) << "no kernels";
  call("cudaLaunchKernel", 0, 5);
  kernel("gemm", 100, 300);
  EXPECT_EQ(read_traced_file(path_, 0.0).size(), 1u);
  run("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER)");
  EXPECT_EQ(read_traced_file(path_, 0.0).size(), 1u);
  run("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1, 2)");
  try {
    read_traced_file(path_, 0.0);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("--cuda-graph-trace=node"), std::string::npos) << error.what();
  }
  run("DELETE FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE");
  // Early exports have fewer columns.
  for (const char* column : {"correlationId", "globalPid", "shortName", "deviceId"}) {
    run(fmt::format("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {}", column));
    EXPECT_EQ(read_traced_file(path_, 0.0).size(), 1u);
  }
  run("CREATE VIEW CUPTI_ACTIVITY_KIND_MEMSET AS WITH RECURSIVE r(start) AS (SELECT 1 UNION ALL SELECT start FROM r) "
      "SELECT start, start AS end FROM r");
  EXPECT_THROW(read_traced_file(path_, 0.0), ConfigError) << "a view that never ends";
  run("DROP VIEW CUPTI_ACTIVITY_KIND_MEMSET");
  run("DROP TABLE StringIds");
  EXPECT_EQ(read_traced_file(path_, 0.0).size(), 1u);
  run("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1");
  EXPECT_THROW(read_traced_file(path_, 0.0), ConfigError) << "ends before it starts";
  sqlite3_close(database_);
  database_ = nullptr;
  std::string text;
  {
    std::ifstream file(path_, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::mt19937 random(1);
  for (int damage = 0; damage < 300; ++damage) {
    std::string damaged = text;
    for (int byte = 0; byte < 8; ++byte) damaged[20 + random() % (damaged.size() - 20)] = static_cast<char>(random());
    try {
      read(damaged.substr(0, damage % 3 == 0 ? random() % text.size() : text.size()));
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("50%"), std::string::npos) << error.what();
    }
  }
}

#endif

}  // namespace
}  // namespace flopcast
