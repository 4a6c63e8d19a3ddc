// Questions and answers, independent of the front end: the command line, Python or the web page.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/form.hpp"
#include "base/text/table.hpp"
#include "import/programs/launch.hpp"
#include "reports/html/page.hpp"
#include "reports/svg/canvas.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/run/run.hpp"

namespace flopcast {

struct Crew;

/// Name of the tool, and of the command if any, for the metadata of a trace.
using TraceData = std::vector<std::pair<std::string, std::string>>;

/// An answer in each of its forms. A front end calls only the functions whose output it shows.
struct Answer {
  std::function<std::vector<Table>()> tables = {};  ///< tables for people
  std::function<Table()> rows = {};                 ///< data as one table; if empty, `tables` is used
  std::function<std::string()> json = {};           ///< the question's JSON; if empty, `tables` is used
  std::function<std::string()> text = {};           ///< replaces all of these, whatever the format

  std::function<std::string(const FigureStyle&)> figure = {};  ///< SVG
  std::function<std::string(PageInfo)> page = {};              ///< HTML; `info` has tool and command
  std::function<std::string(TraceData)> trace = {};            ///< Chrome trace
  /// Other files, by name.
  std::vector<std::pair<std::string, std::function<std::string(const FigureStyle&)>>> files = {};
  bool files_come_last =
      false;  ///< true if files are written after printing, which decides whether there is anything to draw

  std::function<void()> finish =
      {};                           ///< called after printing: warnings, and a NegativeAnswer if the answer is negative
  std::function<void()> done = {};  ///< called after all files are written
  int exit_code = 0;                ///< exit code of a program that has reported its errors itself
};

/// Circumstances in which a question is asked.
struct Context {
  Streams streams;                 ///< warnings and progress go to its error stream
  Format format = Format::kTable;  ///< format of the answer
  bool format_given = false;
  Terminal terminal;                ///< for drawings
  TableStyle style;                 ///< for tables
  std::string command;              ///< command as typed; may be empty
  std::optional<std::string> file;  ///< file that receives the answer
  const Crew* crew = nullptr;       ///< processes that answer together; null: only this process
  std::optional<std::string> figure_file;
  std::optional<std::string> page_file;
  bool has_figure = false;
  bool has_page = false;
  bool has_trace = false;
  std::function<std::unique_ptr<OutputPieces>()> pieces =
      {};  ///< prints answers that are too large for memory piece by piece

  void warn(const std::string& text) const { flopcast::warn(streams, text); }
  /// Prints a line unchanged.
  void tell(const std::string& line) const;
};

/// A question: its inputs, and how it is answered. Answers refer to their question and its context, which must outlive
/// them.
class Question {
 public:
  Question() = default;
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;
  virtual ~Question() = default;

  virtual void declare(Form& form) = 0;
  virtual Answer ask(const Context& context) = 0;
};

struct QuestionInfo {
  std::string_view name;     ///< "schedule show"
  std::string_view summary;  ///< one line for an overview
  std::string_view usage;
  std::string_view description;
  std::vector<std::string> examples;
  std::unique_ptr<Question> (*make)();
};

template <class Kind>
std::unique_ptr<Question> make_question() {
  return std::make_unique<Kind>();
}

/// Every question.
const std::vector<QuestionInfo>& questions();
/// The question must exist.
const QuestionInfo& question_named(std::string_view name);

/// The answer as printed.
std::string printed(const Answer& answer, const Context& context);

/// Prints a forecast's warnings; for a job that does not fit, also single changes that make it fit, each simulated.
void print_warnings(const Forecast& forecast, const Context& context);
/// Adds figure, page and trace of a forecast. `parts` are additional parts of the page.
void add_timeline_files(const Forecast& forecast, std::function<PageParts()> parts, Answer& answer);
/// The same for timelines without a job. A trace holds one run, so a trace of several timelines is a usage error.
void add_timeline_files(const std::vector<Timeline>& timelines, Answer& answer);

/// --emit PROGRAM: prints what another program needs to train the job with its layout, instead of flopcast's answer.
class EmitOption {
 public:
  void add_to(Form& form);
  /// Nullopt without --emit. Throws ConfigError on an unknown program.
  std::optional<LaunchProgram> program() const;
  /// Text of the launch file; settings to be made elsewhere become notes on the error stream.
  static Answer answer(const LaunchFile& file, const Context& context);

 private:
  std::optional<std::string> program_;
};

/// Throws ConfigError, naming --life, if there is no run to draw.
void require_life(const std::optional<RunLife>& life, const Forecast& forecast);

QuestionInfo calibrate_question();
QuestionInfo catalog_question();
QuestionInfo compare_question();
QuestionInfo convert_question();
QuestionInfo explain_question();
QuestionInfo fit_question();
QuestionInfo memory_question();
QuestionInfo network_flows_question();
QuestionInfo network_show_question();
QuestionInfo partition_question();
QuestionInfo plan_question();
QuestionInfo schedule_compare_question();
QuestionInfo report_question();
QuestionInfo run_question();
std::vector<QuestionInfo> schedule_questions();
QuestionInfo schedule_simulate_question();
QuestionInfo simulate_question();
QuestionInfo sweep_question();
QuestionInfo timeline_question();
QuestionInfo validate_question();

}  // namespace flopcast
