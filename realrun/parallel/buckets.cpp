#include "realrun/parallel/buckets.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace flopcast::realrun {

int SharedParameters::set_index(const std::string& name) const {
  const auto found = set_of.find(name);
  return found == set_of.end() ? -1 : found->second;
}

SharedParameters find_shared_parameters(const std::vector<StageLayout>& layouts) {
  std::map<std::string, std::vector<int>> holders;
  for (std::size_t stage = 0; stage < layouts.size(); ++stage) {
    for (const ParameterList& unit : layouts[stage].units) {
      for (const Parameter& parameter : unit.parameters()) holders[parameter.name].push_back(static_cast<int>(stage));
    }
  }
  SharedParameters shared;
  std::map<std::vector<int>, int> index_of;
  for (const auto& [name, stages] : holders) {
    if (stages.size() < 2) continue;
    const auto [entry, is_new] = index_of.emplace(stages, static_cast<int>(shared.sets.size()));
    if (is_new) shared.sets.push_back({stages});
    shared.set_of[name] = entry->second;
  }
  return shared;
}

std::vector<std::size_t> unit_offsets(const StageLayout& layout) {
  std::vector<std::size_t> offsets = {0};
  for (const ParameterList& unit : layout.units) offsets.push_back(offsets.back() + unit.size());
  return offsets;
}

std::vector<std::size_t> gradient_offsets(const StageLayout& layout) {
  std::vector<std::size_t> offsets = {0};
  for (const ParameterList& unit : layout.units) offsets.push_back(offsets.back() + unit.trained_size());
  return offsets;
}

std::vector<Bucket> make_buckets(const StageLayout& layout, const SharedParameters& shared, const BucketRules& rules) {
  const std::vector<std::size_t> starts = unit_offsets(layout);
  const bool within_units = rules.within_units || gradient_offsets(layout).back() != starts.back();
  std::vector<Bucket> buckets;
  Bucket open;
  std::size_t end = starts.back();  // of the open bucket
  const auto close = [&] {
    if (open.count > 0) buckets.push_back(open);
    open = {};
  };
  const auto limit_of = [&] { return buckets.empty() && open.shared_set < 0 ? rules.first_bytes : rules.bytes; };
  for (std::size_t unit = layout.units.size(); unit-- > 0;) {
    const std::vector<Parameter>& parameters = layout.units[unit].parameters();
    for (std::size_t index = parameters.size(); index-- > 0;) {
      const int set = shared.set_index(parameters[index].name);
      const bool other_unit = within_units && open.first_unit != static_cast<int>(unit);
      const bool of_experts = parameters[index].of_experts;
      const bool frozen = parameters[index].frozen;
      if (frozen && !rules.of_frozen) continue;
      const bool others = open.shared_set != set || open.of_experts != of_experts || open.frozen != frozen;
      if (open.count > 0 && (others || other_unit)) close();
      if (open.count == 0)
        end = index + 1 < parameters.size() ? starts[unit] + parameters[index + 1].offset : starts[unit + 1];
      open.first_unit = static_cast<int>(unit);
      open.shared_set = set;
      open.of_experts = of_experts;
      open.frozen = frozen;
      open.offset = starts[unit] + parameters[index].offset;
      open.count = end - open.offset;
      const std::size_t limit = limit_of();
      if (limit > 0 && open.count * sizeof(float) >= limit) close();
    }
  }
  close();
  return buckets;
}

namespace {

std::size_t bytes_of(const std::vector<Buffer>& pieces) {
  std::size_t bytes = 0;
  for (const Buffer& piece : pieces) bytes += piece.bytes();
  return bytes;
}

}  // namespace

Packed::Packed(ComputeDevice& device, std::vector<Buffer> pieces) : pieces_(std::move(pieces)) {
  whole_ = pieces_.size() == 1 ? pieces_.front() : device.allocate(bytes_of(pieces_));
  std::size_t offset = 0;
  for (const Buffer& piece : pieces_) {
    if (pieces_.size() > 1) device.copy(piece, whole_.slice(offset, piece.bytes()));
    offset += piece.bytes();
  }
}

