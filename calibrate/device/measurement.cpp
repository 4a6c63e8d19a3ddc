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
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/text/error.hpp"
#include "calibrate/device/fits.hpp"
#include "model/config/object_reader.hpp"

namespace flopcast {

namespace {

constexpr const char* kSchema = "flopcast.measurement/1";
constexpr int kMostRanks = 1'000'000;
constexpr int kMostMultiprocessors = 100'000;
constexpr int kLargestDimension = 100'000'000;
constexpr int kMostSequences = 1'000'000'000;
constexpr int kMostPasses = 100;

double positive(ObjectReader& reader, std::string_view key, const nlohmann::json& value) {
  const double number = value.is_number() ? value.get<double>() : 0.0;
  if (!std::isfinite(number) || number <= 0.0) {
    reader.fail(key, fmt::format("{} is not above zero", value.dump()), "expected a finite number above zero");
  }
  // Beyond any time or size: fits of such numbers overflow.
  constexpr double kLeast = 1e-15;
  constexpr double kMost = 1e18;
  if (number < kLeast || number > kMost) {
    reader.fail(key, fmt::format("{} is no time or size of a machine", value.dump()),
                fmt::format("expected {:g} to {:g}", kLeast, kMost));
  }
  return number;
}

SampleShape read_shape(ObjectReader& reader) {
  const auto numbers = reader.whole_list("shape", 1, kLargestDimension);
  if (!numbers) reader.fail_missing("shape", "m, n and k of the product, such as [256, 256, 64]");
  if (numbers->size() != 3) {
    reader.fail("shape", fmt::format("lists {} numbers", numbers->size()), "expected m, n and k");
  }
  return {(*numbers)[0], (*numbers)[1], (*numbers)[2]};
}

AttentionShape read_attention(ObjectReader& reader) {
  const auto numbers = reader.whole_list("attention", 1, kLargestDimension);
  const char* form = "batch, heads, sequence and head dimension, such as [4, 16, 2048, 128]";
  if (!numbers) reader.fail_missing("attention", form);
  constexpr std::size_t kNumbers = 4;
  if (numbers->size() != kNumbers) {
    reader.fail("attention", fmt::format("lists {} numbers", numbers->size()), fmt::format("expected {}", form));
  }
  return {(*numbers)[0], (*numbers)[1], (*numbers)[2], (*numbers)[3], reader.boolean("causal").value_or(true)};
}

void read_neighbour(ObjectReader& reader, SampleKey& key) {
  if (const auto beside = reader.choice("beside", sample_kind_names())) key.beside = static_cast<SampleKind>(*beside);
  constexpr int kMostChannels = 1'024;
  key.channels = reader.whole("channels", 1, kMostChannels).value_or(0);
  const bool has_channels = key.kind == SampleKind::kChannelCopy || is_message(key.kind);
  if (key.channels > 0 && !key.beside && !has_channels) {
    reader.fail("channels", "is given without what ran beside", "say \"beside\" too, such as \"all_reduce\"");
  }
  if (key.kind == SampleKind::kChannelCopy && key.channels == 0) reader.fail_missing("channels", "its thread blocks");
}

bool has_bytes(SampleKind kind) {
  return kind == SampleKind::kMemoryCopy || kind == SampleKind::kHostCopy || kind == SampleKind::kChannelCopy ||
         is_message(kind) || is_memory_bound(kind);
}

SampleKey read_key(ObjectReader& reader) {
  SampleKey key;
  const auto kind = reader.choice("kind", sample_kind_names());
  if (!kind) reader.fail_missing("kind", choices_help("", sample_kind_names()));
  key.kind = static_cast<SampleKind>(*kind);
  if (key.kind == SampleKind::kGemm) {
    key.shape = read_shape(reader);
  } else if (key.kind == SampleKind::kTrainingStep) {
    key.batch = reader.whole("batch", 1, kMostSequences);
    if (!key.batch) reader.fail_missing("batch", "the global batch size of the step");
  } else if (is_attention(key.kind)) {
    key.attention = read_attention(reader);
  } else if (has_bytes(key.kind)) {
    const nlohmann::json* bytes = reader.find("bytes");
    if (bytes == nullptr) reader.fail_missing("bytes", "the size of the message or copy");
    key.bytes = positive(reader, "bytes", *bytes);
  }
  key.ranks = reader.whole("ranks", 1, kMostRanks).value_or(1);
  key.nodes = reader.whole("nodes", 1, kMostRanks).value_or(1);
  if (key.nodes > key.ranks) {
    reader.fail("nodes", fmt::format("{} nodes hold only {} ranks", key.nodes, key.ranks), "expected at most ranks");
  }
  key.dtype = reader.text("dtype").value_or("");
  key.op = reader.text("operator").value_or("");
  read_neighbour(reader, key);
  key.pass = reader.whole("pass", 1, kMostPasses).value_or(1);
  return key;
}

Sample read_sample(const nlohmann::json& value, std::size_t index, const Origins& origins) {
  ObjectReader reader(value, fmt::format("samples.{}", index), origins);
  Sample sample;
  sample.key = read_key(reader);
  const nlohmann::json* seconds = reader.find("seconds");
  if (seconds == nullptr) reader.fail_missing("seconds", "the time of each repetition");
  if (!seconds->is_array() || seconds->empty()) {
    reader.fail("seconds", "is no list of times", "expected one number per repetition, such as [1.2e-05, 1.3e-05]");
  }
  for (const nlohmann::json& second : *seconds) sample.seconds.push_back(positive(reader, "seconds", second));
  if (const nlohmann::json* processor = reader.find("processor_seconds")) {
    sample.processor_seconds = positive(reader, "processor_seconds", *processor);
  }
  reader.refuse_unknown_keys();
  return sample;
}

void check_schema(ObjectReader& reader) {
  const auto schema = reader.text("schema");
  if (!schema) reader.fail_missing("schema", fmt::format("expected \"{}\"", kSchema));
  if (*schema != kSchema) {
    reader.fail("schema", fmt::format("\"{}\" is another format", *schema), fmt::format("expected \"{}\"", kSchema));
  }
}

nlohmann::ordered_json json_of(const Sample& sample) {
  const SampleKey& key = sample.key;
  nlohmann::ordered_json json = {{"kind", name_of(key.kind)}};
  if (key.shape) json["shape"] = {key.shape->m, key.shape->n, key.shape->k};
  if (key.bytes) json["bytes"] = *key.bytes;
  if (key.batch) json["batch"] = *key.batch;
  if (key.attention) {
    const AttentionShape& shape = *key.attention;
    json["attention"] = {shape.batch, shape.heads, shape.sequence, shape.head_dim};
    json["causal"] = shape.causal;
  }
  if (!key.op.empty()) json["operator"] = key.op;
  if (key.beside) json["beside"] = name_of(*key.beside);
  if (key.channels > 0) json["channels"] = key.channels;
  json["ranks"] = key.ranks;
  json["nodes"] = key.nodes;
  json["dtype"] = key.dtype;
  json["pass"] = key.pass;
  if (sample.processor_seconds) json["processor_seconds"] = *sample.processor_seconds;
  json["seconds"] = sample.seconds;
  return json;
}

}  // namespace

const std::vector<std::string>& sample_kind_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"gemm", "memory_copy", "p2p"};
    const std::vector<std::string>& collectives = names_of<CollectiveKind>();
    all.insert(all.end(), collectives.begin(), collectives.begin() + kTimedCollectives);
    all.insert(all.end(),
               {"reduce", "training_step", "attention_forward", "attention_backward", "norm", "elementwise",
                "embedding", "loss", "optimizer_step", "launch", "host_dispatch", "host_copy", "channel_copy"});
    return all;
  }();
  return names;
}

