#include <fmt/format.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

constexpr const char* kDefaultStack = "megatron-core";

// The values of "megatron-core", or of an entry with some properties overridden: {"name": "megatron-core",
// "gradient_bytes": 2}.
nlohmann::json stack_values(const nlohmann::json& given, const nlohmann::json& measured, const Origins& origins) {
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
  const nlohmann::json own_base = values.value("based_on", name);
  if (given.is_object() && given.contains("based_on") && given.at("based_on") != own_base) {
    throw ConfigError({"training.stack.based_on", "links a catalogue stack to published runs and cannot be changed",
                       origins.where("training.stack.based_on"),
                       "leave it out; a job may only override the stack's figures"});
  }
  const bool is_measured = measured.is_object() && measured.value("name", nlohmann::json()) == own_base;
  if (is_measured) {
    for (const auto& item : measured.items()) {
      if (item.key() != "name") values[item.key()] = item.value();
    }
  }
  if (given.is_object()) values.update(given);
  return values;
}

// The costs of a stack's kernels and their launches are known for GPUs only.
Stack read_stack(const nlohmann::json& given, const nlohmann::json& measured, GpuGeneration generation,
                 const Origins& origins) {
  const nlohmann::json values = stack_values(given, measured, origins);
  ObjectReader reader(values, "training.stack", origins);
  Stack stack;
  stack.name = kDefaultStack;
  read_fields(stack_fields(), reader, stack);
  reader.refuse_unknown_keys();
  if (stack.based_on.empty()) stack.based_on = stack.name;
  if (generation != GpuGeneration::kCpu) return stack;
  const Stack unknown;
  for (const Field<Stack>& field : stack_fields()) {
    if (field.of_gpus) field.copy(unknown, stack);
  }
  return stack;
}

void check_precision(const ObjectReader& reader, const Training& training, const Device& device) {
  if (device.peak_of(training.precision).value() > 0) return;
  std::vector<std::string> available;
  for (std::size_t index = 0; index < device.peak.size(); ++index) {
    if (device.peak[index].value() > 0) available.push_back(names_of<Precision>()[index]);
  }
  reader.fail("precision", fmt::format("{} is not supported by device {}", name_of(training.precision), device.name),
              choices_help("", available));
}

// bf16, or fp16 if a device does not support it.
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
void check_transports(const ObjectReader& reader, const Training& training, Job& job) {
  const bool all = training.transport != Transport::kNccl;
  if (!all && training.gradient_transport == Transport::kNccl) return;
  const char* key = all ? "transport" : "gradient_transport";
  if (job.cluster.host_bandwidth.value() <= 0.0) {
    reader.fail(key, fmt::format("uses host memory, but cluster {} has no host_bandwidth", job.cluster.name),
                "give cluster.host_bandwidth, such as \"32GB/s\" for PCIe 4 x16, or use nccl");
  }
  job.assumptions.push_back(
      fmt::format("training.{} uses a ring through host memory: gloo with 1.15 GB/s per connection and 50 us per step, "
                  "mpi with the links' bandwidth and 10 us",
                  key));
}

void check_documents(const ObjectReader& reader, const Training& training, const Job& job) {
  if (training.document_length <= (job.profile ? 0 : training.sequence_length)) return;
  reader.fail(
      "document_length",
      job.profile ? "applies to transformers, not to a layer profile"
                  : fmt::format("{} is longer than a sequence of {} tokens", training.document_length,
                                training.sequence_length),
      job.profile ? "leave it out" : "documents are packed into a sequence: give their length, or leave it out");
}

void settle_sequence_and_precision(const ObjectReader& reader, Training& training, Job& job) {
  const bool says_length = reader.has("sequence_length");
  const bool says_precision = reader.has("precision");
  if (job.profile) {
    if (!says_length) training.sequence_length = job.profile->sequence_length;
    check_profile_training(reader, training.sequence_length, *job.profile, job);
    check_documents(reader, training, job);
    training.precision =
        profile_precision(reader, says_precision ? std::optional(training.precision) : std::nullopt, *job.profile);
    return;
  }
  if (!says_length) {
    training.sequence_length = job.model.sequence_length;
    job.assumptions.push_back(fmt::format("training.sequence_length is the model's {}", training.sequence_length));
  }
  check_documents(reader, training, job);
  if (!says_precision) training.precision = default_precision(job);
}

void note_release(const Stack& stack, Job& job) {
  const std::string release = release_of_stack(stack.name);
  if (release.empty() || stack.name.ends_with("@" + release)) return;
  job.assumptions.push_back(fmt::format("training.stack {} is priced as {}@{}", stack.name, stack.based_on, release));
}

