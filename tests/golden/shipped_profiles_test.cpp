// The profiles shipped with the program equal those fitted again to the measured tables. FLOPCAST_BLESS=1 rewrites
// model/catalog/profiles. The tables themselves remain at their place of publication.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "calibrate/device/build_profile.hpp"
#include "calibrate/device/fits.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/job/read_job.hpp"
#include "tests/golden/operator_tables.hpp"
#include "tests/golden/simumax_tables.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;
using Row = std::map<std::string, double>;

constexpr double kHalfBytes = 2.0;  // bytes of an fp16 number

struct Machine {
  const char* profile;
  const char* folder;
  const char* name;
  const char* device;
  int multiprocessors;
  MeasuredLinks links;
};
constexpr double kGigabyte = 1e9;
constexpr double kGigabit = kGigabyte / 8.0;

// From NERSC's and TACC's descriptions of the nodes: four A100, four NVLinks between each pair, four Slingshot 11 cards
// of 200 Gbit/s; one GH200, one InfiniBand NDR card of 400 Gbit/s.
std::vector<Machine> machines() {
  const std::vector<DeviceLink> pairs = {{0, 1, 4}, {0, 2, 4}, {0, 3, 4}, {1, 2, 4}, {1, 3, 4}, {2, 3, 4}};
  return {{"a100-perlmutter",
           "Perlmutter",
           "NVIDIAA100-SXM4-80GB",
           "a100-80g",
           108,
           {"Perlmutter", BytesPerSecond(300 * kGigabyte), pairs, 4, 4, BytesPerSecond(200 * kGigabit)}},
          {"gh200-vista",
           "Vista",
           "NVIDIAGH200120GB",
           "gh200",
           132,
           {"Vista", BytesPerSecond(0), {}, 1, 1, BytesPerSecond(400 * kGigabit)}}};
}

void add(Measurement& measurement, SampleKey key, double seconds) {
  if (!measurement.has(key)) measurement.samples.push_back({std::move(key), {seconds}, std::nullopt});
}

SampleKey message(SampleKind kind, double bytes, int ranks, int nodes) {
  SampleKey key;
  key.kind = kind;
  key.bytes = bytes;
  key.ranks = ranks;
  key.nodes = nodes;
  return key;
}

// Sizes within an eighth of an octave are merged into their median: a thousand sizes carry no more information.
void add_curve(Measurement& measurement, SampleKind kind, int ranks, int nodes,
               const std::vector<std::pair<double, double>>& points) {
  constexpr double kPerOctave = 8.0;
  std::map<int, std::pair<std::vector<double>, std::vector<double>>> near;
  for (const auto& [bytes, seconds] : points) {
    auto& [sizes, times] = near[static_cast<int>(std::lround(kPerOctave * std::log2(bytes)))];
    sizes.push_back(bytes);
    times.push_back(seconds / bytes);
  }
  for (const auto& [octave, both] : near) {
    const double bytes = median_of(both.first);
    add(measurement, message(kind, bytes, ranks, nodes), bytes * median_of(both.second));
  }
}

void add_products(Measurement& measurement, const std::filesystem::path& folder, const Machine& machine) {
  const std::map<std::string, std::function<SampleShape(const Row&)>> shapes = {
      {"linear1",
       [](const Row& row) {
         return SampleShape{0, static_cast<int>(3 * row.at("dim") / row.at("mp")), static_cast<int>(row.at("dim"))};
       }},
      {"linear2",
       [](const Row& row) {
         return SampleShape{0, static_cast<int>(row.at("dim") / row.at("mp")), static_cast<int>(row.at("dim"))};
       }},
      {"linear3",
       [](const Row& row) {
         return SampleShape{0, static_cast<int>(4 * row.at("dim") / row.at("mp")), static_cast<int>(row.at("dim"))};
       }},
      {"linear4", [](const Row& row) {
         return SampleShape{0, static_cast<int>(row.at("dim")), static_cast<int>(4 * row.at("dim") / row.at("mp"))};
       }}};
  std::map<std::string, std::pair<SampleKey, std::vector<double>>> pooled;
  for (const auto& [table, shape] : shapes) {
    for (const Row& row : read_operator_table(folder / fmt::format("{}_{}_fp16.csv", machine.name, table)).rows) {
      SampleKey key;
      key.dtype = "fp16";
      key.shape = shape(row);
      key.shape->m = static_cast<int>(row.at("b") * row.at("l"));
      auto& [known, seconds] = pooled[key.text()];
      known = key;
      seconds.push_back(row.at("F_dur(us)") * 1e-6);
    }
  }
  for (const auto& [text, both] : pooled) {
    measurement.samples.push_back({both.first, {median_of(both.second)}, std::nullopt});
  }
}

