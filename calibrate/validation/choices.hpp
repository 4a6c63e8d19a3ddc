#pragma once

#include <vector>

#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"

namespace flopcast {

/// A row that was evaluated and what its source says of it.
struct ComparedRow {
  const PublishedRow* published = nullptr;
  const EvaluatedRow* evaluated = nullptr;
};

/// What choosing by forecast costs: of all rows of one model on the same devices with the same batch, the measured time
/// of the one forecast fastest over the time of the fastest, less 1. Over the groups of at least three rows.
ChoiceStatistics choice_statistics(const std::vector<ComparedRow>& rows);

/// How well the gain of a schedule is forecast: signed errors of (time of 1f1b / time of the row), for every row of
/// another schedule that has a 1f1b row of the same model, devices, batch and ranks.
std::vector<double> speed_up_errors(const std::vector<ComparedRow>& rows);

/// Rows whose measured time another measured row contradicts, whatever anybody forecasts; by index. Of one model on the
/// same devices with the same batch, pipeline, schedule and recomputation, the other
///   - has more tensor parallelism inside the node, hence more communication and smaller GEMMs, and no larger
///     microbatch, or
///   - has a smaller microbatch, hence smaller GEMMs and more launches, and is alike otherwise,
/// and yet loses less: its time over 1 + (p-1)/(v·m), the ideal pipeline, is more than a hundredth shorter. Rows that
/// ran beside others, or while the allocator was thrashing, show this way.
std::vector<bool> contradicted_rows(const std::vector<ComparedRow>& rows);

}  // namespace flopcast
