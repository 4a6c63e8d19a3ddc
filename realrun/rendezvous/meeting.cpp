#include "realrun/rendezvous/meeting.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/host/processes.hpp"
#include "base/text/error.hpp"
#include "realrun/device/device.hpp"

namespace flopcast::realrun {

std::string wait_for(Store& store, const std::string& key, std::chrono::milliseconds patience,
                     const std::string& what) {
  using Steady = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::milliseconds(5);
  const auto deadline = Steady::now() + patience;
  while (true) {
    if (std::optional<std::string> value = store.get(key)) return *value;
    if (const std::optional<std::string> failure = store.get("failure")) throw EnvironmentError(*failure);
    if (Steady::now() >= deadline) {
      throw EnvironmentError(
          fmt::format("{} did not arrive within {} s", what, static_cast<double>(patience.count()) / 1000.0));
    }
    std::this_thread::sleep_for(kPause);
  }
}

namespace {

namespace fs = std::filesystem;

class FileStore : public Store {
 public:
  explicit FileStore(const std::string& folder) : folder_(folder) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) throw EnvironmentError(fmt::format("cannot create the folder {}: {}", folder, error.message()));
  }

  void set(const std::string& key, const std::string& value) override {
    std::error_code error;
    fs::rename(written(value), place_of(key), error);
    if (error) throw EnvironmentError(fmt::format("cannot write {}: {}", place_of(key).string(), error.message()));
  }

  bool set_once(const std::string& key, const std::string& value) override {
    const fs::path whole = written(value);
    // link() fails if the name exists, even if several processes try at once.
    const int result = link(whole.c_str(), place_of(key).c_str());
    const int problem = errno;
    std::error_code ignored;
    fs::remove(whole, ignored);
    if (result == 0) return true;
    if (problem == EEXIST) return false;
    throw EnvironmentError(fmt::format("cannot write {}: {}", place_of(key).string(), std::strerror(problem)));
  }

  std::optional<std::string> get(const std::string& key) override {
    std::ifstream stream(place_of(key), std::ios::binary);
    if (!stream) return std::nullopt;
    return std::string{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

 private:
  fs::path place_of(const std::string& key) const {
    std::string name = key;
    for (char& letter : name) letter = letter == '/' ? '.' : letter;
    return folder_ / name;
  }

  // Values are never read half-written: files get their final names once complete.
  fs::path written(const std::string& value) {
    static std::atomic<int> files{0};
    fs::path path = folder_ / fmt::format("part-{}-{}", getpid(), ++files);
    std::ofstream stream(path, std::ios::binary);
    stream << value;
    stream.close();
    if (!stream) throw EnvironmentError(fmt::format("cannot write {}", path.string()));
    return path;
  }

  fs::path folder_;
};

}  // namespace

std::unique_ptr<Store> open_file_store(const std::string& folder) {
  return std::make_unique<FileStore>(folder);
}

std::string to_string(const Activity& activity) {
  switch (activity.kind) {
    case Activity::Kind::kSetUp:
      return "its set-up";
    case Activity::Kind::kAction:
      return flopcast::to_string(activity.action);
    case Activity::Kind::kFlush:
      return "the end of the step";
    case Activity::Kind::kDone:
      break;
  }
  return "nothing: it has ended";
}

namespace {

std::string here() {
  return fmt::format("process {} on {}", getpid(), host_name());
}

constexpr const char* kHelp =
    "\n  help: a store serves one run: a folder left by an earlier run looks like ranks of this one";

// The first failure is the one that all processes report.
[[noreturn]] void fail(Store& store, const std::string& failure) {
  store.set_once("failure", failure);
  throw EnvironmentError(failure);
}

}  // namespace

void gather_ranks(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience) {
  const std::string count = fmt::format("{}", place.ranks);
  if (!store.set_once("ranks", count) && store.get("ranks") != count) {
    fail(store, fmt::format("rank {} was started as one of {} ranks, but another as one of {}", place.rank, count,
                            store.get("ranks").value_or("?")) +
                    kHelp);
  }
  const std::string key = kRankKey + std::to_string(place.rank);
  if (!store.set_once(key, here())) {
    fail(store,
         fmt::format("two processes are rank {}: {} and {}", place.rank, store.get(key).value_or("?"), here()) + kHelp);
  }
  using Steady = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::milliseconds(5);
  const auto deadline = Steady::now() + patience;
  std::vector<int> missing(static_cast<std::size_t>(place.ranks));
  std::iota(missing.begin(), missing.end(), 0);
  while (true) {
    const auto has_come = [&](int rank) { return store.get(kRankKey + std::to_string(rank)).has_value(); };
    missing.erase(std::remove_if(missing.begin(), missing.end(), has_come), missing.end());
    if (const auto failure = store.get("failure")) throw EnvironmentError(*failure);
    if (missing.empty()) return;
    if (Steady::now() >= deadline) {
      fail(store, fmt::format("of {} ranks, {} {} not arrived within {} s", place.ranks, fmt::join(missing, ", "),
                              missing.size() == 1 ? "has" : "have", static_cast<double>(patience.count()) / 1000.0));
    }
    std::this_thread::sleep_for(kPause);
  }
}

namespace {

constexpr const char* kMachineKey = "clock/machine";
constexpr const char* kSystemKey = "clock/system";

// Identifies this boot of the machine; the same in all its containers.
std::string machine() {
  std::ifstream stream("/proc/sys/kernel/random/boot_id");
  std::string id;
  stream >> id;
  return id;
}

// Difference of the system clock and the steady clock in nanoseconds: in picoseconds the years since 1970 exceed 64
// bits.
std::int64_t system_offset() {
  using std::chrono::nanoseconds;
  return nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count() -
         nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Offset to add to host_clock(), from `offset`, which is exact up to whole periods.
Ticks to_the_host_clock(std::int64_t offset) {
  constexpr Ticks kPicosecondsPerNanosecond = 1000;
  offset = (offset % kHostClockPeriodNs + kHostClockPeriodNs) % kHostClockPeriodNs;
  if (host_clock() / kPicosecondsPerNanosecond + offset >= kHostClockPeriodNs) offset -= kHostClockPeriodNs;
  return offset * kPicosecondsPerNanosecond;
}

}  // namespace

Ticks common_clock_offset(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience) {
  if (place.rank == 0) {
    store.set(kSystemKey, std::to_string(system_offset()));
    store.set(kMachineKey, machine());
    return 0;
  }
  const std::string own = machine();
  if (!own.empty() && wait_for(store, kMachineKey, patience, "the clock of rank 0") == own) return 0;
  constexpr int kReadings = 20;
  std::vector<ClockReading> readings;
  for (int reading = 0; reading < kReadings; ++reading) {
    const Ticks asked = host_clock();
    const std::optional<Ticks> other = store.clock();
    if (!other) break;
    readings.push_back({asked, host_clock(), *other});
  }
  if (!readings.empty()) return -clock_offset(readings);
  return to_the_host_clock(system_offset() - std::stoll(wait_for(store, kSystemKey, patience, "the clock of rank 0")));
}

}  // namespace flopcast::realrun