void add_kernels(Measurement& measurement, const std::filesystem::path& folder, const Machine& machine) {
  const auto table = [&](const char* name) {
    return read_operator_table(folder / fmt::format("{}_{}_fp16.csv", machine.name, name)).rows;
  };
  const auto add_memory = [&](SampleKind kind, const char* name, double bytes, double seconds) {
    SampleKey key;
    key.kind = kind;
    key.op = name;
    key.bytes = bytes;
    add(measurement, key, seconds);
  };
  for (const Row& row : table("layernorm")) {
    const double elements = row.at("b") * row.at("l") * row.at("dim");
    add_memory(SampleKind::kNorm, "layernorm forward", 2 * kHalfBytes * elements, row.at("F_dur(us)") * 1e-6);
  }
  for (const Row& row : table("res_add")) {
    const double elements = row.at("b") * row.at("l") * row.at("dim");
    add_memory(SampleKind::kElementwise, "residual add", 3 * kHalfBytes * elements, row.at("F_dur(us)") * 1e-6);
  }
  for (const Row& row : table("gelu")) {
    const double elements = row.at("b") * row.at("l") * 4 * row.at("dim") / row.at("mp");
    add_memory(SampleKind::kElementwise, "gelu forward", 2 * kHalfBytes * elements, row.at("F_dur(us)") * 1e-6);
  }
  constexpr double kCommonDimension = 128.0;
  for (const Row& row : table("flash_atten")) {
    if (row.at("dim") / row.at("h") != kCommonDimension) continue;
    SampleKey key;
    key.dtype = "fp16";
    key.attention = AttentionShape{static_cast<int>(row.at("b")), static_cast<int>(row.at("h") / row.at("mp")),
                                   static_cast<int>(row.at("l")), static_cast<int>(kCommonDimension), true};
    key.kind = SampleKind::kAttentionForward;
    add(measurement, key, row.at("F_dur(us)") * 1e-6);
    // The GH200's backward times are shorter than the forward times, and beyond its peak, so they are not times of a
    // pass.
    if (std::string(machine.device) == "gh200") continue;
    key.kind = SampleKind::kAttentionBackward;
    add(measurement, key, row.at("B_dur(us)") * 1e-6);
  }
}

// ..._fp16_NODES_DEVICES.csv; sizes are numbers of fp16 elements. Tables with messages that were not sent, and tables
// that scatter without a pattern, are skipped.
void add_messages(Measurement& measurement, const std::filesystem::path& folder, const Machine& machine) {
  const std::vector<std::pair<std::string, SampleKind>> kinds = {
      {"allreduce", sample_of(CollectiveKind::kAllReduce)},
      {"allgather_large", sample_of(CollectiveKind::kAllGather)},
      {"p2p", SampleKind::kPointToPoint}};
  for (const auto& [name, kind] : kinds) {
    for (const auto& [nodes, devices] : {std::pair{1, 2}, {1, 4}, {2, 1}, {2, 2}, {2, 4}, {4, 1}, {8, 1}}) {
      const bool scatters =
          kind == sample_of(CollectiveKind::kAllGather) && (devices == 4 || std::string(machine.folder) == "Vista");
      std::vector<std::pair<double, double>> points;
      for (const char* range : {"", "_large"}) {
        if (range[0] != '\0' && name.find("large") != std::string::npos) continue;
        const auto file = folder / fmt::format("{}_{}{}_fp16_{}_{}.csv", machine.name, name, range, nodes, devices);
        if (scatters || !std::filesystem::exists(file)) continue;
        for (const Row& row : read_operator_table(file).rows) {
          points.emplace_back(row.at("shape") * kHalfBytes, row.at("dur(us)") * 1e-6);
        }
      }
      if (!points.empty()) add_curve(measurement, kind, nodes * devices, nodes, points);
    }
  }
}

DeviceProfile profile_of(const Machine& machine, const std::filesystem::path& reference) {
  const auto folder = reference / "measured" / "estimate-train-time" / machine.folder;
  Measurement measurement;
  measurement.device = machine.name;
  measurement.multiprocessors = machine.multiprocessors;
  measurement.date = "2025-09-27";
  add_products(measurement, folder / "operator", machine);
  add_kernels(measurement, folder / "operator", machine);
  add_messages(measurement, folder / "nccl", machine);
  ProfileRequest request;
  request.name = machine.profile;
  request.device = machine.device;
  request.confidence = "imported";
  request.source = fmt::format("operator and NCCL tables of {}, estimate-train-time (2509.22832)", machine.folder);
  DeviceProfile profile = build_profile(measurement, request);
  profile.measured_links = machine.links;
  return profile;
}

