#include "tests/golden/operator_tables.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <sstream>
#include <stdexcept>

#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

std::vector<std::string> cells_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> cells;
  for (std::string cell; std::getline(stream, cell, ',');) {
    while (!cell.empty() && (cell.back() == '\r' || cell.back() == ' ')) cell.pop_back();
    cells.push_back(cell);
  }
  return cells;
}

}  // namespace

OperatorTable read_operator_table(const std::filesystem::path& file) {
  std::istringstream lines(read_text(file));
  OperatorTable table;
  table.name = file.stem().string();
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> names = cells_of(line);
  while (std::getline(lines, line)) {
    if (line.empty()) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != names.size()) throw std::runtime_error(file.string() + ": a row of another length");
    std::map<std::string, double> row;
    for (std::size_t index = 0; index < names.size(); ++index) row[names[index]] = std::stod(cells[index]);
    table.rows.push_back(std::move(row));
  }
  return table;
}

bool is_held_out(const std::map<std::string, double>& row) {
  constexpr std::uint64_t kBasis = 14695981039346656037U;
  constexpr std::uint64_t kPrime = 1099511628211U;
  constexpr std::uint64_t kEvery = 5;
  std::uint64_t hash = kBasis;
  for (const auto& [name, value] : row) {
    if (name.find("dur") != std::string::npos) continue;
    for (const char c : fmt::format("{}={:g};", name, value)) {
      hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
    }
  }
  return hash % kEvery == 0;
}

}  // namespace flopcast
