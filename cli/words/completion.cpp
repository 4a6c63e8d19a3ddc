#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "cli/commands.hpp"
#include "cli/options/output.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/job/fields.hpp"
#include "planner/search/search.hpp"
#include "reports/result/result_tables.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

// The shells only pass on the words typed so far; the candidates are computed below, in one place for all shells.
constexpr const char* kBash = R"sh(# flopcast: bash completion. Load it with: source <(flopcast completion bash)
_flopcast() {
  local current="${COMP_WORDS[COMP_CWORD]}"
  local words
  words="$(flopcast completion words --current "$current" -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _flopcast flopcast
)sh";

constexpr const char* kZsh = R"sh(#compdef flopcast
# flopcast: zsh completion. Load it with: source <(flopcast completion zsh)
_flopcast() {
  local -a candidates
  candidates=("${(@f)$(flopcast completion words --current "$words[CURRENT]" -- "${(@)words[2,CURRENT-1]}" 2>/dev/null)}")
  compadd -a candidates
  _files
}
# If installed as a separate file, this file is the function body and runs at the first TAB.
if [[ "$funcstack[1]" == _flopcast ]]; then
  _flopcast "$@"
else
  compdef _flopcast flopcast
fi
)sh";

constexpr const char* kFish = R"sh(# flopcast: fish completion. Load it with: flopcast completion fish | source
function __flopcast_words
  set -l typed (commandline -opc)
  set -l current (commandline -ct)
  flopcast completion words --current "$current" -- $typed[2..-1] 2>/dev/null
end
complete -c flopcast -a '(__flopcast_words)'
)sh";

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleInfo& info : schedule_catalogue()) names.emplace_back(info.name);
  return names;
}

// Values of a key with a fixed set of values; empty for numbers, sizes and files.
std::vector<std::string> values_of_key(const JobKey& key) {
  if (key.field == "layout.schedule") return schedule_names();
  return key.entry->choices == nullptr ? std::vector<std::string>() : key.entry->choices();
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word.front() == '-';
}

std::vector<std::string> values_of_flag(const std::string& flag) {
  if (flag == "--format") return format_names();
  if (flag == "--color") return {"auto", "always", "never"};
  if (flag == "--objective") return names_of<Objective>();
  for (const JobKey& key : job_keys()) {
    const bool names_it = flag == fmt::format("--{}", key.field) ||
                          std::find(key.aliases.begin(), key.aliases.end(), flag) != key.aliases.end();
    if (names_it) return values_of_key(key);
  }
  return {};
}

void print_words(const std::vector<std::string>& words, const Streams& streams) {
  std::string lines;
  for (const std::string& word : words) lines += word + "\n";
  if (!lines.empty()) write_output(streams, "", lines);
}

// Prefix of the current word that a completed value keeps: "8x" of "8xdgx", "gpipe," of "gpipe,1f".
std::string kept_of(const std::string& current) {
  const std::size_t comma = current.rfind(',');
  const std::size_t begin = comma == std::string::npos ? 0 : comma + 1;
  const std::size_t digits = current.find_first_not_of("0123456789", begin);
  const bool counted = digits != std::string::npos && digits > begin && current[digits] == 'x';
  return current.substr(0, counted ? digits + 1 : begin);
}

// Prints the candidates for `current` after the words typed so far (without the program's name).
int print_candidates(const Arguments& typed, const std::string& current, const Streams& streams) {
  if (!typed.empty() && is_flag(typed.back())) {
    std::vector<std::string> values = values_of_flag(typed.back());
    if (!values.empty()) {
      const std::string kept = kept_of(current);
      for (std::string& value : values) value.insert(0, kept);
      print_words(values, streams);
      return 0;
    }
  }
  std::vector<std::string> words;
  std::copy_if(typed.begin(), typed.end(), std::back_inserter(words),
               [](const std::string& word) { return !is_flag(word); });
  for (const CommandEntry& entry : commands()) {
    if (words.empty()) print_words({std::string(entry.name)}, streams);
    if (words.empty() || entry.name != words.front()) continue;
    if (entry.name == "catalog" && words.size() == 1) {
      print_words(names_of<CatalogueKind>(), streams);
      print_words({"schedules"}, streams);
    } else if (entry.name == "explain" && words.size() == 1) {
      for (const Explanation& explanation : read_explanations()) {
        if (explanation.name.find(' ') == std::string::npos) print_words({explanation.name}, streams);
      }
    } else if (entry.name == "completion") {
      if (words.size() == 1) print_words({"bash", "zsh", "fish"}, streams);
      return 0;
    }
    // Prints the command's flags; for a command with subcommands, those of the subcommand typed.
    Arguments request;
    if (words.size() > 1 && entry.has_commands) request.push_back(words[1]);
    request.emplace_back(kListFlags);
    return entry.run(request, streams);
  }
  return 0;
}

}  // namespace

int run_completion(const Arguments& arguments, const Streams& streams) {
  if (!arguments.empty() && arguments.front() == "words") {
    auto begin = arguments.begin() + 1;
    std::string current;
    if (arguments.end() - begin >= 2 && *begin == "--current") {
      current = *(begin + 1);
      begin += 2;
    }
    if (begin != arguments.end() && *begin == "--") ++begin;
    return print_candidates(Arguments(begin, arguments.end()), current, streams);
  }
  CommandLine command_line(
      streams, "completion", "flopcast completion (bash | zsh | fish)",
      "Prints a script with which the shell completes commands, flags, and names from the catalogue.",
      {"source <(flopcast completion bash)", "flopcast completion fish | source"});
  std::optional<std::string> shell;
  command_line.add_positional("SHELL", shell, "bash, zsh or fish");
  if (!command_line.parse(arguments)) return 0;
  const std::map<std::string, const char*> scripts = {{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
  const auto script = scripts.find(shell.value_or(""));
  if (script == scripts.end()) {
    throw ConfigError({"", shell ? fmt::format("unknown shell \"{}\"", *shell) : "completion: no shell given", "",
                       choices_help(shell.value_or(""), {"bash", "zsh", "fish"})});
  }
  write_output(streams, "", script->second);
  return 0;
}

}  // namespace flopcast
