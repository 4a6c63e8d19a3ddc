#include "calibrate/validation/completion.hpp"

#include <functional>
#include <string>
#include <utility>

namespace flopcast {

namespace {

using Choices = std::vector<Completion>;

// Each choice so far with each value of one more field.
template <typename Value>
void branch(Choices& choices, const char* name, const std::vector<Value>& values,
            const std::function<void(PublishedRow&, const Value&)>& set) {
  Choices all;
  for (const Completion& choice : choices) {
    for (const Value& value : values) {
      Completion next = choice;
      set(next.row, value);
      next.open += (next.open.empty() ? "" : ", ") + std::string(name);
      all.push_back(std::move(next));
    }
  }
  choices = std::move(all);
}

std::vector<int> micro_batches(const PublishedRow& row) {
  std::vector<int> sizes;
  const int of_replica = *row.global_batch_size / row.dp.value_or(1);
  for (const int size : {1, 2, 4, 8}) {
    if (of_replica % size == 0) sizes.push_back(size);
  }
  return sizes;
}

std::vector<int> chunk_counts(const PublishedRow& row) {
  std::vector<int> counts;
  const int stages = row.pp.value_or(1);
  constexpr int kTables = 2;  // embedding and head, where they count as layers
  for (int count = 2; count * stages <= *row.layers + kTables && stages > 1; ++count) {
    const int chunks = count * stages;
    if (*row.layers % chunks == 0 || (*row.layers + kTables) % chunks == 0) counts.push_back(count);
  }
  return counts;
}

}  // namespace

std::vector<Completion> completions(const PublishedRow& row) {
  const bool known = !row.gpu.empty() && row.layers && row.hidden && row.heads && row.sequence_length &&
                     row.global_batch_size && row.dp && row.ep.value_or(1) <= 1;
  if (row.complete || !known) return {};
  Choices choices = {{row, ""}};
  choices.front().row.complete = true;
  if (!row.micro_batch_size) {
    branch<int>(choices, "micro batch", micro_batches(row),
                [](PublishedRow& open, const int& size) { open.micro_batch_size = size; });
  }
  if (!row.recompute) {
    branch<std::string>(choices, "recompute", {"none", "selective", "full"},
                        [](PublishedRow& open, const std::string& policy) { open.recompute = policy; });
  }
  if (!row.sequence_parallel && row.tp.value_or(1) > 1) {
    branch<bool>(choices, "sequence parallelism", {false, true},
                 [](PublishedRow& open, const bool& split) { open.sequence_parallel = split; });
  }
  const bool interleaved = row.schedule.find("interleaved") != std::string::npos;
  if (interleaved && !row.vpp && row.pp.value_or(1) > 1) {
    branch<int>(choices, "chunks per rank", chunk_counts(row),
                [](PublishedRow& open, const int& count) { open.vpp = count; });
  }
  constexpr int kGradients = 2;
  if (row.zero == kGradients && row.pp.value_or(1) > 1) {
    branch<bool>(choices, "gradients scattered by every microbatch", {false, true},
                 [](PublishedRow& open, const bool& each) { open.scatters_each_microbatch = each; });
  }
  if (choices.empty()) return {};
  return choices;
}

}  // namespace flopcast
