#pragma once

#include <string>
#include <vector>

#include "model/job.hpp"

namespace flopcast {

/// What a layout can be handed to. The readers beside it read back what is written.
enum class LaunchProgram {
  kMegatron,    ///< Megatron-LM's arguments, one a line
  kDeepSpeed,   ///< ds_config.json
  kTorchrun,    ///< a script that starts Megatron-LM on every node by torchrun
  kAccelerate,  ///< the YAML of `accelerate launch --config_file`
};
const std::vector<std::string>& launch_program_names();  ///< "megatron", "deepspeed", "torchrun", "accelerate"

struct LaunchFile {
  std::string text;
  std::vector<std::string> notes;  ///< what has to be given elsewhere, one sentence each
};

/// What a program needs to train `job` as it is laid out. Expects schedule, vpp and stage_layers filled in, as
/// prepare (sim) leaves them. Throws ConfigError that names everything which the program cannot do.
LaunchFile write_launch(LaunchProgram program, const Job& job);

}  // namespace flopcast
