#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "api/schedule/options.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "sim/forecast/interval.hpp"

namespace flopcast {

namespace {

Table models_table() {
  Table table;
  table.columns = {text_column("name"), text_column("description"), number_column("parameters"),
                   number_column("active per token", "active_parameters")};
  for (const std::string& name : catalogue_names(CatalogueKind::kModels)) {
    const nlohmann::json root = {{"model", name}};
    const Origins origins;
    ObjectReader reader(root, "", origins);
    Job job;
    const ParameterCounts counts = count_parameters(read_model(reader, job, origins));
    table.rows.push_back({name, catalogue_entry(CatalogueKind::kModels, name).description,
                          fmt::format("{}", counts.total), fmt::format("{}", counts.active)});
  }
  table.notes.emplace_back("flopcast catalog models NAME shows every figure with its source");
  return table;
}

// Table of devices with the number of measured steps compared with their forecasts.
Table devices_table() {
  struct Seen {
    std::set<int> sources;
    std::size_t steps = 0;
  };
  std::map<std::string, Seen> seen;
  for (const SourceErrors& group : shipped_source_errors()) {
    seen[group.facts.device].sources.insert(group.source);
    seen[group.facts.device].steps += group.errors.size();
  }
  std::map<std::string, std::string> profiles;
  for (const std::string& name : shipped_profile_names()) {
    std::string& list = profiles[shipped_profile(name).at("cluster").at("device").at("name")];
    list += (list.empty() ? "" : ", ") + name;
  }
  Table table;
  table.columns = {text_column("name"), text_column("description"), number_column("steps compared"),
                   number_column("of sources", "sources_compared"), text_column("profiles")};
  for (const std::string& name : catalogue_names(CatalogueKind::kDevices)) {
    const Seen& compared = seen[name];
    table.rows.push_back({name, catalogue_entry(CatalogueKind::kDevices, name).description,
                          fmt::format("{}", compared.steps), fmt::format("{}", compared.sources.size()),
                          profiles[name]});
  }
  table.notes.emplace_back(
      "steps compared: published training steps compared with the forecast; 0: figures come only from "
      "datasheets, isolated kernels and the device's generation");
  table.notes.emplace_back("flopcast catalog devices NAME shows every figure with its source");
  return table;
}

Table stacks_table() {
  Table table;
  table.columns = {text_column("name"), text_column("releases"), text_column("newest"), text_column("description")};
  for (const std::string& name : catalogue_names(CatalogueKind::kStacks)) {
    std::string releases;
    std::string date;
    for (const StackRelease& release : stack_releases(name)) {
      releases += (releases.empty() ? "" : " ") + release.release;
      date = release.date;
    }
    table.rows.push_back({name, releases, date, catalogue_entry(CatalogueKind::kStacks, name).description});
  }
  table.notes.emplace_back("NAME@RELEASE selects that release of the software, NAME the newest");
  table.notes.emplace_back("flopcast catalog stacks NAME shows every figure and release with its source");
  return table;
}

Table entries_table(CatalogueKind kind) {
  if (kind == CatalogueKind::kModels) return models_table();
  if (kind == CatalogueKind::kDevices) return devices_table();
  if (kind == CatalogueKind::kStacks) return stacks_table();
  Table table;
  table.columns = {text_column("name"), text_column("description")};
  for (const std::string& name : catalogue_names(kind)) {
    table.rows.push_back({name, catalogue_entry(kind, name).description});
  }
  table.notes.push_back(fmt::format("flopcast catalog {} NAME shows every figure with its source", name_of(kind)));
  return table;
}

Table figures_table(CatalogueKind kind, const std::string& name) {
  const std::vector<std::string> names = catalogue_names(kind);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw ConfigError(
        {"", fmt::format("there is no {} named \"{}\"", name_of(kind).substr(0, name_of(kind).size() - 1), name), "",
         choices_help(name, names)});
  }
  const CatalogueEntry entry = catalogue_entry(kind, name);
  Table table = {.title = fmt::format("{}: {}", entry.name, entry.description),
                 .columns = {text_column("figure"), text_column("value"), text_column("source")}};
  for (const SourcedFigure& figure : entry.figures) table.rows.push_back({figure.key, figure.value, figure.source});
  if (kind != CatalogueKind::kStacks) return table;
  for (const StackRelease& release : stack_releases(name)) {
    table.rows.push_back({"release " + release.release, release.date + ": " + release.changes, release.source});
  }
  return table;
}

Table profiles_table() {
  Table table;
  table.columns = {text_column("name"),         text_column("device"), text_column("confidence"),
                   text_column("date"),         number_column("fits"), number_column("median error %"),
                   number_column("left out %"), text_column("source")};
  for (const std::string& name : shipped_profile_names()) {
    const DeviceProfile profile = read_device_profile(shipped_profile(name), "profile", {});
    double worst = 0.0;
    double left_out = 0.0;
    for (const ProfileFit& fit : profile.fits) {
      worst = std::max(worst, fit.median_error);
      left_out = std::max(left_out, fit.left_out_median_error);
    }
    table.rows.push_back({name, profile.cluster.at("device").at("name"), profile.confidence, profile.date,
                          fmt::format("{}", profile.fits.size()), fmt::format("{:.1f}", 1e2 * worst),
                          fmt::format("{:.1f}", 1e2 * left_out), profile.source});
  }
  table.notes.emplace_back("errors are those of the worst fit; a job uses a profile only with --profile NAME");
  table.notes.emplace_back("flopcast catalog profiles NAME shows every fit");
  return table;
}

Table profile_fits_table(const std::string& name) {
  const nlohmann::json values = shipped_profile(name);
  if (values.is_null()) {
    throw ConfigError(
        {"", fmt::format("there is no profile named \"{}\"", name), "", choices_help(name, shipped_profile_names())});
  }
  const DeviceProfile profile = read_device_profile(values, "profile", {});
  Table table = {.title = fmt::format("{}: {}, {}", profile.name, profile.source, profile.confidence),
                 .columns = {text_column("fit"), number_column("median %"), number_column("p95 %"),
                             number_column("max %"), number_column("left out, median %", "left_out_percent")}};
  for (const ProfileFit& fit : profile.fits) {
    const auto percent = [](double error) { return fmt::format("{:.1f}", 1e2 * error); };
    table.rows.push_back({fit.what, percent(fit.median_error), percent(fit.p95_error), percent(fit.largest_error),
                          percent(fit.left_out_median_error)});
  }
  for (const auto& figure : profile.cluster.at("device").items()) {
    table.notes.push_back(fmt::format("device.{} {}", figure.key(), dumped(figure.value())));
  }
  return table;
}

class Catalog final : public Question {
 public:
  void declare(Form& form) override {
    form.add_positional("KIND", kind_, "models, devices, clusters, networks, schedules, stacks, failures or profiles");
    form.add_positional("NAME", name_, "entry to show");
    form.place_output();
  }

