#include "model/catalog/catalogue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "model/cost/stage_costs.hpp"
#include "model/job/read_job.hpp"
#include "tests/support/folders.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

// Every leaf except name, description and sources must be {"value", "source"} with a source that the file lists.
void expect_sourced(const nlohmann::json& entry, const nlohmann::json& sources, const std::string& where) {
  for (const auto& item : entry.items()) {
    if (item.key() == "name" || item.key() == "description" || item.key() == "sources") continue;
    const std::string path = where + "." + item.key();
    if (item.key() == "releases") {
      for (nlohmann::json release : item.value()) {
        EXPECT_TRUE(sources.contains(release.at("source").get<std::string>())) << path;
        for (const char* key : {"release", "date", "changes", "source"}) release.erase(key);
        expect_sourced(release, sources, path);
      }
      continue;
    }
    ASSERT_TRUE(item.value().is_object()) << path;
    if (!item.value().contains("value")) {
      expect_sourced(item.value(), sources, path);
      continue;
    }
    ASSERT_TRUE(item.value().contains("source")) << path;
    EXPECT_TRUE(sources.contains(item.value().at("source").get<std::string>())) << path;
    EXPECT_EQ(item.value().size(), 2u) << path;
  }
}

TEST(Catalogue, EveryFigureHasASource) {
  for (const EmbeddedFile& file : embedded_catalogue()) {
    const nlohmann::json entry = parse_json(file.text, std::string(file.path));
    expect_sourced(entry, entry.at("sources"), std::string(file.path));
    std::set<std::string> used;
    const std::string text(file.text);
    for (const auto& source : entry.at("sources").items()) {
      EXPECT_NE(text.find("\"source\": \"" + source.key() + "\""), std::string::npos)
          << file.path << " never uses " << source.key();
    }
  }
}

TEST(Catalogue, NamesAreFileNamesAndUnique) {
  for (const std::string& folder : names_of<CatalogueKind>()) {
    const CatalogueKind kind = *parse<CatalogueKind>(folder);
    std::set<std::string> seen;
    ASSERT_FALSE(catalogue_names(kind).empty()) << name_of(kind);
    for (const std::string& name : catalogue_names(kind)) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      EXPECT_EQ(catalogue_entry(kind, name).name, name);
      EXPECT_FALSE(catalogue_entry(kind, name).description.empty()) << name;
    }
  }
}

TEST(Catalogue, EveryModelClusterAndStackIsUsable) {
  for (const std::string& model : catalogue_names(CatalogueKind::kModels)) {
    for (const std::string& cluster : catalogue_names(CatalogueKind::kClusters)) {
      for (const std::string& stack : catalogue_names(CatalogueKind::kStacks)) {
        const Job job =
            job_from(R"({"model": ")" + model + R"(", "cluster": ")" + cluster +
                     R"(", "layout": {"global_batch_size": 576}, "training": {"stack": ")" + stack + R"("}})");
        EXPECT_GT(job.cluster.device.peak_of(job.training.precision).value(), 1e12) << cluster;
        EXPECT_GT(job.cluster.device.memory_bandwidth.value(), 1e11) << cluster;
        EXPECT_LT(job.cluster.device.memory_bandwidth.value(), 2e13) << cluster;
      }
    }
  }
}

std::string job_on(const std::string& cluster) {
  return R"({"model": "gpt2-124m", "cluster": )" + cluster + R"(, "layout": {"global_batch_size": 576}})";
}

TEST(Catalogue, DevicesLieInTheRangeOfTheirYears) {
  std::set<std::string> seen;
  for (const std::string& name : catalogue_names(CatalogueKind::kDevices)) {
    const Device device = job_from(job_on(R"({"name": "one-gpu", "device": ")" + name + R"("})")).cluster.device;
    EXPECT_EQ(device.name, name);
    const double fp16 = device.peak_of(Precision::kFp16).value();
    const double fp32 = device.peak_of(Precision::kFp32).value();
    EXPECT_GE(fp16, 25e12) << name;
    EXPECT_LE(fp16, 2.6e15) << name;
    EXPECT_GT(fp32, 5e12) << name;
    EXPECT_LT(fp32, fp16) << name;
    for (const Precision precision : {Precision::kBf16, Precision::kFp8}) {
      const double peak = device.peak_of(precision).value();
      const double factor = precision == Precision::kFp8 ? 2.0 : 1.0;
      EXPECT_TRUE(peak == 0.0 || std::abs(peak / fp16 / factor - 1) < 0.02) << name << " " << name_of(precision);
    }
    EXPECT_GE(gibibytes(device.memory_capacity), 8.0) << name;
    EXPECT_LE(gibibytes(device.memory_capacity), 288.0) << name;
    EXPECT_GE(device.memory_bandwidth.value(), 0.25e12) << name;
    EXPECT_LE(device.memory_bandwidth.value(), 8e12) << name;
    EXPECT_GE(device.multiprocessors, 20) << name;
    EXPECT_LE(device.multiprocessors, 304) << name;
    EXPECT_GE(device.tdp_w, 70.0) << name;
    EXPECT_LE(device.tdp_w, 1400.0) << name;
    EXPECT_LT(device.flash_backward_efficiency, 1.0) << name;
    EXPECT_GT(fp16 / device.memory_bandwidth.value(), 30.0) << name << ": FLOPs per byte";
    EXPECT_LT(fp16 / device.memory_bandwidth.value(), 450.0) << name;
    const std::string description = catalogue_entry(CatalogueKind::kDevices, name).description;
    EXPECT_TRUE(seen.insert(description).second) << name;
  }
}

