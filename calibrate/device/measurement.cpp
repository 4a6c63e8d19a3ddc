#include "calibrate/device/measurement.hpp"

#include <fmt/format.h>

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/device/fits.hpp"
#include "model/config/codec.hpp"
#include "model/workload/training.hpp"

namespace flopcast {

namespace {

constexpr const char* kSchema = "flopcast.measurement/1";
constexpr int kMostRanks = 1'000'000;
constexpr int kMostMultiprocessors = 100'000;
constexpr int kLargestDimension = 100'000'000;
constexpr int kMostSequences = 1'000'000'000;
constexpr int kMostPasses = 100;
constexpr int kMostChannels = 1'024;

double positive(const ObjectReader& reader, std::string_view key, const nlohmann::json& value) {
  const double number = value.is_number() ? value.get<double>() : 0.0;
  if (!std::isfinite(number) || number <= 0.0) {
    reader.fail(key, fmt::format("{} is not above zero", value.dump()), "expected a finite number above zero");
  }
  // Numbers beyond any time or size of a machine would make fits overflow.
  constexpr double kLeast = 1e-15;
  constexpr double kMost = 1e18;
  if (number < kLeast || number > kMost) {
    reader.fail(key, fmt::format("{} is not a plausible time or size", value.dump()),
                fmt::format("expected {:g} to {:g}", kLeast, kMost));
  }
  return number;
}

// A field for a time or a size.
template <auto Member>
Entry<OwnerOf<Member>> measured(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    owner.*Member = positive(reader, field.key, *reader.find(field.key));
  };
  return entry_of<Member>(key, FieldKind::kNumber, help, read, &write_number<Member>);
}

// Reads the sides of a shape from a list of whole numbers.
template <auto Member, auto... Sides>
Entry<SampleKey> sides(std::string_view key, std::string_view form) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, SampleKey& sample) {
    const std::vector<int> numbers = *reader.whole_list(field.key, 1, kLargestDimension);
    if (numbers.size() != sizeof...(Sides)) {
      reader.fail(field.key, fmt::format("has {} numbers", numbers.size()), fmt::format("expected {}", field.help));
    }
    auto& shape = (sample.*Member).emplace();
    std::size_t next = 0;
    ((shape.*Sides = numbers[next++]), ...);
  };
  const auto write = [](const FieldInfo&, const SampleKey& sample) {
    const auto& shape = *(sample.*Member);
    return OrderedJsonValue(nlohmann::ordered_json::array({shape.*Sides...}));
  };
  return entry_of<Member>(key, FieldKind::kWholeList, form, read, write).required(form);
}

bool has_bytes(SampleKind kind) {
  return kind == SampleKind::kMemoryCopy || kind == SampleKind::kHostCopy || kind == SampleKind::kChannelCopy ||
         is_message(kind) || is_memory_bound(kind);
}

// Fields that describe the size of a sample of this kind.
Fields<SampleKey> fields_over(SampleKind kind) {
  if (kind == SampleKind::kGemm) {
    return {sides<&SampleKey::shape, &SampleShape::m, &SampleShape::n, &SampleShape::k>(
        "shape", "m, n and k of the GEMM, such as [256, 256, 64]")};
  }
  if (kind == SampleKind::kTrainingStep) {
    return {whole<&SampleKey::batch>("batch", 1, kMostSequences, "sequences over all ranks")
                .required("the global batch size of the step")};
  }
  if (is_attention(kind)) {
    const auto read = [](ObjectReader& reader, const FieldInfo& field, SampleKey& key) {
      key.attention->causal = *reader.boolean(field.key);
    };
    const auto write = [](const FieldInfo&, const SampleKey& key) -> OrderedJsonValue { return key.attention->causal; };
    return {sides<&SampleKey::attention, &AttentionShape::batch, &AttentionShape::heads, &AttentionShape::sequence,
                  &AttentionShape::head_dim>("attention",
                                             "batch, heads, sequence and head dimension, such as [4, 16, 2048, 128]"),
            custom<SampleKey>("causal", FieldKind::kBoolean, "only half of the scores are computed", read, write)};
  }
  if (!has_bytes(kind)) return {};
  return {measured<&SampleKey::bytes>("bytes", "size of the message, copy or kernel")
              .required("the size of the message, copy or kernel")};
}

