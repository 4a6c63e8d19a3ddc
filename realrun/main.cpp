#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <new>

#include "model/config/document.hpp"
#include "model/config/read_job.hpp"
#include "model/error/error.hpp"
#include "realrun/launch/command_line.hpp"
#include "realrun/launch/result_file.hpp"
#include "realrun/launch/run_file.hpp"

namespace flopcast::realrun {
namespace {

std::string read_text_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw ConfigError({"", fmt::format("{} cannot be read", path), path, {}});
  return text;
}

// Set by a signal; the run notices at its next action, writes what it has and ends.
std::atomic<int> interruption{0};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void interrupt(int signal) {
  interruption = signal;
}

// A second signal ends the process at once.
void take_signals() {
  struct sigaction action {};
  action.sa_handler = interrupt;
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // Writing where nobody reads, or past a limit, fails like writing to a full disk.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void complain(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
}

constexpr int kEnvironmentFailed = 4;

// A rank that hangs may still write to its results: what was kept after the last step has to do.
[[noreturn]] void end_process(const std::string& failure) {
  complain("error: " + failure);
  std::_Exit(kEnvironmentFailed);
}

int launch(const LaunchOptions& options) {
  if (options.help) {
    std::fputs(launch_help().c_str(), stdout);
    return 0;
  }
  Origins origins;
  nlohmann::json root = nlohmann::json::object();
  if (options.job_file) {
    root = parse_json(read_text_file(*options.job_file), *options.job_file);
    origins.file = *options.job_file;
  }
  apply_flags(options.flags, root, origins);
  const PreparedStep step = prepare(read_job(root, origins), read_text_file);
  const TrainingPlan plan = plan_from_job(step, options.settings);
  std::vector<RankResult> results(static_cast<std::size_t>(plan.ranks()));
  const HostLoadMeter meter;
  ResultFile file(options.output, [&](const std::string& failure) {
    return run_file(plan, results, {options.backend, root, failure, options.warmup, meter.load()}).dump() + "\n";
  });
  file.keep();
  std::string failure;
  try {
    train_on_threads(
        plan,
        {.patience = std::chrono::seconds(options.patience_s), .interruption = &interruption, .abandon = end_process},
        results, [&](Transport& transport) {
          if (transport.rank() == 0) file.keep();
        });
  } catch (const EnvironmentError& error) {
    failure = error.what();
  }
  file.finish(failure);
  if (!failure.empty()) throw EnvironmentError(failure);
  return 0;
}

}  // namespace
}  // namespace flopcast::realrun

int main(int argc, char** argv) {
  using flopcast::realrun::complain;
  flopcast::realrun::take_signals();
  try {
    return flopcast::realrun::launch(
        flopcast::realrun::parse_launch_options(std::vector<std::string>(argv + 1, argv + argc)));
  } catch (const flopcast::ConfigError& error) {
    complain(error.what());
    return 2;
  } catch (const flopcast::EnvironmentError& error) {
    complain(fmt::format("error: {}", error.what()));
    return flopcast::realrun::kEnvironmentFailed;
  } catch (const std::bad_alloc&) {
    complain("error: out of memory");
    return flopcast::realrun::kEnvironmentFailed;
  } catch (const std::exception& error) {
    complain(
        fmt::format("internal error: {}\nThis is a bug of flopcast; please report it with the command.", error.what()));
    return 1;
  }
}
