#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/catalog/catalogue.hpp"

namespace flopcast {

/// The files of docs/explain, compiled in.
const std::vector<EmbeddedFile>& embedded_explanations();

/// A word that users confuse: what it is, its formulas, and sentences into which a job's own numbers go.
struct Explanation {
  std::string group;
  std::string name;
  std::vector<std::string> aliases;
  std::string what;
  std::vector<std::string> formulas;
  std::vector<std::string> yours;  ///< with {name} or, as a percentage, {name%} for the numbers of a job
  std::string source;
  std::vector<std::string> see;
};

/// In the order of the files. Throws InternalError when one of them is malformed.
std::vector<Explanation> read_explanations();

/// By name or alias, whatever the case, blanks, dashes and underscores; null when there is none.
const Explanation* find_explanation(const std::vector<Explanation>& explanations, std::string_view term);

}  // namespace flopcast
