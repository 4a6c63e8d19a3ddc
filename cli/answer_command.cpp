// The program's commands for the library; this file is part of its shared object.
#include "api/flopcast.hpp"
#include "base/host/terminal.hpp"
#include "cli/commands.hpp"

namespace flopcast {

CommandAnswer answer_command(const std::vector<std::string>& arguments, const std::string& input,
                             std::string* printed) {
  MemoryStream out;
  MemoryStream err;
  try {
    dispatch("flopcast", "flopcast forecasts distributed training.", commands(), arguments,
             {out.file(), err.file(), &input});
  } catch (const NegativeAnswer&) {
    if (printed != nullptr) *printed = out.text();
    throw;
  }
  return {out.text(), err.text()};
}

}  // namespace flopcast