// Links described only by published figures.
struct Links {
  const char* profile;
  const char* device;
  std::vector<std::string> words;  ///< selects tables whose hardware and source contain all of these words
  const char* cluster;             ///< cluster of the catalogue with the same links
};

DeviceProfile profile_of(const Links& links, const std::filesystem::path& reference) {
  const Json tables = Json::parse(read_text(reference / "nccl_measured.json"));
  const std::map<std::string, SampleKind> kinds = {{"all_reduce", sample_of(CollectiveKind::kAllReduce)},
                                                   {"all_gather", sample_of(CollectiveKind::kAllGather)},
                                                   {"reduce_scatter", sample_of(CollectiveKind::kReduceScatter)},
                                                   {"alltoall", sample_of(CollectiveKind::kAllToAll)}};
  Measurement measurement;
  std::string source;
  for (const std::string& words : links.words) {
    for (const Json& table : tables) {
      const std::string hardware = table.at("hw");
      const std::string from = table.at("source");
      const auto kind = kinds.find(table.at("collective"));
      if ((hardware + from).find(words) == std::string::npos || kind == kinds.end()) continue;
      if (table.at("rows").size() < 9) continue;
      for (const Json& row : table.at("rows")) {
        add(measurement, message(kind->second, row.at(0), table.at("ranks").get<int>(), table.at("nodes").get<int>()),
            row.at(1).get<double>() * 1e-6);
      }
      const std::string repository = from.substr(0, from.find(' '));
      if (source.find(repository) == std::string::npos) source += (source.empty() ? "" : ", ") + repository;
    }
  }
  measurement.date = "2026-11-21";  // date of reading, because the tables have none
  ProfileRequest request;
  request.name = links.profile;
  request.device = links.device;
  request.confidence = "published";
  request.source = "nccl-tests tables of " + source;
  DeviceProfile profile = build_profile(measurement, request);
  profile.cluster["device"] = {{"name", links.device}};
  const Json cluster = {{"model", "gpt2-124m"}, {"cluster", links.cluster}, {"layout", {{"global_batch_size", 8}}}};
  const Cluster alike = read_job(cluster, {}).cluster;
  profile.measured_links = {alike.name,          alike.intra_bandwidth, alike.links, alike.devices_per_node,
                            alike.nics_per_node, alike.nic_bandwidth};
  return profile;
}

// Kernels described by their fractions of the peak.
struct Kernels {
  const char* profile;
  const char* file;
  const char* name;
  const char* device;
  int multiprocessors;
};
constexpr Kernels kKernels[] = {{"a100-pcie-simumax", "a100_pcie.json", "NVIDIA A100 PCIe 80 GB", "a100-80g-pcie", 108},
                                {"b200-simumax", "b200_bf16_ceperm.json", "NVIDIA B200", "b200", 148}};

DeviceProfile profile_of(const Kernels& kernels, const std::filesystem::path& reference) {
  Measurement measurement = read_simumax_kernels(reference / "measured" / "simumax" / kernels.file);
  measurement.device = kernels.name;
  measurement.multiprocessors = kernels.multiprocessors;
  measurement.date = "2026-11-21";  // date of reading, because the file has none
  ProfileRequest request;
  request.name = kernels.profile;
  request.device = kernels.device;
  request.confidence = "published";
  request.source =
      fmt::format("shares of the peak by shape, configs/system/{} of github.com/MooreThreads/SimuMax", kernels.file);
  return build_profile(measurement, request);
}

// The shipped part of a profile: everything but the points.
Json without_points(const DeviceProfile& profile) {
  Json json = Json::parse(write_profile(profile));
  for (Json& fit : json.at("fits")) fit.erase("points");
  return json;
}

