// Flows on shared links, compared with the reference's end times (SimGrid, exact rationals), with closed forms, and
// with a slow independent algorithm on random programs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "sim/files/flow_case.hpp"
#include "sim/flow/flow_program.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

double worst_of(const std::vector<double>& got, const std::vector<double>& wanted) {
  double worst = 0.0;
  for (std::size_t flow = 0; flow < got.size(); ++flow) {
    worst = std::max(worst, std::abs(got[flow] - wanted[flow]) / std::max(wanted[flow], 1e-12));
  }
  return worst;
}

class FlowReference : public testing::TestWithParam<const char*> {};

TEST_P(FlowReference, EndsAreThose) {
  const auto reference = reference_folder();
  if (!reference) GTEST_SKIP() << "no reference folder: flows were not compared";
  const Json cases = Json::parse(read_text(*reference / "network" / GetParam())).at("cases");
  EXPECT_GE(cases.size(), 11u);
  for (const Json& each : cases) {
    const FlowCase flows = read_flow_case(each.dump(), GetParam());
    const std::vector<double> wanted = each.at("finish").get<std::vector<double>>();
    EXPECT_LT(worst_of(finish_times(flows.program), wanted), 1e-9) << each.at("name");
    EXPECT_LT(worst_of(finish_times_one_by_one(flows.program), wanted), 1e-9) << each.at("name");
  }
}
INSTANTIATE_TEST_SUITE_P(Network, FlowReference, testing::Values("flows.json", "coupled.json"));

// Routes computed here, for references without hashed routes whose links all match their topology.
TEST(FlowRoutes, OfATopologyGiveTheSameEnds) {
  const auto reference = reference_folder();
  if (!reference) GTEST_SKIP() << "no reference folder: routes were not compared";
  std::map<std::string, int> compared;
  const Json reference_cases = Json::parse(read_text(*reference / "network" / "flows.json")).at("cases");
  for (const Json& given : reference_cases) {
    Json each = given;
    Json& topology = each.at("topology");
    const std::string kind = topology.at("kind");
    const bool other_links = topology.contains("links_vary") || topology.value("routing", "") == "hash";
    if (kind == "links" || other_links) continue;
    for (const char* told : {"levels", "parallel", "oversubscription"}) topology.erase(told);
    each.erase("links");
    std::vector<std::size_t> hops;
    for (Json& flow : each.at("flows")) {
      hops.push_back(flow.at("links").size());
      flow.erase("links");
    }
    const FlowCase flows = read_flow_case(each.dump(), "flows.json");
    bool as_long = true;
    for (FlowId flow = 0; flow < hops.size(); ++flow) {
      as_long = as_long && flows.program.uses_of(flow).size() == hops[flow];
    }
    // SimGrid omits a group's black links on routes between chassis of the same group.
    EXPECT_TRUE(as_long || topology.value("chassis", 1) > 1) << each.at("name");
    // On a ring of even size, both directions may be equally long; SimGrid uses the upward one only from some hosts.
    const std::vector<int> sizes = topology.value("dims", std::vector<int>());
    const bool has_ties = std::any_of(sizes.begin(), sizes.end(), [](int size) { return size > 2 && size % 2 == 0; });
    if (has_ties || !as_long) continue;
    EXPECT_LT(worst_of(finish_times(flows.program), each.at("finish").get<std::vector<double>>()), 1e-9)
        << each.at("name");
    ++compared[kind];
  }
  EXPECT_EQ(compared.size(), 7u);
}

// Three flows of 2, 3 and 4 GB into a card of 10 GB/s: a third each, then half each, then all.
TEST(Flows, ShareWhatIsThere) {
  FlowProgram program;
  const LinkId card = program.add_link(10e9);
  for (const double bytes : {2e9, 3e9, 4e9}) {
    program.add_flow(bytes, 0.0);
    program.add_use(card);
  }
  EXPECT_LT(worst_of(finish_times(program), {0.6, 0.8, 0.9}), 1e-12);
}

// A capped flow leaves the remaining bandwidth to the other: 8 GB at 7.5 GB/s until the 2 GB at 2.5 are finished, then
// at 10.
TEST(Flows, ACapLeavesTheRestToOthers) {
  FlowProgram program;
  const LinkId card = program.add_link(10e9);
  program.add_flow(8e9, 0.0);
  program.add_use(card);
  program.add_flow(2e9, 0.0, 2.5e9);
  program.add_use(card);
  EXPECT_LT(worst_of(finish_times(program), {0.8 + 2e9 / 10e9, 0.8}), 1e-12);
}

