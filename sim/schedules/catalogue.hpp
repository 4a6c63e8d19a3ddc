#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/layout/layout.hpp"
#include "sim/program/needs.hpp"
#include "sim/program/request.hpp"

namespace flopcast {

/// A numeric parameter of a request. Only the schedules that list it in ScheduleInfo::reads use it.
struct ScheduleNumber {
  std::string_view name;  ///< as used in messages
  std::string_view flag;
  std::string_view help;
  std::optional<int> ScheduleRequest::*request;
  std::optional<int> Layout::*layout;  ///< the member that holds it in a job
  std::string_view field;              ///< its path in the job file
};
const std::vector<ScheduleNumber>& schedule_numbers();

/// Rules by which an asynchronous schedule updates its weights.
struct WeightRules {
  /// Microbatches per update: the requested number or the schedule's default.
  int (*accumulation)(const ScheduleRequest&) = nullptr;
  /// Number of weight versions that rank `rank` keeps.
  int (*versions)(const ScheduleRequest&, int rank) = nullptr;
  /// Updates on a rank between a microbatch's forward and the update that its gradient enters.
  int (*staleness)(const ScheduleRequest&, int rank) = nullptr;
  /// Selects the weights with which a microbatch is computed.
  WeightPolicy (*policy)(const ScheduleRequest&) = nullptr;
};

/// One entry of the schedule catalogue. A new schedule needs a section in its family's file that defines one of these,
/// a line in families.hpp and one in catalogue.cpp.
struct ScheduleInfo {
  std::string_view name;
  std::string_view summary;            ///< one line for `flopcast schedule list`
  std::string_view source;             ///< paper or program, and section
  std::string_view constraints;        ///< in words; empty if any p, m, v is valid
  std::string_view peak_in_flight;     ///< activations held by rank r, in chunks, in words
  std::string_view makespan;           ///< the closed form in words, with its conditions; F, B, c as in UniformTimes
  std::string_view where_to_use = {};  ///< in words, relative to other schedules
  bool asynchronous = false;
  bool uses_chunks = false;                                  ///< accepts chunks > 1
  bool uses_stage_replicas = false;                          ///< accepts ScheduleRequest::stage_replicas
  bool uses_times = false;                                   ///< the order depends on ScheduleRequest::times
  std::vector<std::optional<int> ScheduleRequest::*> reads;  ///< entries of schedule_numbers(); others are refused
  int default_chunks = 1;                                    ///< chunks that `--schedule NAME` implies without --vpp
  std::vector<std::string_view> variants;  ///< valid values of ScheduleRequest::variant; the first is the default
  /// The schedule's own rules, for a request that meets the common ones (refuse_request checks both); null: no rules.
  std::optional<ScheduleRefusal> (*refuse)(const ScheduleRequest&) = nullptr;
  /// The request must not be one that is refused.
  Program (*generate)(const ScheduleRequest&) = nullptr;
  /// The exact makespan under UniformTimes of a request that is not refused; nullopt if no closed form is exact for it.
  /// Null: no closed form is known. Not checked for overflow.
  std::optional<Ticks> (*closed_form_makespan)(const ScheduleRequest&, const UniformTimes&) = nullptr;
  WeightRules weights;  ///< for asynchronous schedules

  bool reads_number(const ScheduleNumber& number) const;
  std::optional<Ticks> exact_makespan(const ScheduleRequest& request, const UniformTimes& times) const {
    return closed_form_makespan == nullptr ? std::nullopt : closed_form_makespan(request, times);
  }
  /// kFlushed if the schedule flushes.
  WeightPolicy weight_policy(const ScheduleRequest& request) const {
    return weights.policy == nullptr ? WeightPolicy::kFlushed : weights.policy(request);
  }
};

/// In listing order: simplest first.
const std::vector<ScheduleInfo>& schedule_catalogue();
const ScheduleInfo* find_schedule(std::string_view name);

/// `gpipe`, `gpipe:lifo`, `interleaved:2` (":V" sets the chunks). The caller must handle `file:PATH` first.
struct ScheduleName {
  const ScheduleInfo* info = nullptr;
  std::string variant;
  std::optional<int> chunks;
};
/// Throws ConfigError (field "schedule") on an unknown name or suffix.
ScheduleName parse_schedule_name(std::string_view text);

/// Why the request cannot be satisfied; nullopt if it can. Planners call this before they generate.
std::optional<ScheduleRefusal> refuse_request(const ScheduleInfo& info, const ScheduleRequest& request);

/// Throws ConfigError (field "schedule") if the request is refused.
Program generate_schedule(const ScheduleInfo& info, const ScheduleRequest& request);

/// The stages of a schedule whose order depends on times, before these are known: its program for one microbatch and
/// equal times. The request must not be one that is refused.
Program stages_of_schedule(const ScheduleInfo& info, const ScheduleRequest& request);

/// Calls generate_schedule with the times that `times_of` returns for the schedule's stages. `times_of` is called only
/// if the order depends on times.
Program generate_schedule(const ScheduleInfo& info, ScheduleRequest request,
                          const std::function<StepTimes(const Program& stages)>& times_of);

}  // namespace flopcast