void compare(const Json& shipped, const Json& fitted, const std::string& place) {
  constexpr double kTolerance = 0.02;
  ASSERT_EQ(shipped.type() == Json::value_t::object, fitted.type() == Json::value_t::object) << place;
  if (fitted.is_object()) {
    for (const auto& item : fitted.items()) {
      ASSERT_TRUE(shipped.contains(item.key())) << place << "." << item.key();
      compare(shipped.at(item.key()), item.value(), place + "." + item.key());
    }
  } else if (fitted.is_number()) {
    const double expected = fitted.get<double>();
    EXPECT_NEAR(shipped.get<double>(), expected, kTolerance * std::abs(expected) + 1e-12) << place;
  } else if (!fitted.is_array()) {
    EXPECT_EQ(shipped, fitted) << place;
  }
}

void check_or_write(const DeviceProfile& profile) {
  const Json fitted = without_points(profile);
  for (const Json& fit : fitted.at("fits")) {
    std::cout << fmt::format("{:<18} {:<36} median {:5.1f} %  p95 {:5.1f} %  left out {:5.1f} %\n", profile.name,
                             fit.at("what").get<std::string>(), 1e2 * fit.at("median_error").get<double>(),
                             1e2 * fit.at("p95_error").get<double>(),
                             1e2 * fit.at("left_out_median_error").get<double>());
  }
  if (std::getenv("FLOPCAST_BLESS") != nullptr) {
    write_text(project_folder() / "model" / "catalog" / "profiles" / (profile.name + ".json"), fitted.dump(1) + "\n");
    return;
  }
  const Json shipped = shipped_profile(profile.name);
  ASSERT_FALSE(shipped.is_null()) << profile.name;
  compare(shipped, fitted, profile.name);
  ASSERT_EQ(shipped.at("curves").size(), fitted.at("curves").size());
  ASSERT_EQ(shipped.at("fits").size(), fitted.at("fits").size());
  for (std::size_t index = 0; index < fitted.at("fits").size(); ++index) {
    compare(shipped.at("fits").at(index), fitted.at("fits").at(index), profile.name + ".fits");
  }
}

TEST(ShippedProfiles, AreFittedToTheTablesTheyName) {
  const auto reference = reference_folder();
  if (!reference || !std::filesystem::is_directory(*reference / "measured" / "estimate-train-time")) {
    GTEST_SKIP() << "no reference folder: the shipped profiles were not fitted again";
  }
  for (const Machine& machine : machines()) check_or_write(profile_of(machine, *reference));
}

TEST(ShippedProfiles, LinksAreThoseOfPublishedTables) {
  const auto reference = reference_folder();
  if (!reference) GTEST_SKIP() << "no reference folder: the shipped links were not fitted again";
  const std::vector<Links> all = {{"h100-nccl",
                                   "h100",
                                   {"8x H100 80GB HBM3 (NVSwitch)", "8x H100 (NVSwitch, DEVICE_BW=900)",
                                    "16x H100 80GB, 2x p5.48xlarge EFA 3200Gbps"},
                                   "p5"},
                                  {"a100-nccl", "a100-80g", {"x A100 (NVLink node)"}, "dgx-a100-80g"},
                                  {"v100-nccl", "v100-32g", {"8x V100 (NVLink node)"}, "dgx-v100"}};
  for (const Links& links : all) check_or_write(profile_of(links, *reference));
}

TEST(ShippedProfiles, KernelsAreFittedToPublishedShares) {
  const auto reference = reference_folder();
  if (!reference || !std::filesystem::is_directory(*reference / "measured" / "simumax")) {
    GTEST_SKIP() << "no reference folder: the shipped kernels were not fitted again";
  }
  for (const Kernels& kernels : kKernels) check_or_write(profile_of(kernels, *reference));
}

// Tested even without the tables.
TEST(ShippedProfiles, NameSourceDateResidualsAndConfidence) {
  const std::vector<std::string> names = shipped_profile_names();
  ASSERT_GE(names.size(), 7u);
  for (const std::string& name : names) {
    const DeviceProfile profile = read_device_profile(shipped_profile(name), "profile", {});
    EXPECT_EQ(profile.name, name);
    EXPECT_FALSE(profile.source.empty()) << name;
    EXPECT_FALSE(profile.date.empty()) << name;
    EXPECT_TRUE(profile.cluster.at("device").contains("name")) << name;
    EXPECT_TRUE(profile.confidence == "imported" || profile.confidence == "published") << name;
    ASSERT_FALSE(profile.fits.empty()) << name;
    for (const ProfileFit& fit : profile.fits) {
      EXPECT_TRUE(fit.points.empty()) << name;
      EXPECT_LT(fit.median_error, 0.12) << name << " " << fit.what;
    }
  }
  EXPECT_TRUE(shipped_profile("no-such").is_null());
}

}  // namespace
}  // namespace flopcast
