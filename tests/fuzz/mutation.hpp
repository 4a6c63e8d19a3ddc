#pragma once

#include <random>
#include <string>
#include <vector>

namespace flopcast {

/// One of the seeds with a few edits: bytes lost, added, doubled and exchanged, pieces of other seeds, and numbers made
/// extreme; of JSON also values exchanged, removed and moved in the parsed tree, so that it stays JSON.
std::string mutated(const std::vector<std::string>& seeds, bool is_json, std::mt19937_64& random);

}  // namespace flopcast
