#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/text/series.hpp"
#include "base/text/table.hpp"
#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/refit.hpp"

namespace flopcast {

/// What `flopcast validate` prints: schema flopcast.validation/1.
nlohmann::ordered_json validation_json(const std::vector<SourceSummary>& sources);

/// Errors of the step time by source, rows that constants were fitted to apart from the others.
Table time_error_table(const std::vector<SourceSummary>& sources);
/// Errors of the memory by source; without rows where no source measured memory.
/// Of the published steps that come with the program.
Table coverage_table();
Table memory_error_table(const std::vector<SourceSummary>& sources);
/// What choosing the row forecast fastest costs, and the errors without rows that others contradict.
Table choice_table(const std::vector<SourceSummary>& sources);
/// How many rows were skipped for which reason.
Table skipped_table(const std::vector<SourceSummary>& sources);
/// Rows that leave something open: the fastest and the slowest forecast over the plausible choices.
Table open_table(const std::vector<SourceSummary>& sources);
/// The `count` rows with the largest errors of the step time; all when it is 0.
Table rows_table(const std::vector<SourceSummary>& sources, int count);

/// The constants as shipped and as refitted, then the errors by source.
std::vector<Table> refit_tables(const std::vector<Refit>& fits);

/// docs/validation.md: what is compared, every table, the worst rows and all of them.
std::string validation_page(const std::vector<SourceSummary>& sources);

/// Forecast against measurement of every row, a series a source, with lines at ±10 %.
ScatterChart validation_chart(const std::vector<SourceSummary>& sources);

}  // namespace flopcast
