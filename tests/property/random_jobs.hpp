#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/job.hpp"
#include "model/job/fields.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

/// A 1F1B step with two ranks and four microbatches.
const char* two_ranks_csv();

/// Starting jobs for random jobs: every kind of model, cluster and stack.
const std::vector<nlohmann::json>& job_beginnings();

/// Some value of a key; not every value is valid in every job.
nlohmann::json some_job_value(const FieldInfo& field, std::size_t seed);

/// The job prepared for simulation; absent if it is invalid.
std::optional<Job> prepared_job(const nlohmann::json& root);

/// A starting job to which each of `changes` (index of a key and of one of its values) is applied if the previous ones
/// allow it. The applied keys are added to `covered`.
nlohmann::json job_with(std::size_t beginning, const std::vector<std::pair<std::size_t, std::size_t>>& changes,
                        std::set<std::string>* covered = nullptr);

/// A model on a cluster of the catalogue with a random layout, often an invalid one.
nlohmann::json catalogue_job(std::mt19937_64& random);

/// True if better times of the parts can only shorten the step. Orders that are searched for the step's times are good
/// but not optimal. Also, the host time added to a backward pass is divided equally between its parts, so one part may
/// take longer although both together do not.
bool follows_the_times(const Forecast& forecast);

}  // namespace flopcast
