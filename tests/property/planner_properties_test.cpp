// Over layouts drawn from whole spaces: bounds never exceed the simulated time, memory bounds are exact if they claim
// to be, evaluating a layout equals forecasting it, and the planner's rules are those of the job file.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "model/job/read_job.hpp"
#include "planner/bounds/bounds.hpp"
#include "planner/search/cluster_search.hpp"
#include "planner/search/search.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/unit/model/jobs.hpp"
#include "tests/unit/planner/questions.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

// Adds a variation to every second question: adapters, 8-bit GEMMs, multi-token-prediction modules, and the kinds of
// context and tensor parallelism.
void add_a_variation(Json& root, std::mt19937& random) {
  const auto one_of = [&random](std::initializer_list<Json> choices) {
    return choices.begin()[random() % choices.size()];
  };
  Json& layout = root["layout"];
  Json& training = root["training"];
  switch (random() % 10) {
    case 0:
      training["finetune"] = {{"method", one_of({"lora", "qlora"})}, {"rank", one_of({8, 64})}};
      break;
    case 1:
      root["cluster"]["name"] = "dgx-h100";
      training["precision"] = "fp8";
      break;
    case 2:
      root["model"]["mtp_layers"] = one_of({1, 2});
      break;
    case 3:
      layout.update({{"cp", one_of({2, 4})}, {"context_parallel", one_of({"ring", "ulysses"})}});
      break;
    case 4:
      layout.update({{"tp", 4}, {"tensor_parallel", "2d"}});
      break;
    default:
      break;
  }
}

PlanQuestion question_drawn_from(std::mt19937& random) {
  const auto one_of = [&random](std::initializer_list<Json> choices) {
    return choices.begin()[random() % choices.size()];
  };
  Json root = {
      {"model",
       {{"layers", one_of({8, 12, 13})},
        {"hidden", one_of({512, 2048})},
        {"heads", 16},
        {"vocab", 51200},
        {"sequence_length", 512}}},
      {"cluster", {{"name", one_of({"dgx-a100-80g", "p4d", "dgx-h100"})}, {"nodes", one_of({1, 2, 3})}}},
      {"layout",
       {{"global_batch_size", one_of({24, 48, 96})}, {"data_parallel", one_of({"ddp", "ddp", "ddp", "fsdp"})}}},
      {"training",
       {{"sequence_length", one_of({512, 2048})},
        {"stack", one_of({"megatron-core", "megatron-2022", "pytorch-fsdp", "megatron-2021"})}}}};
  if (random() % 3 == 0) {
    root["model"]["experts"] = {{"count", 8}, {"top_k", 2}, {"ffn", 1024}, {"every", one_of({1, 2})}};
  }
  add_a_variation(root, random);
  return read_question(root, Origins());
}

// Draws again if the reader refuses a combination.
PlanQuestion drawn_question(std::mt19937& random) {
  PlanQuestion question = [&random] {
    while (true) {
      try {
        return question_drawn_from(random);
      } catch (const ConfigError&) {
        continue;
      }
    }
  }();
  question.space.schedules.clear();
  for (const ScheduleInfo& info : schedule_catalogue()) {
    // The schedules with a search take a second each, and cover the same V map as zbv.
    const bool searches = info.name == "v-half" || info.name == "v-min" || info.name == "v-auto" ||
                          info.name == "zb-auto" || info.name == "1f1b-v";
    if (!searches) question.space.schedules.push_back(schedule_choice(info.name));
  }
  question.space.splits = all_splits();
  question.space.uneven_chunks = true;
  return question;
}

struct Drawn {
  LayoutGroup group;
  LayoutMember member;
  std::size_t index = 0;
};

Drawn draw(const LayoutSpace& space, std::mt19937& random) {
  const std::size_t index = random() % space.groups.size();
  const LayoutGroup& group = space.groups[index];
  const std::vector<LayoutMember>& members = space.members[group.members];
  return {group, members[random() % members.size()], index};
}

bool counts_are_exact(const ScheduleInfo& info) {
  return !info.uses_times && !info.asynchronous && info.name != "chimera";
}

