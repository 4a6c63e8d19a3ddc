#include "tests/fuzz/targets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "api/options/job_options.hpp"
#include "base/text/error.hpp"
#include "calibrate/device/imports.hpp"
#include "calibrate/device/measurement.hpp"
#include "calibrate/validation/published_row.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "import/jobs/load_job.hpp"
#include "model/config/document.hpp"
#include "model/job/device_profile.hpp"
#include "model/job/read_job.hpp"
#include "model/job/user_spelling.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/cells/cell.hpp"
#include "sim/files/flow_case.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/property/random_jobs.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {

/// Defined in trace_formats.cpp.
std::vector<TracedRank> read_own_trace(std::istream& stream, const std::string& file, double step_s);

namespace {

using Words = std::vector<std::string>;

// Texts from examples and from tests/fuzz/seeds.
std::vector<std::string> texts_of(std::initializer_list<const char*> names) {
  std::vector<std::string> texts;
  for (const char* name : names) {
    const std::filesystem::path seed = project_folder() / "tests" / "fuzz" / "seeds" / name;
    texts.push_back(read_text(std::filesystem::exists(seed) ? seed : project_folder() / "examples" / name));
  }
  return texts;
}

std::vector<std::string> texts_in(const std::filesystem::path& folder, const std::string& ending) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(project_folder() / folder)) {
    if (entry.path().extension() == ending) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> texts;
  texts.reserve(files.size());
  for (const std::filesystem::path& file : files) texts.push_back(read_text(file));
  return texts;
}

// Output of commands, which is itself a file that others read.
std::string said(const Words& words) {
  const CommandResult result = run_flopcast(words);
  if (result.exit_code != 0) throw std::runtime_error(words.front() + ": " + result.standard_error);
  return result.standard_output;
}

std::vector<std::string> job_texts() {
  std::vector<std::string> texts = texts_in("examples/documented-runs", ".json");
  for (std::string& text : texts_of({"gpt3-175b-64-gpus/job.json", "uneven-nodes/job.json", "zero-memory/job.json"}))
    texts.push_back(std::move(text));
  for (const nlohmann::json& job : job_beginnings()) texts.push_back(job.dump(2));
  return texts;
}

std::vector<std::string> schedule_texts() {
  std::vector<std::string> texts;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    const CommandResult shown = run_flopcast({"schedule", "show", "--schedule", std::string(info.name), "--pp", "4",
                                              "--microbatches", "8", "--format", "csv"});
    if (shown.exit_code == 0) texts.push_back(shown.standard_output);
  }
  texts.emplace_back(two_ranks_csv());
  return texts;
}

