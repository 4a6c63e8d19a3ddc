#pragma once

#include "model/config/writers/launch.hpp"

namespace flopcast {

LaunchFile write_deepspeed(const Job& job);
LaunchFile write_accelerate(const Job& job);

}  // namespace flopcast