void Packed::unpack(ComputeDevice& device) const {
  std::size_t offset = 0;
  for (const Buffer& piece : pieces_) {
    if (pieces_.size() > 1) device.copy(whole_.slice(offset, piece.bytes()), piece);
    offset += piece.bytes();
  }
}

CompressedSum::CompressedSum(const CompressionContext& context, Buffer gradients, const Buffer& residual)
    : context_(context), gradients_(std::move(gradients)) {
  const auto replicas = static_cast<std::size_t>(context_.group.size());
  const std::size_t count = gradients_.bytes() / sizeof(float);
  part_values_ = by_parts() ? (count + replicas - 1) / replicas : count;
  slot_ = context_.codec.message_bytes(part_values_);
  messages_ = context_.device.allocate(slot_ * replicas);
  Collective exchange{.output = messages_, .element = Element::kByte};
  if (by_parts()) {
    exchange.kind = CollectiveKind::kAllToAll;
    exchange.input = context_.device.allocate(slot_ * replicas);
    for (int index = 0; index < context_.group.size(); ++index) {
      const Buffer values = part(gradients_, index);
      context_.codec.encode(values, residual, message(exchange.input, index, values));
    }
  } else {
    exchange.kind = CollectiveKind::kAllGather;
    exchange.input = context_.device.allocate(slot_);
    context_.codec.encode(gradients_, residual, exchange.input);
  }
  request_ = context_.transport.start(context_.group, exchange);
}

// Parts beyond the end of the values are empty.
Buffer CompressedSum::part(const Buffer& values, int index) const {
  if (!by_parts()) return values;
  const std::size_t bytes = part_values_ * sizeof(float);
  const std::size_t first = std::min(values.bytes(), static_cast<std::size_t>(index) * bytes);
  return values.slice(first, std::min(bytes, values.bytes() - first));
}

Buffer CompressedSum::message(const Buffer& messages, int index, const Buffer& values) const {
  return messages.slice(static_cast<std::size_t>(index) * slot_,
                        context_.codec.message_bytes(values.bytes() / sizeof(float)));
}

void CompressedSum::proceed() {
  context_.transport.wait(request_);
  exchanges_.push_back(request_->interval());
  const Buffer own = part(gradients_, context_.group.index);
  context_.device.zero(own);
  for (int index = 0; index < context_.group.size(); ++index) {
    context_.codec.add_decoded(message(messages_, index, own), own);
  }
  if (!by_parts()) return;
  const Buffer sum = context_.device.allocate(slot_);
  context_.codec.encode(own, {}, sum.slice(0, context_.codec.message_bytes(own.bytes() / sizeof(float))));
  request_ = context_.transport.start(
      context_.group,
      {.kind = CollectiveKind::kAllGather, .input = sum, .output = messages_, .element = Element::kByte});
}

void CompressedSum::finish() {
  if (!by_parts()) return;
  context_.transport.wait(request_);
  exchanges_.push_back(request_->interval());
  context_.device.zero(gradients_);
  for (int index = 0; index < context_.group.size(); ++index) {
    const Buffer values = part(gradients_, index);
    context_.codec.add_decoded(message(messages_, index, values), values);
  }
}

namespace {

bool is_whole(const Shard& shard) {
  return shard.rows == shard.whole_rows && shard.columns == shard.whole_columns;
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
    Running running{Packed(context_.device, portion.pieces), nullptr};
    running.sum = std::make_unique<CompressedSum>(context_, running.packed.whole(), portion.residual);
    running_.push_back(std::move(running));
  }
}

std::vector<Interval> CompressedBuckets::finish() {
  for (const Running& running : running_) running.sum->proceed();
  std::vector<Interval> ran;
  for (const Running& running : running_) {
    running.sum->finish();
    ran.insert(ran.end(), running.sum->exchanges().begin(), running.sum->exchanges().end());
    running.packed.unpack(context_.device);
  }
  running_.clear();
  return ran;
}

