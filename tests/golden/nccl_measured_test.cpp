// NCCL's latency-bandwidth model, compared with measured all-reduces. Nothing is fitted, so the errors are printed and
// only their size is bounded; docs/images/all-reduce.svg shows three fabrics.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "model/cost/collectives.hpp"
#include "model/job/read_job.hpp"
#include "reports/svg/charts.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

Cluster two_nodes(const std::string& name) {
  const nlohmann::json root = {
      {"model", "gpt3-175b"}, {"cluster", {{"name", name}, {"nodes", 2}}}, {"layout", {{"global_batch_size", 64}}}};
  return read_job(root, {}).cluster;
}

TEST(NcclMeasured, AllReducesOnOneA100Node) {
  const auto reference = reference_folder();
  if (!reference) GTEST_SKIP() << "no reference folder: measured collectives were not compared";
  const nlohmann::json tables = nlohmann::json::parse(read_text(*reference / "nccl_measured.json"));
  const Cluster cluster = two_nodes("dgx-a100-80g");
  const CommunicationModel model(cluster);
  std::size_t compared = 0;
  for (const nlohmann::json& table : tables) {
    const std::string hardware = table.at("hw").get<std::string>();
    if (hardware.find("A100 (NVLink node)") == std::string::npos || table.at("collective") != "all_reduce") continue;
    const int ranks = table.at("ranks").get<int>();
    std::vector<double> errors;
    for (const nlohmann::json& row : table.at("rows")) {
      const double measured = row.at(1).get<double>() * 1e-6;
      const double predicted =
          model.collective(CollectiveKind::kAllReduce, Bytes(row.at(0).get<double>()), {ranks, 1, ranks, 1}).value();
      errors.push_back(std::abs(predicted / measured - 1));
    }
    std::sort(errors.begin(), errors.end());
    const double median = errors[errors.size() / 2];
    std::cout << hardware << ": " << errors.size() << " sizes, median error " << median << ", largest " << errors.back()
              << "\n";
    EXPECT_LT(median, 0.35) << hardware;
    ++compared;
  }
  EXPECT_GE(compared, 5u);
}

// Sixteen ranks on two nodes, out of place: bytes and microseconds.
struct MeasuredFabric {
  std::string title;
  std::string cluster;
  double largest_error;  ///< for sizes from 1 MiB
  std::vector<std::pair<double, double>> rows;
};

const std::vector<MeasuredFabric>& fabrics() {
  static const std::vector<MeasuredFabric> all = {
      // aws-samples/awsome-distributed-training, micro-benchmarks/nccl-tests/README.md @7217859f67bc
      {"EFA, 32 x 100 Gbit/s: two p5.48xlarge",
       "p5",
       0.3,
       {{32768, 111.7},
        {65536, 135.1},
        {131072, 108.9},
        {262144, 128.0},
        {524288, 123.7},
        {1048576, 123.2},
        {2097152, 147.2},
        {4194304, 168.6},
        {8388608, 204.8},
        {16777216, 298.1},
        {33554432, 439.7},
        {67108864, 601.5},
        {134217728, 870.3},
        {268435456, 1468.2},
        {536870912, 2559.2},
        {1073741824, 4607.6},
        {2147483648, 9074.5},
        {4294967296, 17286.0}}},
      // Azure, two ND96amsr_A100_v4, NCCL of NVIDIA's PyTorch container 23.03; jingchaozhang.github.io, after "Deploy
      // NDm_v4 (A100) Kubernetes Cluster"; nccl-tests
      {"InfiniBand, 8 x 200 Gbit/s: two nodes of eight A100",
       "nd-a100-80g",
       0.37,
       {{32768, 58.73},
        {65536, 60.01},
        {131072, 63.71},
        {262144, 68.25},
        {524288, 80.23},
        {1048576, 96.39},
        {2097152, 128.6},
        {4194304, 148.1},
        {8388608, 211.1},
        {16777216, 333.4},
        {33554432, 615.6},
        {67108864, 932.6},
        {134217728, 1672.7},
        {268435456, 3013.5},
        {536870912, 5702.0},
        {1073741824, 11063},
        {2147483648, 21637},
        {4294967296, 42758},
        {8589934592, 85129}}},
      // Dell, two nodes of eight H200 with eight BlueField-3 cards; nccl-tests
      {"RoCE, 8 x 400 Gbit/s: two nodes of eight H200",
       "dgx-h200",
       0.06,
       {{67108864, 461.01},
        {134217728, 742.13},
        {268435456, 1275.21},
        {536870912, 2327.12},
        {1073741824, 4388.55},
        {2147483648, 8497.37},
        {4294967296, 16715.2}}},
  };
  return all;
}

// FLOPCAST_BLESS=1 redraws the picture.
TEST(NcclMeasured, AllReducesOfThreeFabricsAreDrawn) {
  std::vector<SeriesChart> charts;
  for (const MeasuredFabric& fabric : fabrics()) {
    const Cluster cluster = two_nodes(fabric.cluster);
    const CommunicationModel model(cluster);
    SeriesChart chart;
    chart.title = fabric.title;
    chart.x = {"bytes", true, false};
    chart.y = {"ms", true, false};
    Series measured{"measured", {}, SeriesStyle::kPoints};
    Series forecast{"forecast", {}, SeriesStyle::kLine};
    double largest = 0.0;
    for (const auto& [bytes, us] : fabric.rows) {
      const double seconds = model.collective(CollectiveKind::kAllReduce, Bytes(bytes), {16, 2, 8, 1}).value();
      measured.points.push_back({bytes, us * 1e-3, ""});
      forecast.points.push_back({bytes, seconds * 1e3, ""});
      if (bytes >= 1048576) largest = std::max(largest, std::abs(seconds / (us * 1e-6) - 1.0));
    }
    std::cout << fabric.title << ": largest error from 1 MiB on " << largest << "\n";
    EXPECT_LT(largest, fabric.largest_error) << fabric.title;
    chart.series = {measured, forecast};
    charts.push_back(chart);
  }
  const std::string picture = write_series_svg(charts, {});
  const auto file = project_folder() / "docs" / "images" / "all-reduce.svg";
  if (std::getenv("FLOPCAST_BLESS") != nullptr) write_text(file, picture);
  EXPECT_TRUE(read_text(file) == picture) << file;
}

}  // namespace
}  // namespace flopcast
