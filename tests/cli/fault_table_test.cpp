// Every fault of faults.tsv, planted in a real `flopcast run`: the run ends in time as the table states, and leaves no
// incomplete file, no temporary file and no process.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;
using Steady = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr const char* kMark = "FLOPCAST_TEST_FAULT";
constexpr int kKilled = 128 + SIGKILL;

struct Fault {
  std::string backend, phase, whom, what;
  int exit_code = 0;
  std::string says;

  std::string name() const { return backend + ", " + phase + ", " + whom + ", " + what; }
  bool is_signal() const { return whom != "run"; }
};

std::string contents_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::vector<Fault> faults_of(const std::string& backend) {
  std::istringstream table(contents_of(project_folder() / "tests/cli/faults.tsv"));
  std::vector<Fault> faults;
  for (std::string line; std::getline(table, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream cells(line);
    Fault fault;
    std::string code;
    for (std::string* cell : {&fault.backend, &fault.phase, &fault.whom, &fault.what, &code, &fault.says}) {
      std::getline(cells, *cell, '\t');
    }
    fault.exit_code = std::atoi(code.c_str());
    if (fault.backend == backend) faults.push_back(fault);
  }
  return faults;
}

const std::map<std::string, int> kSignals = {{"KILL", SIGKILL}, {"TERM", SIGTERM}, {"INT", SIGINT},  {"HUP", SIGHUP},
                                             {"SEGV", SIGSEGV}, {"ABRT", SIGABRT}, {"STOP", SIGSTOP}};

/// Processes of one run, identified by a mark in their environment.
struct Crew {
  std::optional<pid_t> flopcast;
  std::optional<pid_t> launcher;
  std::map<int, pid_t> ranks;
  bool any = false;  ///< true if any process is alive
};

pid_t parent_of(const fs::path& process) {
  const std::string status = contents_of(process / "status");
  const std::size_t place = status.find("PPid:");
  return place == std::string::npos ? 0 : static_cast<pid_t>(std::atol(status.c_str() + place + 5));
}

Crew crew_of(const std::string& mark) {
  Crew crew;
  const std::string wanted = std::string(kMark) + "=" + mark;
  const std::string place = "OMPI_COMM_WORLD_RANK=";
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const pid_t process = static_cast<pid_t>(std::atol(entry.path().filename().c_str()));
    if (process <= 0) continue;
    std::istringstream environment(contents_of(entry.path() / "environ"));
    bool is_ours = false;
    std::optional<int> rank;
    for (std::string word; std::getline(environment, word, '\0');) {
      is_ours = is_ours || word == wanted;
      if (word.rfind(place, 0) == 0) rank = std::atoi(word.c_str() + place.size());
    }
    if (!is_ours) continue;
    crew.any = true;
    const std::string name = contents_of(entry.path() / "comm");
    // A forked child has its parent's name for a moment.
    if (name == "flopcast\n" && parent_of(entry.path()) == getpid()) crew.flopcast = process;
    if (name == "mpirun\n" || name == "orterun\n") crew.launcher = process;
    if (name == "flopcast-run\n" && rank) crew.ranks[*rank] = process;
    if (name == "flopcast-run\n" && !rank) crew.launcher = process;
  }
  return crew;
}

