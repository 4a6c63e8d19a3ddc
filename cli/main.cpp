#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "cli/commands.hpp"
#include "model/error/error.hpp"

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

constexpr int kDone = 0;
constexpr int kBug = 1;
constexpr int kBadInput = 2;
constexpr int kAnswerIsNo = 3;
constexpr int kEnvironmentFailed = 4;

void complain(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
}

int run(const flopcast::Arguments& arguments) {
  if (!arguments.empty() && arguments.front() == "--version") {
    std::fputs("flopcast " FLOPCAST_VERSION "\n", stdout);
    return kDone;
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
  try {
    return run(flopcast::Arguments(argv + 1, argv + argc));
  } catch (const flopcast::ConfigError& error) {
    complain(error.what());
    return kBadInput;
  } catch (const flopcast::NegativeAnswer& answer) {
    complain(answer.what());
    return kAnswerIsNo;
  } catch (const flopcast::EnvironmentError& error) {
    complain(fmt::format("error: {}", error.what()));
    return kEnvironmentFailed;
  } catch (const std::bad_alloc&) {
    complain("error: out of memory");
    return kEnvironmentFailed;
  } catch (const std::exception& error) {
    complain(
        fmt::format("internal error: {}\nThis is a bug of flopcast; please report it with the command.", error.what()));
    return kBug;
  }
}
