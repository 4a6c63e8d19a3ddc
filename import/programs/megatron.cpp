#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/error.hpp"
#include "import/programs/foreign_keys.hpp"
#include "import/programs/formats.hpp"
#include "import/programs/imported_job.hpp"
#include "import/shell/shell.hpp"

// Megatron-LM's argument lists: names, defaults and meanings as in megatron/training/arguments.py and the
// configuration classes it takes arguments from.
namespace flopcast {

namespace {

/// The arguments that a launch script hands to Megatron-LM and to its launcher (torchrun, srun), by name without the
/// leading dashes, underscores as dashes. Asking for one marks it as modelled; the rest is told as without effect.
class MegatronArguments {
 public:
  /// Throws ConfigError when the text hands no argument to anything.
  MegatronArguments(std::string_view text, const std::string& file, const ImportContext& context,
                    ImportedJob& imported);

  bool has(const std::string& name);
  /// Nothing when absent; throws for a value that is no whole number of at least `smallest`, or that the script does
  /// not set, unless flags set `field`.
  std::optional<int> whole(const std::string& name, int smallest, const std::string& field = "");
  std::optional<double> number(const std::string& name, const std::string& field = "");
  std::optional<std::string> text(const std::string& name, const std::string& field = "");

  /// "train.sh:27: --num-layers".
  std::string place(const std::string& name) const;
  [[noreturn]] void fail(const std::string& name, const std::string& problem, const std::string& help) const;
  [[noreturn]] void fail_missing(const std::string& name, const std::string& help) const;
  /// Warns about the arguments asked for that the text gives twice, with different values.
  void tell_twice(ImportedJob& imported) const;
  /// Notes every argument not asked for as having no effect; refuses those that look like a slip of the pen.
  void finish(ImportedJob& imported) const;

 private:
  struct Argument {
    std::string written;
    std::vector<ShellWord> values;
    int line = 0;
  };
  void compare_with(const std::map<std::string, Argument>& before);
  void add_command(const ShellCommand& command);
  const Argument* find(const std::string& name);
  const std::string* value_of(const std::string& name, const std::string& field);

