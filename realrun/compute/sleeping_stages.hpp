#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "realrun/compute/stage_compute.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast::realrun {

/// Lets one thread take exactly as long as it should by sleeping towards absolute deadlines of host_clock().
///
/// A deadline counts from when the action should have begun, so that waking up late in one action does not delay the
/// next: an action that follows at once begins, on paper, where the last one should have ended (a millisecond before at
/// most: a thread that is starved for longer shows). The last stretch of an action is spun, as timers wake a thread
/// some 20 us late. Many more ranks than cores thus keep their time as long as actions are milliseconds.
class Pace {
 public:
  /// `poke` is called about every millisecond of sleep (see RankTransport::poke).
  explicit Pace(std::function<void()> poke);

  void begin();               ///< an action
  void work(Ticks duration);  ///< sleeps until what the action has done so far should be done
  void pause();               ///< what follows, until resume(), takes its own time
  void resume();
  void end();  ///< of the action, to the microsecond

 private:
  void sleep_until(Ticks deadline);

  std::function<void()> poke_;
  Ticks deadline_ = 0;
  Ticks ended_ = 0;  // when the last action really did
  Ticks paused_ = 0;
};

/// Takes the time of every action instead of computing it, so that more ranks than cores run at the pace of a larger
/// machine. Sizes are those of the stages it stands for, and weights, gradients and messages are asked for, handed in
/// and sent as by them: all communication is real. Results and gradients are zeros, losses too.
/// `times` by stage; `sizes` outlives it. `last` tells whether a stage is the last of its chain, `first` the first.
std::unique_ptr<StageCompute> make_sleeping_stages(const StageCompute& sizes, std::vector<StageTimes> times,
                                                   std::function<bool(int)> first, std::function<bool(int)> last,
                                                   std::function<void()> poke);

}  // namespace flopcast::realrun
