#include "realrun/transport/mpi/mpi_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "model/error/error.hpp"
#include "realrun/compute/host_clock.hpp"
#include "realrun/transport/mpi/wait_until.hpp"

namespace flopcast::realrun {

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
  std::unique_ptr<GroupOperation> operation;  // once its turn has come
  bool done = false;
  Interval ran;
};

namespace {

// A group of one: nothing leaves the rank.
void copy_own(const Collective& collective) {
  if (collective.output.empty() || collective.input.empty()) return;
  if (collective.input.address() == collective.output.address()) return;
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

// MPI_Comm_dup would spin until all have come: ranks that outnumber the cores then keep each other from coming.
void MpiTransport::copy_world(MPI_Comm& channel) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &channel, &request), "copy a communicator");
  wait_until([&] { return has_ended(request); }, [] { return std::string("all processes to begin"); });
}

MpiTransport::~MpiTransport() {
  if (!processes_.failure().empty()) {
    // MPI may still write to these buffers: they stay until the process ends.
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
    count(front.group, front.collective, *front.operation);
    queue.pop_front();
  }
}

// Each look costs a system call for every message under way: where ranks outnumber cores, libraries are told to give
// the core away when a call of theirs finds nothing (mpi_yield_when_idle), and on a busy machine it does not soon come
// back.
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

int MpiTransport::tag_of(const Group& group) const {
  return group.id % largest_tag_;
}

void MpiTransport::send(int to, const MessageKey& key, const Buffer& buffer) {
  traffic_.point_to_point.bytes += buffer.bytes();
  ++traffic_.point_to_point.messages;
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
  // In the list of what has to stay in place, should the run be lost meanwhile.
  auto running = std::make_shared<Started>(group, collective);
  running->operation = std::make_unique<GroupOperation>(collectives_, tag_of(group), group, collective);
  under_way_->kept = running;
  wait_until([&] { return running->operation->progress(); },
             [&] { return fmt::format("a collective with {}", list_of(running->operation->awaited())); });
  under_way_->kept = nullptr;
  count(group, collective, *running->operation);
}

void MpiTransport::count(const Group& group, const Collective& collective, const GroupOperation& operation) {
  TrafficCount& entry = traffic_.collectives[{collective.kind, group.axis}];
  ++entry.messages;
  entry.bytes += operation.bytes_sent();
}

void MpiTransport::finish() {
  std::vector<int> all(static_cast<std::size_t>(rank_count()));
  std::iota(all.begin(), all.end(), 0);
  execute(form_group(Axis::kPipeline, all), {.kind = CollectiveKind::kBarrier});
  wait_until([&] { return under_way_->sends.empty() && under_way_->queue.empty(); },
             [] { return std::string("its messages to arrive"); });
}

}  // namespace flopcast::realrun
