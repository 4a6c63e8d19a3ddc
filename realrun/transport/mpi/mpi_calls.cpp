#include "realrun/transport/mpi/mpi_calls.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <string>

#include "model/error/error.hpp"

namespace flopcast::realrun {

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw EnvironmentError(
      fmt::format("MPI failed to {}: {}", what, std::string(text.data(), static_cast<std::size_t>(length))));
}

namespace {

int count_of(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw EnvironmentError(fmt::format("a message of {} bytes is longer than MPI can count (2 GiB)", bytes));
  }
  return static_cast<int>(bytes);
}

}  // namespace

MPI_Request send_bytes(const std::byte* address, std::size_t bytes, int to, int tag, MPI_Comm channel) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(address, count_of(bytes), MPI_BYTE, to, tag, channel, &request), "send");
  return request;
}

MPI_Request receive_bytes(std::byte* address, std::size_t bytes, int from, int tag, MPI_Comm channel) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(address, count_of(bytes), MPI_BYTE, from, tag, channel, &request), "receive");
  return request;
}

bool has_ended(MPI_Request& request) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "progress");
  return done != 0;
}

bool has_received(MPI_Request& request, std::size_t bytes) {
  int done = 0;
  MPI_Status status;
  check_mpi(MPI_Test(&request, &done, &status), "receive");
  if (done == 0) return false;
  int count = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "receive");
  FLOPCAST_CHECK(static_cast<std::size_t>(count) == bytes);
  return true;
}

int largest_tag() {
  void* value = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&value), &found), "tell its largest tag");
  constexpr int kPromised = 32767;
  return found != 0 ? *static_cast<const int*>(value) : kPromised;
}

}  // namespace flopcast::realrun
