#include "cli/order_options.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/terminal.hpp"
#include "cli/valid_schedule.hpp"
#include "model/error/error.hpp"
#include "sim/cells/check.hpp"
#include "sim/cells/communication.hpp"
#include "sim/cells/csv.hpp"

namespace flopcast {

namespace {

std::vector<std::vector<std::string>> texts_of(const CellProgram& program) {
  std::vector<std::vector<std::string>> rows;
  for (const std::vector<Cell>& cells : program.ranks) {
    std::vector<std::string> texts;
    texts.reserve(cells.size());
    for (const Cell& cell : cells) texts.push_back(to_string(cell));
    rows.push_back(std::move(texts));
  }
  return rows;
}

std::string listing_of(const CellProgram& program, Format format) {
  if (format == Format::kCsv) return write_csv(program);
  const auto rows = texts_of(program);
  if (format == Format::kJson) {
    nlohmann::ordered_json json = {
        {"schedule", program.schedule}, {"ranks", rows}, {"rank_of_stage", program.rank_of_stage}};
    if (!program.replicas_of_stage.empty()) json["replicas_of_stage"] = program.replicas_of_stage;
    return json.dump(2);
  }
  Table table;
  table.columns = {number_column("rank"), text_column("actions")};
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    table.rows.push_back({fmt::format("{}", rank), fmt::format("{}", fmt::join(rows[rank], " "))});
  }
  return write_table(table, format);
}

}  // namespace

void OrderOptions::add_to(CommandLine& command_line) {
  command_line.begin_group("Order");
  command_line.add_flag("--with-comm", with_communication_,
                        "with SEND, RECV, UNSHARD, RESHARD and REDUCE_GRAD, as PyTorch lowers it");
  command_line.add_flag("--no-sharding", no_sharding_, "without UNSHARD and RESHARD: every rank keeps its weights");
  command_line.add_flag("--defer-recv", defer_receives_, "receives right before their use, as PyTorch defers them");
  command_line.add_flag("--merge-bw", merge_backward_, "an I followed by its W becomes B");
}

std::string OrderOptions::listing(const Program& program, Format format) const {
  for (const auto& [given, flag] : {std::pair(defer_receives_, "--defer-recv"), {no_sharding_, "--no-sharding"}}) {
    if (given && !with_communication_)
      throw ConfigError({flag, "changes communications only", "", "give --with-comm too"});
  }
  CellProgram order = as_cells(program);
  if (merge_backward_) merge_backward(order);
  if (!with_communication_) return listing_of(order, format);
  if (!program.replicas_of_stage.empty()) {
    throw ConfigError({"--with-comm", "torch, whose communications these are, has no replicated stages", "",
                       "leave out --with-comm or the replicas"});
  }
  const Program compute = compute_of(order);
  require_valid(compute);
  const CellProgram lowered =
      add_communication(compute, {.unshard_reshard = !no_sharding_, .defer_receives = defer_receives_});
  if (const auto mismatch = find_transfer_mismatch(lowered)) {
    warn(
        render_fault(*mismatch) +
        "; a transport that runs them in order, as NCCL does, hangs or swaps tensors. Without --defer-recv they agree");
  }
  return listing_of(lowered, format);
}

}  // namespace flopcast