std::string_view name_of(SampleKind kind) {
  return sample_kind_names()[static_cast<std::size_t>(kind)];
}

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
  if (beside) words += fmt::format(" beside {}", name_of(*beside));
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
  check_schema(reader);
  if (reader.find("run") != nullptr) {
    reader.fail("run", "these are the steps of a run, of which no profile can be made",
                "measure the machine: flopcast calibrate --cpu");
  }
  Measurement measurement;
  const auto device = reader.text("device");
  if (!device) reader.fail_missing("device", "the name of what was measured");
  measurement.device = *device;
  measurement.multiprocessors = reader.whole("multiprocessors", 1, kMostMultiprocessors).value_or(1);
  if (const nlohmann::json* memory = reader.find("memory_bytes")) {
    measurement.memory_bytes = positive(reader, "memory_bytes", *memory);
  }
  measurement.host = reader.text("host").value_or("");
  measurement.date = reader.text("date").value_or("");
  if (const nlohmann::json* libraries = reader.find("libraries")) {
    ObjectReader versions(*libraries, "libraries", origins);
    for (const auto& item : libraries->items()) {
      measurement.libraries[item.key()] = versions.text(item.key()).value_or("");
    }
  }
  if (const nlohmann::json* clocks = reader.find("clocks_mhz")) {
    ObjectReader rates(*clocks, "clocks_mhz", origins);
    for (const auto& item : clocks->items()) {
      measurement.clocks_mhz[item.key()] = positive(rates, item.key(), item.value());
    }
  }
  const nlohmann::json* samples = reader.find("samples");
  if (samples == nullptr) reader.fail_missing("samples", "a list of what was timed");
  if (!samples->is_array()) reader.fail("samples", "is no list", "expected a list of samples");
  reader.refuse_unknown_keys();
  std::set<std::string> known;
  for (std::size_t index = 0; index < samples->size(); ++index) {
    measurement.samples.push_back(read_sample((*samples)[index], index, origins));
    const std::string name = measurement.samples.back().key.text();
    if (known.insert(name).second) continue;
    const std::string field = fmt::format("samples.{}", index);
    throw ConfigError({field, fmt::format("{} is given twice", name), origins.where(field), "keep one of the two"});
  }
  return measurement;
}

