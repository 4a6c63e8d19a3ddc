// Flows on shared links in exact fractions: at each moment, rates rise together until a link is full, and the flows on
// it stop rising. Small and slow on purpose.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <optional>
#include <random>
#include <vector>

#include "sim/flow/flow_program.hpp"

namespace flopcast {
namespace {

using Fraction = boost::multiprecision::cpp_rational;

struct ExactFlow {
  Fraction left;
  Fraction start;
  std::optional<Fraction> cap;
  std::vector<std::pair<std::size_t, int>> uses;
  std::vector<std::size_t> after;
  std::optional<Fraction> end;
};

struct ExactNetwork {
  std::vector<Fraction> capacity;
  std::vector<ExactFlow> flows;

  std::optional<Fraction> start_of(const ExactFlow& flow) const {
    if (flow.after.empty()) return flow.start;
    Fraction latest = 0;
    for (const std::size_t other : flow.after) {
      if (!flows[other].end) return std::nullopt;
      latest = std::max(latest, *flows[other].end);
    }
    return latest;
  }

  // Rates of the active flows.
  std::vector<Fraction> rates(const std::vector<std::size_t>& active) const {
    std::vector<Fraction> rate(flows.size(), 0);
    std::vector<Fraction> left = capacity;
    std::vector<std::size_t> rising = active;
    while (!rising.empty()) {
      std::optional<Fraction> step;
      const auto lower = [&step](const Fraction& to) { step = step ? std::min(*step, to) : to; };
      std::vector<Fraction> load(capacity.size(), 0);
      for (const std::size_t flow : rising) {
        for (const auto& [link, weight] : flows[flow].uses) load[link] += weight;
        if (flows[flow].cap) lower(*flows[flow].cap - rate[flow]);
      }
      for (std::size_t link = 0; link < left.size(); ++link) {
        if (load[link] > 0) lower(left[link] / load[link]);
      }
      for (const std::size_t flow : rising) rate[flow] += *step;
      for (std::size_t link = 0; link < left.size(); ++link) left[link] -= *step * load[link];
      std::erase_if(rising, [&](std::size_t flow) {
        if (flows[flow].cap && rate[flow] == *flows[flow].cap) return true;
        return std::any_of(flows[flow].uses.begin(), flows[flow].uses.end(),
                           [&](const auto& use) { return left[use.first] == 0; });
      });
    }
    return rate;
  }

  void run() {
    Fraction now = 0;
    while (std::any_of(flows.begin(), flows.end(), [](const ExactFlow& flow) { return !flow.end; })) {
      std::vector<std::size_t> active;
      std::optional<Fraction> next;
      const auto at_latest = [&next](const Fraction& moment) { next = next ? std::min(*next, moment) : moment; };
      bool ended = false;
      for (std::size_t flow = 0; flow < flows.size(); ++flow) {
        const auto start = start_of(flows[flow]);
        if (flows[flow].end || !start) continue;
        if (*start > now) {
          at_latest(*start);
        } else if (flows[flow].left == 0) {
          flows[flow].end = now;
          ended = true;
        } else {
          active.push_back(flow);
        }
      }
      if (ended) continue;
      const std::vector<Fraction> rate = rates(active);
      for (const std::size_t flow : active) at_latest(now + flows[flow].left / rate[flow]);
      for (const std::size_t flow : active) flows[flow].left -= rate[flow] * (*next - now);
      now = *next;
    }
  }
};

TEST(MaxMinReference, RandomFlowsEndWhenExactFractionsSayTheyDo) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    FlowProgram program;
    ExactNetwork exact;
    const std::size_t links = 1 + random() % 6;
    for (std::size_t link = 0; link < links; ++link) {
      exact.capacity.emplace_back(1 + random() % 50);
      program.add_link(exact.capacity.back().convert_to<double>());
    }
    const std::size_t flows = 1 + random() % 10;
    for (std::size_t number = 0; number < flows; ++number) {
      ExactFlow flow;
      flow.left = random() % 200;
      flow.start = random() % 10;
      if (random() % 3 == 0) flow.cap = 1 + random() % 20;
      const FlowId id = program.add_flow(flow.left.convert_to<double>(), flow.start.convert_to<double>(),
                                         flow.cap ? flow.cap->convert_to<double>() : FlowProgram::kNoCap);
      for (std::size_t link = 0; link < links; ++link) {
        if (random() % 2 == 0 && !(flow.uses.empty() && link + 1 == links)) continue;
        const int weight = 1 + static_cast<int>(random() % 3);
        flow.uses.emplace_back(link, weight);
        program.add_use(static_cast<LinkId>(link), weight);
      }
      for (std::size_t other = 0; other < number; ++other) {
        if (random() % 6 != 0) continue;
        flow.after.push_back(other);
        program.add_predecessor(static_cast<FlowId>(other));
      }
      ASSERT_EQ(id, number);
      exact.flows.push_back(std::move(flow));
    }
    exact.run();
    const std::vector<double> told = finish_times(program);
    for (std::size_t flow = 0; flow < flows; ++flow) {
      const double own = exact.flows[flow].end->convert_to<double>();
      EXPECT_NEAR(told[flow], own, 1e-9 * std::max(1.0, own)) << "round " << round << ", flow " << flow;
    }
  }
}

}  // namespace
}  // namespace flopcast
