#include <csignal>
#include <cstdio>

#include "base/host/terminal.hpp"
#include "cli/commands.hpp"

int main(int argc, char** argv) {
  // A reader that has seen enough closes the pipe; that ends the output, not the program.
  std::signal(SIGPIPE, SIG_IGN);
  // Past a limit on files' sizes writing fails like on a full disk, and what was begun is removed.
  std::signal(SIGXFSZ, SIG_IGN);
  return flopcast::run_program(flopcast::Arguments(argv + 1, argv + argc), {stdout, stderr});
}
