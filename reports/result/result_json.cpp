#include "reports/result/result_json.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>

#include "model/units/quantity.hpp"
#include "reports/result/cluster_json.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/memory.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

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
  Json json = {{"schema", "flopcast.result/1"}, {"job", job_json(forecast.step.job)}};
  json.update(result_parts(forecast.result));
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
               {"memory", memory_part(forecast.result.memory)}};
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