TEST(Flows, WeightsCountAsSoManyFlows) {
  FlowProgram program;
  const LinkId card = program.add_link(12e9);
  program.add_flow(1e9, 0.0);
  program.add_use(card, 3.0);
  program.add_flow(1e9, 0.0);
  program.add_use(card, 2.0);
  program.add_use(card);
  EXPECT_LT(worst_of(finish_times(program), {0.5, 0.5}), 1e-12);
}

// A flow starts when its predecessors have ended, whatever its start time; flows without duration end at once.
TEST(Flows, WaitForOthers) {
  FlowProgram program;
  const LinkId card = program.add_link(10e9);
  const FlowId delay = program.add_delay(0.25, 1.0);
  const FlowId nothing = program.add_flow(0.0, 7.0);
  program.add_use(card);
  program.add_predecessor(delay);
  const FlowId last = program.add_flow(5e9, 7.0);
  program.add_use(card);
  program.add_predecessor(nothing);
  const std::vector<double> finish = finish_times(program);
  EXPECT_DOUBLE_EQ(finish[delay], 1.25);
  EXPECT_DOUBLE_EQ(finish[nothing], 1.25);
  EXPECT_DOUBLE_EQ(finish[last], 1.75);
}

TEST(Flows, OfOneKindHaveOneClass) {
  constexpr int kHosts = 64;
  FlowProgram ring;
  for (int host = 0; host < 2 * kHosts; ++host) ring.add_link(50e9);
  for (int host = 0; host < kHosts; ++host) {
    ring.add_flow(1e9, 0.0);
    ring.add_use(static_cast<LinkId>(host));
    ring.add_use(static_cast<LinkId>(kHosts + (host + 1) % kHosts));
  }
  const std::optional<FlowClasses> classes = refine(ring);
  ASSERT_TRUE(classes);
  EXPECT_EQ(classes->program.flows(), 1u);
  EXPECT_LT(worst_of(finish_times(ring), std::vector<double>(kHosts, 0.02)), 1e-12);
}

// Max-min rates recomputed from scratch at every event, in floating-point seconds: slow, and independent of the
// library.
class SlowFiller {
 public:
  explicit SlowFiller(const FlowProgram& program) : program_(program) {}

  std::vector<double> finish() {
    const std::size_t count = program_.flows();
    std::vector<double> left(count);
    std::vector<double> end(count, -1.0);
    for (FlowId flow = 0; flow < count; ++flow) left[flow] = program_.bytes(flow);
    double now = 0.0;
    for (std::size_t ended = 0; ended < count;) {
      std::vector<FlowId> active;
      double next = 1e300;
      for (FlowId flow = 0; flow < count; ++flow) {
        const double start = start_of(flow, end);
        if (end[flow] >= 0 || start < 0) continue;
        if (start <= now * (1 + 1e-13)) {
          active.push_back(flow);
        } else {
          next = std::min(next, start);
        }
      }
      const std::vector<double> rates = fill(active);
      for (std::size_t index = 0; index < active.size(); ++index) {
        next = std::min(next, now + left[active[index]] / rates[index]);
      }
      for (std::size_t index = 0; index < active.size(); ++index) {
        const FlowId flow = active[index];
        const bool ends = now + left[flow] / rates[index] <= next * (1 + 1e-13);
        left[flow] -= rates[index] * (next - now);
        if (!ends) continue;
        end[flow] = next;
        ++ended;
      }
      now = next;
    }
    return end;
  }

 private:
  // Negative while it waits.
  double start_of(FlowId flow, const std::vector<double>& end) const {
    if (program_.predecessors_of(flow).empty()) return program_.start(flow);
    double start = 0.0;
    for (const FlowId before : program_.predecessors_of(flow)) {
      if (end[before] < 0) return -1.0;
      start = std::max(start, end[before]);
    }
    return start;
  }

