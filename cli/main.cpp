#include <csignal>

#include "cli/commands.hpp"
#include "cli/exit_code.hpp"

int main(int argc, char** argv) {
  // A reader that has seen enough closes the pipe; that ends the output, not the program.
  std::signal(SIGPIPE, SIG_IGN);
  return flopcast::exit_code_of([&] { return flopcast::run_program(flopcast::Arguments(argv + 1, argv + argc)); },
                                true);
}