Fields<SampleKey> fields_of_kind(SampleKind kind) {
  Fields<SampleKey> fields = {choice<&SampleKey::kind>("kind", "kind of work that was timed").required()};
  for (Field<SampleKey>& field : fields_over(kind)) fields.push_back(std::move(field));
  const Fields<SampleKey> common = {
      text<&SampleKey::op>("operator", "variant of the kind"),
      optional_choice<&SampleKey::beside>("beside", "kind of work that ran at the same time"),
      whole<&SampleKey::channels>("channels", 1, kMostChannels, "channels of the message or channel copy")
          .zero_is_none(),
      whole<&SampleKey::ranks>("ranks", 1, kMostRanks, "ranks that took part"),
      whole<&SampleKey::nodes>("nodes", 1, kMostRanks, "nodes that the ranks were on"),
      text<&SampleKey::dtype>("dtype", "type of the operands").always(),
      whole<&SampleKey::pass>("pass", 1, kMostPasses, "pass of the calibration")};
  fields.insert(fields.end(), common.begin(), common.end());
  return fields;
}

const Fields<SampleKey>& key_fields(SampleKind kind) {
  static const std::vector<Fields<SampleKey>> by_kind = [] {
    std::vector<Fields<SampleKey>> all;
    for (std::size_t index = 0; index < names_of<SampleKind>().size(); ++index) {
      all.push_back(fields_of_kind(static_cast<SampleKind>(index)));
    }
    return all;
  }();
  return by_kind[static_cast<std::size_t>(kind)];
}

const Fields<Sample>& time_fields() {
  const auto read_seconds = [](ObjectReader& reader, const FieldInfo& field, Sample& sample) {
    const nlohmann::json& seconds = *reader.find(field.key);
    if (!seconds.is_array() || seconds.empty()) {
      reader.fail("seconds", "is not a list of times",
                  "expected one number per repetition, such as [1.2e-05, 1.3e-05]");
    }
    for (const nlohmann::json& second : seconds) sample.seconds.push_back(positive(reader, field.key, second));
  };
  const auto write_seconds = [](const FieldInfo&, const Sample& sample) {
    return OrderedJsonValue(nlohmann::ordered_json(sample.seconds));
  };
  static const Fields<Sample> fields = {
      measured<&Sample::processor_seconds>("processor_seconds", "CPU time of all repetitions"),
      custom<Sample>("seconds", FieldKind::kList, "time of each repetition", read_seconds, write_seconds)
          .required("the time of each repetition")};
  return fields;
}

void check_key(const ObjectReader& reader, const SampleKey& key) {
  if (key.nodes > key.ranks) {
    reader.fail("nodes", fmt::format("{} nodes have only {} ranks", key.nodes, key.ranks),
                "expected at most the number of ranks");
  }
  const bool has_channels = key.kind == SampleKind::kChannelCopy || is_message(key.kind);
  if (key.channels > 0 && !key.beside && !has_channels) {
    reader.fail("channels", "is given without \"beside\"",
                "add the kind that ran at the same time, such as \"beside\": \"all_reduce\"");
  }
  if (key.kind == SampleKind::kChannelCopy && key.channels == 0)
    reader.fail_missing("channels", "expected its number of thread blocks");
}

// Values by name, such as library versions and clocks.
template <auto Member, auto Read>
Entry<Measurement> by_name(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, Measurement& measurement) {
    ObjectReader values = *reader.object(field.key);
    for (const auto& item : values.values().items()) {
      (measurement.*Member)[item.key()] = Read(values, item.key(), item.value());
    }
  };
  const auto write = [](const FieldInfo& field, const Measurement& measurement) -> OrderedJsonValue {
    const auto& values = measurement.*Member;
    return values.empty() && !field.always ? nlohmann::ordered_json() : nlohmann::ordered_json(values);
  };
  return custom<Measurement>(key, FieldKind::kObject, help, read, write);
}

void read_samples(ObjectReader& reader, const FieldInfo& field, Measurement& measurement) {
  std::set<std::string> known;
  for (ObjectReader& element : reader.objects(field.key)) {
    Sample& sample = measurement.samples.emplace_back();
    const auto kind = static_cast<SampleKind>(element.choice("kind", names_of<SampleKind>()).value_or(0));
    read_fields(key_fields(kind), element, sample.key);
    check_key(element, sample.key);
    read_fields(time_fields(), element, sample);
    element.refuse_unknown_keys();
    const std::string name = sample.key.text();
    if (known.insert(name).second) continue;
    throw ConfigError(
        {element.pointer(), fmt::format("{} is given twice", name), element.place(), "keep one of the two"});
  }
}

