// Flows on shared links: this library compared with SimGrid (Debian's libsimgrid-dev, if it was found) on the same
// programs in one run, with processor time to build and to simulate each program, and the ratio. SimGrid uses its plain
// max-min model (CM02, no factors, no latency, lazy updates) and one process per program, because it has one engine per
// process; a program that takes longer than a minute is stopped. Then whole steps of jobs with cluster.network, for
// this library alone, because no other program simulates them.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/job/read_job.hpp"
#include "sim/flow/flow_program.hpp"
#include "sim/forecast/forecast.hpp"

#ifdef FLOPCAST_BENCH_SIMGRID
#include <simgrid/s4u.hpp>
#endif

namespace flopcast {
namespace {

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Flow {
  int from = 0;  // a GPU; for work, the one that does it
  int to = 0;
  double bytes = 0.0;  // for work, seconds
  double start = 0.0;
  bool is_work = false;
  std::vector<std::uint32_t> after;
};

// A program on a rail-optimised fabric: nodes of 8 GPUs with one card each, leaf i of a segment for card i, eight
// planes above.
struct Program {
  int nodes = 0;
  int segment = 16;
  double oversubscription = 1.0;
  bool hashed = false;
  std::vector<Flow> flows;

  std::uint32_t add(Flow flow) {
    flows.push_back(std::move(flow));
    return static_cast<std::uint32_t>(flows.size() - 1);
  }
  int segments() const { return (nodes + segment - 1) / segment; }
  std::vector<double> capacities() const {
    const auto gpus = static_cast<std::size_t>(nodes) * 8;
    std::vector<double> links(2 * gpus, 450e9);
    links.insert(links.end(), 2 * gpus, 50e9);
    links.insert(links.end(), static_cast<std::size_t>(segments()) * 8 * 8 * 2, segment * 50e9 / 8 / oversubscription);
    return links;
  }
  std::vector<std::uint32_t> route(int from, int to) const {
    const int gpus = nodes * 8;
    std::vector<int> way;
    int sender = from;
    if (from / 8 == to / 8) {
      way = {from, gpus + to};
    } else {
      if (from % 8 != to % 8) {
        sender = from / 8 * 8 + to % 8;
        way = {from, gpus + sender};
      }
      way.push_back(2 * gpus + sender);
      const int leaf = from / 8 / segment * 8 + to % 8;
      const int last_leaf = to / 8 / segment * 8 + to % 8;
      if (leaf != last_leaf) {
        const std::uint64_t mixed =
            (static_cast<std::uint64_t>(from) << 32U ^ static_cast<std::uint64_t>(to)) * 0x9e3779b97f4a7c15ULL;
        const int plane = hashed ? static_cast<int>(mixed >> 61U) : to / 8 % 8;
        way.push_back(4 * gpus + leaf * 8 + plane);
        way.push_back(4 * gpus + segments() * 64 + last_leaf * 8 + plane);
      }
      way.push_back(3 * gpus + to);
    }
    return {way.begin(), way.end()};
  }
};

Program random_program(int flows, bool distinct, double span) {
  Program program{std::max(8, flows / 16), 16, 2.0, true, {}};
  std::mt19937_64 draw(1);
  const auto gpus = static_cast<std::uint64_t>(program.nodes) * 8;
  for (int flow = 0; flow < flows; ++flow) {
    const auto from = static_cast<int>(draw() % gpus);
    auto to = static_cast<int>(draw() % (gpus - 1));
    to += to >= from ? 1 : 0;
    const double bytes = distinct ? 1e8 + static_cast<double>(draw() % 1'900'000'000ULL) : 1e9;
    const double start = span * static_cast<double>(draw() % 4096) / 4096.0;
    program.add({from, to, bytes, start, false, {}});
  }
  return program;
}

Program exchange(int nodes) {
  Program program{nodes, 16, 2.0, false, {}};
  for (int first = 0; first + 8 <= nodes; first += 8) {
    for (int from = first * 8; from < (first + 8) * 8; ++from) {
      for (int to = first * 8; to < (first + 8) * 8; ++to) {
        if (from != to) program.add({from, to, 8e6, 0.0, false, {}});
      }
    }
  }
  return program;
}

Program rings_beside_sends(int nodes, bool hashed) {
  Program program{nodes, 16, 4.0, hashed, {}};
  std::mt19937_64 draw(1);
  for (int rail = 0; rail < 8; ++rail) {
    for (int node = 0; node < nodes; ++node) {
      program.add({node * 8 + rail, (node + 1) % nodes * 8 + rail, 2e9, 0.0, false, {}});
    }
  }
  for (int round = 0; round < 4; ++round) {
    for (int node = 0; node < nodes; ++node) {
      for (int rail = 0; rail < 8; ++rail) {
        const double more = hashed ? static_cast<double>(draw() % 50'000'000ULL) : 0.0;
        program.add({node * 8 + rail, (node + nodes / 2) % nodes * 8 + rail, 1e8 + more, round / 128.0, false, {}});
      }
    }
  }
  return program;
}

// A step of 1F1B with 16 stages, 32 microbatches, and four gradient buckets around rings, edge by edge.
Program step_1f1b(int gpus) {
  constexpr int kStages = 16;
  constexpr int kMicrobatches = 32;
  const int replicas = gpus / 128;
  Program program{kStages * replicas, 64, 2.0, false, {}};
  const auto gpu = [&](int stage, int replica, int tensor) { return (stage * replicas + replica) * 8 + tensor; };
  std::vector<std::uint32_t> last(static_cast<std::size_t>(gpus));
  constexpr std::uint32_t kNone = 0xffff'ffffU;
  constexpr double kSent = 2 * 4096.0 * 12288 / 8;
  for (int lane = 0; lane < replicas * 8; ++lane) {
    const int replica = lane / 8;
    const int tensor = lane % 8;
    using Grid = std::array<std::array<std::uint32_t, kMicrobatches>, kStages>;
    Grid forward;
    Grid backward;
    for (auto& row : forward) row.fill(kNone);
    for (auto& row : backward) row.fill(kNone);
    std::array<int, kStages> f{};
    std::array<int, kStages> b{};
    std::array<std::uint32_t, kStages> before;
    before.fill(kNone);
    const auto work = [&](int stage, double time, std::uint32_t awaited) {
      Flow flow{gpu(stage, replica, tensor), 0, time, 0.0, true, {}};
      if (before[static_cast<std::size_t>(stage)] != kNone)
        flow.after.push_back(before[static_cast<std::size_t>(stage)]);
      if (awaited != kNone) flow.after.push_back(awaited);
      return before[static_cast<std::size_t>(stage)] = program.add(std::move(flow));
    };
    const auto send = [&](int from, int to, std::uint32_t done) {
      return program.add({gpu(from, replica, tensor), gpu(to, replica, tensor), kSent, 0.0, false, {done}});
    };
    for (int done = 0; done < 2 * kStages * kMicrobatches;) {
      for (int stage = 0; stage < kStages; ++stage) {
        const auto s = static_cast<std::size_t>(stage);
        for (;;) {
          const auto fi = static_cast<std::size_t>(f[s]);
          const auto bi = static_cast<std::size_t>(b[s]);
          if (f[s] < kMicrobatches && b[s] + kStages - stage > f[s]) {
            if (stage > 0 && forward[s - 1][fi] == kNone) break;
            const std::uint32_t piece = work(stage, 0.010, stage > 0 ? forward[s - 1][fi] : kNone);
            forward[s][fi] = stage + 1 < kStages ? send(stage, stage + 1, piece) : piece;
            ++f[s];
          } else if (b[s] < kMicrobatches) {
            if (stage + 1 < kStages ? backward[s + 1][bi] == kNone : b[s] >= f[s]) break;
            const std::uint32_t piece = work(stage, 0.020, stage + 1 < kStages ? backward[s + 1][bi] : kNone);
            backward[s][bi] = stage > 0 ? send(stage, stage - 1, piece) : piece;
            ++b[s];
          } else {
            break;
          }
          ++done;
        }
      }
    }
    for (int stage = 0; stage < kStages; ++stage) {
      last[static_cast<std::size_t>(gpu(stage, replica, tensor))] = before[static_cast<std::size_t>(stage)];
    }
  }
  if (replicas < 2) return program;
  const double bytes = 2.0 * (replicas - 1) / replicas * 4 * 175e9 / 8 / kStages / 4;
  for (int stage = 0; stage < kStages; ++stage) {
    for (int tensor = 0; tensor < 8; ++tensor) {
      std::vector<std::uint32_t> previous;
      for (int bucket = 0; bucket < 4; ++bucket) {
        std::vector<std::uint32_t> now;
        for (int replica = 0; replica < replicas; ++replica) {
          const int from = gpu(stage, replica, tensor);
          const int to = gpu(stage, (replica + 1) % replicas, tensor);
          Flow flow{from, to, bytes, 0.0, false, {}};
          if (bucket == 0) {
            flow.after = {last[static_cast<std::size_t>(from)], last[static_cast<std::size_t>(to)]};
          } else {
            flow.after = {previous[static_cast<std::size_t>(replica)]};
          }
          now.push_back(program.add(std::move(flow)));
        }
        previous = std::move(now);
      }
    }
  }
  return program;
}

struct Measured {
  double setup_s = 0.0;
  double run_s = 0.0;
  double makespan_s = 0.0;
};

Measured play_here(const Program& program) {
  Measured measured;
  const double begin = processor_seconds();
  FlowProgram flows;
  for (const double capacity : program.capacities()) flows.add_link(capacity);
  for (const Flow& flow : program.flows) {
    if (flow.is_work) {
      flows.add_delay(flow.bytes, flow.start);
    } else {
      flows.add_flow(flow.bytes, flow.start);
      for (const std::uint32_t link : program.route(flow.from, flow.to)) flows.add_use(link);
    }
    for (const std::uint32_t before : flow.after) flows.add_predecessor(before);
  }
  const double built = processor_seconds();
  const std::vector<double> ends = finish_times(flows);
  measured.setup_s = built - begin;
  measured.run_s = processor_seconds() - built;
  measured.makespan_s = *std::max_element(ends.begin(), ends.end());
  return measured;
}

#ifdef FLOPCAST_BENCH_SIMGRID
namespace s4u = simgrid::s4u;

Measured play_in_simgrid(const Program& program) {
  Measured measured;
  const double begin = processor_seconds();
  std::string name = "bench";
  std::string quiet = "--log=root.thres:critical";
  std::array<char*, 3> words = {name.data(), quiet.data(), nullptr};
  int count = 2;
  s4u::Engine engine(&count, words.data());
  for (const char* setting : {"network/model:CM02", "network/crosstraffic:0", "network/bandwidth-factor:1",
                              "network/latency-factor:1", "network/weight-S:0", "network/optim:Lazy"}) {
    s4u::Engine::set_config(setting);
  }
  auto* zone = s4u::create_full_zone("fabric");
  std::vector<s4u::Host*> hosts;
  for (int gpu = 0; gpu < program.nodes * 8; ++gpu)
    hosts.push_back(zone->create_host("gpu" + std::to_string(gpu), 1.0));
  std::vector<s4u::Link*> links;
  for (const double capacity : program.capacities()) {
    auto* link = zone->create_link("link" + std::to_string(links.size()), capacity);
    link->set_latency(0.0)->seal();
    links.push_back(link);
  }
  std::map<std::pair<int, int>, bool> routed;
  for (const Flow& flow : program.flows) {
    if (flow.is_work || !routed.emplace(std::pair(flow.from, flow.to), true).second) continue;
    std::vector<s4u::LinkInRoute> way;
    for (const std::uint32_t link : program.route(flow.from, flow.to)) way.emplace_back(links[link]);
    zone->add_route(hosts[static_cast<std::size_t>(flow.from)]->get_netpoint(),
                    hosts[static_cast<std::size_t>(flow.to)]->get_netpoint(), nullptr, nullptr, way, false);
  }
  zone->seal();
  // An activity by its kind, which decides how successors are added.
  struct Either {
    s4u::ExecPtr work;
    s4u::CommPtr message;
    void lead_to(const s4u::ActivityPtr& next) const {
      if (work) {
        work->add_successor(next);
      } else {
        message->add_successor(next);
      }
    }
    void start() const {
      if (work) {
        work->vetoable_start();
      } else {
        message->vetoable_start();
      }
    }
    s4u::ActivityPtr any() const { return work ? s4u::ActivityPtr(work) : s4u::ActivityPtr(message); }
  };
  std::vector<Either> activities;
  std::vector<std::pair<double, std::size_t>> late;
  for (const Flow& flow : program.flows) {
    auto* from = hosts[static_cast<std::size_t>(flow.from)];
    if (flow.is_work) {
      auto work = s4u::Exec::init();
      work->set_flops_amount(flow.bytes)->set_host(from);
      activities.push_back({work, nullptr});
    } else {
      auto message = s4u::Comm::sendto_init(from, hosts[static_cast<std::size_t>(flow.to)]);
      message->set_payload_size(static_cast<std::uint64_t>(flow.bytes));
      activities.push_back({nullptr, message});
    }
    for (const std::uint32_t before : flow.after) activities[before].lead_to(activities.back().any());
    if (flow.after.empty() && flow.start > 0.0) late.emplace_back(flow.start, activities.size() - 1);
  }
  std::sort(late.begin(), late.end());
  for (std::size_t index = 0; index < activities.size(); ++index) {
    const Flow& flow = program.flows[index];
    if (flow.after.empty() && flow.start <= 0.0) activities[index].start();
  }
  for (std::size_t index = 0; index < activities.size(); ++index) {
    if (!program.flows[index].after.empty()) activities[index].start();
  }
  if (!late.empty()) {
    s4u::Actor::create("starter", hosts.front(), [&] {
      for (const auto& [start, index] : late) {
        s4u::this_actor::sleep_until(start);
        activities[index].start();
      }
    });
  }
  const double built = processor_seconds();
  engine.run();
  measured.setup_s = built - begin;
  measured.run_s = processor_seconds() - built;
  measured.makespan_s = s4u::Engine::get_clock();
  return measured;
}

// Absent if it took too long or crashed.
std::optional<Measured> beside(const Program& program, unsigned most_seconds) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return std::nullopt;
  std::fflush(stdout);  // otherwise the child would print it too
  const pid_t child = fork();
  if (child == 0) {
    alarm(most_seconds);
    const Measured measured = play_in_simgrid(program);
    const bool written = write(ends[1], &measured, sizeof measured) == sizeof measured;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  Measured measured;
  const bool whole = read(ends[0], &measured, sizeof measured) == sizeof measured;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return whole ? std::optional(measured) : std::nullopt;
}
#endif

void compare(const char* name, const Program& program, unsigned most_seconds) {
  const Measured here = play_here(program);
  std::printf("%-44s %8zu  %8.4f + %8.4f", name, program.flows.size(), here.setup_s, here.run_s);
#ifdef FLOPCAST_BENCH_SIMGRID
  if (const auto there = beside(program, most_seconds)) {
    const double difference = std::abs(there->makespan_s - here.makespan_s) / here.makespan_s;
    std::printf("  %8.4f + %8.4f  %9.1f %9.1f  %.0e", there->setup_s, there->run_s, there->run_s / here.run_s,
                (there->setup_s + there->run_s) / (here.setup_s + here.run_s), difference);
  } else {
    std::printf("  stopped after %u s of clock: more than %.0f times", most_seconds, most_seconds / here.run_s);
  }
#else
  static_cast<void>(most_seconds);
#endif
  std::printf("\n");
  std::fflush(stdout);
}

void time_job(const char* name, const std::string& text) {
  const auto no_files = [](const std::string& path) -> std::string { throw std::runtime_error(path); };
  const double begin = processor_seconds();
  const Job job = read_job(nlohmann::json::parse(text), {});
  const Forecast answer = forecast(job, no_files);
  const double seconds = processor_seconds() - begin;
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::printf("%-60s %7.3f s  %4d classes  %5ld MiB  step %.4f s\n", name, seconds,
              answer.result.network->replica_classes, used.ru_maxrss / 1024, answer.result.iteration.time_s);
  std::fflush(stdout);
}

std::string job_of(int nodes, const char* network) {
  return R"({"model": "llama3.1-405b", "cluster": {"name": "dgx-h100", "nodes": )" + std::to_string(nodes) +
         R"(, "network": )" + network + R"(}, "layout": {"tp": 8, "pp": 16, "recompute": "selective",
      "global_batch_size": )" +
         std::to_string(nodes * 8 / 128 * 32) + R"(}, "training": {"stack": "megatron-core"}})";
}

std::string expert_job(int nodes, const char* network) {
  return R"({"model": "qwen3-30b-a3b", "cluster": {"name": "dgx-h100", "nodes": )" + std::to_string(nodes) +
         R"(, "network": )" + network + R"(}, "layout": {"ep": 64, "global_batch_size": )" +
         std::to_string(nodes * 8 * 8) + R"(}, "training": {"stack": "megatron-core"}})";
}

}  // namespace
}  // namespace flopcast

