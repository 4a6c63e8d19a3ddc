#pragma once

#include <optional>
#include <string>

namespace flopcast {

/// The catalogue's device that a GPU's own name tells: "NVIDIA H100 80GB HBM3" is h100. Every word of the catalogue's
/// name is one of the GPU's ("80g" also of "80GB"); of several such devices the one with the most words. Absent when
/// there is none, or no single one, and where a word says that it is another: NVL, unless the catalogue's name has it
/// too, and a part of a GPU (MIG).
std::optional<std::string> catalogued_device(const std::string& gpu);

/// "NVIDIA H200 MIG 1g.18gb": its multiprocessors and memory are a part of the GPU's.
bool is_part_of_gpu(const std::string& gpu);

}  // namespace flopcast
