#include "tests/property/random_jobs.hpp"

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"
#include "model/job/user_spelling.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/support/folders.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::json;

// Four nodes around a switch.
const Json& cables() {
  static const Json four = Json::parse(R"([{"from": "node0", "to": "leaf", "bandwidth": "40GB/s"},
    {"from": "node1", "to": "leaf", "bandwidth": "50GB/s"}, {"from": "leaf", "to": "node2", "bandwidth": "60GB/s"},
    {"from": "node3", "to": "leaf", "bandwidth": "70GB/s"}])");
  return four;
}

constexpr const char* kTwoRanks = "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n";

}  // namespace

const char* two_ranks_csv() {
  return kTwoRanks;
}

const std::vector<Json>& job_beginnings() {
  static const std::vector<Json> jobs = [] {
    std::vector<Json> all;
    const Json dense = Json::parse(R"({
      "model": {"name": "gpt3-125m", "layers": 8}, "cluster": {"name": "dgx-a100-80g", "nodes": 2},
      "layout": {"tp": 2, "pp": 2, "global_batch_size": 64}, "training": {"stack": "megatron-2022"}})");
    all.push_back(dense);
    Json experts = dense;
    experts["model"] = {{"name", "mixtral-8x7b"}, {"layers", 4}};
    experts["layout"] = {{"ep", 4}, {"pp", 2}, {"global_batch_size", 64}};
    all.push_back(experts);
    Json latent = experts;
    latent["model"] = {{"name", "deepseek-v3"}, {"layers", 4}, {"experts", {{"count", 16}, {"first_dense_layers", 1}}}};
    all.push_back(latent);
    Json searched = dense;
    searched["layout"]["schedule"] = "v-auto";
    all.push_back(searched);
    Json sliced = dense;
    sliced["layout"]["schedule"] = "terapipe";
    all.push_back(sliced);
    Json context = dense;
    context["layout"] = {{"cp", 2}, {"tp", 2}, {"global_batch_size", 64}};
    all.push_back(context);
    context["layout"] = {
        {"cp", 8}, {"context_parallel", "hierarchical"}, {"context_inner", 2}, {"global_batch_size", 64}};
    all.push_back(context);
    Json grid = dense;
    grid["layout"] = {{"tp", 8},
                      {"tensor_parallel", "2.5d"},
                      {"tensor_depth", 2},
                      {"micro_batch_size", 4},
                      {"global_batch_size", 64}};
    grid["model"] = {{"name", "gpt3-13b"}, {"layers", 4}};
    all.push_back(grid);
    Json sharded = dense;
    sharded["layout"] = {{"data_parallel", "hsdp"}, {"global_batch_size", 64}};
    all.push_back(sharded);
    Json served = dense;
    served["layout"] = {{"data_parallel", "ps"}, {"global_batch_size", 64}};
    all.push_back(served);
    Json checkpoints = dense;
    checkpoints["layout"]["recompute"] = "full";
    all.push_back(checkpoints);
    checkpoints["layout"]["recompute"] = "selective";
    all.push_back(checkpoints);
    Json from_file = dense;
    from_file["layout"] = Json::parse(R"({"pp": 2, "tp": 2, "schedule": "file:some/where/rows.csv", "chains": "0-1",
      "global_batch_size": 16})");
    from_file["layout"]["schedule_csv"] = kTwoRanks;
    all.push_back(from_file);
    Json asynchronous = dense;
    asynchronous["layout"]["schedule"] = "pipedream-2bw";
    all.push_back(asynchronous);
    Json interleaved = dense;
    interleaved["layout"]["schedule"] = "interleaved:2";
    all.push_back(interleaved);
    Json measured = dense;
    measured["model"] =
        Json::parse(R"({"name": "two", "measured_on": "a GPU", "micro_batch_size": 2, "precision": "fp16",
      "sequence_length": 128, "layers": [
        {"name": "a", "forward_s": 0.0123, "backward_s": 0.0457, "parameter_bytes": 1e7, "output_bytes": 12345},
        {"name": "b", "forward_s": 0.03, "input_gradient_s": 0.04, "weight_gradient_s": 0.01, "activation_bytes": 1e6}]})");
    measured["layout"] = {{"pp", 2}, {"global_batch_size", 64}};
    measured["training"] = {{"precision", "fp16"}};
    all.push_back(measured);
    Json uneven = dense;
    uneven["cluster"]["nodes"] = Json::parse(R"([{"devices": 4}, {"devices": 2, "device": "a100-40g"}])");
    uneven["layout"] = {{"pp", 2}, {"global_batch_size", 63}};
    all.push_back(uneven);
    Json own_cluster = dense;
    own_cluster["cluster"] = job_json(read_job(dense, {})).at("cluster");
    own_cluster["cluster"]["name"] = "ours";
    own_cluster["cluster"]["curves"] = Json::parse(R"([{"kind": "all_reduce", "ranks": 2, "nodes": 1, "segments": [
      {"from_bytes": 0, "alpha_s": 1.3e-5, "beta_s_per_byte": 1.7e-11},
      {"from_bytes": 1e6, "alpha_s": 2e-5, "beta_s_per_byte": 1e-11}]}])");
    all.push_back(own_cluster);
    Json in_8_bits = dense;
    in_8_bits["cluster"] = {{"name", "dgx-h100"}};
    in_8_bits["layout"] = {{"tp", 2}, {"pp", 2}, {"global_batch_size", 64}};
    in_8_bits["training"] = {{"precision", "fp8"}};
    all.push_back(in_8_bits);
    Json cores = own_cluster;
    cores["cluster"]["device"]["generation"] = "cpu";
    cores["cluster"]["device"]["gemm_kernel"] = {{"overhead_depth", 33}, {"overlapped", false}};
    all.push_back(cores);
    Json own_stack = dense;
    own_stack["training"]["stack"] = {{"name", "nemo"}, {"gradient_bytes", 2}, {"host_time_per_kernel", "3.7us"}};
    own_stack["training"]["profile"] =
        Json::parse(read_text(project_folder() / "model" / "catalog" / "profiles" / "a100-nccl.json"));
    all.push_back(own_stack);
    Json wired = dense;
    wired["cluster"] = {{"name", "dgx-a100-80g"}, {"nodes", 4}, {"network", {{"tiers", {{{"nodes", 2}}}}}}};
    wired["layout"] = {{"tp", 4}, {"pp", 2}, {"global_batch_size", 8}};
    all.push_back(wired);
    wired["cluster"]["network"] = {
        {"topology", "rail"}, {"tiers", {{{"nodes", 2}, {"oversubscription", 3}}}}, {"routing", "hash:3"}};
    all.push_back(wired);
    wired["cluster"]["network"] = {{"topology", "torus"}, {"shape", {2, 2}}};
    all.push_back(wired);
    wired["cluster"]["network"] = {{"topology", "links"}, {"links", cables()}};
    all.push_back(wired);
    Json windows = dense;
    windows["model"] = {{"name", "gpt3-13b"}, {"layers", 4}, {"sliding_window", 96}};
    all.push_back(windows);
    Json adapters = dense;
    adapters["training"]["finetune"] = {{"method", "qlora"}, {"rank", 4}};
    adapters["training"]["preference"] = {{"method", "kto"}};
    all.push_back(adapters);
    Json frozen = dense;
    frozen["training"]["finetune"] = {{"method", "freeze"}, {"trainable_layers", 3}};
    frozen["training"]["optimizer"] = "galore";
    all.push_back(frozen);
    Json months = dense;
    months["failures"] = Json::parse(R"({"preset": "alibaba", "spares": 2, "elastic": {"least_dp": 2},
      "checkpoint": {"in_memory": true}, "stragglers": {"share": 0.01, "factor": 1.2},
      "maintenance": {"every": "7d", "lasts": "1h"}})");
    all.push_back(months);
    return all;
  }();
  return jobs;
}

