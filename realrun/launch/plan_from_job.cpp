#include "realrun/launch/plan_from_job.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/config/document.hpp"
#include "model/cost/data_parallel.hpp"
#include "model/job/read_job.hpp"
#include "model/layout/rank_grid.hpp"
#include "model/units/quantity.hpp"
#include "sim/files/run_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/memory.hpp"

namespace flopcast::realrun {

namespace {

Ticks parse_time(const std::string& flag, const std::string& text) {
  const ParsedQuantity time = parse_quantity(text, Dimension::kTime);
  if (!time.value) {
    throw ConfigError({flag, fmt::format("\"{}\" {}", text, time.problem), flag,
                       fmt::format("a time such as 5ms; units: {}", accepted_units(Dimension::kTime))});
  }
  constexpr double kLongest = 60.0;
  if (*time.value > kLongest) throw ConfigError({flag, fmt::format("{} is longer than a minute", text), flag, {}});
  return std::llround(*time.value * kTicksPerSecond);
}

// One time for all stages, or one per stage.
std::vector<Ticks> parse_times(const std::string& flag, const std::string& text, std::size_t stages) {
  std::vector<Ticks> times;
  for (const std::string& part : split(text)) times.push_back(parse_time(flag, part));
  if (times.size() == 1) times.resize(stages, times.front());
  if (times.size() != stages) {
    throw ConfigError(
        {flag, fmt::format("{} times for {} stages", times.size(), stages), flag, "one, or one per stage"});
  }
  return times;
}

/// A flag with the time that actions sleep.
struct TimeFlag {
  const char* name;
  std::optional<std::string> Emulation::*text;
  void (*set)(StageTimes& stage, Ticks time);
};
constexpr TimeFlag kTimeFlags[] = {
    {"--forward", &Emulation::forward, [](StageTimes& stage, Ticks time) { stage.forward = time; }},
    {"--backward", &Emulation::backward,
     [](StageTimes& stage, Ticks time) {
       stage.backward = time;
       stage.input_gradient = time / 2;
       stage.weight_gradient = time - time / 2;
     }},
    {"--backward-input", &Emulation::input_gradient,
     [](StageTimes& stage, Ticks time) { stage.input_gradient = time; }},
    {"--backward-weight", &Emulation::weight_gradient,
     [](StageTimes& stage, Ticks time) { stage.weight_gradient = time; }}};

void refuse_without_sleep(const Emulation& emulation) {
  const auto refuse = [](bool given, const char* flag) {
    if (given) throw ConfigError({flag, "has no effect while actions compute", flag, "also set --compute sleep"});
  };
  for (const TimeFlag& flag : kTimeFlags) refuse((emulation.*flag.text).has_value(), flag.name);
  refuse(emulation.slow_down != 1.0, "--slow-down");
}

}  // namespace

std::vector<StageTimes> slept_times(const Emulation& emulation, const PreparedStep& step, const Program& program) {
  if (!emulation.sleeps) {
    refuse_without_sleep(emulation);
    return {};
  }
  const auto stages = static_cast<std::size_t>(program.stage_count());
  FLOPCAST_CHECK(step.times.stages.size() == stages);
  std::vector<StageTimes> times = step.times.stages;
  for (StageTimes& stage : times) {
    stage.fused.reset();  // a pair sleeps for the sum of its halves
    stage.pair_saved = 0;
    for (Ticks* time : {&stage.forward, &stage.backward, &stage.input_gradient, &stage.weight_gradient}) {
      *time = std::llround(static_cast<double>(*time) * emulation.slow_down);
    }
  }
  for (const TimeFlag& flag : kTimeFlags) {
    const std::optional<std::string>& text = emulation.*flag.text;
    if (!text) continue;
    const std::vector<Ticks> given = parse_times(flag.name, *text, stages);
    for (std::size_t stage = 0; stage < stages; ++stage) flag.set(times[stage], given[stage]);
  }
  return times;
}

namespace {

void require(bool holds, const char* field, std::string problem, std::string help) {
  if (holds) return;
  throw ConfigError({.field = field, .problem = std::move(problem), .where = {}, .help = std::move(help)});
}

void check_model(const Job& job) {
  const Transformer& model = job.model;
  require(!job.profile, "model", "measured layers cannot be trained", "specify a transformer by its shapes");
  require(!model.latent, "model.latent_attention", "a run supports plain attention only", "leave it out");
  require(model.mtp_layers == 0, "model.mtp_layers", "a run predicts the next token only", "0");
  require(job.training.document_length == 0, "training.document_length", "a run does not separate documents", "0");
  require(!model.attention_sinks, "model.attention_sinks", "true: a run does not support attention sinks", "false");
}

// Modules that selective recomputation recomputes unless the job specifies them.
RecomputeModules modules_of(const Job& job) {
  if (job.layout.recompute != Recompute::kSelective) return {};
  return job.layout.recompute_modules.value_or(bit_of(RecomputeModule::kCoreAttention));
}

void check_recomputation(const Job& job) {
  const RecomputeModules known =
      bit_of(RecomputeModule::kCoreAttention) | bit_of(RecomputeModule::kLayernorm) | bit_of(RecomputeModule::kMlp);
  const bool by_operators = job.layout.recompute == Recompute::kSelective && !job.layout.recompute_modules &&
                            job.training.stack.selective_recompute == SelectiveRecompute::kOperators;
  require(!by_operators, "layout.recompute",
          "selective keeps every second product with this stack, but a run recomputes whole modules only",
          "layout.recompute_modules: core_attn, layernorm, mlp");
  require((modules_of(job) & ~known).none(), "layout.recompute_modules",
          fmt::format("{}: a run supports modules of dense blocks only",
                      fmt::join(names_in(modules_of(job) & ~known), ", ")),
          "valid: core_attn, layernorm, mlp");
}

Recomputation recomputation_of(const Job& job) {
  const Layout& layout = job.layout;
  Recomputation again;
  again.modules = modules_of(job);
  again.partitioned = layout.partition_checkpoints;
  if (layout.recompute != Recompute::kFull) return again;
  if (layout.recompute_every) {
    again.every = *layout.recompute_every;
  } else {
    again.first_blocks = layout.recompute_layers.value_or(job.model.layers);
  }
  return again;
}

// Sharded data parallelism is ZeRO 3 over some or all replicas.
int zero_of(const Layout& layout) {
  constexpr int kEverything = 3;
  switch (layout.data_parallel) {
    case DataParallel::kFsdp:
      return kEverything;
    case DataParallel::kHsdp:
      return layout.shards > 1 ? kEverything : 0;
    default:
      return layout.zero;
  }
}

void check_layout(const Job& job) {
  const Layout& layout = job.layout;
  require(layout.data_parallel != DataParallel::kDataParallel, "layout.data_parallel",
          "dataparallel is a single process, but a run has one per rank",
          "valid for a run: ddp, fsdp, hsdp, ps, byteps");
  if (const auto& finetune = job.training.finetune; finetune && finetune->base != BaseFormat::kBf16) {
    require(zero_of(layout) < 3, "training.finetune.base",
            fmt::format("{}: a run stores frozen weights in 32 bits, and would gather them", name_of(finetune->base)),
            "bf16, or weights that are not sharded");
  }
  require(!job.training.preference, "training.preference", "a run trains on the next token only", "leave it out");
  check_recomputation(job);
}

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

// Weights, gradients and two optimizer states of all ranks are in this machine's memory.
void check_memory(const Job& job, int replicas) {
  constexpr double kBytesPerParameter = 16.0;
  const double needed = static_cast<double>(count_parameters(job.model).total) * kBytesPerParameter * replicas;
  const double present = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  require(
      needed < present, "model",
      fmt::format("weights, gradients and optimizer state of {} replica{} take {:.1f} GiB, but this machine has {:.1f}",
                  replicas, replicas == 1 ? "" : "s", needed / kGibibyte, present / kGibibyte),
      "a smaller model, such as --model.layers 4 --model.hidden 64 --model.heads 4 --model.vocab 256");
}

NetworkSpec network_of(const Job& job, const RunSettings& settings) {
  NetworkSpec network(job.model);
  network.sequence = job.training.sequence_length;
  network.position_rows = std::max(job.model.sequence_length, job.training.sequence_length);
  network.seed = settings.seed;
  network.finetune = job.training.finetune;
  network.recompute = recomputation_of(job);
  return network;
}

// Spare hosts are divided among the groups of replicas on different nodes.
void add_servers(const Job& job, TrainingPlan& plan) {
  const GroupPlacement replicas = RankGrid(job.layout).placement(Axis::kData, job.cluster);
  plan.served_ranks_per_node = replicas.ranks_per_node;
  const int hosts = job.layout.spare_hosts;
  if (hosts == 0 || replicas.nodes == 1) return;
  require(hosts * replicas.nodes % job.cluster.nodes == 0, "layout.spare_hosts",
          fmt::format("{} for {} nodes is not a whole number of hosts for replicas on {} of them", hosts,
                      job.cluster.nodes, replicas.nodes),
          fmt::format("a multiple of {}", job.cluster.nodes / std::gcd(job.cluster.nodes, replicas.nodes)));
  // Hosts beyond the number of nodes would not speed up any group.
  plan.servers = std::min(hosts * replicas.nodes / job.cluster.nodes, replicas.nodes);
  if (job.layout.data_parallel == DataParallel::kPs) return;
  plan.rank_share = byteps_shares(replicas.nodes, plan.servers).gpu_node;
}

bool has_servers(const Layout& layout) {
  return layout.data_parallel == DataParallel::kPs || layout.data_parallel == DataParallel::kByteps;
}

}  // namespace

TrainingPlan plan_from_job(const PreparedStep& step, const RunSettings& settings) {
  const Job& job = step.job;
  check_model(job);
  check_layout(job);
  if (!settings.on_gpus) check_memory(job, job.layout.replicas());
  TrainingPlan plan;
  plan.network = network_of(job, settings);
  plan.program = step.program;
  plan.steps = settings.steps;
  CalibrationPlan calibration{plan.program, settings.calibration_steps};
  if (step.program.asynchronous) {
    FLOPCAST_CHECK(step.schedule != nullptr);
    ScheduleRequest request = step.request;
    request.accumulation = step.schedule->weights.accumulation(step.request);
    request.microbatches = job.layout.microbatches() * settings.steps;
    plan.updates = {step.schedule->weight_policy(request), *request.accumulation};
    plan.program = generate_schedule(*step.schedule, request);
    plan.steps = 1;
    calibration.program = step.program;
  }
  if (settings.calibration_steps > 0) plan.calibration = std::move(calibration);
  plan.sleep = slept_times(settings.emulation, step, plan.program);
  plan.stage_blocks = job.layout.stage_layers;
  plan.dp = job.layout.dp;
  plan.tp = job.layout.tp;
  plan.tensor_parallel = job.layout.tensor_parallel;
  plan.tensor_depth = job.layout.tensor_depth;
  plan.cp = job.layout.cp;
  plan.context_parallel = job.layout.context_parallel;
  plan.zigzag = job.layout.cp > 1 && job.layout.zigzag && plan.context_parallel != ContextParallel::kUlysses;
  plan.context_inner = job.layout.context_inner.value_or(1);
  plan.ep = job.layout.ep;
  plan.etp = job.layout.etp.value_or(0);
  plan.sequence_parallel = job.layout.sequence_parallel && job.layout.tp > 1;
  plan.zero = zero_of(job.layout);
  if (job.layout.data_parallel == DataParallel::kHsdp && job.layout.shards > 1) plan.shards = job.layout.shards;
  if (has_servers(job.layout)) add_servers(job, plan);
  plan.reshard_after_forward = job.layout.reshard_after_forward;
  plan.offload = job.layout.offload;
  plan.compression = job.layout.compression;
  plan.micro_batch_size = job.layout.micro_batch_size;
  if (job.training.optimizer != Optimizer::kAdam && job.training.optimizer != Optimizer::kSgd) {
    throw ConfigError({"training.optimizer",
                       fmt::format("\"{}\" can be forecast but not run", name_of(job.training.optimizer)), "",
                       "valid for a run: adam, sgd"});
  }
  plan.optimizer.kind = job.training.optimizer;
  plan.optimizer.rate = static_cast<float>(settings.learning_rate);
  if (job.layout.bucket_mb) plan.bucket_bytes = *job.layout.bucket_mb * 1024 * 1024;
  check_plan(plan);
  return plan;
}

Float8Linears float8_linears(const TrainingPlan& plan) {
  constexpr int kMultiple = 16;
  const NetworkSpec& network = plan.network;
  const HeadLayout heads = network.head_layout();
  const int tokens = plan.micro_batch_size * network.sequence;
  const int queries = static_cast<int>(heads.heads * heads.head_dim) / plan.tp;
  const int width = static_cast<int>(heads.width()) / plan.tp;
  const int ffn = network.ffn / plan.tp;
  struct Size {
    const char* of;
    int size;
  };
  struct Named {
    const char* name;
    Size inputs;
    Size outputs;
  };
  const Size hidden{"hidden size", network.hidden};
  const Named linears[] = {{"qkv", hidden, {"rows of qkv", width}},
                           {"output", {"width of all heads", queries}, hidden},
                           {"up", hidden, {"rows of up", network.gated_mlp ? 2 * ffn : ffn}},
                           {"down", {"MLP width", ffn}, hidden}};
  Float8Linears result;
  std::vector<std::string> names;
  std::vector<std::string> sizes;
  for (const Named& linear : linears) {
    bool fits = true;
    for (const Size& size : {Size{"tokens of a microbatch", tokens}, linear.inputs, linear.outputs}) {
      if (size.size % kMultiple == 0) continue;
      fits = false;
      const std::string told = fmt::format("{} {}", size.of, size.size);
      if (std::find(sizes.begin(), sizes.end(), told) == sizes.end()) sizes.push_back(told);
    }
    if (fits) continue;
    --result.count;
    names.emplace_back(linear.name);
  }
  if (!names.empty())
    result.others = fmt::format("{} ({}{})", fmt::join(names, ", "), fmt::join(sizes, ", "),
                                plan.tp > 1 ? fmt::format(" per rank with tp {}", plan.tp) : "");
  return result;
}

namespace {

// Each matrix is scaled by its largest magnitude, and only products of linears are 8-bit.
void check_float8(const Training& training) {
  if (training.precision != Precision::kFp8) return;
  const Fp8Recipe recipe = training.fp8_recipe.value_or(Fp8Recipe::kCurrent);
  require(recipe == Fp8Recipe::kCurrent || recipe == Fp8Recipe::kTensorwise, "training.fp8_recipe",
          fmt::format("{} can be forecast but not run on GPUs", name_of(recipe)),
          "valid for a run: current, tensorwise");
  const std::pair<const char*, bool> parts[] = {{"training.fp8_parameters", training.stack.fp8_parameters},
                                                {"training.fp8_attention", training.stack.fp8_attention},
                                                {"training.fp8_activations", training.stack.fp8_activations}};
  for (const auto& [key, asked] : parts) {
    require(!asked, key, "true can be forecast but not run on GPUs", "valid for a run: false");
  }
}

std::vector<GpuMemoryNeed> gpu_memory_of(const PreparedStep& step) {
  const MemoryResult memory = memory_as_run(forecast(job_as_run(step.job, true), read_file));
  const Precision precision = step.job.training.precision;
  const bool rounds = precision == Precision::kBf16 || precision == Precision::kFp8;
  std::vector<GpuMemoryNeed> needs;
  for (const RankMemoryResult& rank : memory.per_pipeline_rank) {
    needs.push_back(
        {.state = kGibibyte * (rank.weights_gib + rank.gradients_gib + rank.optimizer_gib + rank.weight_versions_gib),
         .copies = rounds ? kGibibyte * rank.weights_gib / 2 : 0.0,
         .activations = kGibibyte * rank.activations_gib});
  }
  return needs;
}

}  // namespace

PreparedRun prepare_run(const LaunchOptions& options) {
  Origins origins;
  nlohmann::json root = nlohmann::json::object();
  if (options.job_file) {
    root = parse_json(read_file(*options.job_file), *options.job_file);
    origins.file = *options.job_file;
  }
  apply_flags(options.flags, root, origins);
  RunSettings settings = options.settings;
  settings.on_gpus = options.backend != nullptr && options.backend->on_gpus;
  if (settings.on_gpus) set_fp8_defaults_on_gpus(read_job(root, origins).training, root);
  const PreparedStep step = prepare(read_job(root, origins), read_file);
  if (settings.on_gpus) check_float8(step.job.training);
  PreparedRun run{root.dump(), plan_from_job(step, settings), step.job.training.precision};
  run.plan.keeps_weights = false;
  if (settings.on_gpus) run.gpu_memory = gpu_memory_of(step);
  run.backend_has_processes = options.backend != nullptr && options.backend->meets;
  return run;
}

void check_gpu_memory(const PreparedRun& run, int sharing, const std::string& gpu, double bytes) {
  // A context of an H100 with cuBLASLt's kernels loaded: about 0.5 GiB, and 0.4 GiB of code for its architecture
  // (sections of libcublasLt.so.13 for sm_90).
  constexpr double kContext = 0.9 * kGibibyte;
  const auto total = [](const GpuMemoryNeed& need) { return need.state + need.copies + need.activations; };
  GpuMemoryNeed all;
  for (const GpuMemoryNeed& need : run.gpu_memory) {
    if (sharing > 1) {
      const double copies = static_cast<double>(sharing) / static_cast<double>(run.gpu_memory.size());
      all.state += need.state * copies;
      all.copies += need.copies * copies;
      all.activations += need.activations * copies;
    } else if (total(need) > total(all)) {
      all = need;
    }
  }
  // Each process has a context; threads of a process share one.
  const double contexts = kContext * (run.backend_has_processes ? sharing : 1);
  if (total(all) + contexts <= bytes) return;
  throw ConfigError({.field = "model",
                     .problem = fmt::format("{} on one GPU need{} {:.1f} GiB (weights, gradients and optimizer state "
                                            "{:.1f}, activations {:.1f}, CUDA {:.1f}); {} has {:.1f}",
                                            sharing == 1 ? "the fullest rank" : fmt::format("{} ranks", sharing),
                                            sharing == 1 ? "s" : "", (total(all) + contexts) / kGibibyte,
                                            (all.state + all.copies) / kGibibyte, all.activations / kGibibyte,
                                            contexts / kGibibyte, gpu, bytes / kGibibyte),
                     .where = {},
                     .help = "fewer layers, smaller microbatches, or a schedule with fewer in flight, such as 1f1b"});
}

GemmPrecision check_for_gpus(const LaunchOptions& options, const PreparedRun& run) {
  const TrainingPlan& plan = run.plan;
  const auto refuse = [](bool asked, const char* field, const auto& what,
                         const char* help = "--backend threads or mpi") {
    require(!asked, field, fmt::format("{} not supported on GPUs", what), help);
  };
  const auto is = [](const auto& what) { return fmt::format("{} is", what); };
  refuse(plan.compression.kind != Compression::Kind::kNone, "layout.compression", is(plan.compression.text()));
  refuse(plan.offload != Offload::kNone, "layout.offload", is(name_of(plan.offload)));
  require(plan.servers == 0, "layout.spare_hosts", "spare hosts run as threads only", "--backend threads, or 0");
  refuse(plan.slices() > 1, "layout.schedule", is(plan.program.schedule + " splits sequences into slices, which"));
  if (!plan.sleep.empty()) {
    throw ConfigError({"--compute", "sleep is not supported on GPUs", "--compute", "--backend threads or mpi"});
  }
  refuse(plan.network.positions == Positions::kAlibi, "model.positions", "alibi is");
  refuse(plan.tensor_parallel != TensorParallel::k1d, "layout.tensor_parallel", is(name_of(plan.tensor_parallel)),
         "1d, or --backend threads or mpi");
  refuse(plan.cp > 1, "layout.cp", is(plan.cp));
  refuse(plan.network.finetune.has_value(), "training.finetune", "frozen weights are");
  require(!plan.network.experts, "model.experts", "routing to experts runs on the host only",
          "--backend threads or mpi");
  const auto head_dim = static_cast<int>(plan.network.head_layout().head_dim);
  require(head_dim <= cuda::kLargestHead, "model.head_dim",
          fmt::format("heads of {} exceed the limit of {} on GPUs", head_dim, cuda::kLargestHead), "more heads");
  const int ranks = plan.ranks();
  if (options.gpu.one_gpu > 0 && options.gpu.one_gpu != ranks) {
    throw ConfigError({"--one-gpu", fmt::format("{}, but the job has {} ranks", options.gpu.one_gpu, ranks),
                       "--one-gpu", fmt::format("{}", ranks)});
  }
  const auto precision = parse<GemmPrecision>(name_of(run.precision));
  refuse(!precision, "training.precision", is(name_of(run.precision)),
         fmt::format("valid: {}", fmt::join(names_of<GemmPrecision>(), ", ")).c_str());
  return *precision;
}

}  // namespace flopcast::realrun
