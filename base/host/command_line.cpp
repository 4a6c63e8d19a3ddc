#include "base/host/command_line.hpp"
#include "base/host/files.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/table.hpp"
#include "base/text/words.hpp"

namespace flopcast {

// Orders help the way people read it: description, usage, examples, then flags by topic, the command's own first.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter(std::string usage, std::string examples, std::string command, int width)
      : usage_(std::move(usage)), examples_(std::move(examples)), command_(std::move(command)), width_(width) {
    constexpr std::size_t kFlagColumn = 34;
    column_width(kFlagColumn);
  }
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return fmt::format("{}\n{}", wrapped("usage: " + usage_, width_, "  "),
                       examples_.empty() ? "" : "\nexamples:\n" + examples_);
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), width_) + "\n";
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  // The flag, followed by its description wrapped within a column of its own.
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string flag =
        "  " + make_option_name(option, is_positional) + (is_positional ? "" : make_option_opts(option));
    const auto column = column_width_;
    const int narrowest = 20;
    const int beside = width_ == 0 ? 0 : std::max(narrowest, width_ - static_cast<int>(column));
    const std::size_t taken = text_columns(flag);
    std::string text = flag + (taken >= column ? "\n" + std::string(column, ' ') : std::string(column - taken, ' '));
    for (const char character : wrapped(make_option_desc(option), beside)) {
      text += character;
      if (character == '\n') text += std::string(column, ' ');
    }
    return text + "\n";
  }
  std::string make_help(const CLI::App* app, std::string /*name*/, CLI::AppFormatMode /*mode*/) const override {
    std::string own;
    std::string last;
    std::vector<const CLI::Option*> short_ones;
    for (const std::string& group : app->get_groups()) {
      const std::vector<const CLI::Option*> options = app->get_options(
          [&group](const CLI::Option* option) { return option->get_group() == group && option->nonpositional(); });
      if (group.empty() || options.empty()) continue;
      const bool rest = std::find(rest_groups.begin(), rest_groups.end(), group) != rest_groups.end();
      if (!rest) {
        own += make_group(group, false, options) + "\n";
      } else if (all) {
        last += make_group(group, false, options) + "\n";
      } else {
        for (const CLI::Option* option : options) {
          const bool is_short = option->get_name().find('.') == std::string::npos;
          if (is_short) short_ones.push_back(option);
        }
      }
    }
    if (!short_ones.empty())
      last = make_group(fmt::format("Job ({} --help-all has every key)", command_), false, short_ones);
    return make_description(app) + make_usage(app, "") + make_positionals(app) + own + last;
  }

  std::vector<std::string> rest_groups;
  bool all = false;

 private:
  std::string usage_;
  std::string examples_;
  std::string command_;
  int width_;  // 0: unlimited
};

struct CommandLine::Parser {
  // A flag that takes one value, or is true when given without one: --tp 8, --sp, --sp=false. With `values` set, it
  // takes one value per occurrence.
  struct Flag {
    std::string listed_names;
    std::vector<std::string> names;
    bool is_switch;
    std::string value_name;
    std::string what;
    std::string group;
    std::function<void(const std::string&)> callback;
    std::vector<std::string>* values = nullptr;
    std::string text = "true";
    CLI::Option* option = nullptr;
  };

  void add(const std::string& listed_names, bool is_switch, const std::string& value_name, const std::string& what,
           const std::string& flag_group, const std::function<void(const std::string&)>& callback);
  void give_to_app(Flag& flag);
  void give_to_app_for(const std::vector<std::string>& arguments);

  Streams streams;
  CLI::App app;
  std::string name;  // including the program's name
  std::string group = "Options";
  std::string typed;
  std::deque<Flag> flags;                    // stable addresses: the parser keeps references to their texts
  std::vector<std::string>* rest = nullptr;  // the words after a bare --
  std::vector<OutputOfFlag> outputs;
  std::shared_ptr<HelpFormatter> help;
};

