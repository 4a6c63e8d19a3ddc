// Faults planted in real runs: ranks sleep for the forecast time of their passes, on this machine's threads, and one of
// them, a link or the host is slow. `compare --trace` must name the cause from the file of the run. The result does not
// depend on the machine's speed: a fault makes a step at least half as long again.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/host/files.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "realrun/launch/launch.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "realrun/training/train.hpp"
#include "tests/realrun/lossy_transport.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast::realrun {
namespace {

constexpr Ticks kMillisecond = 1'000'000'000;

// Two nodes of two devices that are slow enough for passes to take milliseconds.
std::string faulty_job(const std::string& layout) {
  return R"({"model": {"layers": 4, "hidden": 64, "heads": 4, "ffn": 256, "vocab": 64, "sequence_length": 64,
                       "tied_embeddings": false},
             "cluster": {"nodes": 2, "devices_per_node": 2, "nics_per_node": 2, "intra_bandwidth": "10GB/s",
                         "nic_bandwidth": "10GB/s", "intra_latency": "20us", "inter_latency": "20us",
                         "device": {"name": "slow", "generation": "ampere", "peak": {"fp32": "4GFLOP/s"},
                                    "memory_capacity": "16GiB", "memory_bandwidth": "20GB/s", "multiprocessors": 4}},
             "layout": {)" +
         layout + R"(}, "training": {"precision": "fp32", "stack": "pytorch-ddp"}})";
}

struct PlantedFault {
  const char* name;
  GapCause cause;
  const char* evidence;                        // part of the evidence
  std::vector<double> passes = {};             // factor on the time of passes, by stage
  Ticks link = 0;                              // delay of a message
  std::function<bool(int, int)> is_slow = {};  // selects pairs of ranks; null: all
  Ticks host = 0;                              // delay before every action
  std::size_t place = 1;                       // lowest accepted rank among the causes
};

// Arrival times of messages: a slow link carries one at a time.
class SlowLinks {
 public:
  explicit SlowLinks(const PlantedFault& fault) : fault_(fault) {}

  void sent(int from, int to, const MessageKey& key) {
    if (fault_.link == 0 || (fault_.is_slow && !fault_.is_slow(from, to))) return;
    const std::lock_guard lock(mutex_);
    Ticks& free = free_[{from, to}];
    free = std::max(free, host_clock()) + fault_.link;
    arrivals_[{from, to, key}] = free;
  }
  /// Arrival of a message that has been sent; empty if the link has its normal speed.
  std::optional<Ticks> arrival(int from, int to, const MessageKey& key) {
    const std::lock_guard lock(mutex_);
    const auto found = arrivals_.find({from, to, key});
    if (found == arrivals_.end()) return std::nullopt;
    const Ticks arrival = found->second;
    arrivals_.erase(found);
    return arrival;
  }

 private:
  const PlantedFault& fault_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, Ticks> free_;
  std::map<std::tuple<int, int, MessageKey>, Ticks> arrivals_;
};

void sleep_until(Ticks time) {
  constexpr Ticks kPerNanosecond = 1000;
  const Ticks left = time - host_clock();
  if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left / kPerNanosecond));
}

class FaultyTransport : public LossyTransport {
 public:
  FaultyTransport(RankTransport& inner, const PlantedFault& fault, SlowLinks& links)
      : LossyTransport(inner, [](const MessageKey&) { return true; }), fault_(fault), links_(links) {}

  void send(int to, const MessageKey& key, const Buffer& buffer) override {
    links_.sent(rank(), to, key);
    LossyTransport::send(to, key, buffer);
  }
  Request receive(int from, const MessageKey& key, const Buffer& into) override {
    return std::make_shared<Delayed>(LossyTransport::receive(from, key, into), from, key);
  }
  void wait(const Request& request) override {
    const auto delayed = std::dynamic_pointer_cast<Delayed>(request);
    if (delayed == nullptr) return LossyTransport::wait(request);
    LossyTransport::wait(delayed->inner);
    delayed->arrived = links_.arrival(delayed->from, rank(), delayed->key);
    if (delayed->arrived) sleep_until(*delayed->arrived);
  }
  void note(const Activity& activity) override {
    LossyTransport::note(activity);
    if (activity.kind == Activity::Kind::kAction) sleep_until(host_clock() + fault_.host);
  }

 private:
  struct Delayed : public Pending {
    Delayed(Request request, int sender, const MessageKey& message)
        : inner(std::move(request)), from(sender), key(message) {}
    std::optional<Mark> arrival() const override { return arrived ? Mark{*arrived, nullptr} : inner->arrival(); }

    Request inner;
    int from = 0;
    MessageKey key;
    std::optional<Ticks> arrived;
  };

  const PlantedFault& fault_;
  SlowLinks& links_;
};