Words small_job(Words command, const Words& more) {
  for (const char* word : {"--model", "gpt3-125m", "--cluster", "dgx-a100-80g", "--gbs", "16"})
    command.emplace_back(word);
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::vector<std::string> result_texts() {
  return {said(small_job({"simulate"}, {"--pp", "2", "--format", "json"})),
          said(small_job({"compare"}, {"tp=2", "--format", "json"})),
          said(small_job({"plan"}, {"--top", "2", "--format", "json"})),
          said({"timeline", "--pp", "3", "--microbatches", "4", "--schedule", "1f1b,zb-h1", "--format", "json"}),
          said(small_job({"timeline"}, {"--pp", "2", "--format", "json"}))};
}

std::vector<FuzzTarget> fuzz_target_list() {
  const auto with_json = [](Words words) {
    words.insert(words.end(), {"--format", "json"});
    return words;
  };
  std::vector<FuzzTarget> all;
  all.push_back({"job", "job.json", true, {with_json({"simulate", "@"}), {"memory", "@"}}, job_texts()});
  all.push_back({"result", "result.json", true, {{"report", "@"}, with_json({"simulate", "@"})}, result_texts()});
  all.push_back(
      {"schedule",
       "rows.csv",
       false,
       {{"schedule", "check", "@"},
        with_json({"schedule", "simulate", "@", "--forward", "1", "--backward-input", "1", "--backward-weight", "1"})},
       schedule_texts()});
  all.push_back({"script",
                 "train.sh",
                 false,
                 {with_json({"convert", "@"}), {"simulate", "@", "--cluster", "dgx-h100"}},
                 texts_of({"nested.sh", "functions.sh", "job.slurm", "megatron-175b-script/train.sh"})});
  all.push_back({"hugging-face",
                 "config.json",
                 true,
                 {with_json({"convert", "@"}), {"simulate", "--model", "@", "--cluster", "dgx-h100", "--gbs", "8"}},
                 texts_of({"dbrx.json", "mixtral.json", "llama3-70b-config/config.json"})});
  all.push_back({"settings",
                 "settings.json",
                 true,
                 {with_json({"convert", "@"})},
                 texts_of({"neox.json", "deepspeed-zero/ds_config.json"})});
  all.push_back({"yaml",
                 "recipe.yaml",
                 false,
                 {with_json({"convert", "@"})},
                 texts_of({"fsdp.yaml", "lora.yaml", "nemo.yaml", "training-recipes/gpt-20b.yaml"})});
  all.push_back(
      {"toml", "recipe.toml", false, {with_json({"convert", "@"})}, texts_of({"training-recipes/llama3-70b.toml"})});
  all.push_back({"layer-graph",
                 "graph.txt",
                 false,
                 {{"partition", "--graph", "@", "--workers", "4x2", "--bandwidth", "50GB/s,10GB/s"}},
                 texts_of({"heavy-head/two-branches.graph.txt"})});
  all.push_back({"profile",
                 "profile.json",
                 true,
                 {small_job({"simulate", "--profile", "@"}, {"--tp", "2"}), {"calibrate", "--report", "@"}},
                 texts_in("model/catalog/profiles", ".json")});
  all.push_back(
      {"stack", "stack.json", true, {small_job({"simulate", "--stack", "@"}, {})}, texts_of({"own-stack/stack.json"})});
  for (std::string& text : texts_in("model/catalog/stacks", ".json")) all.back().seeds.push_back(std::move(text));
  all.push_back({"nccl-tests",
                 "all_reduce.log",
                 false,
                 {{"calibrate", "--nccl-tests", "@", "--ranks", "8", "--nodes", "1", "--device", "h100"}},
                 texts_of({"measured-links/all_reduce.log"})});
  all.push_back({"topology",
                 "topo.txt",
                 false,
                 {{"calibrate", "--topology", "@", "--device", "h100"}},
                 texts_of({"measured-links/topo.txt"})});
  all.push_back({"trace", "trace.json", true, {{"calibrate", "--trace", "@"}}, texts_of({"trace.json"})});
  const Forecast step = forecast(read_job(job_beginnings().front(), {}), [](const std::string& path) -> std::string {
    throw ConfigError({"", path + " must not be read", path, ""});
  });
  TraceOptions options = trace_options_of(step);
  options.other_data = {{"tool", "flopcast"}};
  const Words compare = small_job({"compare"}, {"--measured", "1s", "--trace", "@", "--format", "json"});
  std::vector<std::string> traces = texts_of({"trace.json"});
  traces.push_back(write_chrome_trace(step.timeline, options));
  all.push_back({"traced", "traced.json", true, {compare}, traces});
  all.push_back({"chakra", "step.0.et", false, {compare}, {chakra_trace(step, 0)}});
  all.push_back({"training-log",
                 "train.log",
                 false,
                 {{"calibrate", "--training-log", "@", "--ranks", "16"},
                  {"compare", "--model", "gpt3-125m", "--cluster", "2xdgx-a100-80g", "--gbs", "16", "--log", "@"}},
                 texts_of({"train.log", "old.log"})});
  all.push_back(
      {"measurement", "measurement.json", true, {{"calibrate", "--from", "@"}}, texts_of({"measurement.json"})});
  all.push_back({"flows",
                 "flows.json",
                 true,
                 {with_json({"network", "flows", "@"})},
                 texts_of({"shared-links/collisions.json", "shared-links/uplinks.json"})});
  all.push_back({"documented",
                 "run.json",
                 true,
                 {{"validate", "--documented", "@"}},
                 texts_in("examples/documented-runs", ".json")});
  all.push_back(
      {"network",
       "network.json",
       true,
       {{"network", "show", "8xdgx-h100", "--network", "@"},
        with_json({"simulate", "--model", "gpt3-125m", "--cluster", "8xdgx-h100", "--gbs", "64", "--network", "@"})},
       texts_in("model/catalog/networks", ".json")});
  all.push_back({"rows", "rows.json", true, {with_json({"validate", "--published", "@"})}, texts_of({"rows.json"})});
  return all;
}

// A folder with a single file, in memory only.
class OneFile final : public Files {
 public:
  OneFile(std::string name, const std::string& text) : name_(std::move(name)), text_(text) {}
  std::string read(const std::string& path) const override {
    if (path != name_) throw ConfigError({"", path + " does not exist", path, ""});
    return text_;
  }
  nlohmann::json parse_yaml(std::string_view text, const std::string& file) const override {
    return files_on_disk().parse_yaml(text, file);
  }
  nlohmann::json parse_toml(std::string_view text, const std::string& file) const override {
    return files_on_disk().parse_toml(text, file);
  }

 private:
  std::string name_;
  const std::string& text_;
};

std::function<void(const std::string&)> reader_of(const std::string& target, const std::string& file) {
  using Read = std::function<void(const std::string&)>;
  static const std::map<std::string, Read> readers = {
      {"job", [](const std::string& text) { read_job(parse_json(text, "job.json"), {}); }},
      {"result", [](const std::string& text) { read_result(text, "result.json"); }},
      {"schedule", [](const std::string& text) { parse_cell_csv(text, "rows.csv", {}); }},
      {"layer-graph", [](const std::string& text) { read_layer_graph(text, "graph.txt"); }},
      {"profile", [](const std::string& text) { read_device_profile(parse_json(text, "profile.json"), "", {}); }},
      {"stack",
       [](const std::string& text) {
         nlohmann::json job = job_beginnings().front();
         job["training"]["stack"] = parse_json(text, "stack.json");
         read_job(job, {});
       }},
      {"nccl-tests",
       [](const std::string& text) {
         import_nccl_tests(text, "all_reduce.log", {std::nullopt, 8, 1, false});
       }},
      {"topology", [](const std::string& text) { read_topology(text, "topo.txt"); }},
      {"trace",
       [](const std::string& text) {
         std::istringstream stream(text);
         read_trace(stream, "trace.json", {});
       }},
      {"traced",
       [](const std::string& text) {
         std::istringstream stream(text);
         // Distinguishes formats like read_traced_file(), which needs files.
         if (text.find(R"("tool":"flopcast)") < 4096) {
           read_own_trace(stream, "trace.json", 0.0);
         } else {
           read_traced_rank(stream, "trace.json", 0.0);
         }
       }},
      {"chakra",
       [](const std::string& text) {
         std::istringstream stream(text);
         read_chakra_steps(stream, "step.0.et", 0.0);
       }},
      {"training-log", [](const std::string& text) { read_training_log(text, "train.log"); }},
      {"measurement", [](const std::string& text) { read_measurement(text, "measurement.json"); }},
      {"documented", [](const std::string& text) { parse_json(text, "run.json"); }},
      {"network",
       [](const std::string& text) {
         const OneFile disk("./network.json", text);
         LoadedJob loaded =
             load_job({}, {{&key_named("cluster.network", "--network"), "--network", "./network.json"}}, disk);
         nlohmann::json job = job_beginnings().front();
         job["cluster"]["network"] = loaded.root.at("cluster").at("network");
         read_job(job, {});
       }},
      {"flows", [](const std::string& text) { read_flow_case(text, "flows.json"); }},
      {"rows", [](const std::string& text) { read_published(parse_json(text, "rows.json"), "rows", "rows.json"); }}};
  const auto found = readers.find(target);
  if (found != readers.end()) return found->second;
  // Files of other programs, distinguished by name and content.
  return [file](const std::string& text) { load_job({file}, {}, OneFile(file, text)); };
}

// False if the text contains bytes that must not be sent to a terminal.
bool is_plain(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < ' ' && c != '\n' && c != '\t') || byte == 0x7f;
  });
}

