#include "cli/options/layout_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/error.hpp"

namespace flopcast {

const JobKey& key_named(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const JobKey& key : job_keys()) {
    names.emplace_back(key.field);
    if (key.field == name || fmt::format("--{}", key.field) == name) return key;
    for (const std::string_view alias : key.aliases) {
      names.emplace_back(alias.substr(alias.find_first_not_of('-')));
      if (alias == name || alias == "--" + name) return key;
    }
  }
  std::string near;
  for (const std::string& one : nearest_choices(name, names)) near += (near.empty() ? "did you mean " : " or ") + one;
  throw ConfigError(
      {where, fmt::format("unknown key \"{}\"", name), "",
       near.empty() ? "keys of the job file, or the flags' names: tp, pp, layout.stage_layers" : near + "?"});
}

std::vector<FlagValue> parse_layout_text(const std::string& text) {
  std::vector<FlagValue> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string piece = text.substr(begin, comma - begin);
    const std::size_t equals = piece.find('=');
    begin = comma + 1;
    if (equals != std::string::npos) {
      const JobKey& key = key_named(piece.substr(0, equals), text);
      const auto same = [&key](const FlagValue& value) { return value.key == &key; };
      if (std::any_of(values.begin(), values.end(), same)) {
        throw ConfigError({text, fmt::format("{} is set twice", key.field), "", "keep one of the two"});
      }
      values.push_back({&key, text, piece.substr(equals + 1)});
    } else if (values.empty()) {
      throw ConfigError({"LAYOUT", fmt::format("\"{}\" is neither a file nor key=value", text), "",
                         "such as tp=8,pp=4, or a job file, plan or result"});
    } else {
      values.back().text += "," + piece;
    }
  }
  return values;
}

}  // namespace flopcast
