#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "sim/schedule/communication/check.hpp"
#include "sim/schedule/communication/checks.hpp"
#include "sim/schedule/communication/transfer.hpp"

namespace flopcast {

namespace {

struct ListedTransfer {
  StageTransfer transfer;
  std::size_t step = 0;
};

// By (rank, peer): the transfers between the two in the order in which the rank lists them.
using TransferLists = std::map<std::pair<int, int>, std::vector<ListedTransfer>>;

TransferLists list_transfers(const LoweredProgram& program, const TransferMap& transfers) {
  TransferLists lists;
  for (int rank = 0; rank < program.rank_count(); ++rank) {
    const std::vector<Cell>& cells = program.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t step = 0; step < cells.size(); ++step) {
      const auto transfer = transfers.of(cells[step]);
      if (!transfer) continue;
      const int peer = is_send(cells[step].kind) ? transfers.receiver(*transfer) : transfers.sender(*transfer);
      lists[{rank, peer}].push_back({*transfer, step});
    }
  }
  return lists;
}

}  // namespace

std::optional<ScheduleFault> find_transfer_mismatch(const LoweredProgram& program) {
  const TransferMap transfers(program.chains, program.rank_of_stage);
  const TransferLists lists = list_transfers(program, transfers);
  for (const auto& [ranks, mine] : lists) {
    const auto [rank, peer] = ranks;
    if (rank > peer) continue;
    const std::vector<ListedTransfer>& theirs = lists.at({peer, rank});
    const auto [here, there] =
        std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                      [](const ListedTransfer& a, const ListedTransfer& b) { return a.transfer == b.transfer; });
    if (here == mine.end() || there == theirs.end()) continue;
    const auto peer_step = static_cast<int>(there->step);
    ScheduleFault fault = fault_at_cell(program, rank, here->step, "");
    fault.reason = fmt::format(
        "ranks {} and {} list their transfers in different orders: next is {} here, {} on rank {} at step {}", rank,
        peer, fault.cell, to_string(program.ranks[static_cast<std::size_t>(peer)][there->step]), peer, peer_step);
    fault.cycle = {{.rank = rank, .step = *fault.step}, {.rank = peer, .step = peer_step}};
    return fault;
  }
  return std::nullopt;
}

}  // namespace flopcast
