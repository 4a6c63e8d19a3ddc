#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace flopcast {

/// A table of measured operators or messages: named columns of numbers.
struct OperatorTable {
  std::string name;
  std::vector<std::map<std::string, double>> rows;
};

/// Reads a comma-separated file; throws std::runtime_error if it is not a table of numbers.
OperatorTable read_operator_table(const std::filesystem::path& file);

/// Every fifth row, chosen by a hash (FNV-1a) of its columns other than durations, so that the choice depends neither
/// on the order nor on the times.
bool is_held_out(const std::map<std::string, double>& row);

}  // namespace flopcast