// Only Blackwell's tensor cores apply MX and NVFP4 scales.
void settle_recipe(const ObjectReader& reader, Training& training, Job& job) {
  const bool blackwell = job.cluster.device.generation == GpuGeneration::kBlackwell;
  if (training.precision != Precision::kFp8) {
    if (training.fp8_recipe)
      reader.fail("fp8_recipe", "applies only to precision fp8", "set training.precision to fp8");
    return;
  }
  if (!training.fp8_recipe) {
    training.fp8_recipe = training.stack.fp8_recipe.value_or(blackwell ? Fp8Recipe::kMxfp8 : Fp8Recipe::kDelayed);
    job.assumptions.push_back(fmt::format("training.fp8_recipe is {}", name_of(*training.fp8_recipe)));
  }
  const bool of_blackwell = training.fp8_recipe == Fp8Recipe::kMxfp8 || training.fp8_recipe == Fp8Recipe::kNvfp4;
  if (of_blackwell && !blackwell) {
    reader.fail("fp8_recipe", fmt::format("device {} does not support this recipe", job.cluster.device.name),
                "valid for it: delayed, tensorwise, current, blockwise, rowwise");
  }
}

void refuse_keys(const ObjectReader& reader, std::initializer_list<const char*> keys, const std::string& problem,
                 const std::string& help) {
  for (const char* key : keys) {
    if (reader.has(key)) reader.fail(key, problem, help);
  }
}

void check_targets(const ObjectReader& reader, const Finetune& finetune, const Transformer& model) {
  const auto names = [&finetune](AdapterTarget target) { return (finetune.targets & bit_of(target)).any(); };
  const bool projections = names(AdapterTarget::kQuery) || names(AdapterTarget::kKey) || names(AdapterTarget::kValue);
  if (names(AdapterTarget::kFusedQkv) && projections) {
    reader.fail("targets", "linear_qkv conflicts with its parts",
                "give either linear_qkv, or some of q_proj, k_proj, v_proj");
  }
  if (names(AdapterTarget::kFusedUp) && (names(AdapterTarget::kGate) || names(AdapterTarget::kUp))) {
    reader.fail("targets", "linear_fc1 conflicts with its parts",
                "give either linear_fc1, or some of gate_proj, up_proj");
  }
  if (names(AdapterTarget::kGate) && !model.gated_mlp && finetune.targets != all_targets()) {
    reader.fail("targets", fmt::format("model {} has no gate_proj", model.name), "leave it out");
  }
}

void settle_adapters(const ObjectReader& reader, Finetune& finetune, Job& job) {
  const bool quantised = finetune.method == FinetuneMethod::kQlora;
  refuse_keys(reader, {"trainable_layers"}, "applies only to method freeze", "leave it out, or set method to freeze");
  if (!reader.has("base") && quantised) finetune.base = BaseFormat::kNf4;
  if (quantised && finetune.base == BaseFormat::kBf16) {
    reader.fail("base", "bf16 is not quantised", "valid for qlora: fp8, int8, nf4");
  }
  if (!reader.has("double_quant")) finetune.double_quant = quantised && finetune.base == BaseFormat::kNf4;
  if (finetune.double_quant && finetune.base != BaseFormat::kNf4) {
    reader.fail("double_quant", "applies only to base nf4", "leave it out, or set base to nf4");
  }
  if (finetune.dropout >= 1.0) reader.fail("dropout", "would drop everything", "expected a fraction below 1");
  check_targets(reader, finetune, job.model);
  if (!reader.has("rank")) job.assumptions.push_back(fmt::format("training.finetune.rank is {}", finetune.rank));
  if (!reader.has("targets")) {
    finetune.targets = all_targets();
    job.assumptions.emplace_back("training.finetune.targets are all linear layers of the blocks");
  }
  if (quantised && !reader.has("double_quant") && finetune.double_quant) {
    job.assumptions.emplace_back("training.finetune.double_quant is true, as in the QLoRA paper");
  }
}

void settle_frozen_layers(const ObjectReader& reader, const Finetune& finetune, Job& job) {
  refuse_keys(reader, {"rank", "alpha", "targets", "dropout", "base", "double_quant"},
              "applies only to methods lora and qlora", "leave it out, or set method to lora");
  const int layers = finetune.trainable_layers;
  if (layers > job.model.layers || -layers > job.model.layers) {
    reader.fail("trainable_layers", fmt::format("cannot train {} of {} layers", layers, job.model.layers),
                fmt::format("expected a whole number from -{0} to {0}", job.model.layers));
  }
  if (layers == 0 && !finetune.embeddings) {
    reader.fail("trainable_layers", "leaves no weights to train", "give a number of layers, or set embeddings to true");
  }
  if (!reader.has("trainable_layers")) {
    job.assumptions.push_back(
        fmt::format("training.finetune.trainable_layers is {}, counted from the last layer", layers));
  }
}

