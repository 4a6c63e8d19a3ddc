// A question and its answer, whoever asks: the command line, Python or the page.
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

/// The tool, and the command where there is one: a trace names them.
using TraceData = std::vector<std::pair<std::string, std::string>>;

/// An answer in each form that it has. A front end makes what it shows, and nothing else.
struct Answer {
  std::function<std::vector<Table>()> tables = {};  ///< for people
  std::function<Table()> rows = {};                 ///< data of one table; the tables where it is empty
  std::function<std::string()> json = {};           ///< the question's own; the tables where it is empty
  std::function<std::string()> text = {};           ///< in place of all of these, whatever the format

  std::function<std::string(const FigureStyle&)> figure = {};  ///< SVG
  std::function<std::string(PageInfo)> page = {};              ///< HTML; `info` knows tool and command
  std::function<std::string(TraceData)> trace = {};            ///< Chrome trace
  /// Other files, each with its name.
  std::vector<std::pair<std::string, std::function<std::string(const FigureStyle&)>>> files = {};
  bool files_come_last = false;  ///< what is printed decides whether there is anything to draw

  std::function<void()> finish = {};  ///< after it is printed: warnings, and a NegativeAnswer where the answer is no
  std::function<void()> done = {};    ///< when all is written
  int exit_code = 0;                  ///< of a program that has reported what went wrong
};

/// How a question is asked.
struct Context {
  Streams streams;                 ///< warnings and progress go to its error stream
  Format format = Format::kTable;  ///< of the answer
  bool format_given = false;
  Terminal terminal;                ///< of drawings
  TableStyle style;                 ///< of tables
  std::string command;              ///< as it was typed; may be empty
  std::optional<std::string> file;  ///< that the answer goes to
  const Crew* crew = nullptr;       ///< the processes that answer together; null: this one alone
  std::optional<std::string> figure_file;
  std::optional<std::string> page_file;
  bool has_figure = false;
  bool has_page = false;
  bool has_trace = false;
  std::function<std::unique_ptr<OutputPieces>()> pieces =
      {};  ///< where an answer too large to be held is printed piece by piece

  void warn(const std::string& text) const { flopcast::warn(streams, text); }
  /// A line as it stands.
  void tell(const std::string& line) const;
};

/// A question: its inputs, and how it is answered. Answers refer to their question and its context, which outlive them.
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
/// There must be one.
const QuestionInfo& question_named(std::string_view name);

/// The answer as it is printed.
std::string printed(const Answer& answer, const Context& context);

/// A forecast's warnings; of a job that does not fit with single changes after which it does, each played.
void warn_of(const Forecast& forecast, const Context& context);
/// Figure, page and trace of a forecast. `parts` are further parts of the page.
void add_timeline_files(const Forecast& forecast, std::function<PageParts()> parts, Answer& answer);
/// The same for timelines without a job. A trace holds one run: several timelines with one are bad usage.
void add_timeline_files(const std::vector<Timeline>& timelines, Answer& answer);

/// --emit PROGRAM: what another program needs to train a job as it is laid out, instead of our own answer.
class EmitOption {
 public:
  void add_to(Form& form);
  /// Nothing when --emit is not given. Throws ConfigError on an unknown program.
  std::optional<LaunchProgram> program() const;
  /// Its text; what has to be given elsewhere becomes notes on the error stream.
  static Answer answer(const LaunchFile& file, const Context& context);

 private:
  std::optional<std::string> program_;
};

/// There must be a life to draw: throws ConfigError, naming --life.
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
