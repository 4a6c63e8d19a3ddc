#include "calibrate/tables/tables.hpp"

#include <fmt/format.h>

#include "base/text/words.hpp"

namespace flopcast {

Table constants_table() {
  Table table = {
      .title = "Fitted constants",
      .columns = {text_column("where"), text_column("constant"), text_column("value"), text_column("fitted to")}};
  for (const FitPlan& plan : shipped_fits()) {
    for (const FittedConstant& constant : plan.constants) {
      table.rows.push_back(
          {constant.entry, constant.figure, fmt::format("{:.4g}{}", constant.shipped, constant.unit), plan.name});
    }
  }
  const std::vector<std::vector<std::string>> in_code = {
      {"b200", "gemm_efficiency_by_precision.fp8", "0.56", "Megatron-Bridge and LoRA on B200"},
      {"nemo", "fp8_on_blackwell, before 25.04", "0.862", "NeMo 25.02 on B200"},
      {"b300", "gemm_efficiency, in bf16 and fp8", "0.62", "LoRA on B300"},
      {"gb200", "gemm_efficiency_by_precision.fp8", "0.58", "NeMo and Megatron-Bridge on GB200"},
      {"gb300", "gemm_efficiency_by_precision.fp8", "0.74", "NeMo and Megatron-Bridge on GB300"},
      {"GEMM", "weight_gradient_depth", "60", "profiled passes of zero-bubble models"},
      {"GEMM", "slowdown of heads that tensor cores cannot load", "10", "BLOOM, heads of 108, 150 and 450"},
      {"element-wise", "share of freshly written bytes that memory serves", "0.7", "A100, training"},
      {"FlashAttention 1", "forward on Ampere", "0.57", "llm-foundry on A100"},
      {"FlashAttention 1", "backward on Ampere", "0.25", "llm-foundry on A100"},
      {"FlashAttention 1", "forward on Hopper", "0.27", "llm-foundry on H100"},
      {"FlashAttention 1", "backward on Hopper", "0.15", "llm-foundry on H100"},
      {"stacks", "loss_forward_bytes", "14", "last stages of zero-bubble, vTrain, BLOOM"},
      {"stacks", "loss_backward_bytes", "5", "last stages of zero-bubble, vTrain, BLOOM"},
      {"nanotron", "collective_stall", "225us", "Ultra-Scale Playbook"},
      {"nanotron", "hand_over_stall, interval only", "0.55s", "Ultra-Scale Playbook"},
      {"nanotron", "allocator_slack", "0.3", "Ultra-Scale Playbook"},
      {"communication", "fraction of a collective that an overlapped GEMM hides", "0.76", "2205.05198, Tables 4 and 5"},
      {"communication", "slowdown of overlapped computation", "0.4", "llm-foundry"},
      {"host", "exponent if device and host take equally long", "6", "vTrain on one node"},
      {"memory", "working set of a recomputed block", "3", "BLOOM"},
      {"omni-path", "nic_efficiency", "0.45", "BLOOM"},
  };
  table.rows.insert(table.rows.end(), in_code.begin(), in_code.end());
  table.notes.push_back(fmt::format("{} numbers", table.rows.size()));
  return table;
}

Table ablation_table() {
  Table table = {.title = "Accuracy gained by each part, %",
                 .columns = {text_column("part"), text_column("source"), text_column("error"), number_column("without"),
                             number_column("with")}};
  // Each was measured once, when the part was added, with all parts above it.
  table.rows = {
      {"facts of software and its release, fp8 recipes", "dgxc_benchmarking, bf16", "step MAPE", "5.0", "2.1"},
      {"", "dgxc_benchmarking, fp8", "step MAPE", "11.0", "5.1"},
      {"", "mlperf", "step MAPE", "10.4", "9.2"},
      {"", "fms_fsdp", "step MAPE", "15.1", "6.5"},
      {"", "nemo_docs", "step MAPE", "12.3", "7.1"},
      {"power limits, H200 as H100", "torchtitan", "step MAPE", "12.7", "6.4"},
      {"", "nemo_docs", "step MAPE", "7.1", "4.3"},
      {"", "libai_megatron_v100", "step MAPE", "23.8", "16.7"},
      {"slowdown during transfers, buckets and gathers", "mlperf", "step MAPE", "8.3", "4.7"},
      {"", "dgxc_benchmarking, fp8", "step MAPE", "5.1", "4.3"},
      {"links of a node without a switch", "libai_megatron_v100", "step MAPE", "16.7", "9.3"},
      {"hop_latency", "nanotron_playbook", "step median", "19.9", "15.0"},
      {"host_time_per_kernel, host_time_per_collective", "nanotron_playbook", "step median", "25.9", "15.0"},
      {"host_waits_for_hops", "nanotron_playbook", "step median", "17.3", "15.0"},
      {"collective_stall", "nanotron_playbook", "step median", "38.3", "15.0"},
      {"eager operators", "nanotron_playbook", "step median", "16.9", "15.0"},
      {"recomputation by operator, fp32 logits", "torchtitan", "memory MAPE", "40.0", "5.2"},
      {"eager operators, logits, allocator_slack", "nanotron_playbook", "memory MAPE", "33.5", "18.2"},
      {"gathers_each_parameter, latency slows down nothing", "nanotron_playbook", "step median", "15.2", "14.1"},
      {"balances_by_parameters", "nanotron_playbook", "step median", "14.1", "11.7"},
      {"", "nanotron_playbook", "memory MAPE", "18.2", "12.9"},
      {"allocator_slack of layers only", "nanotron_playbook", "memory MAPE", "12.9", "12.0"},
      {"amax_reduction", "mlperf", "step MAPE", "4.8", "4.0"},
      {"", "dgxc_benchmarking, fp8 dense", "step MAPE", "4.3", "4.1"},
      {"merging results of ring attention", "torchtitan", "step MAPE", "6.3", "5.5"},
      {"rings of V100 as measured, its memory like A100's", "libai_megatron_v100", "step MAPE", "9.3", "8.8"},
      {"", "nccl_allreduce", "time MAPE", "19.5", "17.7"},
  };
  const ExpertAblations experts = expert_ablations();
  for (const Ablation& one : experts.parts) {
    table.rows.push_back(
        {one.part, "all rows with experts", "step MAPE", percent(one.without.mape), percent(experts.whole.mape)});
  }
  table.notes.emplace_back(
      "each row adds its part to all rows above it; the last block of a source and the parts for experts are added "
      "alone, experts with the current costs");
  return table;
}

std::vector<Table> refit_tables(const std::vector<Refit>& fits, LeftOut left_out) {
  Table constants = {
      .title = "Constants",
      .columns = {text_column("fit"), text_column("entry"), text_column("figure"), text_column("unit"),
                  number_column("shipped"), number_column("refitted"), text_column("at a bound", "at_bound")}};
  Table errors = {.title = "Mean absolute error of the step time, %",
                  .columns = {text_column("fit"), text_column("source"), number_column("rows"), number_column("models"),
                              number_column("shipped"), number_column("refitted"), number_column("left out")}};
  const auto two_digits = [](double fraction) { return fmt::format("{:.2f}", fraction * 100.0); };
  for (const Refit& fit : fits) {
    for (std::size_t index = 0; index < fit.values.size(); ++index) {
      const FittedConstant& constant = fit.plan.constants[index];
      const double value = fit.values[index];
      constants.rows.push_back({fit.plan.name, constant.entry, constant.figure, constant.unit,
                                fmt::format("{:.4g}", constant.shipped), fmt::format("{:.4g}", value),
                                at_bound(constant, value) ? "yes" : "no"});
    }
    for (const RefitSource& source : fit.sources) {
      errors.rows.push_back({fit.plan.name, source.source, fmt::format("{}", source.rows),
                             fmt::format("{}", source.models), two_digits(source.shipped), two_digits(source.refitted),
                             source.left_out ? two_digits(*source.left_out) : ""});
    }
  }
  errors.notes.push_back(fmt::format("left out: each row is forecast with constants fitted without the rows of its {}",
                                     left_out == LeftOut::kModels ? "model" : "source"));
  return {constants, errors};
}

}  // namespace flopcast
