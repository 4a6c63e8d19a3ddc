#include "realrun/transport/mpi/mpi_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/device/device.hpp"
#include "realrun/transport/mpi/processes.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

// Advances all operations in progress until `ready`; `awaited` names the awaited event if the wait exceeds the
// patience.
template <class Ready, class Awaited>
void MpiTransport::wait_until(Ready ready, Awaited awaited) {
  using Clock = std::chrono::steady_clock;
  // Answers of a busy neighbour arrive within microseconds; a sleep costs some tens.
  constexpr auto kEager = std::chrono::microseconds(20);
  constexpr auto kShortest = std::chrono::microseconds(20);
  constexpr auto kLongest = std::chrono::microseconds(500);
  // Staggered, so that only one of several ranks with the same wait reports it.
  const auto patience = patience_ + std::chrono::milliseconds(2 * (rank() % 50));
  const Clock::time_point begin = Clock::now();
  while (true) {
    progress();
    if (ready()) return;
    processes_.watch();
    const auto waited = Clock::now() - begin;
    if (waited > patience) {
      // The first to give up may wait for a rank that itself waits, so it also names the stopped ranks.
      processes_.report_failure(fmt::format("rank {} is stuck in {}: it has waited {} ms for {}{}", rank(),
                                            to_string(*processes_.board().activity_of(processes_.rank())),
                                            patience_.count(), awaited(), stopped_ranks()));
      throw Aborted(processes_.failure());
    }
    // Sleeps for a hundredth of the time waited: long waits leave the cores to others, and wake up only slightly late.
    if (waited > kEager) std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 100, kShortest, kLongest));
  }
}

/// This member's part of one collective, implemented by messages to each of the others (CollectivePhase). It sends as
/// many bytes as a ring would: 2(n-1)/n·S for an all-reduce. MPI's own collectives may sum in an order that depends on
/// message size and timing; these give the same bits as threads. Left out: rings and trees, whose n-1 or log n messages
/// would be fewer than n-1 in each direction in groups of hundreds of members.
class GroupOperation {
 public:
  /// Begins the operation. `tag` is that of the group; messages of a group's successive operations stay in order.
  GroupOperation(MPI_Comm channel, int tag, const Group& group, const Collective& collective)
      : channel_(channel), tag_(tag), group_(group), collective_(collective) {
    const bool reduces = has_phase(collective.kind, CollectivePhase::kReduce);
    begin(reduces ? CollectivePhase::kReduce : CollectivePhase::kCollect);
  }

  /// Advances as far as messages have arrived; returns true once it is done. Never waits.
  bool progress() {
    while (phase_) {
      std::vector<Message> left;
      for (Message& message : messages_) {
        const bool ended = message.incoming ? has_received(message.request, message.bytes) : has_ended(message.request);
        if (!ended) left.push_back(message);
      }
      messages_ = std::move(left);
      if (!messages_.empty()) return false;
      if (phase_ == CollectivePhase::kReduce) sum_inputs();
      const bool collects = phase_ == CollectivePhase::kReduce && collective_.kind == CollectiveKind::kAllReduce;
      phase_ = std::nullopt;
      if (collects) begin(CollectivePhase::kCollect);
    }
    return true;
  }
  /// Ranks that this member waits for.
  std::vector<int> awaited() const {
    std::vector<int> ranks;
    for (const Message& message : messages_) {
      if (message.incoming) ranks.push_back(group_.members[static_cast<std::size_t>(message.member)]);
    }
    return ranks;
  }

