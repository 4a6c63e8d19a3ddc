#include "model/catalog/catalogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

std::string path_of(CatalogueKind kind, std::string_view name) {
  return fmt::format("{}/{}.json", name_of(kind), name);
}

// A planner reads many jobs, so each file is parsed only once, on first use. One function-local static per list index
// makes this thread-safe without locks.
constexpr std::size_t kMostEntries = 256;
constexpr std::size_t kMostProfiles = 32;
using FileList = const std::vector<EmbeddedFile>& (*)();
nlohmann::json parse_file(FileList files, std::size_t place) {
  return nlohmann::json::parse(files()[place].text);
}
template <FileList files, std::size_t place>
const nlohmann::json& parsed_at() {
  static const nlohmann::json parsed = parse_file(files, place);
  return parsed;
}
template <FileList files, std::size_t... places>
const nlohmann::json& parsed_file(std::size_t place, std::index_sequence<places...> /*all*/) {
  using Parsed = const nlohmann::json& (*)();
  static constexpr Parsed kParsed[] = {&parsed_at<files, places>...};
  FLOPCAST_CHECK(place < std::size(kParsed));
  return kParsed[place]();
}

// Null if no file has that path.
template <FileList files, std::size_t most>
const nlohmann::json* find_file(std::string_view path) {
  const std::vector<EmbeddedFile>& all = files();
  const auto found =
      std::find_if(all.begin(), all.end(), [path](const EmbeddedFile& file) { return file.path == path; });
  if (found == all.end()) return nullptr;
  return &parsed_file<files>(static_cast<std::size_t>(found - all.begin()), std::make_index_sequence<most>());
}

const nlohmann::json* find_entry(CatalogueKind kind, std::string_view name) {
  return find_file<embedded_catalogue, kMostEntries>(path_of(kind, name));
}

constexpr const char* kReleases = "releases";
// Keys that describe a release; all others are changed values.
constexpr std::string_view kOfRelease[] = {"release", "date", "changes", "source"};

// "24.11" before "25.02", "0.9" before "0.12", "2024-12" before "2025-03".
bool earlier(std::string_view a, std::string_view b) {
  const auto next = [](std::string_view& text) {
    long number = 0;
    std::size_t at = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) number = number * 10 + (text[at] - '0');
    text.remove_prefix(std::min(text.size(), at + 1));
    return number;
  };
  while (!a.empty() || !b.empty()) {
    const long one = next(a);
    const long other = next(b);
    if (one != other) return one < other;
  }
  return false;
}

struct VersionedName {
  std::string_view base;
  std::string_view release;  // empty: the newest
};

VersionedName versioned(std::string_view name) {
  const std::size_t at = name.find('@');
  if (at == std::string_view::npos) return {name, {}};
  return {name.substr(0, at), name.substr(at + 1)};
}

// The entry as of a release; null JSON if the stack's first release is later.
nlohmann::json as_of_release(nlohmann::json entry, std::string_view release) {
  const auto releases = entry.find(kReleases);
  if (releases == entry.end()) return release.empty() ? entry : nlohmann::json();
  const nlohmann::json all = std::move(*releases);
  entry.erase(kReleases);
  bool known = release.empty();
  for (const nlohmann::json& one : all) {
    if (!release.empty() && earlier(release, one.at("release").get<std::string>())) break;
    known = true;
    for (const auto& item : one.items()) {
      if (std::find(std::begin(kOfRelease), std::end(kOfRelease), item.key()) == std::end(kOfRelease)) {
        entry[item.key()] = item.value();
      }
    }
  }
  return known ? entry : nlohmann::json();
}

bool is_figure(const nlohmann::json& value) {
  return value.is_object() && value.contains("value");
}

nlohmann::json without_sources(const nlohmann::json& entry) {
  nlohmann::json values = nlohmann::json::object();
  for (const auto& item : entry.items()) {
    if (item.key() == "sources" || item.key() == kReleases) continue;
    if (is_figure(item.value())) {
      values[item.key()] = item.value().at("value");
    } else {
      values[item.key()] = item.value().is_object() ? without_sources(item.value()) : item.value();
    }
  }
  return values;
}

