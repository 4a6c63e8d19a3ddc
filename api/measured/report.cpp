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
          {"", "report: no result given", "", "give what `flopcast simulate … --format json -o FILE` wrote"});
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
          "one HTML file of results, to look at and to send",
          "flopcast report RESULT… [-o FILE]",
          "Makes one HTML file of results, to look at and to send: timeline, step, memory, bubble, "
          "assumptions. RESULT is what simulate, plan, compare, timeline or run wrote with --format json, or "
          "run with -o; of a run the forecast stands above the measurement.",
          {"flopcast simulate job.json --format json -o a.json; flopcast report a.json -o report.html",
           "flopcast report a.json b.json -o side-by-side.html"},
          make_question<Report>};
}

}  // namespace flopcast
