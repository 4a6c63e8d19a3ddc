// Commands as people type them: tasks.tsv and mistakes.tsv beside this file. The first try succeeds, or gets a line
// that mends it.
#include <gtest/gtest.h>

#include <sstream>

#include "base/text/words.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

std::vector<std::string> typed_words(const std::string& command) {
  std::vector<std::string> words;
  std::istringstream stream(command);
  for (std::string word; stream >> word;) {
    if (word == "JOB") {
      for (const char* one : {"--model", "llama3-8b", "--cluster", "4xdgx-h100", "--gbs", "64"})
        words.emplace_back(one);
    } else {
      words.push_back(word);
    }
  }
  return words;
}

void try_all(const char* file) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  std::istringstream lines(read_text(project_folder() / "tests" / "cli" / file));
  int tried = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> cells = split(line, '\t');
    ASSERT_EQ(cells.size(), 3u) << line;
    const CommandResult result = run_flopcast(typed_words(cells[0]), options);
    const std::string printed = result.standard_output + result.standard_error;
    EXPECT_EQ(std::to_string(result.exit_code), cells[1]) << cells[0] << "\n" << printed.substr(0, 2'000);
    for (const std::string& words : split(cells[2], '|')) {
      EXPECT_NE(printed.find(words), std::string::npos) << cells[0] << "\nlacks: " << words << "\n"
                                                        << printed.substr(0, 2'000);
    }
    ++tried;
  }
  EXPECT_GT(tried, 15);
}

TEST(TypedCommands, TasksAreAnsweredAtTheFirstTry) {
  try_all("tasks.tsv");
}

TEST(TypedCommands, MistakesAreMendedByTheirMessage) {
  try_all("mistakes.tsv");
}

// Every table at the widths that people have; a word or a row of figures that is longer by itself stays whole.
TEST(TypedCommands, TablesFitTheTerminal) {
  const std::vector<std::vector<std::string>> commands = {
      typed_words("simulate JOB --tp 2 --verbose"), typed_words("plan JOB"),       typed_words("memory JOB"),
      typed_words("compare JOB tp=2 tp=4 tp=8"),    typed_words("catalog models"), typed_words("schedule list")};
  for (const int width : {80, 120, 200}) {
    CommandOptions options;
    options.environment = {{"COLUMNS", std::to_string(width)}, {"LC_ALL", "C.UTF-8"}};
    for (const std::vector<std::string>& command : commands) {
      std::istringstream lines(start_flopcast(command, options).standard_output);
      for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(text_columns(line), static_cast<std::size_t>(width)) << command.front() << ": " << line;
      }
    }
  }
}

}  // namespace
}  // namespace flopcast