  const std::string& file_;
  const ImportContext& context_;
  std::map<std::string, Argument> arguments_;
  std::map<std::string, std::string> twice_;  ///< the warning about a name that has two values
  std::vector<std::string> asked_;
};

bool is_flag(const std::string& text) {
  constexpr std::size_t kShortest = 3;
  return text.size() >= kShortest && text[0] == '-' && text[1] == '-' && text[2] != '-';
}

std::string name_in(const std::string& flag) {
  std::string name = flag.substr(2, flag.find('=') - 2);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// What tells the command that trains from the others of a script (downloads, conversions).
bool trains(const ShellCommand& command) {
  return std::any_of(command.begin(), command.end(), [](const ShellWord& word) {
    if (!is_flag(word.text)) return false;
    const std::string name = name_in(word.text);
    return name == "num-layers" || name == "hidden-size" || name == "tensor-model-parallel-size" ||
           name == "micro-batch-size" || name == "global-batch-size" || name == "seq-length";
  });
}

MegatronArguments::MegatronArguments(std::string_view text, const std::string& file, const ImportContext& context,
                                     ImportedJob& imported)
    : file_(file), context_(context) {
  const ShellScript script = parse_shell(text, file);
  // An argument list need not be a command: its lines start with the flags themselves.
  const bool is_list = !script.commands.empty() && is_flag(script.commands.front().front().text);
  imported.warnings = script.warnings;
  imported.notes = script.notes;
  int trainings = 0;
  for (const ShellCommand& command : script.commands) {
    const std::string& first = command.front().text;
    if (first == "#SBATCH" || (is_list && is_flag(first))) add_command(command);
    if (is_flag(first) || first == "#SBATCH" || !trains(command)) continue;
    ++trainings;
    add_command(command);
  }
  if (arguments_.empty()) {
    throw ConfigError({"", fmt::format("{} hands no argument of Megatron-LM to a command", file), file,
                       "expected a command with --num-layers, --hidden-size, …"});
  }
  if (trainings > 1) {
    imported.warnings.push_back(
        fmt::format("{}: {} commands train; the later one wins where they differ", file, trainings));
  }
  if (script.has_conditions) {
    imported.notes.push_back(
        fmt::format("{}: loops are read once, and every branch that cannot be decided as if it ran", file));
  }
}

void MegatronArguments::compare_with(const std::map<std::string, Argument>& before) {
  const auto shown = [](const Argument& argument) {
    if (argument.values.empty()) return std::string();
    const std::string unset = unset_name(argument.values.front().text);
    return unset.empty() ? argument.values.front().text : unset;
  };
  for (const auto& [name, earlier] : before) {
    const Argument& argument = arguments_.at(name);
    if (shown(argument) == shown(earlier)) continue;
    twice_[name] = fmt::format("{}: \"{}\" here and \"{}\" in line {}; the later one is taken", place(name),
                               shown(argument), shown(earlier), earlier.line);
  }
}

void MegatronArguments::tell_twice(ImportedJob& imported) const {
  for (const auto& [name, text] : twice_) {
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) imported.warnings.push_back(text);
  }
}

void MegatronArguments::add_command(const ShellCommand& command) {
  Argument* current = nullptr;
  std::map<std::string, Argument> before;
  for (const ShellWord& word : command) {
    if (!is_flag(word.text)) {
      if (current != nullptr) current->values.push_back(word);
      continue;
    }
    const std::size_t equals = word.text.find('=');
    const auto earlier = arguments_.find(name_in(word.text));
    if (earlier != arguments_.end()) before[earlier->first] = earlier->second;
    current = &(arguments_[name_in(word.text)] = {word.text.substr(0, equals), {}, word.line});
    if (equals != std::string::npos) current->values.push_back({word.text.substr(equals + 1), word.line});
  }
  compare_with(before);
}

const MegatronArguments::Argument* MegatronArguments::find(const std::string& name) {
  asked_.push_back(name);
  const auto argument = arguments_.find(name);
  return argument == arguments_.end() ? nullptr : &argument->second;
}

bool MegatronArguments::has(const std::string& name) {
  return find(name) != nullptr;
}

std::string MegatronArguments::place(const std::string& name) const {
  const auto argument = arguments_.find(name);
  if (argument == arguments_.end()) return file_;
  return fmt::format("{}:{}: {}", file_, argument->second.line, argument->second.written);
}

void MegatronArguments::fail(const std::string& name, const std::string& problem, const std::string& help) const {
  throw ConfigError({"--" + name, problem, place(name), help});
}

void MegatronArguments::fail_missing(const std::string& name, const std::string& help) const {
  std::vector<std::string> unread;
  for (const auto& [other, argument] : arguments_) {
    if (std::find(asked_.begin(), asked_.end(), other) == asked_.end()) unread.push_back(other);
  }
  for (const std::string& near : nearest_choices(name, unread)) {
    constexpr std::size_t kLongestSlip = 2;
    if (std::max(near.size(), name.size()) - std::min(near.size(), name.size()) > kLongestSlip) continue;
    throw ConfigError({"--" + name, "is required", place(near),
                       fmt::format("the file has {}; is --{} meant?", arguments_.at(near).written, name)});
  }
  throw ConfigError({"--" + name, "is required", file_, help});
}

const std::string* MegatronArguments::value_of(const std::string& name, const std::string& field) {
  const Argument* argument = find(name);
  if (argument == nullptr) return nullptr;
  if (argument->values.empty()) fail(name, "has no value", "");
  const std::string& value = argument->values.front().text;
  const std::string unset = unset_name(value);
  if (unset.empty()) return &value;
  if (context_.given.count(field) > 0) return nullptr;
  fail(name, fmt::format("takes its value from {}, which the script does not set", unset),
       field.empty() ? "set it in the script" : fmt::format("set it in the script, or give --{}", field));
}

std::optional<int> MegatronArguments::whole(const std::string& name, int smallest, const std::string& field) {
  const std::string* value = value_of(name, field);
  if (value == nullptr) return std::nullopt;
  errno = 0;
  char* end = nullptr;
  const long number = std::strtol(value->c_str(), &end, 10);
  const bool is_number = !value->empty() && *end == '\0' && errno == 0;
  if (!is_number) fail(name, fmt::format("\"{}\" is not a whole number", *value), "");
  constexpr int kLargest = std::numeric_limits<int>::max();
  if (number < smallest || number > kLargest) {
    fail(name, fmt::format("{} is out of range", number), fmt::format("expected {} to {}", smallest, kLargest));
  }
  return static_cast<int>(number);
}

std::optional<double> MegatronArguments::number(const std::string& name, const std::string& field) {
  const std::string* value = value_of(name, field);
  if (value == nullptr) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(value->c_str(), &end);
  if (value->empty() || *end != '\0') fail(name, fmt::format("\"{}\" is not a number", *value), "");
  return number;
}

std::optional<std::string> MegatronArguments::text(const std::string& name, const std::string& field) {
  const std::string* value = value_of(name, field);
  return value == nullptr ? std::nullopt : std::optional<std::string>(*value);
}

void MegatronArguments::finish(ImportedJob& imported) const {
  std::vector<std::string> unread;
  for (const auto& [name, argument] : arguments_) {
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
    for (const std::string& near : nearest_choices(name, asked_)) {
      const std::size_t longer = std::max(near.size(), name.size());
      const std::size_t shorter = std::min(near.size(), name.size());
      constexpr std::size_t kLongestSlip = 2;
      constexpr std::size_t kSameStart = 3;
      const bool slip = longer - shorter <= kLongestSlip && near.substr(0, kSameStart) == name.substr(0, kSameStart);
      if (slip && arguments_.count(near) == 0) {
        fail(name, "unknown argument", fmt::format("is --{} meant?", near));
      }
    }
    unread.push_back(argument.written);
  }
  if (unread.empty()) return;
  imported.notes.push_back(fmt::format("{}: no effect on the forecast: {}", file_, fmt::join(unread, ", ")));
}

constexpr int kGpt2Vocabulary = 50'257;
constexpr int kStackVocabularyDivisor = 128;
constexpr double kMegatronDropout = 0.1;

class MegatronReader {
 public:
  MegatronReader(std::string_view text, const std::string& file, const ImportContext& context)
      : arguments_(text, file, context, out_), file_(file), context_(context) {}