 private:
  struct Message {
    MPI_Request request;
    int member;
    bool incoming;
    std::size_t bytes;
  };
  // Exchanges one message each way with every other member; empty messages are skipped except in a barrier.
  void begin(CollectivePhase phase) {
    phase_ = phase;
    const bool adds_up = phase == CollectivePhase::kReduce;
    const bool is_barrier = collective_.kind == CollectiveKind::kBarrier;
    const std::size_t own = arriving(group_, collective_, phase, group_.index).bytes;
    if (adds_up) received_.resize(own * static_cast<std::size_t>(group_.size() - 1));
    std::byte* next = received_.data();
    for (int member = 0; member < group_.size(); ++member) {
      const ByteRange from = leaving(group_, collective_, phase, member);
      const ByteRange into = arriving(group_, collective_, phase, member);
      const std::byte* source = sent_buffer(collective_, phase).address() + from.first;
      std::byte* target = adds_up ? next : collective_.output.address() + into.first;
      if (member == group_.index) {
        FLOPCAST_CHECK(from.bytes == into.bytes);
        if (!adds_up && source != target) copy_bytes(target, source, into.bytes);
        continue;
      }
      if (adds_up) next += into.bytes;
      if (into.bytes > 0 || is_barrier) receive(member, target, into.bytes);
      if (from.bytes > 0 || is_barrier) send(member, source, from.bytes);
    }
  }
  // Sums in the order of the members.
  void sum_inputs() {
    const ByteRange own = leaving(group_, collective_, CollectivePhase::kReduce, group_.index);
    const ByteRange sum = arriving(group_, collective_, CollectivePhase::kReduce, group_.index);
    std::vector<const std::byte*> inputs;
    const std::byte* next = received_.data();
    for (int member = 0; member < group_.size(); ++member) {
      const bool is_own = member == group_.index;
      inputs.push_back(is_own ? collective_.input.address() + own.first : next);
      if (!is_own) next += own.bytes;
    }
    reduce_in_order(inputs, own.bytes / size_of(collective_.element), collective_.element, collective_.reduction,
                    collective_.output.address() + sum.first);
    received_ = {};
  }
  void send(int member, const std::byte* from, std::size_t bytes) {
    const int rank = group_.members[static_cast<std::size_t>(member)];
    messages_.push_back({send_bytes(from, bytes, rank, tag_, channel_), member, false, bytes});
  }
  void receive(int member, std::byte* into, std::size_t bytes) {
    const int rank = group_.members[static_cast<std::size_t>(member)];
    messages_.push_back({receive_bytes(into, bytes, rank, tag_, channel_), member, true, bytes});
  }

  MPI_Comm channel_;
  int tag_;
  Group group_;
  Collective collective_;
  std::optional<CollectivePhase> phase_;  // empty: done
  std::vector<Message> messages_;
  std::vector<std::byte> received_;  // parts to be summed, by member without this one
};

struct MpiTransport::Receive : Pending {
  Receive(int sender, const MessageKey& message, Buffer target) : from(sender), key(message), into(std::move(target)) {}
  bool progress() { return done = done || has_received(request, into.bytes()); }
  int from;
  MessageKey key;
  Buffer into;
  MPI_Request request = MPI_REQUEST_NULL;
  bool done = false;
};

struct MpiTransport::Started : Pending {
  Started(Group members, Collective what) : group(std::move(members)), collective(std::move(what)) {}
  Interval interval() const override { return ran; }
  Group group;
  Collective collective;
  std::unique_ptr<GroupOperation> operation;  // set once its turn has come
  bool done = false;
  Interval ran;
};

namespace {

// For a group of one: nothing is sent.
void copy_own(const Collective& collective) {
  if (copies_own(collective))
    copy_bytes(collective.output.address(), collective.input.address(), collective.output.bytes());
}

}  // namespace

MpiTransport::MpiTransport(Processes& processes, std::chrono::milliseconds patience)
    : processes_(processes),
      patience_(patience),
      largest_tag_(realrun::largest_tag()),
      under_way_(std::make_unique<UnderWay>()) {
  for (MPI_Comm* channel : {&messages_, &collectives_, &reports_}) copy_world(*channel);
}

// MPI_Comm_dup would spin until all ranks arrive: ranks that outnumber the cores would then delay each other.
void MpiTransport::copy_world(MPI_Comm& channel) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &channel, &request), "copy a communicator");
  wait_until([&] { return has_ended(request); }, [] { return std::string("all processes to start"); });
}

MpiTransport::~MpiTransport() {
  if (!processes_.failure().empty()) {
    // MPI may still write to these buffers: they must exist until the process ends.
    static_cast<void>(under_way_.release());
    return;
  }
  for (MPI_Comm* channel : {&messages_, &collectives_, &reports_}) MPI_Comm_free(channel);
}

void MpiTransport::progress() {
  beats_.fetch_add(1, std::memory_order_relaxed);
  std::list<Send>& sends = under_way_->sends;
  for (auto send = sends.begin(); send != sends.end();) {
    send = has_ended(send->request) ? sends.erase(send) : std::next(send);
  }
  std::list<std::shared_ptr<Receive>>& receives = under_way_->receives;
  for (auto receive = receives.begin(); receive != receives.end();) {
    receive = (*receive)->progress() ? receives.erase(receive) : std::next(receive);
  }
  progress_queue();
}

void MpiTransport::progress_queue() {
  std::deque<std::shared_ptr<Started>>& queue = under_way_->queue;
  while (!queue.empty()) {
    Started& front = *queue.front();
    if (front.operation == nullptr) {
      front.ran.start = {host_clock()};
      front.operation =
          std::make_unique<GroupOperation>(collectives_, tag_of(front.group), front.group, front.collective);
    }
    if (!front.operation->progress()) return;
    front.ran.end = {host_clock()};
    front.done = true;
    traffic_.add(front.group, front.collective);
    queue.pop_front();
  }
}

