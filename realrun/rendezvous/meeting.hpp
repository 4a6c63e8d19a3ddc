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

/// Key-value store through which the processes of a run meet. Thread-safe. Throws EnvironmentError if the store itself
/// has failed.
class Store : public Interface {
 public:
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Sets the value only if the key has none; returns true if it did.
  virtual bool set_once(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;
  /// host_clock() of the process that holds the store; empty if none does.
  virtual std::optional<Ticks> clock() { return std::nullopt; }
};

/// Returns the value once another process has set it. Throws EnvironmentError after `patience`: "… has not come within
/// 60 s".
std::string wait_for(Store& store, const std::string& key, std::chrono::milliseconds patience, const std::string& what);

/// A store with one file per key in a folder visible to all processes; creates the folder.
std::unique_ptr<Store> open_file_store(const std::string& folder);

/// A store in the process that calls serve_tcp_store(); others connect with open_tcp_store(). A process is lost if its
/// connection breaks after it has registered its rank (gather_ranks) and before it has set "done/RANK": the server then
/// sets "failure".
class TcpServer : public Interface {
 public:
  virtual int port() const = 0;
};
/// Address of a server, and the credentials its clients need.
struct StoreListener {
  std::string host;   ///< an address of this machine, "localhost" for its own processes only; empty: all of them
  int port = 0;       ///< 0: any free port
  std::string token;  ///< a client that does not send it first is disconnected; empty: every client is accepted
};
/// Clients do not block each other: a client has 5 s each for its token, for a request and for receiving the answer; at
/// most 64 connections may be without a token at a time; keys and values are at most 1 MiB each, and 256 MiB together.
/// Throws EnvironmentError if the address or the port is unavailable.
std::unique_ptr<TcpServer> serve_tcp_store(const StoreListener& listener);
/// 128 random bits as text.
std::string new_store_token();
/// Retries until `patience` has passed, because the server may start later. A server that does not answer within
/// `patience` is considered gone. Throws EnvironmentError if the server expects another token.
std::unique_ptr<Store> open_tcp_store(const std::string& host, int port, const std::string& token,
                                      std::chrono::milliseconds patience);

/// Current activity of a rank, for messages about a stuck or failed run.
struct Activity {
  enum class Kind : std::uint8_t { kSetUp, kAction, kFlush, kDone };
  Kind kind = Kind::kSetUp;
  Action action;
};
/// "2F0", "the end of the step".
std::string to_string(const Activity& activity);

inline constexpr const char* kActivityKey = "activity/";  ///< followed by the rank: its current activity
inline constexpr const char* kDoneKey = "done/";          ///< followed by the rank: set once it has ended successfully
inline constexpr const char* kEndedKey = "ended/";        ///< followed by the rank: set once it knows of the failure
inline constexpr const char* kRankKey = "rank/";          ///< followed by the rank: identifies its process

/// Registers the rank and waits for all others. Throws EnvironmentError if another process has registered that rank or
/// expects another number of ranks, or, naming them, if some ranks do not arrive.
void gather_ranks(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience);

/// The offset to add to this process's host_clock() to get that of rank 0: zero on one machine; measured as described
/// at clock_offset() over a TCP store; with a file store from the machines' system clocks, and as accurate as these are
/// set. Called by all ranks. Throws EnvironmentError if rank 0 does not arrive within `patience`.
Ticks common_clock_offset(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience);

/// Broadcasts rank 0's string to all `ranks` processes that mpirun or srun started together; empty if MPI started a
/// different number, or if built without MPI. Initialises and finalises MPI, so all processes must call it exactly
/// once.
std::optional<std::string> broadcast_by_mpi(int rank, int ranks, const std::string& given);

}  // namespace flopcast::realrun
