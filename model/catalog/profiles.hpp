#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// Device profiles that come with the program (model/catalog/profiles/NAME.json, schema flopcast.profile/1 without the
/// points that were fitted). --profile NAME takes one; no job has one by itself.
std::vector<std::string> shipped_profile_names();
/// Null JSON when there is none of that name.
nlohmann::json shipped_profile(std::string_view name);

}  // namespace flopcast
