#pragma once

#include <string>

#include "import/jobs/load_job.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// "1/64" or "0.25". Throws ConfigError unless it is above 0 and at most 1.
double parse_scale(const std::string& text);

/// A job whose model has become so small that it trains on one machine, under the same layout.
struct ScaledJob {
  LoadedJob job;
  std::string told;  ///< what became of the model, for the user
};

/// Hidden size, MLP width, heads, experts, vocabulary, layers and sequence length are each multiplied by `scale`, and
/// rounded up to what the layout divides: layers by the stages of the pipeline (layers that are listed by stage are
/// scaled one by one), heads, key/value heads, MLP and vocabulary by tp, experts by ep, sequences by cp, tp and slices.
/// Heads that share keys and values go on sharing them, two and two. Everything else is as it was, the form of the
/// network, the microbatches and the schedule too. `step` is the whole job's. Throws ConfigError for layer profiles.
ScaledJob scaled_job(const LoadedJob& whole, const PreparedStep& step, double scale);

}  // namespace flopcast
