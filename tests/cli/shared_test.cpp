// flopcast-mpi under mpirun: plans and sweeps of four ranks equal those of one process byte for byte, whichever rank is
// lost.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class Shared : public testing::Test {
 protected:
  TemporaryFolder folder_;

  CommandOptions options() const {
    CommandOptions options;
    options.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                           {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                           {"OMPI_MCA_mpi_yield_when_idle", "1"},
                           {"OMPI_MCA_hwloc_base_binding_policy", "none"}};
    options.working_directory = folder_.path();
    return options;
  }

  CommandResult mpirun(const Words& flags, const Words& command) const {
    Words words = {FLOPCAST_MPIRUN, "-n", "4"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), command.begin(), command.end());
    return run_command(words, options());
  }

  // Ranks are killed after number 2 has written five rows: only number 2, or all, as mpirun does without recovery.
  // Number 2 is slow, so the others would finish.
  CommandResult mpirun_losing(const char* lost, const Words& flags, const Words& command) const {
    std::string script =
        "rows() { grep -c index shared.json.partial.rank-2 2> /dev/null || true; }; if expr "
        "\"$OMPI_COMM_WORLD_RANK\" : '" +
        std::string(lost) +
        "' > /dev/null; then (while n=$(rows); [ \"${n:-0}\" -lt 5 ]; do sleep 0.01; done; kill -9 "
        "$$ && touch killed) & fi; exec";
    for (const std::string& word : command) script += " '" + word + "'";
    return mpirun(flags, {"sh", "-c", script});
  }

  std::string serial(Words command) const {
    command.insert(command.end(), {"-o", "serial.json"});
    const CommandResult result = start_flopcast(command, options());
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    return read_text(folder_.path() / "serial.json");
  }
  static Words of_ranks(Words command) {
    command.insert(command.begin(), FLOPCAST_MPI);
    command.insert(command.end(), {"-o", "shared.json"});
    return command;
  }
  std::string shared() const { return read_text(folder_.path() / "shared.json"); }
  std::vector<std::filesystem::path> partial_files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (entry.path().string().find(".partial") != std::string::npos) files.push_back(entry.path());
    }
    return files;
  }
  bool killed() const { return std::filesystem::exists(folder_.path() / "killed"); }
};

const Words kSmallSweep = {"sweep", "--model", "gpt3-13b",   "--cluster", "4xdgx-a100-80g", "--gbs",
                           "256",   "--vary",  "pp=1,2,3,4", "--vary",    "tp=1,2,8"};
// Rows take milliseconds, so that a rank is lost in the middle.
const Words kSweep = {"sweep",  "--model",  "gpt3-175b", "--cluster",       "128xdgx-a100-80g",
                      "--gbs",  "1536",     "--vary",    "pp=4,8,12,16,32", "--vary",
                      "tp=4,8", "--vary",   "mbs=1,2,3", "--vary",          "recompute=none,selective,full",
                      "--vary", "zero=0,1", "--vary",    "seq=1024,2048"};