std::string version_of(ObjectReader& versions, const std::string& key, const nlohmann::json&) {
  return versions.text(key).value_or("");
}

const Fields<Measurement>& measurement_fields() {
  static const Fields<Measurement> fields = {
      text<&Measurement::device>("device", "name of the measured device")
          .required("the name of the measured device")
          .always(),
      whole<&Measurement::multiprocessors>("multiprocessors", 1, kMostMultiprocessors,
                                           "SMs of a GPU; cores that work on one GEMM of a CPU"),
      text<&Measurement::host>("host", "the machine's name").always(),
      text<&Measurement::date>("date", "YYYY-MM-DD; of a run with the time of day, UTC").always(),
      by_name<&Measurement::libraries, &version_of>("libraries", "name to version").always(),
      measured<&Measurement::memory_bytes>("memory_bytes", "of the device, or of the whole host"),
      by_name<&Measurement::clocks_mhz, &positive>("clocks_mhz", "maximum clocks of the device's parts, by name"),
      custom<Measurement>("samples", FieldKind::kList, "timed samples", &read_samples, nullptr)
          .required("a list of timed samples")};
  return fields;
}

}  // namespace

std::optional<CollectiveKind> collective_of(SampleKind kind) {
  if (kind < SampleKind::kCollective || kind >= SampleKind::kReduce) return std::nullopt;
  return static_cast<CollectiveKind>(static_cast<int>(kind) - static_cast<int>(SampleKind::kCollective));
}

bool is_message(SampleKind kind) {
  return kind >= SampleKind::kPointToPoint && kind <= SampleKind::kReduce;
}

bool is_memory_bound(SampleKind kind) {
  return kind >= SampleKind::kNorm && kind <= SampleKind::kOptimizerStep;
}

bool is_attention(SampleKind kind) {
  return kind == SampleKind::kAttentionForward || kind == SampleKind::kAttentionBackward;
}

double AttentionShape::flops() const {
  const double scores = static_cast<double>(batch) * heads * sequence * sequence * (causal ? 0.5 : 1.0);
  return 4.0 * scores * head_dim;
}

std::string SampleKey::text_without_pass() const {
  std::string words(name_of(kind));
  if (shape) words += fmt::format(" {}x{}x{}", shape->m, shape->n, shape->k);
  if (attention) {
    words += fmt::format(" {}x{}x{}x{}{}", attention->batch, attention->heads, attention->sequence, attention->head_dim,
                         attention->causal ? "" : " in full");
  }
  if (!op.empty()) words += fmt::format(" ({})", op);
  if (bytes) words += fmt::format(" {} B", *bytes);
  if (batch) words += fmt::format(" of {} sequences", *batch);
  if (ranks > 1) words += fmt::format(", {} ranks", ranks);
  if (nodes > 1) words += fmt::format(" on {} nodes", nodes);
  if (!dtype.empty()) words += " " + dtype;
  if (beside) words += fmt::format(" overlapped with {}", name_of(*beside));
  if (channels > 0) words += fmt::format(" on {} channels", channels);
  return words;
}

std::string SampleKey::text() const {
  return fmt::format("{}, pass {}", text_without_pass(), pass);
}

double Sample::median() const {
  return median_of(seconds);
}

bool Measurement::has(const SampleKey& key) const {
  return std::any_of(samples.begin(), samples.end(), [&key](const Sample& sample) { return sample.key == key; });
}

Measurement read_measurement(std::string_view text, const std::string& file) {
  const nlohmann::json root = parse_json(text, file);
  Origins origins;
  origins.file = file;
  ObjectReader reader(root, "", origins);
  const std::string expected = fmt::format("expected \"{}\"", kSchema);
  const auto schema = reader.text("schema");
  if (!schema) reader.fail_missing("schema", expected);
  if (*schema != kSchema) reader.fail("schema", fmt::format("\"{}\" is another format", *schema), expected);
  if (reader.find("run") != nullptr) {
    reader.fail("run", "these are the steps of a run, which cannot be turned into a profile",
                "measure the machine: flopcast calibrate --cpu");
  }
  Measurement measurement;
  read_fields(measurement_fields(), reader, measurement);
  reader.refuse_unknown_keys();
  return measurement;
}

