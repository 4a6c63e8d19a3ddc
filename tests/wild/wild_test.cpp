// Files collected from other projects, with their meaning: reference/wild of the shared folder. The expectation of a
// case is in its truth.json; expect.json next to this test has those that a later reader changed, by id.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using nlohmann::json;

enum class Outcome { kRight, kMisread, kRefusedWrongly, kReadWrongly, kRefusedRightly };
constexpr std::array<const char*, 5> kOutcomes = {"right", "wrong silently", "refused, should read",
                                                  "read, should refuse", "refused rightly"};

// Defaults of absent keys.
const json& unsaid() {
  static const json values = json::parse(R"({"layout.tp": 1, "layout.pp": 1, "layout.cp": 1, "layout.ep": 1,
    "layout.vpp": 1, "layout.dp": 1, "layout.zero": 0, "layout.sequence_parallel": false, "layout.recompute": "none",
    "layout.offload": "none", "layout.data_parallel": "ddp", "layout.schedule": "1f1b",
    "layout.context_parallel": "ring", "model.causal": true, "model.gated_mlp": false, "model.embedding_norm": false,
    "model.experts.every": 1, "layout.accumulation": 1, "layout.reshard_after_forward": true,
    "training.precision": "fp32"})");
  return values;
}

json lookup(const json& job, const std::string& key) {
  json at = job;
  std::istringstream steps(key);
  for (std::string step; std::getline(steps, step, '.');) {
    if (!at.is_object() || !at.contains(step)) return nullptr;
    at = json(at.at(step));
  }
  return at;
}

json told(const json& job, const std::string& key) {
  json value = lookup(job, key);
  if (!value.is_null()) return value;
  const json hidden = lookup(job, "model.hidden");
  if (key == "model.kv_heads") return lookup(job, "model.heads");
  if (key == "model.experts.ffn") return lookup(job, "model.ffn");
  if (key == "model.head_dim" && hidden.is_number()) return hidden.get<int>() / lookup(job, "model.heads").get<int>();
  constexpr int kUsualWidening = 4;
  const bool gated = lookup(job, "model.gated_mlp") == true;
  if (key == "model.ffn" && hidden.is_number() && !gated) return kUsualWidening * hidden.get<int>();
  return unsaid().value(key, json());
}

bool agrees(const json& got, const json& want, const std::string& key, const json& tolerance) {
  if (want.is_object() && want.contains("not")) return got != want.at("not");
  if (got.is_null()) return key.starts_with("cluster.") || key == "training.stack";
  if (tolerance.contains(key) && got.is_number()) {
    return std::abs(got.get<double>() - want.get<double>()) <=
           tolerance.at(key).get<double>() * std::abs(want.get<double>());
  }
  return got == want;
}

json trace_values(const std::string& text) {
  static const std::regex row(R"((products|attention|communication|copies|other kernels)\s+(\d+)\s+([\d.]+))");
  static const std::regex linked(R"((\d+) of (\d+) kernels)");
  double kernels = 0;
  double kernels_ms = 0;
  std::smatch match;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!std::regex_search(line, match, row, std::regex_constants::match_continuous)) continue;
    kernels += std::stod(match[2]);
    kernels_ms += std::stod(match[3]);
  }
  const bool tells = std::regex_search(text, match, linked);
  return {{"trace.kernels", kernels},
          {"trace.ms", kernels_ms},
          {"trace.linked", tells ? json(std::stod(match[1])) : json()}};
}

json collective_values(const std::string& text) {
  const json curve = json::parse(text).at("curves").at(0);
  return {{"nccl.collective", curve.at("kind")}, {"nccl.ranks", curve.at("ranks")}, {"nccl.nodes", curve.at("nodes")}};
}

class Case {
 public:
  Case(const json& values, std::filesystem::path folder) : values_(values), folder_(std::move(folder)) {}

  Outcome judge();
  const std::string& detail() const { return detail_; }
  bool has_help() const { return has_help_; }

 private:
  CommandResult run(const json& command) const;
  std::string differences(const json& job, const json& counts, const json& fields) const;

  const json& values_;
  std::filesystem::path folder_;
  std::string detail_;
  bool has_help_ = true;
};

CommandResult Case::run(const json& command) const {
  std::vector<std::string> words;
  for (const json& word : command) {
    words.push_back(word == "{file}" ? values_.at("file").get<std::string>() : word.get<std::string>());
  }
  if (values_.value("needs", "") == "args") {
    words.emplace_back("--");
    for (const json& word : values_.at("args")) words.push_back(word.get<std::string>());
  }
  CommandOptions options;
  options.working_directory = folder_;
  return run_flopcast(words, options);
}

