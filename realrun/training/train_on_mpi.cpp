#include "realrun/training/train_on_mpi.hpp"

#include <utility>

#include "model/error/error.hpp"
#include "realrun/compute/host_clock.hpp"
#include "realrun/training/result_bytes.hpp"

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

// The last step of everybody, at rank 0.
void collect_step(MpiTransport& transport, const RankResult& own, std::vector<RankResult>& results) {
  RankResult latest;
  latest.rank = own.rank;
  latest.pipeline_rank = own.pipeline_rank;
  latest.data_index = own.data_index;
  latest.tensor_index = own.tensor_index;
  latest.steps = {own.steps.back()};
  const std::vector<Ticks> offsets = transport.clock_offsets(host_clock);
  const std::vector<std::vector<std::byte>> all = transport.gather(to_bytes(latest));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    RankResult theirs = result_from_bytes(all[rank]);
    shift(theirs.steps.back().record, offsets[rank]);
    std::vector<StepRecord> steps = std::move(results[rank].steps);
    steps.push_back(std::move(theirs.steps.back()));
    results[rank] = std::move(theirs);
    results[rank].steps = std::move(steps);
  }
}

void collect_rest(MpiTransport& transport, RankResult own, std::vector<RankResult>& results) {
  own.steps.clear();
  const std::vector<std::vector<std::byte>> all = transport.gather(to_bytes(own));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    RankResult theirs = result_from_bytes(all[rank]);
    theirs.steps = std::move(results[rank].steps);
    results[rank] = std::move(theirs);
  }
}

}  // namespace

void train_on_mpi(Processes& processes, const TrainingPlan& plan, const MpiOptions& options,
                  std::vector<RankResult>& results, const Progress& progress) {
  check_plan(plan);
  FLOPCAST_CHECK(processes.count() == plan.ranks());
  results.clear();
  if (processes.rank() == 0) results.resize(static_cast<std::size_t>(plan.ranks()));
  run_mpi(processes, options, [&](MpiTransport& transport) {
    RankResult own;
    train_rank(plan, transport, own, [&](const RankResult& result) {
      collect_step(transport, result, results);
      if (progress && transport.rank() == 0) progress(results);
    });
    collect_rest(transport, std::move(own), results);
  });
}

}  // namespace flopcast::realrun
