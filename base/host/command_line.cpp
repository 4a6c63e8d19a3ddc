#include "base/host/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <deque>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

// Help in the order people read: what it is, how it is called, examples, flags by topic, the command's own first.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter(std::string usage, std::string examples, std::string command)
      : usage_(std::move(usage)), examples_(std::move(examples)), command_(std::move(command)) {
    constexpr std::size_t kFlagColumn = 34;
    column_width(kFlagColumn);
  }
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return fmt::format("usage: {}\n{}", usage_, examples_.empty() ? "" : "\nexamples:\n" + examples_);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
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
};

struct CommandLine::Parser {
  // A flag that is true when it stands alone: --sp, --sp=false.
  struct Switch {
    std::string name;
    std::string text;
    std::function<void(const std::string&)> callback;
    CLI::Option* option;
  };

  Streams streams;
  CLI::App app;
  std::string name;  // with the program's
  std::string group = "Options";
  std::deque<Switch> switches;               // the parser keeps references to their texts
  std::vector<std::string>* rest = nullptr;  // what follows a bare --
  std::shared_ptr<HelpFormatter> help;
};

namespace {

// A flag given again overrules itself.
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

// A flag without its value.
[[noreturn]] void refuse_count(CLI::App& app, const CLI::ArgumentMismatch& error, const std::string& command) {
  const std::string what = error.what();
  const std::string flag = what.substr(0, what.find(':'));
  const CLI::Option* option = app.get_option_no_throw(flag);
  if (option == nullptr) refuse("", what, command, "");
  refuse(flag, fmt::format("needs a value, {}", option->get_type_name()), command, "");
}

// `--sp false` means `--sp=false`; any other word after a switch is not its value.
std::vector<std::string> join_switch_values(const std::vector<std::string>& arguments, const auto& switches) {
  std::vector<std::string> joined;
  for (const std::string& argument : arguments) {
    const bool is_value = argument == "true" || argument == "false";
    const bool after_switch =
        !joined.empty() && std::any_of(switches.begin(), switches.end(),
                                       [&joined](const auto& known) { return known.name == joined.back(); });
    if (is_value && after_switch) {
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
  parser_->help = std::make_shared<HelpFormatter>(usage, lines, parser_->name);
  parser_->app.formatter(parser_->help);
  parser_->app.set_help_flag("--help,-h", "print this and exit");
  parser_->app.set_help_all_flag("--help-all", "print every key of a job, too");
  parser_->app.allow_extras();
}

CommandLine::~CommandLine() = default;

const Streams& CommandLine::streams() const {
  return parser_->streams;
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

void CommandLine::add_option(const std::string& names, std::optional<std::string>& target,
                             const std::string& value_name, const std::string& help) {
  last_wins(parser_->app.add_option(names, target, help)->type_name(value_name)->group(parser_->group));
}

void CommandLine::add_option(const std::string& names, std::optional<int>& target, const std::string& value_name,
                             const std::string& help) {
  last_wins(parser_->app.add_option(names, target, help)->type_name(value_name)->group(parser_->group));
}

void CommandLine::add_option(const std::string& names, std::vector<std::string>& target, const std::string& value_name,
                             const std::string& help) {
  parser_->app.add_option(names, target, help)
      ->type_name(value_name)
      ->group(parser_->group)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void CommandLine::add_flag(const std::string& names, bool& target, const std::string& help) {
  parser_->app.add_flag(names, target, help)->group(parser_->group);
}

void CommandLine::add_rest(std::vector<std::string>& target) {
  parser_->rest = &target;
}

void CommandLine::add_callback(const std::string& name, bool takes_value, const std::string& value_name,
                               const std::string& help, bool listed,
                               const std::function<void(const std::string&)>& callback) {
  const std::string group = listed ? parser_->group : "";
  if (takes_value) {
    last_wins(parser_->app.add_option_function<std::string>(name, callback, help)->type_name(value_name)->group(group));
    return;
  }
  // The text after --name= is judged by who knows the key, like every other value.
  parser_->switches.push_back({name, "true", callback, nullptr});
  Parser::Switch& added = parser_->switches.back();
  added.option = parser_->app.add_flag(name, added.text, help)->group(group);
}

bool CommandLine::parse(const std::vector<std::string>& arguments) {
  const std::optional<std::string> text = read(arguments);
  if (text) std::fputs(text->c_str(), parser_->streams.out);
  return !text;
}

std::optional<std::string> CommandLine::read(const std::vector<std::string>& arguments) {
  CLI::App& app = parser_->app;
  const std::string& command = parser_->name;
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
  std::vector<std::string> joined = join_switch_values({arguments.begin(), bare}, parser_->switches);
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
  for (const Parser::Switch& added : parser_->switches) {
    if (added.option->count() > 0) added.callback(added.text);
  }
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return std::nullopt;
  const std::string& extra = extras.front();
  if (extra.size() < 2 || extra.front() != '-')
    refuse("", fmt::format("unexpected argument \"{}\"", extra), command, "");
  const std::string flag = extra.substr(0, extra.find('='));
  const std::vector<std::string> near = nearest_choices(flag, known_flags(app));
  refuse(flag, "unknown flag", command,
         near.empty() ? "" : fmt::format("did you mean {}? see: {} --help", fmt::join(near, " or "), command));
}

}  // namespace flopcast
