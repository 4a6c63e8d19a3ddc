// fuzz [--target NAME]... [--readers] [--seconds N | --executions N] [--seed N] [--counts FILE] [--keep FOLDER]: runs
// commands on mutated inputs, and checks invariants of forecasts on random jobs ("jobs"); with --readers, only the
// readers. Each target runs in a separate process: an input that crashes it is kept in the folder. The same seed gives
// the same inputs; --emit FOLDER writes them to files instead. Exits with 1 if there was a fault.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "tests/fuzz/job_invariants.hpp"
#include "tests/fuzz/mutation.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

constexpr const char* kJobs = "jobs";
constexpr double kSlow_s = 5.0;            // of processor time; an input that takes longer is a fault
constexpr int kHanging_s = 60;             // ends the process
constexpr long kMostMemory_kb = 4L << 20;  // peak memory above this is a fault; includes the sanitizer's own

struct Options {
  std::vector<std::string> targets;
  double seconds = 8.0;
  std::int64_t executions = 0;  // 0: as many as fit into the seconds
  std::uint64_t seed = 1;
  std::string counts;
  std::filesystem::path keep = "build/fuzz";
  bool readers = false;
  std::filesystem::path emit;
};

struct Counts {
  std::int64_t executions = 0;
  std::int64_t faults = 0;
  double seconds = 0.0;
};

double processor_time() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

long most_memory_kb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// One execution: makes an input, calls `begins` with it, and returns the fault, if any.
using Execution =
    std::function<std::optional<std::string>(std::mt19937_64& random, const std::function<void(std::string)>& begins)>;

Execution execution_of(const std::string& name, bool reader, const std::filesystem::path& scratch) {
  if (name == kJobs) {
    return [](std::mt19937_64& random, const std::function<void(std::string)>& begins) -> std::optional<std::string> {
      std::size_t tried = 0;
      const nlohmann::json job = random_job(random, tried);
      begins(job.dump());
      const std::vector<std::string> broken = broken_invariants(job, random);
      if (broken.empty()) return std::nullopt;
      return fmt::format("{}", fmt::join(broken, "; "));
    };
  }
  const auto target = std::find_if(fuzz_targets().begin(), fuzz_targets().end(),
                                   [&name](const FuzzTarget& one) { return one.name == name; });
  return [target, reader, scratch](std::mt19937_64& random, const std::function<void(std::string)>& begins) {
    std::string input = mutated(target->seeds, target->is_json, random);
    begins(input);
    return reader ? fault_of_reader(*target, input) : fault_of(*target, input, scratch);
  };
}

// Each execution has its own generator, so that it can be repeated alone.
std::mt19937_64 random_of(const Options& options, std::int64_t execution) {
  return std::mt19937_64(options.seed * 1'000'000'007ULL + static_cast<std::uint64_t>(execution));
}

class Campaign {
 public:
  Campaign(std::string name, const Options& options) : name_(std::move(name)), options_(options) {}

  Counts run() {
    const TemporaryFolder scratch;
    const Execution execution = execution_of(name_, options_.readers, scratch.path());
    const auto begin = std::chrono::steady_clock::now();
    const auto elapsed = [begin] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    open_current();
    while (options_.executions > 0 ? counts_.executions < options_.executions : elapsed() < options_.seconds) {
      execute(execution);
    }
    counts_.seconds = elapsed();
    close(current_);
    std::filesystem::remove(current());
    return counts_;
  }

 private:
  std::filesystem::path current() const { return options_.keep / (name_ + ".current"); }

  // Kept open, because opening a file takes longer than a reader.
  void open_current() {
    current_ = open(current().c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (current_ < 0) throw std::runtime_error("cannot write " + current().string());
  }
  void keep_current(const std::string& input) const {
    if (pwrite(current_, input.data(), input.size(), 0) != static_cast<ssize_t>(input.size()) ||
        ftruncate(current_, static_cast<off_t>(input.size())) != 0) {
      throw std::runtime_error("cannot write " + current().string());
    }
  }

  void execute(const Execution& execution) {
    std::mt19937_64 random = random_of(options_, counts_.executions);
    ++counts_.executions;
    std::string input;
    watch(kHanging_s);
    const double before = processor_time();
    std::optional<std::string> fault;
    try {
      fault = execution(random, [&](std::string text) {
        input = std::move(text);
        keep_current(input);
      });
    } catch (const std::exception& error) {
      fault = std::string("exception: ") + error.what();
    }
    watch(0);
    const double spent = processor_time() - before;
    if (!fault && spent > kSlow_s) fault = fmt::format("takes {:.1f} s", spent);
    if (!fault && most_memory_kb() > kMostMemory_kb && !told_memory_) {
      told_memory_ = true;
      fault = fmt::format("takes {} MB", most_memory_kb() >> 10);
    }
    if (fault) report(*fault, input);
  }

  // Processor time, so that a loaded machine does not cause a hang.
  static void watch(int seconds) {
    const itimerval timer = {{0, 0}, {seconds, 0}};
    setitimer(ITIMER_PROF, &timer, nullptr);
  }

  void report(const std::string& fault, const std::string& input) {
    constexpr std::int64_t kMostKept = 20;
    if (++counts_.faults > kMostKept) return;
    const std::filesystem::path kept = options_.keep / fmt::format("{}.{}.fault", name_, counts_.executions - 1);
    write_text(kept, input);
    std::fputs(fmt::format("{}: {}\n  {}\n", name_, kept.string(), fault).c_str(), stderr);
  }

  std::string name_;
  const Options& options_;
  Counts counts_;
  int current_ = -1;
  bool told_memory_ = false;
};

// Runs a target in a separate process, because a signal is a fault too.
Counts run_apart(const std::string& name, const Options& options) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    const Counts counts = Campaign(name, options).run();
    const bool told = write(ends[1], &counts, sizeof(counts)) == static_cast<ssize_t>(sizeof(counts));
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  Counts counts;
  const bool whole = read(ends[0], &counts, sizeof(counts)) == static_cast<ssize_t>(sizeof(counts));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (whole && WIFEXITED(status) && WEXITSTATUS(status) == 0) return counts;
  const std::filesystem::path current = options.keep / (name + ".current");
  const std::filesystem::path kept = options.keep / (name + ".ended.fault");
  std::error_code ignored;
  std::filesystem::rename(current, kept, ignored);
  std::fputs(fmt::format("{}: the process ended with {} {}; its input: {}\n", name,
                         WIFSIGNALED(status) ? "signal" : "exit code",
                         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), kept.string())
                 .c_str(),
             stderr);
  counts.faults = 1;
  return counts;
}

