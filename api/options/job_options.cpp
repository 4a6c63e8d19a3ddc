#include "api/options/job_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/document.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"
#include "model/job/user_spelling.hpp"
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
  if (section == "failures") return "Failures over months";
  return "Training";
}

using OrderedJson = nlohmann::ordered_json;

struct ConfigRow {
  std::string key;
  OrderedJson value;
  std::string origin;
};

// Value at a dotted path, or null if there is none.
template <class Json>
const Json* value_at(const Json& root, std::string_view path) {
  const Json* value = &root;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    if (!value->is_object()) return nullptr;
    const auto entry = value->find(std::string(path.substr(0, dot)));
    if (entry == value->end()) return nullptr;
    value = &*entry;
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return value;
}

// Value that files and flags give for a key; null if none. For a named entry given as an object, its name.
const nlohmann::json* given_at(const nlohmann::json& root, const JobKey& key) {
  const nlohmann::json* value = value_at(root, key.field);
  const bool named = key.entry->names_object && value != nullptr && value->is_object();
  return named ? value_at(*value, key.entry->key) : value;
}

bool starts_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

// "8xdgx-h100" also gives the number of nodes.
bool gives_nodes(const nlohmann::json* cluster) {
  if (cluster == nullptr || !cluster->is_string()) return false;
  const std::string name = cluster->get<std::string>();
  const std::size_t digits = name.find_first_not_of("0123456789");
  return digits != std::string::npos && digits > 0 && name[digits] == 'x';
}

// Builds the rows of one job.
class ConfigRows {
 public:
  ConfigRows(const Job& job, const nlohmann::json& root) : job_(job), root_(root), values_(job_json(job)) {
    values_["training"]["stack"] = stack_json(job.training.stack);
    // Values of the catalogue entries that the job names, innermost part first.
    add_entry("cluster.device", CatalogueKind::kDevices, job.cluster.device.name);
    add_entry("training.stack", CatalogueKind::kStacks, job.training.stack.name);
    add_entry("model", CatalogueKind::kModels, job.model.name);
    add_entry("cluster", CatalogueKind::kClusters, job.cluster.name);
    const nlohmann::json* profile = value_at(root, "training.profile");
    if (profile != nullptr && profile->is_object()) {
      profile_name_ = profile->value("name", "");
      measured_["cluster"] = profile->value("cluster", nlohmann::json::object());
      if (profile->contains("curves")) measured_["cluster"]["curves"] = profile->at("curves");
    }
  }

  std::vector<ConfigRow> rows() const {
    std::vector<ConfigRow> rows;
    for (const JobKey& key : job_keys()) {
      const bool of_network = key.field == "cluster.network" || starts_with(key.field, "cluster.network.");
      if (!of_network || job_.cluster.network) rows.push_back({key.field, value_of(key), origin_of(key)});
    }
    return rows;
  }

 private:
  struct CatalogueValues {
    std::string path;
    std::string name;
    nlohmann::json values;
  };

  void add_entry(const std::string& path, CatalogueKind kind, const std::string& name) {
    nlohmann::json values = catalogue_values(kind, name);
    if (values.is_object()) catalogue_.push_back({path, name, std::move(values)});
  }

  const CatalogueValues* catalogued(const JobKey& key) const {
    for (const CatalogueValues& entry : catalogue_) {
      if (!starts_with(key.field, entry.path + ".")) continue;
      // A device given completely inline is not looked up in the catalogue.
      const nlohmann::json* inline_device = value_at(root_, "cluster.device.peak");
      if (entry.path == "cluster.device" && inline_device != nullptr) continue;
      if (value_at(entry.values, std::string_view(key.field).substr(entry.path.size() + 1)) != nullptr) return &entry;
    }
    return nullptr;
  }

  OrderedJson value_of(const JobKey& key) const {
    if (key.entry->kept) {
      const std::string path = key.entry->names_object ? fmt::format("{}.{}", key.field, key.entry->key) : key.field;
      const OrderedJson* value = value_at(values_, path);
      return value == nullptr ? OrderedJson() : *value;
    }
    // The job does not keep keys that only helped to derive others.
    if (const nlohmann::json* given = given_at(root_, key)) return *given;
    if (const nlohmann::json* measured = value_at(measured_, key.field)) return *measured;
    const CatalogueValues* entry = catalogued(key);
    if (entry == nullptr) return nullptr;
    return *value_at(entry->values, std::string_view(key.field).substr(entry->path.size() + 1));
  }