  Answer ask(const Context& context) override {
    return {.tables = [this, format = context.format] { return std::vector<Table>{table(format)}; }};
  }

 private:
  Table table(Format format) const {
    std::vector<std::string> kinds = names_of<CatalogueKind>();
    kinds.insert(kinds.end(), {"schedules", "profiles"});
    if (!kind_) throw ConfigError({"", "catalog: no kind given", "", choices_help("", kinds)});
    // Accepts singular kinds, and gpu for devices.
    const std::string word = lower_case(*kind_);
    const std::string typed = word == "gpu" || word == "gpus" ? "devices" : word;
    const std::string kind = std::find(kinds.begin(), kinds.end(), typed + "s") == kinds.end() ? typed : typed + "s";
    if (kind == "schedules" && name_) {
      throw ConfigError({"", fmt::format("unexpected argument \"{}\"", *name_), "",
                         "see: flopcast schedule show --schedule " + *name_});
    }
    if (kind == "schedules") return schedule_table(format);
    if (kind == "profiles") return name_ ? profile_fits_table(*name_) : profiles_table();
    const auto one = static_cast<CatalogueKind>(choice_of("", kind, kinds, "kind"));
    return name_ ? figures_table(one, *name_) : entries_table(one);
  }

  std::optional<std::string> kind_;
  std::optional<std::string> name_;
};

}  // namespace

QuestionInfo catalog_question() {
  return {"catalog",
          "list models, devices, clusters, schedules, stacks and failures by name",
          "flopcast catalog (models | devices | clusters | networks | schedules | stacks | failures | "
          "profiles) [NAME] [options]",
          "Lists the names that job files and flags accept; with NAME, shows every figure of an entry with its source.",
          {"flopcast catalog models", "flopcast catalog devices a100-80g"},
          make_question<Catalog>};
}

}  // namespace flopcast