  std::vector<double> fill(const std::vector<FlowId>& active) const {
    std::vector<double> rate(active.size(), -1.0);
    for (std::size_t frozen = 0; frozen < active.size();) {
      std::vector<double> rest(program_.links());
      std::vector<double> weight(program_.links(), 0.0);
      for (LinkId link = 0; link < rest.size(); ++link) rest[link] = program_.capacity(link);
      for (std::size_t index = 0; index < active.size(); ++index) {
        for (const LinkUse& use : program_.uses_of(active[index])) {
          if (rate[index] < 0) weight[use.link] += use.weight;
          if (rate[index] >= 0) rest[use.link] -= use.weight * rate[index];
        }
      }
      std::vector<double> level(active.size(), 1e300);
      for (std::size_t index = 0; index < active.size(); ++index) {
        if (rate[index] >= 0) continue;
        level[index] = program_.cap(active[index]);
        for (const LinkUse& use : program_.uses_of(active[index])) {
          level[index] = std::min(level[index], rest[use.link] / weight[use.link]);
        }
      }
      const double least = *std::min_element(level.begin(), level.end());
      for (std::size_t index = 0; index < active.size(); ++index) {
        if (rate[index] >= 0 || level[index] > least * (1 + 1e-12)) continue;
        rate[index] = level[index];
        ++frozen;
      }
    }
    return rate;
  }

  const FlowProgram& program_;
};

FlowProgram random_program(std::mt19937_64& random) {
  const auto below = [&random](std::uint64_t bound) { return random() % bound; };
  const bool alike = below(2) == 0;
  FlowProgram program;
  const std::uint64_t links = 2 + below(20);
  const std::uint64_t flows = 1 + below(60);
  for (std::uint64_t link = 0; link < links; ++link) {
    program.add_link(alike ? 10e9 : 1e9 * static_cast<double>(1 + below(50)));
  }
  for (std::uint64_t flow = 0; flow < flows; ++flow) {
    const double start = below(3) == 0 ? static_cast<double>(below(8)) / 16.0 : 0.0;
    const std::uint64_t uses = below(5);
    if (uses == 0) {
      program.add_delay(static_cast<double>(1 + below(8)) / 32.0, start);
    } else {
      const double bytes =
          alike ? 1e9 * static_cast<double>(1 + below(2)) : 1e8 + static_cast<double>(below(5000000000));
      const double cap = below(4) == 0 ? 1e9 * static_cast<double>(1 + below(6)) : FlowProgram::kNoCap;
      program.add_flow(bytes, start, cap);
      const std::uint64_t first = below(links);
      for (std::uint64_t use = 0; use < std::min(uses, links); ++use) {
        const double weight = alike ? 1.0 : static_cast<double>(1 + below(3)) * (below(5) == 0 ? 0.001 : 1.0);
        program.add_use(static_cast<LinkId>((first + use) % links), weight);
      }
    }
    if (flow > 0 && below(3) == 0) program.add_predecessor(static_cast<FlowId>(below(flow)));
  }
  return program;
}

TEST(Flows, ASlowFillerAgreesOnRandomPrograms) {
  constexpr int kPrograms = 1500;
  std::mt19937_64 random(29);
  for (int each = 0; each < kPrograms; ++each) {
    const FlowProgram program = random_program(random);
    const std::vector<double> wanted = SlowFiller(program).finish();
    ASSERT_LT(worst_of(finish_times_one_by_one(program), wanted), 1e-9) << "program " << each;
    ASSERT_LT(worst_of(finish_times(program), wanted), 1e-9) << "program " << each;
  }
}

// Several copies of the same program, side by side and interleaved: flows form classes of at least the number of
// copies.
TEST(Flows, CopiesOfAProgramEndAsTheOne) {
  std::mt19937_64 random(30);
  for (int each = 0; each < 200; ++each) {
    const FlowProgram one = random_program(random);
    constexpr int kCopies = 5;
    FlowProgram copies;
    std::vector<LinkId> place(one.links());
    std::iota(place.begin(), place.end(), LinkId{0});
    std::shuffle(place.begin(), place.end(), random);
    std::vector<LinkId> at(one.links());
    for (LinkId index = 0; index < place.size(); ++index) at[place[index]] = index;
    for (int copy = 0; copy < kCopies; ++copy) {
      for (const LinkId link : place) copies.add_link(one.capacity(link));
    }
    for (FlowId flow = 0; flow < one.flows(); ++flow) {
      for (unsigned copy = 0; copy < kCopies; ++copy) {
        copies.add_flow(one.bytes(flow), one.start(flow), one.cap(flow));
        for (const LinkUse& use : one.uses_of(flow)) {
          copies.add_use(static_cast<LinkId>(copy * one.links()) + at[use.link], use.weight);
        }
        for (const FlowId before : one.predecessors_of(flow)) copies.add_predecessor(before * kCopies + copy);
      }
    }
    const std::optional<FlowClasses> classes = refine(copies);
    ASSERT_TRUE(classes);
    EXPECT_LE(classes->program.flows(), one.flows());
    const std::vector<double> wanted = finish_times_one_by_one(one);
    const std::vector<double> got = finish_times(copies);
    for (FlowId flow = 0; flow < got.size(); ++flow) ASSERT_NEAR(got[flow], wanted[flow / kCopies], 1e-9);
  }
}

