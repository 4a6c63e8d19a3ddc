#include "import/programs/launch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/error.hpp"

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

void Expressible::require(bool holds, const std::string& what, const std::string& instead) {
  if (holds) return;
  missing_.push_back(what);
  const bool is_new = std::find(help_.begin(), help_.end(), instead) == help_.end();
  if (!instead.empty() && is_new) help_.push_back(instead);
}

void Expressible::require_common(const Job& job) {
  const Layout& layout = job.layout;
  require(!job.profile, "a model that is a layer profile", "a transformer");
  require(!job.cluster.uneven(), "a cluster of uneven nodes", "a count of nodes");
  require(layout.tensor_parallel == TensorParallel::k1d, "layout.tensor_parallel other than 1d",
          "--layout.tensor_parallel 1d");
  require(layout.compression.kind == Compression::Kind::kNone,
          fmt::format("layout.compression {}", layout.compression.text()), "--layout.compression none");
  require(layout.placement == Layout().placement, "layout.placement other than tp-cp-dp-pp",
          "--layout.placement tp-cp-dp-pp");
  const std::string_view form = name_of(layout.data_parallel);
  const bool is_known = layout.data_parallel == DataParallel::kDdp || layout.data_parallel == DataParallel::kFsdp ||
                        layout.data_parallel == DataParallel::kHsdp;
  require(is_known, fmt::format("layout.data_parallel {}", form), "--layout.data_parallel ddp");
  const Training& training = job.training;
  require(!training.preference, "training.preference", "a job without it");
  require(!training.paged_optimizer, "training.paged_optimizer", "--training.paged_optimizer=false");
  require(training.master_weights, "training.master_weights false", "--training.master_weights=true");
  require(job.training.transport == Transport::kNccl, "training.transport other than nccl",
          "--training.transport nccl");
  require(job.training.gradient_transport == Transport::kNccl, "training.gradient_transport other than nccl",
          "--training.gradient_transport nccl");
  require(job.training.precision != Precision::kTf32, "training.precision tf32", "--precision bf16");
}

void Expressible::enforce() const {
  if (missing_.empty()) return;
  throw ConfigError({"--emit", fmt::format("{} cannot be told {}", program_, fmt::join(missing_, ", ")), "",
                     help_.empty() ? "" : fmt::format("give {}", fmt::join(help_, "; "))});
}

std::string schedule_base_name(const Layout& layout) {
  return layout.schedule.substr(0, layout.schedule.find(':'));
}

bool runs_one_microbatch(const Layout& layout) {
  return schedule_base_name(layout) == "naive" && layout.microbatches() == 1;
}

}  // namespace flopcast
