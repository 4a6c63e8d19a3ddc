#include <utility>

#include "base/text/error.hpp"
#include "realrun/device/device.hpp"
#include "realrun/training/train.hpp"
#include "realrun/transport/mpi/mpi_transport.hpp"

namespace flopcast::realrun {

namespace {

void shift(RankRecord& record, Ticks offset) {
  for (Span& span : record.spans) {
    span.start += offset;
    span.end += offset;
  }
  for (std::vector<TransferEnd>* ends : {&record.sent, &record.received}) {
    for (TransferEnd& end : *ends) end.at += offset;
  }
}

// Adds each rank's last step at rank 0, and replaces its other results.
void collect(MpiTransport& transport, const RankResult& own, std::vector<RankResult>& results) {
  const std::vector<Ticks> offsets = transport.clock_offsets(host_clock);
  const std::vector<std::vector<std::byte>> all = transport.gather(to_bytes(own.latest()));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    RankResult theirs = result_from_bytes(all[rank]);
    shift(theirs.steps.back().record, offsets[rank]);
    results[rank].add(std::move(theirs));
  }
}

}  // namespace

void train_on_mpi(Processes& processes, const TrainingPlan& plan, const MpiOptions& options,
                  std::vector<RankResult>& results, const std::function<void()>& progress) {
  check_plan(plan);
  FLOPCAST_CHECK(processes.count() == plan.ranks());
  const bool is_first = processes.rank() == 0;
  results.assign(is_first ? static_cast<std::size_t>(plan.ranks()) : 0U, {});
  run_mpi(processes, options, [&](MpiTransport& transport) {
    RankResult own;
    train_rank(plan, transport, own, [&](RankTransport& /*the same*/) {
      collect(transport, own, results);
      if (progress && is_first) progress();
    });
    collect(transport, own, results);
  });
}

}  // namespace flopcast::realrun
