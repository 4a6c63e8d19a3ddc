#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "import/jobs/load_job.hpp"
#include "model/config/document.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

namespace {

// Sections and their keys, ordered as in the description of the job file.
nlohmann::ordered_json in_order(const nlohmann::json& root) {
  nlohmann::ordered_json ordered = nlohmann::ordered_json::object();
  constexpr std::array<const char*, 5> kSections = {"model", "cluster", "layout", "training", "failures"};
  for (const char* section : kSections) {
    const auto value = root.find(section);
    if (value == root.end()) continue;
    if (!value->is_object()) {
      ordered[section] = *value;
      continue;
    }
    nlohmann::ordered_json keys = nlohmann::ordered_json::object();
    if (value->contains("name")) keys["name"] = value->at("name");
    for (const JobKey& key : job_keys()) {
      const std::size_t dot = key.field.find('.');
      if (dot == std::string_view::npos || key.field.substr(0, dot) != section) continue;
      const std::string name(key.field.substr(dot + 1));
      if (value->contains(name)) keys[name] = value->at(name);
    }
    for (const auto& item : value->items()) {
      if (!keys.contains(item.key())) keys[item.key()] = item.value();
    }
    ordered[section] = keys;
  }
  for (const auto& item : root.items()) {
    if (!ordered.contains(item.key())) ordered[item.key()] = item.value();
  }
  return ordered;
}

// The job, and how it uses every key of the files.
nlohmann::ordered_json with_keys(const LoadedJob& loaded) {
  const KeyUse& keys = loaded.keys;
  return {{"job", in_order(loaded.root)},
          {"keys",
           {{"read", keys.read},
            {"no_effect", keys.no_effect},
            {"not_modelled", keys.not_modelled},
            {"unknown", keys.unknown}}},
          {"notes", loaded.notes},
          {"warnings", loaded.warnings}};
}

class Convert final : public Question {
 public:
  void declare(Form& form) override {
    job_.add_to(form);
    job_.add_more_files(form);
    form.begin_group("Output");
    emit_.add_to(form);
    form.place_output({.formats = "json: the job, and the keys of its files by how it uses them"});
  }

  Answer ask(const Context& context) override {
    if (!job_.names_a_job()) throw ConfigError({"", "convert: no file given", "", "see: flopcast convert --help"});
    loaded_ = job_.load();
    for (const std::string& note : loaded_.notes) context.tell("note: " + note);
    for (const std::string& warning : loaded_.warnings) context.warn(warning);
    if (const std::optional<LaunchProgram> program = emit_.program()) {
      require_named_cluster(loaded_);
      return EmitOption::answer(write_launch(*program, prepare(JobOptions::read(loaded_), read_file).job), context);
    }
    if (context.format_given && context.format != Format::kJson) {
      const std::string name = format_names()[static_cast<std::size_t>(context.format)];
      throw ConfigError({"--format", fmt::format("unknown value \"{}\"", name), "--format",
                         "valid: json; without --format, the job file is printed"});
    }
    return {.text = [this, with_use = context.format_given] {
      constexpr int kIndent = 2;
      return dumped(with_use ? with_keys(loaded_) : in_order(loaded_.root), kIndent);
    }};
  }

 private:
  JobOptions job_;
  EmitOption emit_;
  LoadedJob loaded_;
};

}  // namespace

QuestionInfo convert_question() {
  return {"convert",
          "convert files of other programs to a job file",
          "flopcast convert FILE… [options]",
          "Converts files of other programs to a job file: Hugging Face config.json, "
          "Megatron-LM arguments and launch scripts, DeepSpeed, Accelerate and LLaMA-Factory "
          "configurations. Later files override earlier ones, and flags override files. --emit converts in the "
          "other direction.",
          {"flopcast convert config.json ds_config.json --cluster 8xdgx-a100-80g -o job.json",
           "flopcast convert train_gpt3.sh", "flopcast convert run_mcore_qwen.sh --env NNODES=4 -- dsw 7B 1 64",
           "flopcast convert plan.json --emit torchrun -o train.sh"},
          make_question<Convert>};
}

}  // namespace flopcast
