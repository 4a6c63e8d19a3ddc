#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cli/partial_rows.hpp"
#include "planner/parallel_for.hpp"

namespace flopcast {

/// The processes that answer a command together. They share nothing but files beside the output.
struct Crew {
  int rank = 0;
  int size = 1;
  bool shares = false;                 ///< started as one of several, even if as the only one
  std::function<void()> meet = [] {};  ///< returns when all have called it

  bool leads() const { return rank == 0; }
};

/// A row for each part of some work.
struct SharedWork {
  std::size_t parts = 0;
  std::function<nlohmann::ordered_json(std::size_t part)> compute;
  /// Whether a row read from a file is one of this work.
  std::function<bool(const nlohmann::ordered_json& row)> is_row;
  std::function<void(std::size_t missing)> begins;  ///< may be empty
  /// Whether a row makes the parts after it needless; empty: none does.
  std::function<bool(const nlohmann::ordered_json& row)> ends;
};

/// Computes the rows that `rows` lacks, this process's part of them and then what is missing whoever's it was. Nothing
/// when another process writes the answer; else this one writes it and calls rows.remove().
std::optional<std::vector<nlohmann::ordered_json>> answer_together(const SharedWork& work, PartialRows& rows,
                                                                   const Crew& crew, const ParallelFor& parallel_for,
                                                                   std::size_t threads);

}  // namespace flopcast
