#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/enum_names.hpp"

namespace flopcast {

/// A file compiled into the program, so that flopcast finds its catalogue wherever it is copied, and in a browser.
struct EmbeddedFile {
  std::string_view path;  ///< relative to the folder that embeds it: "devices/a100-80g.json"
  std::string_view text;
};

/// The catalogue's files by kind and name. The source is generated: cmake/embed.cmake.
const std::vector<EmbeddedFile>& embedded_catalogue();
/// Device profiles, model/catalog/profiles/*.json by name.
const std::vector<EmbeddedFile>& embedded_profiles();

enum class CatalogueKind { kModels, kDevices, kClusters, kStacks, kFailures, kNetworks };

/// The folder's name and the word of the command line.
template <>
struct EnumNames<CatalogueKind> {
  static constexpr std::string_view kNames[] = {"models", "devices", "clusters", "stacks", "failures", "networks"};
};
/// The entries of a kind in alphabetical order.
std::vector<std::string> catalogue_names(CatalogueKind kind);

/// A figure of an entry with the source it was taken from.
struct SourcedFigure {
  std::string key;
  std::string value;
  std::string source;  ///< in full: "NVIDIA A100 80GB datasheet, 2021"
};

/// An entry: plain key-value JSON as a user would write it inline, and where each figure comes from.
/// In the file every figure is {"value": …, "source": KEY} with KEY in the file's "sources".
struct CatalogueEntry {
  std::string name;
  std::string description;
  std::vector<SourcedFigure> figures;
};

/// Software has versions: a stack's file says in "releases", oldest first, what changed with each, and with which date.
/// "nemo@24.11" is the entry as of the last release that is not later; a bare name the newest. Releases are compared
/// number by number: 0.9 is before 0.12, 24.11 before 25.02.
struct StackRelease {
  std::string release;
  std::string date;
  std::string changes;  ///< in words
  std::string source;
};
/// Of a stack, oldest first; empty where it has one version.
std::vector<StackRelease> stack_releases(std::string_view name);
/// The release whose figures a name stands for, "24.11" of "nemo@25.01"; empty where the stack has one version or
/// begins later.
std::string release_of_stack(std::string_view name);

/// A catalogue file's figures without their sources: the JSON a user would write inline.
nlohmann::json plain_values(const nlohmann::json& file);
/// The entry's values as inline JSON (with "name" and "description"), or null JSON when there is no such entry. A
/// stack's may be "name@release".
nlohmann::json catalogue_values(CatalogueKind kind, std::string_view name);
/// The entry with its sources; the name must exist.
CatalogueEntry catalogue_entry(CatalogueKind kind, std::string_view name);

/// Device profiles that come with the program (model/catalog/profiles/NAME.json, schema flopcast.profile/1 without the
/// points that were fitted). --profile NAME takes one; no job has one by itself.
std::vector<std::string> shipped_profile_names();
/// Null JSON when there is none of that name.
nlohmann::json shipped_profile(std::string_view name);

}  // namespace flopcast