  std::string origin_of(const JobKey& key) const {
    if (given_at(root_, key) != nullptr) return place_of(key.field);
    if (key.field == "cluster.nodes" && gives_nodes(value_at(root_, "cluster"))) return place_of("cluster");
    const nlohmann::json* measured = value_at(measured_, key.field);
    if (measured != nullptr) return "profile " + profile_name_;
    if (const CatalogueValues* entry = catalogued(key)) return "catalogue entry " + entry->name;
    if (key.field == "training.attention") return stack_attention_origin();
    return key.entry->otherwise.empty() || value_of(key).is_null() ? "default" : "derived";
  }

  std::string place_of(const std::string& field) const {
    const std::string place = job_.origins.where(field);
    return place.empty() ? "the question" : place;
  }

  // If training.attention is not given, the stack decides.
  std::string stack_attention_origin() const {
    const bool given = value_at(root_, "training.stack.attention") != nullptr;
    return given ? place_of("training.stack.attention") : "catalogue entry " + job_.training.stack.name;
  }

  const Job& job_;
  const nlohmann::json& root_;
  OrderedJson values_;
  std::vector<CatalogueValues> catalogue_;
  nlohmann::json measured_ = nlohmann::json::object();
  std::string profile_name_;
};

// Short text for a cell: strings unchanged, objects by name.
std::string cell(const OrderedJson& value, std::size_t longest) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("name")) return cell(value.at("name"), longest);
  const std::string text = dumped(value);
  return text.size() > longest ? text.substr(0, longest) + "…" : text;
}

// Values of every key in the job: rows key, value, origin. The origin is a flag, a place in a file, a catalogue entry,
// a profile, "derived" if other keys decide, or "default". `job` is the prepared job.
Table config_table(const Job& job, const LoadedJob& loaded, int width) {
  // Room for values next to the keys, which do not wrap.
  constexpr std::size_t kLongestValue = 60;
  constexpr std::size_t kShortestValue = 20;
  constexpr std::size_t kKeyColumn = 52;
  const auto columns = static_cast<std::size_t>(width);
  const std::size_t beside = columns < kKeyColumn + kShortestValue ? kShortestValue : columns - kKeyColumn;
  const std::size_t longest = width == 0 ? kLongestValue : std::min(kLongestValue, beside);
  Table table;
  table.columns = {text_column("key"), text_column("value"), text_column("origin")};
  for (const ConfigRow& row : ConfigRows(job, loaded.root).rows()) {
    table.rows.push_back({row.key, cell(row.value, longest), row.origin});
  }
  return table;
}

// The same as JSON, with values as in a job file and null if there is none. Reading it as a job file gives the same
// job.
OrderedJson config_json(const Job& job, const LoadedJob& loaded) {
  OrderedJson rows = OrderedJson::array();
  for (const ConfigRow& row : ConfigRows(job, loaded.root).rows()) {
    rows.push_back({{"key", row.key}, {"value", row.value}, {"origin", row.origin}});
  }
  return rows;
}

}  // namespace

void JobOptions::add_to(Form& form) {
  disk_.read_input(form.input());
  form.add_positional("JOB", file_,
                      "job file (JSON with comments), or another program's file (see: flopcast convert "
                      "--help); flags override it");
  form.add_flag("--show-config", show_config_, "print every key with its value and origin, then exit");
  form.add_option("--env", environment_, "NAME=VALUE", "variable of a launch script; script arguments follow --");
  form.add_flag("--strict", strict_, "fail on unknown or unmodelled settings in another program's file");
  form.add_option("--gpus", gpus_, "N", "number of GPUs of the cluster: whole nodes or part of one");
  form.add_rest(script_arguments_);
  std::string_view section;
  for (const JobKey& key : job_keys()) {
    if (section_of(key.field) != section) {
      section = section_of(key.field);
      form.begin_group(title_of(section), true);
    }
    std::vector<std::string> names = {fmt::format("--{}", key.field)};
    for (const std::string_view alias : key.aliases) names.emplace_back(alias);
    // --help shows each key once: under its short flag, or under its path if all its aliases are long.
    constexpr std::size_t kLongestShortFlag = 12;
    const bool has_short_flag = !key.aliases.empty() && key.aliases.front().size() <= kLongestShortFlag;
    const std::string& shown = has_short_flag ? names[1] : names[0];
    for (const std::string& name : names) {
      const auto remember = [this, &key, name](const std::string& text) { remember_flag(key, name, text); };
      form.add_callback(name, key.kind != FieldKind::kBoolean, std::string(key.value_name), std::string(key.help),
                        key.entry->listed && name == shown, remember);
    }
  }
}

