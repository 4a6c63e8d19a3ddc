#include "tests/golden/simumax_tables.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

#include "model/cost/compute.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;
using Fields = std::map<std::string, std::string>;

// Parses "b=1, m=4096, k=5120, layout=TN".
Fields fields_of(const std::string& shape) {
  Fields fields;
  std::istringstream parts(shape);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t first = part.find_first_not_of(' ');
    const std::size_t equals = part.find('=');
    if (first == std::string::npos || equals == std::string::npos) throw std::runtime_error("no shape: " + shape);
    fields[part.substr(first, equals - first)] = part.substr(equals + 1);
  }
  return fields;
}

int whole(const Fields& fields, const char* name) {
  return std::stoi(fields.at(name));
}

double seconds_of(const std::string& shape, double computed_flops, double counted_flops, double share, double peak) {
  const double seconds = counted_flops / (share * peak);
  if (!(share > 0.0) || computed_flops > seconds * peak) {
    throw std::runtime_error(fmt::format("{}: a share of {} is beyond the peak", shape, share));
  }
  return seconds;
}

void add_sample(Measurement& measurement, const SampleKey& key, double seconds) {
  for (Sample& sample : measurement.samples) {
    if (!(sample.key == key)) continue;
    sample.seconds.push_back(seconds);
    return;
  }
  measurement.samples.push_back({key, {seconds}, std::nullopt});
}

void add_products(Measurement& measurement, const Json& table) {
  const double peak = table.at("tflops").get<double>() * 1e12;
  for (const auto& row : table.at("accurate_efficient_factor").items()) {
    const Fields fields = fields_of(row.key());
    if (whole(fields, "b") != 1) throw std::runtime_error("batched: " + row.key());
    SampleKey key;
    key.kind = SampleKind::kGemm;
    key.dtype = "bf16";
    key.shape = SampleShape{whole(fields, "m"), whole(fields, "n"), whole(fields, "k")};
    const double flops = 2.0 * key.shape->m * key.shape->n * key.shape->k;
    add_sample(measurement, key, seconds_of(row.key(), flops, flops, row.value().get<double>(), peak));
  }
}

void add_attention(Measurement& measurement, const Json& table, SampleKind kind) {
  const double peak = table.at("tflops").get<double>() * 1e12;
  const double work = kind == SampleKind::kAttentionBackward ? kAttentionBackwardWork : 1.0;
  for (const auto& row : table.at("accurate_efficient_factor").items()) {
    const Fields fields = fields_of(row.key());
    if (fields.at("qk_head_dim") != fields.at("v_head_dim")) continue;
    SampleKey key;
    key.kind = kind;
    key.dtype = "bf16";
    key.attention = AttentionShape{whole(fields, "batch"), whole(fields, "head_num"), whole(fields, "seq_len"),
                                   whole(fields, "v_head_dim"), true};
    AttentionShape counted = *key.attention;
    counted.causal = false;
    const double computed = work * key.attention->flops();
    add_sample(measurement, key,
               seconds_of(row.key(), computed, work * counted.flops(), row.value().get<double>(), peak));
  }
}

}  // namespace

Measurement read_simumax_kernels(const std::filesystem::path& file) {
  const Json operators = Json::parse(read_text(file)).at("accelerator").at("op");
  Measurement measurement;
  add_products(measurement, operators.at("matmul"));
  add_attention(measurement, operators.at("sdp_fwd"), SampleKind::kAttentionForward);
  add_attention(measurement, operators.at("sdp_bwd"), SampleKind::kAttentionBackward);
  return measurement;
}

}  // namespace flopcast
