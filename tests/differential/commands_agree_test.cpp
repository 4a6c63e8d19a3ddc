// One question asked through several commands: the answers agree bit for bit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

const std::vector<Words>& questions() {
  static const std::vector<Words> all = {
      {"--model", "gpt3-1.3b", "--cluster", "2xdgx-a100-80g", "--gbs", "64"},
      {"--model", "llama3-8b", "--cluster", "dgx-h100", "--gbs", "32", "--seq", "4096"},
      {"--model", "mixtral-8x7b", "--cluster", "4xdgx-h100", "--gbs", "128", "--zero", "1"},
      {"--model", "gpt3-13b", "--cluster", "4xdgx-a100-80g", "--gbs", "256", "--stack", "megatron-2022", "--tokens",
       "300B", "--price", "2"},
      {"--model", "qwen2.5-7b", "--cluster", "dgx-h100", "--gbs", "64", "--stack", "torchtitan",
       "--layout.data_parallel", "fsdp"}};
  return all;
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Json answer(const Words& words) {
  return json_of(run_flopcast(with(words, {"--format", "json"})));
}

// Only sentences depend on where an answer came from.
Json figures_told(Json result) {
  for (const char* key : {"assumptions", "warnings", "critical_path"}) result.erase(key);
  return result;
}

class CommandsAgree : public testing::Test {
 protected:
  TemporaryFolder folder_;

  std::string file(const std::string& name, const Json& json) const {
    write_text(folder_.path() / name, json.dump());
    return (folder_.path() / name).string();
  }
};

TEST_F(CommandsAgree, APlansFirstRowIsItsSimulationItsCellOfASweepAndItsPage) {
  for (const Words& question : questions()) {
    const Json plan = answer(with({"plan", "--top", "3"}, question));
    const Json& best = plan.at("best").at("result");
    EXPECT_EQ(plan.at("ranked").at(0).at("result"), best);
    const std::string job = file("job.json", best.at("job"));

    const Json simulated = answer({"simulate", job});
    EXPECT_EQ(figures_told(simulated), figures_told(best));
    EXPECT_EQ(answer({"memory", job}).at("memory"), best.at("memory"));

    const std::string mbs = best.at("job").at("layout").at("micro_batch_size").dump();
    const Json swept = answer({"sweep", job, "--vary", "mbs=" + mbs});
    EXPECT_EQ(figures_told(swept.at("rows").at(0).at("result")), figures_told(best));
    const CommandResult cells = run_flopcast({"sweep", job, "--vary", "mbs=" + mbs, "--format", "csv"});
    EXPECT_NE(cells.standard_output.find(Json(best.at("iteration").at("time_s")).dump().substr(0, 5)),
              std::string::npos)
        << cells.standard_output;

    const Json compared = answer({"compare", job, "mbs=" + mbs});
    EXPECT_EQ(figures_told(compared.at("a").at("result")), figures_told(best));
    EXPECT_EQ(figures_told(compared.at("b").at("result")), figures_told(best));
    for (const Json& term : compared.at("terms")) EXPECT_EQ(term.at("delta_s"), 0.0) << term;

    const CommandResult page = run_flopcast({"report", file("result.json", simulated)});
    ASSERT_EQ(page.exit_code, 0) << page.standard_error;
    // The page simulates the result's job itself.
    const std::string step = best.at("iteration").at("time_s").dump();
    EXPECT_NE(page.standard_output.find("\"metrics\":{\"makespan\":" + step), std::string::npos) << step;
  }
}

TEST_F(CommandsAgree, OrderOfFlagsAndFilesSaysNothing) {
  for (const Words& question : questions()) {
    Words turned;
    for (std::size_t at = question.size(); at > 0; at -= 2)
      turned.insert(turned.end(), {question[at - 2], question[at - 1]});
    const Json one = answer(with({"simulate"}, question));
    EXPECT_EQ(answer(with({"simulate"}, turned)).at("iteration"), one.at("iteration"));
    EXPECT_EQ(answer({"simulate", file("result.json", one)}).at("iteration"), one.at("iteration"));
  }
}

}  // namespace
}  // namespace flopcast
