// Schedules as text, timed by sixty lines of code that share nothing with the engine: a queue of moments at which a
// rank checks again whether it can proceed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

struct Step {
  int stage = 0;
  char kind = 'F';
  int microbatch = 0;
};
using Cell = std::vector<Step>;  // two for an overlapped pair
using Key = std::pair<char, std::pair<int, int>>;

struct Times {
  std::map<char, std::vector<long>> by_kind;
  long p2p = 0;

  long of(const Step& step) const {
    const auto at = [&](char kind) { return by_kind.at(kind)[static_cast<std::size_t>(step.stage)]; };
    return step.kind == 'B' ? at('I') + at('W') : at(step.kind);
  }
};

std::vector<std::vector<Cell>> parse_rows(const std::string& csv) {
  std::vector<std::vector<Cell>> rows;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) {
      if (cell.find_first_not_of(" \r") == std::string::npos) continue;
      rows.back().emplace_back();
      const std::string inside = cell.front() == '(' ? cell.substr(1, cell.find(')') - 1) : cell;
      std::istringstream steps(inside);
      for (std::string word; std::getline(steps, word, ';');) {
        Step step;
        std::istringstream(word) >> step.stage >> step.kind >> step.microbatch;
        rows.back().back().push_back(step);
      }
    }
  }
  return rows;
}

struct Answer {
  long makespan = 0;
  std::vector<long> busy, first_start, last_end;
  std::vector<int> peak;
};

class Replay {
 public:
  Replay(std::vector<std::vector<Cell>> rows, Times times) : rows_(std::move(rows)), times_(std::move(times)) {
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      for (const Cell& cell : rows_[rank]) {
        for (const Step& step : cell) {
          rank_of_[step.stage] = rank;
          last_stage_ = std::max(last_stage_, step.stage);
        }
      }
    }
  }

  Answer run() {
    const std::size_t ranks = rows_.size();
    Answer answer{0, std::vector<long>(ranks), std::vector<long>(ranks, -1), std::vector<long>(ranks), {}};
    std::vector<std::size_t> next(ranks);
    std::priority_queue<std::pair<long, std::size_t>, std::vector<std::pair<long, std::size_t>>, std::greater<>>
        moments;
    for (std::size_t rank = 0; rank < ranks; ++rank) moments.emplace(0, rank);
    while (!moments.empty()) {
      const auto [now, rank] = moments.top();
      moments.pop();
      if (next[rank] == rows_[rank].size() || answer.last_end[rank] > now) continue;
      const Cell& cell = rows_[rank][next[rank]];
      const long ready = ready_at(cell, rank);
      if (ready < 0) continue;  // woken when its dependency ends
      if (ready > now) {
        moments.emplace(ready, rank);
        continue;
      }
      long duration = 0;
      for (const Step& step : cell) duration += times_.of(step);
      for (const Step& step : cell) ended_[{step.kind, {step.stage, step.microbatch}}] = now + duration;
      if (answer.first_start[rank] < 0) answer.first_start[rank] = now;
      answer.busy[rank] += duration;
      answer.last_end[rank] = now + duration;
      answer.makespan = std::max(answer.makespan, now + duration);
      ++next[rank];
      for (std::size_t other = 0; other < ranks; ++other) moments.emplace(now + duration, other);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(next[rank], rows_[rank].size()) << "rank " << rank << " is stuck";
      answer.peak.push_back(peak_of(rows_[rank]));
    }
    return answer;
  }

 private:
  // Time at which all inputs have arrived; -1 while an end is unknown.
  long ready_at(const Cell& cell, std::size_t rank) const {
    long ready = 0;
    const auto need = [&](const std::string& kinds, int stage, int microbatch) {
      for (const char kind : kinds) {
        const auto found = ended_.find({kind, {stage, microbatch}});
        if (found == ended_.end()) continue;
        ready = std::max(ready, found->second + (rank_of_.at(stage) == rank ? 0 : times_.p2p));
        return true;
      }
      return false;
    };
    for (const Step& step : cell) {
      const bool is_backward = step.kind == 'B' || step.kind == 'I';
      if (step.kind == 'F' && step.stage > 0 && !need("F", step.stage - 1, step.microbatch)) return -1;
      if (is_backward && step.stage < last_stage_ && !need("BI", step.stage + 1, step.microbatch)) return -1;
      if (is_backward && !need("F", step.stage, step.microbatch)) return -1;
      if (step.kind == 'W' && !need("I", step.stage, step.microbatch)) return -1;
    }
    return ready;
  }

  static int peak_of(const std::vector<Cell>& row) {
    int held = 0, peak = 0;
    for (const Cell& cell : row) {
      for (const Step& step : cell) held += static_cast<int>(step.kind == 'F');
      peak = std::max(peak, held);
      for (const Step& step : cell) held -= static_cast<int>(step.kind == 'B' || step.kind == 'W');
    }
    return peak;
  }

  std::vector<std::vector<Cell>> rows_;
  Times times_;
  std::map<int, std::size_t> rank_of_;
  int last_stage_ = 0;
  std::map<Key, long> ended_;
};