TEST(Catalogue, ClustersLieInTheRangeOfTheirYears) {
  std::set<std::string> seen;
  for (const std::string& name : catalogue_names(CatalogueKind::kClusters)) {
    const Cluster cluster = job_from(job_on("\"" + name + "\"")).cluster;
    EXPECT_GE(cluster.intra_bandwidth.value(), 16e9) << name;
    EXPECT_LE(cluster.intra_bandwidth.value(), 900e9) << name;
    EXPECT_GE(cluster.node_network_bandwidth().value(), 1e9) << name;
    EXPECT_LE(cluster.node_network_bandwidth().value(), 100e9 * cluster.devices_per_node) << name;
    EXPECT_LE(cluster.node_network_bandwidth().value(), cluster.intra_bandwidth.value() * cluster.devices_per_node)
        << name;
    EXPECT_GE(cluster.inter_latency.value(), cluster.intra_latency.value()) << name;
    EXPECT_GE(cluster.host_bandwidth.value(), 16e9) << name;
    EXPECT_GE(cluster.host_memory_bandwidth.value(), 70e9) << name;
    EXPECT_LE(cluster.inter_latency.value(), 100e-6) << name;
    EXPECT_TRUE(seen.insert(cluster.description).second) << name;
  }
}

// The two forms of "a GPU in ten lines of JSON" in CONTRIBUTING.md.
std::vector<std::string> contributed_json() {
  const std::string text = read_text(project_folder() / "CONTRIBUTING.md");
  std::vector<std::string> blocks;
  std::size_t begin = text.find("## Add a GPU");
  const std::size_t end = text.find("\n## ", begin + 1);
  while ((begin = text.find("```json\n", begin)) != std::string::npos && begin < end) {
    begin += std::string("```json\n").size();
    const std::size_t close = text.find("```", begin);
    blocks.push_back(text.substr(begin, close - begin));
    begin = close + 3;
  }
  return blocks;
}

TEST(Catalogue, AGpuTakesTenLinesOfJson) {
  const std::vector<std::string> blocks = contributed_json();
  ASSERT_EQ(blocks.size(), 2u);
  for (const std::string& block : blocks) EXPECT_LE(std::count(block.begin(), block.end(), '\n'), 10) << block;

  const nlohmann::json file = parse_json(blocks[0], "CONTRIBUTING.md");
  expect_sourced(file, file.at("sources"), "CONTRIBUTING.md");
  const nlohmann::json inlined = parse_json(blocks[1], "CONTRIBUTING.md");
  std::vector<Job> jobs;
  for (const nlohmann::json& device : {plain_values(file), inlined}) {
    nlohmann::json cluster = {{"name", "one-gpu"}, {"device", device}};
    cluster["device"].erase("description");
    jobs.push_back(job_from(job_on(cluster.dump())));
    const Job& job = jobs.back();
    StageMap map;
    map.rank_of_stage = {0};
    const StepCosts costs = price_step(job, map, {job.model.layers});
    EXPECT_GT(costs.stages[0].forward.total().value(), 0.0);
    const bool said = std::any_of(job.assumptions.begin(), job.assumptions.end(), [](const std::string& line) {
      return line.find("gemm_efficiency") != std::string::npos && line.find("hopper") != std::string::npos;
    });
    EXPECT_TRUE(said);
  }
  EXPECT_EQ(jobs[0].cluster.device.memory_capacity, jobs[1].cluster.device.memory_capacity);
  EXPECT_EQ(jobs[0].cluster.device.peak_of(Precision::kBf16), jobs[1].cluster.device.peak_of(Precision::kBf16));
}

TEST(Catalogue, UnknownNamesHaveNoValues) {
  EXPECT_TRUE(catalogue_values(CatalogueKind::kModels, "gpt9").is_null());
}

}  // namespace
}  // namespace flopcast
