#include "cli/options/question_form.hpp"

#include <utility>

#include "base/host/files.hpp"

namespace flopcast {

QuestionForm::QuestionForm(const Streams& streams, const QuestionInfo& question)
    : CommandLine(streams, std::string(question.name), std::string(question.usage), std::string(question.description),
                  question.examples) {}

void QuestionForm::place_output(const OutputForm& output) {
  format_by_ending_ = output.format_by_ending;
  output_.add_to(*this, output);
}

void QuestionForm::place_drawing() {
  drawing_.emplace().add_to(*this);
}

void QuestionForm::place_figure(const std::string& help) {
  figure_.add_to(*this, help);
}

void QuestionForm::place_page(const std::string& help) {
  add_output("--html", page_, help.empty() ? "write a report as one self-contained HTML file" : help);
}

void QuestionForm::place_trace(const std::string& help) {
  add_output("--trace", trace_, help);
}

void QuestionForm::add_figure(const std::string& names, std::optional<std::string>& target, const std::string& help) {
  add_output(names, target, help);
  figures_.emplace_back(names, &target);
}

Context QuestionForm::context() const {
  Context context;
  context.streams = streams();
  context.format = format_by_ending_ ? output_.format_of_file() : output_.format();
  context.format_given = output_.has_format();
  if (drawing_) context.terminal = drawing_->terminal();
  context.style = output_.style();
  context.command = typed();
  context.file = output_.file();
  context.pieces = [this] { return output_.pieces(); };
  context.has_figure = figure_.file().has_value();
  context.has_page = page_.has_value();
  context.figure_file = figure_.file();
  context.page_file = page_;
  context.has_trace = trace_.has_value();
  bool others = false;
  for (const auto& [flag, file] : figures_) {
    if (*file) FigureOptions::check_file(flag.c_str(), **file);
    others = others || *file;
  }
  figure_.check(others);
  return context;
}

void QuestionForm::write_files(const Answer& answer, const Context& context) const {
  if (figure_.file() && answer.figure) figure_.write(answer.figure(figure_.style()));
  if (page_ && answer.page) {
    PageInfo info;
    info.tool = tool_text();
    info.command = context.command;
    write_file(*page_, answer.page(std::move(info)));
  }
  if (trace_ && answer.trace) write_file(*trace_, answer.trace({{"tool", tool_text()}, {"command", context.command}}));
  for (const auto& [file, make] : answer.files) figure_.write_to(file, make(figure_.style()));
}

void QuestionForm::show(const Answer& answer, const Context& context) const {
  if (!answer.files_come_last) write_files(answer, context);
  if (const std::string text = printed(answer, context); !text.empty()) output_.write(text);
  if (answer.finish) answer.finish();
  if (answer.files_come_last) write_files(answer, context);
  if (answer.done) answer.done();
}

int answer_arguments(const QuestionInfo& question, const std::vector<std::string>& arguments, const Streams& streams,
                     const Crew* crew) {
  const std::unique_ptr<Question> asked = question.make();
  QuestionForm form(streams, question);
  asked->declare(form);
  if (!form.parse(arguments)) return 0;
  Context context = form.context();
  context.crew = crew;
  const Answer answer = asked->ask(context);
  form.show(answer, context);
  return answer.exit_code;
}

}  // namespace flopcast
