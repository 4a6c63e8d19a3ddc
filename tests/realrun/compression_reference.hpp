#pragma once

#include <vector>

#include "model/layout/layout.hpp"

namespace flopcast::realrun {

Compression quantized(int bits);
Compression top(double fraction);

using Values = std::vector<float>;

/// Of gradients by replica, cut in as many parts: for each part the sum of what the replicas' rounded parts say,
/// rounded again.
Values quantized_sum(const std::vector<Values>& gradients, int bits);

/// Each replica sends the largest of its gradients and of what it has kept back so far, and keeps the rest back.
Values sparse_sum(const std::vector<Values>& gradients, std::vector<Values>& kept, double fraction);

}  // namespace flopcast::realrun
