#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/object_reader.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// What a key's value is in JSON. A quantity is a text with a unit, or a bare number of a dimension without units.
enum class FieldKind { kWhole, kNumber, kBoolean, kText, kWholeList, kChoice, kQuantity, kObject, kList };

/// Who decides a key of the layout when a layout is searched: the job; the planner, unless the job fixes it; or the
/// job, for those layouts that can have it.
enum class Planning { kGiven, kChosen, kPossible };

struct Field;
using Fields = std::vector<Field>;

/// One key of the job file. Reading and writing it, its flags, --help, --show-config, completion and the schema all
/// come from here; only what computes with the member names it again.
struct Field {
  std::string_view key;  ///< inside its object
  FieldKind kind = FieldKind::kText;
  std::string_view help;
  std::string_view value_name;            ///< for --help: N, NAME, SIZE
  std::vector<std::string_view> aliases;  ///< flags beside its path: the short one first, then Megatron's names
  bool listed = false;                    ///< by --help; every path is a flag
  bool names_object = false;              ///< its value may stand for the whole object: "model": "gpt3-175b"
  bool required = false;
  std::string_view needed;     ///< required: the help of the complaint; empty: the choices
  std::string_view otherwise;  ///< what an absent key means where that depends on other keys
  double smallest = 0.0;       ///< of whole numbers
  double largest = 0.0;        ///< of whole and other numbers; 0: no bound
  bool above_zero = false;     ///< of quantities
  bool zero_is_none = false;   ///< zero stands for an absent key and is not written
  bool of_gpus = false;        ///< counts on GPUs alone
  Planning planning = Planning::kGiven;
  Dimension dimension = Dimension::kCount;
  double unit = 1.0;                                ///< of the member, in the dimension's base unit
  std::vector<std::string> (*choices)() = nullptr;  ///< of a fixed set, or the names of a catalogue
  const Fields& (*parts)() = nullptr;               ///< of an object, or of a list's elements

  /// Reads the key into its struct where it is given. Null where the struct's reader does, or where the key only helps
  /// to find others.
  void (*read)(ObjectReader& reader, const Field& field, void* owner) = nullptr;
  /// Its value in the struct, null JSON where there is none. Null for keys that the struct does not keep.
  OrderedJsonValue (*write)(const Field& field, const void* owner) = nullptr;
  /// What an absent key means: its value in a struct of which nothing was said.
  OrderedJsonValue (*fallback)(const Field& field) = nullptr;
  void (*copy)(const void* from, void* to) = nullptr;
};

const Fields& transformer_fields();
const Fields& experts_fields();
const Fields& latent_fields();
const Fields& layer_profile_fields();
const Fields& profiled_layer_fields();
/// Of a transformer or a layer profile.
const Fields& model_fields();
const Fields& cluster_fields();
const Fields& node_fields();
const Fields& device_fields();
const Fields& gemm_kernel_fields();
const Fields& curve_fields();
const Fields& link_fields();
const Fields& network_fields();
const Fields& segment_fields();
const Fields& layout_fields();
const Fields& training_fields();
const Fields& finetune_fields();
const Fields& preference_fields();
const Fields& overlap_fields();
const Fields& dispatch_fields();
const Fields& failure_fields();
const Fields& failure_cause_fields();
const Fields& stack_fields();
/// What a job may say of its software beside the stack's name, and a stack's description as well.
const Fields& software_fields();
/// The sections of a job file.
const Fields& job_fields();
/// The field of that key; there must be one.
const Field& field_named(const Fields& fields, std::string_view key);

struct Stack;
/// Of the section "training": what it says of the software replaces the stack's.
void read_software(ObjectReader& reader, Stack& stack);

/// Reads every key that the table can read into `owner`, the struct of the table. All keys count as asked for.
void read_fields(const Fields& fields, ObjectReader& reader, void* owner);
/// Every value of `owner`, in the table's order.
nlohmann::ordered_json write_fields(const Fields& fields, const void* owner);

/// A key with its path, "layout.tp". What names an object has the object's path.
struct JobKey {
  std::string field;
  FieldKind kind = FieldKind::kText;
  std::vector<std::string_view> aliases;
  std::string_view value_name;
  std::string_view help;
  const Field* entry = nullptr;
};
/// Every key of the job file, down to those of nested objects, in the order of --help. Each path is a flag.
const std::vector<JobKey>& job_keys();

/// docs/schema/job-1.schema.json: what a job file may hold, as JSON Schema.
nlohmann::ordered_json job_schema();

}  // namespace flopcast
