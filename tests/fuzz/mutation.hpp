#pragma once

#include <random>
#include <string>
#include <vector>

namespace flopcast {

/// One of the seeds with a few edits: bytes removed, inserted, duplicated and swapped, pieces of other seeds, and
/// extreme numbers; for JSON also values swapped, removed and moved in the parsed tree, so that it stays JSON.
std::string mutated(const std::vector<std::string>& seeds, bool is_json, std::mt19937_64& random);

}  // namespace flopcast
