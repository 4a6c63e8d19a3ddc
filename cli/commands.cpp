#include "cli/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/host/files.hpp"
#include "base/host/guard.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "cli/options/question_form.hpp"

namespace flopcast {

namespace {

std::string overview(const std::string& program, const std::string& description,
                     const std::vector<CommandEntry>& entries) {
  std::string text = fmt::format("{}\n\nusage: {} COMMAND [options]\n\ncommands:\n", description, program);
  std::size_t widest = 0;
  for (const CommandEntry& entry : entries) widest = std::max(widest, entry.name.size());
  for (const CommandEntry& entry : entries) text += fmt::format("  {:<{}}  {}\n", entry.name, widest, entry.summary);
  text += fmt::format("\n{} COMMAND --help lists the flags of a command.\n", program);
  return text;
}

CommandEntry command_of(const QuestionInfo& question, std::size_t skipped = 0) {
  return {std::string(question.name.substr(skipped)), question.summary,
          [&question](const Arguments& arguments, const Streams& streams) {
            return answer_arguments(question, arguments, streams);
          }};
}

CommandEntry asks(std::string_view name) {
  return command_of(question_named(name));
}

// A command whose subcommands are the questions that begin with `group`.
CommandEntry group_of(const std::string& group, std::string_view summary, const std::string& description) {
  const auto run = [group, description](const Arguments& arguments, const Streams& streams) {
    std::vector<CommandEntry> entries;
    for (const QuestionInfo& question : questions()) {
      if (question.name.starts_with(group + " ")) entries.push_back(command_of(question, group.size() + 1));
    }
    return dispatch("flopcast " + group, description, entries, arguments, streams);
  };
  return {group, summary, run, true};
}

}  // namespace

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> entries = {
      asks("plan"),
      asks("simulate"),
      asks("memory"),
      asks("compare"),
      asks("sweep"),
      asks("timeline"),
      group_of("schedule", "list, show, check, simulate and export pipeline schedules",
               "Pipeline schedules without a model."),
      group_of("network", "links shared by transfers: end times, loads", "Links that several transfers share."),
      asks("calibrate"),
      asks("fit"),
      asks("partition"),
      asks("validate"),
      asks("run"),
      asks("report"),
      asks("catalog"),
      asks("convert"),
      asks("explain"),
      {"completion", "shell completion for bash, zsh and fish", run_completion},
  };
  return entries;
}

int dispatch(const std::string& program, const std::string& description, const std::vector<CommandEntry>& entries,
             const Arguments& arguments, const Streams& streams) {
  const bool says_help = !arguments.empty() && arguments.front() == "help";
  const bool asks_for_help = arguments.empty() || says_help || arguments.front() == "--help" ||
                             arguments.front() == "--help-all" || arguments.front() == "-h";
  // "help simulate" means "simulate --help".
  if (says_help && arguments.size() > 1) {
    const auto named = std::find_if(entries.begin(), entries.end(),
                                    [&arguments](const CommandEntry& entry) { return entry.name == arguments[1]; });
    if (named != entries.end()) return named->run({"--help"}, streams);
    return dispatch(program, description, entries, Arguments(arguments.begin() + 1, arguments.end()), streams);
  }
  if (asks_for_help) {
    write_output(streams, "", overview(program, description, entries));
    return 0;
  }
  if (arguments.size() == 1 && arguments.front() == kListFlags) {
    std::string names;
    for (const CommandEntry& entry : entries) names += fmt::format("{}\n", entry.name);
    write_output(streams, "", names);
    return 0;
  }
  std::vector<std::string> names;
  for (const CommandEntry& entry : entries) names.emplace_back(entry.name);
  for (const CommandEntry& entry : entries) {
    if (entry.name == arguments.front()) return entry.run(Arguments(arguments.begin() + 1, arguments.end()), streams);
  }
  throw ConfigError(
      {"", fmt::format("unknown command \"{}\"", arguments.front()), "", choices_help(arguments.front(), names)});
}

int run_program(const Arguments& arguments, const Streams& streams) {
  const auto run = [&] {
    if (!arguments.empty() && arguments.front() == "--version") {
      const bool is_verbose = arguments.size() == 2 && arguments[1] == "--verbose";
      if (arguments.size() > 1 && !is_verbose) {
        throw ConfigError({"", fmt::format("--version does not take \"{}\"", arguments[1]), "",
                           "--version --verbose lists the components of flopcast"});
      }
      std::string text = "flopcast " FLOPCAST_VERSION "\n";
      if (is_verbose) text += build_components();
      write_output(streams, "", text);
      return 0;
    }
    return dispatch("flopcast",
                    "flopcast forecasts distributed deep-learning training before the cluster is rented.\n\n"
                    "  flopcast simulate --model gpt3-175b --cluster 8xdgx-a100-80g --tp 8 --pp 8 --gbs 64\n"
                    "  flopcast memory job.json --check\n"
                    "  flopcast timeline --pp 4 --microbatches 8 --schedule gpipe,1f1b",
                    commands(), arguments, streams);
  };
  return exit_code_of(run, true, streams);
}

}  // namespace flopcast
