#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "planner/tables/tables.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/svg/charts.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/run/run.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

ShownMfu shown_mfu(const std::optional<std::string>& text) {
  if (!text) return ShownMfu::kBoth;
  const std::optional<ShownMfu> mfu = parse<ShownMfu>(*text);
  if (!mfu || *mfu == ShownMfu::kBoth) {
    throw ConfigError({"--mfu", fmt::format("\"{}\" is neither full nor causal", *text), "",
                       "give full (all attention products) or causal (only the half that a causal kernel computes)"});
  }
  return *mfu;
}

// Drawing of a job's months with failures, in the format of the file's ending.
std::string life_of(const std::string& file, const std::optional<RunLife>& life, const Forecast& answer) {
  const std::string title = answer.step.job.model.name + " on " + answer.step.job.cluster.name;
  return file.ends_with(".html") ? write_life_page(*life, title, answer_line(answer.result))
                                 : write_life_svg(*life, title);
}

// --hot-links and --path-samples.
void show_network(std::optional<int> hot_links, std::optional<int> path_samples, Forecast& answer) {
  const auto need = [](bool holds, const char* flag, const std::string& problem, const char* help) {
    if (!holds) throw ConfigError({flag, problem, "", help});
  };
  std::optional<NetworkResult>& network = answer.result.network;
  const char* const of_network = "applies only to a cluster with a network";
  const char* const give = "give --network NAME, --oversubscription RATIO or cluster.network in the job";
  if (hot_links) {
    need(*hot_links >= 1, "--hot-links", fmt::format("{} is not a number of links", *hot_links), "give 1 or more");
    need(network.has_value(), "--hot-links", of_network, give);
    if (!network) return;
    const auto count = std::min(answer.links.size(), static_cast<std::size_t>(*hot_links));
    network->hot_links.assign(answer.links.begin(), answer.links.begin() + static_cast<std::ptrdiff_t>(count));
  }
  if (path_samples) {
    constexpr int kMostSamples = 100'000;
    need(*path_samples >= 1 && *path_samples <= kMostSamples, "--path-samples",
         fmt::format("{} is not between 1 and {}", *path_samples, kMostSamples), "give a number such as 100");
    need(network.has_value(), "--path-samples", of_network, give);
    if (!network) return;
    const std::optional<Network>& described = answer.step.job.cluster.network;
    need(described && described->routing == Routing::kHash, "--path-samples", "applies only to hashed routing",
         "give --routing hash:SEED");
    network->paths = sample_paths(answer.step, *path_samples);
  }
}

class Simulate final : public Question {
 public:
  void declare(Form& form) override {
    job_.add_to(form);
    job_.add_more_files(form);
    form.place_output();
    form.place_figure("write the timeline as a figure");
    form.place_page("write a report as one self-contained HTML file");
    form.place_trace("write the timeline as a trace for ui.perfetto.dev");
    form.add_figure("--roofline", roofline_, "draw a roofline of a block's operators, as SVG");
    form.add_output("--life", life_file_,
                    "draw the months of the median run (needs --failures): FILE.svg or FILE.html");
    form.add_flag("--verbose,-v", verbose_, "also show memory of every rank, all assumptions and the critical path");
    variation_.add_to(form);
    form.add_option("--mfu", mfu_, "full|causal",
                    "count attention FLOPs in full, or causal attention by half (default: both if they differ "
                    "by a percentage point)");
    form.begin_group("Links between nodes");
    form.add_option("--hot-links", hot_links_, "N", "number of links to show, fullest first (default 10)");
    form.add_option("--path-samples", path_samples_, "N", "step times for N random seeds of path hashing");
  }

  Answer ask(const Context& context) override {
    const ShownMfu shown = shown_mfu(mfu_);
    if (std::optional<Answer> config = job_.config_answer(context)) return std::move(*config);
    const std::optional<Variation> variation = variation_.variation();
    forecast_ = forecast(job_.read(), read_file);
    const std::optional<std::vector<int>> lengths =
        variation_.sequence_lengths(forecast_.step.job.training.sequence_length);
    show_network(hot_links_, path_samples_, forecast_);
    if (forecast_.result.network && (variation || lengths)) {
      throw ConfigError({variation ? "--jitter" : "--sequence-lengths", "is not supported if groups share links", "",
                         "add --network none"});
    }
    if (variation) add_distribution(*variation, forecast_);
    if (lengths) add_packing(*lengths, forecast_);
    life_ = add_run(forecast_, WithOptions::kYes);
    if (life_file_) require_life_file();
    Answer answer{.tables = [this, shown] { return tables(shown); },
                  .rows = [this] { return result_row(forecast_); },
                  .json = [this] { return write_simulation(forecast_); },
                  .finish = [this, &context] { print_warnings(forecast_, context); }};
    add_timeline_files(
        forecast_, [this] { return page_parts(); }, answer);
    if (life_file_) {
      answer.files.emplace_back(*life_file_,
                                [this](const FigureStyle&) { return life_of(*life_file_, life_, forecast_); });
    }
    if (roofline_) answer.files.emplace_back(*roofline_, [this](const FigureStyle& style) { return roofline(style); });
    return answer;
  }

 private:
  void require_life_file() const {
    require_life(life_, forecast_);
    if (life_file_->ends_with(".html") || life_file_->ends_with(".svg")) return;
    throw ConfigError({"--life", fmt::format("\"{}\" ends in neither .svg nor .html", *life_file_), "",
                       "give a file such as run.svg"});
  }
  std::vector<Table> tables(ShownMfu mfu) const {
    std::vector<Table> tables = result_tables(forecast_, verbose_, mfu);
    const Timeline& timeline = forecast_.timeline;
    if (verbose_) tables.insert(tables.end() - 1, critical_path_table(timeline, critical_path(timeline)));
    return tables;
  }
  PageParts page_parts() const {
    PageParts parts = run_parts(forecast_, life_);
    parts.advice = advice_on(forecast_, read_file);
    return parts;
  }
  std::string roofline(const FigureStyle& style) const {
    SeriesSvgOptions drawn;
    static_cast<FigureStyle&>(drawn) = style;
    return write_series_svg({roofline_chart(forecast_.step.job)}, drawn);
  }

  JobOptions job_;
  VariationOptions variation_;
  std::optional<std::string> roofline_;
  std::optional<std::string> life_file_;
  bool verbose_ = false;
  std::optional<std::string> mfu_;
  std::optional<int> hot_links_;
  std::optional<int> path_samples_;

  Forecast forecast_;
  std::optional<RunLife> life_;
};

}  // namespace

QuestionInfo simulate_question() {
  return {"simulate",
          "forecast one layout: step time, MFU, bubble, communication, memory",
          "flopcast simulate [JOB] [FILE…] [options]",
          "Forecasts one training step: time, MFU, bubble, communication, memory.",
          {"flopcast simulate job.json --svg timeline.svg --trace timeline.trace.json",
           "flopcast simulate --model gpt3-175b --cluster 8xdgx-a100-80g --tp 8 --pp 8 --gbs 64",
           "flopcast simulate job.json --recompute full --format json",
           "flopcast simulate job.json --jitter 3% --straggler 0.1%:1.5",
           "flopcast simulate job.json --failures llama3 --tokens 15T --spares 16 --life run.svg"},
          make_question<Simulate>};
}

}  // namespace flopcast
