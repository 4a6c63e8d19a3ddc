#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/cost/compute.hpp"
#include "model/job/user_spelling.hpp"
#include "reports/result/result_tables.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/run/run.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

// A job's numbers by the names used in explanations: "m", "bubble_fraction". `words` has values that are text.
struct JobNumbers {
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> words;
};

void add_layout(const Job& job, JobNumbers& all) {
  const Layout& layout = job.layout;
  auto& numbers = all.numbers;
  for (const Axis axis : kAxes) numbers[std::string(name_of(axis))] = layout[axis];
  numbers["vpp"] = layout.vpp.value_or(1);
  numbers["m"] = layout.microbatches();
  numbers["mbs"] = layout.micro_batch_size;
  numbers["gbs"] = layout.global_batch_size;
  numbers["gpus"] = job.cluster.devices();
  numbers["nodes"] = job.cluster.nodes;
  numbers["tokens_per_step"] =
      static_cast<double>(sequences_of(job.training, layout.global_batch_size)) * job.training.sequence_length;
  numbers["zero"] = layout.zero;
  const Goodput goodput = goodput_of(Interruptions(), job.cluster.devices());
  const double mtbf_s = kGpuMtbf.value() / job.cluster.devices();
  constexpr double kMinuteSeconds = 60.0;
  constexpr double kHourSeconds = 3'600.0;
  numbers["llama3_goodput"] = goodput.fraction;
  numbers["llama3_interval_min"] = goodput.interval_s / kMinuteSeconds;
  numbers["llama3_mtbf_h"] = mtbf_s / kHourSeconds;
  numbers["llama3_in_repair"] = goodput.failures_per_day;
  const double others = layout.pp - 1;
  const double m = layout.microbatches();
  const double chunks = layout.vpp.value_or(1);
  numbers["ideal_bubble"] = others / (chunks * m + others);
  numbers["ideal_bubble_v1"] = others / (m + others);
  numbers["ideal_ratio"] = others / (chunks * m);
  numbers["tp_bus_factor"] = 2.0 * (layout.tp - 1) / layout.tp;
  numbers["dp_bus_factor"] = 2.0 * (layout.dp - 1) / layout.dp;
  all.words["schedule"] = layout.schedule;
  all.words["recompute"] = std::string(name_of(layout.recompute));
  all.words["sequence_parallel"] = layout.sequence_parallel ? "true" : "false";
}

void add_hardware(const Job& job, JobNumbers& all) {
  constexpr double kTera = 1e12;
  constexpr double kGiga = 1e9;
  const Device& device = job.cluster.device;
  const FlopsPerSecond of_products = product_peak(device, job.training);
  const double peak = of_products.value();
  all.numbers["peak_tflops"] = peak / kTera;
  all.numbers["memory_bandwidth"] = device.memory_bandwidth.value() / kTera;
  all.numbers["ridge"] = peak / device.memory_bandwidth.value();
  all.numbers["capacity_gib"] = gibibytes(device.memory_capacity);
  all.numbers["capacity_gb"] = device.memory_capacity.value() / kGiga;
  all.words["device"] = device.name;
  const bool in_4_bits = of_products != device.peak_of(job.training.precision);
  all.words["precision"] = in_4_bits ? "nvfp4" : std::string(name_of(job.training.precision));
}

void add_memory(const MemoryResult& memory, JobNumbers& all) {
  const RankMemoryResult& first = memory.per_pipeline_rank.front();
  const RankMemoryResult& fullest =
      *std::max_element(memory.per_pipeline_rank.begin(), memory.per_pipeline_rank.end(),
                        [](const auto& a, const auto& b) { return a.total_gib < b.total_gib; });
  all.numbers["peak_gib"] = memory.peak_gib;
  all.numbers["weights_gib"] = first.weights_gib;
  all.numbers["gradients_gib"] = first.gradients_gib;
  all.numbers["optimizer_gib"] = first.optimizer_gib;
  all.numbers["versions_gib"] = first.weight_versions_gib;
  all.numbers["activations_gib"] = fullest.activations_gib;
  all.numbers["in_flight"] = first.peak_in_flight;
}