// "lora", or {"method": "lora", "rank": 16}. Without it, all of a model's weights are trained.
std::optional<Finetune> read_finetune(ObjectReader& training, Job& job, const Origins& origins) {
  const nlohmann::json* given = training.find("finetune");
  if (given == nullptr) return std::nullopt;
  const nlohmann::json values = given->is_string() ? nlohmann::json{{"method", *given}} : *given;
  if (!values.is_object()) {
    training.fail("finetune", fmt::format("{} is neither a method nor an object", values.dump()),
                  choices_help("", names_of<FinetuneMethod>()));
  }
  ObjectReader reader(values, "training.finetune", origins);
  Finetune finetune;
  finetune.method = FinetuneMethod::kLora;
  read_fields(finetune_fields(), reader, finetune);
  reader.refuse_unknown_keys();
  if (finetune.method == FinetuneMethod::kFull) {
    refuse_keys(reader,
                {"rank", "alpha", "targets", "dropout", "base", "double_quant", "trainable_layers", "embeddings"},
                "has no effect when all weights are trained", "leave it out, or set method to lora");
    return std::nullopt;
  }
  if (job.profile) {
    reader.fail("method", "a layer profile does not distinguish weights", "valid for a layer profile: full");
  }
  if (job.model.mtp_layers > 0) {
    reader.fail("method", fmt::format("{} with model.mtp_layers is not modelled", name_of(finetune.method)),
                "set model.mtp_layers to 0, or method to full");
  }
  if (finetune.adapts()) {
    settle_adapters(reader, finetune, job);
  } else {
    settle_frozen_layers(reader, finetune, job);
  }
  return finetune;
}

// "dpo", or {"method": "dpo", "reference": false}.
std::optional<Preference> read_preference(ObjectReader& training, const Job& job, const Origins& origins) {
  const nlohmann::json* given = training.find("preference");
  if (given == nullptr || given->is_null()) return std::nullopt;
  const nlohmann::json values = given->is_string() ? nlohmann::json{{"method", *given}} : *given;
  if (!values.is_object()) {
    training.fail("preference", fmt::format("{} is neither a method nor an object", values.dump()),
                  choices_help("", names_of<PreferenceMethod>()));
  }
  ObjectReader reader(values, "training.preference", origins);
  Preference preference;
  read_fields(preference_fields(), reader, preference);
  reader.refuse_unknown_keys();
  if (job.profile)
    reader.fail("method", "preference training needs a head, which a layer profile does not have", "leave it out");
  if (job.model.mtp_layers > 0) {
    reader.fail("method", "preference training with model.mtp_layers is not modelled", "set model.mtp_layers to 0");
  }
  if (!reader.has("reference")) preference.reference = preference.uses_reference();
  if (preference.reference && !preference.uses_reference()) {
    reader.fail("reference", fmt::format("{} does not use a reference model", name_of(preference.method)),
                "set it to false, or method to dpo");
  }
  return preference;
}

void note_preference(const Training& training, Job& job) {
  const Preference& preference = *training.preference;
  job.assumptions.push_back(
      fmt::format("{}: only the training step is modelled; {}{}", name_of(preference.method),
                  preference.of_pairs() ? "a sample is a pair of sequences"
                                        : "the answers exist already, their generation is not included",
                  !preference.reference       ? ""
                  : holds_reference(training) ? "; the reference is a frozen copy of the model in the training format"
                                              : "; the reference is the model without its adapters"));
}

// Without fp32 master weights, gradients and moments are in the training format too, and the optimizer keeps no fp32
// copy of the gradients, unless the job specifies otherwise by a key of its own or in its stack.
void drop_master_weights(const ObjectReader& reader, Training& training, Job& job) {
  const auto stack = reader.values().find("stack");
  const auto says = [&](const char* key) {
    return stack != reader.values().end() && stack->is_object() && stack->contains(key);
  };
  const double element = element_size(training.precision).value();
  if (!reader.has("gradient_dtype") && !says("gradient_bytes")) training.stack.gradient_bytes = element;
  if (!reader.has("moment_dtype") && !says("moment_dtype")) training.stack.moment_bytes = element;
  if (training.stack.optimizer_gradient_bytes <= 0.0 || says("optimizer_gradient_bytes")) return;
  training.stack.optimizer_gradient_bytes = 0.0;
  job.assumptions.push_back(
      fmt::format("training.master_weights is false: the optimizer of stack {} keeps no fp32 copy of the gradients",
                  training.stack.name));
}

