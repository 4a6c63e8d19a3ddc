#include "calibrate/device/import/nccl_tests.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

[[noreturn]] void fail(const std::string& where, const std::string& problem, const std::string& help) {
  throw ConfigError({"", problem, where, help});
}

// n of 2(n-1)/n or (n-1)/n; nothing when the printed digits leave a choice.
std::optional<int> ranks_by_factor(const NcclTestsRun& run, SampleKind kind) {
  const NcclTestsRow* largest = nullptr;
  for (const NcclTestsRow& row : run.rows) {
    const bool tells = row.algbw.value_or(0.0) > 0.0 && row.busbw.value_or(0.0) > 0.0;
    if (tells && (largest == nullptr || row.bytes > largest->bytes)) largest = &row;
  }
  if (largest == nullptr || bus_factor(kind, 1'000'000) == 1.0 || bus_factor(kind, 2) == bus_factor(kind, 3)) {
    return std::nullopt;
  }
  const double measured = *largest->busbw / *largest->algbw;
  const double precision = 2.0 * largest->busbw_precision / *largest->algbw;
  constexpr int kMostRanks = 4096;
  std::optional<int> found;
  for (int ranks = 2; ranks <= kMostRanks; ++ranks) {
    if (std::abs(bus_factor(kind, ranks) - measured) > precision) continue;
    if (found) return std::nullopt;
    found = ranks;
  }
  return found;
}

void check_row(const NcclTestsRow& row, SampleKind kind, int ranks) {
  if (row.wrong > 0.0) {
    fail(row.where, fmt::format("{} elements of the result were wrong", row.wrong),
         "measure again: times of wrong results say nothing");
  }
  const double time = *row.time_us;
  if (!std::isfinite(time) || time <= 0.0)
    fail(row.where, fmt::format("{} us is no time", time), "expected above zero");
  if (!row.busbw) return;
  const double busbw = row.bytes / (time * 1e3) * bus_factor(kind, ranks);
  constexpr double kRounding = 1.01;
  const double tolerance = kRounding * (row.busbw_precision + busbw * row.time_precision / time) + 1e-9;
  if (std::abs(busbw - *row.busbw) <= tolerance) return;
  fail(row.where,
       fmt::format("prints busbw {}, but {} bytes in {} us on {} ranks are {:.2f} GB/s", *row.busbw, row.bytes, time,
                   ranks, busbw),
       "check the collective (--collective), --ranks, and whether columns were moved");
}

void add_run(const NcclTestsRun& run, const std::string& file, const NcclTestsRequest& request,
             Measurement& measurement) {
  const std::optional<SampleKind> kind = request.kind ? request.kind : run.kind;
  if (!kind) {
    fail(run.where, fmt::format("{} does not tell which collective was measured", file),
         "give it: --collective all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce or p2p");
  }
  const bool message = *kind == SampleKind::kPointToPoint;
  std::optional<int> ranks = request.ranks;
  if (!ranks && run.ranks > 0) ranks = run.ranks;
  if (!ranks) ranks = ranks_by_factor(run, *kind);
  if (!ranks) fail(run.where, fmt::format("{} does not tell how many ranks ran", file), "give them: --ranks N");
  const int nodes = request.nodes.value_or(run.nodes > 0 ? run.nodes : 1);
  if (nodes > *ranks) {
    fail(run.where, fmt::format("{} nodes hold only {} ranks", nodes, *ranks), "check --ranks and --nodes");
  }
  for (const NcclTestsRow& row : run.rows) {
    if (row.bytes <= 0.0) continue;
    if (!row.time_us) {
      fail(row.where, fmt::format("has no {} time", request.in_place ? "in-place" : "out-of-place"),
           request.in_place ? "leave --in-place out" : "give --in-place");
    }
    check_row(row, *kind, *ranks);
    SampleKey key{*kind, std::nullopt, row.bytes, *ranks, nodes, precision_of_nccl(row.dtype), 1};
    // sendrecv sends around a ring of all ranks: each link carries one message.
    if (message) key.ranks = 2;
    if (message) key.nodes = nodes > 1 ? 2 : 1;
    while (measurement.has(key)) ++key.pass;
    measurement.samples.push_back({key, {*row.time_us * 1e-6}, std::nullopt});
  }
  if (measurement.device.empty()) measurement.device = run.device;
}

}  // namespace

double bus_factor(SampleKind kind, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case SampleKind::kAllReduce:
      return 2.0 * share;
    case SampleKind::kAllGather:
    case SampleKind::kReduceScatter:
    case SampleKind::kAllToAll:
      return share;
    default:
      return 1.0;
  }
}

std::optional<SampleKind> kind_of_program(std::string_view text) {
  // The longer names first: "reduce" is part of three.
  constexpr std::array<std::pair<std::string_view, SampleKind>, 7> kPrograms = {
      {{"all_reduce_perf", SampleKind::kAllReduce},
       {"all_gather_perf", SampleKind::kAllGather},
       {"reduce_scatter_perf", SampleKind::kReduceScatter},
       {"alltoall_perf", SampleKind::kAllToAll},
       {"broadcast_perf", SampleKind::kBroadcast},
       {"sendrecv_perf", SampleKind::kPointToPoint},
       {"reduce_perf", SampleKind::kReduce}}};
  for (const auto& [name, kind] : kPrograms) {
    if (text.find(name) != std::string_view::npos) return kind;
  }
  return std::nullopt;
}

std::string precision_of_nccl(const std::string& type) {
  static const std::map<std::string, std::string> names = {
      {"float", "fp32"}, {"half", "fp16"}, {"bfloat16", "bf16"}, {"f8e4m3", "fp8"}, {"f8e5m2", "fp8"}};
  const auto known = names.find(type);
  return known == names.end() ? type : known->second;
}

bool is_nccl_tests_json(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  return start != std::string_view::npos && text[start] == '{';
}

Measurement import_nccl_tests(std::string_view text, const std::string& file, const NcclTestsRequest& request) {
  Measurement measurement;
  const std::vector<NcclTestsRun> runs = is_nccl_tests_json(text)
                                             ? read_nccl_tests_json(text, file, request.in_place, measurement)
                                             : read_nccl_tests_text(text, file, request.in_place);
  for (const NcclTestsRun& run : runs) add_run(run, file, request, measurement);
  if (measurement.samples.empty()) {
    fail(file, fmt::format("{} holds no result of nccl-tests", file),
         "expected rows such as: 1048576 262144 float sum -1 92.80 11.30 19.77 0 …");
  }
  if (measurement.device.empty()) measurement.device = "unnamed";
  return measurement;
}

}  // namespace flopcast
