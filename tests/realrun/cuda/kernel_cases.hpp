#pragma once

#include <functional>

#include "realrun/device/device.hpp"
#include "realrun/network/kernels.hpp"

namespace flopcast::realrun {

/// Kernels under test and the device on which they work.
struct KernelsUnderTest {
  ComputeDevice& device;
  Kernels<float>& kernels;
  double tolerance = 1e-5;          ///< of relative norm errors, for all that has 32 bits
  double product_tolerance = 1e-5;  ///< the same for products
  int largest = 300;                ///< of the sizes tried
  double least_product_error = 0;   ///< of products that round their factors: without it they do not
  void* stream = nullptr;           ///< of the device's computation
};

/// Keeps, as properties of the running test, the error that is the largest share of its tolerance: "error" and
/// "tolerance". A program with these cases writes them, line by line as its tests begin and end, to the file that the
/// environment variable FLOPCAST_TEST_RECORDS names; tests/gpu/evaluate makes a table of them.
void record_error(double error, double tolerance);

// Each compares one kernel with the host's on random inputs, by ‖result − expected‖ / ‖expected‖. Results are poisoned
// before, and NaN never passes. Fails the running test, and records how far off it was.

void check_products(const KernelsUnderTest& test);
/// Of kernels that multiply in 8 bits.
void check_float8_products(const KernelsUnderTest& test);
/// What to_float8() makes of numbers, by OCP's specification; no product is computed.
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
