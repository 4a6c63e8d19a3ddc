#include "tests/unit/model/jobs.hpp"

#include <nlohmann/json.hpp>

#include "model/job/read_job.hpp"

namespace flopcast {

Job job_from(std::string_view text) {
  Origins origins;
  origins.file = "job.json";
  return read_job(parse_json(text, "job.json"), origins);
}

Diagnostic error_report(std::string_view text) {
  try {
    job_from(text);
  } catch (const ConfigError& error) {
    return error.diagnostic();
  }
  return {};
}

std::string no_files(const std::string& path) {
  throw EnvironmentError("unexpected read of " + path);
}

std::string gpt3_job(std::string_view layout) {
  return R"({"model": "gpt3-175b", "cluster": {"name": "dgx-a100-80g", "nodes": 8}, "layout": )" + std::string(layout) +
         R"(, "training": {"stack": "megatron-2022", "precision": "fp16"}})";
}

}  // namespace flopcast
