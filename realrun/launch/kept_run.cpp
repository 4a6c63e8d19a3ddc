#include "realrun/launch/kept_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/host/files.hpp"
#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

void keep_text(const std::string& path, const std::string& text) {
  if (try_write_file(path, text)) throw EnvironmentError(fmt::format("{} cannot be written", path));
}

}  // namespace

ResultFile::ResultFile(std::string path, Contents contents) : path_(std::move(path)), contents_(std::move(contents)) {}

bool ResultFile::replaceable() const {
  return !path_.empty() && !is_pipe_or_device(path_);
}

void ResultFile::keep() {
  constexpr int kWithoutPause = 2;  // before the first step, and behind it
  constexpr int kMostOften = 20;
  const Clock::time_point start = Clock::now();
  if (!replaceable() || (kept_ >= kWithoutPause && start < next_)) return;
  keep_text(path_, contents_("killed, or still under way"));
  ++kept_;
  const Clock::time_point end = Clock::now();
  next_ = end + std::max<Clock::duration>(std::chrono::seconds(1), kMostOften * (end - start));
}

void ResultFile::finish(const std::string& failure) {
  const std::string text = contents_(failure);
  if (!path_.empty()) {
    keep_text(path_, text);
    return;
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw EnvironmentError("standard output cannot be written");
}

void keep_run(const LaunchOptions& options, const PreparedRun& run, RunOrigin origin,
              const std::function<void(std::vector<RankResult>&, const BetweenSteps&)>& train) {
  std::vector<RankResult> results(static_cast<std::size_t>(run.plan.ranks()));
  const HostLoadMeter meter;
  origin.job = run.job;
  origin.warmup = options.warmup;
  ResultFile file(options.output, [&](const std::string& failure) {
    origin.failure = failure;
    origin.load = meter.load();
    return run_file(run.plan, results, origin).dump() + "\n";
  });
  file.keep();
  std::string failure;
  try {
    train(results, [&](RankTransport& transport) {
      if (transport.rank() == 0) file.keep();
    });
  } catch (const EnvironmentError& error) {
    failure = error.what();
  }
  file.finish(failure);
  if (!failure.empty()) throw EnvironmentError(failure);
}

}  // namespace flopcast::realrun
