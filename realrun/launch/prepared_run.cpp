#include "realrun/launch/prepared_run.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>

#include "model/config/document.hpp"
#include "model/config/read_job.hpp"
#include "model/error/error.hpp"

namespace flopcast::realrun {

namespace {

std::string read_text_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw ConfigError({"", fmt::format("{} cannot be read", path), path, {}});
  return text;
}

}  // namespace

PreparedRun prepare_run(const LaunchOptions& options) {
  Origins origins;
  nlohmann::json root = nlohmann::json::object();
  if (options.job_file) {
    root = parse_json(read_text_file(*options.job_file), *options.job_file);
    origins.file = *options.job_file;
  }
  apply_flags(options.flags, root, origins);
  const PreparedStep step = prepare(read_job(root, origins), read_text_file);
  RunSettings settings = options.settings;
  settings.on_gpus = options.backend == "nccl" || options.backend == "virtual-gpus";
  return {root, plan_from_job(step, settings), step.job.training.precision};
}

}  // namespace flopcast::realrun
