#pragma once

#include <functional>

namespace flopcast {

inline constexpr int kBadInput = 2;
inline constexpr int kEnvironmentFailed = 4;

/// Runs a command and turns what it throws into a complaint on standard error and an exit code: 0 done, 1 our bug, 2
/// bad usage or input, 3 the answer is no, 4 the environment failed. Of several processes that read the same arguments
/// one `tells` what is wrong with them.
int exit_code_of(const std::function<int()>& command, bool tells);

}  // namespace flopcast
