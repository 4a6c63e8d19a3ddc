#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text/error.hpp"
#include "calibrate/device/imports.hpp"
#include "tests/unit/calibrate/damage.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

Json operator_event(const std::string& name, int id, const Json& dims, const std::string& type) {
  return {{"ph", "X"},    {"cat", "cpu_op"},
          {"name", name}, {"ts", 10 * id},
          {"dur", 5},     {"args", {{"External id", id}, {"Input Dims", dims}, {"Input type", {type, type, type}}}}};
}

Json kernel_event(const std::string& name, int id, double microseconds) {
  return {{"ph", "X"},  {"cat", "kernel"},     {"name", name},
          {"ts", 1000}, {"dur", microseconds}, {"args", {{"External id", id}, {"stream", 7}}}};
}

Json collective_event(const std::string& name, double in, double out, const std::string& ranks, int size,
                      double microseconds) {
  return {{"ph", "X"},
          {"cat", "kernel"},
          {"name", "ncclDevKernel_Generic"},
          {"ts", 1000},
          {"dur", microseconds},
          {"args",
           {{"Collective name", name},
            {"In msg nelems", in},
            {"Out msg nelems", out},
            {"Group size", size},
            {"dtype", "BFloat16"},
            {"Process Group Ranks", ranks}}}};
}

// One rank out of two nodes with two devices each.
Json trace() {
  Json root = {{"schemaVersion", 1},
               {"hostname", "secret-host"},
               {"deviceProperties", {{{"name", "NVIDIA A100"}, {"numSms", 108}}, {{"name", "NVIDIA A100"}}}},
               {"distributedInfo", {{"rank", 0}, {"world_size", 4}}},
               {"traceEvents", Json::array()}};
  Json& events = root["traceEvents"];
  events.push_back({{"ph", "M"}, {"name", "process_name"}, {"args", {{"name", "python"}}}});
  events.push_back(operator_event("aten::mm", 1, {{64, 32}, {32, 16}}, "c10::BFloat16"));
  // A GEMM may take several kernels, and the trace need not be in order.
  events.push_back(kernel_event("splitK_reduce", 1, 2.5));
  events.push_back(kernel_event("ampere_bf16_s16816gemm", 1, 10.0));
  events.push_back(kernel_event("ampere_bf16_s16816gemm", 2, 20.0));
  events.push_back(operator_event("aten::addmm", 2, {{16}, {64, 32}, {32, 16}}, "c10::BFloat16"));
  events.push_back(operator_event("aten::add", 3, {{64, 32}}, "float"));
  events.push_back(kernel_event("vectorized_elementwise_kernel", 3, 4.0));
  events.push_back(kernel_event("flash_fwd_kernel", 99, 30.0));
  events.push_back(
      {{"ph", "X"}, {"cat", "gpu_memcpy"}, {"name", "Memcpy HtoD"}, {"dur", 1.5}, {"args", Json::object()}});
  for (const double time : {50.0, 40.0, 44.0, 90.0, 300.0}) {
    events.push_back(collective_event("allreduce", 1000, 1000, "[0, 1, 2, 3]", 4, time));
  }
  events.push_back(collective_event("_allgather_base", 500, 1000, "[0, 1]", 2, 20.0));
  events.push_back(collective_event("_reduce_scatter_base", 1000, 500, "[0, 2]", 2, 25.0));
  events.push_back(collective_event("send", 300, 300, "[0, 1]", 2, 7.0));
  events.push_back(collective_event("allreduce", 1000, 1000, "[0, 1, ...]", 64, 60.0));
  events.push_back(
      {{"ph", "X"}, {"cat", "kernel"}, {"name", "ncclKernel_AllReduce"}, {"dur", 9}, {"args", Json::object()}});
  return root;
}

Trace read(const std::string& text, const TraceRequest& request = {}) {
  std::istringstream stream(text);
  return read_trace(stream, "t.json", request);
}

std::string trace_complaint(const std::string& text) {
  try {
    read(text);
  } catch (const ConfigError& error) {
    return error.diagnostic().where + ": " + error.diagnostic().problem;
  }
  return "";
}

std::vector<std::string> names(const Trace& trace) {
  std::vector<std::string> all;
  for (const Sample& sample : trace.measurement.samples) all.push_back(sample.key.text_without_pass());
  return all;
}

TEST(Trace, KernelsBecomeSamplesOfTheirOperators) {
  const Trace found = read(trace().dump());
  EXPECT_EQ(found.measurement.device, "NVIDIA A100");
  EXPECT_EQ(found.measurement.multiprocessors, 108);
  EXPECT_EQ(names(found),
            (std::vector<std::string>{"gemm 64x16x32 bf16", "p2p 600 B, 2 ranks bf16",
                                      "all_reduce 2000 B, 4 ranks on 2 nodes bf16", "all_gather 2000 B, 2 ranks bf16",
                                      "reduce_scatter 2000 B, 2 ranks on 2 nodes bf16"}));
  // 12.5 us in two kernels for the first call, 20 us for the second.
  EXPECT_NEAR(found.measurement.samples[0].seconds.at(0), 12.5e-6, 1e-12);
  EXPECT_NEAR(found.measurement.samples[0].seconds.at(1), 20e-6, 1e-12);
  // The fastest quarter of five, rounded up.
  ASSERT_EQ(found.measurement.samples[2].seconds.size(), 2u);
  EXPECT_NEAR(found.measurement.samples[2].seconds[0], 40e-6, 1e-12);
  EXPECT_EQ(write_measurement(found.measurement).find("secret"), std::string::npos);
}