std::optional<std::string> fault_of_answer(const Words& words, const CommandResult& result) {
  constexpr int kBadInput = 2;
  constexpr int kAnswerIsNo = 3;
  if (result.exit_code == kBadInput || result.exit_code == kAnswerIsNo) {
    if (!is_plain(result.standard_error)) return "control characters in the message";
    const std::string& told = result.standard_error;
    const std::size_t error = told.find("error: ");
    if (result.exit_code == kBadInput && error == std::string::npos) return "no message: " + told;
    if (told.empty() && result.standard_output.empty()) return "a negative answer without output";
    if (error != std::string::npos && told.find("\nerror: ", error) != std::string::npos)
      return "two messages: " + told;
    return std::nullopt;
  }
  if (result.exit_code != 0) return fmt::format("exit code {}: {}", result.exit_code, result.standard_error);
  if (words.back() != "json") return std::nullopt;
  const nlohmann::json answer = nlohmann::json::parse(result.standard_output, nullptr, false);
  if (answer.is_discarded()) return "the answer is not JSON";
  if (words.front() != "simulate") return std::nullopt;
  const nlohmann::json& time = answer.at("iteration").at("time_s");
  if (!time.is_number() || !(time.get<double>() > 0.0)) return "the step takes " + time.dump();
  return std::nullopt;
}

}  // namespace

const std::vector<FuzzTarget>& fuzz_targets() {
  static const std::vector<FuzzTarget> targets = [] {
    std::vector<FuzzTarget> all = fuzz_target_list();
    for (FuzzTarget& target : all) target.read = reader_of(target.name, target.file);
    return all;
  }();
  return targets;
}

std::optional<std::string> fault_of(const FuzzTarget& target, const std::string& input,
                                    const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / target.file;
  write_text(file, input);
  for (const Words& command : target.commands) {
    Words words = command;
    std::replace(words.begin(), words.end(), std::string("@"), file.string());
    if (auto fault = fault_of_answer(words, run_flopcast(words))) return words.front() + ": " + *fault;
  }
  return std::nullopt;
}

std::optional<std::string> fault_of_reader(const FuzzTarget& target, const std::string& input) {
  try {
    target.read(input);
  } catch (const ConfigError& error) {
    if (error.diagnostic().problem.empty()) return "an error without a problem";
  } catch (const std::exception& error) {
    return std::string("exception: ") + error.what();
  }
  return std::nullopt;
}

}  // namespace flopcast