LowRankBuckets::LowRankBuckets(const LowRankContext& context, const StageLayout& layout,
                               const std::vector<Bucket>& buckets, const Buffer& gradients)
    : context_(context) {
  for (const Bucket& bucket : buckets) sums_.push_back(sum_of(bucket, layout, gradients));
}

LowRankBuckets::Sum LowRankBuckets::sum_of(const Bucket& bucket, const StageLayout& layout,
                                           const Buffer& gradients) const {
  Sum sum;
  const std::vector<std::size_t> starts = unit_offsets(layout);
  std::size_t first = 0;
  std::size_t second = 0;
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    for (const Parameter& parameter : layout.units[unit].parameters()) {
      const std::size_t start = starts[unit] + parameter.offset;
      if (start < bucket.offset || start >= bucket.offset + bucket.count) continue;
      const Buffer gradient = gradients.slice(start * sizeof(float), parameter.shard.count() * sizeof(float));
      const LowRankProducts::Shape shape{parameter.shard.rows, parameter.shard.columns,
                                         static_cast<std::size_t>(context_.rank)};
      if (parameter.multiplies && shape.left_bytes() + shape.right_bytes() < gradient.bytes()) {
        sum.matrices.push_back({.shape = shape, .gradient = gradient, .residual = {}, .left = {}, .right = {}});
        first += shape.left_bytes();
        second += shape.right_bytes();
      } else {
        sum.plain.push_back({gradient, {}});
        first += gradient.bytes();
      }
    }
  }
  sum.first = context_.device.allocate(first);
  sum.second = context_.device.allocate(second);
  std::size_t left = 0;
  std::size_t right = 0;
  for (Matrix& matrix : sum.matrices) {
    matrix.residual = context_.device.allocate(matrix.gradient.bytes());
    matrix.left = sum.first.slice(left, matrix.shape.left_bytes());
    matrix.right = sum.second.slice(right, matrix.shape.right_bytes());
    left += matrix.left.bytes();
    right += matrix.right.bytes();
    context_.products.start(matrix.shape, matrix.right);
  }
  for (Plain& plain : sum.plain) {
    plain.sent = sum.first.slice(left, plain.gradient.bytes());
    left += plain.sent.bytes();
  }
  return sum;
}

Request LowRankBuckets::start(const Buffer& values) {
  return context_.transport.start(context_.group,
                                  {.kind = CollectiveKind::kAllReduce, .input = values, .output = values});
}

void LowRankBuckets::begin(std::size_t bucket) {
  Sum& sum = sums_[bucket];
  for (const Matrix& matrix : sum.matrices) {
    context_.products.project(matrix.shape, matrix.gradient, matrix.residual, matrix.right, matrix.left);
  }
  for (const Plain& plain : sum.plain) context_.device.copy(plain.gradient, plain.sent);
  sum.request = start(sum.first);
  running_.push_back(bucket);
}

std::vector<Interval> LowRankBuckets::finish() {
  std::vector<Interval> ran;
  const std::vector<std::size_t> begun = std::exchange(running_, {});
  const auto await = [&](Sum& sum) {
    context_.transport.wait(sum.request);
    ran.push_back(sum.request->interval());
    sum.request = nullptr;
  };
  for (const std::size_t bucket : begun) {
    Sum& sum = sums_[bucket];
    await(sum);
    for (const Matrix& matrix : sum.matrices) {
      context_.products.fit(matrix.shape, matrix.left, matrix.residual, matrix.right);
    }
    for (const Plain& plain : sum.plain) context_.device.copy(plain.sent, plain.gradient);
    if (!sum.matrices.empty()) sum.request = start(sum.second);
  }
  for (const std::size_t bucket : begun) {
    Sum& sum = sums_[bucket];
    if (sum.request == nullptr) continue;
    await(sum);
    for (const Matrix& matrix : sum.matrices) {
      context_.products.rebuild(matrix.shape, matrix.left, matrix.right, matrix.gradient);
    }
  }
  return ran;
}

}  // namespace flopcast::realrun
