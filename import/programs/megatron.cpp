// Argument lists of Megatron-LM and its descendants: the program, the cluster, precision and shared parts.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "import/programs/imported_job.hpp"
#include "import/programs/megatron_reader.hpp"
#include "model/workload/stack.hpp"

namespace flopcast {

namespace {

// The path without the placeholders of unset variables.
std::string shown_path(const std::string& path) {
  std::string plain;
  for (const char c : path) {
    if (c != kUnset) plain += c;
  }
  return plain;
}

}  // namespace

std::optional<int> MegatronReader::put_whole(const std::string& name, const std::string& field) {
  const auto number = arguments_.whole(name, 1, field);
  if (number) put(field, *number, name);
  return number;
}

// If the script does not set the value, the flag's value is used.
int MegatronReader::required(const std::string& name, const std::string& field) {
  const auto number = put_whole(name, field);
  if (!number && !arguments_.is_missing(name)) arguments_.report_missing(name, field);
  return number ? *number : context_.whole(field);
}

void MegatronReader::read_program() {
  const std::string& program = arguments_.program();
  const std::string refused = KeyTable::of("megatron").program_reason(program, "refused");
  if (!refused.empty()) {
    throw ConfigError(
        {"", fmt::format("{} starts {}, which trains {} (not modelled)", file_, program, refused), file_,
         "flopcast forecasts transformers with attention and dense or expert layers; see: flopcast catalog models"});
  }
  const std::string layers = arguments_.has("spec") ? arguments_.all_text("spec") : "";
  const std::string foreign = KeyTable::of("megatron").program_reason(layers, "refused");
  if (!foreign.empty()) {
    arguments_.fail(
        "spec", fmt::format("\"{}\" requires {} (not modelled)", layers, foreign),
        "flopcast forecasts transformers with attention and dense or expert layers; see: flopcast catalog models");
  }
  if (!layers.empty() && layers != "local")
    arguments_.warn_of("spec", "GPT's layers are forecast instead of a custom specification", out_);
  // tasks/main.py of Megatron-LM: MNLI, RACE, MSDP-EVAL-F1, RET-FINETUNE-NQ.
  if (arguments_.has("task")) {
    arguments_.fail("task",
                    fmt::format("\"{}\" evaluates a model or trains one with a different head (not modelled)",
                                shown_path(arguments_.all_text("task"))),
                    "give the pretraining script");
  }
  is_swift_ = program.starts_with("megatron ");
  is_slime_ = arguments_.has("actor-num-nodes") || arguments_.has("actor-num-gpus-per-node");
  is_deepspeed_ = arguments_.has("deepspeed");
  // Defaults of swift/megatron/arguments/megatron_args.py; slime uses bf16 unless fp16 is set.
  if (is_swift_) {
    for (const auto& [name, value] :
         {std::pair("micro-batch-size", "1"), std::pair("global-batch-size", "16"),
          std::pair("recompute-granularity", "selective"), std::pair("use-distributed-optimizer", "true"),
          std::pair("attention-dropout", "0"), std::pair("hidden-dropout", "0")}) {
      arguments_.set_default(name, value);
    }
  }
  if ((is_swift_ || is_slime_) && !arguments_.has("fp16")) arguments_.set_default("bf16", "true");
  const auto tuner = arguments_.text("tuner-type");
  if (tuner && *tuner != "full" && *tuner != "lora") {
    arguments_.fail("tuner-type", fmt::format("\"{}\" trains only part of the weights (not modelled)", *tuner),
                    "valid: full, lora");
  }
}

// Adapters of ms-swift and NeMo, which use Megatron's names of linears.
void MegatronReader::read_adapter() {
  const auto tuner = arguments_.text("tuner-type");
  const auto rank = arguments_.whole("lora-rank", 1, "training.finetune.rank");
  const auto alpha = arguments_.number("lora-alpha", "training.finetune.alpha");
  const auto dropout = arguments_.number("lora-dropout", "training.finetune.dropout");
  const std::string targets = arguments_.all_text("target-modules");
  const std::string whole = arguments_.all_text("modules-to-save");
  if (!tuner && (rank || alpha || dropout || !targets.empty())) {
    out_.warnings.push_back(
        fmt::format("{}: adapters are only read for ms-swift and NeMo: give --finetune lora", file_));
  }
  if (!tuner || *tuner != "lora") return;
  // Defaults of swift/megatron/arguments/megatron_args.py and NeMo's megatron_gpt_finetuning_config.yaml.
  constexpr int kRankOfSwift = 8;
  constexpr int kRankOfNemo = 32;
  constexpr double kAlphaOfSwift = 32.0;
  constexpr double kDropoutOfSwift = 0.05;
  ForeignAdapter adapter;
  adapter.rank = rank.value_or(is_swift_ ? kRankOfSwift : kRankOfNemo);
  adapter.alpha = alpha ? alpha : is_swift_ ? std::optional(kAlphaOfSwift) : std::nullopt;
  adapter.dropout = dropout ? dropout : is_swift_ ? std::optional(kDropoutOfSwift) : std::nullopt;
  adapter.place = arguments_.place("tuner-type");
  adapter.targets_place = arguments_.place("target-modules");
  const bool gated = !out_.job["model"].is_object() || out_.job["model"].value("gated_mlp", false);
  const std::map<std::string, std::string> linears = {{"linear_qkv", "q_proj k_proj v_proj"},
                                                      {"attention_qkv", "q_proj k_proj v_proj"},
                                                      {"linear_proj", "o_proj"},
                                                      {"attention_dense", "o_proj"},
                                                      {"linear_fc1", gated ? "gate_proj up_proj" : "up_proj"},
                                                      {"mlp_fc1", gated ? "gate_proj up_proj" : "up_proj"},
                                                      {"linear_fc2", "down_proj"},
                                                      {"mlp_fc2", "down_proj"},
                                                      {"attention", "q_proj k_proj v_proj o_proj"}};
  nlohmann::json words = nlohmann::json::array();
  std::istringstream told(!targets.empty() ? targets : is_swift_ ? "all-linear" : "attention_qkv");
  for (std::string word; told >> word;) {
    const auto linear = linears.find(word);
    std::istringstream names(linear == linears.end() ? word : linear->second);
    for (std::string name; names >> name;) words.push_back(name);
  }
  adapter.targets = words;
  const std::vector<std::string> tables = {"word_embeddings", "output_layer", "embed_tokens", "lm_head"};
  adapter.trains_tables = std::any_of(tables.begin(), tables.end(), [&whole](const std::string& name) {
    return whole.find(name) != std::string::npos;
  });
  put_adapter(adapter, out_);
}

// ms-swift takes the name of a Hub repository or a folder instead of sizes.
void MegatronReader::read_named_model() {
  const auto name = is_swift_ ? arguments_.text("model", "model") : std::nullopt;
  if (!name || given("model") || given("model.layers")) return;
  if (put_hub_model(*name, file_, arguments_.place("model"), context_, out_)) return;
  arguments_.fail("model", fmt::format("\"{}\" is neither in the catalogue nor a folder with a config.json", *name),
                  hub_help(*name));
}

void MegatronReader::read_cluster() {
  const auto counts = [this](const std::string& name) -> std::optional<std::string> {
    if (!arguments_.has(name)) return std::nullopt;
    std::string value = arguments_.all_text(name);
    const std::string unset = unset_name(value);
    if (!unset.empty()) {
      if (!given("cluster") && !given("cluster.name"))
        note(fmt::format("--{} takes its value from {}, which is not set: give --cluster", name, unset));
      return std::nullopt;
    }
    value = value.substr(0, value.find(' '));
    if (name == "gres") value = value.substr(value.rfind(':') + 1);
    // Values such as "gpu", "auto" and "1:4" are resolved by the launcher.
    const bool is_number =
        !value.empty() && value.size() < 8 && value.find_first_not_of("0123456789") == std::string::npos;
    return is_number && std::stoi(value) > 0 ? std::optional<std::string>(value) : std::nullopt;
  };
  const auto first_of = [&](const std::string& field, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto value = counts(name);
      if (!value || out_.has(field)) continue;
      put(field, std::stoi(*value), name);
    }
  };
  first_of("cluster.devices_per_node",
           {"nproc-per-node", "actor-num-gpus-per-node", "gres", "gpus-per-node", "num-gpus"});
  const std::string processes = is_swift_ ? arguments_.variable("NPROC_PER_NODE") : "";
  if (!processes.empty() && processes.find_first_not_of("0123456789") == std::string::npos && processes.size() < 5) {
    out_.put("cluster.devices_per_node", std::max(1, std::stoi(processes)), fmt::format("{}: NPROC_PER_NODE", file_));
  }
  // With torchrun one task starts all ranks of a node.
  first_of("cluster.devices_per_node", {"ntasks-per-node"});
  first_of("cluster.nodes", {"nnodes", "actor-num-nodes", "num-nodes", "num-machines", "nodes"});
  // Accelerate counts the processes of all machines.
  const auto all = counts("num-processes");
  const int nodes = std::max(1, out_.whole("cluster.nodes"));
  if (all && !out_.has("cluster.devices_per_node"))
    put("cluster.devices_per_node", std::max(1, std::stoi(*all) / nodes), "num-processes");
}