JobNumbers explain_numbers(const Forecast& forecast) {
  const Job& job = forecast.step.job;
  const Result& result = forecast.result;
  JobNumbers all;
  add_layout(job, all);
  add_hardware(job, all);
  add_memory(result.memory, all);
  auto& numbers = all.numbers;
  numbers["time_s"] = result.iteration.time_s;
  numbers["recompute_s"] = result.breakdown.recompute_s;
  numbers["bubble_fraction"] = result.bubble.fraction;
  numbers["bubble_ratio"] = result.bubble.ratio;
  numbers["warmup_s"] = result.bubble.warmup_s;
  numbers["cooldown_s"] = result.bubble.cooldown_s;
  numbers["imbalance_s"] = result.bubble.imbalance_s;
  numbers["dependency_s"] = result.bubble.dependency_s;
  numbers["communication_fraction"] = result.communication.fraction;
  numbers["exposed_fraction"] = result.communication.exposed_fraction;
  numbers["tp_exposed_s"] = result.communication.tp.exposed_s;
  numbers["pp_exposed_s"] = result.communication.pp.exposed_s;
  numbers["dp_exposed_s"] = result.communication.dp.exposed_s;
  numbers["staleness0"] = result.steady ? result.steady->staleness.front() : 0;
  numbers["versions0"] = result.steady ? result.steady->weight_versions.front() : 1;
  if (!job.profile) {
    numbers["model_tflops"] = result.iteration.model_tflops_per_gpu;
    numbers["mfu"] = result.iteration.mfu;
    numbers["hfu"] = result.iteration.hfu;
  }
  return all;
}

// The sentence with the job's numbers inserted, four digits each; empty if the job lacks one of them.
std::string put_in(const std::string& sentence, const JobNumbers& numbers) {
  std::string text;
  std::size_t at = 0;
  while (at < sentence.size()) {
    const std::size_t open = std::min(sentence.find('{', at), sentence.size());
    text += sentence.substr(at, open - at);
    if (open == sentence.size()) break;
    const std::size_t close = sentence.find('}', open);
    FLOPCAST_CHECK(close != std::string::npos);
    std::string name = sentence.substr(open + 1, close - open - 1);
    const bool percent = !name.empty() && name.back() == '%';
    if (percent) name.pop_back();
    const auto number = numbers.numbers.find(name);
    const auto word = numbers.words.find(name);
    if (number == numbers.numbers.end() && word == numbers.words.end()) return "";
    constexpr double kWholeBelow = 1e12;
    if (number == numbers.numbers.end()) {
      text += word->second;
    } else if (percent) {
      text += fmt::format("{:.2f} %", 100.0 * number->second);
    } else if (number->second < kWholeBelow &&
               number->second == static_cast<double>(static_cast<long long>(number->second))) {
      text += fmt::format("{}", static_cast<long long>(number->second));
    } else {
      text += fmt::format("{:.4g}", number->second);
    }
    at = close + 1;
  }
  return text;
}

// Indented text in lines of at most `width` columns, not counting the indentation; 0: in one line. `next` is the
// indentation of further lines.
std::string paragraph(const std::string& text, int width, const std::string& next) {
  std::string indented = "  ";
  for (const char character : wrapped(text, width)) {
    indented += character;
    if (character == '\n') indented += next;
  }
  return indented + "\n";
}

std::string as_text(const Explanation& explanation, const std::vector<std::string>& yours, int terminal) {
  constexpr int kWidest = 96;
  const int width = terminal == 0 ? kWidest : std::min(kWidest, terminal - 2);
  const int formula_width = terminal == 0 ? 0 : terminal - 4;
  std::string text = explanation.name + "\n\n" + paragraph(explanation.what, width, "  ");
  const auto add = [&text, formula_width](const char* title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    text += fmt::format("\n{}\n", title);
    for (const std::string& line : lines) text += paragraph(line, formula_width, "    ");
  };
  add("Formula", explanation.formulas);
  add("Your job", yours);
  add("Source", {explanation.source});
  if (!explanation.see.empty()) add("See also", {fmt::format("{}", fmt::join(explanation.see, ", "))});
  return text;
}

Table as_table(const std::vector<const Explanation*>& explanations, const std::vector<std::string>& yours) {
  Table table;
  table.columns = {text_column("term"),    text_column("group"),    text_column("what"),
                   text_column("formula"), text_column("your job"), text_column("source")};
  for (const Explanation* explanation : explanations) {
    table.rows.push_back({explanation->name, explanation->group, explanation->what,
                          fmt::format("{}", fmt::join(explanation->formulas, "; ")),
                          fmt::format("{}", fmt::join(yours, "; ")), explanation->source});
  }
  return table;
}

nlohmann::ordered_json as_json(const Explanation& explanation, const std::vector<std::string>& yours) {
  return {{"term", explanation.name},         {"group", explanation.group},
          {"aliases", explanation.aliases},   {"what", explanation.what},
          {"formulas", explanation.formulas}, {"your_job", yours},
          {"source", explanation.source},     {"see", explanation.see}};
}

