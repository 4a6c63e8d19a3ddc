#pragma once

#include <vector>

#include "calibrate/validation/published_row.hpp"

namespace flopcast {

/// What one row of a file says for the others: `vocab` where it is not stated, and `beside_zero_bubble`.
/// One publication, told by the arXiv number in the citations, runs one software.
/// Rows that do not state their vocabulary share one: the first of the usual tokenizers' with which every GPT among
/// them has as many parameters as is said of it, to the digits given, embeddings tied; GPT-2's when none has.
void share_facts(std::vector<PublishedRow>& rows);

/// The schedules of Qi et al. 2401.10241 and 2405.15362, in publications' own names: "zb-1p", "zb-v".
bool runs_zero_bubble(const PublishedRow& row);

}  // namespace flopcast
