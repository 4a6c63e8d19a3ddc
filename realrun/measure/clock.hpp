#pragma once

namespace flopcast {

/// Seconds of a clock that only runs forward.
double wall_seconds();
/// CPU time of the calling thread.
double processor_seconds();

}  // namespace flopcast
