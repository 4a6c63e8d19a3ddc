#include "realrun/rendezvous/meeting.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>

#include "base/text/error.hpp"

namespace flopcast::realrun {

std::optional<std::string> tell_by_mpi(int rank, int ranks, const std::string& given) {
  constexpr std::size_t kLongest = 512;
  FLOPCAST_CHECK(given.size() < kLongest);
  if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS) return std::nullopt;
  int own = 0;
  int count = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  std::array<char, kLongest> text{};
  const bool together = own == rank && count == ranks;
  // MPI ends the processes itself when one of them does not take part.
  if (together) {
    std::copy(given.begin(), given.end(), text.begin());
    MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  if (!together) return std::nullopt;
  return std::string(text.data());
}

}  // namespace flopcast::realrun
