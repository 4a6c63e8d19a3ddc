#pragma once

namespace flopcast {

/// A linear layer on a line of t tensor-parallel ranks: alone, with whole features as input and output, or as a pair
/// whose intermediate features stay sharded.
enum class LineForm { kColumn, kRow, kPair };

/// Elements that each rank sends for the forward pass, for the input's gradient and for the weights' gradient.
struct LineVolume {
  double forward = 0.0;
  double input_gradient = 0.0;
  double weight_gradient = 0.0;
};

inline LineVolume plain_volume(LineForm form, double input, double output) {
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

inline LineVolume sequence_parallel_volume(LineForm form, int ranks, double input, double output) {
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

/// The linear i -> o, or the pair i -> any width -> o, over S tokens; bandwidth-optimal collectives (Patarasuk & Yuan
/// 2009), r = (t-1)/t:
///   column        forward  all-gather of the output's features                    r·S·o
///                 dX       all-reduce                                             2r·S·i
///   row           forward  all-reduce; the input is cut where it lies             2r·S·o
///                 dX       all-gather of its features                             r·S·i
///   pair          forward  all-reduce                                             2r·S·o
///                 dX       all-reduce                                             2r·S·i
/// (Shoeybi et al. 1909.08053 §3). With sequence parallelism input and output are cut by tokens:
///   column        forward  all-gather of tokens, all-to-all of features for tokens   r·S·i + r·S·o/t
///                 dX       the same back                                             r·S·o/t + r·S·i
///                 dW       all-gather of the input, of which only the part is kept   r·S·i
///   row           forward  all-to-all of tokens for features, reduce-scatter         r·S·i/t + r·S·o
///                 dX       all-gather, all-to-all                                    r·S·o + r·S·i/t
///   pair          forward  all-gather, reduce-scatter                                r·S·i + r·S·o
///                 dX       the same                                                  r·S·o + r·S·i
///                 dW       all-gather of the input                                   r·S·i
/// (Korthikanti et al. 2205.05198 §4.2). Left out: biases.
inline LineVolume line_volume(LineForm form, bool sequence_parallel, int ranks, double tokens, double inputs,
                              double outputs) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  const double input = others * tokens * inputs;
  const double output = others * tokens * outputs;
  return sequence_parallel ? sequence_parallel_volume(form, ranks, input, output) : plain_volume(form, input, output);
}

}  // namespace flopcast
