#include "cli/jobs/stack_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/host/files.hpp"
#include "cli/jobs/file_places.hpp"
#include "import/programs/imported_job.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/error/error.hpp"

namespace flopcast {

void read_stack_file(nlohmann::json& root, Origins& origins) {
  const auto training = root.find("training");
  if (training == root.end() || !training->is_object() || !training->contains("stack")) return;
  nlohmann::json& stack = training->at("stack");
  if (!stack.is_string() || !is_path(stack.get<std::string>())) return;
  const std::string path = stack.get<std::string>();
  const nlohmann::json file = parse_json(read_file(path), path);
  if (!file.is_object()) {
    throw ConfigError({"training.stack", fmt::format("{} holds no JSON object", path), path,
                       "expected { \"name\": \"megatron-core\", \"gradient_bytes\": 2, … }"});
  }
  stack = plain_values(file);
  add_file_places(stack, path, "", "training.stack", origins);
}

}  // namespace flopcast
