#include "tests/structure/rules.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

namespace flopcast {
namespace {

using Names = std::vector<std::string_view>;

/// Sources below `folder` may include files below `may_use`. The first entry that matches a path applies.
struct Layer {
  std::string_view folder;
  Names may_use;
};

const std::vector<Layer>& layers() {
  static const std::vector<Layer> all = {
      {"base/text/", {"base/text/"}},
      {"base/host/", {"base/host/", "base/text/"}},
      {"model/", {"model/", "base/text/"}},
      {"import/", {"import/", "model/", "base/text/"}},
      {"sim/", {"sim/", "model/", "base/text/"}},
      {"planner/tables/", {"planner/", "reports/", "sim/", "import/", "model/", "base/text/"}},
      {"planner/shared/", {"planner/", "sim/", "model/", "base/"}},
      {"planner/",
       {"planner/plan/", "planner/space/", "planner/bounds/", "planner/search/", "planner/compare/", "sim/", "import/",
        "model/", "base/text/"}},
      {"reports/", {"reports/", "sim/", "model/", "base/text/"}},
      {"calibrate/device/", {"calibrate/device/", "model/", "base/text/"}},
      {"calibrate/tables/", {"calibrate/", "sim/", "model/", "base/text/"}},
      {"calibrate/",
       {"calibrate/device/", "calibrate/runs/", "calibrate/validation/", "calibrate/verdict/", "sim/", "model/",
        "base/text/"}},
      // The real run and the calibration share only the measurement file.
      {"realrun/", {"realrun/", "calibrate/device/measurement", "sim/", "model/", "base/"}},
      {"cli/", {"cli/", "api/", "reports/", "planner/", "calibrate/", "sim/", "import/", "model/", "base/"}},
      {"api/", {"api/", "reports/", "planner/", "calibrate/", "sim/", "import/", "model/", "base/"}},
      {"python/", {"api/"}},
      {"web/", {"web/", "reports/", "planner/", "sim/", "import/", "model/", "base/text/"}},
      {"examples/", {"reports/", "planner/", "calibrate/", "realrun/", "sim/", "import/", "model/", "base/"}},
      {"tests/",
       {"tests/", "api/", "cli/", "web/", "reports/", "planner/", "calibrate/", "realrun/", "sim/", "import/", "model/",
        "base/"}},
  };
  return all;
}

/// Folders whose code also runs in a browser: no threads, files or clocks, and nothing that Emscripten's library lacks.
const Names kCore = {"base/text/", "model/", "import/", "sim/", "planner/", "reports/"};
/// Exceptions within these, for native programs only.
const Names kPrograms = {"planner/shared/"};
const Names kNotInCore = {"thread",   "mutex",           "shared_mutex", "condition_variable",
                          "future",   "stop_token",      "fstream",      "filesystem",
                          "iostream", "chrono",          "ctime",        "time.h",
                          "unistd.h", "source_location", "format",       "expected"};

/// Headers that only the real run and flopcast-mpi may use; the planner must start on machines that have none of these
/// libraries.
const Names kDeviceHeaders = {"cuda", "cublas", "nccl", "mpi.h"};
const Names kMayUseDevices = {"realrun/", "tests/", "cli/mpi_main.cpp"};
const Names kDeviceCode = {"realrun/compute/cuda", "realrun/transport/nccl"};

bool starts_with_any(std::string_view text, const Names& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

bool ends_with_any(std::string_view text, const Names& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return text.ends_with(ending); });
}

struct Include {
  std::string name;
  bool quoted = false;
};

std::optional<Include> parse_include(std::string_view line) {
  const auto skip_blanks = [&] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
  skip_blanks();
  if (!line.starts_with('#')) return std::nullopt;
  line.remove_prefix(1);
  skip_blanks();
  if (!line.starts_with("include")) return std::nullopt;
  line.remove_prefix(7);
  skip_blanks();
  if (!line.starts_with('"') && !line.starts_with('<')) return std::nullopt;
  const bool quoted = line.front() == '"';
  line.remove_prefix(1);
  return Include{std::string(line.substr(0, line.find(quoted ? '"' : '>'))), quoted};
}

std::optional<std::string> quoted_violation(std::string_view path, const std::string& name) {
  const auto layer = std::find_if(layers().begin(), layers().end(),
                                  [&](const Layer& candidate) { return path.starts_with(candidate.folder); });
  if (layer == layers().end()) return "is not in a folder of the design";
  const bool from_root =
      std::any_of(layers().begin(), layers().end(), [&](const Layer& known) { return name.starts_with(known.folder); });
  if (!from_root || name.find("..") != std::string::npos) return "is not relative to the project's root";
  if (!starts_with_any(name, layer->may_use)) return "points upward or sideways";
  if (path.starts_with("cli/") && starts_with_any(name, kDeviceCode)) return "brings GPU code into the command line";
  return std::nullopt;
}

std::optional<std::string> system_violation(std::string_view path, const std::string& name) {
  const auto is_named = [&](std::string_view banned) { return name == banned; };
  if (starts_with_any(path, kCore) && !starts_with_any(path, kPrograms) &&
      std::any_of(kNotInCore.begin(), kNotInCore.end(), is_named)) {
    return "must not be used in the core, which also runs in a browser";
  }
  if (!starts_with_any(path, kMayUseDevices) && starts_with_any(name, kDeviceHeaders)) {
    return "may only be used by the real run";
  }
  const bool is_slow = name.starts_with("boost/graph/") || name.starts_with("CLI/") || name == "nlohmann/json.hpp";
  if (is_slow && ends_with_any(path, {".hpp", ".cuh"})) {
    return "compiles too slowly to be included in a header";
  }
  return std::nullopt;
}

// This file may glob for data files.
constexpr std::string_view kEmbedding = "cmake/embed.cmake";

bool globs_sources(std::string line) {
  line.erase(std::remove_if(line.begin(), line.end(), [](char c) { return c == ' ' || c == '\t'; }), line.end());
  std::transform(line.begin(), line.end(), line.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return line.starts_with("file(glob") || line.starts_with("aux_source_directory(");
}

}  // namespace

std::vector<std::string> structure_violations(std::string_view path, std::string_view text) {
  const bool is_cmake = ends_with_any(path, {"CMakeLists.txt", ".cmake"});
  const bool is_code = ends_with_any(path, {".cpp", ".hpp", ".cu", ".cuh"});
  std::vector<std::string> violations;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = std::string(path) + ":" + std::to_string(++number);
    if (is_cmake && path != kEmbedding && globs_sources(line))
      violations.push_back(place + ": sources must be listed, not globbed");
    const std::optional<Include> include = is_code ? parse_include(line) : std::nullopt;
    if (!include) continue;
    const auto violation =
        include->quoted ? quoted_violation(path, include->name) : system_violation(path, include->name);
    if (violation) violations.push_back(place + ": " + include->name + " " + *violation);
  }
  return violations;
}