Table term_list(const std::vector<Explanation>& explanations) {
  Table table;
  table.columns = {text_column("term"), text_column("group"), text_column("also")};
  for (const Explanation& explanation : explanations) {
    table.rows.push_back(
        {explanation.name, explanation.group, fmt::format("{}", fmt::join(explanation.aliases, ", "))});
  }
  table.notes.push_back("to explain a term: flopcast explain TERM [JOB]");
  return table;
}

// A schedule of the catalogue as a term.
Explanation explanation_of(const ScheduleInfo& schedule) {
  Explanation explanation;
  explanation.group = "schedules";
  explanation.name = schedule.name;
  explanation.what = schedule.summary;
  const auto add = [&explanation](const char* title, std::string_view text) {
    if (!text.empty()) explanation.formulas.push_back(fmt::format("{}: {}", title, text));
  };
  add("makespan", schedule.makespan);
  add("activations held by rank r", schedule.peak_in_flight);
  add("needs", schedule.constraints);
  add("where to use", schedule.where_to_use);
  explanation.source = schedule.source;
  explanation.see = {"bubble"};
  return explanation;
}

Explanation require(const std::vector<Explanation>& explanations, const std::string& term) {
  const Explanation* found = find_explanation(explanations, term);
  if (found != nullptr) return *found;
  std::string typed = term;
  std::replace(typed.begin(), typed.end(), ' ', '-');
  typed = typed_schedules(typed);
  if (const ScheduleInfo* schedule = find_schedule(typed); schedule != nullptr) return explanation_of(*schedule);
  std::vector<std::string> names;
  std::vector<std::string> words;
  for (const Explanation& explanation : explanations) {
    names.push_back(explanation.name);
    words.push_back(explanation.name);
    words.insert(words.end(), explanation.aliases.begin(), explanation.aliases.end());
  }
  for (const ScheduleInfo& schedule : schedule_catalogue()) words.emplace_back(schedule.name);
  const std::vector<std::string> near = nearest_choices(term, words);
  throw ConfigError({"", fmt::format("there is no explanation of \"{}\"", term), "",
                     near.empty() ? choices_help("", names)
                                  : fmt::format("did you mean {}? see: flopcast explain", fmt::join(near, " or "))});
}

class Explain final : public Question {
 public:
  void declare(Form& form) override {
    form.add_positional("TERM", term_, "term such as bubble, mfu, zero, \"weight stashing\" (default: list all terms)");
    job_.add_to(form);
    form.place_output();
  }

  Answer ask(const Context& context) override {
    if (std::optional<Answer> config = job_.config_answer(context)) return std::move(*config);
    const std::vector<Explanation> explanations = read_explanations();
    if (!term_) return {.tables = [list = term_list(explanations)] { return std::vector<Table>{list}; }};
    explanation_ = require(explanations, *term_);
    yours_ = sentences_of_job();
    Answer answer{.tables = [this] { return std::vector<Table>{as_table({&explanation_}, yours_)}; },
                  .json = [this] { return dumped(as_json(explanation_, yours_), 2); }};
    if (context.format == Format::kTable) {
      answer.text = [this, width = context.style.width] { return as_text(explanation_, yours_, width); };
    }
    return answer;
  }

 private:
  std::vector<std::string> sentences_of_job() const {
    if (!job_.names_a_job() && !job_.given().empty()) {
      throw ConfigError({job_.given().front()->flag, "needs a job", "", "give JOB or --model and --cluster"});
    }
    std::vector<std::string> sentences;
    if (!job_.names_a_job()) return sentences;
    const JobNumbers numbers = explain_numbers(forecast(job_.read(), read_file));
    for (const std::string& sentence : explanation_.yours) {
      std::string line = put_in(sentence, numbers);
      if (!line.empty()) sentences.push_back(std::move(line));
    }
    return sentences;
  }

  std::optional<std::string> term_;
  JobOptions job_;

  Explanation explanation_;
  std::vector<std::string> yours_;
};

}  // namespace

QuestionInfo explain_question() {
  return {"explain",
          "explain a term with its formula, its source and your job's numbers",
          "flopcast explain [TERM] [JOB] [options]",
          "Explains a term with its formula and source, and with the numbers of a job inserted.",
          {"flopcast explain", "flopcast explain bubble", "flopcast explain mfu job.json --tp 4"},
          make_question<Explain>};
}

}  // namespace flopcast
