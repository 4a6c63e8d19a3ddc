#include "realrun/parallel/compressed_buckets.hpp"

#include <utility>

namespace flopcast::realrun {

namespace {

bool is_whole(const Shard& shard) {
  return shard.rows == shard.whole_rows && shard.columns == shard.whole_columns;
}

std::size_t bytes_of(const std::vector<Buffer>& pieces) {
  std::size_t bytes = 0;
  for (const Buffer& piece : pieces) bytes += piece.bytes();
  return bytes;
}

}  // namespace

CompressedBuckets::CompressedBuckets(const CompressionContext& context, const StageLayout& layout,
                                     const std::vector<Bucket>& buckets, Buffer gradients, int tensor_ranks)
    : context_(context), gradients_(std::move(gradients)) {
  for (const Bucket& bucket : buckets) portions_.push_back(portions_of(bucket, layout, tensor_ranks));
}

std::vector<CompressedBuckets::Portion> CompressedBuckets::portions_of(const Bucket& bucket, const StageLayout& layout,
                                                                       int tensor_ranks) {
  Portion copied;
  Portion cut;
  if (tensor_ranks <= 1) {
    copied.pieces = {gradients_.slice(bucket.offset * sizeof(float), bucket.count * sizeof(float))};
  } else {
    const std::vector<std::size_t> starts = unit_offsets(layout);
    for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
      for (const Parameter& parameter : layout.units[unit].parameters()) {
        const std::size_t start = starts[unit] + parameter.offset;
        if (start < bucket.offset || start >= bucket.offset + bucket.count) continue;
        Portion& portion = is_whole(parameter.shard) ? copied : cut;
        portion.pieces.push_back(gradients_.slice(start * sizeof(float), parameter.shard.count() * sizeof(float)));
      }
    }
  }
  std::vector<Portion> portions;
  if (!copied.pieces.empty()) portions.push_back(std::move(copied));
  if (!cut.pieces.empty()) portions.push_back(std::move(cut));
  for (Portion& portion : portions) {
    if (context_.codec.keeps_residual()) portion.residual = context_.device.allocate(bytes_of(portion.pieces));
  }
  return portions;
}

void CompressedBuckets::begin(std::size_t bucket) {
  for (const Portion& portion : portions_[bucket]) {
    Running running;
    running.portion = &portion;
    running.packed = portion.pieces.front();
    if (portion.pieces.size() > 1) {
      running.packed = context_.device.allocate(bytes_of(portion.pieces));
      std::size_t offset = 0;
      for (const Buffer& piece : portion.pieces) {
        context_.device.copy(piece, running.packed.slice(offset, piece.bytes()));
        offset += piece.bytes();
      }
    }
    running.sum = std::make_unique<CompressedSum>(context_, running.packed, portion.residual);
    running_.push_back(std::move(running));
  }
}

std::vector<Interval> CompressedBuckets::finish() {
  for (const Running& running : running_) running.sum->proceed();
  std::vector<Interval> ran;
  for (const Running& running : running_) {
    running.sum->finish();
    ran.insert(ran.end(), running.sum->exchanges().begin(), running.sum->exchanges().end());
    if (running.portion->pieces.size() == 1) continue;
    std::size_t offset = 0;
    for (const Buffer& piece : running.portion->pieces) {
      context_.device.copy(running.packed.slice(offset, piece.bytes()), piece);
      offset += piece.bytes();
    }
  }
  running_.clear();
  return ran;
}

}  // namespace flopcast::realrun
