#pragma once

#include <string>
#include <vector>

namespace flopcast {

/// Runs a program of ours that lies beside this one (or in PATH), with our standard streams, and waits for it. Returns
/// its exit code. Throws EnvironmentError when it is not there or a signal ended it.
int launch_beside(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace flopcast
