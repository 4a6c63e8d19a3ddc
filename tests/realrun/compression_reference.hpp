#pragma once

#include <cstddef>
#include <vector>

#include "model/layout/layout.hpp"

namespace flopcast::realrun {

Compression quantized(int bits);
Compression top(double fraction);

using Values = std::vector<float>;

/// For gradients by replica, split into one part per replica: the sum of the replicas' rounded values of each part,
/// rounded again.
Values quantized_sum(const std::vector<Values>& gradients, int bits);

/// Each replica sends the largest elements of its gradients plus what it has kept so far, and keeps the rest.
Values sparse_sum(const std::vector<Values>& gradients, std::vector<Values>& kept, double fraction);

/// PowerSGD of one matrix (Vogels et al. 1905.13727, algorithms 1 and 2), in double precision.
class LowRankSum {
 public:
  LowRankSum(std::size_t rows, std::size_t columns, int rank, std::size_t replicas);
  Values operator()(const std::vector<Values>& gradients);

 private:
  using Matrix = std::vector<std::vector<double>>;  // by column

  std::size_t rows_;
  std::size_t columns_;
  std::vector<std::vector<double>> kept_;  // by replica
  Matrix right_;
};

}  // namespace flopcast::realrun
