#include "calibrate/verdict/verdict.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {

namespace {

constexpr double kMicrosecond = 1e-6;

using Interval = TracedSpan;
using Intervals = std::vector<TracedSpan>;

// Sorts the spans and merges those that touch.
Intervals joined(Intervals spans) {
  std::sort(spans.begin(), spans.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
  Intervals all;
  for (const Interval& span : spans) {
    if (span.end <= span.start) continue;
    if (!all.empty() && span.start <= all.back().end) {
      all.back().end = std::max(all.back().end, span.end);
    } else {
      all.push_back(span);
    }
  }
  return all;
}

double length_of(const Intervals& spans) {
  double sum = 0.0;
  for (const Interval& span : spans) sum += span.end - span.start;
  return sum;
}

// Intersection of merged spans with a window.
Intervals within(const Intervals& spans, const Interval& window) {
  Intervals all;
  auto span = std::lower_bound(spans.begin(), spans.end(), window.start,
                               [](const Interval& one, double time) { return one.end <= time; });
  for (; span != spans.end() && span->start < window.end; ++span) {
    const Interval cut = {std::max(span->start, window.start), std::min(span->end, window.end)};
    if (cut.end > cut.start) all.push_back(cut);
  }
  return all;
}

Intervals without(const Interval& window, const Intervals& spans) {
  Intervals all;
  double from = window.start;
  for (const Interval& span : spans) {
    if (span.start > from) all.push_back({from, std::min(span.start, window.end)});
    from = std::max(from, span.end);
    if (from >= window.end) break;
  }
  if (from < window.end) all.push_back({from, window.end});
  return all;
}

template <std::size_t N>
bool has_word(const std::string& text, const std::array<const char*, N>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&text](const char* word) { return text.find(word) != std::string::npos; });
}

// Host activities that an idle device may be waiting for.
bool loads_data(const std::string& lower) {
  return has_word(lower, std::array{"dataloader", "data_loader", "batch-generator", "batch_generator", "get_batch",
                                    "data loading", "next_batch"});
}
bool allocates(const std::string& lower) {
  return has_word(lower, std::array{"cudamalloc", "cudafree", "hipmalloc", "hipfree", "cumemcreate", "cumemmap",
                                    "cumemunmap", "cumemrelease", "empty_cache", "cudahostalloc"});
}

// Cuts the events of one rank into steps.
class StepCutter {
 public:
  explicit StepCutter(TracedEvents events) : events_(std::move(events)) {
    FLOPCAST_CHECK(!events_.kernels.empty());
    std::sort(events_.kernels.begin(), events_.kernels.end(),
              [](const TracedKernel& a, const TracedKernel& b) { return a.span.start < b.span.start; });
    events_.rank.has_launches = !events_.launches.empty();
    events_.data = joined(std::move(events_.data));
    events_.memory = joined(std::move(events_.memory));
    for (const TracedKernel& kernel : events_.kernels) {
      latest_.push_back(latest_.empty() ? kernel.span.end : std::max(latest_.back(), kernel.span.end));
    }
  }

  TracedRank cut(double step_s) {
    std::vector<std::size_t> open;  // indices of the kernels that overlap the step
    std::size_t next = 0;
    for (const auto& [name, window] : windows(step_s)) {
      const double begin = window.start;
      open.erase(std::remove_if(open.begin(), open.end(),
                                [&](std::size_t place) { return events_.kernels[place].span.end <= begin; }),
                 open.end());
      for (; next < events_.kernels.size() && events_.kernels[next].span.start < window.end; ++next) {
        if (events_.kernels[next].span.end > begin) open.push_back(next);
      }
      events_.rank.steps.push_back(step_of(name, window, open));
    }
    return std::move(events_.rank);
  }

 private:
  bool is_busy(const Interval& window) const {
    const auto after =
        std::lower_bound(events_.kernels.begin(), events_.kernels.end(), window.end,
                         [](const TracedKernel& kernel, double time) { return kernel.span.start < time; });
    const auto before = static_cast<std::size_t>(after - events_.kernels.begin());
    return before > 0 && latest_[before - 1] > window.start;
  }

