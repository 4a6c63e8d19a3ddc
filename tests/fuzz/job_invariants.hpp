#pragma once

#include <nlohmann/json_fwd.hpp>
#include <random>
#include <string>
#include <vector>

namespace flopcast {

/// A random job that can be forecast: a starting job with random changes to its keys, or a layout of the catalogue.
/// `tried` counts the rejected candidates.
nlohmann::json random_job(std::mt19937_64& random, std::size_t& tried);

/// Violated invariants of a job's forecast, one sentence each:
///   - every figure of its result is finite, the step's time is positive, no part of it is negative, and the parts
///     sum to the step;
///   - a rank's memory is the sum of its parts, the peak is that of the fullest rank, and `fits` agrees with the
///     figures;
///   - the job in the result reproduces that result bit for bit;
///   - if schedule and split are given: a faster device, faster memory, and a wider link or one of lower latency never
///     slow the step down by more than a thousandth, which may occur when work moves between the passes that hide it.
std::vector<std::string> broken_invariants(const nlohmann::json& root, std::mt19937_64& random);

}  // namespace flopcast
