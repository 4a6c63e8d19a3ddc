#include <csignal>
#include <cstdio>

#include "base/host/terminal.hpp"
#include "cli/commands.hpp"

int main(int argc, char** argv) {
  // A reader that closes the pipe early ends the output, not the program.
  std::signal(SIGPIPE, SIG_IGN);
  // Beyond a file size limit, writes fail as on a full disk, and incomplete files are removed.
  std::signal(SIGXFSZ, SIG_IGN);
  return flopcast::run_program(flopcast::Arguments(argv + 1, argv + argc), {stdout, stderr});
}
