#pragma once

#include "model/job.hpp"
#include "planner/space/space.hpp"

namespace flopcast {

/// The rules of read_layout (model/config) over a layout that is a struct: why it cannot be, or null. A reason names
/// the rule, not the values, so that layouts can be counted by it.
const char* broken_tensor_rule(const Job& job, int tp);
const char* broken_context_rule(const Job& job, int tp, int cp);
const char* broken_replica_rule(const Job& job, const LayoutGroup& group);
const char* broken_expert_rule(const Job& job, const LayoutGroup& group);
const char* broken_recompute_rule(const Job& job, const LayoutGroup& group);
const char* broken_sequence_rule(const Job& job, const LayoutGroup& group);
const char* broken_batch_rule(const Job& job, const LayoutGroup& group);
const char* broken_sharding_rule(const Job& job, const LayoutGroup& group, int zero);

}  // namespace flopcast
