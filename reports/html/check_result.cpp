#include "reports/html/check_result.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

// What the page computes with, besides the parts of the breakdown.
constexpr const char* kNumbers[] = {
    "/iteration/time_s", "/iteration/tokens_per_s",         "/iteration/mfu",
    "/bubble/fraction",  "/communication/exposed_fraction", "/memory/capacity_gib",
    "/memory/peak_gib",
};
constexpr const char* kRankNumbers[] = {"weights_gib",         "gradients_gib", "optimizer_gib", "activations_gib",
                                        "weight_versions_gib", "workspace_gib", "total_gib"};

class Checker {
 public:
  explicit Checker(const std::string& file) : file_(file) {}

  void walk(const Json& json, const std::string& field) {
    if (json.is_array()) {
      for (std::size_t index = 0; index < json.size(); ++index) walk(json[index], fmt::format("{}[{}]", field, index));
    }
    if (!json.is_object()) return;
    if (json.value("schema", Json()) == "flopcast.result/1") return check(json, field);
    for (const auto& item : json.items()) {
      // Of timelines, the bulk of a file, no page reads a result.
      if (item.key() != "timelines") walk(item.value(), joined(field, item.key()));
    }
  }

 private:
  static std::string joined(const std::string& field, const std::string& key) {
    return field.empty() ? key : field + "." + key;
  }
  [[noreturn]] void fail(const std::string& field, const std::string& problem) const {
    throw ConfigError({field, problem, file_, "expected what simulate, compare or run write with --format json"});
  }
  const Json& object(const Json& json, const std::string& field, const std::string& key) const {
    if (!json.contains(key)) fail(joined(field, key), "is missing");
    if (!json.at(key).is_object()) fail(joined(field, key), "is no object");
    return json.at(key);
  }
  void number(const Json& json, const std::string& field, const std::string& key) const {
    if (!json.contains(key)) fail(joined(field, key), "is missing");
    if (!json.at(key).is_number()) fail(joined(field, key), fmt::format("{} is no number", json.at(key).dump()));
  }
  void texts(const Json& json, const std::string& field, const std::string& key) const {
    if (!json.contains(key)) return;
    if (!json.at(key).is_array()) fail(joined(field, key), "is no list of texts");
    for (const Json& text : json.at(key)) {
      if (!text.is_string()) fail(joined(field, key), fmt::format("{} is no text", text.dump()));
    }
  }

  void check(const Json& result, const std::string& field) const {
    for (const std::string name : kNumbers) {
      const std::size_t slash = name.find('/', 1);
      const std::string section = name.substr(1, slash - 1);
      number(object(result, field, section), joined(field, section), name.substr(slash + 1));
    }
    const Json& breakdown = object(result, field, "breakdown");
    for (const auto& item : breakdown.items()) number(breakdown, joined(field, "breakdown"), item.key());
    check_memory(result.at("memory"), joined(field, "memory"));
    texts(result, field, "assumptions");
    texts(result, field, "warnings");
    if (result.contains("job")) check_job(object(result, field, "job"), joined(field, "job"));
  }
  void check_memory(const Json& memory, const std::string& field) const {
    if (memory.contains("shown_gib")) number(memory, field, "shown_gib");
    if (memory.contains("fits") && !memory.at("fits").is_boolean()) fail(field + ".fits", "is neither true nor false");
    const std::string ranks_field = field + ".per_pipeline_rank";
    if (!memory.contains("per_pipeline_rank")) fail(ranks_field, "is missing");
    const Json& ranks = memory.at("per_pipeline_rank");
    if (!ranks.is_array()) fail(ranks_field, "is no list");
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::string here = fmt::format("{}[{}]", ranks_field, rank);
      if (!ranks[rank].is_object()) fail(here, "is no object");
      for (const char* key : kRankNumbers) number(ranks[rank], here, key);
      for (const char* key : {"shown_gib", "capacity_gib"}) {
        if (ranks[rank].contains(key)) number(ranks[rank], here, key);
      }
    }
  }
  void check_job(const Json& job, const std::string& field) const {
    const Json& model = object(job, field, "model");
    if (model.contains("name") && !model.at("name").is_string()) fail(field + ".model.name", "is no text");
  }

  const std::string& file_;
};

}  // namespace

void check_results(const Json& json, const std::string& file) {
  Checker(file).walk(json, "");
}

}  // namespace flopcast
