#include "reports/result/result_json.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/units/quantity.hpp"
#include "reports/result/cluster_json.hpp"
#include "sim/forecast/memory.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

Json axis_json(const AxisCommunication& axis) {
  return {{"total_s", axis.total_s},
          {"exposed_s", axis.exposed_s},
          {"bytes_sent_per_rank", axis.bytes_sent_per_rank},
          {"messages", axis.messages}};
}

Json iteration_json(const IterationResult& iteration) {
  return {{"time_s", iteration.time_s},
          {"tokens_per_s", iteration.tokens_per_s},
          {"tokens_per_s_per_gpu", iteration.tokens_per_s_per_gpu},
          {"samples_per_s", iteration.samples_per_s},
          {"model_tflops_per_gpu", iteration.model_tflops_per_gpu},
          {"hardware_tflops_per_gpu", iteration.hardware_tflops_per_gpu},
          {"mfu", iteration.mfu},
          {"hfu", iteration.hfu}};
}

Json breakdown_json(const Breakdown& breakdown) {
  return {{"compute_s", breakdown.compute_s}, {"recompute_s", breakdown.recompute_s},
          {"tp_comm_s", breakdown.tp_comm_s}, {"pp_comm_s", breakdown.pp_comm_s},
          {"dp_comm_s", breakdown.dp_comm_s}, {"cp_comm_s", breakdown.cp_comm_s},
          {"ep_comm_s", breakdown.ep_comm_s}, {"optimizer_s", breakdown.optimizer_s},
          {"offload_s", breakdown.offload_s}, {"bubble_s", breakdown.bubble_s}};
}

Json communication_json(const CommunicationResult& communication) {
  return {{"fraction", communication.fraction}, {"exposed_fraction", communication.exposed_fraction},
          {"tp", axis_json(communication.tp)},  {"pp", axis_json(communication.pp)},
          {"dp", axis_json(communication.dp)},  {"cp", axis_json(communication.cp)},
          {"ep", axis_json(communication.ep)}};
}

Json bubble_json(const BubbleResult& bubble) {
  return {{"fraction", bubble.fraction},
          {"ratio", bubble.ratio},
          {"span_s", bubble.span_s},
          {"by_cause",
           {{"warmup_s", bubble.warmup_s},
            {"cooldown_s", bubble.cooldown_s},
            {"imbalance_s", bubble.imbalance_s},
            {"dependency_s", bubble.dependency_s}}},
          {"per_pipeline_rank", bubble.per_pipeline_rank}};
}

Json memory_section(const MemoryResult& memory) {
  Json ranks = Json::array();
  for (const RankMemoryResult& rank : memory.per_pipeline_rank) {
    ranks.push_back({{"weights_gib", rank.weights_gib},
                     {"gradients_gib", rank.gradients_gib},
                     {"optimizer_gib", rank.optimizer_gib},
                     {"activations_gib", rank.activations_gib},
                     {"weight_versions_gib", rank.weight_versions_gib},
                     {"workspace_gib", rank.workspace_gib},
                     {"total_gib", rank.total_gib},
                     {"shown_gib", rank.shown_gib},
                     {"capacity_gib", rank.capacity_gib},
                     {"peak_in_flight", rank.peak_in_flight}});
  }
  return {{"capacity_gib", memory.capacity_gib},
          {"peak_gib", memory.peak_gib},
          {"shown_gib", memory.shown_gib},
          {"fits", memory.fits},
          {"per_pipeline_rank", std::move(ranks)}};
}

Json interval_json(const StepTimeInterval& interval) {
  return {{"level", interval.level},   {"half_width", interval.half_width}, {"low_s", interval.low_s},
          {"high_s", interval.high_s}, {"models", interval.models},         {"evidence", interval.evidence}};
}

Json training_json(const TrainingResult& training, const std::optional<StepTimeInterval>& interval) {
  Json json = {{"steps", training.steps}, {"days", training.days}, {"gpu_hours", training.gpu_hours}};
  if (interval) {
    json["days_low"] = training.days * std::max(0.0, 1.0 - interval->half_width);
    json["days_high"] = training.days * (1.0 + interval->half_width);
  }
  if (training.cost_usd) json["cost_usd"] = *training.cost_usd;
  return json;
}

Json steady_json(const SteadyResult& steady) {
  return {{"period_s", steady.period_s},
          {"fill_s", steady.fill_s},
          {"throughput_samples_per_s", steady.throughput_samples_per_s},
          {"weight_versions", steady.weight_versions},
          {"staleness", steady.staleness}};
}

