#pragma once

#include <string>
#include <utility>
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

/// Collects what a program's flags cannot say, so that one complaint names everything.
class Expressible {
 public:
  explicit Expressible(std::string program) : program_(std::move(program)) {}

  /// `instead` completes "give …", and may be empty.
  void require(bool holds, const std::string& what, const std::string& instead);
  /// What none of the programs knows: grids of tensor-parallel ranks, compression, placement, parameter servers …
  void require_common(const Job& job);
  /// Throws ConfigError when anything was required in vain.
  void enforce() const;

 private:
  std::string program_;
  std::vector<std::string> missing_;
  std::vector<std::string> help_;
};

/// "1f1b" of "1f1b", "interleaved" of "interleaved:2".
std::string schedule_base_name(const Layout& layout);
/// The schedule of a single microbatch, whatever a program calls it.
bool runs_one_microbatch(const Layout& layout);

LaunchFile write_deepspeed(const Job& job);
LaunchFile write_accelerate(const Job& job);

LaunchFile write_megatron(const Job& job);
LaunchFile write_torchrun(const Job& job);

}  // namespace flopcast