std::string write_measurement(const Measurement& measurement) {
  nlohmann::ordered_json json = {{"schema", kSchema}};
  add_fields(measurement_fields(), measurement, json);
  // One sample per line keeps the file readable without a line for every time.
  std::string text = "{\n";
  for (const auto& item : json.items()) text += fmt::format("  {}: {},\n", json_text(item.key()), dumped(item.value()));
  text += "  \"samples\": [";
  const char* separator = "\n    ";
  for (const Sample& sample : measurement.samples) {
    nlohmann::ordered_json one = write_fields(key_fields(sample.key.kind), sample.key);
    add_fields(time_fields(), sample, one);
    text += separator + dumped(one);
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

namespace {

std::string text_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw EnvironmentError(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return text.str();
}

// Other library versions choose other kernels: their times belong in another measurement.
void require_same_libraries(const Measurement& known, const Measurement& about, const std::string& path) {
  for (const auto& [library, version] : about.libraries) {
    const auto before = known.libraries.find(library);
    if (before == known.libraries.end() || before->second == version) continue;
    throw ConfigError(
        {"libraries",
         fmt::format("{} was measured with {} {}, but this machine has {}", path, library, before->second, version),
         path, "name another file, or remove this one"});
  }
}

}  // namespace

void replace_measurement_file(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  std::error_code code;
  const auto fail = [&](const std::string& reason) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw EnvironmentError(fmt::format("cannot write {}: {}", path, reason));
  };
  errno = 0;
  {
    std::ofstream stream(temporary, std::ios::binary);
    stream << text;
    stream.flush();
    if (!stream) fail(std::strerror(errno));
  }
  std::filesystem::rename(temporary, path, code);
  if (code) fail(code.message());
}

MeasurementFile::MeasurementFile(std::string path, const Measurement& about)
    : path_(std::move(path)), about_(about), measurement_(about) {
  if (path_.empty()) return;
  std::error_code code;
  if (!std::filesystem::exists(path_, code)) {
    replace_measurement_file(path_, write_measurement(measurement_));
    return;
  }
  Measurement known = read_measurement(text_of(path_), path_);
  if (known.device != about.device || known.multiprocessors != about.multiprocessors || known.host != about.host) {
    throw ConfigError({"device",
                       fmt::format("{} contains measurements of {} on {}, but this is {} on {}", path_, known.device,
                                   known.host, about.device, about.host),
                       path_, "name another file"});
  }
  require_same_libraries(known, about, path_);
  // Libraries that the file does not list yet are those of the new samples.
  known.libraries.insert(about.libraries.begin(), about.libraries.end());
  measurement_ = std::move(known);
}

void MeasurementFile::append(const Sample& sample) {
  FLOPCAST_CHECK(!has(sample.key));
  measurement_.samples.push_back(sample);
  if (!path_.empty()) replace_measurement_file(path_, write_measurement(measurement_));
}

namespace {

bool is_named(const Measurement& measurement) {
  return !measurement.device.empty() && measurement.device != "unnamed";
}

// Name of the group of samples that are fitted together.
std::string group_of(const SampleKey& key) {
  if (key.kind == SampleKind::kGemm) {
    return fmt::format("GEMMs of {}{}", key.dtype, key.op.empty() ? "" : " (" + key.op + ")");
  }
  if (!is_message(key.kind)) {
    return fmt::format("{}{}{}", name_of(key.kind), key.op.empty() ? "" : " (" + key.op + ")",
                       key.dtype.empty() ? "" : " " + key.dtype);
  }
  return fmt::format("{}, {} ranks{}", name_of(key.kind), key.ranks,
                     key.nodes > 1 ? fmt::format(" on {} nodes", key.nodes) : "");
}

// Number of different samples that a fit of the group needs; zero if nothing is fitted over sizes.
std::size_t needed_for(SampleKind kind) {
  if (kind == SampleKind::kGemm) return kFewestShapes;
  if (is_message(kind) || kind == SampleKind::kMemoryCopy || kind == SampleKind::kHostCopy) return kFewestSizes;
  return is_memory_bound(kind) || is_attention(kind) ? kFewestAmounts : 0;
}

// True for samples that are not overlapped and have no channels. Groups of the others may be small: they are fitted
// only if there are enough of them.
bool is_fitted_alone(const SampleKey& key) {
  return !key.beside && key.channels == 0;
}

}  // namespace

void add_samples(Measurement& all, const Measurement& more, const std::string& file) {
  if (is_named(all) && is_named(more) && all.device != more.device) {
    throw ConfigError({"", fmt::format("was measured on {}, but the previous files on {}", more.device, all.device),
                       file, "one profile describes one device"});
  }
  if (!is_named(all)) {
    all.device = more.device;
    all.multiprocessors = more.multiprocessors;
    all.memory_bytes = more.memory_bytes;
    all.clocks_mhz = more.clocks_mhz;
  }
  if (all.host.empty()) all.host = more.host;
  all.date = std::max(all.date, more.date);
  all.libraries.insert(more.libraries.begin(), more.libraries.end());
  for (Sample sample : more.samples) {
    while (all.has(sample.key)) ++sample.key.pass;
    all.samples.push_back(std::move(sample));
  }
}

std::vector<std::string> leave_out_small_groups(Measurement& measurement) {
  std::map<std::string, std::set<std::string>> sizes;
  std::map<std::string, std::string> reasons;
  for (const Sample& sample : measurement.samples) {
    if (!is_fitted_alone(sample.key)) continue;
    const std::string group = group_of(sample.key);
    SampleKey size = sample.key;
    // A curve does not distinguish data types.
    if (is_message(size.kind)) size.dtype.clear();
    sizes[group].insert(size.text_without_pass());
    if (sample.key.kind == SampleKind::kGemm && !parse<Precision>(sample.key.dtype)) {
      reasons[group] = fmt::format("{}: no forecast uses them", group);
    }
  }
  for (const Sample& sample : measurement.samples) {
    if (!is_fitted_alone(sample.key)) continue;
    const bool product = sample.key.kind == SampleKind::kGemm;
    const std::string group = group_of(sample.key);
    const std::size_t known = sizes[group].size();
    const std::size_t needed = needed_for(sample.key.kind);
    if (known >= needed) continue;
    reasons.emplace(group, fmt::format("{}: {} {}{}, but a fit needs {}", group, known, product ? "shape" : "size",
                                       known == 1 ? "" : "s", needed));
  }
  std::erase_if(measurement.samples, [&reasons](const Sample& sample) {
    return is_fitted_alone(sample.key) && reasons.count(group_of(sample.key)) > 0;
  });
  std::vector<std::string> sentences;
  for (auto& [group, reason] : reasons) sentences.push_back(std::move(reason));
  return sentences;
}

Agreement compare_passes(const Measurement& measurement) {
  std::map<std::string, std::vector<double>> medians;
  for (const Sample& sample : measurement.samples) {
    medians[sample.key.text_without_pass()].push_back(sample.median());
  }
  Agreement agreement;
  std::vector<double> differences;
  for (const auto& [name, times] : medians) {
    if (times.size() < 2) continue;
    const auto [least, most] = std::minmax_element(times.begin(), times.end());
    const double difference = *most / *least - 1.0;
    differences.push_back(difference);
    if (difference < agreement.largest) continue;
    agreement.largest = difference;
    agreement.worst = name;
  }
  agreement.compared = static_cast<int>(differences.size());
  agreement.median = median_of(differences);
  return agreement;
}

void require_agreement(const Measurement& measurement, const std::string& file) {
  const Agreement agreement = compare_passes(measurement);
  if (agreement.median <= kAgreementTolerance) return;
  throw EnvironmentError(fmt::format(
      "the two calibration passes disagree by {:.1f} % in the median over {} samples (tolerance {:.1f} "
      "%), most on {} ({:.1f} %): no profile was written. Something else used this machine; calibrate again "
      "when it is quiet{}",
      1e2 * agreement.median, agreement.compared, 1e2 * kAgreementTolerance, agreement.worst, 1e2 * agreement.largest,
      file.empty() ? "" : fmt::format(" (the measurements are in {})", file)));
}

std::optional<double> disturbance(const Measurement& measurement) {
  std::vector<double> ratios;
  for (const Sample& sample : measurement.samples) {
    if (!sample.processor_seconds) continue;
    ratios.push_back(std::accumulate(sample.seconds.begin(), sample.seconds.end(), 0.0) / *sample.processor_seconds);
  }
  if (ratios.empty()) return std::nullopt;
  return median_of(ratios);
}

}  // namespace flopcast
