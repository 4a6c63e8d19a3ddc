#pragma once

#include "model/config/object_reader.hpp"
#include "model/job/rules.hpp"

namespace flopcast {

/// The keys that a layout may leave to the others.
struct GivenKeys {
  bool dp = false;
  bool global_batch_size = false;
  bool shards = false;
};

/// Fills in what the layout leaves open: dp is what the other axes leave over, the batch follows from the accumulation
/// (0: it is larger than kLargestBatch), and hsdp shards over the replicas of one node.
void settle_layout(Job& job, const GivenKeys& given);

/// The keys that the reader's layout gives.
GivenKeys given_keys(const ObjectReader& reader);

/// The complaint about a rule that the settled job breaks. Its help are the values that obey every rule: of the key to
/// blame, and of each other key that the rule reads; where no key alone mends it, those of two together. The
/// trial ends at a rule that would blame a key which the layout leaves open: values may break a rule behind it.
[[noreturn]] void refuse_layout(const ObjectReader& reader, const Job& job, const LayoutRule& rule);

}  // namespace flopcast
