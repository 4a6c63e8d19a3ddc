#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/device/device.hpp"
#include "realrun/rendezvous/meeting.hpp"
#include "realrun/rendezvous/store.hpp"

// A request is a letter (s: set, o: set once, g: get, c: clock), two lengths of four bytes, and key and value. The
// answer is a letter (y or n), a length and a value. Numbers go in network order.

namespace flopcast::realrun {

namespace {

constexpr std::uint32_t kLongest = 1U << 20U;

class Socket {
 public:
  explicit Socket(int handle) : handle_(handle) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  Socket(Socket&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Socket() {
    if (handle_ >= 0) close(handle_);
  }
  int handle() const { return handle_; }

  bool write_all(const std::string& bytes) const {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t count = send(handle_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return true;
  }
  bool read_all(std::string& bytes) const {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t count = recv(handle_, bytes.data() + done, bytes.size() - done, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return true;
  }
  bool read_number(std::uint32_t& number) const {
    std::string bytes(sizeof(number), '\0');
    if (!read_all(bytes)) return false;
    std::memcpy(&number, bytes.data(), sizeof(number));
    number = ntohl(number);
    return number <= kLongest;
  }
  bool read_text(std::uint32_t length, std::string& text) const {
    text.assign(length, '\0');
    return read_all(text);
  }

 private:
  int handle_ = -1;
};

std::string number_text(std::size_t number) {
  const std::uint32_t sent = htonl(static_cast<std::uint32_t>(number));
  std::string text(sizeof(sent), '\0');
  std::memcpy(text.data(), &sent, sizeof(sent));
  return text;
}

void no_delay(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

class Server : public TcpServer {
 public:
  explicit Server(int port) : listener_(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (listener_.handle() < 0) listener_ = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    const int off = 0;
    setsockopt(listener_.handle(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(listener_.handle(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    bind_to(port);
    thread_ = std::thread([this] { serve(); });
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() override {
    closing_ = true;
    thread_.join();
  }
  int port() const override { return port_; }

 private:
  struct Client {
    Socket socket;
    std::string rank;  // that has said on this connection what it is at
  };

  void bind_to(int port) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(static_cast<std::uint16_t>(port));
    sockaddr_in older{};
    older.sin_family = AF_INET;
    older.sin_port = address.sin6_port;
    constexpr int kWaiting = 1024;
    int result = bind(listener_.handle(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
    if (result != 0 && errno == EAFNOSUPPORT) {
      listener_ = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      result = bind(listener_.handle(), reinterpret_cast<sockaddr*>(&older), sizeof(older));
    }
    if (result != 0 || listen(listener_.handle(), kWaiting) != 0) {
      throw EnvironmentError(
          fmt::format("port {} cannot be listened on: {}\n  help: MASTER_PORT or --store "
                      "tcp:HOST:PORT choose another",
                      port, std::strerror(errno)));
    }
    sockaddr_in6 bound{};
    socklen_t size = sizeof(bound);
    getsockname(listener_.handle(), reinterpret_cast<sockaddr*>(&bound), &size);
    port_ = ntohs(bound.sin6_port);  // at the same place in both families
  }

  void serve() {
    constexpr int kPieceMs = 50;
    while (!closing_) {
      std::vector<pollfd> watched = {{listener_.handle(), POLLIN, 0}};
      for (const Client& client : clients_) watched.push_back({client.socket.handle(), POLLIN, 0});
      if (poll(watched.data(), watched.size(), kPieceMs) <= 0) continue;
      for (std::size_t index = watched.size(); index-- > 1;) {
        if (watched[index].revents == 0 || answer(clients_[index - 1])) continue;
        lose(clients_[index - 1]);
        clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(index - 1));
      }
      if (watched.front().revents == 0) continue;
      Socket accepted(accept(listener_.handle(), nullptr, nullptr));
      if (accepted.handle() < 0) continue;
      // A stranger who sends half a request must not hold up the others.
      const timeval limit{5, 0};
      setsockopt(accepted.handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
      no_delay(accepted);
      clients_.push_back({std::move(accepted), {}});
    }
  }

  bool answer(Client& client) {
    std::string operation(1, '\0');
    std::uint32_t key_length = 0;
    std::uint32_t value_length = 0;
    std::string key;
    std::string value;
    const Socket& socket = client.socket;
    if (!socket.read_all(operation) || !socket.read_number(key_length) || !socket.read_number(value_length) ||
        !socket.read_text(key_length, key) || !socket.read_text(value_length, value)) {
      return false;
    }
    bool yes = true;
    std::string result;
    if (operation == "s") {
      values_[key] = value;
      if (key.rfind(kActivityKey, 0) == 0) client.rank = key.substr(std::strlen(kActivityKey));
    } else if (operation == "o") {
      yes = values_.emplace(key, value).second;
      if (yes && key.rfind(kRankKey, 0) == 0) client.rank = key.substr(std::strlen(kRankKey));
    } else if (operation == "c") {
      result = std::to_string(host_clock());
    } else if (operation == "g") {
      const auto found = values_.find(key);
      yes = found != values_.end();
      if (yes) result = found->second;
    } else {
      return false;
    }
    return socket.write_all((yes ? "y" : "n") + number_text(result.size()) + result);
  }

  void lose(const Client& client) {
    if (client.rank.empty() || values_.count(kDoneKey + client.rank) > 0) return;
    const auto found = values_.find(kActivityKey + client.rank);
    const std::string activity = found == values_.end() ? to_string(Activity()) : found->second;
    values_.emplace("failure", fmt::format("rank {} was lost in {}", client.rank, activity));
  }

  Socket listener_;
  int port_ = 0;
  std::atomic<bool> closing_{false};
  std::vector<Client> clients_;  // of the serving thread, as the values are
  std::map<std::string, std::string> values_;
  std::thread thread_;
};

class TcpStore : public Store {
 public:
  TcpStore(Socket socket, std::string server) : socket_(std::move(socket)), server_(std::move(server)) {}

  void set(const std::string& key, const std::string& value) override { ask('s', key, value); }
  bool set_once(const std::string& key, const std::string& value) override { return ask('o', key, value).has_value(); }
  std::optional<std::string> get(const std::string& key) override { return ask('g', key, {}); }
  std::optional<Ticks> clock() override {
    const std::optional<std::string> told = ask('c', {}, {});
    return told ? std::optional<Ticks>(std::stoll(*told)) : std::nullopt;
  }

 private:
  std::optional<std::string> ask(char operation, const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    std::string answer(1, '\0');
    std::uint32_t length = 0;
    std::string result;
    const std::string request = operation + number_text(key.size()) + number_text(value.size()) + key + value;
    if (!socket_.write_all(request) || !socket_.read_all(answer) || !socket_.read_number(length) ||
        !socket_.read_text(length, result)) {
      // An answer that comes late would be taken for the next one.
      shutdown(socket_.handle(), SHUT_RDWR);
      throw EnvironmentError(fmt::format("the store at {} has gone: its process, rank 0, has ended", server_));
    }
    if (answer != "y") return std::nullopt;
    return result;
  }

  std::mutex mutex_;
  Socket socket_;
  std::string server_;
};

void limit_waiting(const Socket& socket, int direction, std::chrono::milliseconds limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  timeval time{};
  time.tv_sec = seconds.count();
  time.tv_usec = std::chrono::microseconds(limit - seconds).count();
  setsockopt(socket.handle(), SOL_SOCKET, direction, &time, sizeof(time));
}

// A handle below 0 where nobody listens yet.
Socket try_to_connect(const std::string& host, int port, std::chrono::milliseconds patience) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (problem == EAI_NONAME) throw EnvironmentError(fmt::format("no host is called {}", host));
  Socket connected(-1);
  for (const addrinfo* one = problem == 0 ? found : nullptr; one != nullptr; one = one->ai_next) {
    Socket candidate(socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
    // Where a wall swallows what is sent, the system itself would try for minutes.
    limit_waiting(candidate, SO_SNDTIMEO, patience);
    if (candidate.handle() < 0 || connect(candidate.handle(), one->ai_addr, one->ai_addrlen) != 0) continue;
    no_delay(candidate);
    // A machine that has lost its power says no good-bye.
    constexpr auto kShortest = std::chrono::seconds(10);
    limit_waiting(candidate, SO_RCVTIMEO, std::max<std::chrono::milliseconds>(patience, kShortest));
    connected = std::move(candidate);
    break;
  }
  if (problem == 0) freeaddrinfo(found);
  return connected;
}

}  // namespace

std::unique_ptr<TcpServer> serve_tcp_store(int port) {
  return std::make_unique<Server>(port);
}

std::unique_ptr<Store> open_tcp_store(const std::string& host, int port, std::chrono::milliseconds patience) {
  using Steady = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPause{20};
  const auto deadline = Steady::now() + patience;
  const std::string server = fmt::format("{}:{}", host, port);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Steady::now());
    Socket socket = try_to_connect(host, port, std::max(left, kPause));
    if (socket.handle() >= 0) return std::make_unique<TcpStore>(std::move(socket), server);
    if (Steady::now() >= deadline) {
      throw EnvironmentError(fmt::format("nobody answers at {} after {} s: rank 0 listens there", server,
                                         static_cast<double>(patience.count()) / 1000.0));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace flopcast::realrun
