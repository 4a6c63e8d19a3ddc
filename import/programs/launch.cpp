#include "import/programs/launch.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/text/error.hpp"

namespace flopcast {

LaunchFile write_launch(LaunchProgram program, const Job& job) {
  switch (program) {
    case LaunchProgram::kMegatron:
      return write_megatron(job);
    case LaunchProgram::kDeepSpeed:
      return write_deepspeed(job);
    case LaunchProgram::kTorchrun:
      return write_torchrun(job);
    case LaunchProgram::kAccelerate:
      return write_accelerate(job);
  }
  FLOPCAST_CHECK(false);
  return {};
}

void Expressible::require(bool holds, const std::string& what, const std::string& instead) {
  if (holds) return;
  missing_.push_back(what);
  const bool is_new = std::find(help_.begin(), help_.end(), instead) == help_.end();
  if (!instead.empty() && is_new) help_.push_back(instead);
}

void Expressible::require_common(const Job& job) {
  const Layout& layout = job.layout;
  require(!job.profile, "a model that is a layer profile", "a transformer");
  require(!job.cluster.uneven(), "a cluster of uneven nodes", "a count of nodes");
  require(layout.tensor_parallel == TensorParallel::k1d, "layout.tensor_parallel other than 1d",
          "--layout.tensor_parallel 1d");
  require(layout.compression.kind == Compression::Kind::kNone,
          fmt::format("layout.compression {}", layout.compression.text()), "--layout.compression none");
  require(layout.placement == Layout().placement, "layout.placement other than tp-cp-dp-pp",
          "--layout.placement tp-cp-dp-pp");
  const std::string_view form = name_of(layout.data_parallel);
  const bool is_known = layout.data_parallel == DataParallel::kDdp || layout.data_parallel == DataParallel::kFsdp ||
                        layout.data_parallel == DataParallel::kHsdp;
  require(is_known, fmt::format("layout.data_parallel {}", form), "--layout.data_parallel ddp");
  const Training& training = job.training;
  require(!training.preference, "training.preference", "a job without it");
  require(!training.paged_optimizer, "training.paged_optimizer", "--training.paged_optimizer=false");
  require(training.master_weights, "training.master_weights false", "--training.master_weights=true");
  require(job.training.transport == Transport::kNccl, "training.transport other than nccl",
          "--training.transport nccl");
  require(job.training.gradient_transport == Transport::kNccl, "training.gradient_transport other than nccl",
          "--training.gradient_transport nccl");
  require(job.training.precision != Precision::kTf32, "training.precision tf32", "--precision bf16");
}

void Expressible::enforce() const {
  if (missing_.empty()) return;
  throw ConfigError({"--emit", fmt::format("{} cannot express {}", program_, fmt::join(missing_, ", ")), "",
                     help_.empty() ? "" : fmt::format("give {}", fmt::join(help_, "; "))});
}

std::string schedule_base_name(const Layout& layout) {
  return layout.schedule.substr(0, layout.schedule.find(':'));
}

bool runs_one_microbatch(const Layout& layout) {
  return schedule_base_name(layout) == "naive" && layout.microbatches() == 1;
}

namespace {

bool is_flag(const std::string& text) {
  constexpr std::size_t kShortest = 3;
  return text.size() >= kShortest && text[0] == '-' && text[1] == '-' &&
         std::isalpha(static_cast<unsigned char>(text[2])) != 0;
}

std::string name_in(const std::string& flag) {
  std::string name = flag.substr(2, flag.find('=') - 2);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool is_model_flag(const std::string& name) {
  return name == "num-layers" || name == "hidden-size" || name == "num-attention-heads";
}

// True for a command that trains, as opposed to other commands of a script (downloads, conversions).
bool trains(const ShellCommand& command) {
  return std::any_of(command.begin(), command.end(), [](const ShellWord& word) {
    if (!is_flag(word.text)) return false;
    const std::string name = name_in(word.text);
    return is_model_flag(name) || name == "tensor-model-parallel-size" || name == "model-parallel-size" ||
           name == "micro-batch-size" || name == "global-batch-size" || name == "seq-length";
  });
}

bool prints(const ShellCommand& command) {
  return command.front().text == "echo" || command.front().text == "printf";
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
}

// Python accepts underscores in numbers, 220_000_000 and 3_2, but neither at an end nor next to each other.
std::string without_underscores(const std::string& text) {
  std::string digits;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool between = text[at] == '_' && at > 0 && at + 1 < text.size() &&
                         std::isdigit(static_cast<unsigned char>(text[at - 1])) != 0 &&
                         std::isdigit(static_cast<unsigned char>(text[at + 1])) != 0;
    if (!between) digits += text[at];
  }
  return digits;
}

ShellInput input_of(const std::string& file, const ImportContext& context) {
  ShellInput input;
  input.arguments = context.arguments;
  input.environment = context.environment;
  if (context.files != nullptr) {
    input.read = [&files = *context.files, file](const std::string& path) -> std::optional<std::string> {
      if (path == file || files.kind_of(path) != Files::Kind::kFile) return std::nullopt;
      return files.try_read(path);
    };
  }
  return input;
}

}  // namespace

LaunchArguments::LaunchArguments(std::string_view text, const std::string& file, const ImportContext& context,
                                 ImportedJob& imported)
    : file_(file),
      context_(context),
      table_(KeyTable::of("megatron")),
      script_(parse_shell(text, file, input_of(file, context))) {
  const auto starts_with_flag = [](const ShellCommand& command) { return is_flag(command.front().text); };
  // The text may be an argument list instead of a command: its lines start with flags.
  const bool is_list = !script_.commands.empty() && starts_with_flag(script_.commands.front());
  imported.warnings = script_.warnings;
  imported.notes = script_.notes;
  int trainings = 0;
  std::string other;
  const bool runs = std::any_of(script_.commands.begin(), script_.commands.end(), [](const ShellCommand& command) {
    return command.front().text != "#SBATCH" && !prints(command) && trains(command);
  });
  std::map<std::string, Argument> shared;
  std::map<std::string, Argument> earlier;
  for (const ShellCommand& command : script_.commands) {
    const bool is_batch = command.front().text == "#SBATCH";
    if (runs && prints(command)) continue;
    if (is_batch || (is_list && starts_with_flag(command))) add_command(command);
    if (starts_with_flag(command) || is_batch || !trains(command)) continue;
    note_program(command);
    const std::string told = table_.program_reason(program_, "no_training");
    if (!told.empty()) {
      other = program_;
      continue;
    }
    if (trainings++ == 0) {
      shared = arguments_;
    } else {
      earlier = std::exchange(arguments_, shared);
    }
    add_command(command);
    compare_with(earlier);
  }
  std::string dropped;
  for (const auto& [name, argument] : earlier) {
    const KeyTable::Entry* entry = table_.find(name);
    const bool matters = entry == nullptr || entry->kind != KeyTable::Kind::kNoEffect;
    if (matters && arguments_.count(name) == 0) dropped += (dropped.empty() ? "" : ", ") + argument.written;
  }
  if (!dropped.empty())
    imported.warnings.push_back(
        fmt::format("{}: the last training command is read, without {} of the previous one", file, dropped));
  if (trainings == 0 && !is_list && other.empty()) add_variables();
  const bool only_batch = trainings == 0 && !is_list && !is_part_;
  if (only_batch) {
    throw ConfigError(
        {"",
         other.empty() ? fmt::format("{} does not start a training that flopcast knows", file)
                       : fmt::format("{} starts {}, which does not train", file, other),
         file,
         "give the script that passes --num-layers, --hidden-size, … to pretrain_gpt.py, megatron sft or another "
         "program of the Megatron family, or its list of arguments"});
  }
  if (trainings > 1) {
    imported.warnings.push_back(fmt::format("{}: {} training commands; the last one is read", file, trainings));
  }
  if (script_.has_conditions) {
    imported.notes.push_back(
        fmt::format("{}: loops are read once, and every undecidable branch is read as if it ran", file));
  }
  for (const std::string& path : script_.not_found) {
    imported.notes.push_back(fmt::format("{} was not found: variables that it sets are unknown", path));
  }
}

LaunchArguments::LaunchArguments(const std::vector<GivenArgument>& given, std::string program, const std::string& file,
                                 const ImportContext& context)
    : file_(file), context_(context), table_(KeyTable::of("megatron")), program_(std::move(program)) {
  for (const GivenArgument& argument : given) {
    Argument& kept = arguments_[table_.name_of(argument.name)];
    kept = {argument.written, {}, {}, argument.place};
    for (const std::string& value : argument.values) kept.values.push_back({value, 0});
  }
}

void LaunchArguments::note_program(const ShellCommand& command) {
  for (std::size_t index = 0; index < command.size(); ++index) {
    const std::string name = base_name(command[index].text);
    if (name == "megatron" && index + 1 < command.size()) {
      program_ = "megatron " + command[index + 1].text;
      return;
    }
    const bool is_module = index > 0 && command[index - 1].text == "-m" &&
                           name.find("torch.distributed") == std::string::npos &&
                           name.find("accelerate") == std::string::npos;
    if (name.ends_with(".py") || is_module) {
      program_ = name;
      return;
    }
  }
}

// Reads arguments from variables such as MODEL_ARGS=( --num-layers 46 … ), for a file that another one sources.
void LaunchArguments::add_variables() {
  for (const auto& [name, words] : script_.variables) {
    ShellCommand command;
    for (const ShellWord& word : words) {
      // A plain variable is one word that is split where it is used.
      std::size_t begin = 0;
      while (begin < word.text.size()) {
        const std::size_t end = std::min(word.text.find_first_of(" \t\n", begin), word.text.size());
        if (end > begin) command.push_back({word.text.substr(begin, end - begin), word.line, word.file});
        begin = end + 1;
      }
    }
    if (command.empty() || !is_flag(command.front().text)) continue;
    add_command(command);
  }
  is_part_ =
      std::any_of(arguments_.begin(), arguments_.end(), [](const auto& entry) { return is_model_flag(entry.first); });
  if (!is_part_) arguments_.clear();
}

void LaunchArguments::compare_with(const std::map<std::string, Argument>& before) {
  const auto shown = [](const Argument& argument) {
    if (argument.values.empty()) return std::string();
    const std::string unset = unset_name(argument.values.front().text);
    return unset.empty() ? argument.values.front().text : unset;
  };
  for (const auto& [name, earlier] : before) {
    const auto now = arguments_.find(name);
    if (now == arguments_.end() || shown(now->second) == shown(earlier)) continue;
    const Argument& argument = now->second;
    twice_[name] = fmt::format("{}: \"{}\" here and \"{}\" in line {}; the later one is used", place(name),
                               shown(argument), shown(earlier), earlier.at.line);
  }
}

void LaunchArguments::add_command(const ShellCommand& command) {
  Argument* current = nullptr;
  std::map<std::string, Argument> before;
  for (const ShellWord& word : command) {
    const bool short_nodes = word.text == "-N" && command.front().text == "#SBATCH";
    if (!is_flag(word.text) && !short_nodes) {
      if (current != nullptr) current->values.push_back(word);
      continue;
    }
    const std::size_t equals = word.text.find('=');
    const std::string name = table_.name_of(short_nodes ? "nodes" : name_in(word.text));
    const auto earlier = arguments_.find(name);
    if (earlier != arguments_.end()) before[name] = earlier->second;
    current = &(arguments_[name] = {word.text.substr(0, equals), {}, word, ""});
    if (equals != std::string::npos) {
      current->values.push_back({word.text.substr(equals + 1), word.line, word.file});
    }
  }
  compare_with(before);
}

const LaunchArguments::Argument* LaunchArguments::find(const std::string& name) {
  asked_.push_back(name);
  const auto argument = arguments_.find(name);
  return argument == arguments_.end() ? nullptr : &argument->second;
}

bool LaunchArguments::has(const std::string& name) {
  const Argument* argument = find(name);
  if (argument == nullptr) return false;
  if (argument->values.empty()) return true;
  std::string value = argument->values.front().text;
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
  return value != "false" && value != "0";
}

void LaunchArguments::set_default(const std::string& name, const std::string& value) {
  if (arguments_.count(name) == 0) arguments_[name] = {"", {{value, 0}}, {}, ""};
}

bool LaunchArguments::is_written_as(const std::string& name, std::string_view written) const {
  const auto argument = arguments_.find(name);
  return argument != arguments_.end() && argument->second.written.size() > 2 &&
         name_in(argument->second.written) == written;
}

std::string LaunchArguments::variable(const std::string& name) const {
  const auto variable = script_.variables.find(name);
  if (variable == script_.variables.end() || variable->second.empty()) return "";
  const std::string& text = variable->second.front().text;
  return unset_name(text).empty() ? text : "";
}

std::optional<std::string> LaunchArguments::written_file(const std::string& path) const {
  const auto file = script_.written.find(path);
  return file == script_.written.end() ? std::nullopt : std::optional<std::string>(file->second);
}

std::string LaunchArguments::place(const std::string& name) const {
  const auto argument = arguments_.find(name);
  if (argument == arguments_.end() || argument->second.written.empty()) return file_;
  if (!argument->second.place.empty()) return argument->second.place;
  const ShellWord& at = argument->second.at;
  const auto index = static_cast<std::size_t>(at.file);
  const std::string& file = index < script_.files.size() ? script_.files[index] : file_;
  return fmt::format("{}:{}: {}", file, at.line, argument->second.written);
}

void LaunchArguments::fail(const std::string& name, const std::string& problem, const std::string& help) const {
  throw ConfigError({"--" + name, problem, place(name), help});
}

void LaunchArguments::report_missing(const std::string& name, const std::string& field) {
  const auto same = [&](const Open& open) { return open.name == name; };
  if (is_part_ || context_.has(field) || std::any_of(open_.begin(), open_.end(), same)) return;
  open_.push_back({name, "", field});
}

bool LaunchArguments::is_missing(const std::string& name) const {
  return std::any_of(open_.begin(), open_.end(), [&](const Open& open) { return open.name == name; });
}

void LaunchArguments::refuse_open() const {
  if (open_.empty()) return;
  // A misspelt argument is reported instead of the one that seems absent.
  for (const Open& open : open_) {
    if (!open.unset.empty()) continue;
    std::vector<std::string> unknown;
    for (const auto& [other, argument] : arguments_) {
      if (table_.find(other) == nullptr) unknown.push_back(other);
    }
    constexpr std::size_t kLongestSlip = 2;
    for (const std::string& near : nearest_choices(open.name, unknown)) {
      if (std::max(near.size(), open.name.size()) - std::min(near.size(), open.name.size()) > kLongestSlip) continue;
      throw ConfigError({"--" + open.name, "is required", place(near),
                         fmt::format("the file has {}; did you mean --{}?", arguments_.at(near).written, open.name)});
    }
  }
  std::vector<std::string> told;
  std::vector<std::string> flags;
  bool any_unset = false;
  bool any_settable = false;
  for (const Open& open : open_) {
    told.push_back(open.unset.empty() ? fmt::format("--{} is required", open.name)
                                      : fmt::format("--{} takes its value from {}", open.name, open.unset));
    any_unset = any_unset || !open.unset.empty();
    // Values that the script computes itself, $(nproc) or $((1/0)), override the environment.
    const bool worked_out = open.unset.starts_with("$(") || open.unset.starts_with('`');
    any_settable = any_settable || (!open.unset.empty() && !worked_out);
    if (!open.field.empty()) flags.push_back("--" + open.field);
  }
  std::string help;
  if (any_unset && script_.takes_arguments)
    help = "pass the script's arguments after --: flopcast convert FILE -- ARG…; ";
  if (any_settable) help += "set a variable with --env NAME=VALUE; ";
  if (!script_.not_found.empty()) help += fmt::format("{} was not found and may set it; ", script_.not_found.front());
  if (!flags.empty()) help += fmt::format("{}give {}", any_unset && !any_settable ? "" : "or ", fmt::join(flags, ", "));
  const bool lacks_model =
      std::any_of(open_.begin(), open_.end(), [](const Open& open) { return open.field.starts_with("model."); });
  if (lacks_model) help += " or --model NAME";
  const Open& first = open_.front();
  const std::string problem =
      open_.size() > 1      ? fmt::format("{} values are missing: {}", open_.size(), fmt::join(told, ", "))
      : first.unset.empty() ? "is required"
                            : fmt::format("takes its value from {}, which the script does not set", first.unset);
  throw ConfigError({"--" + first.name, problem, place(first.name), help});
}

const std::string* LaunchArguments::value_of(const std::string& name, const std::string& field) {
  const Argument* argument = find(name);
  if (argument == nullptr) return nullptr;
  if (argument->values.empty()) fail(name, "has no value", fmt::format("write --{} VALUE", name));
  const std::string& value = argument->values.front().text;
  const std::string unset = unset_name(value);
  if (unset.empty()) return &value;
  if (!context_.has(field) && !is_missing(name)) open_.push_back({name, unset, field});
  return nullptr;
}

std::optional<int> LaunchArguments::whole(const std::string& name, int smallest, const std::string& field) {
  const std::string* value = value_of(name, field);
  if (value == nullptr) return std::nullopt;
  const std::string digits = without_underscores(*value);
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end);
  const bool is_number =
      !digits.empty() && *end == '\0' && digits.find_first_not_of("0123456789+-") == std::string::npos;
  if (!is_number)
    fail(name, fmt::format("\"{}\" is not a whole number", *value),
         field.empty() ? fmt::format("write --{} N", name) : fmt::format("or give --{} N", field));
  constexpr int kLargest = std::numeric_limits<int>::max();
  if (number < smallest || number > kLargest) {
    fail(name, fmt::format("{} is out of range", digits), fmt::format("expected {} to {}", smallest, kLargest));
  }
  return static_cast<int>(number);
}