Json some_job_value(const FieldInfo& field, std::size_t seed) {
  const auto pick = [seed](std::initializer_list<Json> values) { return *(values.begin() + seed % values.size()); };
  if (field.key == "compression") return pick({"none", "8bit", "4bit", "topk:0.013", "powersgd:3"});
  if (field.key == "placement") return pick({"tp-cp-dp-pp", "pp-tp-cp-dp", "dp-tp-pp-cp"});
  if (field.key == "stage_layers") return pick({"balanced", "uniform", Json({3, 5}), Json({5, 3}), Json({1, 1})});
  if (field.key == "schedule") return schedule_catalogue()[seed % schedule_catalogue().size()].name;
  if (field.key == "schedule_csv") return kTwoRanks;
  if (field.key == "chains") return "0-1";
  if (field.key == "nccl") return pick({"2.16", "2.21", "2.25"});
  if (field.key == "peak") return Json({{"bf16", "301.7TFLOP/s"}, {"fp16", "299TFLOP/s"}, {"fp32", "19.5TFLOP/s"}});
  if (field.key == "based_on") return pick({"megatron-core", "megatron-2022", "nemo"});
  if (field.key == "curves") {
    return Json::parse(R"([{"kind": "p2p", "ranks": 2, "segments": [
      {"from_bytes": 0, "alpha_s": 7.7e-6, "beta_s_per_byte": 5.1e-11}]}])");
  }
  if (field.key == "causes") {
    return Json::parse(R"([{"name": "gpu", "mtbf": "50000h", "takes": "nothing"},
      {"name": "rack", "per": "rack", "mtbf": "333.3d", "detection": "1.7s", "repair": "2h", "silent": true}])");
  }
  if (field.key == "interval") return pick({"auto", "30min", "1.7h"});
  if (field.key == "every" && field.kind != FieldKind::kWhole) return pick({"7d", "3.5d"});
  if (field.key == "rate") return pick({"0.6 per job month", "1.25 per node year"});
  if (field.key == "tiers") return Json::parse(R"([{"nodes": 1}, {"nodes": 2, "oversubscription": 2.5}])");
  if (field.key == "routing") return pick({"spread", "dst", "hash"});
  if (field.key == "allocation") return pick({"scattered:3", Json({3, 2, 1, 0}), "compact"});
  if (field.key == "shape") return Json({4, 1});
  if (field.key == "degraded") return Json::parse(R"([{"link": "node0.card1.up", "share": 0.5}])");
  if (field.key == "background") return Json::parse(R"([{"from": "tier0.0", "to": "tier0.1", "rate": "3GB/s"}])");
  if (field.key == "links" && field.help.rfind("cables", 0) == 0) return cables();
  if (field.key == "links" && field.kind == FieldKind::kList) {
    return Json::parse(R"([{"one": 0, "other": 1, "links": 2}, {"one": 1, "other": 2}, {"one": 0, "other": 2}])");
  }
  if (field.key == "flash_efficiency") return Json({{"ampere", {0.31, 0.27}}});
  if (field.kind == FieldKind::kObject && field.choices != nullptr) return Json({{"bf16", 0.53}, {"fp16", 0.51}});
  if (field.choices != nullptr && !field.names_object) return field.choices()[seed % field.choices().size()];
  switch (field.kind) {
    case FieldKind::kBoolean:
      return seed % 2 == 0;
    case FieldKind::kWhole:
      return pick({1, 2, 3, 4, 8, 16, 64, 256, 1024});
    case FieldKind::kNumber:
      return pick({0.3, 0.7123, 1.0, 1.25, 2.0});
    case FieldKind::kQuantity:
      switch (field.dimension) {
        case Dimension::kBytes:
          return pick({"80GiB", "79.3GB", "1.7TB"});
        case Dimension::kBandwidth:
          return pick({"31.7GB/s", "200Gbit/s", "1.23456789TB/s"});
        case Dimension::kTime:
          return pick({"3us", "1.7us", "333.3ns"});
        case Dimension::kFlopRate:
          return "301.7TFLOP/s";
        case Dimension::kPower:
          return "401.3W";
        case Dimension::kFrequency:
          return pick({"1405MHz", "1.2345678GHz"});
        case Dimension::kCount:
        case Dimension::kMoney:
          return pick({0.7, 1, "0.31"});
      }
      return nullptr;
    default:
      return "some words";
  }
}

