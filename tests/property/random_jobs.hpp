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

/// A 1F1B step of two ranks and four microbatches.
const char* two_ranks_csv();

/// What random jobs begin with: every kind of model, cluster and stack.
const std::vector<nlohmann::json>& job_beginnings();

/// Some value of a key; not every one suits every job.
nlohmann::json some_job_value(const FieldInfo& field, std::size_t seed);

/// The job ready to be simulated; nothing where it is none.
std::optional<Job> prepared_job(const nlohmann::json& root);

/// A beginning in which each of `changes` (the number of a key and of a value of it) holds where those before it leave
/// it possible. The keys that hold are added to `covered`.
nlohmann::json job_with(std::size_t beginning, const std::vector<std::pair<std::size_t, std::size_t>>& changes,
                        std::set<std::string>* covered = nullptr);

/// A model on a cluster of the catalogue, laid out at random: many are none.
nlohmann::json catalogue_job(std::mt19937_64& random);

/// Whether better times of the parts can only shorten the step. Orders that are searched for the step's times are good
/// ones found, not the best. And what the host adds to a backward pass is halved between its parts: one of them may
/// take longer although both together do not.
bool follows_the_times(const Forecast& forecast);

}  // namespace flopcast