int main() {
  using namespace flopcast;
  std::printf(
      "processor seconds, set-up + run; ratios SimGrid over here: run, set-up and run; difference of makespans\n");
  std::printf("%-44s %8s  %19s  %19s  %9s %9s\n", "program", "flows", "here", "SimGrid", "run", "all");
  constexpr unsigned kMinute = 60;
  compare("random, all at once, 1,000", random_program(1000, true, 0.0), kMinute);
  compare("random, 2,000", random_program(2000, true, 0.0), kMinute);
  compare("random, 4,000", random_program(4000, true, 0.0), kMinute);
  compare("equal sizes, 4,000", random_program(4000, false, 0.0), kMinute);
  compare("random, spread in time", random_program(4000, true, 8.0), kMinute);
  compare("MoE exchange, 128 GPUs, all pairs", exchange(16), kMinute);
  compare("rings + p2p, 1,024 GPUs, d-mod-k", rings_beside_sends(128, false), kMinute);
  compare("the same, hashed, unequal sends", rings_beside_sends(128, true), kMinute);
  compare("1F1B step, 128 GPUs", step_1f1b(128), kMinute);
  compare("1F1B step, 256 GPUs", step_1f1b(256), kMinute);
  compare("1F1B step, 512 GPUs", step_1f1b(512), kMinute);
  std::printf("\njobs, read, priced and played\n");
  const char* const kEven = R"({"topology": "rail", "tiers": [{"nodes": 64}]})";
  const char* const kScarce = R"({"topology": "rail", "tiers": [{"nodes": 64, "oversubscription": 2}]})";
  const char* const kHashed =
      R"({"topology": "rail", "routing": "hash", "tiers": [{"nodes": 64, "oversubscription": 2}]})";
  time_job("16,384 GPUs, pp16 dp128 tp8 m32", job_of(2048, kEven));
  time_job("the same, uplinks 2:1", job_of(2048, kScarce));
  time_job("the same, 2:1, every path hashed", job_of(2048, kHashed));
  time_job("98,304 GPUs, the same with dp 768, 2:1", job_of(12288, kScarce));
  time_job("16,384 GPUs MoE, EP 64", expert_job(2048, kScarce));
  time_job("the same, hashed", expert_job(2048, kHashed));
  return 0;
}
