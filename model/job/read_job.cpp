#include "model/job/read_job.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/job/fields.hpp"
#include "model/job/rules.hpp"

namespace flopcast {

namespace {

using OrderedJson = nlohmann::ordered_json;

// training.profile, whose path the caller has replaced by the file's content.
std::optional<DeviceProfile> measured_profile(ObjectReader& root, const Origins& origins) {
  const nlohmann::json* training = root.find("training");
  if (training == nullptr || !training->is_object() || !training->contains("profile")) return std::nullopt;
  return read_device_profile(training->at("profile"), "training.profile", origins);
}

void refuse_other_links(const DeviceProfile& profile, const Job& job) {
  if (!profile.measured_links || !job.cluster.curves.empty()) return;
  throw ConfigError(
      {"training.profile",
       fmt::format("profile {} has no effect: its messages were measured on links of {}, but cluster {} has others",
                   profile.name, profile.measured_links->name, job.cluster.name),
       job.origins.where("training.profile"), "omit the profile, or measure the cluster's links"});
}

OrderedJson model_json(const Job& job) {
  if (!job.profile) return write_fields(transformer_fields(), job.model);
  OrderedJson model = {{"name", job.model.name}};
  model.update(write_fields(layer_profile_fields(), *job.profile));
  return model;
}

OrderedJson training_json(const Job& job) {
  OrderedJson training;
  for (const Field<Training>& field : training_fields()) {
    OrderedJson value;
    if (field.write != nullptr) value = field.write(field, job.training);
    if (field.key == "stack") {
      value = stack_json(job.training.stack);
      const auto known = catalogue_stack(job.training.stack.name, job.cluster.device.generation);
      if (known && stack_json(*known) == value) value = job.training.stack.name;
    }
    if (!value.is_null()) training[std::string(field.key)] = std::move(value);
  }
  return training;
}

}  // namespace

Job read_job(const nlohmann::json& root, const Origins& origins) {
  Job job;
  job.origins = origins;
  ObjectReader reader(root, "", job.origins);
  // Unknown sections are reported first, so that a misspelt "trainig" does not silently mean defaults.
  for (const FieldInfo& section : job_fields()) reader.find(section.key);
  reader.refuse_unknown_keys();
  const nlohmann::json* model = reader.find("model");
  if (model != nullptr && lists_measured_layers(*model)) {
    job.profile = read_profile(*model, job, job.origins);
  } else {
    job.model = read_model(reader, job, job.origins);
  }
  const std::optional<DeviceProfile> measured = measured_profile(reader, job.origins);
  job.cluster = read_cluster(reader, measured ? &*measured : nullptr, job.assumptions, job.origins);
  job.training = read_training(reader, measured ? &*measured : nullptr, job, job.origins);
  if (measured && !measured->curves.empty() && !has_figures(*measured)) {
    refuse_other_links(*measured, job);
    job.profile_of_messages = measured->name;
  }
  read_layout(reader, job, job.origins);
  job.failures = read_failures(reader, job, job.origins);
  return job;
}

OrderedJson stack_json(const Stack& stack) {
  return write_fields(stack_fields(), stack);
}

OrderedJson job_json(const Job& job) {
  OrderedJson json = {{"model", model_json(job)},
                      {"cluster", write_fields(cluster_fields(), job.cluster)},
                      {"layout", write_fields(layout_fields(), job.layout)},
                      {"training", training_json(job)}};
  if (job.failures) json["failures"] = write_fields(failure_fields(), *job.failures);
  return json;
}

namespace {

// Other programs specify accumulation and derive the batch from the number of devices.
void note_batch_of_accumulation(const ObjectReader& reader, Job& job) {
  Layout& layout = job.layout;
  if (layout.global_batch_size == 0) {
    const double batch = static_cast<double>(layout.dp) * layout.micro_batch_size * *layout.accumulation;
    reader.fail("accumulation", fmt::format("makes a batch of {:.0f} sequences", batch), "");
  }
  job.assumptions.push_back(
      fmt::format("layout.global_batch_size is dp {} · micro_batch_size {} · accumulation {} = {}", layout.dp,
                  layout.micro_batch_size, *layout.accumulation, layout.global_batch_size));
  layout.accumulation.reset();
}

void note_assumptions(Job& job) {
  const Layout& layout = job.layout;
  const bool hidden = job.training.stack.overlap_gradient_reduction;
  const bool in_buckets = hidden && layout.replicas() > 1 && layout.gradient_shards() == 1 && !job.profile &&
                          layout.data_parallel != DataParallel::kDataParallel;
  if (in_buckets && !layout.bucket_mb) {
    job.assumptions.push_back("layout.bucket_mb is 25, but 1 for the first bucket");
  }
  if (layout.zero == kShardsGradients && layout.microbatches() > 1) {
    job.assumptions.push_back("zero 2 reduces the gradients of every microbatch");
  }
  const bool travels_beside = layout.weight_shards() > 1 || (layout.gradient_shards() > 1 && hidden);
  if (travels_beside && (layout.microbatches() > 1 || layout.vpp.value_or(1) > 1)) {
    job.assumptions.push_back(
        "sharded weights and gradients are communicated during the neighbouring passes of a rank; only the ends of one "
        "pass per step are exposed");
  }
}

}  // namespace

void read_layout(ObjectReader& root, Job& job, const Origins& origins) {
  const nlohmann::json* section = root.find("layout");
  const nlohmann::json values = section == nullptr ? nlohmann::json::object() : *section;
  ObjectReader reader(values, "layout", origins);
  job.layout = {};
  read_fields(layout_fields(), reader, job.layout);
  reader.refuse_unknown_keys();
  const GivenKeys given = given_keys(reader);
  if (!given.global_batch_size && !job.layout.accumulation) {
    reader.fail_missing("global_batch_size", "give --gbs N, the sequences per step");
  }
  settle_layout(job, given);
  if (const LayoutRule* broken = first_broken(job)) refuse_layout(reader, job, *broken);
  if (!given.global_batch_size) note_batch_of_accumulation(reader, job);
  if (job.layout.data_parallel == DataParallel::kHsdp && !given.shards) {
    job.assumptions.push_back(fmt::format("layout.shards is {}, the replicas of one node", job.layout.shards));
  }
  note_assumptions(job);
}

}  // namespace flopcast
