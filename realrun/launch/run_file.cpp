#include "realrun/launch/launch.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <map>
#include <utility>

#include "base/host/files.hpp"
#include "base/host/processes.hpp"
#include "base/text/error.hpp"
#include "realrun/device/device.hpp"
#include "realrun/network/kernels.hpp"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace flopcast::realrun {

namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

// The first steps warm up caches and branch predictors: they are omitted if there are others.
std::vector<RecordedSample> samples_of(const std::vector<RankResult>& ranks, int warmup) {
  std::map<std::pair<SpanKind, int>, std::vector<double>> seconds;  // by kind and stage
  const std::size_t first =
      std::min(static_cast<std::size_t>(warmup), std::max<std::size_t>(1, finished_steps(ranks)) - 1);
  for (const RankResult& rank : ranks) {
    for (std::size_t step = first; step < rank.steps.size(); ++step) {
      for (const Span& span : rank.steps[step].record.spans) {
        seconds[{span.kind, is_action(span.kind) ? span.action.stage : -1}].push_back(
            static_cast<double>(span.end - span.start) * kSecondsPerTick);
      }
    }
  }
  std::vector<RecordedSample> samples;
  for (auto& [key, values] : seconds) samples.push_back({key.first, key.second, std::move(values)});
  return samples;
}

std::vector<RecordedTraffic> traffic_of(const SentTraffic& sent) {
  std::vector<RecordedTraffic> traffic;
  const TrafficCount& p2p = sent.point_to_point;
  if (p2p.messages > 0) traffic.push_back({"p2p", Axis::kPipeline, p2p.messages, p2p.bytes});
  for (const auto& [key, count] : sent.collectives) {
    std::string kind(name_of(key.first));
    std::replace(kind.begin(), kind.end(), '_', '-');
    traffic.push_back({kind, key.second, count.messages, count.bytes});
  }
  return traffic;
}

std::vector<RecordedStep> steps_of(const std::vector<RankResult>& ranks) {
  std::vector<RecordedStep> steps;
  for (const double loss : mean_losses(ranks)) {
    const std::size_t index = steps.size();
    RecordedStep& step = steps.emplace_back();
    step.loss = loss;
    step.microbatch_losses = microbatch_losses(ranks, index);
    for (const RankResult& rank : ranks) {
      step.wall_s.push_back(rank.steps[index].wall_seconds);
      step.cpu_s.push_back(rank.steps[index].cpu_seconds);
      step.traffic.push_back(traffic_of(rank.steps[index].traffic));
    }
    step.timeline = timeline_of(ranks, index);
  }
  return steps;
}

std::vector<Timeline> calibration_steps(const std::vector<RankResult>& ranks,
                                        std::vector<StepRecord> RankCalibration::*steps) {
  std::size_t count = (ranks.front().calibration.*steps).size();
  for (const RankResult& rank : ranks) count = std::min(count, (rank.calibration.*steps).size());
  std::vector<Timeline> timelines;
  for (std::size_t step = 0; step < count; ++step) timelines.push_back(calibration_of(ranks, steps, step));
  return timelines;
}

}  // namespace

std::string run_file(const TrainingPlan& plan, const std::vector<RankResult>& ranks, RunRecord about) {
  RunRecord& run = about;
  run.host = host_name();
  run.date = utc_now();
  if (run.device.empty()) {
    run.device = "cpu";
    run.dtype = "fp32";
    run.libraries = {{"gemm", product_library().name}};
  }
  run.samples = samples_of(ranks, run.warmup);
  run.schedule = plan.program.schedule;
  run.pipeline_ranks = plan.pipeline_ranks();
  run.dp = plan.replicas();  // includes context-parallel ranks, which hold the same weights
  run.tp = plan.tp;
  run.zero = plan.zero;
  run.compression = plan.compression.text();
  run.microbatches = plan.microbatches();
  run.micro_batch_size = plan.micro_batch_size;
  run.learning_rate = plan.optimizer.rate;
  run.seed = plan.network.seed;
  run.sleep = plan.sleep;
  run.calibration = calibration_steps(ranks, &RankCalibration::steps);
  run.later_calibration = calibration_steps(ranks, &RankCalibration::later_steps);
  for (const RankResult& rank : ranks) {
    run.peak_activation_bytes.push_back(rank.peak_activation_bytes);
    for (const MessageTimes& times : rank.calibration.messages) {
      run.messages.push_back({times.key.stage, times.key.activation, times.one_way, times.receive, times.bytes});
    }
  }
  run.steps = steps_of(ranks);
  return write_run_record(run);
}

namespace {

void keep_text(const std::string& path, const std::string& text) {
  if (const auto reason = try_write_file(path, text))
    throw EnvironmentError(fmt::format("cannot write {}: {}", path, *reason));
}

}  // namespace

ResultFile::ResultFile(std::string path, Contents contents) : path_(std::move(path)), contents_(std::move(contents)) {}

bool ResultFile::replaceable() const {
  return !path_.empty() && !is_pipe_or_device(path_);
}

void ResultFile::keep() {
  constexpr int kWithoutPause = 2;  // before and after the first step
  constexpr int kMostOften = 20;
  const Clock::time_point start = Clock::now();
  if (!replaceable() || (kept_ >= kWithoutPause && start < next_)) return;
  keep_text(path_, contents_("killed, or still running"));
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
  if (!written) throw EnvironmentError(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

void run_with_result_file(const LaunchOptions& options, const PreparedRun& run, RunRecord about,
                          const std::function<void(std::vector<RankResult>&, const BetweenSteps&)>& train) {
  std::vector<RankResult> results(static_cast<std::size_t>(run.plan.ranks()));
  const HostLoadMeter meter;
  about.job = run.job;
  about.warmup = options.warmup;
  ResultFile file(options.output, [&](const std::string& failure) {
    about.failure = failure;
    about.load = meter.load();
    return run_file(run.plan, results, about);
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
  try {
    file.finish(failure);
  } catch (const std::exception& error) {
    const std::string unwritten = error.what();
    if (failure.empty()) throw;
    if (failure.find(unwritten) == std::string::npos) failure += "; " + unwritten;
  }
  if (!failure.empty()) throw EnvironmentError(failure);
}

namespace {

double seconds_in(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double own_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds_in(usage.ru_utime) + seconds_in(usage.ru_stime);
}

// Busy time of all processors together: user, nice, system, (idle, iowait), irq, softirq, steal; see proc(5).
double busy_seconds() {
  std::ifstream stream("/proc/stat");
  std::string name;
  stream >> name;
  constexpr std::array<bool, 8> kCounts = {true, true, true, false, false, true, true, true};
  double ticks = 0;
  for (const bool counts : kCounts) {
    double value = 0;
    stream >> value;
    ticks += counts ? value : 0;
  }
  return stream ? ticks / static_cast<double>(sysconf(_SC_CLK_TCK)) : 0;
}

double wall_seconds() {
  return static_cast<double>(host_clock()) * 1e-12;
}

}  // namespace

HostLoadMeter::HostLoadMeter() : wall_(wall_seconds()), own_(own_cpu_seconds()), busy_(busy_seconds()) {}

MeasuredLoad HostLoadMeter::load() const {
  MeasuredLoad load;
  load.wall_s = wall_seconds() - wall_;
  load.own_cpu_s = own_cpu_seconds() - own_;
  load.others_cpu_s = std::max(0.0, busy_seconds() - busy_ - load.own_cpu_s);
  load.cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return load;
}

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestAllowed = 32 * 1024 * 1024;
  mallopt(M_MMAP_THRESHOLD, kLargestAllowed);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

}  // namespace flopcast::realrun