  // In order: no window begins or ends before the previous one does.
  std::vector<std::pair<std::string, Interval>> windows(double step_s) {
    auto& marks = events_.marks;
    std::sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.second.start < b.second.start; });
    std::vector<std::pair<std::string, Interval>> all;
    for (std::size_t index = 0; index < marks.size(); ++index) {
      Interval span = marks[index].second;
      if (index + 1 < marks.size()) span.end = marks[index + 1].second.start;
      if (span.end > span.start && is_busy(span)) all.emplace_back(marks[index].first, span);
    }
    if (!all.empty()) return all;
    Interval whole = events_.kernels.front().span;
    whole.end = latest_.back();
    const double length = whole.end - whole.start;
    constexpr double kMostSteps = 10'000.0;
    const double steps = step_s > 0.0 ? std::clamp(std::round(length / step_s), 1.0, kMostSteps) : 1.0;
    for (int index = 0; index < static_cast<int>(steps); ++index) {
      all.push_back({"", {whole.start + length / steps * index, whole.start + length / steps * (index + 1)}});
    }
    return all;
  }

  TracedStep step_of(const std::string& name, const Interval& window, const std::vector<std::size_t>& places) const {
    TracedStep step;
    step.name = name;
    step.time_s = window.end - window.start;
    Intervals compute;
    Intervals communication;
    for (const std::size_t place : places) {
      const TracedKernel& kernel = events_.kernels[place];
      const Interval cut = {std::max(kernel.span.start, window.start), std::min(kernel.span.end, window.end)};
      if (cut.end <= cut.start) continue;
      const bool communicates = kernel.work == TraceWork::kCommunication;
      (communicates ? communication : compute).push_back(cut);
      TraceTime& work = step.work[static_cast<std::size_t>(kernel.work)];
      ++work.kernels;
      work.seconds += cut.end - cut.start;
      step.attention_forward += kernel.attends_forward ? 1 : 0;
      step.attention_backward += kernel.attends_backward ? 1 : 0;
      step.forward_s += kernel.passes_forward ? cut.end - cut.start : 0.0;
      if (!communicates) continue;
      TraceTime& collective = step.collectives[kernel.collective];
      ++collective.kernels;
      collective.seconds += cut.end - cut.start;
    }
    compute = joined(std::move(compute));
    communication = joined(std::move(communication));
    Intervals busy = compute;
    busy.insert(busy.end(), communication.begin(), communication.end());
    busy = joined(std::move(busy));
    step.compute_s = length_of(compute);
    step.communication_s = length_of(communication);
    step.exposed_s = length_of(busy) - step.compute_s;
    const Intervals gaps = without(window, busy);
    step.idle_s = length_of(gaps);
    for (const Interval& gap : gaps) split_gap(gap, step);
    for (const TracedInterval& one : stretches_of(compute, communication, window)) {
      if (!step.stretches.empty() && step.stretches.back().state == one.state) {
        step.stretches.back().end_s = one.end_s;
      } else {
        step.stretches.push_back(one);
      }
    }
    return step;
  }

  // Divides a gap by what the host did during it; rarer causes take precedence.
  void split_gap(const Interval& gap, TracedStep& step) const {
    const auto add = [&step](IdleCause cause, double seconds) {
      step.idle_by_cause_s[static_cast<std::size_t>(cause)] += seconds;
    };
    const double data = length_of(within(events_.data, gap));
    Intervals others = within(events_.memory, gap);
    const double memory = std::min(length_of(others), gap.end - gap.start - data);
    const double rest = std::max(0.0, gap.end - gap.start - data - memory);
    add(IdleCause::kData, data);
    add(IdleCause::kMemory, memory);
    add(launched_late(gap) ? IdleCause::kLaunch : IdleCause::kOther, rest);
  }

  // True if the kernel that ends the gap was launched after the gap had begun. If the trace has no launches, true for
  // gaps too short for any other cause.
  bool launched_late(const Interval& gap) const {
    constexpr double kShort = 100e-6;
    const auto next =
        std::lower_bound(events_.kernels.begin(), events_.kernels.end(), gap.end - 1e-9,
                         [](const TracedKernel& kernel, double time) { return kernel.span.start < time; });
    if (next != events_.kernels.end() && next->launch) {
      const auto launch = events_.launches.find(*next->launch);
      if (launch != events_.launches.end()) return launch->second >= gap.start;
    }
    return gap.end - gap.start < kShort;
  }

  TracedEvents events_;
  std::vector<double> latest_;  // latest end among a kernel and all that began before it
};

// Reads a Kineto trace event by event.
class KinetoReader {
 public:
  explicit KinetoReader(const std::string& file) { events_.rank.file = file; }

  void take_member(const std::string& key, const nlohmann::json& value) {
    if (key == "distributedInfo") {
      const auto rank = trace_number(value, "rank");
      constexpr double kMostTraced = 1e7;
      if (rank && *rank >= 0.0 && *rank < kMostTraced) events_.rank.rank = static_cast<int>(*rank);
    }
    if (key == "deviceProperties" && value.is_array() && !value.empty()) {
      events_.rank.device = trace_text(value[0], "name");
    }
  }