[[noreturn]] void refuse(const std::string& why) {
  std::fputs(fmt::format("error: {}\n", why).c_str(), stderr);
  std::exit(2);
}

Options read_options(int argc, char** argv) {
  std::vector<std::string> known = {kJobs};
  for (const FuzzTarget& target : fuzz_targets()) known.push_back(target.name);
  Options options;
  for (int index = 1; index < argc; ++index) {
    const std::string flag = argv[index];
    if (flag == "--list") {
      for (const std::string& name : known) std::puts(name.c_str());
      std::exit(0);
    }
    if (flag == "--readers") {
      options.readers = true;
      continue;
    }
    if (++index == argc) refuse(flag + " needs a value");
    const std::string value = argv[index];
    if (flag == "--target") {
      if (std::find(known.begin(), known.end(), value) == known.end())
        refuse("unknown target " + value + "; see --list");
      options.targets.push_back(value);
    } else if (flag == "--seconds") {
      options.seconds = std::stod(value);
    } else if (flag == "--executions") {
      options.executions = std::stoll(value);
    } else if (flag == "--seed") {
      options.seed = std::stoull(value);
    } else if (flag == "--counts") {
      options.counts = value;
    } else if (flag == "--emit") {
      options.emit = value;
    } else if (flag == "--keep") {
      options.keep = value;
    } else {
      refuse("unknown option " + flag);
    }
  }
  if (options.targets.empty()) options.targets = known;
  if (options.readers) {
    options.targets.erase(std::remove(options.targets.begin(), options.targets.end(), kJobs), options.targets.end());
  }
  return options;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr const char* kBuild = "sanitized";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr const char* kBuild = "sanitized";
#else
constexpr const char* kBuild = "plain";
#endif
#else
constexpr const char* kBuild = "plain";
#endif

int emit_all(const Options& options) {
  std::filesystem::create_directories(options.emit);
  for (const FuzzTarget& target : fuzz_targets()) {
    if (std::find(options.targets.begin(), options.targets.end(), target.name) == options.targets.end()) continue;
    for (std::int64_t execution = 0; execution < options.executions; ++execution) {
      std::mt19937_64 random = random_of(options, execution);
      write_text(options.emit / fmt::format("{}.{}", target.name, execution),
                 mutated(target.seeds, target.is_json, random));
    }
  }
  return 0;
}

int run_all(const Options& options) {
  if (!options.emit.empty()) return emit_all(options);
  std::filesystem::create_directories(options.keep);
  std::int64_t faults = 0;
  for (const std::string& name : options.targets) {
    const Counts counts = run_apart(name, options);
    faults += counts.faults;
    const std::string line = fmt::format("{}{}\t{}\t{}\t{}\t{}\t{:.0f}\n", name, options.readers ? " reader" : "",
                                         kBuild, options.seed, counts.executions, counts.faults, counts.seconds);
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
    if (options.counts.empty()) continue;
    std::FILE* file = std::fopen(options.counts.c_str(), "ae");
    if (file == nullptr || std::fputs(line.c_str(), file) < 0 || std::fclose(file) != 0)
      refuse("cannot write " + options.counts);
  }
  return faults == 0 ? 0 : 1;
}

}  // namespace
}  // namespace flopcast

int main(int argc, char** argv) {
  return flopcast::run_all(flopcast::read_options(argc, argv));
}
