#pragma once

#include <cstddef>
#include <vector>

#include "realrun/training/train.hpp"

namespace flopcast::realrun {

/// A rank's result as bytes, to be sent to another process of the same kind of machine. Throws EnvironmentError when
/// the bytes end too early.
std::vector<std::byte> to_bytes(const RankResult& result);
RankResult result_from_bytes(const std::vector<std::byte>& bytes);

}  // namespace flopcast::realrun
