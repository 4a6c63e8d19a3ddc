#pragma once

#include <string>
#include <vector>

namespace flopcast {

/// `flopcast run` of a model that trains in milliseconds, on the eight devices of a node.
inline std::vector<std::string> small_run(const std::vector<std::string>& more) {
  std::vector<std::string> words = {
      "run", "--cluster",     "dgx-a100-80g", "--model.layers",          "4", "--model.hidden", "16", "--model.heads",
      "4",   "--model.vocab", "32",           "--model.sequence_length", "8", "--gbs",          "16"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace flopcast
