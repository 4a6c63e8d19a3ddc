#pragma once

#include <mpi.h>

#include <cstddef>

namespace flopcast::realrun {

/// Throws EnvironmentError with MPI's own words when a call did not succeed; `what` completes "MPI failed to …".
void check_mpi(int code, const char* what);

/// MPI_Isend and MPI_Irecv of bytes. Throws EnvironmentError for more than MPI can count (2 GiB).
MPI_Request send_bytes(const std::byte* address, std::size_t bytes, int to, int tag, MPI_Comm channel);
MPI_Request receive_bytes(std::byte* address, std::size_t bytes, int from, int tag, MPI_Comm channel);

/// Whether the operation has ended. A receive must have brought exactly `bytes`.
bool has_ended(MPI_Request& request);
bool has_received(MPI_Request& request, std::size_t bytes);

/// The largest tag of an MPI library; at least 32767.
int largest_tag();

}  // namespace flopcast::realrun
