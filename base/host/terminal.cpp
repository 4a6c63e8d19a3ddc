#include "base/host/terminal.hpp"

#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/text/words.hpp"

namespace flopcast {

namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool locale_is_utf8() {
  // The locale is queried, not set: the process keeps the C locale with its decimal point.
  const locale_t locale = newlocale(LC_CTYPE_MASK, "", nullptr);
  const bool is_utf8 = locale != nullptr && std::string_view(nl_langinfo_l(CODESET, locale)) == "UTF-8";
  if (locale != nullptr) freelocale(locale);
  // Modern terminals show UTF-8 even without a locale; only an explicit other choice is honoured.
  const bool chosen =
      !environment("LC_ALL").empty() || !environment("LC_CTYPE").empty() || !environment("LANG").empty();
  return is_utf8 || !chosen || environment("LC_ALL") == "C" || environment("LANG") == "C";
}

}  // namespace

Terminal inspect_terminal(const Streams& streams) {
  Terminal terminal;
  const bool is_terminal = isatty(fileno(streams.out)) == 1;
  terminal.color = is_terminal && environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  terminal.ascii = !locale_is_utf8();
  winsize size{};
  constexpr int kNarrowest = 20;
  constexpr int kWidest = 10'000;
  if (is_terminal && ioctl(fileno(streams.out), TIOCGWINSZ, &size) == 0 && size.ws_col >= kNarrowest) {
    terminal.width = size.ws_col;
  } else {
    const std::string_view told = environment("COLUMNS");
    int columns = 0;
    std::from_chars(told.data(), told.data() + told.size(), columns);
    constexpr int kPipedWidth = 120;
    terminal.width = columns >= kNarrowest && columns <= kWidest ? columns : kPipedWidth;
  }
  return terminal;
}

TableStyle table_style(const Streams& streams) {
  const Terminal terminal = inspect_terminal(streams);
  const bool told = isatty(fileno(streams.out)) == 1 || !environment("COLUMNS").empty();
  return {told ? terminal.width : 0, terminal.color};
}

std::string colored_message(const Streams& streams, const std::string& text) {
  const bool shows =
      isatty(fileno(streams.err)) == 1 && environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  const std::size_t colon = text.find(": ");
  const std::string word = text.substr(0, colon == std::string::npos ? 0 : colon + 1);
  const char* const color = word == "error:" ? "\x1b[1;31m" : word == "warning:" ? "\x1b[33m" : nullptr;
  return shows && color != nullptr ? color + word + "\x1b[0m" + text.substr(word.size()) : text;
}

void warn(const Streams& streams, const std::string& text) {
  std::fputs((colored_message(streams, "warning: " + printable(text)) + "\n").c_str(), streams.err);
}

Progress::Progress(const Streams& streams, bool shows)
    : stream_(streams.err), shows_(shows && isatty(fileno(streams.err)) == 1) {}

Progress::~Progress() {
  if (shows_ && done_ > 0) std::fputs("\n", stream_);
}

void Progress::step() {
  const std::size_t done = ++done_;
  if (!shows_) return;
  constexpr std::size_t kWidth = 40;
  const std::size_t filled = done * kWidth / all_;
  std::fputs(fmt::format("\r[{:<{}}] {}/{}", std::string(filled, '#'), kWidth, done, all_).c_str(), stream_);
}

ProgressLine::ProgressLine() : shows_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (shows_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(std::size_t done, std::size_t all, const std::string& next) const {
  if (!shows_) return;
  constexpr std::size_t kWidth = 20;
  constexpr std::size_t kLine = 79;  // a wrapped line could not be overwritten
  const std::size_t filled = all == 0 ? kWidth : done * kWidth / all;
  const std::string line =
      fmt::format("[{}{}] {}/{} {}", std::string(filled, '#'), std::string(kWidth - filled, '.'), done + 1, all, next);
  std::fputs(("\r\033[K" + line.substr(0, kLine)).c_str(), stderr);
}

}  // namespace flopcast