namespace {

// A repeated flag overrides its earlier values.
void last_wins(CLI::Option* option) {
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

[[noreturn]] void refuse(const std::string& field, const std::string& problem, const std::string& command,
                         const std::string& help) {
  throw ConfigError({field, problem, "", help.empty() ? fmt::format("see: {} --help", command) : help});
}

std::vector<std::string> known_flags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

// Completes a suffix: "--batch-size" matches --micro-batch-size and --global-batch-size.
std::vector<std::string> flags_that_end_with(const std::string& flag, const std::vector<std::string>& known) {
  constexpr std::size_t kShortest = 6;
  std::vector<std::string> longer;
  if (flag.size() < kShortest || flag[1] != '-') return longer;
  for (const std::string& one : known) {
    if (one.ends_with(flag.substr(1)) && one.find('.') == std::string::npos) longer.push_back(one);
  }
  return longer;
}

// Compares with the last component of dotted flags: "--fp8-atention" is near --training.fp8_attention.
std::vector<std::string> flags_with_last_word_near(const std::string& flag, const std::vector<std::string>& known) {
  std::multimap<std::string, std::string> paths;
  for (const std::string& one : known) {
    const std::size_t dot = one.rfind('.');
    if (dot == std::string::npos) continue;
    std::string word = "--" + one.substr(dot + 1);
    std::replace(word.begin(), word.end(), '_', '-');
    paths.emplace(std::move(word), one);
  }
  std::vector<std::string> words;
  for (auto word = paths.begin(); word != paths.end(); word = paths.upper_bound(word->first))
    words.push_back(word->first);
  std::vector<std::string> near;
  for (const std::string& word : nearest_choices(flag, words)) {
    const auto [first, last] = paths.equal_range(word);
    for (auto path = first; path != last; ++path) near.push_back(path->second);
  }
  return near;
}

// Reports a flag without its value.
[[noreturn]] void refuse_count(CLI::App& app, const CLI::ArgumentMismatch& error, const std::string& command) {
  const std::string what = error.what();
  const std::string flag = what.substr(0, what.find(':'));
  const CLI::Option* option = app.get_option_no_throw(flag);
  if (option == nullptr) refuse("", what, command, "");
  refuse(flag, fmt::format("needs a value, {}", option->get_type_name()), command, "");
}

bool is_switch_name(const std::string& text, const auto& flags) {
  return std::any_of(flags.begin(), flags.end(), [&text](const auto& known) {
    return known.is_switch && std::find(known.names.begin(), known.names.end(), text) != known.names.end();
  });
}

// Rejects flags without a value: nothing follows the flag or its '=', or the next word is another flag.
void require_values(const std::vector<std::string>& arguments, const auto& flags, const std::string& command) {
  const auto named = [&flags](const std::string& text) {
    return std::find_if(flags.begin(), flags.end(), [&text](const auto& known) {
      return std::find(known.names.begin(), known.names.end(), text) != known.names.end();
    });
  };
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    const std::string& argument = arguments[at];
    const bool empty = argument.size() > 1 && argument.front() == '-' && argument.back() == '=';
    const std::string name = empty ? argument.substr(0, argument.size() - 1) : argument;
    const auto known = named(name);
    if (known == flags.end() || (known->is_switch && !empty)) continue;
    if (known->is_switch) refuse(name, "needs a value after '=', or no '='", command, "valid: true, false");
    const bool has_next = at + 1 < arguments.size();
    const bool is_last = !has_next || named(arguments[at + 1].substr(0, arguments[at + 1].find('='))) != flags.end();
    if (empty || is_last) refuse(name, fmt::format("needs a value, {}", known->value_name), command, "");
    if (!empty) ++at;  // the next argument is its value
  }
}

// `--sp false` means `--sp=false`; any other word after a switch is a separate argument.
std::vector<std::string> join_switch_values(const std::vector<std::string>& arguments, const auto& flags) {
  std::vector<std::string> joined;
  for (const std::string& argument : arguments) {
    const bool is_value = argument == "true" || argument == "false";
    if (is_value && !joined.empty() && is_switch_name(joined.back(), flags)) {
      joined.back() += "=" + argument;
    } else {
      joined.push_back(argument);
    }
  }
  return joined;
}

}  // namespace

CommandLine::CommandLine(const Streams& streams, const std::string& name, const std::string& usage,
                         const std::string& description, const std::vector<std::string>& examples)
    : parser_(std::make_unique<Parser>()) {
  parser_->streams = streams;
  parser_->name = usage.substr(0, usage.find(' ')) + (name.empty() ? "" : " " + name);
  std::string lines;
  for (const std::string& example : examples) lines += "  " + example + "\n";
  parser_->app.description(description);
  parser_->help = std::make_shared<HelpFormatter>(usage, lines, parser_->name, table_style(streams).width);
  parser_->app.formatter(parser_->help);
  parser_->app.set_help_flag("--help,-h", "print this help and exit");
  parser_->app.set_help_all_flag("--help-all", "also print every key of a job");
  parser_->app.allow_extras();
}

CommandLine::~CommandLine() = default;

const Streams& CommandLine::streams() const {
  return parser_->streams;
}

const std::string& CommandLine::typed() const {
  return parser_->typed;
}

void CommandLine::begin_group(const std::string& title, bool rest) {
  parser_->group = title;
  if (rest) parser_->help->rest_groups.push_back(title);
}

