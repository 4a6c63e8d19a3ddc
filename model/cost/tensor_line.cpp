#include "model/cost/tensor_line.hpp"

namespace flopcast {

namespace {

LineVolume plain_volume(LineForm form, double input, double output) {
  switch (form) {
    case LineForm::kColumn:
      return {output, 2.0 * input, 0.0};
    case LineForm::kRow:
      return {2.0 * output, input, 0.0};
    case LineForm::kPair:
      break;
  }
  return {2.0 * output, 2.0 * input, 0.0};
}

LineVolume sequence_parallel_volume(LineForm form, int ranks, double input, double output) {
  switch (form) {
    case LineForm::kColumn:
      return {input + output / ranks, output / ranks + input, input};
    case LineForm::kRow:
      return {input / ranks + output, output + input / ranks, 0.0};
    case LineForm::kPair:
      break;
  }
  return {input + output, output + input, input};
}

}  // namespace

LineVolume line_volume(LineForm form, bool sequence_parallel, int ranks, double tokens, double inputs, double outputs) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  const double input = others * tokens * inputs;
  const double output = others * tokens * outputs;
  return sequence_parallel ? sequence_parallel_volume(form, ranks, input, output) : plain_volume(form, input, output);
}

}  // namespace flopcast
