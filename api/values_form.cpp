#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "api/inputs.hpp"
#include "api/options/figure_options.hpp"
#include "api/question.hpp"
#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {

namespace {

// Inputs of a question, filled from files and from keys with underscores for dashes.
class ValuesForm final : public Form {
 public:
  explicit ValuesForm(const AskedQuestion& asked) : asked_(asked) {}

  void begin_group(const std::string& /*title*/, bool /*rest*/) override {}
  void add_positional(const std::string& /*name*/, std::optional<std::string>& target,
                      const std::string& /*help*/) override {
    positional_.push_back(&target);
  }
  void add_positional(const std::string& /*name*/, std::vector<std::string>& target,
                      const std::string& /*help*/) override {
    all_others_ = &target;
  }
  void add_option(const std::string& names, std::optional<std::string>& target, const std::string& /*value_name*/,
                  const std::string& /*help*/) override {
    // Lists may be given value by value.
    add(names, [&target](const std::string& text) { target = target ? *target + "," + text : text; });
  }
  void add_option(const std::string& names, std::optional<int>& target, const std::string& /*value_name*/,
                  const std::string& /*help*/) override {
    add(names, [&target, names](const std::string& text) { target = whole(split(names).front(), text); });
  }
  void add_option(const std::string& names, std::vector<std::string>& target, const std::string& /*value_name*/,
                  const std::string& /*help*/) override {
    add(names, [&target](const std::string& text) { target.push_back(text); });
  }
  void add_output(const std::string& names, std::optional<std::string>& target, const std::string& /*help*/,
                  Dash dash) override {
    outputs_.push_back({split(names).back(), &target, dash});
    add(names, [&target](const std::string& text) { target = text; });
  }
  void add_figure(const std::string& names, std::optional<std::string>& target, const std::string& help) override {
    add_output(names, target, help, Dash::kIsNoFile);
    figures_.emplace_back(split(names).back(), &target);
  }
  void add_flag(const std::string& names, bool& target, const std::string& /*help*/) override {
    add(names, [&target, names](const std::string& text) {
      if (text != "true" && text != "false") {
        throw ConfigError(
            {split(names).front(), fmt::format("{} is neither true nor false", quote(text)), "", "valid: true, false"});
      }
      target = text == "true";
    });
  }
  void add_rest(std::vector<std::string>& target) override {
    target = asked_.rest;
    takes_rest_ = true;
  }
  void add_callback(const std::string& name, bool /*takes_value*/, const std::string& /*value_name*/,
                    const std::string& /*help*/, bool /*listed*/,
                    const std::function<void(const std::string&)>& callback) override {
    add(name, callback);
  }
  const std::string* input() const override { return &asked_.input.text; }
  void place_output(const OutputForm& output) override {
    if (output.inputs != OutputInputs::kFormat) add_output("--output", output_, "", Dash::kIsNoFile);
  }
  void place_figure(const std::string& help) override { figure_.add_to(*this, help); }
  void place_page(const std::string& help) override { add_output("--html", page_, help, Dash::kIsNoFile); }
  void place_trace(const std::string& help) override { add_output("--trace", trace_, help, Dash::kIsNoFile); }

  // Called after fill().
  void fill_context(Context& context) const {
    bool others = false;
    for (const auto& [flag, file] : figures_) {
      if (*file) FigureOptions::check_file(flag.c_str(), **file);
      others = others || *file;
    }
    figure_.check(others);
    context.has_figure = context.has_figure || figure_.file();
    context.has_page = page_.has_value();
    context.figure_file = figure_.file();
    context.page_file = page_;
    context.has_trace = trace_.has_value();
  }
  // Writes the files that keys name.
  void write_files(const Answer& answer) const {
    const std::string tool = std::string("flopcast ") + library_version();
    if (figure_.file() && answer.figure) figure_.write(answer.figure(figure_.style()));
    if (page_ && answer.page) write_file(*page_, answer.page({"", tool, ""}));
    if (trace_ && answer.trace) write_file(*trace_, answer.trace({{"tool", tool}}));
    for (const auto& [file, make] : answer.files) figure_.write_to(file, make(figure_.style()));
  }
  const std::optional<std::string>& output() const { return output_; }

  // Called after the question has declared its inputs.
  void fill() {
    std::vector<std::string> files = asked_.input.files;
    const bool lists_input = std::find(files.begin(), files.end(), kStandardInput) != files.end();
    if (!asked_.input.text.empty() && !lists_input) files.emplace_back(kStandardInput);
    for (std::size_t place = 0; place < files.size(); ++place) {
      if (place < positional_.size()) {
        *positional_[place] = files[place];
      } else if (all_others_ != nullptr) {
        all_others_->push_back(files[place]);
      } else {
        throw ConfigError({"", fmt::format("unexpected argument \"{}\"", files[place]), "", help_of_command()});
      }
    }
    for (const auto& [name, text] : asked_.input.keys) callback_of(name)(text);
    std::vector<std::string> named = files;
    for (const auto& [name, text] : asked_.input.keys) named.push_back(text);
    refuse_clashing_outputs(named, outputs_);
    require_writable_outputs(outputs_);
    if (takes_rest_ || asked_.rest.empty()) return;
    throw ConfigError({"", fmt::format("unexpected argument \"{}\"", asked_.rest.front()), "", help_of_command()});
  }