std::string write_measurement(const Measurement& measurement) {
  nlohmann::ordered_json json = {
      {"schema", kSchema},        {"device", measurement.device}, {"multiprocessors", measurement.multiprocessors},
      {"host", measurement.host}, {"date", measurement.date},     {"libraries", measurement.libraries}};
  if (measurement.memory_bytes) json["memory_bytes"] = *measurement.memory_bytes;
  if (!measurement.clocks_mhz.empty()) json["clocks_mhz"] = measurement.clocks_mhz;
  json["samples"] = nlohmann::ordered_json::array();
  for (const Sample& sample : measurement.samples) json["samples"].push_back(json_of(sample));
  // One sample a line: a person can read it, and the seconds do not take a line each.
  std::string text = "{\n";
  for (const auto& item : json.items()) {
    if (item.key() != "samples") {
      // A log's device name need not be UTF-8.
      const std::string value = item.value().dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
      text += fmt::format("  {}: {},\n", nlohmann::json(item.key()).dump(), value);
    }
  }
  text += "  \"samples\": [";
  const char* separator = "\n    ";
  for (const auto& sample : json["samples"]) {
    text += separator + sample.dump();
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

// Other libraries choose other kernels: their times belong to another measurement.
void require_same_libraries(const Measurement& known, const Measurement& about, const std::string& path) {
  for (const auto& [library, version] : about.libraries) {
    const auto before = known.libraries.find(library);
    if (before == known.libraries.end() || before->second == version) continue;
    throw ConfigError(
        {"libraries", fmt::format("{} was measured with {} {}, and here is {}", path, library, before->second, version),
         path, "give another file, or remove this one"});
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
                       fmt::format("{} holds measurements of {} on {}, this is {} on {}", path_, known.device,
                                   known.host, about.device, about.host),
                       path_, "give another file"});
  }
  require_same_libraries(known, about, path_);
  // What is new is measured with them.
  known.libraries.insert(about.libraries.begin(), about.libraries.end());
  measurement_ = std::move(known);
}

void MeasurementFile::append(const Sample& sample) {
  FLOPCAST_CHECK(!has(sample.key));
  measurement_.samples.push_back(sample);
  if (!path_.empty()) replace_measurement_file(path_, write_measurement(measurement_));
}

}  // namespace flopcast
