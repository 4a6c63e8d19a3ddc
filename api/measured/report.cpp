#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/options/figure_options.hpp"
#include "api/question.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "reports/html/page.hpp"

namespace flopcast {

namespace {

class Report final : public Question {
 public:
  void declare(Form& form) override {
    form.add_positional("RESULT", files_, "JSON files");
    form.place_output({.inputs = OutputInputs::kFile});
  }

  Answer ask(const Context& context) override {
    if (files_.empty()) {
      throw ConfigError(
          {"", "report: no result given", "", "give a file written by `flopcast simulate … --format json -o FILE`"});
    }
    std::vector<ReportFile> named;
    for (const std::string& file : files_) {
      named.push_back({file, files_.size() == 1 ? "forecast" : std::filesystem::path(file).stem().string()});
    }
    std::vector<std::string> notes;
    std::string page = report_page(named, tool_text(), read_file, notes);
    for (const std::string& note : notes) context.warn(note);
    return {.text = [page = std::move(page)] { return page; }};
  }

 private:
  std::vector<std::string> files_;
};

}  // namespace

QuestionInfo report_question() {
  return {"report",
          "combine results in one HTML file",
          "flopcast report RESULT… [-o FILE]",
          "Combines results in one self-contained HTML file: timeline, step, memory, bubble, "
          "assumptions. RESULT is a file written by simulate, plan, compare, timeline or run with --format json, or "
          "by run with -o; for a run, the forecast is drawn above the measurement.",
          {"flopcast simulate job.json --format json -o a.json; flopcast report a.json -o report.html",
           "flopcast report a.json b.json -o side-by-side.html"},
          make_question<Report>};
}

}  // namespace flopcast
