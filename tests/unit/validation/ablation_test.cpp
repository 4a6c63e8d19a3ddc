// Every figure of a stack or a device that prices published rows must change at least one forecast: detects switches
// without effect.

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

struct Priced {
  PublishedRow row;
  MappedRow mapped;
  double seconds = 0.0;
  double gibibytes = 0.0;
};

EvaluatedRow price(const Priced& priced, const MappedRow& mapped) {
  PublishedRow row = priced.row;
  row.out_of_memory = true;  // so that memory is also forecast
  return evaluate_row(row, mapped, no_files);
}

// Some rows of every source, spread over its rows.
std::vector<Priced> some_rows() {
  constexpr std::size_t kOfEach = 12;
  std::vector<Priced> all;
  for (const PublishedFile& file : shipped_published()) {
    const std::size_t stride = file.rows.size() / kOfEach + 1;
    for (std::size_t index = 0; index < file.rows.size(); index += stride) {
      if (!file.rows[index].job->is_null()) continue;  // the mapped rows cover every stack below
      Priced priced{file.rows[index], map_row(file.rows[index], file.about), 0.0, 0.0};
      if (!priced.mapped.skip_reason.empty() || priced.mapped.part != MeasuredPart::kStep) continue;
      const EvaluatedRow evaluated = price(priced, priced.mapped);
      priced.seconds = evaluated.predicted_s;
      priced.gibibytes = *evaluated.memory_predicted_gib;
      all.push_back(priced);
    }
  }
  return all;
}

// Another value of the same kind, as in a job file.
Json another(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value == "1") return "2";  // generations of attention kernels
  if (value == "2" || value == "cudnn") return "1";
  if (value.is_array() && value.empty()) return {"norm", "activation", "loss"};
  if (value == "none") return "replicas";  // ranks that agree on scales
  if (value == "replicas" || value == "tensor") return "none";
  if (value == "flash") return "unfused";
  if (value == "unfused") return "flash";
  if (value.is_number_integer()) return value.get<int>() == 4 ? 3 : value.get<int>() + 4;
  if (value.is_number()) return value.get<double>() * 0.8;
  const bool is_release =
      value.is_string() && value.get<std::string>().find_first_not_of("0123456789.") == std::string::npos;
  if (is_release) return "2.10";
  if (value.is_string())
    return std::to_string(std::stod(value.get<std::string>()) * 0.5) +
           value.get<std::string>().substr(value.get<std::string>().find_first_not_of("0123456789."));
  Json pairs = value;
  for (Json& pair : pairs) {
    for (Json& share : pair) share = share.get<double>() * 0.8;
  }
  return pairs;
}

bool changes_something(const std::vector<Priced>& rows, const CatalogueChange& change) {
  for (const Priced& priced : rows) {
    MappedRow mapped = priced.mapped;
    // A row may specify the figure itself in the row's own fields.
    Json& stack = mapped.job["training"]["stack"];
    if (change.kind == CatalogueKind::kStacks && stack.is_object()) stack.erase(change.figure);
    if (!apply(change, *mapped.job)) continue;
    const EvaluatedRow evaluated = price(priced, mapped);
    if (evaluated.predicted_s != priced.seconds || *evaluated.memory_predicted_gib != priced.gibibytes) return true;
  }
  return false;
}

TEST(Ablation, EveryFigureOfAStackChangesAForecast) {
  const std::vector<Priced> rows = some_rows();
  ASSERT_GT(rows.size(), 40u);
  // A figure counts if any stack's rows show it: not every stack is used with pipelines or sharded optimizers.
  std::set<std::string> figures;
  std::set<std::string> found;
  for (const char* name : {"megatron-2021", "megatron-2022", "megatron-deepspeed", "pytorch-fsdp@2023-01",
                           "megatron-core", "zero-bubble"}) {
    const Json stack = catalogue_values(CatalogueKind::kStacks, name);
    for (const auto& figure : stack.items()) {
      // No mapped row trains in fp8 with tensor parallelism, or with delayed scales over replicas.
      const std::set<std::string> words = {"name", "description", "based_on", "fp8_gathers", "amax_reduction"};
      if (words.count(figure.key()) > 0) continue;
      figures.insert(figure.key());
      if (found.count(figure.key()) != 0) continue;
      const CatalogueChange change{CatalogueKind::kStacks, name, figure.key(), another(figure.value())};
      if (changes_something(rows, change)) found.insert(figure.key());
    }
  }
  for (const std::string& figure : figures) EXPECT_EQ(found.count(figure), 1u) << figure << " changes nothing";
}

TEST(Ablation, EveryEfficiencyOfADeviceChangesAForecast) {
  const std::vector<Priced> rows = some_rows();
  for (const char* device : {"a100-80g", "h100", "b200"}) {
    for (const char* figure : {"gemm_efficiency", "memory_efficiency", "kernel_launch", "memory_bandwidth"}) {
      const Json value = catalogue_values(CatalogueKind::kDevices, device).at(figure);
      EXPECT_TRUE(changes_something(rows, {CatalogueKind::kDevices, device, figure, another(value)}))
          << device << " " << figure;
    }
  }
}

// Figures of docs/validation.md. Permutations move as many bytes as two of the experts' activations, at memory
// bandwidth: the smallest part.
TEST(Ablation, ExpertsNeedTheirProductsAndTheirExchange) {
  const ExpertAblations experts = expert_ablations();
  EXPECT_GE(experts.whole.rows, 40);
  EXPECT_LT(experts.whole.mape, 0.05);
  EXPECT_LT(experts.whole.max, 0.2);
  std::map<std::string, double> lost;
  for (const Ablation& one : experts.parts) {
    EXPECT_EQ(one.without.rows, experts.whole.rows) << one.part;
    EXPECT_LT(one.without.bias, experts.whole.bias) << one.part << " takes time";
    lost[one.part] = one.without.mape - experts.whole.mape;
    RecordProperty(one.part, std::to_string(one.without.mape));
  }
  EXPECT_GT(lost.at("GEMMs of experts"), 0.15);
  EXPECT_GT(lost.at("time on links, jobs with experts"), 0.05);
  EXPECT_GT(lost.at("dispatch and combine"), 0.03);
  EXPECT_GT(lost.at("permutations"), 0.005);
}

// DeepSeek-V3, 2412.19437, section 1: 180,000 GPU hours for 1e12 tokens, on H800 of 80 GB.
TEST(Ablation, DualPipeIsWorthItsOverlap) {
  for (const PublishedFile& file : shipped_published()) {
    if (file.source != "deepseek_v3") continue;
    ASSERT_EQ(file.rows.size(), 1u);
    MappedRow mapped = map_row(file.rows[0], file.about);
    ASSERT_EQ(mapped.skip_reason, "");
    PublishedRow row = file.rows[0];
    row.out_of_memory = true;  // so that memory is also forecast
    const EvaluatedRow whole = evaluate_row(row, mapped, no_files);
    const double hours_for_tera_tokens = whole.predicted_s * 2048 / 3600 / (15360.0 * 4096) * 1e12;
    EXPECT_NEAR(hours_for_tera_tokens / 180e3, 1.0, 0.15);
    EXPECT_LT(*whole.memory_predicted_gib, 80.0);
    mapped.job->merge_patch({{"training", {{"overlap", {{"experts", "none"}}}}}});
    const double exposed = evaluate_row(row, mapped, no_files).predicted_s;
    RecordProperty("exposed", std::to_string(exposed / whole.predicted_s));
    EXPECT_GT(exposed, whole.predicted_s * 1.05);
    return;
  }
  FAIL() << "no such source";
}

}  // namespace
}  // namespace flopcast