std::vector<std::string> types_defined(std::string_view text) {
  static const std::regex name_space(R"(namespace ([\w:]+) \{)");
  static const std::regex type(R"((?:struct|class|enum class|enum|union) (\w+)(?: final)?(?: : [^;]*)? \{.*)");
  std::vector<std::string> types;
  std::vector<std::string> spaces;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_match(line, found, name_space)) {
      spaces.push_back(found[1].str() + "::");
    } else if (line.starts_with("}  // namespace") && !spaces.empty()) {
      spaces.pop_back();
    } else if (std::regex_match(line, found, type)) {
      std::string name;
      for (const std::string& space : spaces) name += space;
      types.push_back(name + found[1].str());
    }
  }
  return types;
}

std::string include_cycle(std::string_view folder, const std::map<std::string, std::string>& files) {
  const std::string start = std::string(folder) + "/";
  const auto room_of = [](const std::string& path) {
    const std::size_t end = path.find('/', path.find('/') + 1);
    return path.substr(0, end == std::string::npos ? path.rfind('.') : end);
  };
  std::map<std::string, std::map<std::string, std::string>> includers;  // room -> room it includes -> a file that does
  for (const auto& [path, text] : files) {
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
      const std::optional<Include> include = parse_include(line);
      if (!include || !include->quoted || !include->name.starts_with(start)) continue;
      if (room_of(path) != room_of(include->name)) includers[room_of(path)].emplace(room_of(include->name), path);
    }
  }
  std::set<std::string> done;
  std::vector<std::string> way;
  std::string circle;
  const std::function<bool(const std::string&)> closes = [&](const std::string& room) {
    const auto seen = std::find(way.begin(), way.end(), room);
    if (seen != way.end()) {
      for (auto step = seen; step != way.end(); ++step) {
        circle += includers[*step][step + 1 == way.end() ? room : *(step + 1)] + " -> ";
      }
      circle += room;
      return true;
    }
    if (done.count(room) > 0) return false;
    way.push_back(room);
    for (const auto& [next, file] : includers[room]) {
      if (closes(next)) return true;
    }
    way.pop_back();
    done.insert(room);
    return false;
  };
  for (const auto& [path, text] : files) {
    if (closes(room_of(path))) break;
  }
  return circle;
}

}  // namespace flopcast
