#include "sim/flow/flow_program.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <stdexcept>
#include <utility>

#include "sim/flow/shared_links.hpp"

namespace flopcast {

LinkId FlowProgram::add_link(double capacity) {
  capacity_.push_back(capacity);
  return static_cast<LinkId>(capacity_.size() - 1);
}

FlowId FlowProgram::add_flow(double bytes, double start, double cap) {
  bytes_.push_back(bytes);
  start_.push_back(start);
  cap_.push_back(cap);
  first_use_.push_back(uses_.size());
  first_predecessor_.push_back(predecessors_.size());
  return static_cast<FlowId>(bytes_.size() - 1);
}

void FlowProgram::add_use(LinkId link, double weight) {
  uses_.push_back({link, weight});
  first_use_.back() = uses_.size();
}

void FlowProgram::add_predecessor(FlowId flow) {
  predecessors_.push_back(flow);
  first_predecessor_.back() = predecessors_.size();
}

namespace {

// The flows that wait for each flow, for all flows in one array.
class Successors {
 public:
  explicit Successors(const FlowProgram& program) : first_(program.flows() + 1, 0), flows_(program.predecessors()) {
    const auto count = static_cast<FlowId>(program.flows());
    for (FlowId flow = 0; flow < count; ++flow) {
      for (const FlowId before : program.predecessors_of(flow)) ++first_[before + 1];
    }
    for (std::size_t flow = 0; flow < count; ++flow) first_[flow + 1] += first_[flow];
    std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
    for (FlowId flow = 0; flow < count; ++flow) {
      for (const FlowId before : program.predecessors_of(flow)) flows_[next[before]++] = flow;
    }
  }
  std::span<const FlowId> of(FlowId flow) const {
    return {flows_.data() + first_[flow], flows_.data() + first_[flow + 1]};
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<FlowId> flows_;
};

std::vector<std::uint32_t> awaited_by_flow(const FlowProgram& program) {
  std::vector<std::uint32_t> awaited(program.flows());
  for (FlowId flow = 0; flow < awaited.size(); ++flow) {
    awaited[flow] = static_cast<std::uint32_t>(program.predecessors_of(flow).size());
  }
  return awaited;
}

// Upper bound of the program's end: every flow's bytes over its rate when alone, one flow after the other. While any
// flow is in progress, some link is full or some flow is at its cap, and the flows there use shares of their rates when
// alone that sum to 1 or more.
double longest_time(const FlowProgram& program) {
  double latest_start = 0.0;
  double one_by_one = 0.0;
  for (FlowId flow = 0; flow < program.flows(); ++flow) {
    double rate = program.cap(flow);
    for (const LinkUse& use : program.uses_of(flow)) {
      rate = std::min(rate, program.capacity(use.link) / use.weight);
    }
    latest_start = std::max(latest_start, program.start(flow));
    if (program.bytes(flow) > 0) one_by_one += program.bytes(flow) / rate;
  }
  return latest_start + one_by_one;
}

// A power of ten that leaves a tenth of the clock's range unused.
double ticks_per_second_for(const FlowProgram& program) {
  const double longest = longest_time(program);
  if (longest <= 0) return 1.0;
  constexpr double kDigits = 18.0;
  constexpr double kMostDigits = 300.0;
  return std::pow(10.0, std::min(kMostDigits, std::floor(kDigits - std::log10(longest))));
}

// Plays a program with the clock of its shared links.
class FlowPlayer {
 public:
  FlowPlayer(const FlowProgram& program, double ticks_per_second)
      : program_(program),
        ticks_per_second_(ticks_per_second),
        links_(program, ticks_per_second),
        successors_(program),
        awaited_(awaited_by_flow(program)),
        end_(program.flows(), 0) {}

