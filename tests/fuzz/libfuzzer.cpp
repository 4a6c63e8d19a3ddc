// The same targets with libFuzzer, which is guided by code coverage: FLOPCAST_FUZZ_TARGET names one. Its seeds are
// written to the folder FLOPCAST_FUZZ_SEEDS, to be passed as the corpus.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/fuzz/targets.hpp"
#include "tests/support/folders.hpp"

namespace {

const flopcast::FuzzTarget& chosen() {
  static const flopcast::FuzzTarget& target = []() -> const flopcast::FuzzTarget& {
    const char* name = std::getenv("FLOPCAST_FUZZ_TARGET");
    for (const flopcast::FuzzTarget& one : flopcast::fuzz_targets()) {
      if (name != nullptr && one.name == name) return one;
    }
    std::fputs("FLOPCAST_FUZZ_TARGET must name a target; see fuzz --list\n", stderr);
    std::exit(2);
  }();
  return target;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* folder = std::getenv("FLOPCAST_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& seed : chosen().seeds) {
    flopcast::write_text(std::filesystem::path(folder) / ("seed-" + std::to_string(number++)), seed);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const flopcast::TemporaryFolder folder;
  const std::string input(reinterpret_cast<const char*>(data), size);
  if (const auto fault = flopcast::fault_of(chosen(), input, folder.path())) {
    std::fprintf(stderr, "%s\n", fault->c_str());
    std::abort();
  }
  return 0;
}
