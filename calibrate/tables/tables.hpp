#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/series.hpp"
#include "base/text/table.hpp"
#include "calibrate/runs/fit_runs.hpp"
#include "calibrate/validation/evaluate.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "model/job/device_profile.hpp"

namespace flopcast {

/// How well each part of a profile fits, what was reached of the datasheet, slowdowns, then the worst samples.
std::vector<Table> profile_tables(const DeviceProfile& profile);
/// Measured points and fitted lines, a panel for each fit; the datasheet's rate where it has one.
std::vector<SeriesChart> profile_charts(const DeviceProfile& profile);

/// Forecast, measurement and replay term by term, with the forecast's error.
Table run_table(const RunComparison& run);

/// The loss of every step of a run, under the name of its schedule.
Series loss_curve(const std::string& schedule, const std::vector<double>& losses);

/// The same from a measurement file that `flopcast run -o` kept. Throws ConfigError when it is none.
Series read_loss_curve(std::string_view text, const std::string& file);

/// Curves over steps as a chart.
SeriesChart loss_chart(std::vector<Series> curves);

/// Constants that runs of one's own tell, those that they do not, and the runs.
std::vector<Table> own_fit_tables(const OwnFit& fit);
/// Errors of runs left out by the number of runs fitted to.
Table learning_table(const std::vector<LearningPoint>& curve, RunChoice choice);

/// Why a step took another time than forecast, the most believed first.
Table hypothesis_table(const std::vector<Hypothesis>& hypotheses);
/// The same for flopcast.gap/1.
nlohmann::ordered_json hypotheses_json(const std::vector<Hypothesis>& hypotheses);
/// What traces show of a step, rank by rank.
Table traced_table(const std::vector<TracedRank>& ranks);
/// The forecast's pipeline ranks above the traced ranks, on one axis: when each computes, communicates, does both or
/// waits. Of the forecast, what passes hold of communication counts as computation; of traces, the step of median time.
StateRows overlay_rows(const Forecast& answer, const std::vector<TracedRank>& ranks);
/// Every step of every rank, for flopcast.gap/1.
nlohmann::ordered_json traced_json(const std::vector<TracedRank>& ranks);

/// What `flopcast validate` prints: schema flopcast.validation/1.
std::string write_validation(const std::vector<SourceSummary>& sources);

/// What people are shown: errors of time and memory, choices, floors, what is open, the worst rows, what was skipped.
/// `shipped`: of the published steps that come with the program.
std::vector<Table> validation_tables(const std::vector<SourceSummary>& sources, bool shipped);
/// The `count` rows with the largest errors of the step time; all when it is 0.
Table rows_table(const std::vector<SourceSummary>& sources, int count);

/// Every number of the forecast that was fitted to measurements: those that --refit fits again, and those of the code.
/// What was looked up, counted or taken from data sheets is not among them.
Table constants_table();
/// What the parts of the cost model buy, by source: docs/validation.md.
Table ablation_table();

/// The constants as shipped and as refitted, then the errors by source.
std::vector<Table> refit_tables(const std::vector<Refit>& fits, LeftOut left_out = LeftOut::kModels);

/// docs/validation.md: what is compared, every table, the worst rows and all of them.
std::string validation_page(const std::vector<SourceSummary>& sources);

/// Forecast against measurement of every row, a series a source, with lines at ±10 %.
ScatterChart validation_chart(const std::vector<SourceSummary>& sources);

}  // namespace flopcast