// Each poll costs a system call per operation in progress. If ranks outnumber cores, libraries are configured to yield
// the core when a call finds nothing (mpi_yield_when_idle), and on a busy machine it is not returned soon.
void MpiTransport::poke() {
  constexpr auto kOftenEnough = std::chrono::microseconds(50);
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  if (now - poked_ < kOftenEnough) return;
  poked_ = now;
  progress();
  processes_.watch();
}

Group MpiTransport::form_group(Axis axis, const std::vector<int>& members) {
  return group_of(groups_++, axis, members, rank());
}

int MpiTransport::tag_of(const MessageKey& key) const {
  const std::uint64_t number =
      (std::uint64_t{key.microbatch} * 2 + (key.activation ? 0U : 1U)) * (kMaxStages + 1U) + key.stage;
  return static_cast<int>(number % (static_cast<std::uint64_t>(largest_tag_) + 1));
}

void MpiTransport::send(int to, const MessageKey& key, const Buffer& buffer) {
  traffic_.add_message(buffer.bytes());
  under_way_->sends.push_back({send_bytes(buffer.address(), buffer.bytes(), to, tag_of(key), messages_), buffer});
}

Request MpiTransport::receive(int from, const MessageKey& key, const Buffer& into) {
  auto receive = std::make_shared<Receive>(from, key, into);
  receive->request = receive_bytes(into.address(), into.bytes(), from, tag_of(key), messages_);
  under_way_->receives.push_back(receive);
  return receive;
}

void MpiTransport::wait_for(const Receive& receive) {
  wait_until([&] { return receive.done; },
             [&] { return fmt::format("{} from {}", to_string(receive.key), processes_.whereabouts(receive.from)); });
}

void MpiTransport::wait(const Request& request) {
  if (const auto* receive = dynamic_cast<const Receive*>(request.get())) return wait_for(*receive);
  const auto* started = dynamic_cast<const Started*>(request.get());
  FLOPCAST_CHECK(started != nullptr);
  wait_until([&] { return started->done; },
             [&] {
               const Started& front = *under_way_->queue.front();
               return fmt::format("a collective with {}", list_of(front.operation->awaited()));
             });
}

std::string MpiTransport::list_of(const std::vector<int>& ranks) const {
  std::string text;
  for (const int rank : ranks) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", processes_.whereabouts(rank));
  }
  return text;
}

void MpiTransport::run(const Group& group, const Collective& collective) {
  if (has_started(group)) {
    wait(start(group, collective));
  } else {
    execute(group, collective);
  }
}

bool MpiTransport::has_started(const Group& group) const {
  const auto is_of_group = [&](const std::shared_ptr<Started>& started) { return started->group.id == group.id; };
  return std::any_of(under_way_->queue.begin(), under_way_->queue.end(), is_of_group);
}

Request MpiTransport::start(const Group& group, const Collective& collective) {
  auto started = std::make_shared<Started>(group, collective);
  if (group.size() <= 1) {
    started->ran.start = {host_clock()};
    copy_own(collective);
    started->ran.end = {host_clock()};
    started->done = true;
    return started;
  }
  under_way_->queue.push_back(started);
  progress_queue();
  return started;
}

void MpiTransport::execute(const Group& group, const Collective& collective) {
  if (group.size() <= 1) return copy_own(collective);
  // Kept with the objects that must stay in place if the run is lost in the meantime.
  auto running = std::make_shared<Started>(group, collective);
  running->operation = std::make_unique<GroupOperation>(collectives_, tag_of(group), group, collective);
  under_way_->kept = running;
  wait_until([&] { return running->operation->progress(); },
             [&] { return fmt::format("a collective with {}", list_of(running->operation->awaited())); });
  under_way_->kept = nullptr;
  traffic_.add(group, collective);
}

void MpiTransport::finish() {
  std::vector<int> all(static_cast<std::size_t>(rank_count()));
  std::iota(all.begin(), all.end(), 0);
  execute(form_group(Axis::kPipeline, all), {.kind = CollectiveKind::kBarrier});
  wait_until([&] { return under_way_->sends.empty() && under_way_->queue.empty(); },
             [] { return std::string("its messages to arrive"); });
}

}  // namespace flopcast::realrun

// Reports to rank 0 that are not part of the training: results and clocks.

