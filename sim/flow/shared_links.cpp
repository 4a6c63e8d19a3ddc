#include "sim/flow/shared_links.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace flopcast {

namespace {

// Relative difference that rounding may cause between equal rates; flows excluded for being slower must be slower by
// more.
constexpr double kRounding = 1e-9;

}  // namespace

SharedLinks::SharedLinks(const FlowProgram& program, double ticks_per_second)
    : program_(program),
      ticks_per_second_(ticks_per_second),
      active_(program.links()),
      active_weight_(program.links(), 0.0),
      rest_(program.links(), 0.0),
      open_weight_(program.links(), 0.0),
      reached_weight_(program.links(), 0.0),
      open_uses_(program.links(), 0),
      link_reached_(program.links(), 0),
      place_(program.uses(), 0),
      rate_(program.flows(), 0.0),
      left_(program.flows(), 0.0),
      since_(program.flows(), 0),
      end_(program.flows(), kNever),
      flow_reached_(program.flows(), 0) {}

void SharedLinks::begin(FlowId flow, Ticks now, double bytes) {
  left_[flow] = bytes;
  since_[flow] = now;
  rate_[flow] = FlowProgram::kNoCap;  // faster than any other until it gets a rate
  std::size_t use = program_.first_use(flow);
  bool alone = true;
  for (const auto& [link, weight] : program_.uses_of(flow)) {
    alone = alone && active_[link].empty();
    place_[use] = active_[link].size();
    active_[link].push_back({flow, weight, use++});
  }
  if (alone) {
    begun_alone_.push_back(flow);
  } else {
    touch(flow);
  }
  ++under_way_;
}

void SharedLinks::touch(FlowId flow) {
  for (const LinkUse& use : program_.uses_of(flow)) touched_.push_back(use.link);
  begun_.push_back(flow);
}

Ticks SharedLinks::next_end() {
  while (!ends_.empty() && is_stale(ends_.front())) {
    std::pop_heap(ends_.begin(), ends_.end(), std::greater<>());
    ends_.pop_back();
  }
  return ends_.empty() ? kNever : ends_.front().first;
}

void SharedLinks::end_due(Ticks now, std::vector<FlowId>& ended) {
  while (next_end() <= now && !ends_.empty()) {
    const FlowId flow = ends_.front().second;
    end_[flow] = kNever;
    ended.push_back(flow);
    --under_way_;
    std::size_t use = program_.first_use(flow);
    for (const LinkUse& of_flow : program_.uses_of(flow)) {
      std::vector<ActiveUse>& active = active_[of_flow.link];
      active[place_[use]] = active.back();
      place_[active.back().use] = place_[use];
      active.pop_back();
      ++use;
      if (active.empty()) continue;
      touched_.push_back(of_flow.link);
      slowest_left_ = std::min(slowest_left_, rate_[flow]);
    }
  }
}

void SharedLinks::settle(Ticks now) {
  changed_.clear();
  settle_alone(now);
  if (!touched_.empty()) settle_touched(now);
  forecast_ends(now);
}

// Most flows of a training step share no link: neither they nor others need to be considered again.
void SharedLinks::settle_alone(Ticks now) {
  const auto shares = [this](const LinkUse& use) { return active_[use.link].size() > 1; };
  for (const FlowId flow : begun_alone_) {
    const std::span<const LinkUse> uses = program_.uses_of(flow);
    if (!touched_.empty() && std::any_of(uses.begin(), uses.end(), shares)) {
      touch(flow);
      continue;
    }
    double rate = program_.cap(flow);
    for (const LinkUse& use : uses) rate = std::min(rate, program_.capacity(use.link) / use.weight);
    since_[flow] = now;
    rate_[flow] = rate;
    changed_.push_back(flow);
  }
  begun_alone_.clear();
}

void SharedLinks::settle_touched(Ticks now) {
  ++settlement_;
  weigh_touched();
  lowest_moved_ = slowest_left_;
  for (const FlowId flow : begun_) {
    lowest_moved_ = std::min(lowest_moved_, program_.cap(flow));
    for (const LinkUse& use : program_.uses_of(flow)) {
      lowest_moved_ = std::min(lowest_moved_, program_.capacity(use.link) / active_weight_[use.link]);
    }
  }
  lowest_moved_ *= 1 - kRounding;
  collect();
  fill(now);
  touched_.clear();
  begun_.clear();
  slowest_left_ = FlowProgram::kNoCap;
}

void SharedLinks::add_reached(LinkId link) {
  if (link_reached_[link] == settlement_) return;
  link_reached_[link] = settlement_;
  links_reached_.push_back(link);
}

void SharedLinks::weigh_touched() {
  links_reached_.clear();
  for (const LinkId link : touched_) add_reached(link);
  for (const LinkId link : links_reached_) {
    active_weight_[link] = 0.0;
    for (const ActiveUse& use : active_[link]) active_weight_[link] += use.weight;
  }
}

