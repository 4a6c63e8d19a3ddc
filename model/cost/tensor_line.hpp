#pragma once

namespace flopcast {

/// A linear on a line of t tensor-parallel ranks: alone, taking and giving whole features, or as a pair whose middle
/// stays cut.
enum class LineForm { kColumn, kRow, kPair };

/// Elements that each rank sends for the forward pass, for the input's and for the weights' gradient.
struct LineVolume {
  double forward = 0.0;
  double input_gradient = 0.0;
  double weight_gradient = 0.0;
};

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
LineVolume line_volume(LineForm form, bool sequence_parallel, int ranks, double tokens, double inputs, double outputs);

}  // namespace flopcast
