#include <csignal>
#include <cstdio>

#include "cli/commands.hpp"
#include "cli/exit_code.hpp"

namespace flopcast {

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> entries = {
      {"plan", "every layout of a model on a cluster, ranked: which, how many GPUs, how long, what it costs", run_plan},
      {"simulate", "one layout: step time, MFU, bubble, communication, memory", run_simulate},
      {"memory", "memory of each pipeline rank, at its peak and over time", run_memory},
      {"compare", "layouts side by side, the difference term by term; strategies; optimizations", run_compare},
      {"sweep", "a forecast for every combination of values: table, CSV, heat map", run_sweep},
      {"timeline", "draw a step, or a schedule without any model", run_timeline},
      {"schedule", "list, show, check, simulate and export pipeline schedules", run_schedule, true},
      {"calibrate", "a device profile out of measurements; measure this machine", run_calibrate},
      {"partition", "which layers go to which pipeline stage", run_partition},
      {"validate", "forecast against measured steps: an error table that hides no row", run_validate},
      {"run", "train for real on this machine, forecast beside measurement", run_run},
      {"report", "one HTML file of results, to look at and to send", run_report},
      {"catalog", "models, devices, clusters, schedules and stacks that have names", run_catalog},
      {"convert", "the job that files of other programs mean, as a job file", run_convert},
      {"explain", "a term, its formula and its source, with your job's numbers", run_explain},
      {"completion", "shell completion for bash, zsh and fish", run_completion},
  };
  return entries;
}

}  // namespace flopcast

namespace {

int run(const flopcast::Arguments& arguments) {
  if (!arguments.empty() && arguments.front() == "--version") {
    std::fputs("flopcast " FLOPCAST_VERSION "\n", stdout);
    return 0;
  }
  return flopcast::dispatch("flopcast",
                            "flopcast forecasts distributed deep-learning training before the cluster is rented.\n\n"
                            "  flopcast simulate --model gpt3-175b --cluster 8xdgx-a100-80g --tp 8 --pp 8 --gbs 64\n"
                            "  flopcast memory job.json --check\n"
                            "  flopcast timeline --pp 4 --microbatches 8 --schedule gpipe,1f1b",
                            flopcast::commands(), arguments);
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that has seen enough closes the pipe; that ends the output, not the program.
  std::signal(SIGPIPE, SIG_IGN);
  return flopcast::exit_code_of([&] { return run(flopcast::Arguments(argv + 1, argv + argc)); }, true);
}
