#include "model/config/writers/launch.hpp"

#include "model/config/writers/data_parallel_writers.hpp"
#include "model/config/writers/megatron_writer.hpp"
#include "model/error/error.hpp"

namespace flopcast {

const std::vector<std::string>& launch_program_names() {
  static const std::vector<std::string> names = {"megatron", "deepspeed", "torchrun", "accelerate"};
  return names;
}

LaunchFile write_launch(LaunchProgram program, const Job& job) {
  switch (program) {
    case LaunchProgram::kMegatron:
      return write_megatron(job);
    case LaunchProgram::kDeepSpeed:
      return write_deepspeed(job);
    case LaunchProgram::kTorchrun:
      return write_torchrun(job);
    case LaunchProgram::kAccelerate:
      return write_accelerate(job);
  }
  FLOPCAST_CHECK(false);
  return {};
}

}  // namespace flopcast
