#include "planner/plan/launchable.hpp"

#include <algorithm>

namespace flopcast {

namespace {

class Narrowing {
 public:
  explicit Narrowing(SearchSpace& space) : space_(space) {}

  // An empty list stands for every value.
  template <typename Value>
  void keep(std::vector<Value>& axis, std::vector<Value> values, const char* left_out) {
    if (!axis.empty()) return;
    axis = std::move(values);
    left_out_.emplace_back(left_out);
  }

  void keep_schedules(const std::vector<std::string>& names) {
    std::vector<ScheduleChoice>& choices = space_.schedules;
    const auto unknown = [&names](const ScheduleChoice& choice) {
      return std::find(names.begin(), names.end(), choice.text) == names.end();
    };
    const bool none_left = std::all_of(choices.begin(), choices.end(), unknown);
    const auto first = std::remove_if(choices.begin(), choices.end(), unknown);
    if (none_left || first == choices.end()) return;  // what is left is what was asked for
    choices.erase(first, choices.end());
    left_out_.emplace_back("other schedules");
  }

  void keep_uniform_split() {
    if (space_.splits.size() < 2) return;
    space_.splits = {SplitRule()};
    left_out_.emplace_back("uneven stages");
  }

  std::vector<std::string> left_out() const { return left_out_; }

 private:
  SearchSpace& space_;
  std::vector<std::string> left_out_;
};

void keep_megatron(const Job& job, SearchSpace& space, Narrowing& narrowing) {
  narrowing.keep_schedules({"naive", "1f1b", "interleaved"});
  narrowing.keep_uniform_split();
  if (job.model.experts) {
    narrowing.keep(space.sequence_parallel, {1}, "tensor parallelism of experts without sequence parallelism");
  }
}

void keep_deepspeed(const Job& job, SearchSpace& space, Narrowing& narrowing) {
  narrowing.keep_schedules({"naive", "1f1b"});
  narrowing.keep(space.pp, {1}, "pipelines");
  narrowing.keep(space.ep, {1}, "expert parallelism");
  narrowing.keep(space.sequence_parallel, {0}, "sequence parallelism");
  narrowing.keep(space.recompute, {Recompute::kNone, Recompute::kFull}, "selective recomputation");
  if (job.layout.context_parallel == ContextParallel::kRing) narrowing.keep(space.cp, {1}, "context parallelism");
}

void keep_accelerate(const Job& job, SearchSpace& space, Narrowing& narrowing) {
  keep_deepspeed(job, space, narrowing);
  narrowing.keep(space.tp, {1}, "tensor parallelism");
  narrowing.keep(space.cp, {1}, "context parallelism");
  const bool fsdp = job.layout.data_parallel != DataParallel::kDdp;
  if (!fsdp && space.recompute.size() == 2) space.recompute = {Recompute::kNone};
}

}  // namespace

std::vector<std::string> keep_launchable(LaunchProgram program, const Job& job, SearchSpace& space) {
  Narrowing narrowing(space);
  switch (program) {
    case LaunchProgram::kMegatron:
    case LaunchProgram::kTorchrun:
      keep_megatron(job, space, narrowing);
      break;
    case LaunchProgram::kDeepSpeed:
      keep_deepspeed(job, space, narrowing);
      break;
    case LaunchProgram::kAccelerate:
      keep_accelerate(job, space, narrowing);
      break;
  }
  return narrowing.left_out();
}

}  // namespace flopcast