std::optional<Job> prepared_job(const Json& root) {
  try {
    return prepare(read_job(root, {}), no_files).job;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

namespace {

// Returns false if nothing of the profile is used, which makes the forecast fail.
bool uses_its_profile(const Json& root) {
  if (!root.contains("training") || !root.at("training").contains("profile")) return true;
  try {
    (void)forecast(read_job(root, {}), no_files);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

Json job_with(std::size_t beginning, const std::vector<std::pair<std::size_t, std::size_t>>& changes,
              std::set<std::string>* covered) {
  Json job = job_beginnings()[beginning % job_beginnings().size()];
  for (const auto& [index, seed] : changes) {
    const JobKey& key = job_keys()[index % job_keys().size()];
    if (key.entry->names_object || key.field == "training.profile" || key.field == "training.fitted") continue;
    Json changed = job;
    set_key(key.field, some_job_value(*key.entry, seed), changed);
    if (!prepared_job(changed) || !uses_its_profile(changed)) continue;
    job = std::move(changed);
    if (covered != nullptr) covered->insert(key.field);
  }
  return job;
}

bool follows_the_times(const Forecast& forecast) {
  if (forecast.step.schedule != nullptr && forecast.step.schedule->uses_times) return false;
  for (const std::vector<Action>& actions : forecast.step.program.ranks) {
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kWeightGradient) return false;
    }
  }
  return true;
}

namespace {

template <class Value>
Value one_of(std::mt19937_64& random, std::initializer_list<Value> values) {
  return *(values.begin() + random() % values.size());
}

const std::string& one_named(std::mt19937_64& random, const std::vector<std::string>& names) {
  return names[random() % names.size()];
}

}  // namespace

Json catalogue_job(std::mt19937_64& random) {
  static const std::vector<std::string> models = catalogue_names(CatalogueKind::kModels);
  static const std::vector<std::string> clusters = catalogue_names(CatalogueKind::kClusters);
  static const std::vector<std::string> stacks = catalogue_names(CatalogueKind::kStacks);
  Json job;
  job["model"] = {{"name", one_named(random, models)}};
  job["cluster"] = {{"name", one_named(random, clusters)}, {"nodes", one_of(random, {1, 1, 2, 3, 4, 8, 16})}};
  Json& layout = job["layout"];
  layout["global_batch_size"] = one_of(random, {1, 8, 16, 24, 32, 64, 128, 512});
  layout["micro_batch_size"] = one_of(random, {1, 1, 1, 2, 4});
  for (const char* axis : {"tp", "pp", "cp", "ep"}) {
    if (random() % 2 == 0) layout[axis] = one_of(random, {1, 2, 2, 3, 4, 8});
  }
  if (random() % 3 == 0) layout["schedule"] = schedule_catalogue()[random() % schedule_catalogue().size()].name;
  if (random() % 3 == 0) layout["vpp"] = one_of(random, {1, 2, 3, 4});
  if (random() % 3 == 0) layout["zero"] = one_of(random, {0, 1, 2, 3});
  if (random() % 3 == 0) layout["recompute"] = one_of(random, {"none", "selective", "full"});
  if (random() % 4 == 0) layout["data_parallel"] = one_of(random, {"ddp", "fsdp", "hsdp", "ps", "byteps"});
  if (random() % 4 == 0) layout["sequence_parallel"] = random() % 2 == 0;
  Json& training = job["training"];
  training["sequence_length"] = one_of(random, {128, 512, 1000, 2048, 4096, 8192});
  training["precision"] = one_of(random, {"bf16", "bf16", "fp16", "fp32", "fp8"});
  if (random() % 2 == 0) training["stack"] = one_named(random, stacks);
  return job;
}

}  // namespace flopcast
