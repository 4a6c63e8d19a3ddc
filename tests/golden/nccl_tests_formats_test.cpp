// Every collected table of collectives, written in the formats of nccl-tests, is read back: sizes, times, ranks and
// nodes, and the bus bandwidth.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "calibrate/device/imports.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

struct PrintedTable {
  std::string name;
  std::string collective;
  std::string type;
  int ranks = 0;
  int nodes = 0;
  struct Row {
    double bytes = 0.0;
    double time_us = 0.0;
    double busbw = 0.0;
  };
  std::vector<Row> rows;
};

SampleKind kind_of(const PrintedTable& table) {
  static const std::map<std::string, SampleKind> kinds = {{"all_reduce", sample_of(CollectiveKind::kAllReduce)},
                                                          {"all_gather", sample_of(CollectiveKind::kAllGather)},
                                                          {"reduce_scatter", sample_of(CollectiveKind::kReduceScatter)},
                                                          {"alltoall", sample_of(CollectiveKind::kAllToAll)},
                                                          {"send_recv", SampleKind::kPointToPoint}};
  return kinds.at(table.collective);
}

std::string program_of(const PrintedTable& table) {
  return table.collective == "send_recv" ? "sendrecv_perf" : table.collective + "_perf";
}

// Two decimals below 100 us, one below 10,000, none above.
std::string printed_time(double time) {
  return fmt::format("{:.{}f}", time, time < 1e2 ? 2 : time < 1e4 ? 1 : 0);
}

std::vector<PrintedTable> tables_of(const Json& collected) {
  std::vector<PrintedTable> tables;
  for (const Json& entry : collected) {
    PrintedTable table{entry.at("hw"),    entry.at("collective"), entry.at("dtype"),
                       entry.at("ranks"), entry.at("nodes"),      {}};
    if (table.type == "fp16") table.type = "half";
    // If the time was derived from a rounded bandwidth, the two do not agree to the last digit.
    const bool derived = entry.at("note").get<std::string>().find("derived") != std::string::npos;
    for (const Json& values : entry.at("rows")) {
      PrintedTable::Row row{values.at(0), values.at(1), values.at(2)};
      const double time = std::stod(printed_time(row.time_us));
      if (derived) row.busbw = row.bytes / (time * 1e3) * bus_factor(kind_of(table), table.ranks);
      table.rows.push_back(row);
    }
    tables.push_back(table);
  }
  return tables;
}

std::string devices(const PrintedTable& table) {
  std::string text;
  const int per_node = table.ranks / table.nodes;
  for (int rank = 0; rank < table.ranks; ++rank) {
    text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on    node{} device {:2} [0x{:02x}] {}\n", rank, 40 + rank,
                        rank / per_node, rank % per_node, rank % per_node, "a GPU");
  }
  return text;
}

double algbw(const PrintedTable& table, const PrintedTable::Row& row) {
  return row.busbw / bus_factor(kind_of(table), table.ranks);
}

struct TextFormat {
  const char* name;
  const char* prefix;
  bool root;            // column in the current format
  const char* checked;  // contents of "#wrong" or "error"
};

std::string text_of(const PrintedTable& table, const TextFormat& format) {
  std::string text = fmt::format("# Collective test starting: {}\n# nThread 1 nGpus {}\n#\n# Using devices\n",
                                 program_of(table), table.ranks) +
                     devices(table) + "#\n#                                out-of-place                in-place\n";
  const char* check = format.root ? "#wrong" : "error";
  text +=
      fmt::format("#       size         count      type   redop {} time   algbw   busbw {} time   algbw   busbw {}\n",
                  format.root ? "   root    " : "   ", check, check);
  text += "#        (B)    (elements)                        (us)  (GB/s)  (GB/s)         (us)  (GB/s)  (GB/s)\n";
  for (const PrintedTable::Row& row : table.rows) {
    const std::string columns = fmt::format("{:>8} {:7.2f} {:7.2f} {:>6}", printed_time(row.time_us), algbw(table, row),
                                            row.busbw, format.checked);
    text += fmt::format("{:12.0f}  {:12.0f}  {:>8}     sum  {}  {} {}\n", row.bytes, row.bytes / 4, table.type,
                        format.root ? "    -1 " : "", columns, columns);
  }
  text += "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n#\n";
  std::string prefixed;
  std::size_t start = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', start)) {
    prefixed += format.prefix + text.substr(start, end - start) + "\n";
    start = end + 1;
  }
  return prefixed;
}

