#include "sim/schedule/communication/transfer.hpp"

#include <cstddef>

namespace flopcast {

Cell StageTransfer::send() const {
  return communication_cell(is_forward() ? CellKind::kSendForward : CellKind::kSendBackward, from_stage, microbatch);
}

Cell StageTransfer::receive() const {
  return communication_cell(is_forward() ? CellKind::kReceiveForward : CellKind::kReceiveBackward, to_stage,
                            microbatch);
}

TransferMap::TransferMap(const std::vector<Chain>& chains, const std::vector<int>& rank_of_stage)
    : rank_of_stage_(rank_of_stage), chain_of_stage_(rank_of_stage.size(), -1) {
  for (std::size_t chain = 0; chain < chains.size(); ++chain) {
    for (int stage = chains[chain].first_stage; stage <= chains[chain].last_stage; ++stage) {
      chain_of_stage_[static_cast<std::size_t>(stage)] = static_cast<int>(chain);
    }
  }
}

std::optional<StageTransfer> TransferMap::between(int from_stage, int to_stage, std::uint32_t microbatch) const {
  const auto stages = static_cast<int>(chain_of_stage_.size());
  if (from_stage < 0 || to_stage < 0 || from_stage >= stages || to_stage >= stages) return std::nullopt;
  const bool same_chain =
      chain_of_stage_[static_cast<std::size_t>(from_stage)] == chain_of_stage_[static_cast<std::size_t>(to_stage)];
  if (!same_chain) return std::nullopt;
  return StageTransfer{.from_stage = from_stage, .to_stage = to_stage, .microbatch = microbatch};
}

std::optional<StageTransfer> TransferMap::produced_by(const Action& action) const {
  if (action.kind == ActionKind::kWeightGradient) return std::nullopt;
  const int step = action.kind == ActionKind::kForward ? 1 : -1;
  return between(action.stage, action.stage + step, action.microbatch);
}

std::optional<StageTransfer> TransferMap::needed_by(const Action& action) const {
  if (action.kind == ActionKind::kWeightGradient) return std::nullopt;
  const int step = action.kind == ActionKind::kForward ? 1 : -1;
  return between(action.stage - step, action.stage, action.microbatch);
}

std::optional<StageTransfer> TransferMap::of(const Cell& cell) const {
  const int stage = cell.action.stage;
  const bool forward = cell.kind == CellKind::kSendForward || cell.kind == CellKind::kReceiveForward;
  const int step = forward ? 1 : -1;
  if (is_send(cell.kind)) return between(stage, stage + step, cell.action.microbatch);
  if (is_receive(cell.kind)) return between(stage - step, stage, cell.action.microbatch);
  return std::nullopt;
}

bool TransferMap::crosses_ranks(const StageTransfer& transfer) const {
  return sender(transfer) != receiver(transfer);
}

TransferFlags::TransferFlags(const std::vector<std::size_t>& microbatches) {
  std::size_t count = 0;
  for (const std::size_t of_stage : microbatches) {
    offset_.push_back(count);
    count += 2 * of_stage;
  }
  flags_.assign(count, false);
}

std::vector<bool>::reference TransferFlags::operator[](const StageTransfer& transfer) {
  const std::size_t stage = static_cast<std::size_t>(transfer.to_stage);
  return flags_[offset_[stage] + 2 * std::size_t{transfer.microbatch} + (transfer.is_forward() ? 0 : 1)];
}

}  // namespace flopcast
