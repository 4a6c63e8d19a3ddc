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

/// Accuracy of each part of a profile, rates achieved relative to the datasheet, slowdowns, then the worst samples.
std::vector<Table> profile_tables(const DeviceProfile& profile);
/// Measured points and fitted lines, one panel per fit, with the datasheet's rate if there is one.
std::vector<SeriesChart> profile_charts(const DeviceProfile& profile);

/// Forecast, measurement and replay, term by term, with the error of the forecast.
Table run_table(const RunComparison& run);

/// The loss of every step of a run, under the name of its schedule.
Series loss_curve(const std::string& schedule, const std::vector<double>& losses);

/// The loss curve from a measurement file that `flopcast run -o` wrote. Throws ConfigError if the file is not one.
Series read_loss_curve(std::string_view text, const std::string& file);

/// Curves over steps as a chart.
SeriesChart loss_chart(std::vector<Series> curves);

/// Constants that the user's runs determine, those that they do not, and the runs.
std::vector<Table> user_fit_tables(const UserFit& fit);
/// Errors of left-out runs by the number of fitted runs.
Table learning_table(const std::vector<LearningPoint>& curve, RunChoice choice);

/// Causes of the difference between a step and its forecast, most likely first.
Table hypothesis_table(const std::vector<Hypothesis>& hypotheses);
/// The same causes for flopcast.gap/1.
nlohmann::ordered_json hypotheses_json(const std::vector<Hypothesis>& hypotheses);
/// Figures of a traced step, rank by rank.
Table traced_table(const std::vector<TracedRank>& ranks);
/// The forecast's pipeline ranks above the traced ranks, on one time axis: when each computes, communicates, does both
/// or waits. In the forecast, communication inside passes counts as computation; a traced rank shows its step of median
/// time.
StateRows overlay_rows(const Forecast& answer, const std::vector<TracedRank>& ranks);
/// Every step of every rank, for flopcast.gap/1.
nlohmann::ordered_json traced_json(const std::vector<TracedRank>& ranks);

/// The JSON that `flopcast validate` prints: schema flopcast.validation/1.
std::string write_validation(const std::vector<SourceSummary>& sources);

/// Tables for people: errors of time and memory, choices, floors, unspecified details, worst rows, skipped rows.
/// `shipped`: the sources are the published steps that come with the program.
std::vector<Table> validation_tables(const std::vector<SourceSummary>& sources, bool shipped);
/// The `count` rows with the largest errors of the step time; all rows if it is 0.
Table rows_table(const std::vector<SourceSummary>& sources, int count);

/// Every number of the forecast that was fitted to measurements: those that --refit fits again, and those in the code.
/// Numbers that were looked up, counted or taken from data sheets are not listed.
Table constants_table();
/// Accuracy gained by each part of the cost model, by source: docs/validation.md.
Table ablation_table();

/// The constants as shipped and as refitted, then the errors by source.
std::vector<Table> refit_tables(const std::vector<Refit>& fits, LeftOut left_out = LeftOut::kModels);

/// docs/validation.md: introduction, every table, the worst rows and all rows.
std::string validation_page(const std::vector<SourceSummary>& sources);

/// Forecast against measurement of every row, one series per source, with lines at ±10 %.
ScatterChart validation_chart(const std::vector<SourceSummary>& sources);

}  // namespace flopcast
