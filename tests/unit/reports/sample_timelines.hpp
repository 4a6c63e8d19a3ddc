#pragma once

#include <string>
#include <vector>

#include "sim/timeline.hpp"

namespace flopcast::testing {

struct Times {
  Ticks forward = 1'000'000;
  Ticks backward = 2'000'000;
  Ticks input_gradient = 1'000'000;
  Ticks weight_gradient = 1'000'000;
  Ticks transfer = 0;
};

/// Starts every action of the given orders ("0F0 0F1 0B0 …", one string per rank) as soon as its rank and its inputs
/// allow. Written only for these tests, so that drawings are checked without the engine. Stage s is on rank s % ranks;
/// ticks are millionths of an abstract unit.
Timeline lay_out(const std::string& title, const std::vector<std::string>& orders, const Times& times = {});

std::vector<std::string> gpipe_orders(int ranks, int microbatches);
std::vector<std::string> one_f_one_b_orders(int ranks, int microbatches);
/// Megatron's interleaving in groups of `ranks`; microbatches must be a multiple of ranks.
std::vector<std::string> interleaved_orders(int ranks, int chunks, int microbatches);

/// The same timeline as a job in seconds, in which an abstract unit lasts `unit` picoseconds.
Timeline in_seconds(Timeline timeline, Ticks unit);

Span compute_span(SpanKind kind, int stage, int microbatch, Ticks start, Ticks end);
Span flush_span(SpanKind kind, StreamKind stream, Ticks start, Ticks end);

}  // namespace flopcast::testing