  std::vector<double> play() {
    std::vector<FlowId> own_start;
    for (FlowId flow = 0; flow < program_.flows(); ++flow) {
      if (awaited_[flow] == 0) own_start.push_back(flow);
    }
    const auto tick_of = [this](FlowId flow) {
      return static_cast<Ticks>(std::llround(program_.start(flow) * ticks_per_second_));
    };
    std::stable_sort(own_start.begin(), own_start.end(), [&](FlowId a, FlowId b) { return tick_of(a) < tick_of(b); });
    std::size_t next_start = 0;
    while (finished_ < program_.flows()) {
      Ticks now = std::min(links_.next_end(), delays_.empty() ? SharedLinks::kNever : delays_.top().first);
      if (next_start < own_start.size()) now = std::min(now, tick_of(own_start[next_start]));
      if (now == SharedLinks::kNever) throw std::invalid_argument("flows wait for each other");
      ended_.clear();
      links_.end_due(now, ended_);
      while (!delays_.empty() && delays_.top().first <= now) {
        ended_.push_back(delays_.top().second);
        delays_.pop();
      }
      for (; next_start < own_start.size() && tick_of(own_start[next_start]) <= now; ++next_start) {
        begin(own_start[next_start], now);
      }
      // Flows that take no time end within the same instant.
      for (std::size_t index = 0; index < ended_.size(); ++index) finish(ended_[index], now);
      links_.settle(now);
    }
    std::vector<double> seconds(end_.size());
    for (std::size_t flow = 0; flow < end_.size(); ++flow) {
      seconds[flow] = static_cast<double>(end_[flow]) / ticks_per_second_;
    }
    return seconds;
  }

 private:
  void begin(FlowId flow, Ticks now) {
    if (program_.bytes(flow) <= 0) {
      ended_.push_back(flow);
    } else if (program_.uses_of(flow).empty()) {
      const double ticks = std::ceil(program_.bytes(flow) / program_.cap(flow) * ticks_per_second_);
      delays_.emplace(now + static_cast<Ticks>(ticks), flow);
    } else {
      links_.begin(flow, now);
    }
  }

  void finish(FlowId flow, Ticks now) {
    end_[flow] = now;
    ++finished_;
    for (const FlowId next : successors_.of(flow)) {
      if (--awaited_[next] == 0) begin(next, now);
    }
  }

  using Delay = std::pair<Ticks, FlowId>;

  const FlowProgram& program_;
  double ticks_per_second_;
  SharedLinks links_;
  Successors successors_;
  std::vector<std::uint32_t> awaited_;
  std::vector<Ticks> end_;
  std::priority_queue<Delay, std::vector<Delay>, std::greater<>> delays_;
  std::vector<FlowId> ended_;  // at this instant
  std::size_t finished_ = 0;
};

}  // namespace

std::vector<FlowId> in_order(const FlowProgram& program) {
  std::vector<FlowId> order(program.flows());
  std::iota(order.begin(), order.end(), FlowId{0});
  const auto comes_after_its_predecessors = [&program](FlowId flow) {
    const auto before = program.predecessors_of(flow);
    return std::all_of(before.begin(), before.end(), [flow](FlowId each) { return each < flow; });
  };
  if (std::all_of(order.begin(), order.end(), comes_after_its_predecessors)) return order;
  const Successors successors(program);
  std::vector<std::uint32_t> awaited = awaited_by_flow(program);
  // Smallest first, so that a program written in order keeps its order.
  std::priority_queue<FlowId, std::vector<FlowId>, std::greater<>> ready;
  order.clear();
  for (FlowId flow = 0; flow < program.flows(); ++flow) {
    if (program.predecessors_of(flow).empty()) ready.push(flow);
  }
  while (!ready.empty()) {
    const FlowId flow = ready.top();
    ready.pop();
    order.push_back(flow);
    for (const FlowId next : successors.of(flow)) {
      if (--awaited[next] == 0) ready.push(next);
    }
  }
  return order;
}

std::vector<double> finish_times_one_by_one(const FlowProgram& program) {
  return FlowPlayer(program, ticks_per_second_for(program)).play();
}

std::vector<double> finish_times(const FlowProgram& program) {
  const std::optional<FlowClasses> classes = refine(program);
  if (!classes) return finish_times_one_by_one(program);
  const std::vector<double> of_class = FlowPlayer(classes->program, ticks_per_second_for(program)).play();
  std::vector<double> seconds(program.flows());
  for (std::size_t flow = 0; flow < seconds.size(); ++flow) seconds[flow] = of_class[classes->class_of[flow]];
  return seconds;
}

}  // namespace flopcast