std::string listed(const std::vector<long>& times) {
  std::string text;
  for (const long time : times) text += (text.empty() ? "" : ",") + std::to_string(time);
  return text;
}

TEST(PipelineReference, TimesEveryScheduleOfOneChainAlike) {
  std::mt19937 random(11);
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "rows.csv").string();
  const std::vector<std::pair<const char*, int>> schedules = {
      {"naive", 1},  {"gpipe", 1}, {"1f1b", 1},   {"eager-1f1b", 1}, {"interleaved", 2},    {"interleaved", 3},
      {"gis", 2},    {"bfs", 2},   {"zb-h1", 1},  {"zb-h2", 1},      {"interleaved-zb", 2}, {"zbv", 2},
      {"v-half", 2}, {"v-min", 2}, {"1f1b-v", 2}, {"hanayo", 2},     {"dualpipev", 2}};
  int compared = 0;
  for (int round = 0; round < 12; ++round) {
    for (const auto& [name, chunks] : schedules) {
      const long ranks = 2 + static_cast<long>(random() % 4);
      const long microbatches = ranks * (2 + static_cast<long>(random() % 3));
      const CommandResult shown =
          run_flopcast({"schedule", "show", "--schedule", name, "--pp", std::to_string(ranks), "--microbatches",
                        std::to_string(microbatches), "--vpp", std::to_string(chunks), "--format", "csv"});
      ASSERT_EQ(shown.exit_code, 0) << name << shown.standard_error;
      write_text(file, shown.standard_output);
      Times times;
      for (const char kind : {'F', 'I', 'W'}) {
        for (long stage = 0; stage < ranks * chunks; ++stage) times.by_kind[kind].push_back(1 + random() % 20);
      }
      times.p2p = random() % 6;
      const Json told =
          json_of(run_flopcast({"schedule", "simulate", file, "--forward", listed(times.by_kind['F']),
                                "--backward-input", listed(times.by_kind['I']), "--backward-weight",
                                listed(times.by_kind['W']), "--p2p", std::to_string(times.p2p), "--format", "json"}));
      const Answer own = Replay(parse_rows(shown.standard_output), times).run();
      ASSERT_EQ(told.at("makespan").get<long>(), own.makespan) << name << "\n" << shown.standard_output;
      long busy = 0;
      for (std::size_t rank = 0; rank < own.busy.size(); ++rank) {
        const Json& one = told.at("ranks").at(rank);
        EXPECT_EQ(one.at("busy").get<long>(), own.busy[rank]) << name << " rank " << rank;
        EXPECT_EQ(one.at("first_start").get<long>(), own.first_start[rank]) << name << " rank " << rank;
        EXPECT_EQ(one.at("last_end").get<long>(), own.last_end[rank]) << name << " rank " << rank;
        EXPECT_EQ(one.at("peak_in_flight").get<int>(), own.peak[rank]) << name << " rank " << rank;
        busy += own.busy[rank];
      }
      const double bubble = 1.0 - static_cast<double>(busy) / static_cast<double>(ranks * own.makespan);
      EXPECT_NEAR(told.at("bubble_fraction").get<double>(), bubble, 1e-12) << name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace flopcast
