// The cases of the loss matrix with as many ranks as this program has processes, over MPI; checks that MPI ranks and
// threads give the same bits.
#include "tests/realrun/loss_matrix.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "realrun/training/train.hpp"
#include "tests/realrun/mpi/under_mpi.hpp"

namespace flopcast::realrun {
namespace {

std::vector<RankResult> over_mpi(const TrainingPlan& plan) {
  std::vector<RankResult> results;
  train_on_mpi(test_processes(), plan, {}, results);
  return results;
}

std::vector<MatrixCase> of_this_size(std::vector<MatrixCase> cases) {
  const auto other_size = [](const MatrixCase& entry) { return entry.plan.ranks() != test_processes().count(); };
  cases.erase(std::remove_if(cases.begin(), cases.end(), other_size), cases.end());
  return cases;
}

void expect_all_compared(const std::vector<MatrixCase>& cases) {
  const int compared = compare_with_references(cases, over_mpi);
  EXPECT_EQ(compared, test_processes().rank() == 0 ? static_cast<int>(cases.size()) : 0);
  EXPECT_FALSE(cases.empty());
}

TEST(LossMatrixOverMpi, SchedulesByLayouts) {
  expect_all_compared(of_this_size(schedules_by_layouts()));
}

TEST(LossMatrixOverMpi, WholeCatalogue) {
  std::vector<MatrixCase> cases = of_this_size(whole_catalogue());
  if (cases.empty()) GTEST_SKIP() << "no case has " << test_processes().count() << " ranks";
  expect_all_compared(cases);
}

TEST(LossMatrixOverMpi, FurtherLayouts) {
  expect_all_compared(of_this_size(further_layouts()));
}

TEST(LossMatrixOverMpi, ContextLayouts) {
  const std::vector<MatrixCase> cases = of_this_size(context_layouts());
  if (cases.empty()) GTEST_SKIP() << "no case has " << test_processes().count() << " ranks";
  expect_all_compared(cases);
}

TEST(LossMatrixOverMpi, ExpertParallelNetworks) {
  std::vector<MatrixCase> cases = of_this_size(network_forms_by_layouts());
  const auto has_whole_experts = [](const MatrixCase& entry) { return entry.plan.ep == 1; };
  cases.erase(std::remove_if(cases.begin(), cases.end(), has_whole_experts), cases.end());
  if (cases.empty()) GTEST_SKIP() << "no case has " << test_processes().count() << " ranks";
  expect_all_compared(cases);
}

void expect_bits_of_threads(const std::vector<MatrixCase>& cases) {
  for (const MatrixCase& entry : cases) {
    const std::vector<RankResult> processes = over_mpi(entry.plan);
    if (processes.empty()) continue;
    const std::vector<RankResult> threads = train_on_threads(entry.plan, {});
    ASSERT_EQ(processes.size(), threads.size());
    EXPECT_EQ(mean_losses(processes), mean_losses(threads)) << entry.name;
    EXPECT_EQ(whole_weights(processes), whole_weights(threads)) << entry.name;
    for (std::size_t rank = 0; rank < threads.size(); ++rank) {
      EXPECT_EQ(processes[rank].peak_activation_bytes, threads[rank].peak_activation_bytes) << entry.name;
      for (std::size_t step = 0; step < threads[rank].steps.size(); ++step) {
        const StepRecord& over = processes[rank].steps[step];
        const StepRecord& on = threads[rank].steps[step];
        EXPECT_EQ(over.record.spans.size(), on.record.spans.size()) << entry.name;
        for (const Axis axis : {Axis::kPipeline, Axis::kData, Axis::kTensor}) {
          EXPECT_EQ(over.traffic.bytes_of(axis), on.traffic.bytes_of(axis)) << entry.name << ", rank " << rank;
        }
      }
    }
  }
}

TEST(LossMatrixOverMpi, BitsAndBytesAreThoseOfThreads) {
  expect_bits_of_threads(of_this_size(schedules_by_layouts()));
}

// Prefetched weights, factors of matrices, and successive collectives.
TEST(LossMatrixOverMpi, ShardedReplicasToo) {
  std::vector<MatrixCase> cases;
  for (const auto& all : {fully_sharded_layouts(), recomputed_layouts()}) {
    for (const MatrixCase& entry : of_this_size(all)) {
      const std::string& schedule = entry.plan.program.schedule;
      if (schedule == "1f1b" || schedule == "bfs" || schedule == "zbv") cases.push_back(entry);
    }
  }
  for (const MatrixCase& entry : of_this_size(schedules_by_layouts())) {
    if (entry.plan.dp == 1 || entry.plan.zero > 0) continue;
    cases.push_back(entry);
    cases.back().name += ", served";
    cases.back().plan.served_ranks_per_node = 1;
    cases.push_back(entry);
    cases.back().name += ", powersgd";
    cases.back().plan.compression = {.kind = Compression::Kind::kPowerSgd, .rank = 2};
  }
  if (cases.empty()) GTEST_SKIP() << "no case has " << test_processes().count() << " ranks";
  expect_bits_of_threads(cases);
}

TEST(LossMatrixOverMpi, CompressedGradientsToo) {
  std::vector<MatrixCase> cases;
  for (const MatrixCase& entry : of_this_size(schedules_by_layouts())) {
    const bool chosen = entry.plan.program.schedule == "1f1b" || entry.plan.program.schedule == "pipedream";
    if (!chosen || entry.plan.dp == 1 || entry.plan.zero > 0) continue;
    for (const Compression& compression : {Compression{.kind = Compression::Kind::kQuantized, .bits = 8},
                                           Compression{.kind = Compression::Kind::kQuantized, .bits = 4},
                                           Compression{.kind = Compression::Kind::kTopK, .fraction = 0.1}}) {
      cases.push_back(entry);
      cases.back().name += ", " + compression.text();
      cases.back().plan.compression = compression;
    }
  }
  if (cases.empty()) GTEST_SKIP() << "no replicas on " << test_processes().count() << " ranks";
  expect_bits_of_threads(cases);
}

}  // namespace
}  // namespace flopcast::realrun
