#include "realrun/transport/nccl/nccl_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/text/error.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

namespace {

constexpr int kAllBlocks = 0;  // as many as NCCL uses by default

}  // namespace

struct NcclTransport::Queued : Pending {
  Queued(std::shared_ptr<Moment> started, std::shared_ptr<Moment> ended, bool is_message)
      : begin(std::move(started)), end(std::move(ended)), message(is_message) {}
  std::shared_ptr<Moment> begin;
  std::shared_ptr<Moment> end;
  bool message = false;
  Interval interval() const override { return {{0, begin}, {0, end}}; }
  std::optional<Mark> arrival() const override {
    if (!message) return std::nullopt;
    return Mark{0, end};
  }
};

/// Applies the time limit during its lifetime, because the rank waits for others during work that has none.
class NcclTransport::Joining {
 public:
  explicit Joining(NcclTransport& transport) : transport_(transport) {
    const std::lock_guard lock(transport_.mutex_);
    was_idle_ = transport_.idle_;
    begin(false);
  }
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;
  ~Joining() {
    const std::lock_guard lock(transport_.mutex_);
    begin(was_idle_);
  }

 private:
  void begin(bool idle) {
    transport_.idle_ = idle;
    transport_.since_ = std::chrono::steady_clock::now();
  }

  NcclTransport& transport_;
  bool was_idle_ = false;
};

NcclTransport::NcclTransport(NcclApi& nccl, Queues& queues, StreamOf stream_of, Store& store,
                             const NcclOptions& options)
    : nccl_(nccl),
      queues_(queues),
      stream_of_(std::move(stream_of)),
      store_(store),
      options_(options),
      activity_(to_string(Activity{})),
      since_(std::chrono::steady_clock::now()),
      watcher_([this] { watch(); }) {}

NcclTransport::~NcclTransport() {
  closing_ = true;
  watcher_.join();
  if (!failed_) leave_all();  // otherwise aborted, which also ends them
}

// Leaving waits for the other members, one of which may have just died.
void NcclTransport::leave_all() {
  constexpr auto kPause = std::chrono::milliseconds(1);
  std::atomic<bool> left{false};
  std::thread leaving([&] {
    for (const NcclApi::Communicator communicator : joined_) nccl_.leave(communicator);
    left = true;
  });
  for (const auto deadline = std::chrono::steady_clock::now() + options_.patience; !left;) {
    if (std::chrono::steady_clock::now() > deadline) {
      {
        const std::lock_guard lock(mutex_);
        failure_ = fmt::format("rank {} is stuck leaving NCCL: another rank has not left for {} ms",
                               options_.place.rank, options_.patience.count());
      }
      abandon();
      break;
    }
    std::this_thread::sleep_for(kPause);
  }
  leaving.join();
}

NcclApi::Communicator NcclTransport::join(const std::string& name, const std::vector<int>& members, int index,
                                          int blocks) {
  throw_if_failed();
  const std::string key = "nccl/" + name;
  NcclId id;
  if (index == 0) {
    id = nccl_.new_id();
    store_.set(key, std::string(id.bytes.begin(), id.bytes.end()));
  } else {
    const std::string what = fmt::format("rank {} (for the communicator of {})", members.front(), name);
    const std::string text = wait_for(store_, key, options_.patience, what);
    FLOPCAST_CHECK(text.size() == id.bytes.size());
    std::copy(text.begin(), text.end(), id.bytes.begin());
  }
  const Joining waits(*this);
  const NcclApi::Communicator communicator = nccl_.join(id, static_cast<int>(members.size()), index, blocks);
  {
    const std::lock_guard lock(mutex_);
    joined_.push_back(communicator);
  }
  return communicator;
}

// Groups of the same members share a communicator, because each takes seconds to form and some hundred megabytes. All
// members form and use their groups in the same order.
Group NcclTransport::form_group(Axis axis, const std::vector<int>& members) {
  Group group = group_of(groups_++, axis, members, rank());
  if (group.size() <= 1) return group;
  const auto [formed, is_new] = formed_.emplace(members, nullptr);
  if (is_new) {
    // Named after the first group with these members: all ranks number groups alike.
    formed->second = join(fmt::format("group {}", group.id), members, group.index, kAllBlocks);
  }
  communicators_[group.id] = formed->second;
  return group;
}

// Follows the list, which is the same on all ranks: both ends of the first remaining pair are always ready.
void NcclTransport::connect(const std::vector<std::pair<int, int>>& pairs) {
  for (const auto& [one, other] : pairs) {
    if (rank() != one && rank() != other) continue;
    for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
      if (connections_.count({from, to}) == 0) connections_[{from, to}] = connect_one(from, to);
    }
  }
}

