#include "cli/jobs/file_places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace flopcast {

void add_file_places(const nlohmann::json& value, const std::string& file, const std::string& pointer,
                     const std::string& field, Origins& origins) {
  origins.places[field] = pointer.empty() ? file : file + ":" + pointer;
  constexpr std::size_t kDeepest = 5;
  if (static_cast<std::size_t>(std::count(pointer.begin(), pointer.end(), '/')) >= kDeepest) return;
  if (value.is_array()) {
    for (std::size_t index = 0; index < value.size(); ++index) {
      const std::string inside = fmt::format("{}/{}", pointer, index);
      add_file_places(value[index], file, inside, fmt::format("{}.{}", field, index), origins);
    }
  }
  if (!value.is_object()) return;
  for (const auto& item : value.items()) {
    add_file_places(item.value(), file, pointer + "/" + item.key(), field + "." + item.key(), origins);
  }
}

}  // namespace flopcast