/// One run with its fault.
class Planted {
 public:
  Planted(const Fault& fault, std::size_t number)
      : fault_(fault),
        mark_(std::to_string(getpid()) + "-" + std::to_string(number)),
        folder_(fs::temp_directory_path() / ("flopcast-fault-" + mark_)),
        job_(folder_ / "job.json"),
        results_(folder_ / "results"),
        temporary_(folder_ / "temporary"),
        file_(fault.what == "read-only" ? fs::path("/proc/measured.json") : results_ / "measured.json") {
    fs::create_directories(results_);
    fs::create_directories(temporary_);
    // To exhaust memory: stacks of 64 threads, or 400 MB per process.
    const std::string ranks = is_crowded() ? "64" : "4";
    const std::string layers = is_crowded() ? "64" : is_large() ? "8" : "4";
    std::ofstream(job_) << R"({"model": {"heads": 4, "vocab": 32, "sequence_length": 8, "hidden": )"
                        << (is_large() ? "1024" : "16") << R"(, "layers": )" << layers
                        << R"(}, "cluster": {"name": "dgx-a100-80g", "nodes": [{"devices": )" << ranks
                        << R"(}]}, "layout": {"global_batch_size": 8, "pp": )" << ranks
                        << R"(}, "training": {"precision": "fp32"}})";
  }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
  ~Planted() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  /// Deviations from the table; empty if there are none.
  std::string message_of() {
    auto other = fault_.what == "two runs" ? start() : std::future<CommandResult>();
    auto running = start();
    const bool planted = plant();
    const auto begin = Steady::now();
    const CommandResult result = running.get();
    const auto took = Steady::now() - begin;
    if (other.valid() && other.get().exit_code != fault_.exit_code) print_error("the other run failed");
    if (!planted) print_error("the phase was not seen");
    if (result.timed_out) print_error("it did not end");
    if (result.exit_code != fault_.exit_code) print_error("exit code " + std::to_string(result.exit_code));
    if (!is_said(result.standard_error)) print_error("nothing says so");
    if (result.exit_code == kKilled && took > kTimeout + kSpare) print_error("it took long to die");
    look_around(Steady::now());
    return complaints_.empty() ? "" : complaints_ + "\n    " + result.standard_error;
  }

 private:
  static constexpr auto kTimeout = std::chrono::seconds(2);
  static constexpr auto kSpare = std::chrono::seconds(3);
  static constexpr auto kLoaded = std::chrono::seconds(40);  // time until a phase begins on a busy machine

  void print_error(const std::string& text) { complaints_ += (complaints_.empty() ? "" : "; ") + text; }

  bool is_crowded() const { return fault_.what == "no memory" && fault_.backend == "threads"; }

  bool is_large() const { return fault_.what == "no memory" && fault_.backend == "mpi"; }

  Words words() const {
    // Long steps if the run is ended in a step, so that the step can be found; short steps if the run ends on its own.
    const bool ends_itself = fault_.exit_code == 0 || fault_.phase == "end";
    const std::string steps = fault_.what == "small files"                       ? "60"
                              : fault_.phase == "end"                            ? "2"
                              : fault_.phase == "step" && fault_.what == "pause" ? "16"
                              : ends_itself                                      ? "4"
                                                                                 : "500";
    Words words = {FLOPCAST_PROGRAM, "run",       job_.string(), "--compute", "sleep", "--forward", "5ms", "--backward",
                   "10ms",           "--timeout", "2",           "--warmup",  "1",     "--steps",   steps, "--backend",
                   fault_.backend,   "-o",        file_.string()};
    if (fault_.what == "full output") words.back() = "/dev/full";
    if (fault_.what == "full disk") words.insert(words.end(), {"--trace", "/dev/full"});
    const std::map<std::string, std::string> limits = {{"small files", "-f 60"},
                                                       {"no memory", "-v 300000"},
                                                       {"no descriptors", fault_.backend == "mpi" ? "-n 8" : "-n 4"}};
    const auto limit = limits.find(fault_.what);
    if (limit == limits.end()) return words;
    // Descriptors of this test's other runs must not be inherited.
    Words limited = {"sh", "-c", "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit " + limit->second + "; exec \"$@\"",
                     "sh"};
    limited.insert(limited.end(), words.begin(), words.end());
    return limited;
  }

