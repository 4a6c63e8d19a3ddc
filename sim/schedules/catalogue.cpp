#include "sim/schedules/catalogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "sim/schedules/families.hpp"

namespace flopcast {

const std::vector<ScheduleInfo>& schedule_catalogue() {
  static const std::vector<ScheduleInfo> catalogue = {
      naive_schedule(),      gpipe_schedule(),         one_forward_one_backward_schedule(),
      eager_1f1b_schedule(), dapple_schedule(),        interleaved_schedule(),
      gis_schedule(),        bfs_schedule(),           terapipe_schedule(),
      zb_h1_schedule(),      zb_h2_schedule(),         interleaved_zb_schedule(),
      zb_auto_schedule(),    one_f_one_b_v_schedule(), zbv_schedule(),
      v_half_schedule(),     v_min_schedule(),         v_auto_schedule(),
      hanayo_schedule(),     chimera_schedule(),       dualpipe_schedule(),
      dualpipev_schedule(),  pipedream_schedule(),     pipedream_2bw_schedule(),
      pipemare_schedule(),
  };
  return catalogue;
}

const std::vector<ScheduleNumber>& schedule_numbers() {
  static const std::vector<ScheduleNumber> numbers = {
      {"group size", "--group", "microbatches that take turns on a rank's chunks", &ScheduleRequest::group_size,
       &Layout::group_size, "layout.group_size"},
      {"accumulation", "--accumulation", "microbatches per weight update of an asynchronous schedule",
       &ScheduleRequest::accumulation, &Layout::accumulation, "layout.accumulation"},
      {"memory limit", "--memory-limit", "activations a rank may hold, in microbatches", &ScheduleRequest::memory_limit,
       &Layout::memory_limit, "layout.memory_limit"},
      {"slice count", "--slices", "token slices that a microbatch is cut into", &ScheduleRequest::slices,
       &Layout::slices, "layout.slices"},
  };
  return numbers;
}

bool ScheduleInfo::reads_number(const ScheduleNumber& number) const {
  return std::find(reads.begin(), reads.end(), number.request) != reads.end();
}

const ScheduleInfo* find_schedule(std::string_view name) {
  for (const ScheduleInfo& info : schedule_catalogue()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

namespace {

[[noreturn]] void fail(std::string problem, std::string help) {
  throw ConfigError(
      Diagnostic{.field = "schedule", .problem = std::move(problem), .where = "", .help = std::move(help)});
}

// A count from 1 to kMaxStages; nullopt if the text is not one.
std::optional<int> parse_chunk_count(std::string_view text) {
  if (text.empty() || text.size() > 5) return std::nullopt;
  int count = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return std::nullopt;
    count = count * 10 + (digit - '0');
  }
  if (count < 1 || count > static_cast<int>(kMaxStages)) return std::nullopt;
  return count;
}

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string suffix_help(const ScheduleInfo& info) {
  std::vector<std::string> examples = {std::string(info.name)};
  for (const std::string_view variant : info.variants) examples.push_back(fmt::format("{}:{}", info.name, variant));
  if (info.uses_chunks) examples.push_back(fmt::format("{}:2 (chunks per rank)", info.name));
  return fmt::format("valid: {}", fmt::join(examples, ", "));
}

void apply_suffix(std::string_view suffix, std::string_view text, ScheduleName& name) {
  const ScheduleInfo& info = *name.info;
  if (contains(info.variants, suffix) && name.variant.empty()) {
    name.variant = std::string(suffix);
    return;
  }
  const std::optional<int> chunks = parse_chunk_count(suffix);
  const bool accepted = chunks && !name.chunks && (info.uses_chunks || *chunks == 1);
  if (!accepted)
    fail(fmt::format("{} does not accept suffix {} in {}", info.name, quote(suffix), quote(text)), suffix_help(info));
  name.chunks = chunks;
}

}  // namespace

ScheduleName parse_schedule_name(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  ScheduleName name;
  name.info = find_schedule(text.substr(0, colon));
  if (name.info == nullptr) {
    std::vector<std::string> names;
    for (const ScheduleInfo& info : schedule_catalogue()) names.emplace_back(info.name);
    fail(fmt::format("unknown schedule {}", quote(text)), choices_help(text.substr(0, colon), names));
  }
  for (std::size_t begin = colon; begin < text.size();) {
    const std::size_t end = std::min(text.find(':', begin + 1), text.size());
    apply_suffix(text.substr(begin + 1, end - begin - 1), text, name);
    begin = end;
  }
  return name;
}

namespace {

std::optional<ScheduleRefusal> refuse_counts(const ScheduleRequest& request) {
  const std::pair<const char*, int> counts[] = {
      {"pipeline ranks", request.pipeline_ranks}, {"microbatches", request.microbatches}, {"chunks", request.chunks}};
  for (const auto& [words, count] : counts) {
    if (count < 1) return ScheduleRefusal{.problem = fmt::format("{} {}", count, words), .help = "at least 1"};
  }
  const auto ranks = static_cast<std::size_t>(request.pipeline_ranks);
  const auto microbatches = static_cast<std::size_t>(request.microbatches);
  const auto chunks = static_cast<std::size_t>(request.chunks);
  if (ranks > kMaxStages / chunks) {
    return ScheduleRefusal{
        .problem = fmt::format("{} pipeline ranks with {} chunks each are too many stages", ranks, chunks),
        .help = fmt::format("at most {} stages", kMaxStages)};
  }
  const std::size_t most = kMaxActions / (2 * ranks * chunks);
  if (microbatches > most) {
    return ScheduleRefusal{.problem = fmt::format("{} microbatches on {} stages make more actions than fit into memory",
                                                  microbatches, ranks * chunks),
                           .help = fmt::format("at most {} microbatches", most)};
  }
  return std::nullopt;
}

template <class Predicate>
std::string names_of(const Predicate& wanted) {
  std::vector<std::string_view> names;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    if (wanted(info)) names.push_back(info.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<ScheduleRefusal> refuse_options(const ScheduleInfo& info, const ScheduleRequest& request) {
  if (request.chunks > 1 && !info.uses_chunks) {
    return ScheduleRefusal{.problem = fmt::format("{} has one chunk per rank, not {}", info.name, request.chunks),
                           .help = fmt::format("use 1 chunk, or a schedule that supports several chunks: {}",
                                               names_of([](const ScheduleInfo& one) { return one.uses_chunks; }))};
  }
  if (!info.asynchronous && request.accumulation && *request.accumulation != request.microbatches) {
    return ScheduleRefusal{.problem = fmt::format("{} updates the weights after all {} microbatches, not after {}",
                                                  info.name, request.microbatches, *request.accumulation),
                           .help = "accumulation requires an asynchronous schedule, such as pipedream-2bw"};
  }
  if (!request.stage_replicas.empty() && !info.uses_stage_replicas) {
    return ScheduleRefusal{.problem = fmt::format("{} does not support replicated stages", info.name),
                           .help = "remove the replicas, or use schedule pipedream"};
  }
  for (const ScheduleNumber& number : schedule_numbers()) {
    const std::optional<int>& value = request.*number.request;
    if (!value || info.reads_number(number) || number.request == &ScheduleRequest::accumulation) continue;
    return ScheduleRefusal{
        .problem = fmt::format("{} does not support {} {}", info.name, number.name, *value),
        .help = fmt::format("remove the {}, or use a schedule that supports it: {}", number.name,
                            names_of([&](const ScheduleInfo& one) { return one.reads_number(number); }))};
  }
  if (!request.variant.empty() && !contains(info.variants, request.variant)) {
    return ScheduleRefusal{.problem = fmt::format("{} has no variant {}", info.name, quote(request.variant)),
                           .help = suffix_help(info)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ScheduleRefusal> refuse_request(const ScheduleInfo& info, const ScheduleRequest& request) {
  if (std::optional<ScheduleRefusal> refusal = refuse_counts(request)) return refusal;
  if (std::optional<ScheduleRefusal> refusal = refuse_options(info, request)) return refusal;
  return info.refuse == nullptr ? std::nullopt : info.refuse(request);
}

Program generate_schedule(const ScheduleInfo& info, const ScheduleRequest& request) {
  if (std::optional<ScheduleRefusal> refusal = refuse_request(info, request)) {
    fail(std::move(refusal->problem), std::move(refusal->help));
  }
  return info.generate(request);
}

Program stages_of_schedule(const ScheduleInfo& info, const ScheduleRequest& request) {
  ScheduleRequest one = request;
  one.microbatches = 1;
  one.times.reset();
  return info.generate(refuse_request(info, one) ? request : one);
}

Program generate_schedule(const ScheduleInfo& info, ScheduleRequest request,
                          const std::function<StepTimes(const Program& stages)>& times_of) {
  if (info.uses_times && !refuse_request(info, request)) request.times = times_of(stages_of_schedule(info, request));
  return generate_schedule(info, request);
}

}  // namespace flopcast
