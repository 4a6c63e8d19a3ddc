#include "calibrate/device/imports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

namespace {

struct TracedType {
  const char* precision;
  int bytes;
};

struct TracedProduct {
  SampleShape shape;
  std::string dtype;
};

template <std::size_t N>
bool holds_any(const std::string& text, const std::array<const char*, N>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&text](const char* word) { return text.find(word) != std::string::npos; });
}

}  // namespace

TraceWork work_of_kernel(std::string_view name) {
  const std::string text = lower_case(name);
  if (text.rfind("nccl", 0) == 0) return TraceWork::kCommunication;
  if (text.rfind("memcpy", 0) == 0 || text.rfind("memset", 0) == 0) return TraceWork::kCopy;
  // Checked before the GEMMs: attention kernels use the same templates.
  if (holds_any(text, std::array{"flash", "fmha", "attention"})) return TraceWork::kAttention;
  if (holds_any(text, std::array{"gemm", "cutlass", "cublas", "nvjet", "splitk"})) return TraceWork::kProduct;
  return TraceWork::kOther;
}

TraceWork work_of_operator(std::string_view name) {
  const std::string text = lower_case(name);
  if (holds_any(text, std::array{"nccl:", "c10d::"})) return TraceWork::kCommunication;
  if (holds_any(text, std::array{"attention", "flash"})) return TraceWork::kAttention;
  const std::string last = text.substr(text.rfind(':') + 1);
  constexpr std::array<const char*, 8> kProducts = {"mm",     "addmm",  "bmm",        "baddbmm",
                                                    "matmul", "linear", "_scaled_mm", "_grouped_mm"};
  const bool product = std::any_of(kProducts.begin(), kProducts.end(), [&last](const char* n) { return last == n; });
  return product ? TraceWork::kProduct : TraceWork::kOther;
}

namespace {

// Sides of an operand, if it is a matrix.
std::optional<std::pair<int, int>> matrix_of(const nlohmann::json& dimensions, std::size_t index) {
  constexpr std::int64_t kLargest = 100'000'000;
  if (!dimensions.is_array() || index >= dimensions.size()) return std::nullopt;
  const nlohmann::json& shape = dimensions[index];
  if (!shape.is_array() || shape.size() != 2) return std::nullopt;
  std::pair<int, int> sides;
  for (std::size_t side = 0; side < 2; ++side) {
    if (!shape[side].is_number_integer()) return std::nullopt;
    const auto length = shape[side].get<std::int64_t>();
    if (length < 1 || length > kLargest) return std::nullopt;
    (side == 0 ? sides.first : sides.second) = static_cast<int>(length);
  }
  return sides;
}

}  // namespace