// Reads the file or here-document named by --deepspeed_config: its stage and offloading, with lower priority than the
// arguments.
void MegatronReader::read_deepspeed_file() {
  const bool told = arguments_.has("deepspeed-config");
  const std::string path = arguments_.all_text("deepspeed-config");
  if (!told || !is_deepspeed_) return;
  // A path that contains the job's number can only be found as a here-document.
  std::optional<std::string> text = arguments_.written_file(path);
  for (const std::string& each : {path, sibling_path(file_, path)}) {
    if (!text && context_.files != nullptr && context_.files->kind_of(each) == Files::Kind::kFile)
      text = context_.files->try_read(each);
  }
  if (!text) return warn_of("deepspeed-config", "the file was not found: ZeRO and offloading follow the arguments");
  ImportContext context = context_;
  for (const char* field : {"layout.global_batch_size", "layout.tp", "training.precision"})
    context.given.emplace(field, "");
  const std::string values = without_open_values(*text);
  const ImportedJob inside =
      import_job(ForeignFile(values, fmt::format("{}: {}.json", file_, shown_path(path))), context);
  if (inside.format->name != deepspeed_format().name)
    return warn_of("deepspeed-config", "it is not a DeepSpeed configuration");
  for (const char* field : {"layout.zero", "layout.offload", "layout.bucket_mb"}) {
    const auto& layout = inside.job->value("layout", nlohmann::json::object());
    const std::string key = std::string(field).substr(7);
    if (layout.contains(key)) out_.put(field, layout.at(key), inside.places.at(field));
  }
  out_.notes.insert(out_.notes.end(), inside.notes.begin(), inside.notes.end());
  out_.warnings.insert(out_.warnings.end(), inside.warnings.begin(), inside.warnings.end());
  out_.keys.add(inside.keys);
}