// NCCL connects two ranks at their first exchange, for which both must wait.
NcclTransport::Connection NcclTransport::connect_one(int from, int to) {
  Connection connection;
  const bool sends = rank() == from;
  connection.communicator =
      join(fmt::format("messages from rank {} to rank {}", from, to), {from, to}, sends ? 0 : 1, kMessageBlocks);
  connection.queue = queues_.add_queue();
  const Buffer word = queues_.reserve_word();
  queues_.wait(connection.queue, queues_.record(Queue::kCompute));
  void* stream = stream_of_(connection.queue);
  {
    const std::lock_guard lock(calling_);
    throw_if_failed();
    if (sends) {
      nccl_.send(word, 1, connection.communicator, stream);
    } else {
      nccl_.receive(word, 0, connection.communicator, stream);
    }
  }
  const Joining waits(*this);
  wait_on_host(queues_.record(connection.queue));
  return connection;
}

void NcclTransport::send(int to, const MessageKey& /*key*/, const Buffer& buffer) {
  const std::lock_guard lock(calling_);
  throw_if_failed();
  const Connection& connection = connections_.at({rank(), to});
  queues_.wait(connection.queue, queues_.record(Queue::kCompute));
  if (!buffer.empty()) nccl_.send(buffer, 1, connection.communicator, stream_of_(connection.queue));
  kept_.keep(connection.queue, queues_.record(connection.queue), {buffer});
  traffic_.add_message(buffer.bytes());
}

Request NcclTransport::receive(int from, const MessageKey& /*key*/, const Buffer& into) {
  const std::lock_guard lock(calling_);
  throw_if_failed();
  const Connection& connection = connections_.at({from, rank()});
  queues_.wait(connection.queue, queues_.record(Queue::kCompute));
  std::shared_ptr<Moment> begin = queues_.record(connection.queue);
  if (!into.empty()) nccl_.receive(into, 0, connection.communicator, stream_of_(connection.queue));
  std::shared_ptr<Moment> end = queues_.record(connection.queue);
  kept_.keep(connection.queue, end, {into});
  return std::make_shared<Queued>(std::move(begin), std::move(end), true);
}

void NcclTransport::wait(const Request& request) {
  throw_if_failed();
  const auto* queued = dynamic_cast<Queued*>(request.get());
  FLOPCAST_CHECK(queued != nullptr);
  queues_.wait(Queue::kCompute, queued->end);
}

void NcclTransport::run(const Group& group, const Collective& collective) {
  const std::shared_ptr<Moment> end = execute(Queue::kCompute, group, collective);
  // Host code relies on all ranks having arrived.
  if (collective.kind == CollectiveKind::kBarrier) wait_on_host(end);
}

Request NcclTransport::start(const Group& group, const Collective& collective) {
  queues_.wait(Queue::kGradient, queues_.record(Queue::kCompute));
  std::shared_ptr<Moment> begin = queues_.record(Queue::kGradient);
  return std::make_shared<Queued>(std::move(begin), execute(Queue::kGradient, group, collective), false);
}

std::shared_ptr<Moment> NcclTransport::execute(Queue queue, const Group& group, const Collective& collective) {
  const std::lock_guard lock(calling_);
  throw_if_failed();
  if (group.size() <= 1) {
    if (copies_own(collective)) queues_.copy(queue, collective.input, collective.output);
  } else {
    const NcclApi::Communicator communicator = communicators_.at(group.id);
    // Operations of a communicator run one after another, even if they are in different queues.
    std::shared_ptr<Moment>& last = last_[communicator];
    if (last != nullptr) queues_.wait(queue, last);
    void* stream = stream_of_(queue);
    if (collective.kind == CollectiveKind::kAllToAll) {
      FLOPCAST_CHECK(collective.sent.empty());
      all_to_all(group, collective, stream);
    } else if (collective.kind == CollectiveKind::kBarrier) {
      if (token_.empty()) token_ = queues_.reserve_word();
      nccl_.collect({.kind = CollectiveKind::kAllReduce, .input = token_, .output = token_}, communicator, stream);
    } else {
      nccl_.collect(collective, communicator, stream);
    }
    traffic_.add(group, collective);
  }
  std::shared_ptr<Moment> end = queues_.record(queue);
  if (group.size() > 1) last_[communicators_.at(group.id)] = end;
  kept_.keep(queue, end, {collective.input, collective.output});
  return end;
}

void NcclTransport::all_to_all(const Group& group, const Collective& collective, void* stream) {
  const NcclApi::Communicator communicator = communicators_.at(group.id);
  const std::size_t part = collective.output.bytes() / group.members.size();
  nccl_.begin_group();
  for (int other = 0; other < group.size(); ++other) {
    const std::size_t offset = static_cast<std::size_t>(other) * part;
    nccl_.send(collective.input.slice(offset, part), other, communicator, stream);
    nccl_.receive(collective.output.slice(offset, part), other, communicator, stream);
  }
  nccl_.end_group();
}

