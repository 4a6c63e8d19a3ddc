#include "model/cost/gradient_buckets.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "model/cost/expert_parallel.hpp"
#include "model/cost/reduction.hpp"

namespace flopcast {

namespace {

// The buckets of gradients that one group of ranks adds up.
class Buckets {
 public:
  Buckets(const PricingContext& pricing, const GroupPlacement& group, StageCosts& costs)
      : pricing_(pricing),
        group_(group),
        costs_(costs),
        given_(pricing.job.layout.bucket_mb),
        limit_(parameters_in(given_ ? *given_ : kFirstMebibytes)) {}

  void add(const GradientAmount& amount, double finished) {
    open_ += amount;
    finished_ = finished;
    if (open_.parameters >= limit_) close();
  }

  void close() {
    if (open_.parameters <= 0.0) return;
    const Traffic& traffic = reduced(open_);
    costs_.buckets.push_back({1.0 - finished_, traffic.time});
    costs_.bucket_traffic += traffic;
    open_ = {};
    limit_ = parameters_in(given_ ? *given_ : kMebibytes);
  }

 private:
  static constexpr double kFirstMebibytes = 1.0;
  static constexpr double kMebibytes = 25.0;

  double parameters_in(double mebibytes) const {
    constexpr double kMebibyte = 1024.0 * 1024.0;
    return mebibytes * kMebibyte / pricing_.job.training.stack.gradient_bytes;
  }

  // Blocks are alike, and so are their buckets.
  const Traffic& reduced(const GradientAmount& amount) {
    const auto known = std::find_if(priced_.begin(), priced_.end(), [&amount](const auto& entry) {
      return entry.first.parameters == amount.parameters && entry.first.low_rank_elements == amount.low_rank_elements;
    });
    if (known != priced_.end()) return known->second;
    return priced_.emplace_back(amount, reduce_gradients(pricing_, amount, group_)).second;
  }

  const PricingContext& pricing_;
  GroupPlacement group_;
  StageCosts& costs_;
  std::optional<int> given_;
  double limit_;
  GradientAmount open_;
  double finished_ = 0.0;
  std::vector<std::pair<GradientAmount, Traffic>> priced_;
};

void fill_from(const std::vector<UnitRun>& runs, bool of_experts, Buckets& buckets) {
  Seconds total;
  for (const UnitRun& run : runs) total += run.backward() * static_cast<double>(run.count);
  const bool takes_time = total > Seconds(0);
  Seconds done;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const Seconds backward = run->backward();
    for (int unit = 0; unit < run->count; ++unit) {
      for (const GradientPiece& piece : run->section->gradients) {
        if (piece.of_experts != of_experts) continue;
        const double finished = takes_time ? (done + backward * piece.finished) / total : 1.0;
        buckets.add(piece.amount, std::min(1.0, finished));
      }
      done += backward;
    }
  }
  buckets.close();
}

}  // namespace

bool reduces_in_buckets(const Job& job) {
  const Layout& layout = job.layout;
  return job.training.stack.overlap_gradient_reduction && layout.replicas() > 1 && layout.gradient_shards() == 1 &&
         layout.data_parallel != DataParallel::kDataParallel && !job.profile;
}

void fill_buckets(const PricingContext& pricing, const std::vector<UnitRun>& runs, StageCosts& costs) {
  if (!reduces_in_buckets(pricing.job)) return;
  bool with_experts = false;
  std::size_t gradients = 0;
  for (const UnitRun& run : runs) {
    with_experts = with_experts || run.section->expert_parameters > 0.0;
    gradients += run.section->gradients.size() * static_cast<std::size_t>(run.count);
  }
  costs.buckets.reserve(gradients);
  Buckets dense(pricing, pricing.replicas, costs);
  fill_from(runs, false, dense);
  if (!with_experts) return;
  Buckets experts(pricing, expert_replicas(pricing), costs);
  fill_from(runs, true, experts);
  std::stable_sort(costs.buckets.begin(), costs.buckets.end(),
                   [](const GradientBucket& a, const GradientBucket& b) { return a.remaining > b.remaining; });
}

}  // namespace flopcast
