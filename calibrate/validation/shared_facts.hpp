#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/validation/published_row.hpp"

namespace flopcast {

/// Fills in what rows leave out and others of their publication say. A publication is told by the arXiv numbers of the
/// citation; a row that names none stands alone.
///   beside_zero_bubble  another row of the publication has a zero-bubble schedule
///   vocab               the publication's, where a row states one; else the first of the usual tokenizers' with which
///                       every GPT of the publication has as many parameters as is said of it, to the digits given,
///                       embeddings tied; GPT-2's when none has
void share_facts(std::vector<PublishedRow>& rows);

/// MLPs of width 4h and as many key-value heads as heads: GPT; others are Llama's kind.
bool is_gpt(const PublishedRow& row);
inline constexpr std::int64_t kMlpWidthOfGpt = 4;

/// The schedules of Qi et al. 2401.10241 and 2405.15362, in publications' own names: "zb-1p", "zb-v".
bool runs_zero_bubble(const PublishedRow& row);

}  // namespace flopcast
