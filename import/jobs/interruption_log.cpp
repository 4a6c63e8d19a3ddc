#include "import/jobs/load_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/workload/failures.hpp"

namespace flopcast {

namespace {

constexpr const char* kColumnsHelp =
    "start with a header line such as cause,per,takes,count; the column cause is required";

struct LoggedCause {
  std::string name;
  std::string per;
  std::string takes;
  double events = 0.0;
};

// The fields of a line; nothing if a quote is not closed.
std::optional<std::vector<std::string>> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char letter = line[at];
    if (quoted && letter == '"' && at + 1 < line.size() && line[at + 1] == '"') {
      fields.back() += line[++at];
    } else if (letter == '"') {
      quoted = !quoted;
    } else if (letter == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += letter;
    }
  }
  if (quoted) return std::nullopt;
  for (std::string& field : fields) field = std::string(trim(field));
  return fields;
}

class InterruptionLog {
 public:
  InterruptionLog(std::string text, std::string file) : lines_(std::move(text)), file_(std::move(file)) {}

  std::vector<LoggedCause> causes() {
    std::vector<std::string> columns = next_fields();
    for (std::string& column : columns) column = lower_case(column);
    if (std::find(columns.begin(), columns.end(), "cause") == columns.end()) fail("lacks a column cause", kColumnsHelp);
    for (std::vector<std::string> row = next_fields(); !row.empty(); row = next_fields()) {
      if (row.size() != columns.size()) {
        fail(fmt::format("has {} fields, but the header has {}", row.size(), columns.size()), kColumnsHelp);
      }
      const auto value = [&](const char* name) {
        const auto column = std::find(columns.begin(), columns.end(), name);
        return column == columns.end() ? std::string() : row[static_cast<std::size_t>(column - columns.begin())];
      };
      add({value("cause"), value("per"), value("takes"), count_in(value("count"))});
    }
    if (causes_.empty()) fail("does not contain any interruption", kColumnsHelp);
    return causes_;
  }

 private:
  // The fields of the next line that is not blank; empty at the end.
  std::vector<std::string> next_fields() {
    for (std::string line; std::getline(lines_, line);) {
      ++number_;
      if (trim(line).empty()) continue;
      const auto fields = fields_of(line);
      if (!fields) fail("has an unclosed quote", "");
      return *fields;
    }
    return {};
  }

  double count_in(const std::string& text) const {
    if (text.empty()) return 1.0;
    constexpr int kMost = 100'000'000;
    const std::optional<int> count = parse_digits(text, 1, kMost);
    if (!count) fail(fmt::format("count {} must be a positive whole number", quote(text)), "");
    return *count;
  }

  void add(LoggedCause row) {
    if (row.name.empty()) fail("lacks a cause", "");
    const auto known = std::find_if(causes_.begin(), causes_.end(),
                                    [&row](const LoggedCause& cause) { return cause.name == row.name; });
    if (known == causes_.end()) {
      check(row.per, names_of<FailureUnit>(), "per");
      check(row.takes, names_of<TakenOut>(), "takes");
      causes_.push_back(std::move(row));
      return;
    }
    if (row.per != known->per || row.takes != known->takes) {
      fail(fmt::format("per and takes of {} differ from earlier rows", quote(row.name)),
           "use the same values in all its rows");
    }
    known->events += row.events;
  }

  void check(const std::string& word, const std::vector<std::string>& names, const char* column) const {
    if (word.empty() || std::find(names.begin(), names.end(), word) != names.end()) return;
    fail(fmt::format("unknown {} {}", column, quote(word)), choices_help(word, names));
  }

  [[noreturn]] void fail(const std::string& problem, const std::string& help) const {
    throw ConfigError({"failures.log", problem, fmt::format("{}:{}", file_, std::max(number_, 1)), help});
  }

  std::istringstream lines_;
  std::string file_;
  int number_ = 0;
  std::vector<LoggedCause> causes_;
};

}  // namespace

void read_interruption_log(const Files& files, nlohmann::json& root, Origins& origins) {
  const auto failures = root.find("failures");
  if (failures == root.end() || !failures->is_object() || !failures->contains("log")) return;
  const nlohmann::json& log = failures->at("log");
  const auto refuse = [&origins](const std::string& problem, const std::string& help) {
    throw ConfigError({"failures.log", problem, origins.where("failures.log"), help});
  };
  if (!log.is_string()) refuse(fmt::format("{} must be a path", log.dump()), "give the path of a CSV of interruptions");
  for (const char* other : {"causes", "mtbf"}) {
    if (failures->contains(other)) refuse(fmt::format("is given together with {}", other), "give one of the two");
  }
  const std::string file = log.get<std::string>();
  nlohmann::json causes = nlohmann::json::array();
  for (const LoggedCause& cause : InterruptionLog(files.read(file), file).causes()) {
    nlohmann::json entry = {{"name", cause.name}, {"events", cause.events}};
    if (!cause.per.empty()) entry["per"] = cause.per;
    if (!cause.takes.empty()) entry["takes"] = cause.takes;
    causes.push_back(std::move(entry));
  }
  (*failures)["causes"] = std::move(causes);
  failures->erase("log");
  origins.places["failures.causes"] = file;
}

}  // namespace flopcast
