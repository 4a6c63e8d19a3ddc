#include "model/job/write_job.hpp"

#include <nlohmann/json.hpp>

#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson model_json(const Job& job) {
  if (!job.profile) return write_fields(transformer_fields(), &job.model);
  OrderedJson model = {{"name", job.model.name}};
  model.update(write_fields(layer_profile_fields(), &*job.profile));
  return model;
}

OrderedJson training_json(const Job& job) {
  OrderedJson training;
  for (const Field& field : training_fields()) {
    OrderedJson value;
    if (field.write != nullptr) value = field.write(field, &job.training);
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

OrderedJson stack_json(const Stack& stack) {
  return write_fields(stack_fields(), &stack);
}

OrderedJson job_json(const Job& job) {
  return {{"model", model_json(job)},
          {"cluster", write_fields(cluster_fields(), &job.cluster)},
          {"layout", write_fields(layout_fields(), &job.layout)},
          {"training", training_json(job)}};
}

}  // namespace flopcast
