// Processes that find each other: stores, ranks that are missing, late or duplicated, launchers' variables.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/host/processes.hpp"
#include "base/text/error.hpp"
#include "realrun/device/device.hpp"
#include "realrun/rendezvous/meeting.hpp"

namespace flopcast::realrun {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

enum class StoreKind { kFile, kTcp };

class Stores : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("flopcast-store-test-" + std::to_string(getpid()));
    fs::remove_all(folder_);
    if (GetParam() == StoreKind::kTcp) server_ = serve_tcp_store({});
  }
  void TearDown() override {
    server_.reset();
    fs::remove_all(folder_);
  }

  std::unique_ptr<Store> open() {
    if (server_) return open_tcp_store("127.0.0.1", server_->port(), "", 5s);
    return open_file_store(folder_.string());
  }

  // As separate processes would have it.
  std::vector<std::string> failures_of(const std::vector<ProcessPlace>& places, std::chrono::milliseconds patience,
                                       std::chrono::milliseconds between = 0ms) {
    std::vector<std::string> failures(places.size());
    std::vector<std::unique_ptr<Store>> stores(
        places.size());  // the store of a process that goes is lost to the others
    std::vector<std::thread> threads;
    for (std::size_t index = 0; index < places.size(); ++index) {
      threads.emplace_back([&, index] {
        std::this_thread::sleep_for(between * static_cast<int>(index));
        try {
          stores[index] = open();
          gather_ranks(*stores[index], places[index], patience);
        } catch (const EnvironmentError& error) {
          failures[index] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return failures;
  }

  fs::path folder_;
  std::unique_ptr<TcpServer> server_;
};

TEST_P(Stores, HoldValuesOfAnyBytes) {
  const auto store = open();
  EXPECT_EQ(store->get("a/b"), std::nullopt);
  const std::string value("\0\n\xff id", 6);
  store->set("a/b", value);
  store->set("empty", "");
  EXPECT_EQ(open()->get("a/b"), value);
  EXPECT_EQ(open()->get("empty"), "");
  store->set("a/b", "later");
  EXPECT_EQ(open()->get("a/b"), "later");
}

TEST_P(Stores, OneOfManyIsFirst) {
  std::vector<std::thread> threads;
  std::atomic<int> first{0};
  for (int index = 0; index < 8; ++index) {
    threads.emplace_back([&, index] {
      if (open()->set_once("first", std::to_string(index))) ++first;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first, 1);
}

TEST_P(Stores, WaitUntilSomebodySets) {
  std::thread late([&] {
    std::this_thread::sleep_for(50ms);
    open()->set("id", "42");
  });
  EXPECT_EQ(wait_for(*open(), "id", 10s, "the id"), "42");
  late.join();
  try {
    wait_for(*open(), "never", 30ms, "the id of rank 3");
    ADD_FAILURE() << "the wait should time out";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(), "the id of rank 3 did not arrive within 0.03 s");
  }
}

TEST_P(Stores, RanksGather) {
  std::vector<ProcessPlace> places;
  for (int rank = 0; rank < 5; ++rank) places.push_back({rank, 5, rank});
  EXPECT_EQ(failures_of(places, 10s, 20ms), std::vector<std::string>(5));
}

TEST_P(Stores, MissingRanksAreNamed) {
  const std::vector<std::string> failures = failures_of({{0, 4, 0}, {2, 4, 2}}, 100ms);
  for (const std::string& failure : failures) EXPECT_EQ(failure, "of 4 ranks, 1, 3 have not arrived within 0.1 s");
}

TEST_P(Stores, ARankThatIsThereTwiceIsRefused) {
  const std::vector<std::string> failures = failures_of({{0, 3, 0}, {1, 3, 1}, {1, 3, 1}}, 5s);
  for (const std::string& failure : failures)
    EXPECT_EQ(failure.rfind("two processes are rank 1: process ", 0), 0U) << failure;
}

TEST_P(Stores, CountsThatDifferAreRefused) {
  const std::vector<std::string> failures = failures_of({{0, 2, 0}, {1, 3, 1}}, 5s, 30ms);
  for (const std::string& failure : failures) {
    EXPECT_EQ(failure.substr(0, failure.find('\n')), "rank 1 was started as one of 3 ranks, but another as one of 2");
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Stores, testing::Values(StoreKind::kFile, StoreKind::kTcp),
                         [](const auto& one) { return one.param == StoreKind::kFile ? "File" : "Tcp"; });

TEST(TcpStore, ALostProcessIsNamedWithItsAction) {
  const auto server = serve_tcp_store({});
  const auto survivor = open_tcp_store("localhost", server->port(), "", 5s);
  {
    const auto lost = open_tcp_store("localhost", server->port(), "", 5s);
    lost->set("activity/1", "2F3");
  }
  EXPECT_EQ(wait_for(*survivor, "failure", 5s, "the failure"), "rank 1 was lost in 2F3");
}

TEST(TcpStore, AProcessMayBeLostBeforeItsFirstAction) {
  const auto server = serve_tcp_store({});
  const auto survivor = open_tcp_store("localhost", server->port(), "", 5s);
  { EXPECT_TRUE(open_tcp_store("localhost", server->port(), "", 5s)->set_once("rank/1", "process 7 on a")); }
  EXPECT_EQ(wait_for(*survivor, "failure", 5s, "the failure"), "rank 1 was lost in its set-up");
}

TEST(TcpStore, TellsTheTimeOfItsProcess) {
  const auto server = serve_tcp_store({});
  const auto store = open_tcp_store("localhost", server->port(), "", 5s);
  const Ticks before = host_clock();
  const std::optional<Ticks> told = store->clock();
  EXPECT_GE(told, before);
  EXPECT_LE(told, host_clock());
}

TEST(CommonClock, OfOneMachineIsItsOwn) {
  const auto server = serve_tcp_store({});
  const auto store = open_tcp_store("localhost", server->port(), "", 5s);
  EXPECT_EQ(common_clock_offset(*store, {0, 2, 0}, 1s), 0);
  EXPECT_EQ(common_clock_offset(*store, {1, 2, 1}, 1s), 0);
}

// A store whose process started its clock an hour earlier.
class FarStore : public Store {
 public:
  explicit FarStore(bool has_clock) : has_clock_(has_clock) {}
  void set(const std::string& key, const std::string& value) override { values_[key] = value; }
  bool set_once(const std::string& key, const std::string& value) override {
    return values_.emplace(key, value).second;
  }
  std::optional<std::string> get(const std::string& key) override {
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<Ticks> clock() override { return has_clock_ ? std::optional(host_clock() + kHour) : std::nullopt; }
  static constexpr Ticks kHour = Ticks{3600} * 1'000'000'000'000;

 private:
  bool has_clock_;
  std::map<std::string, std::string> values_;
};

TEST(CommonClock, OfSeveralMachinesIsThatOfRankZero) {
  constexpr double kMillisecond = 1e9;
  for (const bool has_clock : {true, false}) {
    FarStore store(has_clock);
    EXPECT_EQ(common_clock_offset(store, {0, 2, 0}, 1s), 0);
    store.set("clock/machine", "another");
    // A clock that is an hour ahead shows the same system time an hour later; in nanoseconds.
    store.set("clock/system", std::to_string(std::stoll(*store.get("clock/system")) - FarStore::kHour / 1000));
    const Ticks offset = common_clock_offset(store, {1, 2, 1}, 1s);
    EXPECT_NEAR(static_cast<double>(offset), static_cast<double>(FarStore::kHour), 100 * kMillisecond) << has_clock;
  }
}

TEST(TcpStore, AProcessThatIsDoneMayGo) {
  const auto server = serve_tcp_store({});
  const auto survivor = open_tcp_store("localhost", server->port(), "", 5s);
  {
    const auto done = open_tcp_store("localhost", server->port(), "", 5s);
    done->set("activity/1", "the end of the step");
    done->set("done/1", "");
  }
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(survivor->get("failure"), std::nullopt);
}

TEST(TcpStore, NobodyListens) {
  int port = 0;
  { port = serve_tcp_store({})->port(); }
  try {
    open_tcp_store("127.0.0.1", port, "", 50ms);
    ADD_FAILURE() << "nothing should listen";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("no answer from 127.0.0.1:"), std::string::npos) << error.what();
  }
}

TEST(TcpStore, ATakenPortIsNamed) {
  const auto server = serve_tcp_store({});
  EXPECT_THROW(serve_tcp_store({.host = {}, .port = server->port(), .token = {}}), EnvironmentError);
}

// A stranger who connects to a port without knowing the run.
class Stranger {
 public:
  explicit Stranger(int port) : handle_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    EXPECT_EQ(connect(handle_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  Stranger(Stranger&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
  Stranger& operator=(Stranger&&) = delete;
  ~Stranger() {
    if (handle_ >= 0) close(handle_);
  }

  void request(const std::string& bytes) const { send(handle_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  static std::string request(char operation, const std::string& key, const std::string& value) {
    const auto number = [](std::size_t length) {
      const std::uint32_t sent = htonl(static_cast<std::uint32_t>(length));
      return std::string(reinterpret_cast<const char*>(&sent), sizeof(sent));
    };
    return operation + number(key.size()) + number(value.size()) + key + value;
  }
  bool is_shown_out(std::chrono::milliseconds limit) const {
    pollfd watched{handle_, POLLIN, 0};
    char byte = 0;
    return poll(&watched, 1, static_cast<int>(limit.count())) == 1 && recv(handle_, &byte, 1, 0) <= 0;
  }

 private:
  int handle_;
};

// FLOPCAST_ATTACK_SECONDS=60 continues each attack for that time; without it, each is made once.
class StoreUnderAttack : public testing::Test {
 protected:
  static constexpr int kKept = 100;
  std::unique_ptr<TcpServer> server_ = serve_tcp_store({.host = "localhost", .port = 0, .token = "of this run"});
  std::unique_ptr<Store> rank_ = open_tcp_store("localhost", server_->port(), "of this run", 5s);

  StoreUnderAttack() {
    for (int key = 0; key < kKept; ++key) rank_->set("kept/" + std::to_string(key), std::to_string(key * key));
  }

  // The run's own data must survive.
  void TearDown() override {
    for (int key = 0; key < kKept; ++key) {
      EXPECT_EQ(rank_->get("kept/" + std::to_string(key)), std::to_string(key * key));
    }
    EXPECT_EQ(rank_->get("failure"), std::nullopt);
  }

  void attack(const std::function<void()>& once) {
    const char* const seconds = std::getenv("FLOPCAST_ATTACK_SECONDS");
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(seconds == nullptr ? 0 : std::atoi(seconds));
    do {
      once();
      expect_prompt();
    } while (std::chrono::steady_clock::now() < end && !HasFailure());
  }

  // The run must still be served promptly.
  void expect_prompt() {
    const auto begin = std::chrono::steady_clock::now();
    for (int time = 0; time < 20; ++time) {
      rank_->set("x", std::to_string(time));
      EXPECT_EQ(rank_->get("x"), std::to_string(time));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
    EXPECT_EQ(rank_->get("failure"), std::nullopt);
  }
};

TEST_F(StoreUnderAttack, WithoutTheTokenNothingIsSaid) {
  attack([this] {
    const Stranger setter(server_->port());
    setter.request(Stranger::request('s', "failure", "\x1b[31mgone"));
    EXPECT_TRUE(setter.is_shown_out(3s));
    const Stranger guesser(server_->port());
    guesser.request(Stranger::request('h', "of that run", ""));
    guesser.request(Stranger::request('s', "activity/1", "2F3"));
    EXPECT_TRUE(guesser.is_shown_out(3s));
    EXPECT_THROW(open_tcp_store("localhost", server_->port(), "another", 5s), EnvironmentError);
    EXPECT_THROW(open_tcp_store("localhost", server_->port(), "", 5s), EnvironmentError);
  });
  EXPECT_EQ(rank_->get("activity/1"), std::nullopt);
}

TEST_F(StoreUnderAttack, HalfARequestHoldsNobodyUp) {
  attack([this] {
    std::vector<Stranger> strangers;
    for (int one = 0; one < 8; ++one) {
      strangers.emplace_back(server_->port());
      strangers.back().request(Stranger::request('h', "of this run", ""));
      strangers.back().request(Stranger::request('s', "key", std::string(100, 'v')).substr(0, 20));
    }
    expect_prompt();
    // A byte now and then does not extend the time.
    for (int time = 0; time < 8; ++time) {
      for (const Stranger& one : strangers) one.request("v");
      std::this_thread::sleep_for(800ms);
    }
  });
  EXPECT_EQ(rank_->get("key"), std::nullopt);
}

TEST_F(StoreUnderAttack, WhoDoesNotReadIsLeft) {
  rank_->set("large", std::string(std::size_t{1} << 20, 'x'));
  attack([this] {
    const Stranger greedy(server_->port());
    greedy.request(Stranger::request('h', "of this run", ""));
    for (int time = 0; time < 64; ++time) greedy.request(Stranger::request('g', "large", ""));
  });
}

TEST_F(StoreUnderAttack, ManyConnections) {
  attack([this] {
    std::vector<Stranger> strangers;
    for (int one = 0; one < 300; ++one) strangers.emplace_back(server_->port());
    expect_prompt();
    const auto late = open_tcp_store("localhost", server_->port(), "of this run", 5s);
    late->set("late", "here");
  });
  EXPECT_EQ(rank_->get("late"), "here");
}

// Even one with the token: the store is then full and accepts no more, but keeps its data.
TEST_F(StoreUnderAttack, MuchToKeep) {
  const Stranger hoarder(server_->port());
  hoarder.request(Stranger::request('h', "of this run", ""));
  for (int time = 0; time < 260; ++time)
    hoarder.request(Stranger::request('s', "hoard/" + std::to_string(time), std::string(std::size_t{1} << 20, 'x')));
  hoarder.request(Stranger::request('s', std::string(std::size_t{2} << 20, 'k'), ""));
  EXPECT_EQ(rank_->get("none"), std::nullopt);
}

// One that requests much, receives nothing and stays connected: the serving rank can still end.
TEST(TcpStore, WhoStaysDoesNotKeepTheServer) {
  auto server = serve_tcp_store({.host = "localhost", .port = 0, .token = "of this run"});
  const auto rank = open_tcp_store("localhost", server->port(), "of this run", 5s);
  rank->set("large", std::string(std::size_t{1} << 20, 'x'));
  const Stranger stopped(server->port());
  stopped.request(Stranger::request('h', "of this run", ""));
  for (int time = 0; time < 64; ++time) stopped.request(Stranger::request('g', "large", ""));
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(rank->get("none"), std::nullopt);
  const auto begin = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
}

TEST(TcpStore, TokensAreNewEachTime) {
  EXPECT_EQ(new_store_token().size(), 32U);
  EXPECT_NE(new_store_token(), new_store_token());
}

TEST(LaunchEnvironment, OneMachineAndItsToken) {
  const auto variables = [](std::map<std::string, std::string> all) {
    return [all = std::move(all)](const char* name) -> const char* {
      const auto found = all.find(name);
      return found == all.end() ? nullptr : found->second.c_str();
    };
  };
  EXPECT_TRUE(is_on_one_machine(8, variables({{"LOCAL_WORLD_SIZE", "8"}})));
  EXPECT_FALSE(is_on_one_machine(16, variables({{"LOCAL_WORLD_SIZE", "8"}})));
  EXPECT_TRUE(is_on_one_machine(4, variables({{"SLURM_STEP_NUM_NODES", "1"}})));
  EXPECT_FALSE(is_on_one_machine(4, variables({})));
  EXPECT_EQ(store_token(variables({{"SLURM_JOB_ID", "7"}, {"FLOPCAST_STORE_TOKEN", "secret"}})), "secret");
  EXPECT_EQ(store_token(variables({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}})), "7");
  EXPECT_EQ(store_token(variables({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"OMPI_COMM_WORLD_RANK", "0"}})), "");
  EXPECT_EQ(store_token(variables({})), "");
}

TEST(TcpStore, TheServerMayGo) {
  auto server = serve_tcp_store({});
  const auto store = open_tcp_store("127.0.0.1", server->port(), "", 5s);
  server.reset();
  EXPECT_THROW(store->get("x"), EnvironmentError);
}

std::optional<Launched> launched(const std::map<std::string, std::string>& environment) {
  return launched_by([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const std::map<std::string, std::string>& environment) {
  try {
    launched(environment);
  } catch (const ConfigError& error) {
    return error.diagnostic().field + ": " + error.diagnostic().problem;
  }
  return "taken";
}

TEST(LaunchEnvironment, Launchers) {
  EXPECT_FALSE(launched({}));
  EXPECT_FALSE(launched({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  const auto torchrun = launched({{"RANK", "3"},
                                  {"WORLD_SIZE", "8"},
                                  {"LOCAL_RANK", "1"},
                                  {"MASTER_ADDR", "node-a"},
                                  {"MASTER_PORT", "29500"},
                                  {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(torchrun->place.rank, 3);
  EXPECT_EQ(torchrun->place.ranks, 8);
  EXPECT_EQ(torchrun->place.local_rank, 1);
  EXPECT_EQ(torchrun->store->host, "node-a");
  EXPECT_EQ(torchrun->store->port, 29501) << "torchrun's own store uses 29500";
  const auto slurm = launched({{"SLURM_PROCID", "0"},
                               {"SLURM_STEP_NUM_TASKS", "2"},
                               {"SLURM_LOCALID", "0"},
                               {"MASTER_ADDR", "h"},
                               {"MASTER_PORT", "5"}});
  EXPECT_EQ(slurm->place.ranks, 2);
  EXPECT_EQ(slurm->store->port, 5);
  const auto mpirun =
      launched({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(mpirun->place.local_rank, 1);
  EXPECT_FALSE(mpirun->store);
  // MPICH's mpirun in a Slurm job, whose own step is the daemon of this machine.
  const auto hydra = launched({{"PMI_RANK", "3"},
                               {"PMI_SIZE", "4"},
                               {"MPI_LOCALRANKID", "1"},
                               {"SLURM_PROCID", "1"},
                               {"SLURM_STEP_NUM_TASKS", "2"},
                               {"SLURM_LOCALID", "0"}});
  EXPECT_EQ(hydra->place.rank, 3);
  EXPECT_EQ(hydra->place.ranks, 4);
  EXPECT_EQ(hydra->place.local_rank, 1);
  // Slurm's own MPI: its local ranks use Slurm's name.
  const auto pmi2 = launched({{"PMI_RANK", "1"},
                              {"PMI_SIZE", "2"},
                              {"SLURM_PROCID", "1"},
                              {"SLURM_STEP_NUM_TASKS", "2"},
                              {"SLURM_LOCALID", "1"}});
  EXPECT_EQ(pmi2->place.local_rank, 1);
}

TEST(LaunchEnvironment, WrongValuesAreNamed) {
  EXPECT_EQ(refusal({{"RANK", "0"}}), "WORLD_SIZE: is not set, although RANK is");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "2"}}), "RANK: is not set, although WORLD_SIZE is");
  EXPECT_EQ(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK: \"2\" is not a whole number from 0 to 1");
  EXPECT_EQ(refusal({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), "RANK: \"x\" is not a whole number from 0 to 1");
  EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE: \"0\" is not a whole number from 1 to 1000000");
  EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "LOCAL_RANK: is not set, although RANK is");
  EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "a"}}),
            "MASTER_PORT: is not set, although MASTER_ADDR is");
  EXPECT_EQ(
      refusal(
          {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}),
      "MASTER_PORT: \"70000\" is not a whole number from 1 to 65535");
}

TEST(StoreAddresses, AreRead) {
  EXPECT_EQ(parse_store_address("file:/a:b").folder, "/a:b");
  EXPECT_EQ(parse_store_address("tcp:node:80").host, "node");
  EXPECT_EQ(parse_store_address("tcp:::1:80").host, "::1");
  for (const char* wrong : {"", "file:", "tcp:", "tcp:80", "tcp:a:", "tcp:a:0", "udp:a:1"}) {
    EXPECT_THROW(parse_store_address(wrong), ConfigError) << wrong;
  }
}

}  // namespace
}  // namespace flopcast::realrun
