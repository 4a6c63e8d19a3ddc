// NCCL's own latency-bandwidth model against measured all-reduces. Nothing is fitted, so the errors are printed and
// only their size is bounded.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "model/cost/collectives.hpp"
#include "model/job/read_job.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

Cluster dgx_a100() {
  const Json root =
      Json::parse(R"({"model": "gpt3-175b", "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 64}})");
  return read_job(root, {}).cluster;
}

TEST(NcclMeasured, AllReducesOnOneA100Node) {
  const auto reference = reference_folder();
  if (!reference) GTEST_SKIP() << "no reference folder: measured collectives were not compared";
  const Json tables = Json::parse(read_text(*reference / "nccl_measured.json"));
  const Cluster cluster = dgx_a100();
  const CommunicationModel model(cluster);
  std::size_t compared = 0;
  for (const Json& table : tables) {
    const std::string hardware = table.at("hw").get<std::string>();
    if (hardware.find("A100 (NVLink node)") == std::string::npos || table.at("collective") != "all_reduce") continue;
    const int ranks = table.at("ranks").get<int>();
    std::vector<double> errors;
    for (const Json& row : table.at("rows")) {
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

}  // namespace
}  // namespace flopcast