void JobOptions::add_more_files(Form& form) {
  form.add_positional("FILE", more_files_, "more files; later ones override earlier ones");
}

void JobOptions::add_layouts(Form& form) {
  form.add_positional("LAYOUT", more_files_, "tp=8,pp=4,…: keys that override JOB's; or a job file, plan or result");
}

void JobOptions::take_layouts(std::vector<std::string>& files) {
  files.insert(files.end(), more_files_.begin(), more_files_.end());
  more_files_.clear();
}

void JobOptions::treat_job_as_layout() {
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
  return load_job(files, with_gpus(std::move(all)), disk_, import_options());
}

ImportOptions JobOptions::import_options() const {
  ImportOptions options;
  options.arguments = script_arguments_;
  options.strict = strict_;
  for (const std::string& variable : environment_) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw ConfigError({"--env", fmt::format("\"{}\" is not NAME=VALUE", variable), "--env",
                         "give a name and a value, such as --env TP=8"});
    }
    options.environment[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  return options;
}

void JobOptions::remember_flag(const JobKey& key, const std::string& name, const std::string& text) {
  // A key given again, by this name or another, replaces the earlier value.
  std::erase_if(flags_, [&key](const FlagValue& value) { return value.key == &key; });
  // Questions that accept several schedules parse this flag themselves.
  const bool lists = key.field == "layout.schedule";
  flags_.push_back({&key, name, lists ? typed_schedules(text) : text});
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

std::optional<std::string> JobOptions::take_file_for(std::string_view field, const std::string& prefix,
                                                     const std::string& flag,
                                                     const std::function<bool(const std::string& file)>& is_value) {
  std::vector<std::string> files = more_files_;
  if (file_) files.insert(files.begin(), *file_);
  const auto last = std::find_if(files.rbegin(), files.rend(), is_value);
  if (last == files.rend()) return std::nullopt;
  std::string found = *last;
  files.erase(std::next(last).base());
  file_.reset();
  if (!files.empty()) {
    file_ = files.front();
    files.erase(files.begin());
  }
  more_files_ = std::move(files);
  remember_flag(key_named(field, ""), flag.empty() ? found : flag, prefix + found);
  return found;
}

std::vector<const FlagValue*> JobOptions::given() const {
  std::vector<const FlagValue*> values;
  for (const FlagValue& value : flags_) values.push_back(&value);
  return values;
}

LoadedJob JobOptions::load() const {
  return load_job(files(), with_gpus(flags_), disk_, import_options());
}

namespace {

// True for flopcast's job files and results, false for parts that another file completes.
bool is_whole_job(const Files& disk, const std::string& file) {
  try {
    const nlohmann::json json = parse_json(disk.read(file), file);
    return json.is_object() && (json.contains("schema") || (json.contains("model") && json.contains("cluster")));
  } catch (const ConfigError&) {
    return false;  // the reader of the file reports the error
  }
}

// Refuses the name of a model or cluster given as a file: "llama3-70b", "256xh100".
void refuse_bare_name(const std::string& file) {
  if (files_on_disk().kind_of(file) != Files::Kind::kNone || file.find_first_of("/\\") != std::string::npos) return;
  const auto refuse = [&file](const char* flag, const std::string& name) {
    throw ConfigError({"", fmt::format("{} is not a file", file), "", fmt::format("did you mean {} {}?", flag, name)});
  };
  const std::vector<std::string> models = catalogue_names(CatalogueKind::kModels);
  const std::string model = typed_entry(CatalogueKind::kModels, file);
  if (std::find(models.begin(), models.end(), model) != models.end()) refuse("--model", model);
  const std::size_t digits = file.find_first_not_of(kDecimalDigits);
  const std::vector<std::string> clusters = catalogue_names(CatalogueKind::kClusters);
  const bool counts = digits != std::string::npos && digits > 0 && lower_case(file)[digits] == 'x';
  if (counts || std::find(clusters.begin(), clusters.end(), file) != clusters.end()) refuse("--cluster", file);
}

}  // namespace

// Throws ConfigError if the files are not parts of one job.
std::vector<std::string> JobOptions::files() const {
  std::vector<std::string> files = more_files_;
  if (file_) files.insert(files.begin(), *file_);
  for (const std::string& file : files) {
    refuse_bare_name(file);
    if (!file.ends_with(".csv")) continue;
    throw ConfigError({"", fmt::format("{} contains the rows of a schedule, not a job", file), "",
                       fmt::format("flopcast timeline {0} draws it, flopcast schedule simulate {0} simulates it; for "
                                   "a job, give --schedule file:{0}",
                                   file)});
  }
  if (files.size() < 2 || !is_whole_job(disk_, files[0]) || !is_whole_job(disk_, files[1])) return files;
  throw ConfigError({"", fmt::format("{} and {} are both complete jobs", files[0], files[1]), "",
                     fmt::format("to compare them: flopcast compare {} {}", files[0], files[1])});
}

// --gpus sets the number of GPUs of the cluster that --cluster names.
std::vector<FlagValue> JobOptions::with_gpus(std::vector<FlagValue> flags) const {
  if (!gpus_) return flags;
  constexpr int kMostGpus = 100'000'000;
  const auto cluster =
      std::find_if(flags.begin(), flags.end(), [](const FlagValue& value) { return value.key->field == "cluster"; });
  const std::optional<int> count = parse_digits(*gpus_, 1, kMostGpus);
  // "8xa100" also names the cluster.
  const std::size_t digits = std::min(gpus_->find_first_not_of(kDecimalDigits), gpus_->size());
  const bool names_cluster = digits > 0 && digits + 1 < gpus_->size() && lower_case(*gpus_)[digits] == 'x';
  if (names_cluster && cluster == flags.end()) {
    flags.push_back({&key_named("cluster", "--gpus"), "--gpus", *gpus_});
    return flags;
  }
  if (!count) {
    const std::string problem =
        names_cluster ? fmt::format("{} names a cluster, and so does --cluster {}", quote(*gpus_), cluster->text)
                      : fmt::format("{} is not a number of GPUs", quote(*gpus_));
    throw ConfigError({"--gpus", problem, "",
                       names_cluster ? fmt::format("give --gpus {}, or omit one of the two", gpus_->substr(0, digits))
                                     : fmt::format("expected a whole number from 1 to {}, or 256xh100", kMostGpus)});
  }
  if (cluster == flags.end()) {
    throw ConfigError({"--gpus", fmt::format("{} GPUs need a cluster", *count), "",
                       "add --cluster, such as --cluster h100 (see: flopcast catalog clusters)"});
  }
  const nlohmann::json counted = typed_cluster(*count, cluster->text);
  cluster->text = counted.is_string() ? counted.get<std::string>() : dumped(counted);
  return flags;
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

std::optional<Answer> JobOptions::config_answer(const Context& context) const {
  if (!show_config_) return std::nullopt;
  auto loaded = std::make_shared<const LoadedJob>(load());
  auto job = std::make_shared<const Job>(prepare(read(*loaded), read_file).job);
  return Answer{
      .tables = [=, width = context.style.width] { return std::vector<Table>{config_table(*job, *loaded, width)}; },
      .json = [=] { return dumped(config_json(*job, *loaded), 2) + "\n"; }};
}

void JobOptions::refuse_show_config(const char* command) const {
  if (!show_config_) return;
  throw ConfigError({"--show-config", fmt::format("shows one job, but {} has several", command), "",
                     "use flopcast simulate JOB --show-config"});
}

const JobKey& key_named(std::string_view name, const std::string& where) {
  std::vector<std::string> names;
  for (const JobKey& key : job_keys()) {
    names.emplace_back(key.field);
    if (key.field == name || fmt::format("--{}", key.field) == name) return key;
    for (const std::string_view alias : key.aliases) {
      names.emplace_back(alias.substr(alias.find_first_not_of('-')));
      if (alias == name || alias == fmt::format("--{}", name)) return key;
    }
  }
  std::string near;
  for (const std::string& one : nearest_choices(name, names)) near += (near.empty() ? "did you mean " : " or ") + one;
  throw ConfigError(
      {where, fmt::format("unknown key \"{}\"", name), "",
       near.empty() ? "use keys of the job file or names of flags: tp, pp, layout.stage_layers" : near + "?"});
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
        throw ConfigError({text, fmt::format("{} is set twice", key.field), "",
                           "keep one of the two; separate two layouts with a blank: tp=2 tp=4"});
      }
      values.push_back({&key, text, piece.substr(equals + 1)});
    } else if (values.empty()) {
      throw ConfigError({"LAYOUT", fmt::format("\"{}\" is neither a file nor key=value", text), "",
                         "give keys such as tp=8,pp=4, or a job file, plan or result"});
    } else {
      values.back().text += "," + piece;
    }
  }
  return values;
}

}  // namespace flopcast