TEST(PlannerProperties, BoundsHoldForEveryScheduleAndLayout) {
  std::mt19937 random(11);
  int drawn_count = 0;
  int exact = 0;
  double tightness = 0.0;
  for (int round = 0; round < 60; ++round) {
    const PlanQuestion question = drawn_question(random);
    const LayoutSpace space = enumerate_layouts(question.job, question.space);
    if (space.groups.empty()) continue;
    SharedPrices of_question;
    GroupBounds groups(question.job, question.space, space.groups, serial_for);
    ScheduleShapes shapes(question.job.layout, question.space);
    for (int repeat = 0; repeat < 30; ++repeat) {
      const Drawn drawn = draw(space, random);
      const ScheduleShape& shape =
          shapes.shape(drawn.member.schedule, drawn.group.pp, drawn.member.chunks, drawn.group.microbatches);
      GroupPrices prices(question.job, question.space, drawn.group);
      const double passes = prices.pass_bound_of(drawn.member, shape);
      const MemberPrice& price = prices.of(drawn.member, shape);
      const double bound = time_bound(prices.job(), shape, price.costs);
      const FullestRank memory = memory_bound(prices.job(), shape, price.costs);
      // Prices cached by other layouts of the question equal this layout's own prices.
      for (SharedPrices* shared : {&of_question, static_cast<SharedPrices*>(nullptr)}) {
        Job priced = prices.job();
        if (shape.slices > 1) priced.layout.slices = shape.slices;
        const StepCosts again = price_for_bounds(priced, shape.stages, price.layers, shared);
        ASSERT_EQ(time_bound(priced, shape, again), bound);
        ASSERT_EQ(memory_bound(priced, shape, again).bytes, memory.bytes);
      }
      Job job = question.job;
      job.layout = layout_of(question.job.layout, question.space, drawn.group, drawn.member, job.model.layers);
      job.layout.stage_layers = price.layers;
      const Forecast answer = forecast(job, no_files);
      const double simulated = answer.result.iteration.time_s;
      const std::string what = job.layout.schedule + " pp " + std::to_string(job.layout.pp) + " v " +
                               std::to_string(*job.layout.vpp) + " m " + std::to_string(job.layout.microbatches()) +
                               " zero " + std::to_string(job.layout.zero) + " round " + std::to_string(round);
      const double loose = groups[drawn.index].time_s;
      groups.tighten({drawn.index});
      ASSERT_LE(loose, groups[drawn.index].time_s) << what;
      ASSERT_LE(groups[drawn.index].time_s, simulated) << what;
      ASSERT_LE(filled_bound(groups[drawn.index], shape, drawn.group.microbatches), passes * (1.0 + 1e-12)) << what;
      ASSERT_LE(passes, simulated) << what;
      ASSERT_LE(bound, simulated) << what;
      ASSERT_LE(passes, bound * (1.0 + 1e-12)) << what;
      const double peak = answer.result.memory.shown_gib * kGibibyte;
      ASSERT_LE(groups[drawn.index].bytes, peak * (1.0 + 1e-12)) << what;
      ASSERT_LE(memory.bytes, peak * (1.0 + 1e-12)) << what;
      const ScheduleInfo& info = *question.space.schedules[drawn.member.schedule].info;
      if (counts_are_exact(info)) {
        ASSERT_NEAR(memory.bytes / peak, 1.0, 1e-9) << what;
        ++exact;
      }
      const StageMap real = answer.step.stages;
      ASSERT_EQ(shape.stages.rank_of_stage, real.rank_of_stage) << what;
      ASSERT_EQ(shape.stages.passes_in_a_row, real.passes_in_a_row) << what;
      tightness += bound / simulated;
      ++drawn_count;
    }
  }
  EXPECT_GT(exact, 300);
  EXPECT_GT(drawn_count, 900);
  std::cout << drawn_count << " layouts, bound over simulated time " << tightness / drawn_count
            << " on average, memory exact in " << exact << "\n";
  EXPECT_GT(tightness / drawn_count, 0.85) << "a loose bound prunes little";
}

TEST(PlannerProperties, EvaluatingIsForecasting) {
  std::mt19937 random(12);
  int compared = 0;
  for (int round = 0; round < 25; ++round) {
    const PlanQuestion question = drawn_question(random);
    const LayoutSpace space = enumerate_layouts(question.job, question.space);
    if (space.groups.empty()) continue;
    for (int repeat = 0; repeat < 8; ++repeat) {
      const Drawn drawn = draw(space, random);
      Job job = question.job;
      job.layout = layout_of(question.job.layout, question.space, drawn.group, drawn.member, job.model.layers);
      const Forecast answer = forecast(job, no_files);
      const Evaluation evaluated = evaluate_layout(job);
      EXPECT_EQ(evaluated.memory.fits, answer.result.memory.fits);
      EXPECT_EQ(evaluated.memory.shown_gib, answer.result.memory.shown_gib) << job.layout.schedule;
      if (!evaluated.memory.fits) continue;
      EXPECT_EQ(evaluated.time_s, answer.result.iteration.time_s) << job.layout.schedule;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

// The planner considers a layout valid exactly if the job file accepts it.
TEST(PlannerProperties, ItsRulesAreThoseOfTheJobFile) {
  std::mt19937 random(13);
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto one_of = [&random](std::initializer_list<int> choices) {
      return choices.begin()[random() % choices.size()];
    };
    Json layout = {{"tp", one_of({1, 2, 3, 4, 8, 16})},
                   {"pp", one_of({1, 2, 3, 4, 6, 9})},
                   {"cp", one_of({1, 1, 1, 2, 3, 4})},
                   {"micro_batch_size", one_of({1, 2, 3, 4})},
                   {"zero", one_of({0, 1, 2, 3})},
                   {"sequence_parallel", random() % 2 == 0},
                   {"global_batch_size", one_of({12, 16, 24, 48})},
                   {"schedule", "1f1b"},
                   {"vpp", 1}};
    const bool experts = random() % 2 == 0;
    Json root = {{"model",
                  {{"layers", 8},
                   {"hidden", 1024},
                   {"heads", 16},
                   {"kv_heads", one_of({4, 8, 16})},
                   {"vocab", 32000},
                   {"sequence_length", 384}}},
                 {"cluster", {{"name", "dgx-a100-80g"}, {"nodes", one_of({1, 2, 3})}}},
                 {"training", {{"sequence_length", 384}}}};
    if (experts) {
      root["model"]["experts"] = {{"count", 8}, {"top_k", 2}, {"ffn", one_of({1024, 1030})}};
      layout["ep"] = one_of({1, 2, 3, 4, 8});
    }
    root["layout"] = layout;
    bool by_reader = true;
    try {
      prepare(read_job(root, Origins()), no_files);
    } catch (const ConfigError&) {
      by_reader = false;
    }
    PlanQuestion question = read_question(root, Origins());
    question.space.etp = {0};  // like the reader, for a job without the key
    const LayoutSpace space = enumerate_layouts(question.job, question.space);
    EXPECT_EQ(space.valid > 0, by_reader) << root.dump();
    ++(by_reader ? accepted : refused);
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace flopcast
