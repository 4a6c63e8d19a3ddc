// Lowered schedules, compared with those of torch.distributed.pipelining cell by cell. A few are part of the project.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/cells/cell.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/golden/pytorch_unit_steps.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/parse_csv.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

std::string joined(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t index = 0; index < cells.size(); ++index) line += (index == 0 ? "" : ",") + cells[index];
  return line + "\n";
}

// Ranks as an array of blank-separated strings, or as an object of arrays by rank.
std::string csv_of_ranks(const Json& ranks) {
  std::string csv;
  for (const Json& rank : ranks) {
    std::string line = rank.is_string() ? rank.get<std::string>() + "\n" : joined(rank.get<std::vector<std::string>>());
    for (char& character : line) character = character == ' ' ? ',' : character;
    csv += line;
  }
  return csv;
}

CellProgram read(const std::string& csv) {
  return parse_cell_csv(csv, "reference", {});
}

std::string fault_of(const CellProgram& program) {
  const auto fault = find_fault(program);
  return fault ? render_fault(*fault) : "";
}

class KeptLowering : public testing::TestWithParam<const char*> {};

TEST_P(KeptLowering, IsPyTorchs) {
  const auto folder = project_folder() / "tests/golden/lowered";
  const std::string name = GetParam();
  const Program compute = parse_csv(read_text(folder / (name + ".compute.csv")), name, {});
  const std::string comms = read_text(folder / (name + ".comms.csv"));
  EXPECT_EQ(write_csv(add_communication(compute, {})), comms);
  EXPECT_EQ(write_csv(read(comms)), comms);
  EXPECT_EQ(compute_of(read(comms)).ranks, compute.ranks);
  EXPECT_EQ(fault_of(read(comms)), "");
  EXPECT_FALSE(find_transfer_mismatch(read(comms)).has_value());
}

INSTANTIATE_TEST_SUITE_P(Files, KeptLowering,
                         testing::Values("bfs-p4-m4-v2", "dualpipev-p4-m8", "interleaved-p2-m4-v2",
                                         "interleaved-p2-m4-v4", "izb-p2-m2-v2"));

class TorchReference : public testing::Test {
 protected:
  Json load(const char* file) {
    const auto folder = reference_folder();
    if (!folder) return {};
    return Json::parse(read_text(*folder / "goldens" / file));
  }
};

TEST_F(TorchReference, LoweredOrders) {
  const Json reference = load("torch.json");
  if (reference.is_null()) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
  std::map<std::string, int> lowered;
  std::map<std::string, int> simulated;
  for (const Json& expected : reference.at("cases")) {
    const std::string schedule = expected.at("schedule").get<std::string>();
    SCOPED_TRACE(schedule + " p=" + expected.at("p").dump() + " m=" + expected.at("m").dump() +
                 " v=" + expected.at("v").dump());
    if (expected.contains("order_with_comms")) {
      const std::string comms = csv_of_ranks(expected.at("order_with_comms"));
      const Program compute = parse_csv(csv_of_ranks(expected.at("order")), "reference", {});
      const CellProgram ours = add_communication(compute, {});
      EXPECT_EQ(write_csv(ours), comms);
      EXPECT_EQ(fault_of(read(comms)), "");
      EXPECT_FALSE(find_transfer_mismatch(ours).has_value());
      ++lowered[schedule];
    }
    if (expected.contains("torch_simulated_steps")) {
      CellProgram transfers = as_cells(parse_csv(csv_of_ranks(expected.at("order")), "reference", {}));
      add_send_receive(transfers);
      EXPECT_EQ(longest_rank(in_unit_steps(transfers)), expected.at("torch_simulated_steps").get<int>());
      ++simulated[schedule];
    }
  }
  EXPECT_EQ(lowered, (std::map<std::string, int>{{"DualPipeV", 4},
                                                 {"Interleaved1F1B", 42},
                                                 {"InterleavedZeroBubble", 38},
                                                 {"LoopedBFS", 39},
                                                 {"ZBVZeroBubble", 20}}));
  EXPECT_EQ(simulated, (std::map<std::string, int>{{"GPipe", 19},
                                                   {"Interleaved1F1B", 42},
                                                   {"InterleavedZeroBubble", 38},
                                                   {"LoopedBFS", 39},
                                                   {"ZBVZeroBubble", 20}}));
}

