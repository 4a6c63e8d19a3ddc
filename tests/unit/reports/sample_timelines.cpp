#include "tests/unit/reports/sample_timelines.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <tuple>

namespace flopcast::testing {
namespace {

struct Job {
  int stage = 0;
  char letter = 'F';
  int microbatch = 0;
};

using Done = std::map<std::tuple<int, char, int>, Ticks>;  // (stage, F or B, microbatch) -> end

std::vector<std::vector<Job>> parse(const std::vector<std::string>& orders) {
  std::vector<std::vector<Job>> jobs;
  for (const std::string& order : orders) {
    std::vector<Job>& rank = jobs.emplace_back();
    std::istringstream in(order);
    Job job;
    while (in >> job.stage >> job.letter >> job.microbatch) rank.push_back(job);
  }
  return jobs;
}

SpanKind kind_of(char letter) {
  switch (letter) {
    case 'F':
      return SpanKind::kForward;
    case 'B':
      return SpanKind::kBackward;
    case 'I':
      return SpanKind::kInputGradient;
    default:
      return SpanKind::kWeightGradient;
  }
}

Ticks duration_of(char letter, const Times& times) {
  switch (letter) {
    case 'F':
      return times.forward;
    case 'B':
      return times.backward;
    case 'I':
      return times.input_gradient;
    default:
      return times.weight_gradient;
  }
}

Action action_of(SpanKind kind, int stage, int microbatch) {
  return {static_cast<std::uint32_t>(microbatch), static_cast<std::uint16_t>(stage), static_cast<ActionKind>(kind),
          false};
}

/// Source of a job's input: stage and family; none for the first forward and for weight gradients.
std::optional<std::tuple<int, char, int>> input_of(const Job& job, int last_stage) {
  if (job.letter == 'W') return std::nullopt;
  if (job.letter == 'F') {
    if (job.stage == 0) return std::nullopt;
    return std::tuple{job.stage - 1, 'F', job.microbatch};
  }
  if (job.stage == last_stage) return std::tuple{job.stage, 'F', job.microbatch};
  return std::tuple{job.stage + 1, 'B', job.microbatch};
}

class Layout {
 public:
  Layout(const std::vector<std::vector<Job>>& jobs, const Times& times) : times_(times), free_(jobs.size(), 0) {
    timeline_.units_per_tick = 1e-6;
    timeline_.ranks.resize(jobs.size());
    for (const auto& rank : jobs) {
      for (const Job& job : rank) last_stage_ = std::max(last_stage_, job.stage);
    }
  }

  bool try_start(std::size_t rank, const Job& job) {
    Ticks ready = 0;
    const auto input = input_of(job, last_stage_);
    if (input) {
      const auto found = done_.find(*input);
      if (found == done_.end()) return false;
      const int from_stage = std::get<0>(*input);
      const std::size_t from = static_cast<std::size_t>(from_stage) % free_.size();
      ready = found->second + (from != rank ? times_.transfer : 0);
      if (from != rank) add_transfer(found->second, ready, *input, job.stage, from, rank);
    }
    const Ticks start = std::max(ready, free_[rank]);
    const Ticks end = start + duration_of(job.letter, times_);
    timeline_.ranks[rank].push_back(compute_span(kind_of(job.letter), job.stage, job.microbatch, start, end));
    free_[rank] = end;
    const char family = job.letter == 'I' ? 'B' : job.letter;
    done_[{job.stage, family, job.microbatch}] = end;
    split_ = split_ || job.letter == 'I';
    return true;
  }

  Timeline take() {
    for (Transfer& transfer : timeline_.transfers) {
      if (split_ && transfer.produced_by.kind == ActionKind::kBackward) {
        transfer.produced_by.kind = ActionKind::kInputGradient;
      }
    }
    std::stable_sort(timeline_.transfers.begin(), timeline_.transfers.end(),
                     [](const Transfer& a, const Transfer& b) { return a.start < b.start; });
    return std::move(timeline_);
  }