void NcclTransport::note(const Activity& activity) {
  throw_if_failed();
  const std::lock_guard lock(mutex_);
  activity_ = to_string(activity);
  since_ = std::chrono::steady_clock::now();
  idle_ = activity.kind == Activity::Kind::kSetUp || activity.kind == Activity::Kind::kDone;
}

void NcclTransport::wait_on_host(const std::shared_ptr<Moment>& moment) {
  constexpr auto kPause = std::chrono::microseconds(20);
  while (!moment->reached()) {
    throw_if_failed();
    std::this_thread::sleep_for(kPause);
  }
  // Returns immediately, because the moment is reached; tests record the dependency.
  moment->time();
  throw_if_failed();
}

std::string NcclTransport::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void NcclTransport::fail(const std::string& failure) {
  // The first failure is the cause; others follow from it.
  std::string first = failure;
  try {
    if (!store_.set_once("failure", failure)) first = store_.get("failure").value_or(failure);
  } catch (const EnvironmentError&) {
    // Without the store, other processes cannot be notified; this process still reports its own failure.
  }
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    failure_ = first;
    failed_at_ = std::chrono::steady_clock::now();
    failed_ = true;
  }
  abort_all();
}

// All concurrently: an abort may wait until the GPU is idle, and operations of the other communicators run there until
// they are aborted as well.
void NcclTransport::abort_all() {
  using Steady = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::milliseconds(1);
  constexpr auto kLongestCall = std::chrono::seconds(1);
  // No operation begins from here on. One that has begun may itself wait for others, and while a thread is inside a
  // call of a communicator no other thread may use it, not even to abort (NCCL user guide, Thread Safety): the process
  // must then end.
  std::unique_lock calling(calling_, std::defer_lock);
  for (const auto deadline = Steady::now() + kLongestCall; !calling.try_lock();) {
    if (Steady::now() > deadline) return abandon();
    std::this_thread::sleep_for(kPause);
  }
  calling.unlock();
  std::vector<NcclApi::Communicator> communicators;
  {
    const std::lock_guard lock(mutex_);
    communicators = std::exchange(joined_, {});
  }
  std::atomic<std::size_t> ended{0};
  std::vector<std::thread> aborts;
  for (const NcclApi::Communicator communicator : communicators) {
    aborts.emplace_back([this, communicator, &ended] {
      nccl_.abort(communicator);
      ++ended;
    });
  }
  for (const auto deadline = Steady::now() + options_.patience; ended < aborts.size();) {
    if (Steady::now() > deadline) {
      abandon();
      break;
    }
    std::this_thread::sleep_for(kPause);
  }
  for (std::thread& thread : aborts) thread.join();
}

// Failure that is visible to this rank; empty if there is none.
std::string NcclTransport::find_failure() {
  // Does not call the virtual rank(): the watcher may run while a derived object is still being constructed.
  const int own = options_.place.rank;
  std::string activity;
  std::string error;
  std::chrono::steady_clock::time_point since;
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    activity = activity_;
    // Under the lock: an abort removes communicators from the list before it frees them.
    for (const NcclApi::Communicator communicator : joined_) {
      if (error.empty()) error = nccl_.error_of(communicator);
    }
    since = since_;
    idle = idle_;
  }
  store_.set(kActivityKey + std::to_string(own), activity);
  if (const std::optional<std::string> failure = store_.get("failure")) return *failure;
  if (options_.interruption != nullptr && options_.interruption->load() != 0) {
    return fmt::format("stopped by signal {} while rank {} was in {}", options_.interruption->load(), own, activity);
  }
  if (!error.empty()) return fmt::format("rank {} failed in {}: NCCL: {}", own, activity, error);
  if (!idle && std::chrono::steady_clock::now() - since > options_.patience) {
    return fmt::format("rank {} is stuck in {}: no progress for {} ms", own, activity, options_.patience.count());
  }
  return {};
}

void NcclTransport::watch() {
  constexpr auto kPause = std::chrono::milliseconds(50);
  while (!closing_ && !failed_) {
    std::string failure;
    try {
      failure = find_failure();
    } catch (const EnvironmentError& error) {
      failure = error.what();
    }
    if (!failure.empty() && !closing_) fail(failure);
    std::this_thread::sleep_for(kPause);
  }
  while (!closing_) {
    std::this_thread::sleep_for(kPause);
    if (closing_ || std::chrono::steady_clock::now() - failed_at() < options_.patience) continue;
    return abandon();
  }
}

std::chrono::steady_clock::time_point NcclTransport::failed_at() const {
  const std::lock_guard lock(mutex_);
  return failed_at_;
}

}  // namespace flopcast::realrun
