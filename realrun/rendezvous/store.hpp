#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "realrun/device/buffer.hpp"
#include "sim/program/step_times.hpp"

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

}  // namespace flopcast::realrun
