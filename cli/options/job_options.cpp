#include "cli/options/job_options.hpp"
#include "cli/options/files_on_disk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "cli/options/show_config.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

namespace {

std::string_view section_of(std::string_view field) {
  return field.substr(0, field.find('.'));
}

std::string title_of(std::string_view section) {
  if (section == "model") return "Model";
  if (section == "cluster") return "Cluster";
  if (section == "layout") return "Layout";
  return "Training";
}

}  // namespace

void JobOptions::add_to(CommandLine& command_line) {
  command_line.add_positional("JOB", file_,
                              "job file (JSON with comments), or a file of another program (see: flopcast convert "
                              "--help); flags win over it");
  command_line.add_flag("--show-config", show_config_, "print every key with its value and origin, and stop");
  std::string_view section;
  for (const JobKey& key : job_keys()) {
    if (section_of(key.field) != section) {
      section = section_of(key.field);
      command_line.begin_group(title_of(section));
    }
    std::vector<std::string> names = {fmt::format("--{}", key.field)};
    for (const std::string_view alias : key.aliases) names.emplace_back(alias);
    // --help shows each key once: under its short flag, or under its path when others gave it only a long one.
    constexpr std::size_t kLongestShortFlag = 12;
    const bool has_short_flag = !key.aliases.empty() && key.aliases.front().size() <= kLongestShortFlag;
    const std::string& shown = has_short_flag ? names[1] : names[0];
    for (const std::string& name : names) {
      const auto remember = [this, &key, name](const std::string& text) { remember_flag(key, name, text); };
      command_line.add_callback(name, key.kind != FieldKind::kBoolean, std::string(key.value_name),
                                std::string(key.help), key.entry->listed && name == shown, remember);
    }
  }
}

void JobOptions::add_more_files(CommandLine& command_line) {
  command_line.add_positional("FILE", more_files_, "more files; a later one wins over an earlier one");
}

void JobOptions::add_layouts(CommandLine& command_line) {
  command_line.add_positional("LAYOUT", more_files_, "tp=8,pp=4,…: keys over JOB's; or a job file, a plan or a result");
}

void JobOptions::sort_out_layouts() {
  if (!file_ || file_->find('=') == std::string::npos) return;
  more_files_.insert(more_files_.begin(), *file_);
  file_.reset();
}

LoadedJob JobOptions::load_with(const std::vector<FlagValue>& flags) const {
  std::vector<FlagValue> all;
  for (const FlagValue& own : flags_) {
    const auto same = [&own](const FlagValue& given) { return given.key == own.key; };
    if (std::none_of(flags.begin(), flags.end(), same)) all.push_back(own);
  }
  all.insert(all.end(), flags.begin(), flags.end());
  std::vector<std::string> files;
  if (file_) files.push_back(*file_);
  return load_job(files, all, files_on_disk());
}

void JobOptions::remember_flag(const JobKey& key, const std::string& name, const std::string& text) {
  for (const FlagValue& value : flags_) {
    if (value.key != &key) continue;
    throw ConfigError({std::string(key.field),
                       fmt::format("{} {} and {} {} set it twice", value.flag, value.text, name, text), name,
                       "keep one of the two"});
  }
  flags_.push_back({&key, name, text});
}

bool JobOptions::names_a_job() const {
  if (file_) return true;
  return std::any_of(flags_.begin(), flags_.end(), [](const FlagValue& value) {
    const std::string_view section = section_of(value.key->field);
    return section == "model" || section == "cluster";
  });
}

std::optional<std::string> JobOptions::flag(std::string_view field) const {
  for (const FlagValue& value : flags_) {
    if (value.key->field == field) return value.text;
  }
  return std::nullopt;
}

void JobOptions::set(std::string_view field, const std::string& text) {
  for (FlagValue& value : flags_) {
    if (value.key->field == field) value.text = text;
  }
}

std::vector<const FlagValue*> JobOptions::given() const {
  std::vector<const FlagValue*> values;
  for (const FlagValue& value : flags_) values.push_back(&value);
  return values;
}

LoadedJob JobOptions::load() const {
  std::vector<std::string> files = more_files_;
  if (file_) files.insert(files.begin(), *file_);
  return load_job(files, flags_, files_on_disk());
}

Job JobOptions::read(const LoadedJob& loaded) {
  require_named_cluster(loaded);
  Job job = read_job(loaded.root, loaded.origins);
  job.assumptions.insert(job.assumptions.begin(), loaded.notes.begin(), loaded.notes.end());
  job.warnings = loaded.warnings;
  return job;
}

Job JobOptions::read() const {
  return read(load());
}

bool JobOptions::show_config(const OutputOptions& output) const {
  if (!show_config_) return false;
  const LoadedJob loaded = load();
  const Job job = prepare(read(loaded), read_file).job;
  if (output.format() == Format::kJson) {
    output.write(config_json(job, loaded).dump(2) + "\n");
  } else {
    output.write({config_table(job, loaded)});
  }
  return true;
}

void JobOptions::refuse_show_config(const char* command) const {
  if (!show_config_) return;
  throw ConfigError({"--show-config", fmt::format("shows one job, and {} has several", command), "",
                     "flopcast simulate JOB --show-config"});
}

}  // namespace flopcast