void CommandLine::add_positional(const std::string& name, std::optional<std::string>& target, const std::string& help) {
  parser_->app.add_option(name, target, help)->type_name("")->group("Positionals");
}

void CommandLine::add_positional(const std::string& name, std::vector<std::string>& target, const std::string& help) {
  parser_->app.add_option(name, target, help)->type_name("")->group("Positionals");
}

void CommandLine::Parser::add(const std::string& listed_names, bool is_switch, const std::string& value_name,
                              const std::string& what, const std::string& flag_group,
                              const std::function<void(const std::string&)>& callback) {
  flags.push_back({listed_names, split(listed_names), is_switch, value_name, what, flag_group, callback});
}

void CommandLine::Parser::give_to_app(Flag& flag) {
  if (flag.values != nullptr) {
    flag.option = app.add_option(flag.listed_names, *flag.values, flag.what)->type_name(flag.value_name)->expected(1);
    flag.option->group(flag.group)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    return;
  }
  flag.option = flag.is_switch ? app.add_flag(flag.listed_names, flag.text, flag.what)
                               : app.add_option(flag.listed_names, flag.text, flag.what)->type_name(flag.value_name);
  last_wins(flag.option->group(flag.group));
}

// CLI11 compares every registered flag with all others, which is slow for several hundred. Only the typed flags are
// registered, unless a word matches none of them; then all are needed to report or list it.
void CommandLine::Parser::give_to_app_for(const std::vector<std::string>& arguments) {
  std::map<std::string, Flag*, std::less<>> by_name;
  for (Flag& flag : flags) {
    for (const std::string& one : flag.names) by_name.emplace(one, &flag);
  }
  std::set<const Flag*> typed_flags;
  bool all = false;
  for (const std::string& word : arguments) {
    if (word.size() < 2 || word.front() != '-') continue;
    const auto known = by_name.find(std::string_view(word).substr(0, word.find('=')));
    if (known == by_name.end()) {
      all = true;
    } else {
      typed_flags.insert(known->second);
    }
  }
  for (Flag& flag : flags) {
    if (all || typed_flags.count(&flag) > 0) give_to_app(flag);
  }
}

void CommandLine::add_option(const std::string& names, std::optional<std::string>& target,
                             const std::string& value_name, const std::string& help) {
  parser_->add(names, false, value_name, help, parser_->group, [&target](const std::string& text) { target = text; });
}

void CommandLine::add_option(const std::string& names, std::optional<int>& target, const std::string& value_name,
                             const std::string& help) {
  const auto read = [this, &target, flag = split(names).front()](const std::string& text) {
    const bool negative = !text.empty() && text.front() == '-';
    const std::optional<int> number =
        parse_digits(negative ? text.substr(1) : text, 0, std::numeric_limits<int>::max());
    if (!number) refuse(flag, fmt::format("{} is not a whole number", quote(text)), parser_->name, "");
    target = negative ? -*number : *number;
  };
  parser_->add(names, false, value_name, help, parser_->group, read);
}

void CommandLine::add_option(const std::string& names, std::vector<std::string>& target, const std::string& value_name,
                             const std::string& help) {
  parser_->add(names, false, value_name, help, parser_->group, nullptr);
  parser_->flags.back().values = &target;
}

void CommandLine::add_output(const std::string& names, std::optional<std::string>& target, const std::string& help,
                             Dash dash) {
  parser_->outputs.push_back({split(names).back(), &target, dash});
  add_option(names, target, "FILE", help);
}

void CommandLine::add_flag(const std::string& names, bool& target, const std::string& help) {
  const auto read = [&target, flag = split(names).front()](const std::string& text) {
    if (text != "true" && text != "false")
      throw ConfigError({flag, fmt::format("{} is neither true nor false", quote(text)), "", "valid: true, false"});
    target = text == "true";
  };
  parser_->add(names, true, "", help, parser_->group, read);
}

void CommandLine::add_rest(std::vector<std::string>& target) {
  parser_->rest = &target;
}

void CommandLine::add_callback(const std::string& name, bool takes_value, const std::string& value_name,
                               const std::string& help, bool listed,
                               const std::function<void(const std::string&)>& callback) {
  // The owner of the key validates the text after --name=, like every other value.
  parser_->add(name, !takes_value, value_name, help, listed ? parser_->group : "", callback);
}

