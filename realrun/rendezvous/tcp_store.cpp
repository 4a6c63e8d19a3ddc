#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/device/device.hpp"
#include "realrun/rendezvous/meeting.hpp"

// A request is a letter (h: the token, s: set, o: set once, g: get, c: clock), two lengths of four bytes, key and
// value. The answer is a letter (y or n), a length and a value. Numbers are in network byte order.

namespace flopcast::realrun {

namespace {

constexpr std::uint32_t kLongest = 1U << 20U;
constexpr std::uint32_t kLongestToken = 256;

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
    return transfer(bytes.size(), [&](std::size_t done) {
      return send(handle_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    });
  }
  bool read_all(std::string& bytes) const {
    return transfer(bytes.size(),
                    [&](std::size_t done) { return recv(handle_, bytes.data() + done, bytes.size() - done, 0); });
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
  template <class Move>
  static bool transfer(std::size_t bytes, Move move) {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t count = move(done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return true;
  }

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

// State of a connection: the received part of the next request, and the unsent part of the answers.
struct Client {
  Socket socket;
  std::string in;
  std::string out;
  std::string rank;                             ///< that published its activity on this connection
  bool admitted = false;                        ///< it has sent the token
  std::chrono::steady_clock::time_point since;  ///< start of its pending token, request or answers
};

// Compares in constant time.
bool is_same_token(std::string_view told, std::string_view token) {
  unsigned difference = told.size() == token.size() ? 0U : 1U;
  for (std::size_t at = 0; at < token.size(); ++at) {
    const auto other = static_cast<unsigned char>(at < told.size() ? told[at] : '\0');
    difference |= static_cast<unsigned char>(token[at]) ^ other;
  }
  return difference == 0;
}

// A single thread that never waits for one client: it reads what has arrived and writes what is accepted.
class Server : public TcpServer {
 public:
  explicit Server(const StoreListener& listener) : token_(listener.token), listener_(-1) {
    listen_on(listener);
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
  using Steady = std::chrono::steady_clock;

  static constexpr auto kPatience = std::chrono::seconds(5);  // for a token, a request, an answer
  static constexpr std::size_t kMostStrangers = 64;
  static constexpr std::size_t kMostBytes = std::size_t{1} << 28;    // of all keys and values
  static constexpr std::size_t kMostPending = std::size_t{4} << 20;  // of answers that a client has not received

  void listen_on(const StoreListener& listener) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    const char* const host = listener.host.empty() ? nullptr : listener.host.c_str();
    const bool resolved = getaddrinfo(host, std::to_string(listener.port).c_str(), &wanted, &found) == 0;
    constexpr int kWaiting = 1024;
    int error = EADDRNOTAVAIL;
    std::vector<const addrinfo*> addresses;
    for (const addrinfo* one = resolved ? found : nullptr; one != nullptr; one = one->ai_next) addresses.push_back(one);
    // Sockets on all IPv6 interfaces also accept IPv4.
    std::stable_sort(addresses.begin(), addresses.end(), [host](const addrinfo* a, const addrinfo* b) {
      return host == nullptr && a->ai_family == AF_INET6 && b->ai_family != AF_INET6;
    });
    for (const addrinfo* one : addresses) {
      Socket candidate(socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, one->ai_protocol));
      if (candidate.handle() < 0) continue;
      const int on = 1;
      const int off = 0;
      setsockopt(candidate.handle(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      if (one->ai_family == AF_INET6) setsockopt(candidate.handle(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
      const bool listens =
          bind(candidate.handle(), one->ai_addr, one->ai_addrlen) == 0 && ::listen(candidate.handle(), kWaiting) == 0;
      if (!listens) {
        error = errno;
        continue;
      }
      listener_ = std::move(candidate);
      break;
    }
    if (resolved) freeaddrinfo(found);
    if (listener_.handle() < 0) {
      throw EnvironmentError(fmt::format(
          "cannot listen on {}port {}: {}\n  help: choose another one with MASTER_PORT or --store tcp:HOST:PORT",
          host == nullptr ? "" : listener.host + " ", listener.port, std::strerror(error)));
    }
    sockaddr_in6 bound{};
    socklen_t size = sizeof(bound);
    getsockname(listener_.handle(), reinterpret_cast<sockaddr*>(&bound), &size);
    port_ = ntohs(bound.sin6_port);  // at the same offset for both families
  }

  void serve() {
    constexpr int kPieceMs = 50;
    while (!closing_) {
      std::vector<pollfd> watched = {{listener_.handle(), POLLIN, 0}};
      for (const Client& client : clients_) {
        const short wants_out = client.out.empty() ? 0 : POLLOUT;
        watched.push_back({client.socket.handle(), static_cast<short>(POLLIN | wants_out), 0});
      }
      if (poll(watched.data(), watched.size(), kPieceMs) < 0 && errno != EINTR) continue;
      const auto now = Steady::now();
      for (std::size_t index = watched.size(); index-- > 1;) {
        Client& client = clients_[index - 1];
        const bool owes = !client.admitted || !client.in.empty() || !client.out.empty();
        const bool late = owes && now - client.since > kPatience;
        if (!late && (watched[index].revents == 0 || attend(client, now))) continue;
        lose(client);
        clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(index - 1));
      }
      if (watched.front().revents != 0) admit(now);
    }
  }

  void admit(Steady::time_point now) {
    Socket accepted(accept4(listener_.handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.handle() < 0) return;
    // The oldest client that has not sent its token makes room for the new one.
    const auto is_stranger = [](const Client& client) { return !client.admitted; };
    const auto strangers = static_cast<std::size_t>(std::count_if(clients_.begin(), clients_.end(), is_stranger));
    if (strangers >= kMostStrangers) clients_.erase(std::find_if(clients_.begin(), clients_.end(), is_stranger));
    no_delay(accepted);
    Client client{std::move(accepted), {}, {}, {}, token_.empty(), now};
    clients_.push_back(std::move(client));
  }

  // Reads, answers and writes without blocking; returns false if the client must be disconnected.
  bool attend(Client& client, Steady::time_point now) {
    std::array<char, std::size_t{1} << 16> piece{};
    const ssize_t count = recv(client.socket.handle(), piece.data(), piece.size(), 0);
    const bool waits = count < 0 && (errno == EAGAIN || errno == EINTR);
    if (count == 0 || (count < 0 && !waits)) return false;
    if (count > 0) {
      if (client.in.empty() && client.out.empty() && client.admitted) client.since = now;
      client.in.append(piece.data(), static_cast<std::size_t>(count));
    }
    bool complete = true;
    while (complete) {
      if (!take_request(client, complete)) return false;
      if (complete) client.since = now;
    }
    return write_some(client, now);
  }

  static bool write_some(Client& client, Steady::time_point now) {
    while (!client.out.empty()) {
      const ssize_t count = send(client.socket.handle(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno == EAGAIN;
      client.out.erase(0, static_cast<std::size_t>(count));
      client.since = now;
    }
    return true;
  }

  static std::uint32_t number_at(const std::string& bytes, std::size_t at) {
    std::uint32_t number = 0;
    std::memcpy(&number, bytes.data() + at, sizeof(number));
    return ntohl(number);
  }

  // Processes one request if it is complete, and sets `complete` accordingly. Returns false for an invalid request.
  bool take_request(Client& client, bool& complete) {
    constexpr std::size_t kHeader = 1 + 2 * sizeof(std::uint32_t);
    complete = client.in.size() >= kHeader;
    if (!complete) return true;
    const std::uint32_t key_length = number_at(client.in, 1);
    const std::uint32_t value_length = number_at(client.in, 1 + sizeof(std::uint32_t));
    const std::uint32_t longest = client.admitted ? kLongest : kLongestToken;
    if (key_length > longest || value_length > longest) return false;
    const std::size_t size = kHeader + key_length + value_length;
    complete = client.in.size() >= size;
    if (!complete) return true;
    const char operation = client.in.front();
    const std::string key = client.in.substr(kHeader, key_length);
    std::string value = client.in.substr(kHeader + key_length, value_length);
    client.in.erase(0, size);
    if (operation == 'h') {
      client.admitted = is_same_token(key, token_);
      if (client.admitted) client.out += "y" + number_text(0);
      return client.admitted;
    }
    return client.admitted && answer(client, operation, key, std::move(value));
  }

  bool answer(Client& client, char operation, const std::string& key, std::string value) {
    bool yes = true;
    std::string result;
    if (operation == 's' || operation == 'o') {
      const auto found = values_.find(key);
      const bool is_new = found == values_.end();
      const std::size_t before = is_new ? 0 : key.size() + found->second.size();
      yes = operation == 's' || is_new;
      if (yes) {
        bytes_ = bytes_ - before + key.size() + value.size();
        if (bytes_ > kMostBytes) return false;
        values_[key] = std::move(value);
        const char* const tells = operation == 's' ? kActivityKey : kRankKey;
        if (key.rfind(tells, 0) == 0) client.rank = key.substr(std::strlen(tells));
      }
    } else if (operation == 'c') {
      result = std::to_string(host_clock());
    } else if (operation == 'g') {
      const auto found = values_.find(key);
      yes = found != values_.end();
      if (yes) result = found->second;
    } else {
      return false;
    }
    client.out += (yes ? "y" : "n") + number_text(result.size()) + result;
    return client.out.size() <= kMostPending;
  }

  void lose(const Client& client) {
    if (client.rank.empty() || values_.count(kDoneKey + client.rank) > 0) return;
    const auto found = values_.find(kActivityKey + client.rank);
    const std::string activity = found == values_.end() ? to_string(Activity()) : found->second;
    values_.emplace("failure", fmt::format("rank {} was lost in {}", client.rank, activity));
  }

  const std::string token_;
  Socket listener_;
  int port_ = 0;
  std::atomic<bool> closing_{false};
  std::vector<Client> clients_;  // used by the serving thread only, like the values
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  std::thread thread_;
};

class TcpStore : public Store {
 public:
  TcpStore(Socket socket, std::string server) : socket_(std::move(socket)), server_(std::move(server)) {}

  void set(const std::string& key, const std::string& value) override { ask('s', key, value); }
  bool set_once(const std::string& key, const std::string& value) override { return ask('o', key, value).has_value(); }
  std::optional<std::string> get(const std::string& key) override { return ask('g', key, {}); }
  /// Throws EnvironmentError if the store belongs to another run.
  void introduce(const std::string& token) {
    try {
      ask('h', token, {});
    } catch (const EnvironmentError&) {
      throw EnvironmentError(fmt::format(
          "the store at {} rejected this run's token\n  help: set the same FLOPCAST_STORE_TOKEN for all processes",
          server_));
    }
  }
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
      // A late answer would be mistaken for the next one.
      shutdown(socket_.handle(), SHUT_RDWR);
      throw EnvironmentError(fmt::format("the store at {} is gone: its process, rank 0, has ended", server_));
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

// The handle is negative if nothing listens yet.
Socket try_to_connect(const std::string& host, int port, std::chrono::milliseconds patience) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (problem == EAI_NONAME) throw EnvironmentError(fmt::format("unknown host {}", host));
  Socket connected(-1);
  for (const addrinfo* one = problem == 0 ? found : nullptr; one != nullptr; one = one->ai_next) {
    Socket candidate(socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
    // If a firewall drops packets, the system itself would retry for minutes.
    limit_waiting(candidate, SO_SNDTIMEO, patience);
    if (candidate.handle() < 0 || connect(candidate.handle(), one->ai_addr, one->ai_addrlen) != 0) continue;
    no_delay(candidate);
    // A machine that loses power does not close its connections.
    constexpr auto kShortest = std::chrono::seconds(10);
    limit_waiting(candidate, SO_RCVTIMEO, std::max<std::chrono::milliseconds>(patience, kShortest));
    connected = std::move(candidate);
    break;
  }
  if (problem == 0) freeaddrinfo(found);
  return connected;
}

}  // namespace

std::unique_ptr<TcpServer> serve_tcp_store(const StoreListener& listener) {
  return std::make_unique<Server>(listener);
}

std::string new_store_token() {
  constexpr std::size_t kBytes = 16;
  std::array<unsigned char, kBytes> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw EnvironmentError(fmt::format("the system provides no random numbers: {}", std::strerror(errno)));
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

std::unique_ptr<Store> open_tcp_store(const std::string& host, int port, const std::string& token,
                                      std::chrono::milliseconds patience) {
  using Steady = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPause{20};
  const auto deadline = Steady::now() + patience;
  const std::string server = fmt::format("{}:{}", host, port);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Steady::now());
    Socket socket = try_to_connect(host, port, std::max(left, kPause));
    if (socket.handle() >= 0) {
      auto store = std::make_unique<TcpStore>(std::move(socket), server);
      store->introduce(token);
      return store;
    }
    if (Steady::now() >= deadline) {
      throw EnvironmentError(fmt::format("no answer from {} within {} s: rank 0 should listen there", server,
                                         static_cast<double>(patience.count()) / 1000.0));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace flopcast::realrun
