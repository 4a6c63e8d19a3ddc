#include "cli/measured/mpirun.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "base/host/processes.hpp"
#include "base/text/error.hpp"

namespace flopcast {

std::vector<std::string> mpirun_words(int ranks) {
  const std::optional<std::string> mpirun = program_on_path("mpirun");
  if (!mpirun) {
    throw EnvironmentError("mpirun is not on the path, and --backend mpi needs it (Debian: openmpi-bin)");
  }
  // Quiet: flopcast-run itself tells what went wrong.
  std::vector<std::string> words = {*mpirun, "--quiet", "--oversubscribe"};
  if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {"-n", fmt::format("{}", ranks)});
  return words;
}

}  // namespace flopcast
