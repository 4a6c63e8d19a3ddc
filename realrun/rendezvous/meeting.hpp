#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/host/processes.hpp"
#include "realrun/device/buffer.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"

namespace flopcast::realrun {

/// Where the processes of a run meet: keys with values, the same for all. Any thread may call. Throws EnvironmentError
/// when the store itself has failed.
class Store : public Interface {
 public:
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Nothing where the key has a value already; returns whether it had none.
  virtual bool set_once(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;
  /// host_clock() of the process that has the store; nothing where none has.
  virtual std::optional<Ticks> clock() { return std::nullopt; }
};

/// The value, once somebody has set it. After `patience` throws EnvironmentError: "… has not come within 60 s".
std::string wait_for(Store& store, const std::string& key, std::chrono::milliseconds patience, const std::string& what);

/// One file a key in a folder that all processes see, made when it is not there.
std::unique_ptr<Store> open_file_store(const std::string& folder);

/// A store in the process that calls serve_tcp_store(); others reach it by open_tcp_store(). A process whose connection
/// breaks after it has said which rank it is (gather_ranks) and before it has set "done/RANK" is lost: the server sets
/// "failure" then.
class TcpServer : public Interface {
 public:
  virtual int port() const = 0;
};
/// Where a server listens, and what its clients have to know.
struct StoreListener {
  std::string host;   ///< an address of this machine, "localhost" for its own processes alone; empty: all of them
  int port = 0;       ///< 0: any that is free
  std::string token;  ///< who does not send it first is shown out; empty: anybody is let in
};
/// Nobody waits for another's connection: a client has 5 s for its token, for each request and for taking its answers;
/// 64 connections may be without a token at a time; keys and values are at most 1 MiB each, and 256 MiB together.
/// Throws EnvironmentError where the address or the port is not to be had.
std::unique_ptr<TcpServer> serve_tcp_store(const StoreListener& listener);
/// 128 random bits, as a text.
std::string new_store_token();
/// Tries until `patience` is over: the server may start later. One that does not answer for as long has gone. Throws
/// EnvironmentError where the server knows another token.
std::unique_ptr<Store> open_tcp_store(const std::string& host, int port, const std::string& token,
                                      std::chrono::milliseconds patience);

/// What a rank is at, for messages about a stuck or failed run.
struct Activity {
  enum class Kind : std::uint8_t { kSetUp, kAction, kFlush, kDone };
  Kind kind = Kind::kSetUp;
  Action action;
};
/// "2F0", "the end of the step".
std::string to_string(const Activity& activity);

inline constexpr const char* kActivityKey = "activity/";  ///< and the rank: what it is at
inline constexpr const char* kDoneKey = "done/";          ///< and the rank, once it has ended well
inline constexpr const char* kEndedKey = "ended/";        ///< and the rank, once it knows of the failure
inline constexpr const char* kRankKey = "rank/";          ///< and the rank: which process it is

/// Enters the rank and waits until all ranks are there. Throws EnvironmentError when another process says it has that
/// rank, counts other ranks, or when some do not come: then it names them.
void gather_ranks(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience);

/// What to add to this process's host_clock() to have that of rank 0: nothing on one machine; over a TCP store measured
/// as clock_offset() says; with a store of files by the machines' system clocks, and as good as these are set. Called
/// by all ranks. Throws EnvironmentError when rank 0 does not come within `patience`.
Ticks common_clock_offset(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience);

/// What the process of rank 0 gives to all processes that mpirun or srun started together, `ranks` of them; nothing
/// where MPI has not started as many, or when built without it. MPI is begun and ended by the call, which all of them
/// make, once.
std::optional<std::string> tell_by_mpi(int rank, int ranks, const std::string& given);

}  // namespace flopcast::realrun