TEST(Trace, TimeIsSplitByWork) {
  const Trace found = read(trace().dump());
  const auto time = [&found](TraceWork work) { return found.work[static_cast<std::size_t>(work)]; };
  EXPECT_NEAR(time(TraceWork::kProduct).seconds, 32.5e-6, 1e-12);
  EXPECT_NEAR(time(TraceWork::kAttention).seconds, 30e-6, 1e-12)
      << "classified by the kernel's name, because no operator is given";
  EXPECT_NEAR(time(TraceWork::kOther).seconds, 4e-6, 1e-12);
  EXPECT_NEAR(time(TraceWork::kCopy).seconds, 1.5e-6, 1e-12);
  EXPECT_EQ(time(TraceWork::kCommunication).kernels, 10);
  EXPECT_EQ(found.matched.kernels, 4);
  ASSERT_EQ(found.operators.size(), 3u);
  EXPECT_EQ(found.operators[0].name, "aten::addmm");
  ASSERT_EQ(found.notes.size(), 2u);
  EXPECT_NE(found.notes[0].find("1 nccl kernels lack"), std::string::npos);
  EXPECT_NE(found.notes[1].find("1 nccl kernels do not show how many nodes"), std::string::npos);
}

TEST(Trace, NodesFollowFromDevicesPerNode) {
  EXPECT_EQ(names(read(trace().dump(), {4})).at(2), "all_reduce 2000 B, 4 ranks bf16");
  Json unlisted = trace();
  unlisted.erase("deviceProperties");
  EXPECT_EQ(read(unlisted.dump()).measurement.samples.size(), 1u) << "only the GEMM";
}

TEST(Trace, ArraysOfEventsAreTracesToo) {
  EXPECT_EQ(names(read(trace()["traceEvents"].dump())), std::vector<std::string>{"gemm 64x16x32 bf16"});
}

TEST(Trace, ComplaintsTellThePlace) {
  EXPECT_NE(trace_complaint("").find("t.json, byte 1"), std::string::npos);
  EXPECT_NE(trace_complaint(trace().dump().substr(0, 500)).find("t.json, byte 501"), std::string::npos);
  EXPECT_EQ(trace_complaint("{}"), "t.json: contains no traceEvents");
  EXPECT_EQ(trace_complaint("7"), "t.json: 7 is not a trace");
  EXPECT_EQ(trace_complaint(R"({"traceEvents": 3})"), "t.json:/traceEvents: is not a list");
  EXPECT_EQ(trace_complaint(R"({"traceEvents": [{}, 3]})"), "t.json:/traceEvents/1: 3 is not an event");
  EXPECT_EQ(trace_complaint(R"({"traceEvents": []})"), "t.json: contains no device kernels");
  Json broken = trace();
  broken["traceEvents"][3]["dur"] = "ten";
  EXPECT_EQ(trace_complaint(broken.dump()), "t.json:/traceEvents/3: the kernel's \"dur\" is \"ten\"");
  broken["traceEvents"][3].erase("dur");
  EXPECT_EQ(trace_complaint(broken.dump()), "t.json:/traceEvents/3: the kernel's \"dur\" is missing");
  std::string deep(1000, '[');
  EXPECT_NE(trace_complaint(R"({"traceEvents": [{"args": )" + deep).find("nested too deeply"), std::string::npos);
}

// Generates events while it is read: a gigabyte of them must never be in memory.
class EndlessEvents : public std::streambuf {
 public:
  explicit EndlessEvents(int events) : left_(events) {}

 protected:
  int_type underflow() override {
    if (ended_) return traits_type::eof();
    piece_ = first_ ? "{\"traceEvents\": [" : ",";
    first_ = false;
    if (left_-- > 0) {
      piece_ += R"({"ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 2, "args": {"id": 1}})";
    } else {
      piece_ += R"({"ph": "X", "cat": "kernel", "name": "k", "dur": 1}]})";
      ended_ = true;
    }
    setg(piece_.data(), piece_.data(), piece_.data() + piece_.size());
    return traits_type::to_int_type(piece_[0]);
  }

 private:
  std::string piece_;
  int left_;
  bool first_ = true;
  bool ended_ = false;
};

TEST(Trace, EventsPassOneByOne) {
  constexpr int kEvents = 20000;
  EndlessEvents buffer(kEvents);
  std::istream stream(&buffer);
  long events = 0;
  std::size_t largest = 0;
  read_trace_events(stream, "t.json",
                    {[&](const Json& event, const std::string&) {
                       ++events;
                       largest = std::max(largest, event.size());
                     },
                     {}});
  EXPECT_EQ(events, kEvents + 1);
  EXPECT_EQ(largest, 6u);
}

RC_GTEST_PROP(Trace, DamagedTracesAreRefusedOrRead, ()) {
  static const std::string whole = trace().dump();
  try {
    const Trace found = read(damaged(whole));
    RC_ASSERT(found.total().kernels > 0);
    for (const Sample& sample : found.measurement.samples) {
      for (const double second : sample.seconds) RC_ASSERT(second > 0.0);
    }
    // A trace that is read can be written and read again.
    if (!found.measurement.samples.empty()) read_measurement(write_measurement(found.measurement), "m.json");
  } catch (const ConfigError&) {
  }
}

}  // namespace
}  // namespace flopcast
