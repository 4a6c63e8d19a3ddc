#pragma once

#include <filesystem>
#include <vector>

#include "reports/table.hpp"

namespace flopcast {

/// Runs whose figures somebody published, forecast: a JSON file each,
///   {"run": …, "source": …, "published": {"iteration.time_s": 60.1}, "assumed": …, "planned": false, "job": {…}}
/// The keys of `published` are those of flopcast.result/1 (numbers). `assumed` says what the source does not. With
/// `planned` the source names no layout: the best layout of what the job leaves open stands for it.
/// The table holds published and predicted figure and the error, predicted / published - 1, of each.
/// Throws ConfigError with the file's name.
Table documented_runs(const std::vector<std::filesystem::path>& files);

}  // namespace flopcast
