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
/// Keys of a transformer or a layer profile.
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
/// The keys that both a job and a stack's description may use to describe software.
const Fields<Stack>& software_fields();
/// The sections of a job file.
const Fields<Job>& job_fields();
/// Reads the software keys of the section "training", which override the stack's.
void read_software(ObjectReader& reader, Stack& stack);

/// A key with its path, "layout.tp". A key that names an object has the object's path.
struct JobKey {
  std::string field;
  FieldKind kind = FieldKind::kText;
  std::vector<std::string_view> aliases;
  std::string_view value_name;
  std::string_view help;
  const FieldInfo* entry = nullptr;
};
/// Every key of the job file, including those of nested objects, in --help order. Each path is a flag.
const std::vector<JobKey>& job_keys();
/// The same for other sections.
std::vector<JobKey> keys_of(const FieldInfos& sections);

/// docs/schema/job-1.schema.json: JSON Schema of job files.
nlohmann::ordered_json job_schema();

/// Values of attention: flash and unfused.
const std::vector<std::string>& attention_names();

/// flash or unfused, stored as a Boolean that is true for flash.
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

/// Larger than any measurement, and small enough that ratios and products of doubles cannot overflow.
inline constexpr double kMostMeasured = 1e60;
/// The required number, from field.smallest to kMostMeasured.
double bounded_number(ObjectReader& reader, const FieldInfo& field);

/// A measured number, which is required.
template <auto Member>
Entry<OwnerOf<Member>> measured(std::string_view key, std::string_view help, double smallest = 0.0) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    owner.*Member = ValueOf<Member>(bounded_number(reader, field));
  };
  return entry_of<Member>(key, FieldKind::kNumber, help, read, &write_number<Member>)
      .required("expected a number in the unit named by the key")
      .at_least(smallest);
}

/// Formats in which the elements of a tensor may be stored.
std::vector<std::string> element_format_names();

}  // namespace flopcast
