#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "planner/bounds/bounds.hpp"
#include "planner/search/search.hpp"

namespace flopcast {

struct MemberPrice {
  std::size_t map = 0;
  int zero = 0;
  int split = 0;
  std::vector<int> layers;
  StepCosts costs;
};

/// Prices of a group's members. Members that share stage map, sharding and split share a price, which is computed once;
/// the price without sharding determines the balanced layers.
class GroupPrices {
 public:
  GroupPrices(const Job& job, const SearchSpace& space, const LayoutGroup& group);

  /// pass_bound of the member without its sharding.
  double pass_bound_of(const LayoutMember& member, const ScheduleShape& shape);
  /// Side effect: job() then has the member's layout.
  const MemberPrice& of(const LayoutMember& member, const ScheduleShape& shape);
  const Job& job() const { return job_; }

 private:
  const MemberPrice& find_or_price(const LayoutMember& member, const ScheduleShape& shape);
  std::vector<int> layers_of(const LayoutMember& member, const ScheduleShape& shape);
  LayoutMember without_sharding(const LayoutMember& member) const;

  Job job_;
  const Layout base_;
  const SearchSpace& space_;
  const LayoutGroup& group_;
  SharedPrices shared_;
  std::deque<MemberPrice> prices_;  // references stay valid while it grows
};

/// The search on one cluster size: two queues, of groups and of their layouts, both ordered by bound and processed in
/// batches of fixed size.
class ClusterSearch {
 public:
  ClusterSearch(LayoutSearch& search, const Job& job, double longest_step_s, std::string too_slow,
                double training_share);
  void run();

 private:
  struct WaitingGroup {
    double time_s = 0.0;
    std::size_t order = 0;  ///< index in the enumeration
  };
  /// A layout with its bounds.
  struct Candidate {
    double time_s = 0.0;
    double memory_share = 0.0;
    double bytes = 0.0;
    std::size_t group = 0;
    LayoutMember member;
    std::uint64_t order = 0;
    std::vector<int> layers;  // for a balanced split
  };

  void sort_groups();
  void tighten_first();
  WaitingGroup take_group();
  void open_groups();
  std::vector<Candidate> bound_members(std::size_t group) const;
  void add_candidates(std::vector<Candidate> candidates);
  void simulate_candidates();
  void take(const Candidate& candidate, const Layout& layout, const Evaluation& evaluated);
  Job job_of(const Candidate& candidate) const;
  void bound_closest_groups();
  void remember_shapes(std::size_t group);
  void miss_if_closest(const Candidate& candidate, double share, double bytes);
  Score score(double time_s) const;

  LayoutSearch& search_;
  const Job& job_;
  double longest_step_s_;
  std::string too_slow_;
  double training_share_;
  int devices_;
  LayoutSpace space_;
  ScheduleShapes shapes_;
  std::vector<Allocation> allocations_;
  GroupBounds bounds_;
  std::vector<std::uint64_t> first_order_;  // by group: index of its first member in the enumeration
  std::vector<WaitingGroup> groups_;        // a heap, best first
  std::vector<Candidate> candidates_;       // a heap, best first
  std::vector<std::size_t> misses_;         // groups whose memory bound does not fit
  std::int64_t misfits_ = 0;
  std::int64_t slow_ = 0;
};

}  // namespace flopcast
