#pragma once

#include <string>
#include <vector>

#include "import/programs/launch.hpp"
#include "model/job.hpp"

namespace flopcast {

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
