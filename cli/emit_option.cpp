#include "cli/emit_option.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/terminal.hpp"
#include "model/error/error.hpp"

namespace flopcast {

void EmitOption::add_to(CommandLine& command_line) {
  command_line.add_option("--emit", program_, "PROGRAM",
                          "print what starts the layout: megatron, torchrun, deepspeed or accelerate");
}

std::optional<LaunchProgram> EmitOption::program() const {
  if (!program_) return std::nullopt;
  const std::vector<std::string>& names = launch_program_names();
  const auto place = std::find(names.begin(), names.end(), *program_);
  if (place == names.end()) {
    throw ConfigError({"--emit", fmt::format("unknown value \"{}\"", *program_), "", choices_help(*program_, names)});
  }
  return static_cast<LaunchProgram>(place - names.begin());
}

void EmitOption::write(const LaunchFile& file, const std::optional<std::string>& path) {
  for (const std::string& note : file.notes) std::fputs(fmt::format("note: {}\n", note).c_str(), stderr);
  write_output(path.value_or(""), file.text);
}

}  // namespace flopcast
