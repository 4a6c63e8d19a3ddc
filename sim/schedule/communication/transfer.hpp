#pragma once

#include <optional>
#include <vector>

#include "sim/schedule/communication/cell.hpp"
#include "sim/schedule/program.hpp"

namespace flopcast {

/// What flows from one stage to its neighbour for one microbatch: an activation forward, a gradient backward.
struct StageTransfer {
  int from_stage = 0;
  int to_stage = 0;
  std::uint32_t microbatch = 0;

  bool is_forward() const { return to_stage > from_stage; }
  Cell send() const;
  Cell receive() const;
  friend bool operator==(const StageTransfer& a, const StageTransfer& b) {
    return a.from_stage == b.from_stage && a.to_stage == b.to_stage && a.microbatch == b.microbatch;
  }
};

/// Which transfers a set of chains has on given ranks.
class TransferMap {
 public:
  TransferMap(const std::vector<Chain>& chains, const std::vector<int>& rank_of_stage);

  /// What the action produces for another stage; nothing at the end of a chain and for W.
  std::optional<StageTransfer> produced_by(const Action& action) const;
  /// What the action needs from another stage; nothing at the end of a chain and for W.
  std::optional<StageTransfer> needed_by(const Action& action) const;
  /// The transfer of a send or receive cell; nothing when its stage has no such neighbour.
  std::optional<StageTransfer> of(const Cell& cell) const;
  /// Whether the two stages are on different ranks; otherwise nothing is sent.
  bool crosses_ranks(const StageTransfer& transfer) const;
  int rank_of(int stage) const { return rank_of_stage_[static_cast<std::size_t>(stage)]; }
  int sender(const StageTransfer& transfer) const { return rank_of(transfer.from_stage); }
  int receiver(const StageTransfer& transfer) const { return rank_of(transfer.to_stage); }

 private:
  std::optional<StageTransfer> between(int from_stage, int to_stage, std::uint32_t microbatch) const;

  const std::vector<int>& rank_of_stage_;
  std::vector<int> chain_of_stage_;
};

/// A flag for each transfer that a program can have, all false at first.
class TransferFlags {
 public:
  /// `microbatches` by stage.
  explicit TransferFlags(const std::vector<std::size_t>& microbatches);
  std::vector<bool>::reference operator[](const StageTransfer& transfer);

 private:
  std::vector<std::size_t> offset_;  // by receiving stage
  std::vector<bool> flags_;
};

}  // namespace flopcast