void MegatronReader::read_precision() {
  const bool bf16 = arguments_.has("bf16");
  const bool fp16 = arguments_.has("fp16");
  if (bf16 && fp16) arguments_.fail("fp16", "is given together with --bf16", "keep one of the two");
  const bool fp4 = arguments_.has("fp4-format") && !arguments_.has("fp8-format");
  const bool fp8 = fp4 || arguments_.has("fp8-format");
  const char* name = fp4 ? "fp4-format" : fp8 ? "fp8-format" : bf16 ? "bf16" : "fp16";
  put("training.precision", fp8 ? "fp8" : bf16 ? "bf16" : fp16 ? "fp16" : "fp32", name);
  if (!fp8 && !bf16 && !fp16) note("neither --bf16 nor --fp16 is given: Megatron computes in fp32");
  const auto recipe = fp8 ? arguments_.text("fp8-recipe", "training.fp8_recipe") : std::nullopt;
  const auto& recipes = names_of<Fp8Recipe>();
  if (recipe && std::find(recipes.begin(), recipes.end(), *recipe) != recipes.end()) {
    put("training.fp8_recipe", *recipe, "fp8-recipe");
  } else if (fp4) {
    put("training.fp8_recipe", "nvfp4", "fp4-format");
  } else if (recipe) {
    note(fmt::format("--fp8-recipe {} is not modelled: the stack's recipe is forecast", *recipe));
  }
  const auto gradients = arguments_.text("main-grads-dtype", "training.gradient_dtype");
  const char* const by = gradients ? "main-grads-dtype" : "grad-reduce-in-bf16";
  if ((gradients && *gradients == "bf16") || (bf16 && arguments_.has("grad-reduce-in-bf16")))
    put("training.gradient_dtype", "bf16", by);
  const auto moments = arguments_.text("exp-avg-dtype", "training.moment_dtype");
  const auto squares = arguments_.text("exp-avg-sq-dtype", "training.moment_dtype");
  if (moments == squares && moments && (*moments == "bf16" || *moments == "fp16")) {
    put("training.moment_dtype", *moments, "exp-avg-dtype");
  } else if (moments != squares) {
    warn_of(moments ? "exp-avg-dtype" : "exp-avg-sq-dtype", "both moments are forecast in fp32");
  }
  if (fp8 && arguments_.has("tp-only-amax-red")) put("training.amax_reduction", "tensor", "tp-only-amax-red");
  static const std::pair<const char*, const char*> in_8_bits[] = {
      {"fp8-param-gather", "training.fp8_parameters"},
      {"fp8-dot-product-attention", "training.fp8_attention"},
      {"activation-func-fp8-input-store", "training.fp8_activations"}};
  for (const auto& [flag, field] : in_8_bits) {
    if (fp8 && arguments_.has(flag)) put(field, true, flag);
  }
  const auto attention = arguments_.text("attention-backend", "training.attention");
  if (arguments_.has("use-flash-attn")) put("training.attention", "flash", "use-flash-attn");
  if (attention && (*attention == "flash" || *attention == "fused"))
    put("training.attention", "flash", "attention-backend");
  if (attention && (*attention == "unfused" || *attention == "local"))
    put("training.attention", "unfused", "attention-backend");
}

