#include "api/inputs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "model/job/fields.hpp"
#include "model/job/user_spelling.hpp"

namespace flopcast {

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

namespace {

bool has_alias(const JobKey& key, const std::string& flag) {
  return std::find(key.aliases.begin(), key.aliases.end(), flag) != key.aliases.end();
}

// "tp" of "layout.tp".
bool is_word_of_section(const JobKey& key, const std::string& name) {
  const std::size_t dot = key.field.find('.');
  return dot != std::string::npos && key.field.compare(dot + 1, std::string::npos, name) == 0;
}

}  // namespace

const JobKey* job_key_of(const std::string& name) {
  const std::string flag = "--" + with_dashes(name);
  const JobKey* of_section = nullptr;
  bool several = false;
  for (const JobKey& key : job_keys()) {
    if (key.field == name || has_alias(key, flag) || has_alias(key, "--" + name)) return &key;
    if (!is_word_of_section(key, name)) continue;
    several = of_section != nullptr;
    of_section = &key;
  }
  return several ? nullptr : of_section;
}

bool is_job_key(const std::string& name) {
  return job_key_of(name) != nullptr;
}

std::vector<std::string> flags_of(const std::vector<std::pair<std::string, std::string>>& keys) {
  std::vector<std::string> flags;
  for (const auto& [name, text] : keys) {
    const JobKey* key = job_key_of(name);
    flags.push_back("--" + (key != nullptr ? key->field : with_dashes(name)));
    // A flag without a value is present or absent.
    if (key == nullptr && text == "true") continue;
    if (key != nullptr && key->kind == FieldKind::kBoolean) {
      flags.back() += "=" + text;
    } else {
      flags.push_back(text);
    }
  }
  return flags;
}

LoadedJob load_input(const JobInput& input) {
  Streams streams = standard_streams();
  streams.in = &input.text;
  std::vector<std::string> names = input.files;
  if (!input.text.empty()) names.emplace_back(kStandardInput);
  std::vector<FlagValue> flags;
  for (const auto& [name, text] : input.keys) {
    const JobKey* key = job_key_of(name);
    // Throws like the command line, with suggestions.
    if (key == nullptr) key = &key_named(name, name);
    std::erase_if(flags, [key](const FlagValue& flag) { return flag.key == key; });
    flags.push_back({key, name, key->field == "layout.schedule" ? typed_schedules(text) : text});
  }
  return load_job(names, flags, FilesOnDisk(streams));
}

Job read_input_job(const JobInput& input) {
  return JobOptions::read(load_input(input));
}

}  // namespace flopcast
