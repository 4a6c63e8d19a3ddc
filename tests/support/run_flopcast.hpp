#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tests/support/run_command.hpp"

namespace flopcast {

/// A command of flopcast in this process, with streams of its own: what most tests of commands need. Of the options it
/// takes the working directory, this process's until the command returns, and the standard input; whoever sets the
/// environment has to start a program (std::logic_error).
CommandResult run_flopcast(const std::vector<std::string>& arguments, const CommandOptions& options = {});

/// What it printed as JSON; the test fails where the command did.
nlohmann::json json_of(const CommandResult& result);

}  // namespace flopcast
