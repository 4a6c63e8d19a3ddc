#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/job/device_profile.hpp"
#include "model/job/fields.hpp"
#include "model/workload/training.hpp"

namespace flopcast {

namespace {

constexpr int kLongestSequence = 100'000'000;
constexpr int kHighestRank = 65'536;

void read_targets(ObjectReader& reader, const FieldInfo& field, Finetune& finetune) {
  AdapterTargets targets;
  for (const std::string& word :
       listed_words(reader, field, "expected a list such as [\"q_proj\", \"v_proj\"], or all")) {
    const AdapterTargets named = targets_of(word);
    if (named.none()) {
      reader.fail(field.key, fmt::format("unknown linear \"{}\"", word), choices_help(word, field.choices()));
    }
    targets |= named;
  }
  if (targets.none()) reader.fail(field.key, "does not name a linear", "leave it out for all linears of a block");
  finetune.targets = targets;
}

OrderedJsonValue write_targets(const FieldInfo&, const Finetune& finetune) {
  const AdapterTargets& targets = finetune.targets;
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (std::size_t index = 0; index < targets.size(); ++index) {
    if (targets[index]) names.push_back(names_of<AdapterTarget>()[index]);
  }
  if (names.empty()) return nullptr;
  return names;
}

std::vector<std::string> target_choices() {
  std::vector<std::string> names = names_of<AdapterTarget>();
  names.emplace_back("all");
  return names;
}

OrderedJsonValue write_fitted(const FieldInfo&, const Training& training) {
  const std::optional<RunFit>& fitted = training.fitted;
  return fitted ? run_fit_json(*fitted) : nlohmann::ordered_json();
}

// Writes only keys that matter for its method.
OrderedJsonValue write_finetune(const FieldInfo&, const Training& training) {
  const std::optional<Finetune>& finetune = training.finetune;
  if (!finetune) return nullptr;
  nlohmann::ordered_json json = write_fields(finetune_fields(), *finetune);
  if (finetune->adapts()) {
    json.erase("trainable_layers");
  } else {
    for (const char* key : {"rank", "alpha", "targets", "dropout", "base", "double_quant"}) json.erase(key);
  }
  return json;
}

// Written only for the optimizer that uses it.
OrderedJsonValue write_optimizer_rank(const FieldInfo&, const Training& training) {
  if (training.optimizer != Optimizer::kGalore) return nullptr;
  return training.optimizer_rank;
}

OrderedJsonValue write_preference(const FieldInfo&, const Training& training) {
  const std::optional<Preference>& preference = training.preference;
  if (!preference) return nullptr;
  return write_fields(preference_fields(), *preference);
}

}  // namespace

const Fields<Finetune>& finetune_fields() {
  static const Fields<Finetune> fields = {
      choice<&Finetune::method>("method", "which weights are trained: full, lora, qlora or freeze")
          .names_object()
          .flag("METHOD", {"--finetune"}),
      whole<&Finetune::rank>("rank", 1, kHighestRank, "rank of the adapters' matrices").flag("N", {"--lora-rank"}),
      amount<&Finetune::alpha>("alpha", "adapters' outputs are scaled by alpha / rank; does not affect times")
          .flag("A"),
      entry_of<&Finetune::targets>("targets", FieldKind::kList, "linear layers with adapters, or all", &read_targets,
                                   &write_targets)
          .among(&target_choices)
          .flag("NAME,…", {"--lora-targets"})
          .otherwise("all linear layers of a block"),
      amount<&Finetune::dropout>("dropout", "dropout rate before the adapters").up_to(1.0).flag("P"),
      choice<&Finetune::base>("base", "storage format of frozen linear layers: bf16, fp8, int8 or nf4")
          .flag("FORMAT")
          .otherwise("bf16, or nf4 with qlora"),
      boolean<&Finetune::double_quant>("double_quant", "nf4: store the scales in 8 bits")
          .flag("")
          .otherwise("true with qlora and nf4"),
      whole<&Finetune::trainable_layers>("trainable_layers", -kLargestLayers, kLargestLayers,
                                         "freeze: train the last N layers, or the first -N if negative")
          .flag("N"),
      boolean<&Finetune::embeddings>("embeddings", "also train embedding and head").flag(""),
  };
  return fields;
}

const Fields<Preference>& preference_fields() {
  static const Fields<Preference> fields = {
      choice<&Preference::method>("method", "method that judges answers: dpo, orpo, simpo, reward, kto or grpo")
          .names_object()
          .required()
          .flag("METHOD", {"--preference"}),
      boolean<&Preference::reference>("reference", "compare with a forward pass of the original model")
          .flag("")
          .otherwise("true with dpo, kto and grpo"),
  };
  return fields;
}

const Fields<Training>& training_fields() {
  static const Fields<Training> own = {
      whole<&Training::sequence_length>("sequence_length", 1, kLongestSequence, "tokens per sequence")
          .flag("N", {"--seq", "--seq-length"})
          .otherwise("as the model"),
      whole<&Training::document_length>(
          "document_length", 0, kLongestSequence,
          "tokens per document packed into a sequence, each attending only to itself; 0: no packing")
          .flag("N"),
      choice<&Training::precision>("precision", "training format: fp32, tf32, fp16, bf16 or fp8")
          .flag("FORMAT", {"--precision"})
          .otherwise("bf16, or fp16 if a device has no bf16; for a layer profile, its own"),
      choice<&Training::optimizer>("optimizer", "optimizer: adam, sgd, adam8bit, lion, adafactor, muon or galore")
          .flag("NAME"),
      whole<&Training::optimizer_rank>("optimizer_rank", 1, kHighestRank,
                                       "galore: number of dimensions onto which gradients are projected")
          .flag("N"),
      boolean<&Training::paged_optimizer>("paged_optimizer", "keep optimizer states that do not fit in host memory")
          .flag(""),
      boolean<&Training::master_weights>("master_weights", "keep an fp32 copy of the weights").flag(""),
      attention<&Training::flash_attention>("attention kernels: flash or unfused")
          .flag("KIND")
          .otherwise("as the stack"),
      choice<&Training::transport>("transport", "communication library: nccl, gloo or mpi").flag("NAME"),
      choice<&Training::gradient_transport>("gradient_transport",
                                            "communication library for data-parallel traffic only (default: transport)")
          .flag("NAME")
          .otherwise("transport"),
      other("stack", FieldKind::kObject, "training software").of<stack_fields>(),
      optional_choice<&Training::fp8_recipe>("fp8_recipe", "scaling recipe of precision fp8")
          .flag("NAME", {"--fp8-recipe"})
          .otherwise("as the stack; else delayed, or mxfp8 on Blackwell"),
      other("gradient_dtype", FieldKind::kChoice, "format of the buffer that accumulates gradients over microbatches")
          .among(&element_format_names)
          .flag("FORMAT", {"--main-grads-dtype"})
          .otherwise("as the stack"),
      custom<Training>("finetune", FieldKind::kObject, "which weights are trained", nullptr, &write_finetune)
          .of<finetune_fields>(),
      custom<Training>("preference", FieldKind::kObject, "preference or reward training", nullptr, &write_preference)
          .of<preference_fields>(),
      other("overlap", FieldKind::kObject, "communication that overlaps with computation").of<overlap_fields>(),
      other("experts_dispatch", FieldKind::kObject, "how tokens are sent to their experts").of<dispatch_fields>(),
      // The bounds keep the product of these two finite.
      quantity<&Training::tokens>("tokens", Dimension::kCount, "tokens of the whole run, such as 300B")
          .up_to(1e18)
          .flag("COUNT", {"--tokens"}),
      quantity<&Training::price_per_gpu_hour>("price_per_gpu_hour", Dimension::kMoney, "price of a GPU hour")
          .up_to(1e9)
          .flag("DOLLARS", {"--price"}),
      other("profile", FieldKind::kObject, "device profile (see: flopcast calibrate --help, flopcast catalog profiles)")
          .flag("FILE|NAME", {"--profile"}),
      custom<Training>("fitted", FieldKind::kObject, "uncertainty of the constants fitted by flopcast fit", nullptr,
                       &write_fitted),
  };
  // A job's software keys override those of the stack.
  static const Fields<Training> fields = [] {
    Fields<Training> all = own;
    for (Field<Training>& field : all) {
      if (field.key == "optimizer_rank") field.write = &write_optimizer_rank;
    }
    for (const Field<Stack>& setting : software_fields()) {
      Field<Training> field{setting.info()};
      field.kept = false;
      field.fallback = nullptr;
      field.otherwise = "as the stack";
      all.push_back(field);
    }
    return all;
  }();
  return fields;
}

namespace {

using OrderedJson = nlohmann::ordered_json;

void add_keys(const std::string& path, const FieldInfos& fields, std::vector<JobKey>& keys) {
  for (const FieldInfo* field : fields) {
    const std::string name = field->names_object ? path
                             : path.empty()      ? std::string(field->key)
                                                 : fmt::format("{}.{}", path, field->key);
    const bool opens = field->kind == FieldKind::kObject && field->parts != nullptr;
    if (!opens) keys.push_back({name, field->kind, field->aliases, field->value_name, field->help, field});
    if (opens) add_keys(name, field->parts(), keys);
  }
}

}  // namespace

double bounded_number(ObjectReader& reader, const FieldInfo& field) {
  const std::optional<double> number = reader.number(field.key);
  if (*number >= field.smallest && *number <= kMostMeasured) return *number;
  reader.fail(field.key, fmt::format("{} is out of range", *number),
              fmt::format("expected a number from {:g} to {:g}", field.smallest, kMostMeasured));
}

const Fields<Job>& job_fields() {
  static const Fields<Job> fields = {
      other("model", FieldKind::kObject, "the model to train").of<model_fields>(),
      other("cluster", FieldKind::kObject, "the hardware").of<cluster_fields>(),
      other("layout", FieldKind::kObject, "how model and batch are distributed over the devices").of<layout_fields>(),
      other("training", FieldKind::kObject, "how the model is trained").of<training_fields>(),
      other("failures", FieldKind::kObject, "failures that interrupt the run").of<failure_fields>()};
  return fields;
}

std::vector<JobKey> keys_of(const FieldInfos& sections) {
  std::vector<JobKey> keys;
  add_keys("", sections, keys);
  return keys;
}

const std::vector<JobKey>& job_keys() {
  static const std::vector<JobKey> keys = keys_of(infos_of<job_fields>());
  return keys;
}

OrderedJson job_schema() {
  OrderedJson schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                        {"title", "flopcast job, version 1"},
                        {"description", "A job file (JSON; // comments are allowed), and the job inside a result."}};
  const OrderedJson rules = schema_of(infos_of<job_fields>());
  for (const auto& item : rules.items()) schema[item.key()] = item.value();
  // For a layer profile, "layers" is a list.
  OrderedJson& layers = schema["properties"]["model"]["properties"]["layers"];
  layers["type"] = {"integer", "array"};
  layers["items"] = schema_of(infos_of<profiled_layer_fields>());
  schema["required"] = {"model"};
  return schema;
}

}  // namespace flopcast
