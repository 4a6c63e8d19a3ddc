#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/options/figure_options.hpp"
#include "api/question.hpp"
#include "base/host/command_line.hpp"
#include "cli/options/output.hpp"

namespace flopcast {

/// Inputs of a question as flags, and the flags that control how its answer is shown: --format, -o, --svg, --html,
/// --trace.
class QuestionForm final : public CommandLine {
 public:
  QuestionForm(const Streams& streams, const QuestionInfo& question);

  void place_output(const OutputForm& output = {}) override;
  void place_drawing() override;
  void place_figure(const std::string& help) override;
  void place_page(const std::string& help = "") override;
  void place_trace(const std::string& help) override;
  void add_figure(const std::string& names, std::optional<std::string>& target, const std::string& help) override;

  /// Called after parse(). Throws ConfigError on an invalid format or figure.
  Context context() const;
  /// Writes the files, then the answer, then runs the answer's finish.
  void show(const Answer& answer, const Context& context) const;

 private:
  void write_files(const Answer& answer, const Context& context) const;

  OutputOptions output_;
  bool format_by_ending_ = false;
  std::optional<DrawingOptions> drawing_;
  FigureOptions figure_;
  std::optional<std::string> page_;
  std::optional<std::string> trace_;
  std::vector<std::pair<std::string, const std::optional<std::string>*>> figures_;  // flag and file
};

/// Asks a question with the command line's arguments, shows the answer and returns the exit code. `crew`: the processes
/// that answer together.
int answer_arguments(const QuestionInfo& question, const std::vector<std::string>& arguments, const Streams& streams,
                     const Crew* crew = nullptr);

}  // namespace flopcast
