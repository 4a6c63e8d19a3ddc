// From a measurement made with known figures to a profile, and from the profile to a job.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "calibrate/device/build_profile.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/cost/collectives.hpp"
#include "model/cost/compute.hpp"
#include "model/job/read_job.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

constexpr double kPeak = 100e9;
constexpr double kMemory = 10e9;
constexpr double kAlpha = 3e-6;
constexpr double kLink = 5e9;

Device core() {
  Device device;
  device.multiprocessors = 1;
  device.gemm_kernel = {16, 8.0, 2.0, false};
  device.gemm_efficiency = 1.0;
  device.peak.fill(FlopsPerSecond(kPeak));
  device.memory_bandwidth = BytesPerSecond(kMemory);
  device.kernel_launch = Seconds(1e-6);
  return device;
}

Measurement measured_host() {
  Measurement measurement;
  measurement.device = "a core";
  measurement.host = "box";
  measurement.date = "2026-01-02";
  measurement.memory_bytes = 8 * kGibibyte;
  const Device device = core();
  const ComputeModel model(device, Precision::kFp32);
  for (const int m : {32, 100, 256, 512}) {
    for (const int n : {64, 256, 1000}) {
      for (const int k : {16, 128, 512}) {
        const double time = model.gemm({m, n, k, 1}, 4.0).value();
        measurement.samples.push_back(
            {{SampleKind::kGemm, SampleShape{m, n, k}, std::nullopt, 1, 1, "fp32", 1}, {time}, std::nullopt});
      }
    }
  }
  for (double bytes = 1024; bytes <= 1 << 26; bytes *= 2) {
    const auto add = [&](SampleKind kind, int ranks, double time) {
      measurement.samples.push_back({{kind, std::nullopt, bytes, ranks, 1, "", 1}, {time}, std::nullopt});
    };
    add(SampleKind::kMemoryCopy, 1, bytes / kMemory);
    add(SampleKind::kPointToPoint, 2, kAlpha + bytes / kLink);
    add(sample_of(CollectiveKind::kAllReduce), 4, 2 * kAlpha + 3 * bytes / kLink);
    add(sample_of(CollectiveKind::kBroadcast), 4, kAlpha);
  }
  return measurement;
}

ProfileRequest host_request() {
  ProfileRequest request;
  request.source = "a test";
  request.confidence = "measured";
  request.host = true;
  return request;
}

Job job_with(const Json& profile, const Json& cluster) {
  Json root = {{"model", "gpt2-124m"},
               {"layout", {{"global_batch_size", 16}}},
               {"training", {{"precision", "fp32"}, {"profile", profile}}}};
  if (!cluster.is_null()) root["cluster"] = cluster;
  Origins origins;
  origins.file = "job.json";
  return read_job(root, origins);
}

Diagnostic message_of(const Json& profile, const Json& cluster) {
  try {
    job_with(profile, cluster);
  } catch (const ConfigError& error) {
    return error.diagnostic();
  }
  return {};
}

TEST(DeviceProfile, AHostIsAWholeCluster) {
  const Json profile = Json::parse(write_profile(build_profile(measured_host(), host_request())));
  const Json schema = Json::parse(read_text(project_folder() / "docs" / "schema" / "profile-1.schema.json"));
  EXPECT_EQ(schema_violation(schema, profile), "");
  const Job job = job_with(profile, nullptr);
  EXPECT_EQ(job.cluster.devices(), 4);
  EXPECT_EQ(job.cluster.device.name, "a core");
  EXPECT_NEAR(job.cluster.device.memory_bandwidth.value(), kMemory, 1e-3 * kMemory);
  EXPECT_NEAR(gibibytes(job.cluster.device.memory_capacity), 2.0, 1e-9) << "four ranks share 8 GiB";
  const GemmShape unseen{300, 300, 300, 1};
  const Device truth = core();
  const double expected = ComputeModel(truth, Precision::kFp32).gemm(unseen, 4.0).value();
  EXPECT_NEAR(ComputeModel(job.cluster.device, Precision::kFp32).gemm(unseen, 4.0).value(), expected, 0.02 * expected);
}