TEST_F(Shared, SweepsAndPlansAreThoseOfOneProcess) {
  const Words plan = {"plan",     "--model", "gpt3-1.3b", "--cluster", "4xdgx-a100-80g", "--gbs", "64",
                      "--tokens", "300B",    "--price",   "2",         "--top",          "5"};
  const auto with = [&plan](const Words& more) {
    Words words = plan;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (const Words& command :
       {kSmallSweep, plan, with({"--max-gpus", "64"}), with({"--max-gpus", "64", "--objective", "cost"}),
        with({"--max-gpus", "64", "--mtbf", "30h"}), with({"--min-gpus", "--mbs", "16", "--recompute", "none"})}) {
    const CommandResult result = mpirun({}, of_ranks(command));
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    EXPECT_EQ(result.standard_output, "");
    EXPECT_EQ(shared(), serial(command));
    EXPECT_TRUE(partial_files().empty());
  }
}

TEST_F(Shared, SurvivorsFinish) {
  const CommandResult result = mpirun_losing("2", {"--enable-recovery"}, of_ranks(kSweep));
  ASSERT_TRUE(killed()) << result.standard_error;
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_EQ(shared(), serial(kSweep));
}

TEST_F(Shared, ARerunCompletesTheMissingPart) {
  const CommandResult lost = mpirun_losing("[0-3]", {}, of_ranks(kSweep));
  ASSERT_TRUE(killed()) << lost.standard_error;
  ASSERT_NE(lost.exit_code, 0);
  ASSERT_FALSE(std::filesystem::exists(folder_.path() / "shared.json"));
  // A finished row is not computed again: it keeps a mark.
  const std::filesystem::path kept = folder_.path() / "shared.json.partial.rank-2";
  std::string text = read_text(kept);
  const std::size_t row = text.find("\"values\":{");
  ASSERT_NE(row, std::string::npos);
  text.insert(row + 10, "\"marked\":\"yes\",");
  write_text(kept, text);
  const CommandResult again = mpirun({}, of_ranks(kSweep));
  ASSERT_EQ(again.exit_code, 0) << again.standard_error;
  Json rows = Json::parse(shared()).at("rows");
  int marked = 0;
  for (Json& one : rows) marked += static_cast<int>(one.at("values").erase("marked"));
  EXPECT_EQ(marked, 1);
  EXPECT_EQ(rows, Json::parse(serial(kSweep)).at("rows"));
}

TEST_F(Shared, RowsOfAnotherQuestionAreRefused) {
  Words command = kSmallSweep;
  command.insert(command.end(), {"-o", "shared.json"});
  const std::string expected = serial(kSmallSweep);
  const CommandResult first = mpirun({}, of_ranks(kSmallSweep));
  ASSERT_EQ(first.exit_code, 0) << first.standard_error;
  EXPECT_EQ(shared(), expected);
  // Rows of another question are ignored.
  write_text(folder_.path() / "shared.json.partial.rank-1", "{\"question\":{\"job\":{}}}\n");
  const CommandResult refused = mpirun({}, of_ranks(kSmallSweep));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.standard_error.find("holds rows of another question"), std::string::npos) << refused.standard_error;
  EXPECT_EQ(refused.standard_error.find("error: "), refused.standard_error.rfind("error: "));
  const CommandResult alone = start_flopcast(command, options());
  EXPECT_EQ(alone.exit_code, 2) << alone.standard_error;
}

// Rows damaged by an editor, with the right question or an invalid index, are computed again.
TEST_F(Shared, RowsThatAreNoneAreComputedAgain) {
  const Words plan = {"plan",       "--model", "gpt3-1.3b", "--cluster", "4xdgx-a100-80g", "--gbs", "64",
                      "--max-gpus", "32",      "--top",     "2"};
  for (const Words& command : {kSmallSweep, plan}) {
    const std::string expected = serial(command);
    // The rows of a run whose output cannot be written are kept.
    std::filesystem::remove(folder_.path() / "shared.json");
    std::filesystem::create_symlink("/dev/full", folder_.path() / "shared.json");
    EXPECT_EQ(run_command(of_ranks(command), options()).exit_code, 4);
    const std::filesystem::path rows = folder_.path() / "shared.json.partial.rank-0";
    std::string text = read_text(rows);
    text.resize(text.find('\n') + 1);
    for (const char* row : {R"({"index":0})", R"({"index":"0","row":{}})", R"({"index":-1,"row":{}})",
                            R"({"index":0,"row":{"values":{},"result":{"memory":5}}})",
                            R"({"index":1,"row":{"ranked":5,"values":[],"result":null}})", R"([1,2])", "not JSON"}) {
      text += std::string(row) + "\n";
    }
    write_text(rows, text);
    std::filesystem::remove(folder_.path() / "shared.json");
    const CommandResult again = mpirun({}, of_ranks(command));
    ASSERT_EQ(again.exit_code, 0) << again.standard_error;
    EXPECT_EQ(shared(), expected);
  }
}

TEST_F(Shared, TellsWhatItNeeds) {
  Words nowhere = kSmallSweep;
  nowhere.insert(nowhere.begin(), FLOPCAST_MPI);
  const CommandResult result = mpirun({"--quiet"}, nowhere);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.standard_error.find("give -o FILE"), std::string::npos) << result.standard_error;
  const CommandResult no = mpirun({"--quiet"}, of_ranks({"plan", "--model", "gpt3-175b", "--cluster", "1xdgx-a100-80g",
                                                         "--gbs", "64", "--max-gpus", "24"}));
  EXPECT_EQ(no.exit_code, 3);
  EXPECT_NE(no.standard_error.find("no layout fits"), std::string::npos) << no.standard_error;
  EXPECT_TRUE(partial_files().empty());
}

}  // namespace
}  // namespace flopcast
