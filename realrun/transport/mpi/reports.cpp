// What ranks tell rank 0 beside the run: results and clocks.
#include <cstring>
#include <utility>

#include "realrun/transport/mpi/mpi_transport.hpp"
#include "realrun/transport/mpi/wait_until.hpp"

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
             [&] { return fmt::format("its report to be taken by {}", processes_.whereabouts(to)); });
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

}  // namespace flopcast::realrun
