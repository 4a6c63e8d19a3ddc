// flopcast-measure: times this machine. Started by `flopcast calibrate`; talks through the measurement file.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "model/error/error.hpp"
#include "realrun/measure/host.hpp"
#include "realrun/measure/measure_cpu.hpp"

namespace {

constexpr int kBug = 1;
constexpr int kBadInput = 2;
constexpr int kEnvironmentFailed = 4;

struct Wishes {
  flopcast::CpuSet set;
  std::string file;
};

std::vector<int> group_sizes(const std::string& text) {
  constexpr long kMostRanks = 64;
  std::vector<int> sizes;
  const char* rest = text.c_str();
  while (true) {
    char* end = nullptr;
    const long size = std::strtol(rest, &end, 10);
    if (end == rest || size < 2 || size > kMostRanks || (*end != ',' && *end != '\0')) {
      throw flopcast::ConfigError({"--ranks", fmt::format("\"{}\" is no list of group sizes", text), "--ranks",
                                   fmt::format("expected numbers from 2 to {}, such as 2,4", kMostRanks)});
    }
    sizes.push_back(static_cast<int>(size));
    if (*end == '\0') return sizes;
    rest = end + 1;
  }
}

Wishes read(const std::vector<std::string>& arguments) {
  Wishes wishes;
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    const std::string& flag = arguments[index];
    const bool has_value = flag == "-o" || flag == "--ranks";
    if (has_value && index + 1 == arguments.size()) {
      throw flopcast::ConfigError({flag, "needs a value", "", ""});
    }
    if (flag == "--quick") {
      wishes.set.quick = true;
    } else if (flag == "-o") {
      wishes.file = arguments[++index];
    } else if (flag == "--ranks") {
      wishes.set.ranks = group_sizes(arguments[++index]);
    } else {
      throw flopcast::ConfigError({"", fmt::format("unknown flag \"{}\"", flag), "",
                                   "flopcast-measure -o FILE [--quick] [--ranks N,N]; see: flopcast calibrate --help"});
    }
  }
  if (wishes.file.empty()) throw flopcast::ConfigError({"-o", "is required", "", "give the measurement file"});
  return wishes;
}

void measure(const Wishes& wishes) {
  flopcast::MeasurementFile file(wishes.file, flopcast::describe_host());
  const bool terminal = isatty(STDERR_FILENO) == 1;
  flopcast::measure_cpu(wishes.set, flopcast::this_host(), file,
                        [terminal](std::size_t done, std::size_t all, const flopcast::SampleKey& next) {
                          if (!terminal) return;
                          std::fputs(fmt::format("\r\033[Kmeasuring {}/{}: {}", done + 1, all, next.text()).c_str(),
                                     stderr);
                        });
  if (terminal) std::fputs("\r\033[K", stderr);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    measure(read(std::vector<std::string>(argv + 1, argv + argc)));
    return 0;
  } catch (const flopcast::ConfigError& error) {
    std::fputs(fmt::format("{}\n", error.what()).c_str(), stderr);
    return kBadInput;
  } catch (const flopcast::EnvironmentError& error) {
    std::fputs(fmt::format("error: {}\n", error.what()).c_str(), stderr);
    return kEnvironmentFailed;
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory\n", stderr);
    return kEnvironmentFailed;
  } catch (const std::exception& error) {
    std::fputs(fmt::format("internal error: {}\n", error.what()).c_str(), stderr);
    return kBug;
  }
}
