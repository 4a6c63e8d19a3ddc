#pragma once

#include <string>

#include "planner/plan/plan.hpp"

namespace flopcast {

/// Makes a question from the text of a job file.
PlanQuestion question_of(const std::string& text);

/// A transformer of 8 layers on two nodes of 8 A100, batch 16: small enough to simulate every layout.
PlanQuestion small_question(const std::string& layout = R"("global_batch_size": 16)",
                            const std::string& training = R"("sequence_length": 512)");
/// The same with experts in every layer.
PlanQuestion small_expert_question();

}  // namespace flopcast