std::string json_of(const PrintedTable& table) {
  Json root = {{"version", 2},          {"args", {"/opt/" + program_of(table), "-g", "8"}}, {"env", {"TOKEN=secret"}},
               {"nccl_version", 22809}, {"config", {{"devices", Json::array()}}},           {"results", Json::array()}};
  for (int rank = 0; rank < table.ranks; ++rank) {
    root["config"]["devices"].push_back({{"rank", rank},
                                         {"hostname", fmt::format("node{}", rank / (table.ranks / table.nodes))},
                                         {"device_info", "a GPU"}});
  }
  for (const PrintedTable::Row& row : table.rows) {
    // The report has six decimals, so its bandwidth is exact.
    const double time = row.time_us;
    const double bus = row.bytes / (time * 1e3) * bus_factor(kind_of(table), table.ranks);
    const Json values = {{"time", time},
                         {"alg_bw", std::round(row.bytes / (time * 1e3) * 1e6) / 1e6},
                         {"bus_bw", std::round(bus * 1e6) / 1e6},
                         {"nwrong", nullptr}};
    root["results"].push_back({{"size", row.bytes},
                               {"count", row.bytes / 4},
                               {"type", table.type},
                               {"redop", "sum"},
                               {"root", "-1"},
                               {"out_of_place", values},
                               {"in_place", values}});
  }
  return root.dump(1);
}

int expect_table(const PrintedTable& table, const Measurement& measurement, const std::string& format, bool printed) {
  const std::string what = table.name + ", " + format;
  const bool message = table.collective == "send_recv";
  std::size_t next = 0;
  for (const PrintedTable::Row& row : table.rows) {
    if (row.bytes <= 0.0) continue;
    if (next == measurement.samples.size()) {
      ADD_FAILURE() << what << ": too few samples";
      break;
    }
    const Sample& sample = measurement.samples[next++];
    EXPECT_EQ(sample.key.kind, kind_of(table)) << what;
    EXPECT_EQ(*sample.key.bytes, row.bytes) << what;
    EXPECT_EQ(sample.key.ranks, message ? 2 : table.ranks) << what;
    EXPECT_EQ(sample.key.nodes, table.nodes) << what;
    const double time = printed ? std::stod(printed_time(row.time_us)) : row.time_us;
    EXPECT_NEAR(sample.seconds.at(0), time * 1e-6, 1e-12) << what;
    const double busbw = row.bytes / sample.seconds.at(0) / 1e9 * bus_factor(kind_of(table), table.ranks);
    const double half_digit = 0.5 * (time < 1e2 ? 0.01 : time < 1e4 ? 0.1 : 1.0);
    EXPECT_NEAR(busbw, row.busbw, 1.01 * (0.005 + busbw * half_digit / time) + 1e-9) << what << ", " << row.bytes;
  }
  EXPECT_EQ(next, measurement.samples.size()) << what;
  return static_cast<int>(next);
}

TEST(NcclTestsFormats, EveryCollectedTableIsRead) {
  const auto reference = reference_folder();
  if (!reference) GTEST_SKIP() << "no reference folder: collected tables were not written and read";
  const std::vector<PrintedTable> tables = tables_of(Json::parse(read_text(*reference / "nccl_measured.json")));
  const std::vector<TextFormat> formats = {{"today's", "", true, "0"},
                                           {"unchecked", "", true, "N/A"},
                                           {"old", "", false, "4e-07"},
                                           {"behind mpirun's tag", "[1,0]<stdout>:", true, "0"},
                                           {"behind a rank", "0: ", false, "0e+00"},
                                           {"behind a timestamp", "2026-01-02T03:04:05.678Z ", true, "N/A"}};
  int read = 0;
  for (const PrintedTable& table : tables) {
    for (const TextFormat& format : formats) {
      read += expect_table(table, import_nccl_tests(text_of(table, format), "run.log", {}), format.name, true);
    }
    NcclTestsRequest in_place;
    in_place.in_place = true;
    read += expect_table(table, import_nccl_tests(text_of(table, formats[0]), "run.log", in_place), "in place", true);
    const Measurement report = import_nccl_tests(json_of(table), "run.json", {});
    read += expect_table(table, report, "JSON", false);
    EXPECT_EQ(write_measurement(report).find("secret"), std::string::npos);
  }
  EXPECT_GE(tables.size(), 37u);
  std::cout << tables.size() << " tables in " << formats.size() + 2 << " forms: " << read
            << " rows read, busbw recomputed equal to the printed one\n";
}

}  // namespace
}  // namespace flopcast
