#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// Violations of the project's structure in one file, one sentence each: includes that point upward or are not relative
/// to the root, device or message-passing headers outside realrun, threads, files or clocks in the core, Boost.Graph in
/// a header, globbed sources in CMake files. `path` is relative to the root and selects the rules; files other than
/// C++, CUDA and CMake have no rules.
std::vector<std::string> structure_violations(std::string_view path, std::string_view text);

/// Types that a header defines at the top level of its namespaces, with the namespaces: "flopcast::Timeline". Two
/// headers must not define the same type: if no source includes both, only the linker sees both definitions, and it
/// reports nothing. Relies on the project's format: such definitions start in the first column.
std::vector<std::string> types_defined(std::string_view text);

/// A cycle of includes between the rooms of a top-level folder, given as the includes that form it; empty if there is
/// none. A room is a subfolder, or a header with its source directly in the folder. `files` maps paths to texts.
std::string include_cycle(std::string_view folder, const std::map<std::string, std::string>& files);

}  // namespace flopcast