TEST(DeviceProfile, MeasuredCurvesPriceTheirGroupsAndOthersOnTheSameLinks) {
  const Json profile = Json::parse(write_profile(build_profile(measured_host(), host_request())));
  const Job job = job_with(profile, nullptr);
  const CommunicationModel with(job.cluster);
  Cluster without_curves = job.cluster;
  without_curves.curves.clear();
  const CommunicationModel without(without_curves);
  const Bytes bytes(5e6);
  EXPECT_NEAR(with.collective(CollectiveKind::kAllReduce, bytes, {4, 1, 4, 1}).value(), 2 * kAlpha + 3 * 5e6 / kLink,
              1e-6);
  // The measured all-reduce is slower than the model's, so other collectives become slower too.
  EXPECT_GT(with.collective(CollectiveKind::kAllReduce, bytes, {2, 1, 2, 1}),
            without.collective(CollectiveKind::kAllReduce, bytes, {2, 1, 2, 1}));
  EXPECT_GT(with.collective(CollectiveKind::kAllGather, bytes, {4, 1, 4, 1}),
            without.collective(CollectiveKind::kAllGather, bytes, {4, 1, 4, 1}));
  EXPECT_NEAR(with.point_to_point(bytes, false, 1).value(), kAlpha + 5e6 / kLink, 1e-6);
  EXPECT_EQ(with.point_to_point(bytes, true, 1), without.point_to_point(bytes, true, 1));
}

TEST(DeviceProfile, GroupsThatShareCardsAreNotThoseThatWereMeasured) {
  Cluster cluster = job_with(Json::parse(R"({"schema": "flopcast.profile/1", "name": "n", "source": "s",
    "confidence": "published"})"),
                             "2xdgx-a100-80g")
                        .cluster;
  cluster.curves.push_back({CollectiveKind::kAllReduce, 2, 2, MessageCurve({{Bytes(0), Seconds(1.0), 0.0}})});
  const CommunicationModel model(cluster);
  EXPECT_EQ(model.collective(CollectiveKind::kAllReduce, Bytes(1e6), {2, 2, 1, 1}).value(), 1.0);
  // But their links are the same: the excess over the model applies to eight of them as well.
  const double shared = model.collective(CollectiveKind::kAllReduce, Bytes(1e6), {2, 2, 1, 8}).value();
  EXPECT_NEAR(shared, 1.0, 0.01);
}

Json partial_profile() {
  return Json::parse(R"({"schema": "flopcast.profile/1", "name": "our A100", "source": "we", "date": "2026-01-02",
    "confidence": "measured",
    "cluster": {"intra_latency": "5us", "device": {"name": "a100-80g", "gemm_efficiency": 0.7}},
    "curves": [{"kind": "all_reduce", "ranks": 8, "segments": [{"from_bytes": 0, "alpha_s": 1e-5, "beta_s_per_byte": 1e-11}]}],
    "fits": [{"what": "gemm bf16", "unit": "FLOP", "median_error": 0.03, "p95_error": 0.1, "largest_error": 0.2,
      "left_out_median_error": 0.04, "points": []}]})");
}

bool says(const Job& job, const std::string& part) {
  return std::any_of(job.assumptions.begin(), job.assumptions.end(),
                     [&part](const std::string& sentence) { return sentence.find(part) != std::string::npos; });
}

