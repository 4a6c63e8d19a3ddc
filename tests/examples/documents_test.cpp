// Runs every flopcast command shown in README, docs and examples, and compares its output with the document.
// FLOPCAST_BLESS=1 updates the documents.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/catalog/catalogue.hpp"
#include "tests/examples/console_blocks.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

std::vector<std::filesystem::path> documents() {
  std::vector<std::filesystem::path> files = {project_folder() / "README.md"};
  for (const char* folder : {"docs", "examples"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(project_folder() / folder)) {
      if (entry.path().extension() == ".md") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

CommandResult run_shown(const std::vector<std::string>& arguments, const std::filesystem::path& scratch) {
  CommandOptions options;
  options.working_directory = scratch;
  options.environment = {{"COLUMNS", "100"}, {"LC_ALL", "C.UTF-8"}};
  return start_flopcast(arguments, options);
}

TEST(Documents, ShowWhatTheCommandsPrint) {
  const bool bless = std::getenv("FLOPCAST_BLESS") != nullptr;
  std::size_t count = 0;
  for (const std::filesystem::path& file : documents()) {
    const std::string text = read_text(file);
    // Commands are shown as from the project's root and may write files, so they run next to a copy of the examples.
    const TemporaryFolder scratch;
    std::filesystem::copy(project_folder() / "examples", scratch.path() / "examples",
                          std::filesystem::copy_options::recursive);
    std::vector<std::string> outputs;
    for (const ConsoleCommand& command : console_commands(text)) {
      const CommandResult result = run_shown(command.arguments, scratch.path());
      outputs.push_back(result.standard_output);
      ++count;
      constexpr int kAnswerIsNo = 3;
      EXPECT_TRUE(result.exit_code == 0 || result.exit_code == kAnswerIsNo)
          << file << ":" << command.line << " fails with " << result.exit_code << "\n"
          << result.standard_error;
      if (bless) continue;
      EXPECT_TRUE(matches(command.expected, result.standard_output)) << file << ":" << command.line << "\nexpected:\n"
                                                                     << command.expected << "\nprinted:\n"
                                                                     << result.standard_output << result.standard_error;
    }
    if (bless) write_text(file, with_outputs(text, outputs));
  }
  EXPECT_GE(count, 5u);
  std::cout << "compared the output of " << count << " commands in documents\n";
}

// Every command after a prompt is run by the test above.
TEST(Documents, EveryPromptIsACommandThatIsRun) {
  for (const std::filesystem::path& file : documents()) {
    const std::string text = read_text(file);
    std::size_t prompts = 0;
    for (std::size_t at = text.find("\n$ "); at != std::string::npos; at = text.find("\n$ ", at + 1)) {
      const bool of_the_project = text.compare(at + 1, 9, "$ ./check") == 0;  // which runs this very test
      if (!of_the_project) ++prompts;
    }
    EXPECT_EQ(console_commands(text).size(), prompts) << file;
  }
}

TEST(Documents, EveryExampleSaysHowToRunIt) {
  for (const auto& entry : std::filesystem::directory_iterator(project_folder() / "examples")) {
    if (!entry.is_directory()) continue;
    const std::filesystem::path readme = entry.path() / "README.md";
    ASSERT_TRUE(std::filesystem::exists(readme)) << entry.path();
    EXPECT_FALSE(console_commands(read_text(readme)).empty()) << readme << " shows no command";
  }
}

// "Suite.Name" in code: a test to which a document refers.
std::vector<std::string> tests_named_in(const std::string& markdown) {
  static const std::regex kTest("`([A-Z][A-Za-z0-9]*)[.]([A-Z][A-Za-z0-9]*)`");
  std::vector<std::string> names;
  for (std::sregex_iterator match(markdown.begin(), markdown.end(), kTest), end; match != end; ++match) {
    names.push_back((*match)[1].str() + ", " + (*match)[2].str());
  }
  return names;
}

TEST(Documents, EveryTestThatTheoryAndPromisesNameExists) {
  std::string sources;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(project_folder() / "tests")) {
    if (entry.path().extension() == ".cpp") sources += read_text(entry.path());
  }
  for (const auto& [document, least] : {std::pair("docs/theory.md", 30u), std::pair("docs/promises.md", 20u)}) {
    const std::vector<std::string> names = tests_named_in(read_text(project_folder() / document));
    EXPECT_GE(names.size(), least) << document;
    for (const std::string& name : names) {
      const auto is_test = [&](const std::string& begin) { return sources.find(begin) != std::string::npos; };
      EXPECT_TRUE(is_test("TEST(" + name + ")") || is_test("TEST_F(" + name + ")") || is_test("PROP(" + name + ","))
          << document << ": no test is called " << name;
    }
  }
}

TEST(Documents, StacksExplainsEveryKeyOfTheCatalogue) {
  const std::string page = read_text(project_folder() / "docs/stacks.md");
  std::set<std::string> keys;
  for (const std::string& name : catalogue_names(CatalogueKind::kStacks)) {
    for (const SourcedFigure& figure : catalogue_entry(CatalogueKind::kStacks, name).figures) {
      keys.insert(figure.key.substr(0, figure.key.find('.')));
    }
  }
  EXPECT_GE(keys.size(), 20u);
  for (const std::string& key : keys) EXPECT_NE(page.find("`" + key + "`"), std::string::npos) << key;
}

TEST(ConsoleBlocks, FindCommandsAndTheirOutput) {
  const std::string text =
      "text\n```console\n$ ./flopcast a 'b c'\nout 1\n…\nout 9\n$ ls\nx\n$ flopcast d\n```\n```\n$ flopcast no\n```\n";
  const auto commands = console_commands(text);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0].arguments, std::vector<std::string>({"a", "b c"}));
  EXPECT_TRUE(matches(commands[0].expected, "out 1\nmore\nout 9\n"));
  EXPECT_FALSE(matches(commands[0].expected, "out 1\nmore\nout 8\n"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "more\n"));
  EXPECT_EQ(with_outputs(text, {"unused\n", "new\n"}),
            "text\n```console\n$ ./flopcast a 'b c'\nout 1\n…\nout 9\n$ ls\nx\n$ flopcast d\nnew\n```\n```\n$ flopcast "
            "no\n```\n");
  // Only "…" on a separate line matches any lines.
  EXPECT_EQ(with_outputs("```console\n$ flopcast a\n1, …\n```\n", {"2, …\n"}), "```console\n$ flopcast a\n2, …\n```\n");
}

}  // namespace
}  // namespace flopcast
