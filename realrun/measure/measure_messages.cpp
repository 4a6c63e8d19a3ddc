#include "realrun/measure/measure_messages.hpp"

#include <algorithm>

namespace flopcast {

namespace {

int repetitions_of(std::size_t bytes, bool quick) {
  constexpr std::size_t kKib = 1024;
  const int usual = bytes <= 4 * kKib ? 200 : bytes <= 256 * kKib ? 60 : bytes <= 4 * kKib * kKib ? 20 : 9;
  constexpr int kFewest = 5;
  return quick ? std::max(kFewest, usual / 4) : usual;
}

double ping_pong(MeasuredRank& rank, const Clock& clock, std::size_t bytes) {
  const double start = clock.wall();
  if (rank.rank() == 0) {
    rank.send(1, bytes);
    rank.receive(1, bytes);
  } else if (rank.rank() == 1) {
    rank.receive(0, bytes);
    rank.send(0, bytes);
  }
  return 0.5 * (clock.wall() - start);
}

double from_barrier(MeasuredRank& rank, const Clock& clock, SampleKind kind, std::size_t bytes) {
  rank.barrier();
  const double start = clock.wall();
  rank.collective(kind, bytes);
  return clock.wall() - start;
}

}  // namespace

Sample measure_message(const SampleKey& key, const RunRanks& run, const Clock& clock, bool quick) {
  const std::size_t bytes = static_cast<std::size_t>(*key.bytes);
  const int repetitions = repetitions_of(bytes, quick);
  constexpr int kWarmUp = 3;
  Sample sample;
  sample.key = key;
  run(key.ranks, bytes, [&](MeasuredRank& rank) {
    for (int round = -kWarmUp; round < repetitions; ++round) {
      const bool message = key.kind == SampleKind::kPointToPoint;
      const double own = message ? ping_pong(rank, clock, bytes) : from_barrier(rank, clock, key.kind, bytes);
      const double time = message ? own : rank.largest(own);
      if (rank.rank() == 0 && round >= 0) sample.seconds.push_back(time);
    }
  });
  return sample;
}

}  // namespace flopcast