TEST(DeviceProfile, OverridesTheCatalogueAndIsOverridden) {
  const Job plain = job_with(Json::parse(R"({"schema": "flopcast.profile/1", "name": "n", "source": "s",
    "confidence": "published"})"),
                             "dgx-a100-80g");
  const Job job = job_with(partial_profile(), "dgx-a100-80g");
  EXPECT_EQ(job.cluster.device.gemm_efficiency, 0.7);
  EXPECT_DOUBLE_EQ(job.cluster.intra_latency.value(), 5e-6);
  EXPECT_EQ(job.cluster.device.memory_bandwidth, plain.cluster.device.memory_bandwidth);
  EXPECT_EQ(job.cluster.intra_bandwidth, plain.cluster.intra_bandwidth);
  const Job overridden = job_with(partial_profile(), {{"name", "dgx-a100-80g"},
                                                      {"intra_latency", "9us"},
                                                      {"device", {{"name", "a100-80g"}, {"gemm_efficiency", 0.6}}}});
  EXPECT_DOUBLE_EQ(overridden.cluster.intra_latency.value(), 9e-6);
  EXPECT_EQ(overridden.cluster.device.gemm_efficiency, 0.6);
  EXPECT_TRUE(says(job, "profile our A100 (we, 2026-01-02, measured) sets the cluster's device.gemm_efficiency"));
  EXPECT_TRUE(says(job, "set the times of all_reduce of 8 ranks;"));
  EXPECT_TRUE(says(job, "gemm bf16 has a median error of 3.0 %"));
}

// Pairs of links inside nodes of four, four cards; each curve is ten times as slow as the model.
Json profile_of_links() {
  return Json::parse(R"({"schema": "flopcast.profile/1", "name": "theirs", "source": "they", "confidence": "published",
    "cluster": {"device": {"name": "a100-80g"}},
    "curves": [
      {"kind": "all_reduce", "ranks": 4, "segments": [{"from_bytes": 0, "alpha_s": 1e-5, "beta_s_per_byte": 6e-11}]},
      {"kind": "all_reduce", "ranks": 8, "nodes": 2,
       "segments": [{"from_bytes": 0, "alpha_s": 1e-5, "beta_s_per_byte": 2e-10}]}],
    "measured_links": {"name": "Theirs", "intra_bandwidth": "300GB/s",
      "links": [{"one": 0, "other": 1, "links": 4}, {"one": 0, "other": 2, "links": 4}, {"one": 0, "other": 3, "links": 4},
                {"one": 1, "other": 2, "links": 4}, {"one": 1, "other": 3, "links": 4}, {"one": 2, "other": 3, "links": 4}],
      "devices_per_node": 4, "nics_per_node": 4, "nic_bandwidth": "200Gbit/s"}})");
}

TEST(DeviceProfile, CurvesOfAnotherFabricSayNothing) {
  const Json profile = profile_of_links();
  const Json theirs = {{"name", "dgx-a100-80g"},
                       {"nodes", 2},
                       {"devices_per_node", 4},
                       {"links", profile["measured_links"]["links"]},
                       {"nics_per_node", 4}};
  EXPECT_EQ(job_with(profile, theirs).cluster.curves.size(), 2u);
  // The same links, with pairs in another order and links counted one at a time.
  Json reordered = theirs;
  reordered["links"][0] = {{"one", 1}, {"other", 0}, {"links", 3}};
  reordered["links"].push_back({{"one", 0}, {"other", 1}});
  EXPECT_EQ(job_with(profile, reordered).cluster.curves.size(), 2u);
  // Either fabric may differ alone: a switch inside the nodes, or other cards between them.
  Json switched = theirs;
  switched.erase("links");
  const Job between = job_with(profile, switched);
  ASSERT_EQ(between.cluster.curves.size(), 1u);
  EXPECT_EQ(between.cluster.curves[0].nodes, 2);
  EXPECT_TRUE(says(
      between, "curves of all_reduce of 4 ranks were measured on Theirs's links and do not apply to the cluster's"));
  EXPECT_TRUE(says(between, "set the times of all_reduce of 8 ranks on 2 nodes;"));
  for (const auto& [key, value] :
       {std::pair<const char*, Json>{"nics_per_node", 8}, {"nic_bandwidth", "100Gbit/s"}, {"devices_per_node", 8}}) {
    Json other = theirs;
    other[key] = value;
    const Job inside = job_with(profile, other);
    ASSERT_EQ(inside.cluster.curves.size(), 1u) << key;
    EXPECT_EQ(inside.cluster.curves[0].nodes, 1) << key;
  }
  // The user's own measurements do not state their links: they apply to the links of the job that uses them.
  Json own = profile;
  own.erase("measured_links");
  EXPECT_EQ(job_with(own, "2xdgx-a100-80g").cluster.curves.size(), 2u);
  // If nothing of a message profile applies, the user gets an error.
  const Diagnostic told = message_of(profile, "2xdgx-a100-80g");
  EXPECT_EQ(told.field, "training.profile");
  EXPECT_NE(told.problem.find("measured on links of Theirs, but cluster dgx-a100-80g has others"), std::string::npos);
  Json with_figures = profile;
  with_figures["cluster"]["device"]["gemm_efficiency"] = 0.7;
  EXPECT_TRUE(job_with(with_figures, "2xdgx-a100-80g").cluster.curves.empty());
  // Keys that are needed to decide where a curve applies.
  for (const char* key : {"name", "intra_bandwidth", "devices_per_node", "nics_per_node", "nic_bandwidth"}) {
    Json without = profile;
    without["measured_links"].erase(key);
    EXPECT_EQ(message_of(without, theirs).field, std::string("training.profile.measured_links.") + key);
  }
}

