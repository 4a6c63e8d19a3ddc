#pragma once

#include <memory>

#include "cli/commands.hpp"
#include "cli/output_options.hpp"
#include "planner/shared/crew.hpp"

namespace flopcast {

/// The commands that several processes can answer together.
int run_plan_among(const Arguments& arguments, const Crew& crew);
int run_sweep_among(const Arguments& arguments, const Crew& crew);

/// The rows beside -o's file; null for a process alone without one. Several need one, and throw ConfigError.
std::unique_ptr<PartialRows> partial_rows(const OutputOptions& output, const nlohmann::json& question,
                                          const Crew& crew);

}  // namespace flopcast
