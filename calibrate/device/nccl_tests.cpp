#include "calibrate/device/imports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/config/codec.hpp"

namespace flopcast {

namespace {

// One row of a run, before it becomes a sample.
struct NcclTestsRow {
  double bytes = 0.0;
  std::string dtype;
  std::optional<double> time_us;
  std::optional<double> algbw;
  std::optional<double> busbw;
  double time_precision = 0.0;   // half a unit of the last printed digit
  double busbw_precision = 0.0;  // half a unit of the last printed digit
  double wrong = 0.0;
  std::string where;
};

struct NcclTestsRun {
  std::optional<SampleKind> kind;
  bool is_concluded = false;  // the footer confirms the kind
  int ranks = 0;              // zero: not given in the file
  int nodes = 0;
  std::string device;
  std::string where;
  std::vector<NcclTestsRow> rows;
};

// Collective that a program's name refers to, such as "./build/all_reduce_perf_mpi".
std::optional<SampleKind> kind_of_program(std::string_view text) {
  // Longer names first: "reduce" is part of three others.
  constexpr std::array<std::pair<std::string_view, SampleKind>, 7> kPrograms = {
      {{"all_reduce_perf", sample_of(CollectiveKind::kAllReduce)},
       {"all_gather_perf", sample_of(CollectiveKind::kAllGather)},
       {"reduce_scatter_perf", sample_of(CollectiveKind::kReduceScatter)},
       {"alltoall_perf", sample_of(CollectiveKind::kAllToAll)},
       {"broadcast_perf", sample_of(CollectiveKind::kBroadcast)},
       {"sendrecv_perf", SampleKind::kPointToPoint},
       {"reduce_perf", SampleKind::kReduce}}};
  for (const auto& [name, kind] : kPrograms) {
    if (text.find(name) != std::string_view::npos) return kind;
  }
  return std::nullopt;
}

// "float" -> "fp32"; unlisted types are returned unchanged.
std::string precision_of_nccl(const std::string& type) {
  static const std::map<std::string, std::string> names = {
      {"float", "fp32"}, {"half", "fp16"}, {"bfloat16", "bf16"}, {"f8e4m3", "fp8"}, {"f8e5m2", "fp8"}};
  const auto known = names.find(type);
  return known == names.end() ? type : known->second;
}

// n of 2(n-1)/n or (n-1)/n; absent if the printed digits allow more than one n.
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
  constexpr int kMostTried = 4096;
  std::optional<int> found;
  for (int ranks = 2; ranks <= kMostTried; ++ranks) {
    if (std::abs(bus_factor(kind, ranks) - measured) > precision) continue;
    if (found) return std::nullopt;
    found = ranks;
  }
  return found;
}

void check_row(const NcclTestsRow& row, SampleKind kind, int ranks) {
  if (row.wrong > 0.0) {
    refuse_at(row.where, fmt::format("{} elements of the result were wrong", row.wrong),
              "measure again: the times of wrong results are meaningless");
  }
  const double time = *row.time_us;
  if (!std::isfinite(time) || time <= 0.0)
    refuse_at(row.where, fmt::format("{} us is not a valid time", time), "expected a time above zero");
  if (!row.busbw) return;
  const double busbw = row.bytes / (time * 1e3) * bus_factor(kind, ranks);
  constexpr double kRounding = 1.01;
  const double tolerance = kRounding * (row.busbw_precision + busbw * row.time_precision / time) + 1e-9;
  if (std::abs(busbw - *row.busbw) <= tolerance) return;
  refuse_at(row.where,
            fmt::format("reports busbw {}, but {} bytes in {} us on {} ranks are {:.2f} GB/s", *row.busbw, row.bytes,
                        time, ranks, busbw),
            "check --collective and --ranks, and whether columns were shifted");
}

void add_run(const NcclTestsRun& run, const std::string& file, const NcclTestsRequest& request,
             Measurement& measurement) {
  const std::optional<SampleKind> kind = request.kind ? request.kind : run.kind;
  if (!kind) {
    refuse_at(run.where, fmt::format("{} does not name the collective that was measured", file),
              "specify it: --collective all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce or p2p");
  }
  if (run.is_concluded && run.kind && *run.kind != *kind) {
    refuse_at(run.where, fmt::format("{} states at its end that it measured {}", file, name_of(*run.kind)),
              "omit --collective");
  }
  const bool message = *kind == SampleKind::kPointToPoint;
  std::optional<int> ranks = request.ranks;
  if (!ranks && run.ranks > 0) ranks = run.ranks;
  if (!ranks) ranks = ranks_by_factor(run, *kind);
  if (!ranks) refuse_at(run.where, fmt::format("{} does not state the number of ranks", file), "specify it: --ranks N");
  constexpr int kLargestNode = 8;  // for larger groups the number of nodes must be known
  if (!request.nodes && run.nodes == 0 && *ranks > kLargestNode) {
    refuse_at(run.where, fmt::format("{} does not list its devices: {} ranks may be on several nodes", file, *ranks),
              "specify the number of nodes: --nodes N");
  }
  const int nodes = request.nodes.value_or(run.nodes > 0 ? run.nodes : 1);
  if (nodes > *ranks) {
    refuse_at(run.where, fmt::format("{} nodes have only {} ranks", nodes, *ranks), "check --ranks and --nodes");
  }
  for (const NcclTestsRow& row : run.rows) {
    if (row.bytes <= 0.0) continue;
    if (!row.time_us) {
      refuse_at(row.where, fmt::format("has no {} time", request.in_place ? "in-place" : "out-of-place"),
                request.in_place ? "omit --in-place" : "pass --in-place");
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

constexpr const char* kReportForm = "expected the report that nccl-tests writes with -J";

const Fields<NcclTestsRow>& report_time_fields() {
  static const Fields<NcclTestsRow> fields = {
      amount<&NcclTestsRow::time_us>("time", "microseconds").required(kReportForm),
      amount<&NcclTestsRow::algbw>("alg_bw", "GB/s").required(kReportForm),
      amount<&NcclTestsRow::busbw>("bus_bw", "GB/s").required(kReportForm),
      amount<&NcclTestsRow::wrong>("nwrong", "number of wrong result elements")};
  return fields;
}

template <bool kInPlace>
const Fields<NcclTestsRow>& report_row_fields() {
  static const Fields<NcclTestsRow> fields = {
      amount<&NcclTestsRow::bytes>("size", "bytes").required(kReportForm),
      text<&NcclTestsRow::dtype>("type", "NCCL's name of the type"),
      level<&report_time_fields>(kInPlace ? "in_place" : "out_of_place", "times and rates")};
  return fields;
}

std::vector<NcclTestsRun> read_nccl_tests_json(std::string_view text, const std::string& file, bool in_place,
                                               Measurement& about) {
  constexpr double kPrecision = 0.5e-6;  // the report prints times and bandwidths with six decimals
  const nlohmann::json root = parse_json(text, file);
  JsonReader reader = JsonReader::foreign(root, "", file);
  NcclTestsRun run;
  run.where = file;
  std::set<std::string> hosts;
  std::optional<JsonReader> config = reader.object("config");
  for (JsonReader& device : config && config->has("devices") ? config->objects("devices") : reader.objects("devices")) {
    hosts.insert(device.text("hostname").value_or(""));
    if (run.device.empty()) run.device = device.text("device_info").value_or("");
    ++run.ranks;
  }
  run.nodes = static_cast<int>(hosts.size());
  if (const nlohmann::json* arguments = reader.find("args"); arguments != nullptr && arguments->is_array()) {
    for (const nlohmann::json& argument : *arguments) {
      if (!run.kind && argument.is_string()) run.kind = kind_of_program(argument.get<std::string>());
    }
  }
  constexpr std::size_t kDate = 10;
  about.date = reader.text("start_time").value_or("").substr(0, kDate);
  if (const nlohmann::json* version = reader.find("nccl_version"); version != nullptr && version->is_number()) {
    about.libraries["nccl"] = version->dump();
  }
  if (!reader.has("results")) reader.fail_missing("results", kReportForm);
  for (JsonReader& result : reader.objects("results")) {
    NcclTestsRow& row = run.rows.emplace_back();
    row.where = result.place();
    read_fields(in_place ? report_row_fields<true>() : report_row_fields<false>(), result, row);
    row.time_precision = row.busbw_precision = kPrecision;
  }
  return {run};
}

std::vector<std::string> report_words(std::string line) {
  // mpirun --tag-output prepends its tag to the line without a space.
  for (const char* tag : {"<stdout>:", "<stderr>:", "<stdout>", "<stderr>"}) {
    const std::size_t place = line.find(tag);
    if (place != std::string::npos) line.replace(place, std::string(tag).size(), " ");
  }
  std::istringstream words(line);
  std::vector<std::string> tokens;
  for (std::string word; words >> word;) tokens.push_back(word);
  return tokens;
}

bool is_whole(const std::string& text) {
  constexpr std::size_t kMostDigits = 18;
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_type(const std::string& text) {
  static const std::set<std::string> types = {"int8",   "uint8",  "int32",    "uint32",   "int64",
                                              "uint64", "half",   "float",    "double",   "bfloat16",
                                              "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2", "char"};
  return types.count(text) > 0;
}

struct Number {
  std::optional<double> value;  // absent: N/A
  double precision = 0.0;       // half a unit of the last printed digit
};

Number number_of(const std::string& text, const std::string& column, const std::string& where) {
  if (text == "N/A" || text == "n/a" || text == "-") return {};
  const std::optional<double> value = parse_number(text);
  if (!value || !std::isfinite(*value)) {
    throw ConfigError({"", fmt::format("\"{}\" in column {} is not a number", text, column), where,
                       "expected a row of nccl-tests; was the line truncated or mixed with another one?"});
  }
  // "12.34" is precise to 0.005, "1.2e+06" to 0.05e6.
  const std::size_t exponent = text.find_first_of("eE");
  const std::string mantissa = text.substr(0, exponent);
  const std::size_t point = mantissa.find('.');
  const double digits = point == std::string::npos ? 0.0 : static_cast<double>(mantissa.size() - point - 1);
  const double power = exponent == std::string::npos ? 0.0 : std::strtod(text.c_str() + exponent + 1, nullptr);
  return {value, 0.5 * std::pow(10.0, power - digits)};
}

// The columns that a version of nccl-tests prints, from its own header; empty if the line is not a header.
std::vector<std::string> header_columns(const std::vector<std::string>& tokens) {
  const auto size = std::find(tokens.begin(), tokens.end(), "size");
  const bool header = size != tokens.end() && std::find(size, tokens.end(), "count") != tokens.end() &&
                      std::find(size, tokens.end(), "busbw") != tokens.end();
  return header ? std::vector<std::string>(size, tokens.end()) : std::vector<std::string>();
}

// The current layout, for rows without a header, such as those found with grep.
std::vector<std::string> usual_columns() {
  return {"size",  "count",  "type", "redop", "root",  "time",  "algbw",
          "busbw", "#wrong", "time", "algbw", "busbw", "#wrong"};
}

class TextReader {
 public:
  TextReader(const std::string& file, bool in_place) : file_(file), in_place_(in_place) {}

  void read_line(const std::string& line, int number) {
    where_ = fmt::format("{}:{}", file_, number);
    const std::vector<std::string> tokens = report_words(line);
    const std::optional<SampleKind> kind = kind_of_program(line);
    if (kind && line.find("concluded") != std::string::npos) {
      kind_ = kind;
      run_.is_concluded = true;
      finish();
      return;
    }
    if (kind && *kind != kind_.value_or(SampleKind::kGemm)) {
      finish();
      kind_ = kind;
    }
    if (std::vector<std::string> columns = header_columns(tokens); !columns.empty()) {
      finish_rows();
      columns_ = std::move(columns);
      return;
    }
    if (const auto start = start_of_row(tokens)) {
      read_row(std::vector<std::string>(tokens.begin() + static_cast<std::ptrdiff_t>(*start), tokens.end()));
      return;
    }
    read_device(line, tokens);
  }

  std::vector<NcclTestsRun> finished() {
    finish_rows();
    return std::move(runs_);
  }

 private:
  static std::optional<std::size_t> start_of_row(const std::vector<std::string>& tokens) {
    for (std::size_t index = 0; index + 2 < tokens.size(); ++index) {
      if (is_whole(tokens[index]) && is_whole(tokens[index + 1]) && is_type(tokens[index + 2])) return index;
    }
    return std::nullopt;
  }

  void read_row(const std::vector<std::string>& tokens) {
    if (tokens.size() < columns_.size()) {
      throw ConfigError({"",
                         fmt::format("the row has {} columns, but its header has {}", tokens.size(), columns_.size()),
                         where_, "was the log truncated? remove the row, or measure again"});
    }
    const auto read = [&](const std::string& name) {
      auto column = std::find(columns_.begin(), columns_.end(), name);
      if (in_place_ && column != columns_.end()) column = std::find(column + 1, columns_.end(), name);
      if (column == columns_.end()) return Number{};
      return number_of(tokens[static_cast<std::size_t>(column - columns_.begin())], name, where_);
    };
    NcclTestsRow row;
    row.where = where_;
    row.bytes = number_of(tokens[0], "size", where_).value.value_or(0.0);
    row.dtype = tokens[2];
    const Number time = read("time");
    const Number busbw = read("busbw");
    row.time_us = time.value;
    row.time_precision = time.precision;
    row.algbw = read("algbw").value;
    row.busbw = busbw.value;
    row.busbw_precision = busbw.precision;
    row.wrong = read("#wrong").value.value_or(0.0);
    if (run_.rows.empty()) run_.where = where_;
    run_.rows.push_back(std::move(row));
  }

  // "#  Rank  0 Group  0 Pid 43 on HOST device  0 [0x0f] NVIDIA A100-SXM4-40GB"
  void read_device(const std::string& line, const std::vector<std::string>& tokens) {
    const auto rank = std::find(tokens.begin(), tokens.end(), "Rank");
    const auto on = std::find(rank, tokens.end(), "on");
    if (rank == tokens.end() || on == tokens.end() || on + 2 >= tokens.end() || *(on + 2) != "device") return;
    if (!is_whole(*(rank + 1))) return;
    if (!run_.rows.empty()) finish();
    ranks_.insert(*(rank + 1));
    hosts_.insert(*(on + 1));
    const std::size_t bracket = line.find(']', line.find("device"));
    if (bracket == std::string::npos || !device_.empty()) return;
    device_ = line.substr(bracket + 1);
    device_.erase(0, device_.find_first_not_of(" \t"));
    device_.erase(device_.find_last_not_of(" \t\r") + 1);
  }

  void finish_rows() {
    if (!run_.rows.empty()) {
      run_.kind = kind_;
      run_.ranks = static_cast<int>(ranks_.size());
      run_.nodes = static_cast<int>(hosts_.size());
      run_.device = device_;
      runs_.push_back(std::move(run_));
    }
    run_ = {};
  }

  // A new program starts and lists its devices again.
  void finish() {
    const bool had_rows = !run_.rows.empty();
    finish_rows();
    if (!had_rows) return;
    ranks_.clear();
    hosts_.clear();
    columns_ = usual_columns();
  }

  std::string file_;
  bool in_place_;
  std::string where_;
  std::vector<std::string> columns_ = usual_columns();
  std::optional<SampleKind> kind_;
  std::set<std::string> ranks_;
  std::set<std::string> hosts_;
  std::string device_;
  NcclTestsRun run_;
  std::vector<NcclTestsRun> runs_;
};

std::vector<NcclTestsRun> read_nccl_tests_text(std::string_view text, const std::string& file, bool in_place) {
  TextReader reader(file, in_place);
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) reader.read_line(line, ++number);
  return reader.finished();
}

}  // namespace

double bus_factor(SampleKind kind, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  const std::optional<CollectiveKind> collective = collective_of(kind);
  if (!collective || *collective == CollectiveKind::kBroadcast) return 1.0;
  return *collective == CollectiveKind::kAllReduce ? 2.0 * share : share;
}

Measurement import_nccl_tests(std::string_view text, const std::string& file, const NcclTestsRequest& request) {
  // With -J, nccl-tests writes a JSON report.
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  const bool is_json = start != std::string_view::npos && text[start] == '{';
  Measurement measurement;
  const std::vector<NcclTestsRun> runs = is_json ? read_nccl_tests_json(text, file, request.in_place, measurement)
                                                 : read_nccl_tests_text(text, file, request.in_place);
  for (const NcclTestsRun& run : runs) add_run(run, file, request, measurement);
  if (measurement.samples.empty()) {
    refuse_at(file, fmt::format("{} contains no results of nccl-tests", file),
              "expected rows such as: 1048576 262144 float sum -1 92.80 11.30 19.77 0 …");
  }
  if (measurement.device.empty()) measurement.device = "unnamed";
  return measurement;
}

}  // namespace flopcast