TEST(DeviceProfile, LinksSurviveARoundTrip) {
  const DeviceProfile profile = read_device_profile(profile_of_links(), "profile", {});
  const Json written = Json::parse(write_profile(profile));
  EXPECT_EQ(written["measured_links"],
            Json::parse(write_profile(read_device_profile(written, "profile", {})))["measured_links"]);
  EXPECT_EQ(written["measured_links"]["links"].size(), 6u);
  EXPECT_EQ(written["measured_links"]["nics_per_node"], 4);
  const Json schema = Json::parse(read_text(project_folder() / "docs" / "schema" / "profile-1.schema.json"));
  EXPECT_EQ(schema_violation(schema, written), "");
}

TEST(DeviceProfile, ProductsTimedAloneRunAtWhatAStepSustains) {
  constexpr double kSustained = 0.93;  // the catalogue's A100
  Json profile = partial_profile();
  profile["cluster"]["device"] = {{"name", "a100-80g"}, {"kernel_efficiency", 0.85}};
  const Job job = job_with(profile, "dgx-a100-80g");
  EXPECT_DOUBLE_EQ(job.cluster.device.gemm_efficiency, 0.85 * kSustained);
  EXPECT_TRUE(says(job, "GEMMs on a100-80g reach 0.85 of the peak alone, and 0.93 of that rate in a training step"));
  // A figure that the job states takes precedence, whichever of the two it is.
  const auto with = [&profile](const Json& device) {
    return job_with(profile, {{"name", "dgx-a100-80g"}, {"device", device}}).cluster.device.gemm_efficiency;
  };
  EXPECT_DOUBLE_EQ(with({{"name", "a100-80g"}, {"gemm_efficiency", 0.6}}), 0.6);
  EXPECT_DOUBLE_EQ(with({{"name", "a100-80g"}, {"sustained_share", 0.5}}), 0.85 * 0.5);
  EXPECT_DOUBLE_EQ(with({{"name", "a100-80g"}, {"kernel_efficiency", 0.8}}), 0.8 * kSustained);
  // The catalogue has no comparison of kernels and steps for MI300X.
  profile["cluster"]["device"]["name"] = "mi300x";
  profile["cluster"]["intra_bandwidth"] = "300GB/s";
  profile["cluster"]["nic_bandwidth"] = "50GB/s";
  const Job unknown = job_with(profile, {{"devices_per_node", 8}, {"intra_latency", "5us"}, {"inter_latency", "9us"}});
  EXPECT_DOUBLE_EQ(unknown.cluster.device.gemm_efficiency, 0.85);
  EXPECT_TRUE(says(unknown, "no measurement compares the two"));
  profile["cluster"]["device"] = {{"name", "a100-80g"}, {"kernel_efficiency", 1.5}};
  EXPECT_EQ(message_of(profile, "dgx-a100-80g").field, "cluster.device.kernel_efficiency");
}