  ImportedJob read();

 private:
  bool given(const std::string& field) const { return context_.given.count(field) > 0; }
  bool names_a_model() const { return given("model"); }
  std::optional<int> put_whole(const std::string& name, const std::string& field);
  int required(const std::string& name, const std::string& field);
  void put(const std::string& field, nlohmann::json value, const std::string& name) {
    out_.put(field, std::move(value), arguments_.place(name));
  }
  void note(const std::string& text) { out_.notes.push_back(fmt::format("{}: {}", file_, text)); }
  void warn(const std::string& name, const std::string& text) {
    out_.warnings.push_back(fmt::format("{}: {}", arguments_.place(name), text));
  }

  void read_cluster();
  void read_model();
  void read_ffn(int hidden);
  void read_norm_and_positions();
  void read_dropout();
  void read_vocabulary();
  void read_experts();
  void read_layout();
  void read_virtual_stages();
  void read_uneven_stages();
  void read_recompute();
  void read_sharding();
  void read_training();
  void read_precision();
  void read_length();
  void fit_nodes();
  void tell_left_out();

  ImportedJob out_;
  MegatronArguments arguments_;
  const std::string& file_;
  const ImportContext& context_;
  int tp_ = 1;
  int pp_ = 1;
  int cp_ = 1;
  int vpp_ = 1;
  int layers_ = 0;
};

std::optional<int> MegatronReader::put_whole(const std::string& name, const std::string& field) {
  const auto number = arguments_.whole(name, 1, field);
  if (number) put(field, *number, name);
  return number;
}

int MegatronReader::required(const std::string& name, const std::string& field) {
  const auto number = put_whole(name, field);
  if (!number && !given(field)) {
    arguments_.fail_missing(name, fmt::format("the file must have it, or give --{} or --model NAME", field));
  }
  return number.value_or(0);
}

void MegatronReader::read_cluster() {
  struct Launcher {
    const char* name;
    const char* field;
  };
  static constexpr Launcher kLaunchers[] = {{"nproc-per-node", "cluster.devices_per_node"},
                                            {"gpus-per-node", "cluster.devices_per_node"},
                                            {"ntasks-per-node", "cluster.devices_per_node"},
                                            {"num-gpus", "cluster.devices_per_node"},
                                            {"nnodes", "cluster.nodes"},
                                            {"nodes", "cluster.nodes"},
                                            {"num-nodes", "cluster.nodes"}};
  for (const Launcher& launcher : kLaunchers) {
    const auto value = arguments_.has(launcher.name) ? arguments_.text(launcher.name, "cluster") : std::nullopt;
    // "gpu", "auto" and "1:4" are for the launcher to work out.
    const bool is_number = value && !value->empty() && value->find_first_not_of("0123456789") == std::string::npos;
    if (is_number) put_whole(launcher.name, launcher.field);
  }
}

void MegatronReader::read_norm_and_positions() {
  const auto norm = arguments_.text("normalization", "model.norm");
  if (norm && *norm != "LayerNorm" && *norm != "RMSNorm") {
    arguments_.fail("normalization", fmt::format("unknown value \"{}\"", *norm), "valid: LayerNorm, RMSNorm");
  }
  put("model.norm", norm && *norm == "RMSNorm" ? "rmsnorm" : "layernorm", "normalization");
  const auto positions = arguments_.text("position-embedding-type", "model.positions").value_or("learned_absolute");
  const bool rotary = arguments_.has("use-rotary-position-embeddings");
  const std::vector<std::string> names = {"learned_absolute", "rope", "none", "yarn", "mrope", "alibi"};
  if (std::find(names.begin(), names.end(), positions) == names.end()) {
    arguments_.fail("position-embedding-type", fmt::format("unknown value \"{}\"", positions),
                    choices_help(positions, names));
  }
  std::string kind = positions == "none" || positions == "alibi" ? positions : "rotary";
  if (positions == "learned_absolute" && !rotary) kind = "learned";
  put("model.positions", kind, "position-embedding-type");
}

void MegatronReader::read_dropout() {
  bool any = false;
  bool all_told = true;
  for (const char* name : {"attention-dropout", "hidden-dropout"}) {
    const auto share = arguments_.number(name, "model.dropout");
    all_told = all_told && share.has_value();
    any = any || share.value_or(kMegatronDropout) > 0;
  }
  put("model.dropout", any, "hidden-dropout");
  if (!all_told) note(fmt::format("dropout not given is Megatron's {}", kMegatronDropout));
}

void MegatronReader::read_vocabulary() {
  auto vocab = arguments_.whole("vocab-size", 1, "model.vocab");
  const auto tokenizer = arguments_.text("tokenizer-type", "model.vocab");
  const bool bpe_files = arguments_.has("vocab-file") && arguments_.has("merge-file");
  const auto divisor = arguments_.whole("make-vocab-size-divisible-by", 1).value_or(kStackVocabularyDivisor);
  std::string name = "vocab-size";
  if (!vocab && !given("model.vocab")) {
    name = tokenizer ? "tokenizer-type" : "merge-file";
    if (tokenizer ? *tokenizer != "GPT2BPETokenizer" : !bpe_files) {
      const std::string problem =
          tokenizer ? fmt::format("{} does not tell the vocabulary", *tokenizer) : "is required";
      if (tokenizer) arguments_.fail("tokenizer-type", problem, "give --vocab-size N, in the file or as a flag");
      arguments_.fail_missing("vocab-size", "give --vocab-size N, in the file or as a flag");
    }
    vocab = kGpt2Vocabulary;
    note(fmt::format("the vocabulary is GPT-2's {} (from --{}); give --vocab-size N for another", *vocab, name));
  }
  if (!vocab) return;
  std::int64_t stored = *vocab;
  if (divisor != kStackVocabularyDivisor) {
    const std::int64_t multiple = std::int64_t{divisor} * tp_;
    stored = (stored + multiple - 1) / multiple * multiple;
    note(fmt::format("the vocabulary is padded to a multiple of {} · tp {}: {}", divisor, tp_, stored));
  }
  if (stored > std::numeric_limits<int>::max()) arguments_.fail(name, fmt::format("{} is out of range", stored), "");
  put("model.vocab", stored, name);
}

void MegatronReader::read_experts() {
  const auto count = arguments_.whole("num-experts", 1);
  ForeignExperts experts;
  experts.top_k = arguments_.whole("moe-router-topk", 1).value_or(2);
  experts.ffn = arguments_.whole("moe-ffn-hidden-size", 1);
  const auto shared = arguments_.whole("moe-shared-expert-intermediate-size", 1);
  if (shared) {
    experts.shared = 1;
    experts.shared_ffn = shared;
  }
  const auto frequency = arguments_.text("moe-layer-freq").value_or("1");
  if (count) {
    experts.count = *count;
    const bool number =
        !frequency.empty() && frequency.size() < 6 && frequency.find_first_not_of("0123456789") == std::string::npos;
    if (number) {
      experts.every = std::max(1, std::stoi(frequency));
    } else {
      // "([0]*3+[1]*58)": three dense layers in front is the one pattern in use.
      const std::size_t dense = frequency.find("[0]*");
      const std::size_t rest = frequency.find("[1]*");
      const std::string digits =
          dense == std::string::npos
              ? ""
              : frequency.substr(dense + 4, frequency.find_first_not_of("0123456789", dense + 4) - dense - 4);
      if (digits.empty() || digits.size() > 5 || rest == std::string::npos || rest < dense) {
        arguments_.fail("moe-layer-freq", fmt::format("\"{}\" is not modelled", frequency), "valid: N, ([0]*N+[1]*M)");
      }
      experts.first_dense = std::stoi(digits);
    }
    if (!experts.ffn) experts.ffn = out_.whole("model.ffn");
    put_experts(experts, arguments_.place("num-experts"), out_);
    if (const auto capacity = arguments_.number("moe-expert-capacity-factor")) {
      out_.job["model"]["experts"]["capacity_factor"] = *capacity;
    }
    arguments_.has("moe-pad-expert-input-to-capacity");
  }
  ForeignLatentAttention latent;
  latent.q_rank = arguments_.whole("q-lora-rank", 1);
  constexpr int kRank = 32;
  constexpr int kWidth = 128;
  constexpr int kRotaryWidth = 64;
  latent.kv_rank = arguments_.whole("kv-lora-rank", 1).value_or(kRank);
  latent.qk_nope_dim = arguments_.whole("qk-head-dim", 1).value_or(kWidth);
  latent.qk_rope_dim = arguments_.whole("qk-pos-emb-head-dim", 1).value_or(kRotaryWidth);
  latent.v_dim = arguments_.whole("v-head-dim", 1).value_or(kWidth);
  if (!arguments_.has("multi-latent-attention")) return;
  out_.job["model"].erase("head_dim");
  out_.places.erase("model.head_dim");
  put_latent_attention(latent, arguments_.place("multi-latent-attention"), out_);
}

// Megatron's default is 4h, or 4h·2/3 rounded down to a multiple of 64 with SwiGLU.
void MegatronReader::read_ffn(int hidden) {
  const bool gated = arguments_.has("swiglu");
  put("model.gated_mlp", gated, "swiglu");
  if (put_whole("ffn-hidden-size", "model.ffn") || hidden == 0) return;
  constexpr std::int64_t kWidening = 4;
  constexpr std::int64_t kGranule = 64;
  const std::int64_t wide = kWidening * hidden;
  put("model.ffn", gated ? wide * 2 / 3 / kGranule * kGranule : wide, "hidden-size");
}

void MegatronReader::read_model() {
  if (names_a_model()) {
    note("--model replaces the model that the file describes");
    return;
  }
  layers_ = required("num-layers", "model.layers");
  const int hidden = required("hidden-size", "model.hidden");
  const int heads = required("num-attention-heads", "model.heads");
  read_ffn(hidden);
  put_whole("kv-channels", "model.head_dim");
  const auto groups = arguments_.whole("num-query-groups", 1, "model.kv_heads");
  if (arguments_.has("group-query-attention")) {
    put("model.kv_heads", groups.value_or(1), groups ? "num-query-groups" : "group-query-attention");
  } else if (groups && *groups != heads && *groups != 1) {
    warn("num-query-groups", "no effect without --group-query-attention");
  }
  read_norm_and_positions();
  put("model.biases", !arguments_.has("disable-bias-linear"), "disable-bias-linear");
  if (arguments_.has("add-qkv-bias")) put("model.attention_bias", true, "add-qkv-bias");
  if (arguments_.has("qk-layernorm")) put("model.qk_norm", true, "qk-layernorm");
  read_dropout();
  put("model.tied_embeddings", !arguments_.has("untie-embeddings-and-output-weights"),
      "untie-embeddings-and-output-weights");
  read_vocabulary();
  read_experts();
}

void MegatronReader::read_virtual_stages() {
  const auto per_stage = arguments_.whole("num-layers-per-virtual-pipeline-stage", 1, "layout.vpp");
  const auto stages = arguments_.whole("num-virtual-stages-per-pipeline-rank", 1, "layout.vpp");
  std::string name = "num-virtual-stages-per-pipeline-rank";
  vpp_ = stages.value_or(1);
  if (per_stage) {
    name = "num-layers-per-virtual-pipeline-stage";
    const std::int64_t slice = std::int64_t{*per_stage} * pp_;
    if (layers_ > 0 && layers_ % slice != 0) {
      arguments_.fail(
          name, fmt::format("{} layers · {} pipeline ranks do not divide {} layers", *per_stage, pp_, layers_), "");
    }
    if (layers_ > 0) vpp_ = static_cast<int>(layers_ / slice);
  }
  if (vpp_ > 1) put("layout.vpp", vpp_, name);
  if (pp_ > 1)
    put("layout.schedule", vpp_ > 1 ? "interleaved" : "1f1b", vpp_ > 1 ? name : "pipeline-model-parallel-size");
  if (const auto group = arguments_.whole("microbatch-group-size-per-virtual-pipeline-stage", 1, "layout.group_size")) {
    if (vpp_ > 1) put("layout.group_size", *group, "microbatch-group-size-per-virtual-pipeline-stage");
  }
}

void MegatronReader::read_uneven_stages() {
  const auto first = arguments_.whole("decoder-first-pipeline-num-layers", 1, "layout.stage_layers");
  const auto last = arguments_.whole("decoder-last-pipeline-num-layers", 1, "layout.stage_layers");
  if (!first && !last) return;
  const std::string name = first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers";
  const int inner = pp_ - (first ? 1 : 0) - (last ? 1 : 0);
  const int rest = layers_ - first.value_or(0) - last.value_or(0);
  if (vpp_ > 1 || inner < 1 || inner > layers_ || rest < inner || rest % inner != 0) {
    arguments_.fail(name, fmt::format("{} layers do not spread over {} pipeline ranks in this way", layers_, pp_),
                    "the other ranks need equally many layers, and one stage each");
  }
  std::vector<int> stages(static_cast<std::size_t>(pp_), rest / inner);
  if (first) stages.front() = *first;
  if (last) stages.back() = *last;
  put("layout.stage_layers", stages, name);
}

void MegatronReader::read_recompute() {
  const auto granularity = arguments_.text("recompute-granularity", "layout.recompute");
  if (granularity && *granularity != "full" && *granularity != "selective") {
    arguments_.fail("recompute-granularity", fmt::format("unknown value \"{}\"", *granularity),
                    "valid: full, selective");
  }
  if (granularity) put("layout.recompute", *granularity, "recompute-granularity");
  if (arguments_.has("recompute-activations") && !granularity)
    put("layout.recompute", "selective", "recompute-activations");
  const bool cuts_inputs = arguments_.has("distribute-saved-activations");
  if (cuts_inputs && tp_ > 1 && !arguments_.has("sequence-parallel"))
    put("layout.partition_checkpoints", true, "distribute-saved-activations");
  const auto method = arguments_.text("recompute-method", "layout.recompute");
  const auto layers = arguments_.whole("recompute-num-layers", 1, "layout.recompute");
  if (method && *method == "block" && layers) {
    warn("recompute-method",
         fmt::format("recomputing {} layers of each stage is not modelled: all of them are", *layers));
  } else if (layers && *layers > 1) {
    warn("recompute-num-layers",
         fmt::format("groups of {} layers are not modelled: each layer keeps its input", *layers));
  }
  if (arguments_.has("recompute-modules"))
    warn("recompute-modules", "not modelled: selective recomputes the core attention");
}

void MegatronReader::read_sharding() {
  const auto strategy = arguments_.text("data-parallel-sharding-strategy", "layout.zero");
  if (strategy) {
    const std::vector<std::string> names = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
    const auto match = std::find(names.begin(), names.end(), *strategy);
    if (match == names.end()) {
      arguments_.fail("data-parallel-sharding-strategy", fmt::format("unknown value \"{}\"", *strategy),
                      choices_help(*strategy, names));
    }
    put("layout.zero", match - names.begin(), "data-parallel-sharding-strategy");
  }
  const bool distributed = arguments_.has("use-distributed-optimizer");
  if (distributed && !strategy) put("layout.zero", 1, "use-distributed-optimizer");
  if (arguments_.has("optimizer-cpu-offload")) warn("optimizer-cpu-offload", "not modelled: give --layout.offload");
  if (arguments_.has("cpu-offloading")) warn("cpu-offloading", "offloading of activations is not modelled");
}

void MegatronReader::read_layout() {
  tp_ = put_whole("tensor-model-parallel-size", "layout.tp").value_or(1);
  pp_ = put_whole("pipeline-model-parallel-size", "layout.pp").value_or(1);
  cp_ = put_whole("context-parallel-size", "layout.cp").value_or(1);
  if (const auto exchange = arguments_.text("cp-comm-type", "layout.context_parallel"); exchange && cp_ > 1) {
    const bool known = *exchange == "p2p" || *exchange == "a2a";
    if (known) put("layout.context_parallel", *exchange == "a2a" ? "ulysses" : "ring", "cp-comm-type");
    if (!known) warn("cp-comm-type", fmt::format("{} is not modelled: forecast as a ring, p2p", *exchange));
  }
  put_whole("expert-model-parallel-size", "layout.ep");
  if (arguments_.has("sequence-parallel") && tp_ > 1) put("layout.sequence_parallel", true, "sequence-parallel");
  put_whole("micro-batch-size", "layout.micro_batch_size");
  const auto batch = put_whole("global-batch-size", "layout.global_batch_size");
  // Without it Megatron takes one microbatch per replica.
  if (!batch && !given("layout.global_batch_size") && arguments_.has("micro-batch-size")) {
    put("layout.accumulation", 1, "micro-batch-size");
    note("--global-batch-size is absent: one microbatch per replica, as Megatron does");
  }
  if (arguments_.has("rampup-batch-size"))
    note("--rampup-batch-size: the full batch is forecast, not the smaller ones before");
}

void MegatronReader::read_precision() {
  const bool bf16 = arguments_.has("bf16");
  const bool fp16 = arguments_.has("fp16");
  if (bf16 && fp16) arguments_.fail("fp16", "is given together with --bf16", "keep one of the two");
  const bool fp8 = arguments_.has("fp8-format");
  const char* name = fp8 ? "fp8-format" : bf16 ? "bf16" : "fp16";
  put("training.precision", fp8 ? "fp8" : bf16 ? "bf16" : fp16 ? "fp16" : "fp32", name);
  if (!fp8 && !bf16 && !fp16) note("neither --bf16 nor --fp16: Megatron computes in fp32");
  const auto optimizer = arguments_.text("optimizer", "training.optimizer");
  if (optimizer && *optimizer != "adam" && *optimizer != "sgd") {
    arguments_.fail("optimizer", fmt::format("\"{}\" is not modelled", *optimizer), "valid: adam, sgd");
  }
  if (optimizer) put("training.optimizer", *optimizer, "optimizer");
  const auto attention = arguments_.text("attention-backend", "training.attention");
  const bool flash = arguments_.has("use-flash-attn");
  if (flash) put("training.attention", "flash", "use-flash-attn");
  if (attention && (*attention == "flash" || *attention == "fused"))
    put("training.attention", "flash", "attention-backend");
  if (attention && (*attention == "unfused" || *attention == "local"))
    put("training.attention", "unfused", "attention-backend");
}

void MegatronReader::read_length() {
  const auto sequence = put_whole("seq-length", "training.sequence_length");
  if (!sequence && !given("training.sequence_length"))
    arguments_.fail_missing("seq-length", "give --seq N, the tokens per sequence");
  const auto positions = arguments_.whole("max-position-embeddings", 1, "model.sequence_length");
  if (!names_a_model() && (positions || sequence)) {
    put("model.sequence_length", positions ? *positions : *sequence,
        positions ? "max-position-embeddings" : "seq-length");
  }
  const auto samples = arguments_.whole("train-samples", 1, "training.tokens");
  const auto iterations = arguments_.whole("train-iters", 1, "training.tokens");
  const int batch = out_.whole("layout.global_batch_size");
  if (!sequence) return;
  if (samples) put("training.tokens", static_cast<double>(*samples) * *sequence, "train-samples");
  if (!samples && iterations && batch > 0) {
    put("training.tokens", static_cast<double>(*iterations) * batch * *sequence, "train-iters");
  }
}

void MegatronReader::read_training() {
  read_precision();
  read_length();
}

// A script that is to be edited for the cluster at hand often names a single node.
void MegatronReader::fit_nodes() {
  if (!out_.has("cluster.devices_per_node") || given("cluster.nodes")) return;
  const std::int64_t per_node = out_.job["cluster"]["devices_per_node"].get<int>();
  const std::int64_t nodes = out_.has("cluster.nodes") ? out_.job["cluster"]["nodes"].get<std::int64_t>() : 1;
  const double ranks = static_cast<double>(tp_) * pp_ * cp_;
  if (static_cast<double>(per_node) * static_cast<double>(nodes) >= ranks) return;
  const double needed = std::ceil(ranks / static_cast<double>(per_node));
  if (needed > 1'000'000) return;  // the layout's reader refuses it
  const std::string place =
      out_.has("cluster.nodes") ? out_.places["cluster.nodes"] : out_.places["cluster.devices_per_node"];
  out_.put("cluster.nodes", static_cast<int>(needed), place);
  out_.warnings.push_back(
      fmt::format("{}: {} devices hold no replica of tp {} · pp {} · cp {} = {} ranks; {} nodes are taken, give "
                  "--cluster Nx… for more",
                  place, per_node * nodes, tp_, pp_, cp_, ranks, static_cast<int>(needed)));
}

void MegatronReader::tell_left_out() {
  struct LeftOut {
    const char* name;
    const char* text;
  };
  static constexpr LeftOut kLeftOut[] = {
      {"mtp-num-layers", "layers that predict further tokens are not counted"},
      {"pipeline-model-parallel-layout", "not modelled: give --layout.stage_layers"},
      {"account-for-embedding-in-pipeline-split", "not modelled: give --layout.stage_layers"},
      {"account-for-loss-in-pipeline-split", "not modelled: give --layout.stage_layers"},
      {"expert-tensor-parallel-size", "not modelled: experts are split over ep alone"},
      {"encoder-num-layers", "encoders are not modelled"},
      {"window-size", "sliding windows are not modelled: attention is counted over the whole sequence"}};
  for (const LeftOut& entry : kLeftOut) {
    if (arguments_.has(entry.name)) warn(entry.name, entry.text);
  }
  std::vector<std::string> decided;
  for (const char* name : {"overlap-grad-reduce", "overlap-param-gather", "tp-comm-overlap", "transformer-impl",
                           "accumulate-allreduce-grads-in-fp32", "no-overlap-p2p-communication", "delay-wgrad-compute",
                           "no-gradient-accumulation-fusion", "sequence-parallel"}) {
    if (arguments_.has(name) && std::string(name) != "sequence-parallel") decided.push_back(fmt::format("--{}", name));
  }
  if (!decided.empty()) note(fmt::format("no effect, training.stack decides it: {}", fmt::join(decided, ", ")));
}

ImportedJob MegatronReader::read() {
  read_cluster();
  read_layout();
  read_model();
  read_virtual_stages();
  read_uneven_stages();
  read_recompute();
  read_sharding();
  read_training();
  fit_nodes();
  tell_left_out();
  arguments_.tell_twice(out_);
  if (names_a_model()) {
    out_.job.erase("model");
  } else {
    arguments_.finish(out_);
  }
  return std::move(out_);
}

bool is_launch_script(const ForeignFile& file) {
  return file.syntax() == ForeignFile::Syntax::kShell;
}

ImportedJob read_megatron(const ForeignFile& file, const ImportContext& context) {
  return MegatronReader(file.text(), file.name(), context).read();
}

}  // namespace

const JobFormat& megatron_format() {
  static constexpr JobFormat kFormat = {
      .name = "Megatron-LM arguments", .detect = is_launch_script, .read = read_megatron};
  return kFormat;
}

}  // namespace flopcast