struct Refused {
  const char* text;
  const char* field;
};

TEST(FlowCases, SayWhatIsWrongAndWhere) {
  const std::string links = R"({"links": [{"name": "a", "bandwidth": 1e9}], "flows": [)";
  for (const Refused& each :
       std::vector<Refused>{{R"({"bytes": 1, "links": [1]}]})", "flows[0].links"},
                            {R"({"bytes": 1, "links": [0], "rate": 0}]})", "flows[0].rate"},
                            {R"({"bytes": -1, "links": [0]}]})", "flows[0].bytes"},
                            {R"({"links": [0]}]})", "flows[0].bytes"},
                            {R"({"bytes": 1, "links": []}]})", "flows[0].links"},
                            {R"({"bytes": 1, "links": [0], "weights": [1, 2]}]})", "flows[0].weights"},
                            {R"({"bytes": 1, "links": [0], "weights": [0]}]})", "flows[0].weights"},
                            {R"({"bytes": 1, "links": [0], "after": [0]}]})", "flows[0].after"},
                            {R"({"bytes": 1, "links": [0], "after": [2]}]})", "flows[0].after"},
                            {R"({"bytes": 1, "links": [0], "speed": 2}]})", "flows[0].speed"},
                            {R"({"bytes": 1, "links": [0]}], "wires": 1})", "wires"}}) {
    try {
      read_flow_case(links + each.text, "case.json");
      FAIL() << each.text;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.diagnostic().field, each.field) << error.what();
      EXPECT_NE(std::string(error.what()).find("case.json"), std::string::npos) << error.what();
    }
  }
  const std::string topology = R"({"flows": [{"src": 0, "dst": 1, "bytes": 1}], "topology": )";
  for (const Refused& each : std::vector<Refused>{
           {R"({"kind": "ring"}})", "topology.kind"},
           {R"({"kind": "star", "bandwidth": 1e9}})", "topology.hosts"},
           {R"({"kind": "star", "hosts": 1, "bandwidth": 1e9}})", "flows[0].dst"},
           {R"({"kind": "star", "hosts": 4, "bandwidth": 1e9, "hosts_total": 5}})", "topology.hosts_total"},
           {R"({"kind": "star", "hosts": 4, "bandwidth": 1e9, "degraded": {"up9": 1}}})", "topology.degraded.up9"},
           {R"({"kind": "torus", "dims": [1024, 1025], "bandwidth": 1e9}})", "topology.dims"},
           {R"({"kind": "torus", "dims": [4], "bandwidth": 1e9, "routing": "adaptive"}})", "topology.routing"},
           {R"({"kind": "dragonfly", "groups": 9, "chassis": 1, "routers": 2, "nodes": 1, "bandwidth": 1e9}})",
            "topology.groups"},
           {R"({"kind": "fat-tree", "down": [2, 2], "up": [1], "bandwidth": 1e9}})", "topology.up"}}) {
    try {
      read_flow_case(topology + each.text, "case.json");
      FAIL() << each.text;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.diagnostic().field, each.field) << error.what();
    }
  }
  EXPECT_THROW(read_flow_case(R"({"links": [{"bandwidth": 0}], "flows": []})", "case.json"), ConfigError);
  EXPECT_THROW(read_flow_case(R"({"flows": []})", "case.json"), ConfigError);
  EXPECT_TRUE(finish_times(read_flow_case(R"({"links": [], "flows": []})", "case.json").program).empty());
}

}  // namespace
}  // namespace flopcast
