#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/catalog/catalogue.hpp"
#include "model/config/read_profile.hpp"
#include "model/config/sections.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

constexpr int kLongestSequence = 100'000'000;
constexpr const char* kDefaultStack = "megatron-core";

const std::vector<std::string>& attention_names() {
  static const std::vector<std::string> names = {"flash", "unfused"};
  return names;
}

Stack read_stack(const std::string& name, const Origins& origins) {
  const nlohmann::json values = catalogue_values(CatalogueKind::kStacks, name);
  if (values.is_null()) {
    throw ConfigError({"training.stack", fmt::format("unknown stack \"{}\"", name), origins.where("training.stack"),
                       choices_help(name, catalogue_names(CatalogueKind::kStacks))});
  }
  constexpr int kLargestDivisor = 1'000'000;
  constexpr int kLargestGradient = 8;
  ObjectReader reader(values, "training.stack", origins);
  Stack stack;
  stack.name = name;
  stack.description = reader.text("description").value_or("");
  reader.find("name");
  stack.vocab_divisor = reader.whole("vocab_divisor", 1, kLargestDivisor).value_or(1);
  stack.flash_attention = reader.choice("attention", attention_names()).value_or(0) == 0;
  stack.fused_bias_dropout_add = reader.boolean("fused_bias_dropout_add").value_or(false);
  stack.fused_gradient_accumulation = reader.boolean("fused_gradient_accumulation").value_or(false);
  stack.gradient_bytes = reader.whole("gradient_bytes", 2, kLargestGradient).value_or(4);
  stack.blocking_sends = reader.boolean("blocking_sends").value_or(true);
  stack.scatter_gather_transfers = reader.boolean("scatter_gather_transfers").value_or(false);
  stack.overlap_gradient_reduction = reader.boolean("overlap_gradient_reduction").value_or(false);
  stack.overlap_tp_with_weight_gradient = reader.boolean("overlap_tp_with_weight_gradient").value_or(false);
  reader.refuse_unknown_keys();
  return stack;
}

void check_precision(const ObjectReader& reader, const Training& training, const Device& device) {
  if (device.peak_of(training.precision).value() > 0) return;
  std::vector<std::string> available;
  for (std::size_t index = 0; index < precision_names().size(); ++index) {
    if (device.peak[index].value() > 0) available.push_back(precision_names()[index]);
  }
  reader.fail("precision", fmt::format("{} has no rate on device {}", name_of(training.precision), device.name),
              choices_help("", available));
}

// bf16, or fp16 where a device is too old for it.
Precision default_precision(Job& job) {
  const Device* without = nullptr;
  const auto look_at = [&without](const Device& device) {
    if (device.peak_of(Precision::kBf16).value() <= 0) without = &device;
  };
  look_at(job.cluster.device);
  for (const Device& device : job.cluster.node_devices) look_at(device);
  job.assumptions.push_back(without == nullptr
                                ? "training.precision is bf16"
                                : fmt::format("training.precision is fp16: {} has no bf16", without->name));
  return without == nullptr ? Precision::kBf16 : Precision::kFp16;
}

// Gloo and MPI move data through the hosts' memory.
void check_transport(const ObjectReader& reader, const Cluster& cluster, std::vector<std::string>& assumptions) {
  if (cluster.host_bandwidth.value() <= 0.0) {
    reader.fail("transport",
                fmt::format("goes through host memory, and cluster {} has no host_bandwidth", cluster.name),
                "give cluster.host_bandwidth, such as \"32GB/s\" for PCIe 4 x16, or use nccl");
  }
  assumptions.push_back(
      "training.transport: a ring through host memory; gloo reaches 1.15 GB/s a connection and pays 50 us a step, mpi "
      "what the links carry and 10 us");
}

}  // namespace

Training read_training(ObjectReader& root, Job& job, const Origins& origins) {
  const nlohmann::json* section = root.find("training");
  const nlohmann::json values = section == nullptr ? nlohmann::json::object() : *section;
  ObjectReader reader(values, "training", origins);
  Training training;
  const auto sequence_length = reader.whole("sequence_length", 1, kLongestSequence);
  training.sequence_length =
      sequence_length.value_or(job.profile ? job.profile->sequence_length : job.model.sequence_length);
  if (job.profile) {
    check_profile_training(reader, training.sequence_length, *job.profile, job);
  } else if (!sequence_length) {
    job.assumptions.push_back(fmt::format("training.sequence_length is the model's {}", training.sequence_length));
  }
  const auto precision = reader.choice("precision", precision_names());
  if (job.profile) {
    training.precision = profile_precision(reader, precision, *job.profile);
  } else {
    training.precision = precision ? static_cast<Precision>(*precision) : default_precision(job);
  }
  check_precision(reader, training, job.cluster.device);
  for (const Device& device : job.cluster.node_devices) check_precision(reader, training, device);
  if (const auto optimizer = reader.choice("optimizer", optimizer_names())) {
    training.optimizer = static_cast<Optimizer>(*optimizer);
  }
  const auto stack = reader.text("stack");
  training.stack = read_stack(stack.value_or(kDefaultStack), origins);
  if (!stack) job.assumptions.push_back(fmt::format("training.stack is {}", kDefaultStack));
  const auto attention = reader.choice("attention", attention_names());
  training.flash_attention = attention ? *attention == 0 : training.stack.flash_attention;
  training.transport = static_cast<Transport>(reader.choice("transport", transport_names()).value_or(0));
  if (training.transport != Transport::kNccl) check_transport(reader, job.cluster, job.assumptions);
  training.tokens = reader.quantity("tokens", Dimension::kCount);
  if (training.tokens && *training.tokens <= 0) reader.fail("tokens", "is zero", "expected a count such as \"300B\"");
  training.price_per_gpu_hour = reader.quantity("price_per_gpu_hour", Dimension::kMoney);
  reader.find("profile");  // read_job reads it before the cluster
  reader.refuse_unknown_keys();
  return training;
}

}  // namespace flopcast
