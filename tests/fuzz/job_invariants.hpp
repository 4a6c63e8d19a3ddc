#pragma once

#include <nlohmann/json_fwd.hpp>
#include <random>
#include <string>
#include <vector>

namespace flopcast {

/// A job that can be forecast: a beginning with random changes of its keys, or a layout of the catalogue. `tried`
/// counts those that were none on the way.
nlohmann::json random_job(std::mt19937_64& random, std::size_t& tried);

/// What does not hold of a job's forecast and has to, a sentence each:
/// - every figure of its result is finite, the step's time positive, no part of it negative; the parts are the whole;
/// - a rank's memory is the sum of its parts, the peak that of the fullest rank, and `fits` what the figures say;
/// - the job in the result gives that result again, bit for bit;
/// - where schedule and split are given: a faster device, faster memory and a wider or quicker link are never slower by
///   more than a thousandth, where what is hidden beside a pass changes sides.
std::vector<std::string> broken_invariants(const nlohmann::json& root, std::mt19937_64& random);

}  // namespace flopcast
