#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "calibrate/validation/published_row.hpp"

namespace flopcast {

/// What the words of a source mean in a job. Tables of rules, the first that fits wins; none knows a row's id, a file's
/// name or a model's name.

/// The catalogue's name of a device: by memory size and generation ("A100 … 40 GB" -> "a100-40g").
std::optional<std::string> device_of(const PublishedRow& row);

/// The inline cluster of a row: its links by their names and rates in the source's words. NVLink by the device's
/// generation, or by the links a source counts; network cards by "N x R Gb/s per node", "R Gb/s per GPU", or eight
/// 200 Gbit/s cards where nothing is said.
nlohmann::json cluster_of(const PublishedRow& row, const std::string& device, int devices);

/// The training software and how the row departs from it: {"name": "megatron-2022", "gradient_bytes": 2}.
///   the source names                                   stack
///   a zero-bubble schedule                             zero-bubble
///   TransformerEngine, Megatron-Core                   megatron-core
///   NeMo, Megatron-Bridge                              nemo
///   DeepSpeed                                          megatron-deepspeed
///   FSDP                                               pytorch-fsdp
///   nothing of these, beside a zero-bubble schedule    zero-bubble, with Megatron's blocking transfers
///   sequence parallelism or selective recomputation    megatron-2022 (they came with it, 2205.05198); on Hopper and
///                                                      later megatron-core
///   a paper of 2022 or later                           megatron-2022
///   nothing of these                                   megatron-2021; on Hopper and later megatron-core
/// and of single properties: fp32 or fp16 gradient accumulation, FSDP's PURE mode (gradients reduced in bf16),
/// FlashAttention, fused cross entropy, no overlap of communication.
nlohmann::json stack_of(const PublishedRow& row, const std::string& about);

/// "bf16", "fp16" or "fp8", as the row says; bf16 (fp16 on Volta) when it does not.
std::string precision_of(const PublishedRow& row);

/// Everything a row says in words, in lower case.
std::string words_of(const PublishedRow& row, const std::string& about);
bool mentions(const std::string& words, std::string_view phrase);

}  // namespace flopcast
