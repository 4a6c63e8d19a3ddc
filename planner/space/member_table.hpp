#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "planner/space/space.hpp"

namespace flopcast {

/// Which schedules, chunks, sharding and splits a group may have. Depends on little of it, so groups share rows.
class MemberTable {
 public:
  struct Row {
    std::size_t members = 0;  ///< index into the lists of members
    std::size_t count = 0;
    std::map<std::string, std::int64_t> rejected;
  };

  MemberTable(const Job& job, const SearchSpace& space) : job_(job), space_(space) {}

  const Row& row(const LayoutGroup& group);
  std::vector<std::vector<LayoutMember>> take_members() { return std::move(members_); }

 private:
  struct Key {
    int pipeline_ranks;
    int microbatches;
    int replicas;
    int cp;
    int ep;
    bool operator<(const Key& other) const;
  };

  Row make_row(const LayoutGroup& group);
  void add_schedule(std::uint16_t schedule, const LayoutGroup& group, Row& row);
  void add_chunks(std::uint16_t schedule, int chunks, const LayoutGroup& group, Row& row);
  std::vector<int> shardings(const LayoutGroup& group, Row& row) const;
  std::vector<int> chunk_counts(const ScheduleInfo& info, int pipeline_ranks) const;
  bool is_as_1f1b(const ScheduleInfo& info, int pipeline_ranks) const;
  bool has_split(const SplitRule& split, int pipeline_ranks, int chunks) const;

  const Job& job_;
  const SearchSpace& space_;
  std::map<Key, Row> rows_;
  std::vector<std::vector<LayoutMember>> members_;
};

}  // namespace flopcast