std::optional<double> LaunchArguments::number(const std::string& name, const std::string& field) {
  const std::string* value = value_of(name, field);
  if (value == nullptr) return std::nullopt;
  const std::string digits = without_underscores(*value);
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end);
  if (digits.empty() || *end != '\0')
    fail(name, fmt::format("\"{}\" is not a number", *value),
         field.empty() ? "expected a number" : fmt::format("or give --{}", field));
  return number;
}

std::optional<std::string> LaunchArguments::text(const std::string& name, const std::string& field) {
  const std::string* value = value_of(name, field);
  return value == nullptr ? std::nullopt : std::optional<std::string>(*value);
}

std::string LaunchArguments::all_text(const std::string& name) {
  const Argument* argument = find(name);
  std::string all;
  if (argument == nullptr) return all;
  for (const ShellWord& word : argument->values) all += (all.empty() ? "" : " ") + word.text;
  return all;
}

void LaunchArguments::warn_of(const std::string& name, const std::string& how, ImportedJob& imported) {
  find(name);
  imported.warn_of(arguments_.at(name).written, place(name), how);
}

void LaunchArguments::finish(ImportedJob& imported) const {
  KeyJudge judge(table_, imported);
  for (const auto& [name, argument] : arguments_) {
    if (argument.written.empty()) continue;
    const auto& told = imported.keys.not_modelled;
    if (std::find(told.begin(), told.end(), argument.written) != told.end()) continue;
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) {
      imported.keys.read.push_back(argument.written);
      const auto twice = twice_.find(name);
      if (twice != twice_.end()) imported.warnings.push_back(twice->second);
      continue;
    }
    std::string value;
    for (const ShellWord& word : argument.values) value += (value.empty() ? "" : " ") + word.text;
    judge.judge(name, value, argument.written, place(name));
  }
  judge.finish(file_);
}

}  // namespace flopcast