std::string Case::differences(const json& job, const json& counts, const json& fields) const {
  const json tolerance = values_.at("expect").value("tolerance", json::object());
  const bool named = job.is_object() && job.contains("model") && job.at("model").is_string();
  std::string all;
  for (const auto& field : fields.items()) {
    if (named && field.key().starts_with("model.")) continue;
    const json got = counts.contains(field.key()) ? counts.at(field.key()) : told(job, field.key());
    if (agrees(got, field.value(), field.key(), tolerance)) continue;
    all += fmt::format("{}{} {}, expected {}", all.empty() ? "" : "; ", field.key(), got.dump(), field.value().dump());
  }
  return all;
}

Outcome Case::judge() {
  const json& expect = values_.at("expect");
  const bool should_refuse = expect.at("outcome") == "refuse";
  CommandResult result = run(values_.at("command"));
  std::string messages = result.standard_error;
  json counts = json::object();
  const bool counts_parameters =
      values_.contains("parameters_command") && (should_refuse || expect.at("fields").contains("parameters_b"));
  CommandResult second;
  if (result.exit_code == 0 && counts_parameters) {
    second = run(values_.at("parameters_command"));
    messages += second.standard_error;
    if (second.exit_code == 0) {
      const json answer = json::parse(second.standard_output);
      counts["parameters_b"] = answer.at("model").at("parameters").get<double>() / 1e9;
    } else {
      result.exit_code = second.exit_code;
    }
  }
  if (result.exit_code == 2) {
    has_help_ = messages.find("help: ") != std::string::npos;
    detail_ = messages.substr(messages.find("error"), messages.find('\n', messages.find("error")));
    return should_refuse || expect.value("or_refuse", false) ? Outcome::kRefusedRightly : Outcome::kRefusedWrongly;
  }
  if (result.exit_code != 0) {
    detail_ = fmt::format("ends with {}", result.exit_code);
    return Outcome::kMisread;
  }
  if (should_refuse) return Outcome::kReadWrongly;
  const std::string command = values_.at("command").at(1).get<std::string>();
  json job;
  if (command == "--trace") {
    counts.update(trace_values(result.standard_output));
  } else if (command == "--nccl-tests") {
    counts.update(collective_values(result.standard_output));
  } else {
    job = json::parse(result.standard_output);
  }
  std::vector<json> readings = {expect.at("fields")};
  for (const json& other : expect.value("alternatives", json::array())) readings.push_back(other);
  for (const json& fields : readings) {
    const std::string wrong = differences(job, counts, fields);
    if (wrong.empty()) detail_.clear();
    if (!wrong.empty() && detail_.empty()) detail_ = wrong;
    if (wrong.empty()) break;
  }
  const std::string warns = expect.value("warns", "");
  const bool warned = warns.empty() || std::regex_search(messages, std::regex(warns, std::regex::icase));
  if (!warned) detail_ += "; no warning about " + warns;
  return detail_.empty() ? Outcome::kRight : Outcome::kMisread;
}

TEST(Wild, NoFileIsMisreadAndMostAreRead) {
  const auto reference = reference_folder();
  if (!reference || !std::filesystem::exists(*reference / "wild/truth.json")) {
    GTEST_SKIP() << "no reference/wild: set FLOPCAST_REFERENCE";
  }
  const json changed = json::parse(read_text(project_folder() / "tests/wild/expect.json"));
  json cases = json::parse(read_text(*reference / "wild/truth.json"));
  std::map<std::string, std::array<int, 5>> table;
  int meant_to_be_read = 0;
  for (json& each : cases) {
    const std::string id = each.at("id").get<std::string>();
    if (changed.contains(id)) each["expect"] = changed.at(id);
    Case judged(each, *reference / "wild");
    const Outcome outcome = judged.judge();
    for (const std::string& row : {each.at("kind").get<std::string>(), std::string("total")}) {
      ++table[row][static_cast<std::size_t>(outcome)];
    }
    meant_to_be_read += each.at("expect").at("outcome") == "read" ? 1 : 0;
    EXPECT_TRUE(judged.has_help()) << id << " is refused without help: " << judged.detail();
    const bool is_fine = outcome == Outcome::kRight || outcome == Outcome::kRefusedRightly;
    if (outcome == Outcome::kMisread || outcome == Outcome::kReadWrongly) {
      ADD_FAILURE() << id << ": " << kOutcomes[static_cast<std::size_t>(outcome)] << ": " << judged.detail();
    } else if (!is_fine) {
      fmt::print("{}: {}: {}\n", kOutcomes[static_cast<std::size_t>(outcome)], id, judged.detail());
    }
  }
  for (const auto& [kind, counts] : table) {
    fmt::print("{:20} right {:4}, misread {}, refused wrongly {}, read wrongly {}, refused rightly {}\n", kind,
               counts[0], counts[1], counts[2], counts[3], counts[4]);
  }
  constexpr double kShareRead = 0.9;
  EXPECT_GE(table["total"][0], kShareRead * meant_to_be_read);
}

}  // namespace
}  // namespace flopcast