std::vector<Hypothesis> run_and_ask(const std::string& layout, const PlantedFault& fault) {
  const Forecast answer = forecast(job_from(faulty_job(layout).c_str()), no_files);
  RunSettings settings;
  settings.steps = 3;
  settings.emulation.sleeps = true;
  TrainingPlan plan = plan_from_job(answer.step, settings);
  for (std::size_t stage = 0; stage < fault.passes.size(); ++stage) {
    StageTimes& times = plan.sleep[stage];
    for (Ticks* time : {&times.forward, &times.backward, &times.input_gradient, &times.weight_gradient}) {
      *time = static_cast<Ticks>(static_cast<double>(*time) * fault.passes[stage]);
    }
  }
  std::vector<RankResult> results(static_cast<std::size_t>(plan.ranks()));
  SlowLinks links(fault);
  run_threads(plan.ranks(), {}, [&](RankTransport& transport) {
    FaultyTransport faulty(transport, fault, links);
    train_rank(plan, faulty, results[static_cast<std::size_t>(transport.rank())]);
  });
  const std::string file = testing::TempDir() + "/planted_fault.json";
  RunRecord about;
  about.backend = "threads";
  write_file(file, run_file(plan, results, about));
  GapEvidence evidence;
  evidence.traces = read_traced_file(file, 0.0);
  std::remove(file.c_str());
  std::vector<double> steps;
  for (const TracedStep& step : evidence.traces.front().steps) steps.push_back(step.time_s);
  std::sort(steps.begin(), steps.end());
  evidence.measured_s = steps.front();
  EXPECT_EQ(evidence.traces.size(), static_cast<std::size_t>(plan.pipeline_ranks()));
  EXPECT_EQ(steps.size(), 2u) << "the first is a warm-up step";
  EXPECT_GT(evidence.measured_s, answer.result.iteration.time_s);
  return explain_gap(answer, evidence, no_files);
}

TEST(PlantedFaults, OfRealRunsAreRankedFirst) {
  const char* const pipeline = R"("pp": 4, "global_batch_size": 4)";
  const char* const flushed = R"("pp": 4, "global_batch_size": 4, "schedule": "gpipe")";
  const char* const replicas = R"("dp": 4, "global_batch_size": 16)";
  const auto between_nodes = [](int from, int to) { return (from < 2) != (to < 2); };
  const auto first_link = [](int from, int to) { return std::min(from, to) == 0; };
  const std::vector<std::pair<const char*, PlantedFault>> faults = {
      {pipeline, {"a rank at half its speed", GapCause::kStraggler, "rank 2 computes", {1, 1, 2, 1}}},
      {flushed, {"the first rank at half its speed", GapCause::kStraggler, "rank 0 computes", {2, 1, 1, 1}}},
      {pipeline, {"a host at half its speed", GapCause::kStraggler, "all of node 1, compute", {1, 1, 2, 2}}},
      {pipeline, {"all ranks at two thirds", GapCause::kClocks, "kernels run for", {1.5, 1.5, 1.5, 1.5}}},
      {pipeline,
       {"slow links between hosts", GapCause::kSlowLink, "communicates for", {}, 100 * kMillisecond, between_nodes}},
      {flushed,
       {"one slow link in a host", GapCause::kSlowLink, "communicates for", {}, 120 * kMillisecond, first_link}},
      {pipeline, {"all links slow", GapCause::kSlowLink, "communicates for", {}, 60 * kMillisecond}},
      // Threads copy messages when they receive them: whether they or the link was late is undetermined.
      {pipeline, {"hosts that are late", GapCause::kHostBound, "launched late", {}, 0, {}, 60 * kMillisecond, 2}},
      {replicas, {"late hosts of replicas", GapCause::kHostBound, "launched late", {}, 0, {}, 60 * kMillisecond}}};
  int found = 0;
  for (const auto& [layout, fault] : faults) {
    // Another program may delay a rank more than the fault does, but not three times.
    constexpr int kTries = 3;
    for (int attempt = 1;; ++attempt) {
      const std::vector<Hypothesis> why = run_and_ask(layout, fault);
      const auto place = std::find_if(why.begin(), why.end(), [&fault](const Hypothesis& one) {
        return one.cause == fault.cause && one.evidence.find(fault.evidence) != std::string::npos;
      });
      const bool named = place - why.begin() < static_cast<std::ptrdiff_t>(fault.place);
      if (!named && attempt < kTries) continue;
      found += place == why.begin() ? 1 : 0;
      EXPECT_TRUE(named) << fault.name << ": " << name_of(why.front().cause) << ", " << why.front().evidence;
      break;
    }
  }
  std::cout << found << " of " << faults.size() << " faults of real runs ranked first\n";
}

}  // namespace
}  // namespace flopcast::realrun
