#include "calibrate/verdict/trace_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/text/error.hpp"
#include "base/text/numbers.hpp"
#include "base/text/words.hpp"

namespace flopcast {

/// Of trace.cpp.
const nlohmann::json* trace_member(const nlohmann::json& object, const char* key);
std::string trace_text(const nlohmann::json& object, const char* key);
std::optional<double> trace_number(const nlohmann::json& object, const char* key);
std::optional<int> trace_count(const nlohmann::json& object, const char* key);
std::optional<std::int64_t> trace_id(const nlohmann::json& arguments, const char* key);
std::optional<SampleKind> traced_collective(std::string name);

namespace {

constexpr double kMicrosecond = 1e-6;

struct Interval {
  double start = 0.0;
  double end = 0.0;
};
using Intervals = std::vector<Interval>;

struct DeviceKernel {
  Interval span;
  TraceWork work = TraceWork::kOther;
  std::optional<std::int64_t> correlation;
  bool attends_forward = false;
  bool attends_backward = false;
  std::string collective;
};

struct StepMark {
  std::string name;
  Interval span;
};

// Sorted, and those that touch joined.
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

Intervals within(const Intervals& spans, const Interval& window) {
  Intervals all;
  for (const Interval& span : spans) {
    const Interval cut = {std::max(span.start, window.start), std::min(span.end, window.end)};
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

// What the host does on which a device without work may be waiting.
bool loads_data(const std::string& lower) {
  return has_word(lower, std::array{"dataloader", "data_loader", "batch-generator", "batch_generator", "get_batch",
                                    "data loading", "next_batch"});
}
bool allocates(const std::string& lower) {
  return has_word(lower, std::array{"cudamalloc", "cudafree", "hipmalloc", "hipfree", "cumemcreate", "cumemmap",
                                    "cumemunmap", "cumemrelease", "empty_cache", "cudahostalloc"});
}

class StepCollector {
 public:
  explicit StepCollector(const std::string& file) : file_(file) { rank_.file = file; }

  void take_member(const std::string& key, const nlohmann::json& value) {
    if (key == "distributedInfo") {
      const auto rank = trace_number(value, "rank");
      constexpr double kMostTraced = 1e7;
      if (rank && *rank >= 0.0 && *rank < kMostTraced) rank_.rank = static_cast<int>(*rank);
    }
    if (key == "deviceProperties" && value.is_array() && !value.empty()) rank_.device = trace_text(value[0], "name");
  }

  void take_event(const nlohmann::json& event, const std::string& place) {
    if (trace_text(event, "ph") != "X") return;
    const std::string category = lower_case(trace_text(event, "cat"));
    const auto start = trace_number(event, "ts");
    const auto duration = trace_number(event, "dur");
    const std::string name = trace_text(event, "name");
    const bool on_device = category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset";
    if (on_device && (!start || !duration || *duration < 0.0)) {
      refuse_at(place, "a kernel without its start and duration", R"(expected "ts" and "dur" in microseconds)");
    }
    if (!start || !duration) return;
    const Interval span = {*start * kMicrosecond, (*start + *duration) * kMicrosecond};
    const nlohmann::json* found = trace_member(event, "args");
    static const nlohmann::json nothing = nlohmann::json::object();
    const nlohmann::json& arguments = found == nullptr ? nothing : *found;
    if (on_device) {
      take_kernel(name, category != "kernel", span, arguments);
    } else if (category != "gpu_user_annotation") {
      take_host(name, category, span, arguments);
    }
  }

  TracedRank finished(double step_s) {
    if (kernels_.empty()) {
      refuse_at(file_, "holds no kernels of a device", "profile with activities=[CPU, CUDA]");
    }
    std::sort(kernels_.begin(), kernels_.end(),
              [](const DeviceKernel& a, const DeviceKernel& b) { return a.span.start < b.span.start; });
    rank_.tells_host = !launches_.empty();
    data_ = joined(std::move(data_));
    memory_ = joined(std::move(memory_));
    for (const StepMark& mark : windows(step_s)) rank_.steps.push_back(step_of(mark));
    return std::move(rank_);
  }

 private:
  void take_kernel(const std::string& name, bool copy, const Interval& span, const nlohmann::json& arguments) {
    DeviceKernel kernel;
    kernel.span = span;
    kernel.work = copy ? TraceWork::kCopy : work_of_kernel(name);
    kernel.correlation = trace_id(arguments, "correlation");
    if (kernel.work == TraceWork::kAttention) {
      const std::string lower = lower_case(name);
      kernel.attends_backward = has_word(lower, std::array{"bwd", "backward", "bprop", "dgrad"});
      // Its preparation and reduction are kernels of their own, which a pass has one of each of.
      const bool beside = has_word(lower, std::array{"dot_do_o", "convert_dq", "preprocess", "combine"});
      kernel.attends_forward = !kernel.attends_backward && !beside;
      kernel.attends_backward = kernel.attends_backward && !beside;
    }
    if (kernel.work == TraceWork::kCommunication) {
      const std::string told = trace_text(arguments, "Collective name");
      const auto kind = traced_collective(lower_case(told.empty() ? name : told));
      kernel.collective = kind ? std::string(name_of(*kind)) : "other";
      if (const auto group = trace_count(arguments, "Group size")) kernel.collective += fmt::format(" of {}", *group);
    }
    kernels_.push_back(std::move(kernel));
  }

  void take_host(const std::string& name, const std::string& category, const Interval& span,
                 const nlohmann::json& arguments) {
    if (name.rfind("ProfilerStep", 0) == 0) marks_.push_back({name, span});
    const std::string lower = lower_case(name);
    if (loads_data(lower)) data_.push_back(span);
    const bool call = category == "cuda_runtime" || category == "cuda_driver" || category == "runtime";
    if (allocates(lower)) memory_.push_back(span);
    if (!call) return;
    if (const auto correlation = trace_id(arguments, "correlation")) launches_.emplace(*correlation, span.start);
  }

  std::vector<StepMark> windows(double step_s) {
    std::sort(marks_.begin(), marks_.end(),
              [](const StepMark& a, const StepMark& b) { return a.span.start < b.span.start; });
    std::vector<StepMark> all;
    for (std::size_t index = 0; index < marks_.size(); ++index) {
      StepMark mark = marks_[index];
      if (index + 1 < marks_.size()) mark.span.end = marks_[index + 1].span.start;
      const bool busy = std::any_of(kernels_.begin(), kernels_.end(), [&mark](const DeviceKernel& kernel) {
        return kernel.span.end > mark.span.start && kernel.span.start < mark.span.end;
      });
      if (busy && mark.span.end > mark.span.start) all.push_back(mark);
    }
    if (!all.empty()) return all;
    Interval whole = kernels_.front().span;
    for (const DeviceKernel& kernel : kernels_) whole.end = std::max(whole.end, kernel.span.end);
    const double length = whole.end - whole.start;
    constexpr double kMostSteps = 10'000.0;
    const double steps = step_s > 0.0 ? std::clamp(std::round(length / step_s), 1.0, kMostSteps) : 1.0;
    for (int index = 0; index < static_cast<int>(steps); ++index) {
      all.push_back({"", {whole.start + length / steps * index, whole.start + length / steps * (index + 1)}});
    }
    return all;
  }

  TracedStep step_of(const StepMark& mark) const {
    const Interval& window = mark.span;
    TracedStep step;
    step.name = mark.name;
    step.time_s = window.end - window.start;
    Intervals compute;
    Intervals communication;
    for (const DeviceKernel& kernel : kernels_) {
      const Interval cut = {std::max(kernel.span.start, window.start), std::min(kernel.span.end, window.end)};
      if (cut.end <= cut.start) continue;
      const bool communicates = kernel.work == TraceWork::kCommunication;
      (communicates ? communication : compute).push_back(cut);
      TraceTime& work = step.work[static_cast<std::size_t>(kernel.work)];
      ++work.kernels;
      work.seconds += cut.end - cut.start;
      step.attention_forward += kernel.attends_forward ? 1 : 0;
      step.attention_backward += kernel.attends_backward ? 1 : 0;
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
    add_stretches(window, compute, communication, step);
    return step;
  }

  // By what the host did in it, the rarer cause first.
  void split_gap(const Interval& gap, TracedStep& step) const {
    const auto add = [&step](IdleCause cause, double seconds) {
      step.idle_by_cause_s[static_cast<std::size_t>(cause)] += seconds;
    };
    const double data = length_of(within(data_, gap));
    Intervals others = within(memory_, gap);
    const double memory = std::min(length_of(others), gap.end - gap.start - data);
    const double rest = std::max(0.0, gap.end - gap.start - data - memory);
    add(IdleCause::kData, data);
    add(IdleCause::kMemory, memory);
    add(launched_late(gap) ? IdleCause::kLaunch : IdleCause::kOther, rest);
  }

  // Whether the kernel that ends the gap was launched after the gap had begun. Where the trace tells no launches, a
  // gap too short for anything else counts.
  bool launched_late(const Interval& gap) const {
    constexpr double kShort = 100e-6;
    const auto next =
        std::lower_bound(kernels_.begin(), kernels_.end(), gap.end - 1e-9,
                         [](const DeviceKernel& kernel, double time) { return kernel.span.start < time; });
    if (next != kernels_.end() && next->correlation) {
      const auto launch = launches_.find(*next->correlation);
      if (launch != launches_.end()) return launch->second >= gap.start;
    }
    return gap.end - gap.start < kShort;
  }

  static void add_stretches(const Interval& window, const Intervals& compute, const Intervals& communication,
                            TracedStep& step) {
    std::map<double, std::pair<int, int>> changes;  // at a moment: how many begin less how many end
    for (const Interval& span : compute) ++changes[span.start].first, --changes[span.end].first;
    for (const Interval& span : communication) ++changes[span.start].second, --changes[span.end].second;
    int computes = 0;
    int communicates = 0;
    double from = window.start;
    const auto add = [&](double until) {
      if (until <= from) return;
      const TracedState state = computes > 0 && communicates > 0 ? TracedState::kBoth
                                : computes > 0                   ? TracedState::kCompute
                                : communicates > 0               ? TracedState::kCommunication
                                                                 : TracedState::kIdle;
      if (!step.stretches.empty() && step.stretches.back().state == state) {
        step.stretches.back().end_s = until - window.start;
      } else {
        step.stretches.push_back({from - window.start, until - window.start, state});
      }
      from = until;
    };
    for (const auto& [time, change] : changes) {
      add(time);
      computes += change.first;
      communicates += change.second;
    }
    add(window.end);
  }

  std::string file_;
  TracedRank rank_;
  std::vector<DeviceKernel> kernels_;
  std::vector<StepMark> marks_;
  std::unordered_map<std::int64_t, double> launches_;  // by correlation: when the call began
  Intervals data_;
  Intervals memory_;
};

}  // namespace

const std::vector<std::string>& idle_cause_names() {
  static const std::vector<std::string> names = {"data", "memory", "launch", "other"};
  return names;
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

TracedRank read_traced_rank(std::istream& stream, const std::string& file, double step_s) {
  StepCollector collector(file);
  read_trace_events(
      stream, file,
      {[&collector](const nlohmann::json& event, const std::string& place) { collector.take_event(event, place); },
       [&collector](const std::string& key, const nlohmann::json& value) { collector.take_member(key, value); }});
  return collector.finished(step_s);
}

}  // namespace flopcast
