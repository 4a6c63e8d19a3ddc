#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/job/fields.hpp"
#include "model/job/mend.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

// Other programs say the accumulation and leave the batch to the number of devices.
void note_batch_of_accumulation(const ObjectReader& reader, Job& job) {
  Layout& layout = job.layout;
  if (layout.global_batch_size == 0) {
    const double batch = static_cast<double>(layout.dp) * layout.micro_batch_size * *layout.accumulation;
    reader.fail("accumulation", fmt::format("makes a batch of {:.0f} sequences", batch), "");
  }
  job.assumptions.push_back(
      fmt::format("layout.global_batch_size is dp {} · micro_batch_size {} · accumulation {} = {}", layout.dp,
                  layout.micro_batch_size, *layout.accumulation, layout.global_batch_size));
  layout.accumulation.reset();
}

void note_assumptions(Job& job) {
  const Layout& layout = job.layout;
  const bool hidden = job.training.stack.overlap_gradient_reduction;
  const bool in_buckets = hidden && layout.replicas() > 1 && layout.gradient_shards() == 1 && !job.profile &&
                          layout.data_parallel != DataParallel::kDataParallel;
  if (in_buckets && !layout.bucket_mb) {
    job.assumptions.push_back("layout.bucket_mb is 25, and 1 for the first bucket");
  }
  if (layout.zero == kShardsGradients && layout.microbatches() > 1) {
    job.assumptions.push_back("zero 2 reduces the gradients of every microbatch");
  }
  const bool travels_beside = layout.weight_shards() > 1 || (layout.gradient_shards() > 1 && hidden);
  if (travels_beside && (layout.microbatches() > 1 || layout.vpp.value_or(1) > 1)) {
    job.assumptions.push_back(
        "sharded weights and gradients travel beside the neighbouring passes of a rank; "
        "the ends of one pass a step are exposed");
  }
}

}  // namespace

void read_layout(ObjectReader& root, Job& job, const Origins& origins) {
  const nlohmann::json* section = root.find("layout");
  const nlohmann::json values = section == nullptr ? nlohmann::json::object() : *section;
  ObjectReader reader(values, "layout", origins);
  job.layout = {};
  read_fields(layout_fields(), reader, job.layout);
  reader.refuse_unknown_keys();
  const GivenKeys given = given_keys(reader);
  if (!given.global_batch_size && !job.layout.accumulation) {
    reader.fail_missing("global_batch_size", "give --gbs N, the sequences per step");
  }
  settle_layout(job, given);
  if (const LayoutRule* broken = first_broken(job)) refuse_layout(reader, job, *broken);
  if (!given.global_batch_size) note_batch_of_accumulation(reader, job);
  if (job.layout.data_parallel == DataParallel::kHsdp && !given.shards) {
    job.assumptions.push_back(fmt::format("layout.shards is {}: the replicas of one node", job.layout.shards));
  }
  note_assumptions(job);
}

}  // namespace flopcast
