#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/engine/task_graph.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

/// Which task makes the result of a stage's forward, and of its backward or input gradient, available to others.
/// Four bytes per action; a look-up is one load.
class ResultTable {
 public:
  /// Throws ConfigError (field "schedule") when the microbatch numbers leave gaps so large that the table would dwarf
  /// the program.
  explicit ResultTable(const Program& program);

  /// Throws ConfigError when the action has been entered before. Weight gradients produce nothing others wait for.
  void enter(const Action& action, TaskId task) {
    if (action.kind == ActionKind::kWeightGradient) return;
    TaskId& entry = tasks_[index(action.stage, action.kind, action.microbatch)];
    if (entry != TaskGraph::kNone) refuse_twice(action);
    entry = task;
  }

  /// The result of a stage that the action waits for, of kind forward or (B or I) backward, for the action's
  /// microbatch. Throws ConfigError when nobody produces it.
  TaskId find(const Action& action, std::uint16_t stage, ActionKind kind) const {
    const TaskId task = tasks_[index(stage, kind, action.microbatch)];
    if (task == TaskGraph::kNone) refuse_missing(action, stage, kind);
    return task;
  }

 private:
  std::size_t index(std::size_t stage, ActionKind kind, std::uint32_t microbatch) const {
    return (2 * stage + (kind == ActionKind::kForward ? 0 : 1)) * microbatches_ + microbatch;
  }
  [[noreturn]] static void refuse_twice(const Action& action);
  [[noreturn]] static void refuse_missing(const Action& action, std::uint16_t stage, ActionKind kind);

  std::size_t microbatches_ = 0;
  std::vector<TaskId> tasks_;
};

}  // namespace flopcast
