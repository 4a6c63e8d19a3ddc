// Time of a command line call, including process start, compared with the cheapest possible call.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace {

constexpr int kCalls = 60;
constexpr double kTargetMilliseconds = 60.0;

struct Timing {
  double least = 0.0;
  double median = 0.0;
};

Timing time_calls(const std::vector<std::string>& arguments) {
  std::vector<double> milliseconds;
  for (int call = 0; call < kCalls; ++call) {
    const auto start = std::chrono::steady_clock::now();
    const flopcast::CommandResult result = flopcast::start_flopcast(arguments);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    if (result.exit_code != 0) std::printf("exit code %d: %s\n", result.exit_code, result.standard_error.c_str());
    milliseconds.push_back(elapsed.count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  return {milliseconds.front(), milliseconds[milliseconds.size() / 2]};
}

}  // namespace

int main() {
  const std::string job = (flopcast::project_folder() / "examples" / "gpt3-175b-64-gpus" / "job.json").string();
  const Timing version = time_calls({"--version"});
  const Timing simulate = time_calls({"simulate", job});
  std::printf("flopcast --version            %6.1f ms median, %6.1f ms minimum of %d calls\n", version.median,
              version.least, kCalls);
  std::printf(
      "flopcast simulate, one layout %6.1f ms median, %6.1f ms minimum; %.1f times --version; target below %.0f ms\n",
      simulate.median, simulate.least, simulate.median / version.median, kTargetMilliseconds);
  return 0;
}
