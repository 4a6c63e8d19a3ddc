#pragma once

#include "realrun/transport/mpi/mpi_transport.hpp"

namespace flopcast::realrun {

/// The processes of the running test program; all of them run the same tests in the same order. (main() of such tests
/// is in under_mpi.cpp; only rank 0 prints, apart from failures.)
Processes& test_processes();

}  // namespace flopcast::realrun