Json distribution_json(const DistributionResult& distribution) {
  return {{"samples", distribution.samples},  {"seed", distribution.seed},
          {"jitter", distribution.jitter},    {"stragglers", distribution.stragglers},
          {"mean_s", distribution.mean_s},    {"std_s", distribution.std_s},
          {"p5_s", distribution.p5_s},        {"p50_s", distribution.p50_s},
          {"p95_s", distribution.p95_s},      {"p99_s", distribution.p99_s},
          {"slowdown", distribution.slowdown}};
}

Json packing_json(const PackingResult& packing) {
  return {{"sequences", packing.sequences},
          {"filled", packing.filled},
          {"attention", packing.attention},
          {"time_s", packing.time_s},
          {"idle", packing.idle},
          {"equal_s", packing.equal_s},
          {"equal_idle", packing.equal_idle},
          {"tokens_per_s", packing.tokens_per_s}};
}

Json experts_json(const Experts& experts) {
  return {{"count", experts.count},
          {"top_k", experts.top_k},
          {"ffn", experts.ffn},
          {"shared", experts.shared},
          {"shared_ffn", experts.shared_ffn},
          {"first_dense_layers", experts.first_dense_layers},
          {"every", experts.every}};
}

Json latent_json(const LatentAttention& latent) {
  return {{"q_lora_rank", latent.query_rank},
          {"kv_lora_rank", latent.key_value_rank},
          {"qk_nope_head_dim", latent.nope_dim},
          {"qk_rope_head_dim", latent.rope_dim},
          {"v_head_dim", latent.value_dim}};
}

Json model_json(const Transformer& model) {
  Json json = {{"name", model.name},
               {"layers", model.layers},
               {"hidden", model.hidden},
               {"heads", model.heads},
               {"kv_heads", model.kv_heads},
               {"head_dim", model.head_dim},
               {"ffn", model.ffn},
               {"vocab", model.vocab},
               {"sequence_length", model.sequence_length},
               {"gated_mlp", model.gated_mlp},
               {"biases", model.biases},
               {"attention_bias", model.attention_bias},
               {"qk_norm", model.qk_norm},
               {"causal", model.causal},
               {"embedding_norm", model.embedding_norm},
               {"dropout", model.dropout},
               {"norm", norm_names()[static_cast<std::size_t>(model.norm)]},
               {"positions", position_names()[static_cast<std::size_t>(model.positions)]},
               {"tied_embeddings", model.tied_embeddings}};
  if (model.experts) json["experts"] = experts_json(*model.experts);
  if (model.latent) json["mla"] = latent_json(*model.latent);
  return json;
}

Json layout_json(const Layout& layout) {
  std::string placement;
  for (const Axis axis : layout.placement) {
    placement += (placement.empty() ? "" : "-") + axis_names()[static_cast<std::size_t>(axis)];
  }
  Json json = {{"dp", layout.dp},
               {"tp", layout.tp},
               {"pp", layout.pp},
               {"vpp", layout.vpp.value_or(1)},
               {"cp", layout.cp},
               {"ep", layout.ep},
               {"sequence_parallel", layout.sequence_parallel},
               {"micro_batch_size", layout.micro_batch_size},
               {"global_batch_size", layout.global_batch_size},
               {"schedule", layout.schedule},
               {"stage_layers", layout.stage_layers},
               {"recompute", recompute_names()[static_cast<std::size_t>(layout.recompute)]},
               {"tensor_parallel", tensor_parallel_names()[static_cast<std::size_t>(layout.tensor_parallel)]},
               {"data_parallel", data_parallel_names()[static_cast<std::size_t>(layout.data_parallel)]},
               {"zero", layout.zero},
               {"compression", layout.compression.text()},
               {"offload", offload_names()[static_cast<std::size_t>(layout.offload)]},
               {"placement", placement}};
  if (layout.group_size) json["group_size"] = *layout.group_size;
  if (layout.accumulation) json["accumulation"] = *layout.accumulation;
  if (layout.bucket_mb) json["bucket_mb"] = *layout.bucket_mb;
  if (layout.tensor_parallel == TensorParallel::k25d) json["tensor_depth"] = layout.tensor_depth;
  if (layout.data_parallel == DataParallel::kHsdp) json["shards"] = layout.shards;
  if (!layout.reshard_after_forward) json["reshard_after_forward"] = false;
  if (layout.spare_hosts > 0) json["spare_hosts"] = layout.spare_hosts;
  return json;
}

}  // namespace

