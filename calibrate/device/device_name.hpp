#pragma once

#include <optional>
#include <string>

namespace flopcast {

/// The catalogue's device that a GPU's own name tells: "NVIDIA H100 80GB HBM3" is h100. Every word of the catalogue's
/// name is one of the GPU's ("80g" also of "80GB"); of several such devices the one with the most words. Absent when
/// there is none, or no single one.
std::optional<std::string> catalogued_device(const std::string& gpu);

}  // namespace flopcast