TEST(DeviceProfile, AJobsOwnEfficiencyWinsOverTheProfilesPrecisions) {
  constexpr double kSustained = 0.93;  // the catalogue's A100
  for (const char* by_precision : {"kernel_efficiency_by_precision", "gemm_efficiency_by_precision"}) {
    Json profile = partial_profile();
    profile["cluster"]["device"] = {{"name", "a100-80g"}, {"kernel_efficiency", 0.85}};
    profile["cluster"]["device"][by_precision] = {{"fp32", 0.7}, {"bf16", 0.8}};
    const auto efficiency = [&profile](const Json& own) {
      Json device = {{"name", "a100-80g"}};
      device.update(own);
      return job_with(profile, {{"name", "dgx-a100-80g"}, {"device", device}})
          .cluster.device.gemm_efficiency_of(Precision::kFp32);
    };
    EXPECT_NEAR(efficiency(Json::object()), by_precision[0] == 'k' ? 0.7 * kSustained : 0.7, 1e-12) << by_precision;
    EXPECT_DOUBLE_EQ(efficiency({{"gemm_efficiency", 0.5}}), 0.5) << by_precision;
    EXPECT_DOUBLE_EQ(efficiency({{"kernel_efficiency", 0.5}}), 0.5 * kSustained) << by_precision;
    EXPECT_DOUBLE_EQ(efficiency({{"gemm_efficiency", 0.5}, {by_precision, {{"bf16", 0.4}}}}), 0.5) << by_precision;
  }
}

TEST(DeviceProfile, WithoutOneKernelsChangeNothing) {
  const Job job = job_with(Json::parse(R"({"schema": "flopcast.profile/1", "name": "n", "source": "s",
    "confidence": "published"})"),
                           "dgx-a100-80g");
  EXPECT_EQ(job.cluster.device.gemm_efficiency,
            catalogue_values(CatalogueKind::kDevices, "a100-80g").at("gemm_efficiency").get<double>());
  EXPECT_FALSE(says(job, "of the peak alone"));
}

TEST(DeviceProfile, ComplaintsTellTheField) {
  EXPECT_NE(message_of(partial_profile(), "dgx-h100").problem.find("measured on device a100-80g"), std::string::npos);
  Json profile = partial_profile();
  profile["schema"] = "flopcast.measurement/1";
  EXPECT_EQ(message_of(profile, "dgx-a100-80g").field, "training.profile.schema");
  profile = partial_profile();
  profile["curves"][0]["segments"][0]["from_bytes"] = 8;
  EXPECT_EQ(message_of(profile, "dgx-a100-80g").field, "training.profile.curves.0.segments.0.from_bytes");
  profile = partial_profile();
  profile["curves"].push_back(profile["curves"][0]);
  EXPECT_NE(message_of(profile, "dgx-a100-80g").problem.find("given twice"), std::string::npos);
  profile = partial_profile();
  profile["cluster"]["intra_latence"] = "5us";
  EXPECT_EQ(message_of(profile, "dgx-a100-80g").field, "cluster.intra_latence");
  profile = partial_profile();
  profile["confidence"] = "sure";
  EXPECT_EQ(message_of(profile, "dgx-a100-80g").field, "training.profile.confidence");
  EXPECT_EQ(message_of("missing.json", "dgx-a100-80g").field, "training.profile");
}

TEST(DeviceProfile, NothingUsefulIsRefused) {
  Measurement measurement = measured_host();
  std::erase_if(measurement.samples,
                [](const Sample& s) { return s.key.kind != sample_of(CollectiveKind::kBroadcast); });
  EXPECT_THROW(build_profile(measurement, host_request()), ConfigError);
  measurement = measured_host();
  std::erase_if(measurement.samples, [](const Sample& s) { return s.key.kind == SampleKind::kPointToPoint; });
  EXPECT_THROW(build_profile(measurement, host_request()), ConfigError);
  measurement = measured_host();
  ProfileRequest device = host_request();
  device.host = false;
  EXPECT_THROW(build_profile(measurement, device), ConfigError) << "no peak without a catalogue device";
  device.device = "a100-80g";
  EXPECT_EQ(build_profile(measurement, device).cluster.at("device").at("name"), "a100-80g");
}

}  // namespace
}  // namespace flopcast