  void take_event(const nlohmann::json& event, const std::string& place) {
    const std::optional<TraceEvent> one = trace_event(event);
    if (!one) return;
    const bool timed = one->start_us && one->duration_us;
    if (one->on_device() && (!timed || *one->duration_us < 0.0)) {
      refuse_at(place, "a kernel lacks its start or duration", R"(expected "ts" and "dur" in microseconds)");
    }
    if (!timed) return;
    const Interval span = {*one->start_us * kMicrosecond, (*one->start_us + *one->duration_us) * kMicrosecond};
    if (one->on_device()) {
      events_.add_kernel(one->name, one->copies(), span, one->correlation,
                         trace_text(*one->arguments, "Collective name"),
                         trace_count(*one->arguments, "Group size").value_or(0));
    } else if (one->category != "gpu_user_annotation") {
      events_.add_host(one->name, span);
      if (one->calls() && one->correlation) events_.launches.emplace(*one->correlation, span.start);
    }
  }

  TracedRank finished(double step_s) {
    if (events_.kernels.empty()) {
      refuse_at(events_.rank.file, "contains no device kernels", "profile with activities=[CPU, CUDA]");
    }
    return cut_into_steps(std::move(events_), step_s);
  }

 private:
  TracedEvents events_;
};

}  // namespace

std::vector<TracedInterval> stretches_of(const std::vector<TracedSpan>& compute,
                                         const std::vector<TracedSpan>& communication, const TracedSpan& window) {
  std::map<double, std::pair<int, int>> changes;  // at a time: number of spans that begin minus number that end
  for (const TracedSpan& span : compute) ++changes[span.start].first, --changes[span.end].first;
  for (const TracedSpan& span : communication) ++changes[span.start].second, --changes[span.end].second;
  changes[window.end];
  std::vector<TracedInterval> stretches;
  int computes = 0;
  int communicates = 0;
  double from = window.start;
  for (const auto& [time, change] : changes) {
    if (time > from) {
      const TracedState state = computes > 0 && communicates > 0 ? TracedState::kBoth
                                : computes > 0                   ? TracedState::kCompute
                                : communicates > 0               ? TracedState::kCommunication
                                                                 : TracedState::kIdle;
      stretches.push_back({from - window.start, time - window.start, state});
      from = time;
    }
    computes += change.first;
    communicates += change.second;
  }
  return stretches;
}

const TracedStep& TracedRank::typical() const {
  FLOPCAST_CHECK(!steps.empty());
  std::vector<const TracedStep*> order;
  for (const TracedStep& step : steps) order.push_back(&step);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>((order.size() - 1) / 2);
  std::nth_element(order.begin(), middle, order.end(),
                   [](const TracedStep* a, const TracedStep* b) { return a->time_s < b->time_s; });
  return **middle;
}

void TracedEvents::add_kernel(const std::string& name, bool copies, const TracedSpan& span,
                              std::optional<std::int64_t> launch, const std::string& collective, int group) {
  TracedKernel kernel;
  kernel.span = span;
  kernel.work = copies ? TraceWork::kCopy : work_of_kernel(name);
  kernel.launch = launch;
  if (kernel.work == TraceWork::kAttention) {
    const std::string lower = lower_case(name);
    kernel.attends_backward = has_word(lower, std::array{"bwd", "backward", "bprop", "dgrad"});
    // Preparation and reduction are separate kernels, one of each per pass.
    const bool beside = has_word(lower, std::array{"dot_do_o", "convert_dq", "preprocess", "combine"});
    kernel.attends_forward = !kernel.attends_backward && !beside;
    kernel.attends_backward = kernel.attends_backward && !beside;
  }
  if (kernel.work == TraceWork::kCommunication) {
    const auto kind = traced_collective(lower_case(collective.empty() ? name : collective));
    kernel.collective = kind ? std::string(name_of(*kind)) : "other";
    if (group > 0) kernel.collective += fmt::format(" of {}", group);
  }
  kernels.push_back(std::move(kernel));
}

void TracedEvents::add_host(const std::string& name, const TracedSpan& span, bool marks_steps) {
  if (marks_steps && name.rfind("ProfilerStep", 0) == 0) marks.emplace_back(name, span);
  const std::string lower = lower_case(name);
  if (loads_data(lower)) data.push_back(span);
  if (allocates(lower)) memory.push_back(span);
}

TracedRank cut_into_steps(TracedEvents events, double step_s) {
  return StepCutter(std::move(events)).cut(step_s);
}

TracedRank read_traced_rank(std::istream& stream, const std::string& file, double step_s) {
  KinetoReader reader(file);
  read_trace_events(
      stream, file,
      {[&reader](const nlohmann::json& event, const std::string& place) { reader.take_event(event, place); },
       [&reader](const std::string& key, const nlohmann::json& value) { reader.take_member(key, value); }});
  return reader.finished(step_s);
}

}  // namespace flopcast