 private:
  void add_transfer(Ticks start, Ticks end, const std::tuple<int, char, int>& input, int to_stage, std::size_t from,
                    std::size_t to) {
    const auto [stage, family, microbatch] = input;
    const SpanKind kind = kind_of(family);
    timeline_.transfers.push_back({start, end, action_of(kind, stage, microbatch), static_cast<std::uint16_t>(to_stage),
                                   static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)});
  }

  Times times_;
  std::vector<Ticks> free_;
  Done done_;
  Timeline timeline_;
  int last_stage_ = 0;
  bool split_ = false;
};

void append(std::string& order, int stage, char letter, int microbatch) {
  order += std::to_string(stage) + letter + std::to_string(microbatch) + " ";
}

}  // namespace

Timeline lay_out(const std::string& title, const std::vector<std::string>& orders, const Times& times) {
  const auto jobs = parse(orders);
  Layout layout(jobs, times);
  std::vector<std::size_t> next(jobs.size(), 0);
  bool progress = true;
  while (progress) {
    progress = false;
    for (std::size_t rank = 0; rank < jobs.size(); ++rank) {
      while (next[rank] < jobs[rank].size() && layout.try_start(rank, jobs[rank][next[rank]])) {
        ++next[rank];
        progress = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < jobs.size(); ++rank) {
    if (next[rank] != jobs[rank].size()) throw std::logic_error("the sample orders deadlock");
  }
  Timeline timeline = layout.take();
  timeline.title = title;
  return timeline;
}

std::vector<std::string> gpipe_orders(int ranks, int microbatches) {
  std::vector<std::string> orders(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::string& order = orders[static_cast<std::size_t>(rank)];
    for (int m = 0; m < microbatches; ++m) append(order, rank, 'F', m);
    for (int m = 0; m < microbatches; ++m) append(order, rank, 'B', m);
  }
  return orders;
}

std::vector<std::string> one_f_one_b_orders(int ranks, int microbatches) {
  return interleaved_orders(ranks, 1, microbatches);
}

std::vector<std::string> interleaved_orders(int ranks, int chunks, int microbatches) {
  std::vector<std::string> orders(static_cast<std::size_t>(ranks));
  const int total = chunks * microbatches;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto add = [&](int index, bool forward) {
      // Without interleaving, microbatches simply follow one another.
      const int group = chunks == 1 ? index : index / (ranks * chunks) * ranks + index % ranks;
      const int position = chunks == 1 ? 0 : index % (ranks * chunks) / ranks;
      const int chunk = forward ? position : chunks - 1 - position;
      append(orders[static_cast<std::size_t>(rank)], chunk * ranks + rank, forward ? 'F' : 'B', group);
    };
    const int ahead = chunks == 1 ? ranks - 1 - rank : 2 * (ranks - 1 - rank) + (chunks - 1) * ranks;
    const int warm_up = std::min(total, ahead);
    for (int i = 0; i < warm_up; ++i) add(i, true);
    for (int i = warm_up; i < total; ++i) {
      add(i, true);
      add(i - warm_up, false);
    }
    for (int i = total - warm_up; i < total; ++i) add(i, false);
  }
  return orders;
}

Timeline in_seconds(Timeline timeline, Ticks unit) {
  const auto scaled = [unit](Ticks ticks) { return ticks / 1'000'000 * unit + ticks % 1'000'000 * unit / 1'000'000; };
  for (auto& spans : timeline.ranks) {
    for (Span& span : spans) {
      span.start = scaled(span.start);
      span.end = scaled(span.end);
    }
  }
  for (Transfer& transfer : timeline.transfers) {
    transfer.start = scaled(transfer.start);
    transfer.end = scaled(transfer.end);
  }
  timeline.time_unit = "s";
  timeline.units_per_tick = 1e-12;
  return timeline;
}

Span compute_span(SpanKind kind, int stage, int microbatch, Ticks start, Ticks end) {
  return {start, end, action_of(kind, stage, microbatch), kind, StreamKind::kCompute};
}

Span flush_span(SpanKind kind, StreamKind stream, Ticks start, Ticks end) {
  return {start, end, {}, kind, stream};
}

}  // namespace flopcast::testing
