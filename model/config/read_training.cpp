#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/text/error.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/read_profile.hpp"
#include "model/config/sections.hpp"

namespace flopcast {

namespace {

constexpr int kLongestSequence = 100'000'000;
constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;
constexpr const char* kDefaultStack = "megatron-core";

const std::vector<std::string>& attention_names() {
  static const std::vector<std::string> names = {"flash", "unfused"};
  return names;
}

// "megatron-core", or an entry with some properties replaced: {"name": "megatron-core", "gradient_bytes": 2}.
nlohmann::json stack_values(const nlohmann::json& given, const Origins& origins) {
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kStacks);
  const auto fail = [&](const std::string& problem, const std::string& name) {
    throw ConfigError({"training.stack", problem, origins.where("training.stack"), choices_help(name, names)});
  };
  if (!given.is_string() && !given.is_object())
    fail(fmt::format("{} is neither a name nor an object", given.dump()), "");
  const nlohmann::json name = given.is_string() ? given : given.value("name", nlohmann::json(kDefaultStack));
  if (!name.is_string()) fail(fmt::format("{} is not a stack's name", name.dump()), "");
  nlohmann::json values = catalogue_values(CatalogueKind::kStacks, name.get<std::string>());
  if (values.is_null()) fail(fmt::format("unknown stack {}", name.dump()), name.get<std::string>());
  const nlohmann::json own_base = values.value("based_on", nlohmann::json());
  if (given.is_object() && given.contains("based_on") && given.at("based_on") != own_base) {
    throw ConfigError({"training.stack.based_on", "tells which published runs speak for a stack of the catalogue",
                       origins.where("training.stack.based_on"),
                       "leave it out: figures that a job changes are its own"});
  }
  if (given.is_object()) values.update(given);
  return values;
}

// {"ampere": [0.57, 0.25]}: forward and backward, by generation.
void read_flash_efficiency(ObjectReader& reader, Stack& stack) {
  for (const std::string& generation : generation_names()) {
    const nlohmann::json* pair = reader.find(generation);
    if (pair == nullptr) continue;
    const auto is_share = [](const nlohmann::json& value) {
      return value.is_number() && value.get<double>() > 0.0 && value.get<double>() <= 1.0;
    };
    if (!pair->is_array() || pair->size() != 2 || !is_share(pair->at(0)) || !is_share(pair->at(1))) {
      reader.fail(generation, fmt::format("{} is no pair of shares", pair->dump()), "expected [forward, backward]");
    }
    stack.flash_efficiency[generation] = {pair->at(0).get<double>(), pair->at(1).get<double>()};
  }
  reader.refuse_unknown_keys();
}

// A figure of a stack, 0 where it says none.
double number_up_to(ObjectReader& reader, std::string_view key, double largest) {
  const double number = reader.quantity(key, Dimension::kCount).value_or(0.0);
  if (number > largest) {
    reader.fail(key, fmt::format("{} is too large", number), fmt::format("expected a number from 0 to {}", largest));
  }
  return number;
}

void read_loss(ObjectReader& reader, Stack& stack) {
  constexpr int kMostBytes = 1'000;
  stack.loss_forward_bytes = reader.whole("loss_forward_bytes", 0, kMostBytes).value_or(0);
  stack.loss_backward_bytes = reader.whole("loss_backward_bytes", 0, kMostBytes).value_or(0);
  constexpr int kFp32Softmax = 4;
  stack.loss_saved_bytes = reader.whole("loss_saved_bytes", 0, kMostBytes).value_or(kFp32Softmax);
}

Stack read_stack(const nlohmann::json& given, const Origins& origins) {
  const nlohmann::json values = stack_values(given, origins);
  constexpr int kLargestDivisor = 1'000'000;
  constexpr int kLargestGradient = 8;
  constexpr int kMostSoftmaxRows = 1024;
  ObjectReader reader(values, "training.stack", origins);
  Stack stack;
  stack.name = reader.text("name").value_or(kDefaultStack);
  stack.description = reader.text("description").value_or("");
  stack.based_on = reader.text("based_on").value_or(stack.name);
  stack.vocab_divisor = reader.whole("vocab_divisor", 1, kLargestDivisor).value_or(1);
  stack.flash_attention = reader.choice("attention", attention_names()).value_or(0) == 0;
  stack.fused_bias_dropout_add = reader.boolean("fused_bias_dropout_add").value_or(false);
  stack.fused_softmax_group = reader.whole("fused_softmax_group", 1, kMostSoftmaxRows).value_or(1);
  stack.fused_gradient_accumulation = reader.boolean("fused_gradient_accumulation").value_or(false);
  stack.gradient_bytes = reader.whole("gradient_bytes", 2, kLargestGradient).value_or(4);
  stack.optimizer_gradient_bytes = reader.whole("optimizer_gradient_bytes", 0, kLargestGradient).value_or(0);
  stack.keeps_pass_gradients = reader.boolean("keeps_pass_gradients").value_or(false);
  stack.placeholder_gradients = reader.boolean("placeholder_gradients").value_or(false);
  stack.blocking_sends = reader.boolean("blocking_sends").value_or(true);
  stack.transfer_synchronization = Seconds(reader.quantity("transfer_synchronization", Dimension::kTime).value_or(0.0));
  stack.gather_allocation = Seconds(reader.quantity("gather_allocation", Dimension::kTime).value_or(0.0));
  stack.scatter_gather_transfers = reader.boolean("scatter_gather_transfers").value_or(false);
  stack.overlap_gradient_reduction = reader.boolean("overlap_gradient_reduction").value_or(false);
  stack.overlap_tp_with_weight_gradient = reader.boolean("overlap_tp_with_weight_gradient").value_or(false);
  stack.single_pass_norm = reader.boolean("single_pass_norm").value_or(true);
  stack.softmax_forward_bytes = number_up_to(reader, "softmax_forward_bytes", 1'000.0);
  stack.split_backward_slowdown = number_up_to(reader, "split_backward_slowdown", 1.0);
  read_loss(reader, stack);
  stack.host_time_per_kernel = Seconds(reader.quantity("host_time_per_kernel", Dimension::kTime).value_or(0.0));
  stack.host_time_per_collective = Seconds(reader.quantity("host_time_per_collective", Dimension::kTime).value_or(0.0));
  if (auto flash = reader.object("flash_efficiency")) read_flash_efficiency(*flash, stack);
  stack.memory_overhead_gib = reader.quantity("memory_overhead", Dimension::kBytes).value_or(0.0) / kBytesPerGib;
  reader.refuse_unknown_keys();
  return stack;
}

// What a stack's kernels and their launches take is known of GPUs alone.
void forget_gpu_kernels(Stack& stack) {
  const Stack unknown;
  stack.fused_softmax_group = unknown.fused_softmax_group;
  stack.transfer_synchronization = unknown.transfer_synchronization;
  stack.gather_allocation = unknown.gather_allocation;
  stack.softmax_forward_bytes = unknown.softmax_forward_bytes;
  stack.split_backward_slowdown = unknown.split_backward_slowdown;
  stack.loss_forward_bytes = unknown.loss_forward_bytes;
  stack.loss_backward_bytes = unknown.loss_backward_bytes;
  stack.loss_saved_bytes = unknown.loss_saved_bytes;
  stack.placeholder_gradients = unknown.placeholder_gradients;
  stack.host_time_per_kernel = unknown.host_time_per_kernel;
  stack.host_time_per_collective = unknown.host_time_per_collective;
  stack.flash_efficiency.clear();
  stack.memory_overhead_gib = unknown.memory_overhead_gib;
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
void check_transport(const ObjectReader& reader, const std::string& key, const Cluster& cluster,
                     std::vector<std::string>& assumptions) {
  if (cluster.host_bandwidth.value() <= 0.0) {
    reader.fail(key, fmt::format("goes through host memory, and cluster {} has no host_bandwidth", cluster.name),
                "give cluster.host_bandwidth, such as \"32GB/s\" for PCIe 4 x16, or use nccl");
  }
  assumptions.push_back(fmt::format(
      "training.{}: a ring through host memory; gloo reaches 1.15 GB/s a connection and pays 50 us a step, mpi "
      "what the links carry and 10 us",
      key));
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
  const nlohmann::json* stack = reader.find("stack");
  training.stack = read_stack(stack == nullptr ? nlohmann::json(kDefaultStack) : *stack, origins);
  if (job.cluster.device.generation == GpuGeneration::kCpu) forget_gpu_kernels(training.stack);
  if (stack == nullptr) job.assumptions.push_back(fmt::format("training.stack is {}", kDefaultStack));
  const auto attention = reader.choice("attention", attention_names());
  training.flash_attention = attention ? *attention == 0 : training.stack.flash_attention;
  training.transport = static_cast<Transport>(reader.choice("transport", transport_names()).value_or(0));
  const auto of_gradients = reader.choice("gradient_transport", transport_names());
  training.gradient_transport = of_gradients ? static_cast<Transport>(*of_gradients) : training.transport;
  for (const auto& [key, transport] :
       {std::pair("transport", training.transport), std::pair("gradient_transport", training.gradient_transport)}) {
    if (transport == Transport::kNccl) continue;
    check_transport(reader, key, job.cluster, job.assumptions);
    break;
  }
  training.tokens = reader.quantity("tokens", Dimension::kCount);
  if (training.tokens && *training.tokens <= 0) reader.fail("tokens", "is zero", "expected a count such as \"300B\"");
  training.price_per_gpu_hour = reader.quantity("price_per_gpu_hour", Dimension::kMoney);
  reader.find("profile");  // read_job reads it before the cluster
  reader.refuse_unknown_keys();
  return training;
}

}  // namespace flopcast
