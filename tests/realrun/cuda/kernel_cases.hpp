#pragma once

#include <functional>

#include "realrun/device/device.hpp"
#include "realrun/network/kernels.hpp"

namespace flopcast::realrun {

/// Kernels under test and the device on which they run.
struct KernelsUnderTest {
  ComputeDevice& device;
  Kernels<float>& kernels;
  double tolerance = 1e-5;          ///< of relative norm errors, for 32-bit results
  double product_tolerance = 1e-5;  ///< the same for products
  int largest = 300;                ///< of the sizes tried
  double least_product_error = 0;   ///< of products that round their factors: a smaller error means that they do not
  void* stream = nullptr;           ///< of the device's computation queue
};

/// Records, as properties of the running test, the error that is the largest share of its tolerance: "error" and
/// "tolerance". A program with these cases writes them, line by line as its tests begin and end, to the file that the
/// environment variable FLOPCAST_TEST_RECORDS names; tests/gpu/evaluate makes a table of them.
void record_error(double error, double tolerance);

// Each function compares one kernel with the host's on random inputs, by ‖result − expected‖ / ‖expected‖. Results are
// poisoned beforehand, and NaN never passes. Fails the running test, and records the error.

void check_products(const KernelsUnderTest& test);
/// For kernels that multiply in 8 bits.
void check_float8_products(const KernelsUnderTest& test);
/// Tests the numbers that to_float8() produces, by OCP's specification; no product is computed.
void check_float8_numbers(const KernelsUnderTest& test);
void check_elementwise(const KernelsUnderTest& test);
void check_row_sums(const KernelsUnderTest& test);
void check_layer_norm(const KernelsUnderTest& test);
void check_rms_norm(const KernelsUnderTest& test);
void check_gated_silu(const KernelsUnderTest& test);
void check_heads(const KernelsUnderTest& test);
void check_attention(const KernelsUnderTest& test);
void check_embedding(const KernelsUnderTest& test);
void check_cross_entropy(const KernelsUnderTest& test);
void check_draws(const KernelsUnderTest& test);
void check_optimizers(const KernelsUnderTest& test);

}  // namespace flopcast::realrun
