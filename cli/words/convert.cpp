#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "cli/commands.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/output.hpp"
#include "import/jobs/load_job.hpp"
#include "model/config/document.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

namespace {

// The sections in the order of the job file's description, and inside them that of the keys' table.
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

// The job, and what every key of the files means for it.
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

}  // namespace

int run_convert(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "convert", "flopcast convert FILE… [options]",
      "Shows the job that files of other programs mean, as a job file: Hugging Face config.json, "
      "Megatron-LM arguments and launch scripts, DeepSpeed, Accelerate and LLaMA-Factory "
      "configurations. A later file wins over an earlier one, flags over all. With --emit the "
      "other way round.",
      {"flopcast convert config.json ds_config.json --cluster 8xdgx-a100-80g -o job.json",
       "flopcast convert train_gpt3.sh", "flopcast convert run_mcore_qwen.sh --env NNODES=4 -- dsw 7B 1 64",
       "flopcast convert plan.json --emit torchrun -o train.sh"});
  JobOptions job;
  EmitOption emit;
  std::optional<std::string> output;
  std::optional<std::string> format;
  job.add_to(command_line);
  job.add_more_files(command_line);
  command_line.begin_group("Output");
  emit.add_to(command_line);
  command_line.add_option("--format", format, "FORMAT", "json: the job, and its files' keys by what they mean for it");
  command_line.add_output("-o,--output", output, "write there instead of to standard output", Dash::kIsStandardOutput);
  if (!command_line.parse(arguments)) return 0;
  if (!job.names_a_job()) {
    throw ConfigError({"", "convert: no file given", "", "see: flopcast convert --help"});
  }
  const LoadedJob loaded = job.load();
  for (const std::string& note : loaded.notes) std::fputs(("note: " + note + "\n").c_str(), streams.err);
  for (const std::string& warning : loaded.warnings) warn(streams, warning);
  if (const std::optional<LaunchProgram> program = emit.program()) {
    require_named_cluster(loaded);
    emit.write(write_launch(*program, prepare(JobOptions::read(loaded), read_file).job), output);
    return 0;
  }
  constexpr int kIndent = 2;
  if (format && *format != "json") {
    throw ConfigError({"--format", fmt::format("unknown value \"{}\"", *format), "--format",
                       "valid: json; without it the job file is printed"});
  }
  if (format) {
    write_output(streams, output.value_or(""), dumped(with_keys(loaded), kIndent));
    return 0;
  }
  write_output(streams, output.value_or(""), dumped(in_order(loaded.root), kIndent));
  return 0;
}

}  // namespace flopcast