namespace flopcast::realrun {

namespace {

constexpr int kReportTag = 0;

template <class T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

template <class T>
T value_of(const std::vector<std::byte>& bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

}  // namespace

void MpiTransport::send_report(int to, std::vector<std::byte> bytes) {
  const auto kept = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  under_way_->kept = kept;
  MPI_Request request = send_bytes(kept->data(), kept->size(), to, kReportTag, reports_);
  wait_until([&] { return has_ended(request); },
             [&] { return fmt::format("its report to be received by {}", processes_.whereabouts(to)); });
  under_way_->kept = nullptr;
}

std::vector<std::byte> MpiTransport::receive_report(int from, std::size_t size) {
  const auto kept = std::make_shared<std::vector<std::byte>>(size);
  under_way_->kept = kept;
  MPI_Request request = receive_bytes(kept->data(), size, from, kReportTag, reports_);
  wait_until([&] { return has_received(request, size); },
             [&] { return fmt::format("the report of {}", processes_.whereabouts(from)); });
  under_way_->kept = nullptr;
  return std::move(*kept);
}

std::vector<std::vector<std::byte>> MpiTransport::gather(const std::vector<std::byte>& own) {
  if (rank() != 0) {
    send_report(0, bytes_of(std::uint64_t{own.size()}));
    send_report(0, own);
    return {};
  }
  std::vector<std::vector<std::byte>> all = {own};
  for (int rank = 1; rank < rank_count(); ++rank) {
    const auto size = value_of<std::uint64_t>(receive_report(rank, sizeof(std::uint64_t)));
    all.push_back(receive_report(rank, size));
  }
  return all;
}

ClockReading MpiTransport::ask_for_time(int rank, Ticks (*clock)()) {
  ClockReading reading;
  reading.asked = clock();
  send_report(rank, bytes_of(reading.asked));
  reading.other = value_of<Ticks>(receive_report(rank, sizeof(Ticks)));
  reading.answered = clock();
  return reading;
}

std::vector<Ticks> MpiTransport::clock_offsets(Ticks (*clock)(), bool measure_all) {
  constexpr int kExchanges = 16;
  const bool is_asking = rank() == 0;
  std::vector<Ticks> offsets(is_asking ? static_cast<std::size_t>(rank_count()) : 0U);
  for (int rank = 1; rank < rank_count(); ++rank) {
    if (!is_asking && this->rank() != rank) continue;
    if (!measure_all && processes_.board().is_here(is_asking ? rank : 0)) continue;
    std::vector<ClockReading> readings;
    for (int exchange = 0; exchange < kExchanges; ++exchange) {
      if (is_asking) {
        readings.push_back(ask_for_time(rank, clock));
      } else {
        receive_report(0, sizeof(Ticks));
        send_report(0, bytes_of(clock()));
      }
    }
    if (is_asking) offsets[static_cast<std::size_t>(rank)] = clock_offset(readings);
  }
  return offsets;
}

namespace {

// Longer than any wait, so that ranks whose waits time out report first.
std::chrono::milliseconds longest_silence(std::chrono::milliseconds patience) {
  return 2 * patience + std::chrono::seconds(1);
}

}  // namespace

void run_mpi(Processes& processes, const MpiOptions& options, const std::function<void(MpiTransport&)>& body) {
  const auto whereabouts = [&] { return processes.whereabouts(processes.rank()); };
  // From here on, a process that dies has failed, whatever it did before.
  processes.board().note({});
  try {
    std::optional<Watchdog> limit(std::in_place, longest_silence(options.patience), exit_reporting([&] {
                                    return fmt::format("{} is stuck: MPI has not created channels for {} ms",
                                                       whereabouts(), longest_silence(options.patience).count());
                                  }));
    MpiTransport transport(processes, options.patience);
    limit.reset();
    const Watchdog watchdog(longest_silence(options.patience), exit_reporting([&] {
                              return fmt::format("{} is stuck: no computation or MPI call has returned for {} ms",
                                                 whereabouts(), longest_silence(options.patience).count());
                            }),
                            &transport.beats());
    transport.note({});
    body(transport);
    transport.finish();
    transport.note({.kind = Activity::Kind::kDone, .action = {}});
    return;
  } catch (const Aborted&) {
    // already reported
  } catch (const std::exception& error) {
    const Activity activity = processes.board().activity_of(processes.rank()).value_or(Activity{});
    processes.report_failure(
        fmt::format("rank {} failed in {}: {}", processes.rank(), to_string(activity), reason_of(error)));
  }
  throw EnvironmentError(processes.failure());
}

}  // namespace flopcast::realrun