Json job_json(const Job& job) {
  Json training = {{"sequence_length", job.training.sequence_length},
                   {"precision", name_of(job.training.precision)},
                   {"optimizer", optimizer_names()[static_cast<std::size_t>(job.training.optimizer)]},
                   {"attention", job.training.flash_attention ? "flash" : "unfused"},
                   {"transport", transport_names()[static_cast<std::size_t>(job.training.transport)]},
                   {"stack", job.training.stack.name}};
  if (job.training.gradient_transport != job.training.transport) {
    training["gradient_transport"] = transport_names()[static_cast<std::size_t>(job.training.gradient_transport)];
  }
  if (job.training.tokens) training["tokens"] = *job.training.tokens;
  if (job.training.price_per_gpu_hour) training["price_per_gpu_hour"] = *job.training.price_per_gpu_hour;
  return {{"model", model_json(job.model)},
          {"cluster", cluster_json(job.cluster)},
          {"layout", layout_json(job.layout)},
          {"training", std::move(training)}};
}

Json critical_path_json(const Timeline& timeline, const CriticalPath& path) {
  const auto seconds = [&timeline](Ticks ticks) { return static_cast<double>(ticks) * timeline.units_per_tick; };
  Json by_kind = Json::object();
  for (std::size_t kind = 0; kind < path.time_by_kind.size(); ++kind) {
    if (path.time_by_kind[kind] == 0) continue;
    by_kind[std::string(name_of(static_cast<SpanKind>(kind)))] = seconds(path.time_by_kind[kind]);
  }
  return {{"total_s", seconds(path.total())},
          {"steps", path.steps.size()},
          {"by_kind_s", std::move(by_kind)},
          {"transfers_s", seconds(path.lag)},
          {"waiting_s", seconds(path.wait)}};
}

Json result_json(const Forecast& forecast) {
  const Result& result = forecast.result;
  Json json = {{"schema", "flopcast.result/1"},
               {"job", job_json(forecast.step.job)},
               {"iteration", iteration_json(result.iteration)},
               {"breakdown", breakdown_json(result.breakdown)},
               {"communication", communication_json(result.communication)},
               {"bubble", bubble_json(result.bubble)},
               {"memory", memory_section(result.memory)}};
  if (result.interval) json["step_time_interval"] = interval_json(*result.interval);
  if (result.training) json["training"] = training_json(*result.training, result.interval);
  if (result.steady) json["steady"] = steady_json(*result.steady);
  if (result.distribution) json["distribution"] = distribution_json(*result.distribution);
  if (result.packing) json["packing"] = packing_json(*result.packing);
  json["assumptions"] = result.assumptions;
  json["warnings"] = result.warnings;
  return json;
}

Json simulation_json(const Forecast& forecast) {
  Json json = result_json(forecast);
  json["critical_path"] = critical_path_json(forecast.timeline, critical_path(forecast.timeline));
  return json;
}

Json memory_json(const Forecast& forecast, MemoryView view) {
  Json json = {{"schema", "flopcast.memory/1"},
               {"job", job_json(forecast.step.job)},
               {"memory", memory_section(forecast.result.memory)}};
  if (view == MemoryView::kOverTime) {
    Json ranks = Json::array();
    for (const RankMemory& rank : forecast.memory) {
      Json points = Json::array();
      for (const MemoryPoint& point : rank.points) {
        points.push_back(
            {static_cast<double>(point.time) * forecast.timeline.units_per_tick, gibibytes(Bytes(point.bytes))});
      }
      ranks.push_back(std::move(points));
    }
    json["over_time"] = std::move(ranks);
  }
  if (view == MemoryView::kTensors) {
    Json parts = Json::array();
    for (const MemoryPart& part : fullest_rank_parts(forecast.step, forecast.result.memory, forecast.memory)) {
      parts.push_back({{"kind", part.group},
                       {"tensor", part.name},
                       {"each_gib", gibibytes(part.each)},
                       {"count", part.count},
                       {"gib", gibibytes(part.total())}});
    }
    json["fullest_rank"] = {{"rank", fullest_rank(forecast.result.memory)}, {"tensors", std::move(parts)}};
  }
  json["assumptions"] = forecast.result.assumptions;
  json["warnings"] = forecast.result.warnings;
  return json;
}

}  // namespace flopcast
