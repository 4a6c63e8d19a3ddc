// The independent timing cases of the reference folder, through the command line: each case's order is given as CSV.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

std::string csv_of(const Json& order) {
  std::string text;
  for (const Json& rank : order) {
    std::string line = rank.get<std::string>();
    for (char& character : line) {
      if (character == ' ') character = ',';
    }
    text += line + "\n";
  }
  return text;
}

std::string list_of(const Json& times) {
  if (times.is_number()) return times.dump();
  std::string text;
  for (const Json& time : times) text += (text.empty() ? "" : ",") + time.dump();
  return text;
}

std::vector<std::string> arguments_of(const Json& item, const std::string& file) {
  std::vector<std::string> arguments = {"schedule", "simulate", file, "--format", "json"};
  const std::pair<const char*, const char*> flags[] = {
      {"F", "--forward"}, {"B", "--backward"}, {"I", "--backward-input"}, {"W", "--backward-weight"}, {"O", "--fused"}};
  for (const auto& [key, flag] : flags) {
    if (!item.at("times").contains(key)) continue;
    arguments.insert(arguments.end(), {flag, list_of(item.at("times").at(key))});
  }
  const Json& p2p = item.at("p2p");
  if (p2p.is_number()) {
    arguments.insert(arguments.end(), {"--p2p", p2p.dump()});
  } else {
    for (const Json& link : p2p.at("per_link")) {
      arguments.insert(arguments.end(), {"--p2p-link", link[0].dump() + ":" + link[1].dump() + ":" + link[2].dump() +
                                                           ":" + link[3].dump()});
    }
  }
  if (item.at("chains").size() > 1) {
    std::string chains;
    for (const Json& chain : item.at("chains")) {
      chains += (chains.empty() ? "" : ",") + chain.front().dump() + "-" + chain.back().dump();
    }
    arguments.insert(arguments.end(), {"--chains", chains});
  }
  return arguments;
}

TEST(TimingReference, EveryCaseAgreesExactly) {
  const auto reference = reference_folder();
  if (!reference) GTEST_SKIP() << "no reference folder: the 298 independent timing cases were not compared";
  const Json cases = Json::parse(read_text(*reference / "goldens" / "timing.json")).at("cases");
  const TemporaryFolder scratch;
  const std::string file = (scratch.path() / "order.csv").string();
  std::size_t count = 0;
  for (const Json& item : cases) {
    const std::string id = item.at("id").get<std::string>();
    write_text(file, csv_of(item.at("order")));
    const CommandResult result = run_flopcast(arguments_of(item, file));
    ASSERT_EQ(result.exit_code, 0) << id << "\n" << result.standard_error;
    const Json answer = Json::parse(result.standard_output);
    const Json& expect = item.at("expect");
    EXPECT_EQ(answer.at("makespan"), expect.at("makespan")) << id;
    Json longest_span = 0;
    for (std::size_t rank = 0; rank < expect.at("busy").size(); ++rank) {
      const Json& row = answer.at("ranks").at(rank);
      EXPECT_EQ(row.at("busy"), expect.at("busy")[rank]) << id;
      EXPECT_EQ(row.at("first_start"), expect.at("rank_first_start")[rank]) << id;
      EXPECT_EQ(row.at("last_end"), expect.at("rank_last_end")[rank]) << id;
      EXPECT_EQ(row.at("peak_in_flight"), expect.at("peak_inflight")[rank]) << id;
      EXPECT_NEAR(row.at("idle_fraction").get<double>(), expect.at("idle_fraction")[rank].get<double>(), 1e-12) << id;
      longest_span = std::max(longest_span, row.at("span"));
    }
    EXPECT_EQ(longest_span, expect.at("max_rank_span")) << id;
    ++count;
  }
  EXPECT_EQ(count, cases.size());
  std::cout << "compared " << count << " timing cases\n";
}

}  // namespace
}  // namespace flopcast
