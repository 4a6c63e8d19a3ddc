#include "reports/html/column.hpp"

namespace flopcast {

void ColumnWriter::put(std::uint64_t bits) {
  while (bits >= 0x80U) {
    bytes_ += static_cast<char>((bits & 0x7FU) | 0x80U);
    bits >>= 7U;
  }
  bytes_ += static_cast<char>(bits);
}

void ColumnWriter::end_run() {
  if (in_run_) put(repeats_);
  in_run_ = false;
  repeats_ = 0;
}

void ColumnWriter::add(std::int64_t number) {
  if (last_ == number) {
    if (in_run_) {
      ++repeats_;
      return;
    }
    in_run_ = true;
  } else {
    end_run();
    last_ = number;
  }
  const auto bits = static_cast<std::uint64_t>(number);
  put(number < 0 ? ~(bits << 1U) : bits << 1U);
}

std::string ColumnWriter::finish() {
  end_run();
  last_.reset();
  std::string text = base64(bytes_);
  bytes_.clear();
  return text;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t offset = 0; offset < 3; ++offset) {
      bits = bits << 8U | (at + offset < bytes.size() ? static_cast<unsigned char>(bytes[at + offset]) : 0U);
    }
    for (std::size_t digit = 0; digit < 4; ++digit) {
      const bool padding = at + digit > bytes.size();
      text += padding ? '=' : kDigits[bits >> (18U - 6U * digit) & 63U];
    }
  }
  return text;
}

}  // namespace flopcast
