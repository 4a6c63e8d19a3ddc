#include "calibrate/device/import/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "calibrate/device/import/trace_arguments.hpp"
#include "calibrate/device/import/trace_events.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(const std::string& where, const std::string& problem, const std::string& help) {
  throw ConfigError({"", problem, where, help});
}

class Collector {
 public:
  Collector(const std::string& file, const TraceRequest& request) : file_(file), request_(request) {}

  void take_member(const std::string& key, const Json& value) {
    if (key != "deviceProperties" || !value.is_array() || value.empty()) return;
    listed_devices_ = static_cast<int>(value.size());
    trace_.measurement.device = trace_text(value[0], "name");
    if (const auto count = trace_count(value[0], "numSms")) trace_.measurement.multiprocessors = *count;
  }

  void take_event(const Json& event, const std::string& place) {
    if (trace_text(event, "ph") != "X") return;
    const std::string category = trace_text(event, "cat");
    const Json* found = trace_member(event, "args");
    static const Json nothing = Json::object();
    const Json& arguments = found == nullptr ? nothing : *found;
    if (category == "cpu_op" || category == "Operator") take_operator(trace_text(event, "name"), arguments);
    if (category != "kernel" && category != "Kernel" && category != "gpu_memcpy" && category != "gpu_memset") return;
    const auto microseconds = trace_number(event, "dur");
    if (!microseconds || *microseconds < 0.0) {
      fail(place,
           fmt::format("a kernel whose \"dur\" is {}",
                       event.contains("dur") ? event["dur"].dump() : std::string("missing")),
           "expected microseconds");
    }
    take_kernel(trace_text(event, "name"), category, *microseconds * 1e-6, arguments);
  }

  Trace finished() {
    if (trace_.total().kernels == 0 && kernels_.empty()) {
      fail(file_, "holds no kernels of a device", "profile with activities=[CPU, CUDA] and record_shapes=True");
    }
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
    TraceWork work = TraceWork::kOther;
    double seconds = 0.0;
  };
  using Group = std::tuple<SampleKind, double, int, int, std::string>;  // bytes, ranks, nodes, dtype

  void take_operator(const std::string& name, const Json& arguments) {
    const auto id = external_id(arguments);
    if (!id || name.empty()) return;
    Operator& known = operators_[*id];
    known.name = index_of(name);
    const auto product = traced_product(name, arguments);
    if (product) products_.push_back(*product);
    known.product = product ? products_.size() : 0;
  }

  std::size_t index_of(const std::string& name) {
    const auto [place, fresh] = indices_.emplace(name, names_.size());
    if (fresh) names_.push_back(name);
    return place->second;
  }

  void take_kernel(const std::string& name, const std::string& category, double seconds, const Json& arguments) {
    const bool copy = category == "gpu_memcpy" || category == "gpu_memset";
    const TraceWork work = copy ? TraceWork::kCopy : work_of_kernel(name);
    if (work == TraceWork::kCommunication) {
      add(work, seconds);
      take_collective(seconds, arguments);
    } else {
      kernels_.push_back({external_id(arguments), work, seconds});
    }
  }

  void add(TraceWork work, double seconds) {
    TraceTime& time = trace_.work[static_cast<std::size_t>(work)];
    ++time.kernels;
    time.seconds += seconds;
  }

  void take_collective(double seconds, const Json& arguments) {
    const auto kind = traced_collective(trace_text(arguments, "Collective name"));
    const auto dtype = traced_type(trace_text(arguments, "dtype"));
    const auto group = trace_count(arguments, "Group size");
    const bool gathers = kind == SampleKind::kAllGather;
    const auto elements = trace_number(arguments, gathers ? "Out msg nelems" : "In msg nelems");
    if (!kind || !dtype || !group || !elements || *elements < 1.0 || seconds <= 0.0) {
      ++without_size_;
      return;
    }
    if (*group < 2) return;
    const auto nodes = nodes_of(*group, traced_ranks(arguments));
    const bool message = *kind == SampleKind::kPointToPoint;
    // Which two of a larger group exchanged it is not told.
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
      trace_.notes.push_back(
          fmt::format("{} nccl kernels do not tell collective, size, group and type", without_size_));
    }
    if (without_nodes_ > 0) {
      trace_.notes.push_back(fmt::format(
          "{} nccl kernels do not tell over how many nodes their group lies; --devices-per-node helps where "
          "the trace lists the group's ranks",
          without_nodes_));
    }
  }

  std::string file_;
  TraceRequest request_;
  Trace trace_;
  std::optional<int> listed_devices_;
  std::unordered_map<std::int64_t, Operator> operators_;  // by External id
  std::map<std::string, std::size_t> indices_;
  std::vector<std::string> names_;
  std::vector<TracedProduct> products_;
  std::vector<Kernel> kernels_;
  std::map<std::int64_t, double> calls_;  // seconds of each call of a product
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
  read_trace_events(stream, file,
                    {[&collector](const Json& event, const std::string& place) { collector.take_event(event, place); },
                     [&collector](const std::string& key, const Json& value) { collector.take_member(key, value); }});
  return collector.finished();
}

}  // namespace flopcast
