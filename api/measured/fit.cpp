#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/measured/user_runs.hpp"
#include "api/question.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/runs/fit_runs.hpp"
#include "calibrate/tables/tables.hpp"

namespace flopcast {

namespace {

std::vector<int> counts_of(const std::string& text) {
  constexpr int kMostCount = 1'000'000;
  std::vector<int> counts;
  for (const std::string& part : split(text)) {
    const std::optional<int> count = parse_digits(part, 1, kMostCount);
    if (!count)
      throw ConfigError(
          {"--held-out", fmt::format("\"{}\" is not a list of counts", text), "", "give counts such as 1,2,4"});
    counts.push_back(*count);
  }
  return counts;
}

int repetitions_of(const std::optional<int>& repeat) {
  constexpr int kUsual = 20;
  constexpr int kMost = 1000;
  if (repeat && (*repeat < 1 || *repeat > kMost))
    throw ConfigError({"--repeat", fmt::format("{} is out of range", *repeat), "", fmt::format("give 1 to {}", kMost)});
  return repeat.value_or(kUsual);
}

// Answers identify a run by its id.
void refuse_same_ids(const std::vector<UserRun>& runs) {
  std::set<std::string> ids;
  for (const UserRun& run : runs) {
    if (ids.insert(run.id).second) continue;
    throw ConfigError({"id", fmt::format("two runs have the id \"{}\"", run.id), "", "give each run a unique id"});
  }
}

std::vector<UserRun> read_all_runs(const std::vector<std::string>& files) {
  std::vector<UserRun> runs;
  for (const std::string& file : files) {
    for (UserRun& run : read_user_runs(file)) runs.push_back(std::move(run));
  }
  refuse_same_ids(runs);
  return runs;
}

class Fit final : public Question {
 public:
  void declare(Form& form) override {
    form.add_positional("RUNS", files_, "JSON files with rows {id, job, measured}");
    form.add_output("-o,--output", profile_, "file for the profile");
    form.add_option("--held-out", held_out_, "N[,N]",
                    "instead of a profile: fit N of the runs, forecast the others, and report the errors");
    form.add_option("--choose", choose_, "random|advised",
                    "with --held-out: how to choose the fitted runs (default: random)");
    form.add_option("--repeat", repeat_, "N", "with --held-out: number of choices to average over (default: 20)");
    form.add_option("--name", name_, "NAME", "name of the profile (default: the device's)");
    form.place_output({.inputs = OutputInputs::kFormat});
  }

  Answer ask(const Context& context) override {
    check_flags();
    const std::vector<UserRun> runs = read_all_runs(files_);
    warn_of_contradictions(runs, context);
    if (held_out_) return learning(runs);
    fit_ = fit_user_runs(runs, read_file);
    if (name_) fit_.profile.name = *name_;
    if (profile_) {
      write_file(*profile_, write_profile(fit_.profile));
    } else {
      context.warn("no profile is written: give -o FILE");
    }
    return {.tables = [this] { return user_fit_tables(fit_); },
            .rows = [this] { return user_fit_tables(fit_).front(); },
            .json = [this] { return write_user_fit(fit_) + "\n"; }};
  }

 private:
  void check_flags() const {
    if (files_.empty()) {
      throw ConfigError({"fit", "needs runs", "",
                         "use flopcast fit RUNS… -o PROFILE, where RUNS are JSON files with rows {id, job, measured}"});
    }
    if (held_out_ && (profile_ || name_))
      throw ConfigError({"--held-out", "writes no profile", "", "omit -o and --name"});
    if (!held_out_ && (choose_ || repeat_)) {
      throw ConfigError({choose_ ? "--choose" : "--repeat", "applies only with --held-out", "", "add --held-out"});
    }
  }

  static void warn_of_contradictions(const std::vector<UserRun>& runs, const Context& context) {
    constexpr std::size_t kMostContradictions = 5;
    const std::vector<std::string> contradictions = contradictions_of(runs);
    for (std::size_t index = 0; index < std::min(kMostContradictions, contradictions.size()); ++index) {
      context.warn(contradictions[index]);
    }
    if (contradictions.size() > kMostContradictions) {
      context.warn(
          fmt::format("{} more pairs of runs contradict each other", contradictions.size() - kMostContradictions));
    }
  }

  Answer learning(const std::vector<UserRun>& runs) const {
    const auto choice =
        static_cast<RunChoice>(choice_of("--choose", choose_.value_or("random"), names_of<RunChoice>()));
    const std::vector<LearningPoint> curve =
        learning_curve(runs, counts_of(*held_out_), choice, repetitions_of(repeat_), read_file);
    return {.tables = [table = learning_table(curve, choice)] { return std::vector<Table>{table}; }};
  }

  std::vector<std::string> files_;
  std::optional<std::string> profile_;
  std::optional<std::string> name_;
  std::optional<std::string> held_out_;
  std::optional<std::string> choose_;
  std::optional<int> repeat_;

  UserFit fit_;
};

}  // namespace

QuestionInfo fit_question() {
  return {"fit",
          "fit constants of device, links and software to your training steps",
          "flopcast fit RUNS… -o PROFILE [options]",
          "Fits the few constants of device, links and software that your training steps determine, starting from the "
          "catalogue: value and 90 % interval of each, constants that the runs leave undetermined, and the most "
          "informative "
          "next run. RUNS are JSON files with rows {\"id\", \"job\", \"measured\": {\"iteration_s\"}}; \"job\" may be "
          "a path, "
          "and \"measured\" may name a training \"log\". Use PROFILE with --profile.",
          {"flopcast fit runs.json -o mine.json", "flopcast simulate job.json --profile mine.json"},
          make_question<Fit>};
}

}  // namespace flopcast