TEST_F(TorchReference, SendReceiveAndDeferVectors) {
  const Json reference = load("torch_lowering.json");
  if (reference.is_null()) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
  int compared = 0;
  for (const Json& vector : reference.at("vectors")) {
    if (!vector.contains("add_send_recv")) continue;
    SCOPED_TRACE(vector.at("name").get<std::string>());
    CellProgram program = read(csv_of_ranks(vector.at("compute")));
    EXPECT_EQ(program.rank_of_stage, vector.at("stage_to_rank").get<std::vector<int>>());
    EXPECT_EQ(program.stage_count(), vector.at("num_stages").get<int>());
    if (vector.at("merge_bw").get<bool>()) merge_backward(program);
    add_send_receive(program);
    EXPECT_EQ(write_csv(program), csv_of_ranks(vector.at("add_send_recv")));
    const CellProgram steps = in_unit_steps(program);
    EXPECT_EQ(longest_rank(steps), vector.at("simulated_steps").get<int>());
    EXPECT_EQ(write_csv(steps), csv_of_ranks(vector.at("simulated")));
    defer_receives(program);
    EXPECT_EQ(write_csv(program), csv_of_ranks(vector.at("defer_recv")));
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

TEST_F(TorchReference, PassesOfOneRank) {
  const Json reference = load("torch_lowering.json");
  if (reference.is_null()) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
  int compared = 0;
  for (const Json& vector : reference.at("vectors")) {
    SCOPED_TRACE(vector.at("name").get<std::string>());
    const auto after = [&vector](auto pass) {
      CellProgram program = read(joined(vector.at("compute").get<std::vector<std::string>>()));
      pass(program);
      return write_csv(program);
    };
    const auto compare = [&](const std::string& name, auto pass) {
      if (!vector.contains(name) || !vector.at(name).is_array()) return;
      EXPECT_EQ(after(pass), joined(vector.at(name).get<std::vector<std::string>>())) << name;
      ++compared;
    };
    compare("add_reduce_grad", add_gradient_reductions);
    compare("merge_bw", merge_backward);
    compare("add_unshard_reshard", [](CellProgram& program) { add_unshard_reshard(program); });
    for (const int active : {1, 2, 3, 4}) {
      compare("add_unshard_reshard_max" + std::to_string(active),
              [active](CellProgram& program) { add_unshard_reshard(program, active); });
    }
  }
  EXPECT_EQ(compared, 9);
}

// PyTorch 2.14.1 numbers the last rank's forwards from 1 in the table of Schedule1F1B (its runtime does not): the table
// fails PyTorch's own validator. Our validator reports the place, and our 1f1b is the order of PyTorch's runtime.
TEST(PyTorchDefect, LastRankOfThe1F1BTableIsRefused) {
  const std::string table =
      "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n"
      "1F1,1B0,1F2,1B1,1F3,1B2,1F4,1B3\n";
  EXPECT_EQ(fault_of(read(table)), "rank 0: 0F4 never runs: the chain has microbatches 0 to 4 (1F4 on rank 1)");
  const std::string runtime =
      "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n"
      "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n";
  EXPECT_EQ(write_csv(generate_schedule(*find_schedule("1f1b"), {.pipeline_ranks = 2, .microbatches = 4})), runtime);
}

// Deferred receives run in the order of their consumers, sends in the order of their producers. Two ranks that exchange
// activations and gradients of several stages then list transfers in different orders, which only a transport with tags
// can handle. Found in PyTorch's own vector, and reproduced here as in PyTorch.
TEST(PyTorchDefect, DeferredReceivesLeaveTheOrderOfTheSends) {
  CellProgram program =
      add_communication(parse_csv("0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n", "v.csv", {}),
                        {.unshard_reshard = false});
  EXPECT_FALSE(find_transfer_mismatch(program).has_value());
  defer_receives(program);
  EXPECT_EQ(fault_of(program), "");
  const auto mismatch = find_transfer_mismatch(program);
  ASSERT_TRUE(mismatch.has_value());
  EXPECT_EQ(render_fault(*mismatch),
            "rank 0, step 3 (0SEND_F1): ranks 0 and 1 list their transfers in different orders: next is 0SEND_F1 here "
            "but 2SEND_F0 on rank 1 at step 3");
}

}  // namespace
}  // namespace flopcast
