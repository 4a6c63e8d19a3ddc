// Commands as people type them: tasks.tsv and mistakes.tsv next to this file. The first attempt succeeds, or gets a
// message that shows how to fix it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/text/words.hpp"
#include "cli/commands.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

std::vector<std::string> user_spelling(const std::string& command) {
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

std::vector<std::string> all_commands() {
  std::vector<std::string> all;
  for (const CommandEntry& entry : commands()) {
    if (!entry.has_commands) {
      all.emplace_back(entry.name);
      continue;
    }
    std::istringstream names(run_flopcast({std::string(entry.name), "--list-flags"}).standard_output);
    for (std::string name; std::getline(names, name);) all.push_back(fmt::format("{} {}", entry.name, name));
  }
  return all;
}

// Files used by tasks and mistakes: the examples, a schedule, a saved result, a plan.
void fill(const std::filesystem::path& folder) {
  std::filesystem::copy(project_folder() / "examples", folder / "examples", std::filesystem::copy_options::recursive);
  CommandOptions options;
  options.working_directory = folder;
  for (const char* made :
       {"schedule export --schedule zbv --pp 4 -m 8 -o mine.csv", "simulate JOB --tp 2 --format json -o a.json",
        "simulate JOB --tp 4 --format json -o b.json", "plan JOB --recompute full --top 3 -o plan.json"}) {
    ASSERT_EQ(run_flopcast(user_spelling(made), options).exit_code, 0) << made;
  }
  std::string log = "using world size: 32, data-parallel size: 16, tensor-model-parallel size: 2\n";
  for (int step = 1; step <= 8; ++step) {
    log += fmt::format(
        " iteration {:8}/ 100 | consumed samples: {:12} | elapsed time per iteration (ms): 2100.0 | "
        "learning rate: 1.0E-04 | global batch size:    64 | lm loss: 7.0E+00 | loss scale: 1.0 | grad norm: 1.0 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n",
        step, 64 * step);
  }
  write_text(folder / "train.log", log);
}

void try_all(const char* file) {
  const TemporaryFolder folder;
  fill(folder.path());
  CommandOptions options;
  options.working_directory = folder.path();
  std::istringstream lines(read_text(project_folder() / "tests" / "cli" / file));
  int tried = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> cells = split(line, '\t');
    ASSERT_EQ(cells.size(), 3u) << line;
    const CommandResult result = run_flopcast(user_spelling(cells[0]), options);
    const std::string printed = result.standard_output + result.standard_error;
    EXPECT_EQ(std::to_string(result.exit_code), cells[1]) << cells[0] << "\n" << printed.substr(0, 2'000);
    for (const std::string& words : split(cells[2], '|')) {
      EXPECT_NE(printed.find(words), std::string::npos) << cells[0] << "\nlacks: " << words << "\n"
                                                        << printed.substr(0, 2'000);
    }
    ++tried;
  }
  EXPECT_GT(tried, 20);
}

TEST(TypedCommands, TasksAreAnsweredAtTheFirstTry) {
  try_all("tasks.tsv");
}

TEST(TypedCommands, MistakesAreMendedByTheirMessage) {
  try_all("mistakes.tsv");
}

// Every table and every help text at usual widths. Commands to be pasted stay on one line.
TEST(TypedCommands, TablesFitTheTerminal) {
  const TemporaryFolder folder;
  fill(folder.path());
  std::vector<std::string> typed = {
      "simulate JOB --tp 2 --verbose",
      "simulate JOB --tp 2 --straggler 5:1.2 --jitter 3%",
      "simulate JOB --show-config",
      "plan JOB --tokens 1T --price 2 --verbose",
      "plan --model mixtral-8x7b --cluster 4xdgx-h100 --gbs 128 --max-gpus 32 --objective cost",
      "memory JOB --pp 2",
      "memory JOB --pp 2 --explain",
      "compare JOB tp=2 tp=4 tp=8",
      "compare JOB tp=2,zero=1,recompute=full pp=2,schedule=zb-h1",
      "compare JOB --strategies",
      "compare JOB --optimizations",
      "compare JOB --measured 3s",
      "sweep JOB --vary tp=1,2,4 --vary zero=0,1",
      "timeline JOB --pp 4",
      "timeline --pp 4 -m 8 --schedule 1f1b,zbv,dualpipe --at-memory 4",
      "schedule list",
      "schedule show mine.csv",
      "schedule check mine.csv",
      "schedule simulate mine.csv --forward 1 --backward-input 1 --backward-weight 1",
      "schedule compare --pp 4 -m 8",
      "partition JOB --pp 4",
      "validate",
      "calibrate --nccl-tests examples/measured-links/all_reduce.log --topology examples/measured-links/topo.txt "
      "--device h100 -o profile.json",
      "network flows examples/shared-links/uplinks.json",
      "explain",
      "explain mfu",
      "explain zbv"};
  for (const char* kind : {"models", "devices", "clusters", "schedules", "stacks", "profiles", "models llama3-8b",
                           "devices h100", "clusters dgx-h100", "stacks nemo"}) {
    typed.push_back(fmt::format("catalog {}", kind));
  }
  for (const int width : {200, 120, 80}) {
    // Help is text, which wraps at any width as it does at the narrowest.
    if (width == 80) {
      for (const std::string& command : all_commands()) typed.push_back(command + " --help-all");
    }
    CommandOptions options;
    options.working_directory = folder.path();
    options.environment = {{"COLUMNS", std::to_string(width)}, {"LC_ALL", "C.UTF-8"}};
    for (const std::string& command : typed) {
      const CommandResult result = start_flopcast(user_spelling(command), options);
      EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.standard_error;
      std::istringstream lines(result.standard_output);
      for (std::string line; std::getline(lines, line);) {
        const bool to_paste = line.starts_with("  flopcast ");
        if (!to_paste) {
          EXPECT_LE(text_columns(line), static_cast<std::size_t>(width)) << command << ": " << line;
        }
      }
    }
  }
}

// Messages of the parser library, which name neither the flag as typed nor a fix.
void expect_own_words(const std::string& command, const CommandResult& result) {
  EXPECT_NE(result.exit_code, 1) << command << "\n" << result.standard_error;
  for (const char* raw : {"Could not convert", "required", "Expected", "argument to", "disallowed", "At Most"}) {
    const bool job_field =
        std::string(raw) == "required" && result.standard_error.find(": is required") != std::string::npos;
    if (!job_field) {
      EXPECT_EQ(result.standard_error.find(raw), std::string::npos) << command << "\n" << result.standard_error;
    }
  }
}

TEST(TypedCommands, AWrongValueIsAnsweredInOurWordsForEveryFlag) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  std::set<std::string> known;
  int tried = 0;
  for (const std::string& command : all_commands()) {
    std::vector<std::string> words = user_spelling(command + " --list-flags");
    std::istringstream flags(run_flopcast(words, options).standard_output);
    // These commands need only a flag to start, so a missing file stops them.
    const bool begins = command == "validate" || command == "calibrate";
    if (begins) words.insert(words.begin() + 1, {command == "validate" ? "--published" : "--nccl-tests", "missing"});
    for (std::string flag; std::getline(flags, flag);) {
      // Job flags are the same in every command, so they are tested once.
      if (!flag.starts_with("--") || flag.starts_with("--help") || !known.insert(flag).second) continue;
      for (const std::string& typed : {flag + "=?x", flag + "=", flag}) {
        if (typed == flag && (begins || command == "run")) continue;
        words.back() = typed;
        expect_own_words(fmt::format("{} {}", command, typed), run_flopcast(words, options));
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 700);
}

// Thirty questions were collected from issue trackers; inference, adapters and generation remain unanswered.
TEST(TypedCommands, PublicQuestionsAreAnsweredByACommandEach) {
  std::istringstream lines(read_text(project_folder() / "docs" / "questions.md"));
  int answered = 0;
  bool asked = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) asked = line.find('#', 3) != std::string::npos;
    if (!asked || !line.starts_with("$ flopcast ")) continue;
    asked = false;
    ++answered;
  }
  EXPECT_GE(answered, 26);
}

TEST(TypedCommands, OfTwoNamesOfAKeyTheLastWins) {
  const std::vector<std::string> names = {"--tp", "--tensor-model-parallel-size", "--layout.tp"};
  for (const std::string& first : names) {
    for (const std::string& last : names) {
      const std::string command = fmt::format("simulate JOB {} 2 {} 4 --format json", first, last);
      EXPECT_EQ(json_of(run_flopcast(user_spelling(command)))["job"]["layout"]["tp"], 4) << command;
    }
  }
  EXPECT_EQ(json_of(run_flopcast(user_spelling(
                "simulate JOB --tp 2 --sp --sp=false --format json")))["job"]["layout"]["sequence_parallel"],
            false);
}

TEST(TypedCommands, AMinusIsStandardInput) {
  const TemporaryFolder folder;
  fill(folder.path());
  CommandOptions options;
  options.working_directory = folder.path();
  options.environment = {{"LC_ALL", "C.UTF-8"}};
  const std::vector<std::pair<const char*, std::vector<const char*>>> read = {
      {"a.json", {"simulate", "memory", "timeline", "compare FILE tp=8", "report"}},
      {"mine.csv",
       {"timeline", "schedule show", "schedule check", "schedule export",
        "schedule simulate FILE --forward 1 --backward-input 1 --backward-weight 1"}}};
  for (const auto& [file, all] : read) {
    for (const std::string command : all) {
      std::string named = command.find("FILE") == std::string::npos ? command + " FILE" : command;
      const std::size_t place = named.find("FILE");
      std::string piped = named;
      named.replace(place, 4, file);
      piped.replace(place, 4, "-");
      options.standard_input = read_text(folder.path() / file);
      const CommandResult from_file = start_flopcast(user_spelling(named), options);
      const CommandResult from_pipe = start_flopcast(user_spelling(piped), options);
      EXPECT_EQ(from_file.exit_code, 0) << named << from_file.standard_error;
      EXPECT_EQ(from_pipe.exit_code, 0) << piped << from_pipe.standard_error;
      EXPECT_EQ(from_pipe.standard_output.empty(), false) << piped;
    }
  }
}

}  // namespace
}  // namespace flopcast
