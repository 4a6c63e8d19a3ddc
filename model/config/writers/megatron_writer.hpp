#pragma once

#include "model/config/writers/launch.hpp"

namespace flopcast {

LaunchFile write_megatron(const Job& job);
LaunchFile write_torchrun(const Job& job);

}  // namespace flopcast