const nlohmann::json* trace_member(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string trace_text(const nlohmann::json& object, const char* key) {
  const nlohmann::json* value = trace_member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::optional<double> trace_number(const nlohmann::json& object, const char* key) {
  const nlohmann::json* value = trace_member(object, key);
  if (value == nullptr) return std::nullopt;
  std::optional<double> number;
  if (value->is_number()) number = value->get<double>();
  if (value->is_string()) number = parse_number(value->get_ref<const std::string&>());
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::optional<int> trace_count(const nlohmann::json& object, const char* key) {
  constexpr double kMost = 1e9;
  const auto number = trace_number(object, key);
  if (!number || *number < 1.0 || *number > kMost || *number != std::floor(*number)) return std::nullopt;
  return static_cast<int>(*number);
}

std::optional<std::int64_t> trace_id(const nlohmann::json& object, const char* key) {
  constexpr double kLargest = 9e15;
  const auto number = trace_number(object, key);
  const bool fits = number && std::abs(*number) < kLargest;
  return fits ? std::optional<std::int64_t>(static_cast<std::int64_t>(*number)) : std::nullopt;
}

std::optional<TraceEvent> trace_event(const nlohmann::json& event) {
  if (trace_text(event, "ph") != "X") return std::nullopt;
  static const nlohmann::json nothing = nlohmann::json::object();
  TraceEvent one;
  one.name = trace_text(event, "name");
  one.category = lower_case(trace_text(event, "cat"));
  one.start_us = trace_number(event, "ts");
  one.duration_us = trace_number(event, "dur");
  const nlohmann::json* arguments = trace_member(event, "args");
  one.arguments = arguments == nullptr ? &nothing : arguments;
  one.correlation = trace_id(*one.arguments, "correlation");
  return one;
}

std::optional<SampleKind> traced_collective(std::string name) {
  std::erase(name, '_');
  // Longer names first.
  static const std::vector<std::pair<const char*, SampleKind>> kinds = {
      {"allreduce", sample_of(CollectiveKind::kAllReduce)},
      {"allgather", sample_of(CollectiveKind::kAllGather)},
      {"reducescatter", sample_of(CollectiveKind::kReduceScatter)},
      {"alltoall", sample_of(CollectiveKind::kAllToAll)},
      {"broadcast", sample_of(CollectiveKind::kBroadcast)},
      {"reduce", SampleKind::kReduce},
      {"send", SampleKind::kPointToPoint},
      {"recv", SampleKind::kPointToPoint}};
  for (const auto& [word, kind] : kinds) {
    if (name.find(word) != std::string::npos) return kind;
  }
  return std::nullopt;
}

namespace {

std::optional<std::int64_t> external_id(const nlohmann::json& arguments) {
  const auto id = trace_id(arguments, "External id");
  return id ? id : trace_id(arguments, "external id");
}

// "c10::BFloat16" in an operator's arguments, "BFloat16" in a collective's.
std::optional<TracedType> traced_type(std::string name) {
  const std::size_t scope = name.rfind(':');
  if (scope != std::string::npos) name.erase(0, scope + 1);
  static const std::map<std::string, TracedType> types = {
      {"float", {"fp32", 4}},      {"Float", {"fp32", 4}},         {"Half", {"fp16", 2}},
      {"BFloat16", {"bf16", 2}},   {"double", {"fp64", 8}},        {"Double", {"fp64", 8}},
      {"Int", {"int32", 4}},       {"Long", {"int64", 8}},         {"Byte", {"uint8", 1}},
      {"Char", {"int8", 1}},       {"Bool", {"uint8", 1}},         {"Float8_e4m3fn", {"fp8", 1}},
      {"Float8_e5m2", {"fp8", 1}}, {"Float8_e4m3fnuz", {"fp8", 1}}};
  const auto known = types.find(name);
  return known == types.end() ? std::nullopt : std::optional(known->second);
}

std::optional<TracedProduct> traced_product(const std::string& name, const nlohmann::json& arguments) {
  const bool added = name == "aten::addmm";
  if (!added && name != "aten::mm" && name != "aten::_scaled_mm") return std::nullopt;
  const nlohmann::json* dimensions = trace_member(arguments, "Input Dims");
  const nlohmann::json* types = trace_member(arguments, "Input type");
  if (dimensions == nullptr || types == nullptr || !types->is_array()) return std::nullopt;
  const std::size_t first = added ? 1 : 0;
  const auto left = matrix_of(*dimensions, first);
  const auto right = matrix_of(*dimensions, first + 1);
  if (!left || !right || left->second != right->first || first >= types->size() || !(*types)[first].is_string()) {
    return std::nullopt;
  }
  const auto dtype = traced_type((*types)[first].get<std::string>());
  if (!dtype) return std::nullopt;
  return TracedProduct{{left->first, right->second, left->second}, dtype->precision};
}

// "[0, 1, 2]", as text or as a list; empty if it is abbreviated with dots.
std::vector<int> traced_ranks(const nlohmann::json& arguments) {
  constexpr std::int64_t kMostTracedRanks = 1'000'000;
  const nlohmann::json* value = trace_member(arguments, "Process Group Ranks");
  if (value == nullptr) return {};
  const nlohmann::json list =
      value->is_string() ? nlohmann::json::parse(value->get_ref<const std::string&>(), nullptr, false) : *value;
  std::vector<int> ranks;
  if (!list.is_array()) return ranks;
  for (const nlohmann::json& rank : list) {
    if (!rank.is_number_unsigned() || rank > kMostTracedRanks) return {};
    ranks.push_back(rank.get<int>());
  }
  return ranks;
}

class Collector {
 public:
  Collector(const std::string& file, const TraceRequest& request) : file_(file), request_(request) {}

  void take_member(const std::string& key, const nlohmann::json& value) {
    if (key != "deviceProperties" || !value.is_array() || value.empty()) return;
    listed_devices_ = static_cast<int>(value.size());
    trace_.measurement.device = trace_text(value[0], "name");
    if (const auto count = trace_count(value[0], "numSms")) trace_.measurement.multiprocessors = *count;
  }

  void take_event(const nlohmann::json& event, const std::string& place) {
    const std::optional<TraceEvent> one = trace_event(event);
    if (!one) return;
    if (one->category == "cpu_op" || one->category == "operator") take_operator(event, *one);
    if (one->calls() && one->correlation && one->start_us) {
      spans_[thread_of(event)].push_back({*one->start_us, *one->start_us, *one->correlation, true});
    }
    if (!one->on_device()) return;
    if (!one->duration_us || *one->duration_us < 0.0) {
      refuse_at(place,
                fmt::format("the kernel's \"dur\" is {}",
                            event.contains("dur") ? event["dur"].dump() : std::string("missing")),
                "expected microseconds");
    }
    take_kernel(*one, *one->duration_us * 1e-6);
  }

  Trace finished() {
    if (trace_.total().kernels == 0 && kernels_.empty()) {
      refuse_at(file_, "contains no device kernels", "profile with activities=[CPU, CUDA] and record_shapes=True");
    }
    link_launches();
    match();
    add_products();
    add_collectives();
    if (trace_.measurement.device.empty()) trace_.measurement.device = "unnamed";
    return std::move(trace_);
  }

 private:
  struct Operator {
    std::size_t name = 0;     // index into names_
    std::size_t product = 0;  // one past the index into products_; zero: none
  };
  struct Kernel {
    std::optional<std::int64_t> id;
    std::optional<std::int64_t> correlation;  // CUPTI's number of the call that launched the kernel
    TraceWork work = TraceWork::kOther;
    double seconds = 0.0;
  };
  using Group = std::tuple<SampleKind, double, int, int, std::string>;  // bytes, ranks, nodes, dtype

  // Activity of a host thread: an operator, or a call that launches a kernel.
  struct Span {
    double begin = 0.0;
    double end = 0.0;
    std::int64_t id = 0;  // id of the operator, or correlation of the call
    bool is_launch = false;
  };

  static std::string thread_of(const nlohmann::json& event) {
    const auto text = [&event](const char* key) { return event.contains(key) ? event.at(key).dump() : std::string(); };
    return text("pid") + "/" + text("tid");
  }

  // In some traces the External id of a kernel is CUPTI's correlation, and others have none. The operator is then the
  // innermost one that encloses the launching call.
  void link_launches() {
    const auto has_unknown_operator = [this](const Kernel& kernel) {
      return !kernel.id || operators_.count(*kernel.id) == 0;
    };
    const bool correlations_only = std::all_of(kernels_.begin(), kernels_.end(), [](const Kernel& kernel) {
      return !kernel.id || !kernel.correlation || *kernel.id == *kernel.correlation;
    });
    std::unordered_map<std::int64_t, std::int64_t> operator_of;  // by correlation
    for (auto& [thread, spans] : spans_) {
      std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
      });
      std::vector<const Span*> open;
      for (const Span& span : spans) {
        while (!open.empty() && open.back()->end < span.begin) open.pop_back();
        if (!span.is_launch) open.push_back(&span);
        if (span.is_launch && !open.empty()) operator_of[span.id] = open.back()->id;
      }
    }
    for (Kernel& kernel : kernels_) {
      if (!correlations_only && !has_unknown_operator(kernel)) continue;
      const auto found = kernel.correlation ? operator_of.find(*kernel.correlation) : operator_of.end();
      if (found != operator_of.end()) {
        kernel.id = found->second;
      } else if (correlations_only && kernel.correlation) {
        kernel.id.reset();
      }
    }
  }

  void take_operator(const nlohmann::json& event, const TraceEvent& one) {
    auto id = external_id(*one.arguments);
    if (one.name.empty() || (!id && !one.start_us)) return;
    if (!id) id = -1 - static_cast<std::int64_t>(operators_.size());  // an id that no kernel has
    if (one.start_us && one.duration_us) {
      spans_[thread_of(event)].push_back({*one.start_us, *one.start_us + *one.duration_us, *id, false});
    }
    Operator& known = operators_[*id];
    known.name = index_of(one.name);
    const auto product = traced_product(one.name, *one.arguments);
    if (product) products_.push_back(*product);
    known.product = product ? products_.size() : 0;
  }

  std::size_t index_of(const std::string& name) {
    const auto [place, fresh] = indices_.emplace(name, names_.size());
    if (fresh) names_.push_back(name);
    return place->second;
  }

  void take_kernel(const TraceEvent& one, double seconds) {
    const TraceWork work = one.copies() ? TraceWork::kCopy : work_of_kernel(one.name);
    if (work == TraceWork::kCommunication) {
      add(work, seconds);
      take_collective(seconds, *one.arguments);
    } else {
      kernels_.push_back({external_id(*one.arguments), one.correlation, work, seconds});
    }
  }

  void add(TraceWork work, double seconds) {
    TraceTime& time = trace_.work[static_cast<std::size_t>(work)];
    ++time.kernels;
    time.seconds += seconds;
  }

  void take_collective(double seconds, const nlohmann::json& arguments) {
    const auto kind = traced_collective(trace_text(arguments, "Collective name"));
    const auto dtype = traced_type(trace_text(arguments, "dtype"));
    const auto group = trace_count(arguments, "Group size");
    const bool gathers = kind == sample_of(CollectiveKind::kAllGather);
    const auto elements = trace_number(arguments, gathers ? "Out msg nelems" : "In msg nelems");
    if (!kind || !dtype || !group || !elements || *elements < 1.0 || seconds <= 0.0) {
      ++without_size_;
      return;
    }
    if (*group < 2) return;
    const auto nodes = nodes_of(*group, traced_ranks(arguments));
    const bool message = *kind == SampleKind::kPointToPoint;
    // The trace does not name the two ranks of a larger group that exchanged it.
    if (!nodes || (message && *group > 2 && *nodes > 1)) {
      ++without_nodes_;
      return;
    }
    collectives_[{*kind, *elements * dtype->bytes, message ? 2 : *group, message ? std::min(*nodes, 2) : *nodes,
                  dtype->precision}]
        .push_back(seconds);
  }

  std::optional<int> nodes_of(int group, const std::vector<int>& ranks) const {
    const std::optional<int> per_node = request_.devices_per_node ? request_.devices_per_node : listed_devices_;
    if (!per_node || ranks.size() != static_cast<std::size_t>(group)) return std::nullopt;
    std::set<int> nodes;
    for (const int rank : ranks) nodes.insert(rank / *per_node);
    return static_cast<int>(nodes.size());
  }

  void match() {
    std::map<std::size_t, OperatorTime> times;
    for (const Kernel& kernel : kernels_) {
      const auto known = kernel.id ? operators_.find(*kernel.id) : operators_.end();
      TraceWork work = kernel.work;
      if (known != operators_.end()) {
        const TraceWork told = work_of_operator(names_[known->second.name]);
        if (told != TraceWork::kOther && work != TraceWork::kCopy) work = told;
        OperatorTime& time = times[known->second.name];
        time.name = names_[known->second.name];
        time.work = work;
        ++time.time.kernels;
        time.time.seconds += kernel.seconds;
        ++trace_.matched.kernels;
        trace_.matched.seconds += kernel.seconds;
        if (known->second.product > 0) calls_[*kernel.id] += kernel.seconds;
      }
      add(work, kernel.seconds);
    }
    for (auto& [name, time] : times) trace_.operators.push_back(std::move(time));
    std::stable_sort(trace_.operators.begin(), trace_.operators.end(),
                     [](const OperatorTime& a, const OperatorTime& b) { return a.time.seconds > b.time.seconds; });
  }

  void add_products() {
    std::map<std::tuple<std::string, int, int, int>, std::vector<double>> shapes;
    for (const auto& [id, seconds] : calls_) {
      const TracedProduct& product = products_[operators_.at(id).product - 1];
      if (seconds > 0.0) {
        shapes[{product.dtype, product.shape.m, product.shape.n, product.shape.k}].push_back(seconds);
      }
    }
    for (auto& [shape, seconds] : shapes) {
      const auto& [dtype, m, n, k] = shape;
      SampleKey key;
      key.shape = SampleShape{m, n, k};
      key.dtype = dtype;
      trace_.measurement.samples.push_back({key, std::move(seconds), std::nullopt});
    }
  }

  void add_collectives() {
    for (auto& [group, seconds] : collectives_) {
      const auto& [kind, bytes, ranks, nodes, dtype] = group;
      std::sort(seconds.begin(), seconds.end());
      seconds.resize((seconds.size() + 3) / 4);
      trace_.measurement.samples.push_back(
          {{kind, std::nullopt, bytes, ranks, nodes, dtype, 1}, seconds, std::nullopt});
    }
    if (without_size_ > 0) {
      trace_.notes.push_back(fmt::format("{} nccl kernels lack their collective, size, group or type", without_size_));
    }
    if (without_nodes_ > 0) {
      trace_.notes.push_back(
          fmt::format("{} nccl kernels do not show how many nodes their group spans; --devices-per-node helps if "
                      "the trace lists the group's ranks",
                      without_nodes_));
    }
  }

  std::string file_;
  TraceRequest request_;
  Trace trace_;
  std::optional<int> listed_devices_;
  std::unordered_map<std::int64_t, Operator> operators_;  // by External id
  std::map<std::string, std::vector<Span>> spans_;        // by thread of the host
  std::map<std::string, std::size_t> indices_;
  std::vector<std::string> names_;
  std::vector<TracedProduct> products_;
  std::vector<Kernel> kernels_;
  std::map<std::int64_t, double> calls_;  // total seconds of each call of a GEMM
  std::map<Group, std::vector<double>> collectives_;
  long without_size_ = 0;
  long without_nodes_ = 0;
};

}  // namespace

TraceTime Trace::total() const {
  TraceTime total;
  for (const TraceTime& time : work) {
    total.kernels += time.kernels;
    total.seconds += time.seconds;
  }
  return total;
}

Trace read_trace(std::istream& stream, const std::string& file, const TraceRequest& request) {
  Collector collector(file, request);
  read_trace_events(
      stream, file,
      {[&collector](const nlohmann::json& event, const std::string& place) { collector.take_event(event, place); },
       [&collector](const std::string& key, const nlohmann::json& value) { collector.take_member(key, value); }});
  return collector.finished();
}

}  // namespace flopcast
