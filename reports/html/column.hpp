#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace flopcast {

/// A sequence of whole numbers as bytes that a page decodes with a few lines (page/decode.js): each number in zigzag
/// (0, -1, 1, -2 … as 0, 1, 2, 3 …), seven bits a byte, low ones first, the eighth set where more follow; after two
/// equal numbers in a row, how many more of them come. Schedules repeat themselves, so that a column of differences to
/// what was expected is next to nothing.
class ColumnWriter {
 public:
  void add(std::int64_t number);
  /// The bytes in base64 (RFC 4648). Ends the column.
  std::string finish();

 private:
  void put(std::uint64_t bits);
  void end_run();

  std::string bytes_;
  std::optional<std::int64_t> last_;
  bool in_run_ = false;
  std::uint64_t repeats_ = 0;
};

std::string base64(std::string_view bytes);

}  // namespace flopcast
