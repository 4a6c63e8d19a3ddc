#include "tests/support/run_flopcast.hpp"

#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/host/terminal.hpp"
#include "cli/commands.hpp"

namespace flopcast {
namespace {

/// Sets the working directory of the process for the lifetime of the object.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::optional<std::filesystem::path>& folder) {
    if (folder) std::filesystem::current_path(*folder);
  }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;
  ~WorkingDirectory() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

}  // namespace

CommandResult run_flopcast(const std::vector<std::string>& arguments, const CommandOptions& options) {
  if (!options.environment.empty() || !options.unset.empty()) {
    throw std::logic_error("run_flopcast: setting an environment needs start_flopcast");
  }
  const WorkingDirectory folder(options.working_directory);
  MemoryStream out;
  MemoryStream err;
  CommandResult result;
  result.exit_code = run_program(arguments, {out.file(), err.file(), &options.standard_input});
  result.standard_output = out.text();
  result.standard_error = err.text();
  return result;
}

nlohmann::json json_of(const CommandResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  return nlohmann::json::parse(result.standard_output);
}

}  // namespace flopcast
