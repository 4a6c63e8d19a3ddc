#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// What a file of the project does against its structure, one sentence each: includes that point upward or are not
/// written from the root, device or message-passing headers outside realrun, threads, files or clocks in the core,
/// Boost.Graph in a header, globbed sources in CMake files. `path` is relative to the root and decides which rules
/// hold; files that are neither C++, CUDA nor CMake have no rules.
std::vector<std::string> structure_violations(std::string_view path, std::string_view text);

/// The types that a header defines at the top level of its namespaces, each with those: "flopcast::Timeline". Two
/// headers must not define the same one: no single source need include both, so only the linker would meet them, and it
/// says nothing. Relies on the project's format: such definitions start at the first column.
std::vector<std::string> types_defined(std::string_view text);

/// A circle of includes between the rooms of a top-level folder, as the includes that close it; empty when there is
/// none. A room is a subfolder, or a header with its source that lies directly in the folder. `files` maps paths to
/// texts.
std::string circle_of_rooms(std::string_view folder, const std::map<std::string, std::string>& files);

}  // namespace flopcast