void collect_figures(const nlohmann::json& entry, const nlohmann::json& sources, const std::string& prefix,
                     std::vector<SourcedFigure>& figures) {
  for (const auto& item : entry.items()) {
    const std::string key = prefix + item.key();
    if (is_figure(item.value())) {
      const nlohmann::json& value = item.value().at("value");
      const auto source = sources.at(item.value().at("source").get<std::string>()).get<std::string>();
      const bool named_parts =
          value.is_array() && !value.empty() && value.front().is_object() && value.front().contains("name");
      if (!named_parts) {
        figures.push_back({key, value.is_string() ? value.get<std::string>() : value.dump(), source});
        continue;
      }
      for (const nlohmann::json& part : value) {
        nlohmann::json rest = part;
        rest.erase("name");
        figures.push_back({key + ": " + part.at("name").get<std::string>(), rest.dump(), source});
      }
    } else if (item.value().is_object() && item.key() != "sources") {
      collect_figures(item.value(), sources, key + ".", figures);
    }
  }
}

}  // namespace

std::vector<std::string> catalogue_names(CatalogueKind kind) {
  const std::string folder = std::string(name_of(kind)) + "/";
  constexpr std::string_view kSuffix = ".json";
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_catalogue()) {
    if (file.path.substr(0, folder.size()) != folder) continue;
    const std::string_view name = file.path.substr(folder.size());
    names.emplace_back(name.substr(0, name.size() - kSuffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

nlohmann::json plain_values(const nlohmann::json& file) {
  return without_sources(file);
}

nlohmann::json catalogue_values(CatalogueKind kind, std::string_view name) {
  if (kind != CatalogueKind::kStacks) {
    const nlohmann::json* const file = find_entry(kind, name);
    return file == nullptr ? nlohmann::json() : without_sources(*file);
  }
  const VersionedName stack = versioned(name);
  const nlohmann::json* const file = find_entry(kind, stack.base);
  if (file == nullptr || (stack.release.empty() && stack.base.size() < name.size())) return {};
  const nlohmann::json entry = as_of_release(*file, stack.release);
  if (entry.is_null()) return {};
  nlohmann::json values = without_sources(entry);
  values["name"] = name;
  if (!stack.release.empty() && !values.contains("based_on")) values["based_on"] = stack.base;
  return values;
}

std::vector<StackRelease> stack_releases(std::string_view name) {
  // Cached, because a planner reads many jobs.
  static const std::map<std::string, std::vector<StackRelease>, std::less<>> all = [] {
    std::map<std::string, std::vector<StackRelease>, std::less<>> by_stack;
    for (const std::string& stack : catalogue_names(CatalogueKind::kStacks)) {
      const nlohmann::json& json = *find_entry(CatalogueKind::kStacks, stack);
      for (const nlohmann::json& one : json.value(kReleases, nlohmann::json::array())) {
        const std::string source = json.at("sources").at(one.at("source").get<std::string>());
        by_stack[stack].push_back({one.at("release"), one.at("date"), one.at("changes"), source});
      }
    }
    return by_stack;
  }();
  const auto found = all.find(versioned(name).base);
  return found == all.end() ? std::vector<StackRelease>{} : found->second;
}

std::string release_of_stack(std::string_view name) {
  const std::string_view asked = versioned(name).release;
  std::string last;
  for (const StackRelease& release : stack_releases(name)) {
    if (asked.empty() || !earlier(asked, release.release)) last = release.release;
  }
  return last;
}

CatalogueEntry catalogue_entry(CatalogueKind kind, std::string_view name) {
  const VersionedName entry_name = versioned(name);
  const nlohmann::json* const file = find_entry(kind, entry_name.base);
  FLOPCAST_CHECK(file != nullptr);
  const nlohmann::json json = as_of_release(*file, entry_name.release);
  CatalogueEntry entry;
  entry.name = json.at("name").get<std::string>();
  entry.description = json.at("description").get<std::string>();
  collect_figures(json, json.at("sources"), "", entry.figures);
  return entry;
}

namespace {

constexpr std::string_view kFolder = "profiles/";
constexpr std::string_view kSuffix = ".json";

std::string_view name_in(std::string_view path) {
  return path.substr(kFolder.size(), path.size() - kFolder.size() - kSuffix.size());
}

}  // namespace

std::vector<std::string> shipped_profile_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_profiles()) names.emplace_back(name_in(file.path));
  return names;
}

nlohmann::json shipped_profile(std::string_view name) {
  const nlohmann::json* const file =
      find_file<embedded_profiles, kMostProfiles>(fmt::format("{}{}{}", kFolder, name, kSuffix));
  return file == nullptr ? nlohmann::json() : *file;
}

}  // namespace flopcast