  std::future<CommandResult> start() const {
    CommandOptions options;
    options.environment = {{"TMPDIR", fault_.what == "no temporary folder" ? "/nowhere" : temporary_.string()},
                           {kMark, mark_},
                           {"OMPI_MCA_mpi_yield_when_idle", "1"},
                           {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                           {"OMPI_MCA_orte_tmpdir_base", folder_.string()}};
    if (fault_.what == "no mpirun") options.environment["PATH"] = "/nowhere";
    return std::async(std::launch::async, [words = words(), options] { return run_command(words, options); });
  }

  std::optional<std::size_t> steps_in_file() const {
    const Json file = Json::parse(contents_of(file_), nullptr, false);
    return file.is_discarded() ? std::nullopt : std::optional(file.at("run").at("steps").size());
  }

  bool is_in_phase(const Crew& crew) const {
    const bool has_ranks = fault_.backend == "mpi" ? crew.ranks.size() == 4 : crew.launcher.has_value();
    if (!crew.flopcast || !crew.launcher || !has_ranks) return false;
    if (fault_.phase == "set-up") return true;
    const std::optional<std::size_t> steps = steps_in_file();
    return fault_.phase == "calibration" ? steps.has_value() : steps.value_or(0) > 0;
  }

  // In a run of two steps, the first is in the file as soon as it has finished; the second takes 0.17 s, and the rest
  // at least 0.6 s.
  bool plant() const {
    if (!fault_.is_signal() && fault_.what != "folder removed") return true;
    const auto deadline = Steady::now() + kLoaded;
    Crew crew;
    for (crew = crew_of(mark_); !is_in_phase(crew); crew = crew_of(mark_)) {
      if (Steady::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    if (fault_.phase == "end") std::this_thread::sleep_for(std::chrono::milliseconds(350));
    if (fault_.phase == "calibration") std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (fault_.what == "folder removed") return fs::remove_all(results_) > 0;
    std::vector<pid_t> targets;
    if (fault_.whom == "flopcast") targets = {*crew.flopcast};
    if (fault_.whom == "launcher") targets = {*crew.launcher};
    if (fault_.whom == "group") targets = {-getpgid(*crew.flopcast)};
    if (fault_.whom == "rank 0") targets = {crew.ranks.at(0)};
    if (fault_.whom == "rank 1") targets = {crew.ranks.at(1)};
    if (fault_.whom == "ranks") {
      for (const auto& [rank, process] : crew.ranks) targets.push_back(process);
    }
    const bool pauses = fault_.what == "pause";
    for (const pid_t target : targets) kill(target, pauses ? SIGSTOP : kSignals.at(fault_.what));
    if (!pauses) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    for (const pid_t target : targets) kill(target, SIGCONT);
    return true;
  }

  bool is_said(const std::string& text) const {
    if (fault_.says == "-") return true;
    std::istringstream choices(fault_.says);
    for (std::string words; std::getline(choices, words, '|');) {
      if (text.find(words) != std::string::npos) return true;
    }
    return false;
  }

  // Checks for leftovers after every process has had time to end.
  void look_around(Steady::time_point begin) {
    const auto deadline = begin + kTimeout + kSpare;
    std::string left = leftovers();
    for (; !left.empty() && Steady::now() < deadline; left = leftovers()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (!left.empty()) print_error(left);
    const std::string text = contents_of(file_);
    if (!text.empty() && !Json::accept(text)) print_error("half a file");
  }
  std::string leftovers() const {
    std::string left = crew_of(mark_).any ? "a process lives" : "";
    std::error_code gone;
    for (const fs::path& folder : {results_, temporary_}) {
      for (fs::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
        if (entry->path() != file_) left += " " + entry->path().string() + " is left";
      }
      gone.clear();
    }
    return left;
  }

  const Fault& fault_;
  std::string mark_;
  fs::path folder_, job_, results_, temporary_, file_;
  std::string complaints_;
};

// Runs mostly wait, so several are run at a time.
void plant_all(const std::vector<Fault>& faults, int at_a_time) {
  ASSERT_GE(faults.size(), 35U);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::vector<std::thread> planters;
  for (int planter = 0; planter < at_a_time; ++planter) {
    planters.emplace_back([&] {
      for (std::size_t index = 0; (index = next++) < faults.size();) {
        const std::string message_of = Planted(faults[index], index).message_of();
        const std::lock_guard lock(mutex);
        EXPECT_EQ(message_of, "") << faults[index].name();
      }
    });
  }
  for (std::thread& planter : planters) planter.join();
}

TEST(FaultTable, RanksThatAreThreads) {
  plant_all(faults_of("threads"), 4);
}

TEST(FaultTable, RanksThatAreProcesses) {
#ifdef FLOPCAST_HAS_MPI
  plant_all(faults_of("mpi"), 3);
#else
  GTEST_SKIP() << "built without MPI";
#endif
}

}  // namespace
}  // namespace flopcast
