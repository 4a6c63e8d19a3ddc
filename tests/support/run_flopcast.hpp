#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tests/support/run_command.hpp"

namespace flopcast {

/// Runs a flopcast command in this process, with its own streams, which is enough for most tests of commands. Of the
/// options, it supports the working directory, which is this process's until the command returns, and the standard
/// input; an environment needs start_flopcast (std::logic_error).
CommandResult run_flopcast(const std::vector<std::string>& arguments, const CommandOptions& options = {});

/// The printed output as JSON; the test fails if the command failed.
nlohmann::json json_of(const CommandResult& result);

}  // namespace flopcast