// Megatron does not overlap communication between replicas by default; sharded forms always prefetch.
void MegatronReader::read_overlap() {
  if (is_deepspeed_) return;
  const bool sharded = arguments_.has("use-megatron-fsdp") || arguments_.has("use-torch-fsdp2");
  const bool reduces = arguments_.has("overlap-grad-reduce");
  if (reduces || !sharded) put("training.overlap.gradients", reduces, "overlap-grad-reduce");
  if (arguments_.has("overlap-param-gather")) put("training.overlap.parameters", true, "overlap-param-gather");
  if (arguments_.has("tp-comm-overlap")) put("training.overlap.tp", true, "tp-comm-overlap");
  if (arguments_.has("no-overlap-p2p-communication"))
    put("training.overlap.p2p", false, "no-overlap-p2p-communication");
  if (arguments_.has("overlap-moe-expert-parallel-comm")) {
    put("training.overlap.experts", arguments_.has("delay-wgrad-compute") ? "1f1b_delayed" : "1f1b",
        "overlap-moe-expert-parallel-comm");
  }
}

// Megatron's dispatcher "flex" uses the backend that is named, by default DeepEP.
void MegatronReader::read_dispatcher() {
  const char* const name = "moe-token-dispatcher-type";
  const char* const field = "training.experts_dispatch.dispatcher";
  const auto type = arguments_.text(name, field);
  const auto backend = arguments_.text("moe-flex-dispatcher-backend", field);
  if (arguments_.has("moe-enable-deepep")) put(field, "deepep", "moe-enable-deepep");
  if (!type || arguments_.has("moe-enable-deepep")) return;
  if (*type == "flex" && backend && *backend != "deepep" && *backend != "hybridep") {
    note(fmt::format("--moe-flex-dispatcher-backend {} is not modelled: the stack's dispatcher is forecast", *backend));
  } else if (*type == "flex") {
    put(field, backend.value_or("deepep"), backend ? "moe-flex-dispatcher-backend" : name);
  } else if (*type == "allgather") {
    put(field, *type, name);
  } else {
    put(field, "alltoall", name);
  }
}

