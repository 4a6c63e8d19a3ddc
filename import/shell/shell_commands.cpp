// Commands that affect reading a script: source, eval, sh -c, set, shift, functions, and #SBATCH.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "import/shell/shell_parser.hpp"

namespace flopcast {

namespace {

constexpr int kDeepestScripts = 8;

}  // namespace

bool takes_script(const std::string& text) {
  constexpr std::size_t kLongest = 5;
  return text.size() > 1 && text.size() <= kLongest && text[0] == '-' && text.back() == 'c' &&
         std::all_of(text.begin() + 1, text.end(), [](unsigned char c) { return std::islower(c) != 0; });
}

// Sets $0, $1 … and the variables of the environment.
void ShellParser::start() {
  script_.files = {file_};
  for (const auto& [name, value] : input_.environment) variables_[name] = {{{value, 0}}};
  variables_["0"] = {{{file_, 0}}};
  variables_["BASH_SOURCE"] = {{{file_, 0}}};
  std::vector<ShellWord> arguments;
  for (const std::string& argument : input_.arguments) arguments.push_back({argument, 0});
  set_arguments(arguments);
}

void ShellParser::set_arguments(const std::vector<ShellWord>& arguments) {
  for (std::size_t index = 1; index <= variables_["@"].words.size(); ++index)
    variables_.erase(fmt::format("{}", index));
  for (std::size_t index = 0; index < arguments.size(); ++index)
    variables_[fmt::format("{}", index + 1)] = {{arguments[index]}};
  variables_["#"] = {{{fmt::format("{}", arguments.size()), 0}}};
  variables_["@"] = {arguments};
}

void ShellParser::shift(std::size_t count) {
  std::vector<ShellWord> arguments = variables_["@"].words;
  arguments.erase(arguments.begin(),
                  arguments.begin() + static_cast<std::ptrdiff_t>(std::min(count, arguments.size())));
  set_arguments(arguments);
}

// SLURM sets its variables from the script's own #SBATCH lines (sbatch's manual, "OUTPUT ENVIRONMENT VARIABLES").
void ShellParser::read_sbatch(const ShellCommand& command) {
  struct BatchFlag {
    std::string_view flag;
    std::vector<const char*> names;
  };
  static const std::vector<BatchFlag> flags = {{"--nodes", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
                                               {"-N", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
                                               {"--ntasks", {"SLURM_NTASKS", "SLURM_NPROCS"}},
                                               {"-n", {"SLURM_NTASKS", "SLURM_NPROCS"}},
                                               {"--ntasks-per-node", {"SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}},
                                               {"--gpus-per-node", {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}},
                                               {"--gres", {"SLURM_GPUS_ON_NODE"}},
                                               {"--cpus-per-task", {"SLURM_CPUS_PER_TASK"}}};
  for (std::size_t index = 1; index < command.size(); ++index) {
    const std::string& text = command[index].text;
    const std::size_t equals = text.find('=');
    const std::string flag = text.substr(0, equals);
    std::string value = equals != std::string::npos  ? text.substr(equals + 1)
                        : index + 1 < command.size() ? command[index + 1].text
                                                     : "";
    const std::size_t colon = value.rfind(':');  // gpu:a100:8
    if (colon != std::string::npos) value = value.substr(colon + 1);
    for (const BatchFlag& known : flags) {
      if (known.flag != flag) continue;
      for (const char* name : known.names) {
        if (input_.environment.count(name) == 0) variables_[name] = {{{value, command[index].line, file_index_}}};
      }
    }
  }
}

// Reads the script in the word after sh -c; a prefix such as srun and its flags also applies to its commands.
void ShellParser::run_nested(const ShellCommand& prefix, const std::string& text, int line) {
  if (depth_ >= kDeepestScripts) fail("sh -c is nested too deeply", line);
  ShellParser nested = nested_in(text, line);
  take_over(nested, prefix);
}

void ShellParser::take_over(ShellParser& nested, const ShellCommand& prefix) {
  ShellScript inside = nested.parse();
  expanded_ = nested.expanded_;
  loops_ = nested.loops_;
  if (prefix.empty()) {
    variables_ = nested.variables_;
    functions_ = nested.functions_;
  }
  for (ShellCommand& command : inside.commands) {
    command.insert(command.begin(), prefix.begin(), prefix.end());
    script_.commands.push_back(std::move(command));
  }
  script_.has_conditions = script_.has_conditions || inside.has_conditions;
  script_.takes_arguments = script_.takes_arguments || inside.takes_arguments;
  script_.files = std::move(inside.files);
  script_.written.merge(inside.written);
  script_.warnings.insert(script_.warnings.end(), inside.warnings.begin(), inside.warnings.end());
  script_.notes.insert(script_.notes.end(), inside.notes.begin(), inside.notes.end());
  script_.not_found.insert(script_.not_found.end(), inside.not_found.begin(), inside.not_found.end());
}

// source FILE: relative to the script, or as its path says.
void ShellParser::follow(const ShellCommand& command) {
  const std::string& path = command[1].text;
  const std::size_t unset = path.rfind(kUnset);
  const std::string tail = unset == std::string::npos
                               ? path
                               : path.substr(path.find_first_not_of('/', unset + 1) == std::string::npos
                                                 ? unset
                                                 : path.find_first_not_of('/', unset + 1));
  const std::size_t slash = file_.rfind('/');
  const std::string beside = (slash == std::string::npos ? "" : file_.substr(0, slash + 1)) + tail;
  std::optional<std::string> text;
  std::string found;
  if (input_.read && depth_ < kDeepestScripts) {
    for (const std::string& each : {tail, beside}) {
      if (text || each.empty() || each.find(kUnset) != std::string::npos) continue;
      text = input_.read(each);
      found = each;
    }
  }
  if (!text) {
    script_.not_found.push_back(fmt::format("{}:{}: {}", file_, command[1].line,
                                            shown({command[1]}) + (unset == std::string::npos ? "" : "/" + tail)));
    return;
  }
  const std::string name = found;
  const std::string body = *text;
  ShellParser sourced(body, name, input_);
  sourced.inherit(*this);
  sourced.variables_["BASH_SOURCE"] = {{{name, 0}}};
  sourced.file_index_ = static_cast<int>(script_.files.size());
  sourced.script_.files.push_back(name);
  take_over(sourced, {});
  variables_["BASH_SOURCE"] = {{{file_, 0}}};
}

// Calls a function: $1, $2 … are the words after its name; its local variables end with it.
void ShellParser::call(ShellFunction function, const ShellCommand& command) {
  if (depth_ >= kDeepestScripts) fail(fmt::format("{} calls itself too deeply", command[0].text), command[0].line);
  const std::string body = std::move(function.body);
  const std::string file = std::move(function.file);
  const std::vector<ShellWord> outer = variables_["@"].words;
  ShellParser nested(body, file, input_);
  nested.inherit(*this);
  nested.line_ = function.line;
  nested.file_index_ = function.file_index;
  nested.in_function_ = true;
  nested.set_arguments(std::vector<ShellWord>(command.begin() + 1, command.end()));
  take_over(nested, {});
  for (auto& [name, before] : nested.locals_) {
    if (before) {
      variables_[name] = std::move(*before);
    } else {
      variables_.erase(name);
    }
  }
  set_arguments(outer);
}

void ShellParser::add_command(ShellCommand command) {
  if (const auto function = functions_.find(command.front().text); function != functions_.end())
    return call(function->second, command);
  if (command.front().text == "eval" && command.size() > 1) {
    std::string text;
    for (std::size_t index = 1; index < command.size(); ++index) text += command[index].text + " ";
    return run_nested({}, text, command[1].line);
  }
  const std::string& name = command.front().text;
  if ((name == "source" || name == ".") && command.size() > 1) return follow(command);
  if (name == "shift")
    return shift(command.size() > 1
                     ? static_cast<std::size_t>(std::max(0L, std::strtol(command[1].text.c_str(), nullptr, 10)))
                     : 1);
  if (name == "printf" && command.size() > 4 && command[1].text == "-v") {
    std::string text = command[3].text;
    const std::size_t place = text.find("%s");
    if (place != std::string::npos) text.replace(place, 2, command[4].text);
    return assign(command[2].text, {{{text, command[4].line, file_index_}}}, false);
  }
  if (name == "let") {
    for (std::size_t index = 1; index < command.size(); ++index) calculate(command[index].text);
    return;
  }
  if (name == "set" && command.size() > 1 && command[1].text == "--") {
    return set_arguments(std::vector<ShellWord>(command.begin() + 2, command.end()));
  }
  for (std::size_t index = 0; index + 2 < command.size(); ++index) {
    const std::string& path = command[index].text;
    const std::string program = path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
    if (program != "sh" && program != "bash" && program != "dash" && program != "zsh") continue;
    std::size_t option = index + 1;
    while (option + 1 < command.size() && command[option].text[0] == '-' && !takes_script(command[option].text))
      ++option;
    if (option + 1 >= command.size() || !takes_script(command[option].text)) continue;
    const ShellCommand prefix(command.begin(), command.begin() + static_cast<std::ptrdiff_t>(index));
    return run_nested(prefix, command[option + 1].text, command[option + 1].line);
  }
  script_.commands.push_back(std::move(command));
}

}  // namespace flopcast
