#include "api/options/job_options.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/host/files.hpp"
#include "base/text/error.hpp"

#ifdef FLOPCAST_HAS_YAML
#include <yaml-cpp/yaml.h>
#endif
#ifdef FLOPCAST_HAS_TOML
namespace flopcast {
struct BrokenToml {};
constexpr void require_toml(bool holds) {
  if (!holds) throw BrokenToml();
}
}  // namespace flopcast
// On malformed input ("[" at the end of a line), toml++ 3.3 fails an assertion, and a build without assertions has
// undefined behaviour there. This macro throws instead.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) ::flopcast::require_toml(static_cast<bool>(condition))
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
#endif

namespace flopcast {

namespace {

// Checked before parsing: recipes have a few kilobytes, and the parsers need up to 200 bytes of memory per byte of a
// file.
void refuse_large(std::string_view text, std::string_view file, std::string_view language) {
  constexpr std::size_t kLargestRecipe = std::size_t{1} << 20;
  if (text.size() <= kLargestRecipe) return;
  throw ConfigError({"",
                     fmt::format("{} is larger than {} MiB, too large for {}", file, kLargestRecipe >> 20, language),
                     std::string(file), "give only the part that is needed"});
}

}  // namespace

#ifdef FLOPCAST_HAS_YAML

namespace {

constexpr int kDeepestNesting = 64;
constexpr int kMostValues = 100'000;

nlohmann::json typed(const std::string& word) {
  if (word.empty() || word == "~" || word == "null" || word == "Null" || word == "NULL") return nullptr;
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}) {
    if (word == no) return false;
  }
  constexpr const char* kNumberCharacters = "0123456789+-.eE_";
  if (word.find_first_not_of(kNumberCharacters) != std::string::npos) return word;
  errno = 0;
  char* end = nullptr;
  // YAML 1.1 and Python allow digit grouping: 10_000.
  std::string digits = word;
  if (std::isdigit(static_cast<unsigned char>(word.front())) != 0) std::erase(digits, '_');
  const long long whole = std::strtoll(digits.c_str(), &end, 10);
  if (*end == '\0' && errno == 0) return whole;
  const double number = std::strtod(digits.c_str(), &end);
  if (*end == '\0' && number >= -1e300 && number <= 1e300) return number;
  return word;
}

class YamlConverter {
 public:
  explicit YamlConverter(std::string_view file) : file_(file) {}

  nlohmann::json convert(const YAML::Node& node, int depth) {
    if (depth > kDeepestNesting) fail(node.Mark(), fmt::format("is nested deeper than {} levels", kDeepestNesting));
    // Aliases can refer to the same node many times, so values are counted on each visit.
    if (++values_ > kMostValues) fail(node.Mark(), fmt::format("holds more than {} values", kMostValues));
    if (node.IsScalar()) return node.Tag() == "!" ? nlohmann::json(node.Scalar()) : typed(node.Scalar());
    if (node.IsSequence()) {
      nlohmann::json list = nlohmann::json::array();
      for (const YAML::Node& element : node) list.push_back(convert(element, depth + 1));
      return list;
    }
    if (!node.IsMap()) return nullptr;
    nlohmann::json object = nlohmann::json::object();
    for (const auto& item : node) {
      if (!item.first.IsScalar()) fail(item.first.Mark(), "has a key that is not a scalar");
      const std::string& key = item.first.Scalar();
      if (object.contains(key)) fail(item.first.Mark(), fmt::format("gives the key \"{}\" twice", key));
      object[key] = convert(item.second, depth + 1);
    }
    return object;
  }

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& problem) const {
    const std::string where = mark.is_null() ? file_ : fmt::format("{}:{}:{}", file_, mark.line + 1, mark.column + 1);
    throw ConfigError({"", fmt::format("{} {}", file_, problem), where,
                       "fix the file or a copy of it; other YAML readers silently take the last duplicate key"});
  }

 private:
  std::string file_;
  int values_ = 0;
};

// YAML as JSON. Plain scalars get the types that Python's readers give them: null, booleans (true, yes), integers and
// decimal numbers, otherwise text. Throws ConfigError on duplicate keys, nesting deeper than 64 and more than 100,000
// values.
nlohmann::json yaml_values(std::string_view text, std::string_view file) {
  YamlConverter converter(file);
  try {
    return converter.convert(YAML::Load(std::string(text)), 0);
  } catch (const YAML::Exception& error) {
    converter.fail(error.mark, fmt::format("is not valid YAML: {}", error.msg));
  }
}

}  // namespace

#else

namespace {

nlohmann::json yaml_values(std::string_view /*text*/, std::string_view file) {
  throw ConfigError({"", fmt::format("{} is YAML, which this build of flopcast cannot read", file), std::string(file),
                     "build it with yaml-cpp (Debian: libyaml-cpp-dev), or give the values as flags"});
}

}  // namespace

#endif

#ifdef FLOPCAST_HAS_TOML

namespace {

// Dates and times, which recipes do not use, become null; toml++ limits the nesting.
nlohmann::json json_of_toml(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [key, value] : *table) object[std::string(key.str())] = json_of_toml(value);
    return object;
  }
  if (const auto* array = node.as_array()) {
    nlohmann::json list = nlohmann::json::array();
    for (const toml::node& element : *array) list.push_back(json_of_toml(element));
    return list;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* boolean = node.as_boolean()) return boolean->get();
  return nullptr;
}

nlohmann::json toml_values(std::string_view text, std::string_view file) {
  try {
    return json_of_toml(toml::parse(text));
  } catch (const toml::parse_error& error) {
    throw ConfigError({"", fmt::format("{} is not valid TOML: {}", file, error.description()),
                       fmt::format("{}:{}:{}", file, error.source().begin.line, error.source().begin.column),
                       "fix the file or a copy of it"});
  } catch (const BrokenToml&) {
    throw ConfigError(
        {"", fmt::format("{} is not valid TOML", file), std::string(file), "fix the file or a copy of it"});
  }
}

}  // namespace

#else

namespace {

nlohmann::json toml_values(std::string_view /*text*/, std::string_view file) {
  throw ConfigError({"", fmt::format("{} is TOML, which this build of flopcast cannot read", file), std::string(file),
                     "build it with toml++ (Debian: libtomlplusplus-dev), or give the values as flags"});
}

}  // namespace

#endif

std::string FilesOnDisk::read(const std::string& path) const {
  std::string text = flopcast::read_input(streams_, path);
  if (path != kStandardInput) note_input(path);
  return text;
}

Files::Kind FilesOnDisk::kind_of(const std::string& path) const {
  if (path == kStandardInput) return Kind::kFile;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return Kind::kNone;
  return std::filesystem::is_directory(path, ignored) ? Kind::kFolder : Kind::kFile;
}

nlohmann::json FilesOnDisk::parse_yaml(std::string_view text, const std::string& file) const {
  refuse_large(text, file, "YAML");
  return yaml_values(text, file);
}

nlohmann::json FilesOnDisk::parse_toml(std::string_view text, const std::string& file) const {
  refuse_large(text, file, "TOML");
  return toml_values(text, file);
}

const Files& files_on_disk() {
  static const FilesOnDisk files(standard_streams());
  return files;
}

}  // namespace flopcast
