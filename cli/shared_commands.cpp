#include "cli/shared_commands.hpp"

#include <optional>

#include "model/error/error.hpp"

namespace flopcast {

std::unique_ptr<PartialRows> partial_rows(const OutputOptions& output, const nlohmann::json& question,
                                          const Crew& crew) {
  if (!output.file() || output.file()->empty()) {
    if (!crew.shares) return nullptr;
    throw ConfigError({"--output", "is required: processes share their rows beside it", "", "give -o FILE"});
  }
  const std::optional<int> rank = crew.shares ? std::optional<int>(crew.rank) : std::nullopt;
  return std::make_unique<PartialRows>(*output.file(), question, rank);
}

}  // namespace flopcast
