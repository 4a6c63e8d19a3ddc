#include "realrun/rendezvous/store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

#include "base/text/error.hpp"

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
          fmt::format("{} has not come within {} s", what, static_cast<double>(patience.count()) / 1000.0));
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
    if (error) throw EnvironmentError(fmt::format("the folder {} cannot be made: {}", folder, error.message()));
  }

  void set(const std::string& key, const std::string& value) override {
    std::error_code error;
    fs::rename(written(value), place_of(key), error);
    if (error) throw EnvironmentError(fmt::format("{} cannot be written: {}", place_of(key).string(), error.message()));
  }

  bool set_once(const std::string& key, const std::string& value) override {
    const fs::path whole = written(value);
    // A second name is given only where there is none yet, whoever else tries.
    const int result = link(whole.c_str(), place_of(key).c_str());
    const int problem = errno;
    std::error_code ignored;
    fs::remove(whole, ignored);
    if (result == 0) return true;
    if (problem == EEXIST) return false;
    throw EnvironmentError(fmt::format("{} cannot be written: {}", place_of(key).string(), std::strerror(problem)));
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

  // Nobody ever reads half a value: files get their names when they are whole.
  fs::path written(const std::string& value) {
    static std::atomic<int> files{0};
    fs::path path = folder_ / fmt::format("part-{}-{}", getpid(), ++files);
    std::ofstream stream(path, std::ios::binary);
    stream << value;
    stream.close();
    if (!stream) throw EnvironmentError(fmt::format("{} cannot be written", path.string()));
    return path;
  }

  fs::path folder_;
};

}  // namespace

std::unique_ptr<Store> open_file_store(const std::string& folder) {
  return std::make_unique<FileStore>(folder);
}

}  // namespace flopcast::realrun
