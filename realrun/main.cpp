#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <new>

#include "model/config/document.hpp"
#include "model/config/read_job.hpp"
#include "model/error/error.hpp"
#include "realrun/launch/command_line.hpp"
#include "realrun/launch/run_file.hpp"

namespace flopcast::realrun {
namespace {

std::string read_text_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw ConfigError({"", fmt::format("{} cannot be read", path), path, {}});
  return text;
}

void write_result(const LaunchOptions& options, const nlohmann::ordered_json& file) {
  if (!options.output.empty()) {
    write_whole_file(options.output, file.dump() + "\n");
    return;
  }
  const std::string text = file.dump() + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw EnvironmentError("standard output cannot be written");
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
  std::vector<RankResult> results;
  RunOrigin origin{options.backend, root, options.warmup, {}, {}};
  const HostLoadMeter meter;
  try {
    train_on_threads(plan, {.patience = std::chrono::seconds(options.patience_s)}, results);
  } catch (const EnvironmentError& error) {
    origin.failure = error.what();
  }
  origin.load = meter.load();
  write_result(options, run_file(plan, results, origin));
  if (!origin.failure.empty()) throw EnvironmentError(origin.failure);
  return 0;
}

void complain(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
}

}  // namespace
}  // namespace flopcast::realrun

int main(int argc, char** argv) {
  using flopcast::realrun::complain;
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return flopcast::realrun::launch(
        flopcast::realrun::parse_launch_options(std::vector<std::string>(argv + 1, argv + argc)));
  } catch (const flopcast::ConfigError& error) {
    complain(error.what());
    return 2;
  } catch (const flopcast::EnvironmentError& error) {
    complain(fmt::format("error: {}", error.what()));
    return 4;
  } catch (const std::bad_alloc&) {
    complain("error: out of memory");
    return 4;
  } catch (const std::exception& error) {
    complain(
        fmt::format("internal error: {}\nThis is a bug of flopcast; please report it with the command.", error.what()));
    return 1;
  }
}
