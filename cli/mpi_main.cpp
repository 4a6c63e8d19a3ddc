// flopcast-mpi: plans and sweeps distributed over the ranks that mpirun or srun starts. The ranks share files next to
// the output and send no messages, so that the remaining ranks finish if one is lost.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/host/guard.hpp"
#include "base/host/terminal.hpp"
#include "cli/commands.hpp"
#include "cli/options/question_form.hpp"
#include "planner/shared/crew.hpp"

namespace {

int run(const flopcast::Arguments& arguments, const flopcast::Crew& crew, const flopcast::Streams& streams) {
  const std::vector<flopcast::CommandEntry> entries = {
      {"plan", "flopcast plan with its cluster sizes distributed over the ranks",
       [&](const flopcast::Arguments& rest, const flopcast::Streams& shown) {
         return answer_arguments(flopcast::question_named("plan"), rest, shown, &crew);
       }},
      {"sweep", "flopcast sweep with its rows distributed over the ranks",
       [&](const flopcast::Arguments& rest, const flopcast::Streams& shown) {
         return answer_arguments(flopcast::question_named("sweep"), rest, shown, &crew);
       }}};
  const auto wants_help = [](const std::string& word) { return word == "--help" || word == "-h" || word == "help"; };
  const bool helps = std::any_of(arguments.begin(), arguments.end(), wants_help);
  if (helps && !crew.leads()) return 0;
  return flopcast::dispatch(
      "flopcast-mpi",
      "flopcast-mpi runs plans and sweeps on many nodes, with the same output as flopcast.\n"
      "Each rank keeps its rows in FILE.partial.rank-N next to the output; running the same command\n"
      "again continues an interrupted run.\n\n"
      "  mpirun -n 64 flopcast-mpi sweep job.json --vary pp=1,2,4,8 --vary mbs=1,2,4 -o sweep.csv\n"
      "  mpirun --enable-recovery -n 64 flopcast-mpi plan job.json --max-gpus 4096 -o plan.json\n"
      "  srun -n 64 flopcast-mpi plan job.json --max-gpus 4096 -o plan.json",
      entries, arguments, streams);
}

// Waits a limited time for ranks that may have been lost. If ranks then read their files at different times, some parts
// are computed twice, which is harmless.
bool meet() {
  constexpr auto kPatience = std::chrono::seconds(10);
  const auto start = std::chrono::steady_clock::now();
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  while (std::chrono::steady_clock::now() - start < kPatience) {
    int all_came = 0;
    MPI_Test(&request, &all_came, MPI_STATUS_IGNORE);
    if (all_came != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

volatile std::sig_atomic_t exit_code = 0;

extern "C" void end_process(int /*signal*/) {
  _exit(exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  MPI_Init(&argc, &argv);
  flopcast::Crew crew;
  crew.shares = true;
  bool all_came = true;
  crew.meet = [&all_came] { all_came = meet(); };
  MPI_Comm_rank(MPI_COMM_WORLD, &crew.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &crew.size);
  const flopcast::Streams streams{stdout, stderr};
  const int code = flopcast::exit_code_of(
      [&] { return run(flopcast::Arguments(argv + 1, argv + argc), crew, streams); }, crew.leads(), streams);
  // A pending barrier that a lost rank never reaches would prevent MPI from ending, as can the loss itself. All results
  // are in files by now.
  if (!all_came) std::_Exit(code);
  exit_code = code;
  std::signal(SIGALRM, end_process);
  constexpr unsigned kPatience = 5;
  alarm(kPatience);
  MPI_Finalize();
  return code;
}