// Collects the component affected by the change, and the capacity that slower flows leave on each of its links.
void SharedLinks::collect() {
  flows_reached_.clear();
  for (std::size_t index = 0; index < links_reached_.size(); ++index) {
    const LinkId link = links_reached_[index];
    double rest = program_.capacity(link);
    double open_weight = 0.0;
    std::uint32_t open_uses = 0;
    for (const ActiveUse& use : active_[link]) {
      if (rate_[use.flow] < lowest_moved_) {
        rest -= use.weight * rate_[use.flow];
        continue;
      }
      open_weight += use.weight;
      ++open_uses;
      if (flow_reached_[use.flow] == settlement_) continue;
      flow_reached_[use.flow] = settlement_;
      flows_reached_.push_back(use.flow);
      for (const LinkUse& other : program_.uses_of(use.flow)) add_reached(other.link);
    }
    rest_[link] = rest;
    open_weight_[link] = open_weight;
    reached_weight_[link] = open_weight;
    open_uses_[link] = open_uses;
  }
}

double SharedLinks::rest_share(LinkId link) {
  // After heavy flows are subtracted, the remainder of the sum is mostly rounding.
  if (open_weight_[link] < kRounding * reached_weight_[link]) {
    open_weight_[link] = 0.0;
    for (const ActiveUse& use : active_[link]) {
      if (flow_reached_[use.flow] == settlement_) open_weight_[link] += use.weight;
    }
    reached_weight_[link] = open_weight_[link];
  }
  return std::max(rest_[link], 0.0) / open_weight_[link];
}

void SharedLinks::fill(Ticks now) {
  shares_.clear();
  capped_.clear();
  for (const LinkId link : links_reached_) {
    if (open_uses_[link] > 0) shares_.emplace_back(rest_share(link), link);
  }
  std::make_heap(shares_.begin(), shares_.end(), std::greater<>());
  for (const FlowId flow : flows_reached_) {
    if (program_.cap(flow) < FlowProgram::kNoCap) capped_.push_back(flow);
  }
  std::sort(capped_.begin(), capped_.end(), [this](FlowId a, FlowId b) { return program_.cap(a) < program_.cap(b); });
  std::size_t next_capped = 0;
  open_flows_ = flows_reached_.size();
  // Links without a remaining open flow stay in the heap: each would be removed from it in order anyway.
  while (open_flows_ > 0 && !shares_.empty()) {
    std::pop_heap(shares_.begin(), shares_.end(), std::greater<>());
    const LinkId link = shares_.back().second;
    shares_.pop_back();
    if (open_uses_[link] == 0) continue;
    const double share = rest_share(link);
    while (next_capped < capped_.size() && flow_reached_[capped_[next_capped]] != settlement_) ++next_capped;
    const bool is_least = shares_.empty() || share <= shares_.front().first;
    const bool cap_first = next_capped < capped_.size() &&
                           program_.cap(capped_[next_capped]) <= (is_least ? share : shares_.front().first);
    if (cap_first) freeze(capped_[next_capped], program_.cap(capped_[next_capped]), now);
    if (cap_first || !is_least) {
      if (open_uses_[link] == 0) continue;
      shares_.emplace_back(rest_share(link), link);
      std::push_heap(shares_.begin(), shares_.end(), std::greater<>());
      continue;
    }
    for (const ActiveUse& use : active_[link]) {
      if (flow_reached_[use.flow] == settlement_) freeze(use.flow, share, now);
    }
  }
}

void SharedLinks::freeze(FlowId flow, double rate, Ticks now) {
  flow_reached_[flow] = settlement_ - 1;
  --open_flows_;
  for (const auto& [link, weight] : program_.uses_of(flow)) {
    rest_[link] -= weight * rate;
    open_weight_[link] -= weight;
    --open_uses_[link];
  }
  if (rate_[flow] == rate) return;
  if (since_[flow] < now) {
    left_[flow] -= rate_[flow] * (static_cast<double>(now - since_[flow]) / ticks_per_second_);
    since_[flow] = now;
  }
  rate_[flow] = rate;
  changed_.push_back(flow);
}

void SharedLinks::forecast_ends(Ticks now) {
  // An end beyond the clock's range is not an end yet: whatever slows the flow this much is gone by then.
  constexpr double kMostTicks = 4e18;
  for (const FlowId flow : changed_) {
    const double ticks = std::ceil(std::max(0.0, left_[flow]) / rate_[flow] * ticks_per_second_);
    end_[flow] = ticks < kMostTicks ? now + static_cast<Ticks>(ticks) : kNever - 1;
    ends_.emplace_back(end_[flow], flow);
  }
  // A few ends are pushed one by one; many ends, or a heap of mostly outdated entries, make a new heap.
  const std::size_t before = ends_.size() - changed_.size();
  constexpr std::size_t kFew = 8;
  if (ends_.size() > 4 * under_way_ + kFew) {
    std::erase_if(ends_, [this](const End& end) { return is_stale(end); });
    std::make_heap(ends_.begin(), ends_.end(), std::greater<>());
  } else if (changed_.size() * kFew > ends_.size()) {
    std::make_heap(ends_.begin(), ends_.end(), std::greater<>());
  } else {
    for (std::size_t size = before + 1; size <= ends_.size(); ++size) {
      std::push_heap(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(size), std::greater<>());
    }
  }
}

}  // namespace flopcast