void MegatronReader::read_optimizer() {
  const auto optimizer = arguments_.text("optimizer", "training.optimizer");
  if (!optimizer) return;
  const std::string lower = lower_case(*optimizer);
  // Megatron-DeepSpeed and Megatron-LM for Gaudi use the names of kernels.
  static const std::vector<std::string> known = {"adam",      "adamw",         "sgd",       "cpu_adam",
                                                 "fusedadam", "ds_fused_adam", "fusedadamw"};
  const bool muon = lower == "muon" || lower == "dist_muon";
  if (lower == "dist_muon") put("layout.zero", 1, "optimizer");  // each rank holds whole matrices
  if (!muon && lower != "lion" && std::count(known.begin(), known.end(), lower) == 0) {
    arguments_.fail("optimizer", fmt::format("\"{}\" is not modelled", *optimizer),
                    "valid: adam, sgd, muon, lion; give --training.optimizer adam to forecast Adam instead");
  }
  put("training.optimizer", muon ? "muon" : lower == "sgd" || lower == "lion" ? lower : "adam", "optimizer");
}

void MegatronReader::read_length() {
  const auto sequence = put_whole("seq-length", "training.sequence_length");
  if (!sequence && !arguments_.is_missing("seq-length") && !names_a_model())
    arguments_.report_missing("seq-length", "training.sequence_length");
  const auto positions = arguments_.whole("max-position-embeddings", 1, "model.sequence_length");
  if (!names_a_model() && (positions || sequence)) {
    put("model.sequence_length", positions ? *positions : *sequence,
        positions ? "max-position-embeddings" : "seq-length");
  }
  // The length of the run is optional: a step does not depend on it.
  const auto count = [this](const char* name) -> std::optional<double> {
    if (!arguments_.has(name) || given("training.tokens")) return std::nullopt;
    if (!unset_name(arguments_.all_text(name)).empty()) {
      note(fmt::format("--{} is not set: the length of the run is unknown; give --tokens T", name));
      return std::nullopt;
    }
    const auto number = arguments_.number(name, "training.tokens");
    return number && *number >= 1.0 ? number : std::nullopt;
  };
  const auto tokens = count("train-tokens");
  const auto samples = count("train-samples");
  const auto iterations = count("train-iters");
  const int batch = out_.whole("layout.global_batch_size");
  if (tokens) return put("training.tokens", *tokens, "train-tokens");
  if (!sequence) return;
  if (samples) return put("training.tokens", *samples * *sequence, "train-samples");
  if (iterations && batch > 0) put("training.tokens", *iterations * batch * *sequence, "train-iters");
}

// Scripts that are edited for each cluster often name a single node.
void MegatronReader::fit_nodes() {
  if (!out_.has("cluster.devices_per_node") || given("cluster.nodes")) return;
  const std::int64_t per_node = out_.job["cluster"]["devices_per_node"].get<int>();
  const std::int64_t nodes = out_.has("cluster.nodes") ? out_.job["cluster"]["nodes"].get<std::int64_t>() : 1;
  const double ranks = static_cast<double>(tp_) * pp_ * cp_;
  if (static_cast<double>(per_node) * static_cast<double>(nodes) >= ranks) return;
  const double needed = std::ceil(ranks / static_cast<double>(per_node));
  if (needed > 1'000'000) return;  // refused by the layout's reader
  const std::string place =
      out_.has("cluster.nodes") ? out_.places["cluster.nodes"] : out_.places["cluster.devices_per_node"];
  out_.put("cluster.nodes", static_cast<int>(needed), place);
  out_.warnings.push_back(
      fmt::format("{}: {} devices are too few for a replica of tp {} · pp {} · cp {} = {} ranks; uses {} nodes; give "
                  "--cluster Nx… for more",
                  place, per_node * nodes, tp_, pp_, cp_, ranks, static_cast<int>(needed)));
}

ImportedJob MegatronReader::read() {
  read_program();
  read_cluster();
  read_layout();
  read_named_model();
  read_model();
  read_expert_tensor();
  read_adapter();
  read_pipeline();
  read_uneven_stages();
  read_counted_stages();
  read_recompute();
  read_sharding();
  read_precision();
  read_overlap();
  read_dispatcher();
  read_optimizer();
  read_length();
  fit_nodes();
  if (arguments_.has("mtp-num-layers") && arguments_.whole("mtp-num-layers", 0).value_or(0) > 0)
    put_whole("mtp-num-layers", "model.mtp_layers");
  arguments_.finish(out_);
  arguments_.refuse_open();
  if (arguments_.is_part()) note("contains arguments but no command that uses them: read as part of a job");
  if (given("model")) out_.job->erase("model");
  return std::move(out_);
}

namespace {

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
