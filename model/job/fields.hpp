// The tables of the job file's structs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/codec.hpp"
#include "model/job.hpp"

namespace flopcast {

inline constexpr int kLargestLayers = 100'000;
inline constexpr int kMostRanks = 1'000'000;
inline constexpr int kLargestBatch = 1'000'000'000;

const Fields<Transformer>& transformer_fields();
const Fields<Experts>& experts_fields();
const Fields<LatentAttention>& latent_fields();
const Fields<LayerProfile>& layer_profile_fields();
const Fields<ProfiledLayer>& profiled_layer_fields();
/// Of a transformer or a layer profile.
FieldInfos model_fields();
const Fields<Cluster>& cluster_fields();
const Fields<ClusterNode>& node_fields();
const Fields<Device>& device_fields();
const Fields<GemmKernel>& gemm_kernel_fields();
const Fields<GroupCurve>& curve_fields();
const Fields<DeviceLink>& link_fields();
const Fields<Network>& network_fields();
const Fields<MessageSegment>& segment_fields();
const Fields<Layout>& layout_fields();
const Fields<Training>& training_fields();
const Fields<Finetune>& finetune_fields();
const Fields<Preference>& preference_fields();
const Fields<Stack>& overlap_fields();
const Fields<Stack>& dispatch_fields();
const Fields<Failures>& failure_fields();
const Fields<FailureCause>& failure_cause_fields();
const Fields<Stack>& stack_fields();
/// What a job may say of its software beside the stack's name, and a stack's description as well.
const Fields<Stack>& software_fields();
/// The sections of a job file.
const Fields<Job>& job_fields();
/// Of the section "training": what it says of the software replaces the stack's.
void read_software(ObjectReader& reader, Stack& stack);

/// A key with its path, "layout.tp". What names an object has the object's path.
struct JobKey {
  std::string field;
  FieldKind kind = FieldKind::kText;
  std::vector<std::string_view> aliases;
  std::string_view value_name;
  std::string_view help;
  const FieldInfo* entry = nullptr;
};
/// Every key of the job file, down to those of nested objects, in the order of --help. Each path is a flag.
const std::vector<JobKey>& job_keys();

/// docs/schema/job-1.schema.json: what a job file may hold, as JSON Schema.
nlohmann::ordered_json job_schema();

/// Of attention: flash and unfused.
const std::vector<std::string>& attention_names();

/// flash or unfused, kept as whether it is flash.
template <auto Member>
Entry<OwnerOf<Member>> attention(std::string_view help) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    if (const auto index = reader.choice(field.key, attention_names())) owner.*Member = *index == 0;
  };
  const auto write = [](const FieldInfo&, const OwnerOf<Member>& owner) -> OrderedJsonValue {
    return attention_names()[owner.*Member ? 0 : 1];
  };
  return entry_of<Member>("attention", FieldKind::kChoice, help, read, write).among([] { return attention_names(); });
}

/// Beyond anything measured, and still far from what ratios and products of a double overflow at.
inline constexpr double kMostMeasured = 1e60;
/// The number that must be there, from field.smallest to kMostMeasured.
double bounded_number(ObjectReader& reader, const FieldInfo& field);

/// A number that was measured, which must be given.
template <auto Member>
Entry<OwnerOf<Member>> measured(std::string_view key, std::string_view help, double smallest = 0.0) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    owner.*Member = ValueOf<Member>(bounded_number(reader, field));
  };
  return entry_of<Member>(key, FieldKind::kNumber, help, read, &write_number<Member>)
      .required("a number, in the unit the key names")
      .at_least(smallest);
}

/// What the elements of a tensor may be kept in.
std::vector<std::string> element_format_names();

}  // namespace flopcast
