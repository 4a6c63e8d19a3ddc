#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/schedule_commands.hpp"
#include "cli/valid_schedule.hpp"
#include "model/error/error.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

struct UpdateRule {
  WeightPolicy policy = WeightPolicy::kFlushed;
  int accumulation = 1;
};

WeightPolicy policy_named(const std::string& text) {
  const std::optional<WeightPolicy> policy = parse_weight_policy(text);
  if (policy) return *policy;
  throw ConfigError(
      {"--policy", fmt::format("unknown policy \"{}\"", text), "", choices_help(text, weight_policy_names())});
}

// A schedule from a file is executed with a flush unless --policy says otherwise.
UpdateRule rule_of_file(const Program& program, const ScheduleOptions& schedule,
                        const std::optional<std::string>& policy) {
  UpdateRule rule;
  rule.policy = policy ? policy_named(*policy) : WeightPolicy::kFlushed;
  if (schedule.accumulation() && *schedule.accumulation() < 1) {
    throw ConfigError(
        {"--accumulation", fmt::format("{} is out of range", *schedule.accumulation()), "", "at least 1"});
  }
  if (rule.policy == WeightPolicy::kFlushed) {
    if (schedule.accumulation()) {
      throw ConfigError(
          {"--accumulation",
           fmt::format("{} means nothing when all microbatches make one update", *schedule.accumulation()), "",
           "give --policy stashed, vertical-sync, double-buffered or newest"});
    }
    rule.accumulation = std::max(1, program.microbatches_of(program.chains.front()));
  } else {
    const int fewest = rule.policy == WeightPolicy::kDoubleBuffered ? program.rank_count() : 1;
    rule.accumulation = schedule.accumulation().value_or(fewest);
  }
  return rule;
}

UpdateRule rule_of_schedule(const Program& program, const ScheduleOptions& schedule,
                            const std::optional<std::string>& policy) {
  const ScheduleInfo& info = *parse_schedule_name(*schedule.schedule()).info;
  ScheduleRequest request = schedule.request();
  UpdateRule rule;
  rule.policy = info.weight_policy(request);
  if (policy && rule.policy == WeightPolicy::kStashed && policy_named(*policy) == WeightPolicy::kVerticalSync) {
    rule.policy = WeightPolicy::kVerticalSync;
  }
  if (policy && policy_named(*policy) != rule.policy) {
    throw ConfigError(
        {"--policy", fmt::format("{} is not how {} updates its weights: {}", *policy, info.name, name_of(rule.policy)),
         "", "leave it out; vertical-sync is valid with --schedule pipedream"});
  }
  // With all microbatches in one update there would be nothing to see of an asynchronous schedule's versions.
  const bool shows_updates = schedule.accumulation() || request.microbatches < 2 * request.pipeline_ranks;
  if (!shows_updates && info.asynchronous) {
    ScheduleRequest shorter = request;
    shorter.accumulation = request.pipeline_ranks;
    if (!refuse_request(info, shorter)) request = shorter;
  }
  rule.accumulation =
      info.asynchronous ? info.weights.accumulation(request) : program.microbatches_of(program.chains.front());
  return rule;
}

void require_comparable_updates(const Program& program, const UpdateRule& rule) {
  for (const Chain& chain : program.chains) {
    for (int stage = chain.first_stage; stage <= chain.last_stage; ++stage) {
      if (rule.policy != WeightPolicy::kVerticalSync || program.replicas(stage) == program.replicas(chain.first_stage))
        continue;
      throw ConfigError(
          {"--policy",
           fmt::format("vertical-sync compares the updates of stages, but stage {} has {} replicas and "
                       "stage {} has {}",
                       chain.first_stage, program.replicas(chain.first_stage), stage, program.replicas(stage)),
           "", "valid with equally many replicas on every stage"});
    }
  }
}

std::string ranks_of(const Program& program, int stage) {
  const int first = program.rank_of_stage[static_cast<std::size_t>(stage)];
  const int last = first + program.replicas(stage) - 1;
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

nlohmann::ordered_json versions_json(const Program& program, const UpdateRule& rule,
                                     const std::vector<StageVersions>& stages) {
  nlohmann::ordered_json json = {{"schedule", program.schedule},
                                 {"policy", name_of(rule.policy)},
                                 {"accumulation", rule.accumulation},
                                 {"stages", nlohmann::ordered_json::array()}};
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const StageVersions& weights = stages[stage];
    json["stages"].push_back({{"stage", stage},
                              {"rank", program.rank_of_stage[stage]},
                              {"replicas", program.replicas(static_cast<int>(stage))},
                              {"versions_kept", weights.versions_kept},
                              {"staleness", weights.largest_delay()},
                              {"version", weights.version},
                              {"backward_version", weights.backward_version},
                              {"delay", weights.delay}});
  }
  return json;
}

Table versions_table(const Program& program, const UpdateRule& rule, const std::vector<StageVersions>& stages) {
  Table table;
  // A flush waits for all replicas; otherwise each counts its own microbatches.
  const bool by_replica = !program.replicas_of_stage.empty() && rule.policy != WeightPolicy::kFlushed;
  table.title = fmt::format("{}: {} weights, an update every {} microbatch{}{}{}", program.schedule,
                            name_of(rule.policy), rule.accumulation, rule.accumulation == 1 ? "" : "es",
                            by_replica ? " of each replica" : "", program.chains.size() > 1 ? " of each copy" : "");
  table.columns = {number_column("stage"),
                   text_column("rank"),
                   number_column("versions kept"),
                   number_column("staleness"),
                   text_column("version of F0, F1, …", "versions"),
                   text_column("version of B0, B1, …", "backward_versions")};
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const StageVersions& weights = stages[stage];
    table.rows.push_back({fmt::format("{}", stage), ranks_of(program, static_cast<int>(stage)),
                          fmt::format("{}", weights.versions_kept), fmt::format("{}", weights.largest_delay()),
                          fmt::format("{}", fmt::join(weights.version, " ")),
                          fmt::format("{}", fmt::join(weights.backward_version, " "))});
  }
  table.notes = {
      "a version is the number of updates before it",
      "staleness: the most updates between the version a forward used and the one its gradient is applied to"};
  return table;
}

}  // namespace

std::string versions_listing(const ScheduleOptions& schedule, const std::optional<std::string>& policy, Format format) {
  const Program program = schedule.program();
  require_valid(program);
  const UpdateRule rule =
      schedule.file() ? rule_of_file(program, schedule, policy) : rule_of_schedule(program, schedule, policy);
  require_comparable_updates(program, rule);
  const std::vector<StageVersions> stages = weight_versions(program, rule.policy, rule.accumulation);
  if (format == Format::kJson) return versions_json(program, rule, stages).dump(2);
  return write_table(versions_table(program, rule, stages), format);
}

}  // namespace flopcast