void settle_optimizer(const ObjectReader& reader, Training& training, Job& job) {
  const bool by_matrix = training.optimizer == Optimizer::kMuon || training.optimizer == Optimizer::kGalore;
  if (by_matrix && job.profile) {
    reader.fail(
        "optimizer",
        fmt::format("{} needs the shapes of weights, which a layer profile does not have", name_of(training.optimizer)),
        "valid for a layer profile: adam, sgd, adam8bit, lion, adafactor");
  }
  if (reader.has("optimizer_rank") && training.optimizer != Optimizer::kGalore) {
    reader.fail("optimizer_rank", "applies only to optimizer galore",
                "leave it out, or set training.optimizer to galore");
  }
  if (training.optimizer == Optimizer::kGalore) {
    job.assumptions.emplace_back("galore: the decompositions that renew its projections are not included");
    if (!reader.has("optimizer_rank"))
      job.assumptions.push_back(fmt::format("training.optimizer_rank is {}", training.optimizer_rank));
  }
  if (training.paged_optimizer && job.cluster.host_bandwidth.value() <= 0.0) {
    reader.fail("paged_optimizer",
                fmt::format("needs cluster.host_bandwidth, which cluster {} does not specify", job.cluster.name),
                "give cluster.host_bandwidth, such as \"32GB/s\", or leave it out");
  }
  if (!training.master_weights) drop_master_weights(reader, training, job);
}

// From the job's "fitted", which results write with their job, or from the profile.
std::optional<RunFit> read_fitted(ObjectReader& training, const DeviceProfile* profile, const Origins& origins) {
  if (const nlohmann::json* given = training.find("fitted")) return read_run_fit(*given, "training.fitted", origins);
  return profile == nullptr ? std::nullopt : profile->fitted;
}

// Notes software figures of a profile that do not apply to the job.
void note_other_software(const DeviceProfile& profile, Job& job, const Stack& stack) {
  if (profile.stack->empty() || profile.stack->at("name") == stack.based_on) return;
  job.assumptions.push_back(fmt::format("the profile's figures of stack {} do not apply to stack {}",
                                        profile.stack->at("name").get<std::string>(), stack.name));
}

}  // namespace

std::optional<Stack> catalogue_stack(const std::string& name, GpuGeneration generation) {
  if (catalogue_values(CatalogueKind::kStacks, name).is_null()) return std::nullopt;
  return read_stack(name, {}, generation, {});
}

Training read_training(ObjectReader& root, const DeviceProfile* profile, Job& job, const Origins& origins) {
  const nlohmann::json* section = root.find("training");
  const nlohmann::json values = section == nullptr ? nlohmann::json::object() : *section;
  ObjectReader reader(values, "training", origins);
  Training training;
  read_fields(training_fields(), reader, training);
  reader.refuse_unknown_keys();
  training.finetune = read_finetune(reader, job, origins);
  training.preference = read_preference(reader, job, origins);
  if (training.preference) note_preference(training, job);
  settle_sequence_and_precision(reader, training, job);
  check_precision(reader, training, job.cluster.device);
  for (const Device& device : job.cluster.node_devices) check_precision(reader, training, device);
  const nlohmann::json* stack = reader.find("stack");
  const nlohmann::json measured = profile == nullptr ? nlohmann::json() : *profile->stack;
  training.stack = read_stack(stack == nullptr ? nlohmann::json(kDefaultStack) : *stack, measured,
                              job.cluster.device.generation, origins);
  if (profile != nullptr) note_other_software(*profile, job, training.stack);
  training.fitted = read_fitted(reader, profile, origins);
  if (stack == nullptr) job.assumptions.push_back(fmt::format("training.stack is {}", kDefaultStack));
  note_release(training.stack, job);
  read_software(reader, training.stack);
  settle_optimizer(reader, training, job);
  settle_recipe(reader, training, job);
  if (!reader.has("attention")) training.flash_attention = training.stack.flash_attention;
  if (!reader.has("gradient_transport")) training.gradient_transport = training.transport;
  check_transports(reader, training, job);
  if (training.tokens && *training.tokens < 1.0) {
    reader.fail("tokens", "is below 1", "expected a count such as \"300B\"");
  }
  return training;
}

}  // namespace flopcast