namespace {

// Writing a file that is also read would destroy the input. Apart from the output's own argument, no argument may name
// an output file.
void refuse_input_as_output(const std::vector<std::string>& arguments, const std::vector<OutputOfFlag>& outputs) {
  for (const auto& [flag, file, dash] : outputs) {
    std::error_code ignored;
    if (!*file || !std::filesystem::is_regular_file(**file, ignored)) continue;
    int named = 0;
    for (const std::string& word : arguments) {
      const std::size_t equals = !word.empty() && word.front() == '-' ? word.find('=') : std::string::npos;
      const std::string name = equals == std::string::npos ? word : word.substr(equals + 1);
      named += !name.empty() && std::filesystem::is_regular_file(name, ignored) && is_one_file(name, **file) ? 1 : 0;
    }
    if (named < 2) continue;
    throw ConfigError({flag, fmt::format("{} is also an input and would be overwritten", quote(**file)), flag,
                       "use a different output file"});
  }
}

}  // namespace

void refuse_clashing_outputs(const std::vector<std::string>& arguments, const std::vector<OutputOfFlag>& outputs) {
  for (std::size_t a = 0; a < outputs.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const auto& [flag, file, dash] = outputs[a];
      const auto& [other, same, other_dash] = outputs[b];
      if (!*file || !*same || !is_one_file(**file, **same)) continue;
      throw ConfigError({flag, fmt::format("{} is also the output of {}", quote(**file), other), flag,
                         "use a different file for each"});
    }
  }
  refuse_input_as_output(arguments, outputs);
}

void require_writable_outputs(const std::vector<OutputOfFlag>& outputs) {
  for (const auto& [flag, file, dash] : outputs) {
    if (!*file || (**file == kStandardInput && dash == Dash::kIsStandardOutput)) continue;
    if (**file == kStandardInput) {
      throw ConfigError(
          {flag, "- is standard output, which already receives the result", flag, "give a file name, or /dev/stdout"});
    }
    if ((*file)->empty()) throw ConfigError({flag, "the file's name is empty", flag, "give a file name"});
    require_writable(**file);
  }
}

bool CommandLine::parse(const std::vector<std::string>& arguments) {
  const std::optional<std::string> text = read(arguments);
  if (text) write_output(parser_->streams, "", *text);
  return !text;
}

std::optional<std::string> CommandLine::read(const std::vector<std::string>& arguments) {
  forget_inputs();
  CLI::App& app = parser_->app;
  const std::string& command = parser_->name;
  parser_->typed = command;
  for (const std::string& word : arguments) parser_->typed += " " + shell_word(word);
  parser_->give_to_app_for(arguments);
  if (!arguments.empty() && arguments.back() == kListFlags) {
    std::string flags;
    for (const std::string& flag : known_flags(app)) flags += flag + "\n";
    return flags;
  }
  auto bare = arguments.end();
  if (parser_->rest != nullptr) {
    bare = std::find(arguments.begin(), arguments.end(), "--");
    if (bare != arguments.end()) parser_->rest->assign(bare + 1, arguments.end());
  }
  std::vector<std::string> joined = join_switch_values({arguments.begin(), bare}, parser_->flags);
  require_values(joined, parser_->flags, command);
  std::reverse(joined.begin(), joined.end());
  try {
    app.parse(std::move(joined));
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::CallForAllHelp&) {
    parser_->help->all = true;
    return app.help();
  } catch (const CLI::ArgumentMismatch& error) {
    refuse_count(app, error, command);
  } catch (const CLI::ParseError& error) {
    refuse("", error.what(), command, "");
  }
  // Callbacks run in typed order, so that of two names for one key the last wins.
  const std::vector<CLI::Option*>& order = app.parse_order();
  for (auto place = order.begin(); place != order.end(); ++place) {
    if (std::find(place + 1, order.end(), *place) != order.end()) continue;
    const auto typed = std::find_if(parser_->flags.begin(), parser_->flags.end(),
                                    [&place](const Parser::Flag& flag) { return flag.option == *place; });
    if (typed != parser_->flags.end() && typed->values == nullptr) typed->callback(typed->text);
  }
  refuse_clashing_outputs(arguments, parser_->outputs);
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) {
    require_writable_outputs(parser_->outputs);
    return std::nullopt;
  }
  const std::string& extra = extras.front();
  if (extra.size() < 2 || extra.front() != '-')
    refuse("", fmt::format("unexpected argument \"{}\"", extra), command, "");
  const std::string flag = extra.substr(0, extra.find('='));
  std::vector<std::string> near = nearest_choices(flag, known_flags(app));
  if (near.empty()) near = flags_that_end_with(flag, known_flags(app));
  if (near.empty()) near = flags_with_last_word_near(flag, known_flags(app));
  refuse(flag, "unknown flag", command,
         near.empty() ? "" : fmt::format("did you mean {}? see: {} --help", fmt::join(near, " or "), command));
}

}  // namespace flopcast