 private:
  using Callback = std::function<void(const std::string&)>;

  static int whole(const std::string& flag, const std::string& text) {
    const bool negative = !text.empty() && text.front() == '-';
    const auto number = parse_digits(negative ? text.substr(1) : text, 0, std::numeric_limits<int>::max());
    if (!number) throw ConfigError({flag, fmt::format("{} is not a whole number", quote(text)), "", ""});
    return negative ? -*number : *number;
  }

  void add(const std::string& names, const Callback& callback) {
    for (const std::string& name : split(names)) inputs_.emplace_back(name, callback);
  }

  std::string help_of_command() const { return fmt::format("see: flopcast {} --help", asked_.name); }

  const Callback& callback_of(const std::string& name) const {
    const JobKey* const key = job_key_of(name);
    const std::string flag = "--" + (key != nullptr ? key->field : with_dashes(name));
    const auto named = [this](const std::string& wanted) {
      return std::find_if(inputs_.begin(), inputs_.end(), [&wanted](const auto& one) { return one.first == wanted; });
    };
    auto found = named("--" + with_dashes(name));
    if (found == inputs_.end()) found = named(flag);
    if (found != inputs_.end()) return found->second;
    std::vector<std::string> flags;
    for (const auto& [one, callback] : inputs_) flags.push_back(one);
    const std::vector<std::string> near = nearest_choices(flag, flags);
    throw ConfigError({flag, "unknown flag", "",
                       near.empty() ? help_of_command()
                                    : fmt::format("did you mean {}? {}", fmt::join(near, " or "), help_of_command())});
  }

  const AskedQuestion& asked_;
  std::vector<std::optional<std::string>*> positional_;
  std::vector<std::string>* all_others_ = nullptr;
  std::vector<std::pair<std::string, Callback>> inputs_;
  bool takes_rest_ = false;
  FigureOptions figure_;
  std::vector<OutputOfFlag> outputs_;
  std::vector<std::pair<std::string, const std::optional<std::string>*>> figures_;  // flag and file
  std::optional<std::string> output_;
  std::optional<std::string> page_;
  std::optional<std::string> trace_;
};

// A question that has been asked. Its answer refers to the other members.
class AskedSession {
 public:
  AskedSession(const AskedQuestion& asked, const std::string& format, bool draws)
      : form_(asked), question_(info_of(asked.name).make()) {
    forget_inputs();
    context_.streams = {printed_.file(), notes_.file(), &asked.input.text};
    context_.format = format.empty() ? Format::kTable : parse_format(format);
    context_.format_given = !format.empty();
    context_.has_figure = draws;
    context_.pieces = [this] { return std::make_unique<OutputPieces>(context_.streams, ""); };
    question_->declare(form_);
    form_.fill();
    form_.fill_context(context_);
    answer_ = question_->ask(context_);
  }

  // Prints and writes everything; throws NegativeAnswer only after the text is complete.
  void finish(std::string& text) {
    if (!answer_.files_come_last) form_.write_files(answer_);
    text = printed_.text() + printed(answer_, context_);
    if (form_.output()) write_file(*form_.output(), std::exchange(text, ""));
    if (answer_.exit_code != 0) {
      throw EnvironmentError(fmt::format("it failed with exit code {}", answer_.exit_code));
    }
    if (answer_.finish) answer_.finish();
    if (answer_.files_come_last) form_.write_files(answer_);
    if (answer_.done) answer_.done();
  }

  const Answer& answer() const { return answer_; }
  std::string notes() { return notes_.text(); }

 private:
  static const QuestionInfo& info_of(const std::string& name) {
    std::vector<std::string> names;
    for (const QuestionInfo& question : questions()) {
      if (question.name == name) return question;
      names.emplace_back(question.name);
    }
    throw ConfigError({"", fmt::format("unknown question \"{}\"", name), "", choices_help(name, names)});
  }

  ValuesForm form_;
  MemoryStream printed_;  // output printed piece by piece
  MemoryStream notes_;
  Context context_;
  std::unique_ptr<Question> question_;
  Answer answer_;
};

}  // namespace

CommandAnswer answer_question(const AskedQuestion& asked, const std::string& format, std::string* printed_text) {
  AskedSession dialogue(asked, format, false);
  std::string text;
  try {
    dialogue.finish(text);
  } catch (const NegativeAnswer&) {
    if (printed_text != nullptr) *printed_text = std::move(text);
    throw;
  }
  return {std::move(text), dialogue.notes()};
}

std::string draw_question(const AskedQuestion& asked) {
  const AskedSession dialogue(asked, "", true);
  if (dialogue.answer().figure) return dialogue.answer().figure({});
  throw ConfigError({"--svg", fmt::format("{} has no figure", asked.name), "", ""});
}

}  // namespace flopcast
