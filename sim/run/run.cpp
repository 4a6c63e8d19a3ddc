#include "sim/run/run.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/text/by_member.hpp"
#include "base/text/error.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();
constexpr double kPerSecond = 1e9;
constexpr std::int64_t kPatience = 100;  // multiple of the undisturbed time

class RunRandom {
 public:
  RunRandom(int seed, int number)
      : generator_(mixed(mixed(static_cast<std::uint64_t>(seed)) + static_cast<std::uint64_t>(number))) {}

  // In (0, 1].
  double uniform() {
    constexpr int kShift = 11;
    return (static_cast<double>(generator_() >> kShift) + 1.0) * 0x1p-53;
  }
  // kNever if it would exceed the clock's range.
  Nanoseconds exponential(double mean_ns) {
    const double time = -mean_ns * natural_logarithm(uniform());
    constexpr double kBeyond = 4e18;
    return time < kBeyond ? static_cast<Nanoseconds>(time) : kNever;
  }

 private:
  // splitmix64 (Steele, Lea and Flood 2014, doi 10.1145/2660193.2660195).
  static std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
  }

  std::mt19937_64 generator_;
};

Nanoseconds later(Nanoseconds from, Nanoseconds by) {
  return by > kNever - from ? kNever : from + by;
}

// Spare nodes, and nodes that return from repair.
class NodePool {
 public:
  explicit NodePool(int spares) : unlimited_(spares < 0), free_(std::max(spares, 0)) {}

  // Time at which the given number of nodes, failing now, are replaced.
  Nanoseconds replace(int nodes, Nanoseconds now, Nanoseconds repair) {
    if (unlimited_ || nodes == 0) return now;
    const auto back = std::upper_bound(returns_.begin(), returns_.end(), now);
    free_ += static_cast<int>(back - returns_.begin());
    returns_.erase(returns_.begin(), back);
    const Nanoseconds at = later(now, repair);
    returns_.insert(std::upper_bound(returns_.begin(), returns_.end(), at), static_cast<std::size_t>(nodes), at);
    const int taken = std::min(nodes, free_);
    free_ -= taken;
    const auto missing = static_cast<std::size_t>(nodes - taken);
    if (missing == 0) return now;
    const Nanoseconds ready = returns_[missing - 1];
    returns_.erase(returns_.begin(), returns_.begin() + static_cast<std::ptrdiff_t>(missing));
    return ready;
  }

 private:
  bool unlimited_;
  int free_;
  std::vector<Nanoseconds> returns_;  // ascending, not yet assigned
};

class DrawnRun {
 public:
  DrawnRun(const RunCase& run, int seed, int number, std::vector<RunSpan>* life)
      : run_(run),
        dice_(seed, number),
        pool_(run.spares),
        life_(life),
        total_(run.steps * run.step),
        limit_(total_ > kNever / kPatience ? kNever - 1 : total_ * kPatience) {
    outcome_.lost.assign(run.accounts(), {});
    draw_rates();
    draw_next_failure();
    draw_next_phase();
    if (run.slow_node_share > 0.0) draw_slow_nodes();
    if (run.maintenance_every > 0) next_maintenance_ = run.maintenance_every;
  }

  RunOutcome play() {
    while (work_ < total_) {
      if (gives_up()) {
        outcome_.finished = false;
        break;
      }
      const Nanoseconds event = next_event();
      train(std::min(event, limit_ + 1));
      if (work_ < total_ && event <= now_) handle_event();
    }
    outcome_.clock = now_;
    return std::move(outcome_);
  }

 private:
  struct Saved {
    Nanoseconds work = 0;
    Nanoseconds at = 0;
  };
  struct Corruption {
    Nanoseconds found_at;
    Nanoseconds work;   // training done when it occurred
    Nanoseconds clean;  // the last checkpoint before it
    std::size_t cause;
  };
  struct Absence {
    Nanoseconds until;
    int replicas;
  };

  void draw_rates() {
    for (const RunCause& cause : run_.causes) {
      double rate = cause.per_second;
      if (cause.events > 0.0) {
        constexpr double kNinth = 1.0 / 9.0;
        // Keeps the uniform number away from 0 and 1, for both tails.
        const double z = normal_quantile(std::min(dice_.uniform(), 1.0 - 0x1p-53));
        const double root = 1.0 - kNinth / cause.events + z * std::sqrt(kNinth / cause.events);
        rate *= std::max(0.0, root * root * root);
      }
      rates_.push_back(rate);
      total_rate_ += rate;
    }
    mean_ = total_rate_ > 0.0 ? kPerSecond / total_rate_ : 0.0;
  }

  // Number of good nodes from one slow node to the next is geometric.
  void draw_slow_nodes() {
    const double share = run_.slow_node_share;
    if (share >= 1.0) {
      slow_nodes_ = run_.nodes;
    } else {
      const double log_good = natural_logarithm(1.0 - share);
      for (double at = natural_logarithm(dice_.uniform()) / log_good; at < run_.nodes;
           at = std::floor(at) + 1.0 + natural_logarithm(dice_.uniform()) / log_good) {
        ++slow_nodes_;
      }
    }
    if (run_.slow_node_evict > 0) evictions_.assign(static_cast<std::size_t>(slow_nodes_), run_.slow_node_evict);
  }

  std::size_t draw_cause() {
    double place = dice_.uniform() * total_rate_;
    for (std::size_t cause = 0; cause + 1 < rates_.size(); ++cause) {
      place -= rates_[cause];
      if (place <= 0.0) return cause;
    }
    return rates_.size() - 1;
  }

  void draw_next_failure() { next_failure_ = total_rate_ > 0.0 ? later(now_, dice_.exponential(mean_)) : kNever; }
  void draw_next_phase() {
    next_phase_ =
        run_.slow_per_second > 0.0 ? later(now_, dice_.exponential(kPerSecond / run_.slow_per_second)) : kNever;
  }

  // Time that passes on the clock now.
  void lose(std::size_t account, RunPhase phase, Nanoseconds time) {
    outcome_.lost[account][static_cast<std::size_t>(phase)] += time;
    record(account, phase, now_, now_ + time);
    now_ += time;
  }

  void record(std::size_t account, RunPhase phase, Nanoseconds from, Nanoseconds to, double lost = 1.0) {
    if (life_ == nullptr || from == to) return;
    if (!life_->empty()) {
      RunSpan& last = life_->back();
      if (last.to == from && last.phase == phase && last.account == account && last.lost == lost) {
        last.to = to;
        return;
      }
    }
    life_->push_back({from, to, phase, account, lost});
  }

  double replica_pace() const { return run_.pace.empty() ? 1.0 : run_.pace[static_cast<std::size_t>(replicas())]; }
  double slow_pace() const {
    double pace = phase_ends_.empty() ? 1.0 : run_.slow_pace;
    if (slow_nodes_ > 0) pace = std::min(pace, run_.slow_node_pace);
    return pace;
  }

  int replicas() const { return run_.replicas - missing_; }

  // Trains and saves until the given time, or to the end.
  void train(Nanoseconds until) {
    while (now_ < until && work_ < total_) {
      if (pending_ > 0) {
        const Nanoseconds part = std::min(pending_, until - now_);
        lose(run_.checkpoints(), RunPhase::kCheckpoint, part);
        pending_ -= part;
        if (pending_ == 0) save();
        continue;
      }
      const bool full_pace = missing_ == 0 && slow_nodes_ == 0 && phase_ends_.empty();
      if (full_pace) skip_cycles(until);
      const Nanoseconds stop = next_stop();
      work_until(stop, until);
      if (work_ == stop && work_ < total_) begin_checkpoint();
    }
  }

  // Skips whole cycles of training and one kind of checkpoint at full pace.
  void skip_cycles(Nanoseconds until) {
    const bool one_kind = run_.memory.interval == 0 && run_.storage.interval > 0;
    if (!one_kind || work_ % run_.storage.interval != 0) return;
    const Nanoseconds cycle = run_.storage.interval + run_.storage.blocking;
    const Nanoseconds cycles = std::min((until - now_) / cycle, (total_ - work_ - 1) / run_.storage.interval);
    constexpr Nanoseconds kFewest = 2;
    if (cycles < kFewest) return;
    if (life_ != nullptr) return;  // each checkpoint has to be recorded
    outcome_.lost[run_.checkpoints()][static_cast<std::size_t>(RunPhase::kCheckpoint)] +=
        cycles * run_.storage.blocking;
    now_ += cycles * cycle;
    work_ += cycles * run_.storage.interval;
    last_ = {work_, now_};
    before_last_ = {work_ - run_.storage.interval, now_ - cycle};
  }

  void work_until(Nanoseconds stop, Nanoseconds until) {
    const double of_replicas = replica_pace();
    const double of_machines = slow_pace();
    if (of_replicas == 1.0 && of_machines == 1.0) {
      const Nanoseconds done = std::min(stop - work_, until - now_);
      now_ += done;
      work_ += done;
      return;
    }
    const double pace = of_replicas * of_machines;
    const auto needed = static_cast<Nanoseconds>(std::ceil(static_cast<double>(stop - work_) / pace));
    const Nanoseconds spent = std::min(needed, until - now_);
    const Nanoseconds done = spent == needed
                                 ? stop - work_
                                 : std::min(stop - work_, static_cast<Nanoseconds>(static_cast<double>(spent) * pace));
    const Nanoseconds wasted = spent - done;
    const auto by_fewer =
        std::min(wasted, static_cast<Nanoseconds>(std::llround(static_cast<double>(spent) * (1.0 - of_replicas))));
    const bool of_phase = !phase_ends_.empty() && (slow_nodes_ == 0 || run_.slow_pace <= run_.slow_node_pace);
    const std::size_t slow_account = of_phase ? run_.slow_phases() : run_.slow_nodes();
    outcome_.lost[shrunk_by_][static_cast<std::size_t>(RunPhase::kFewer)] += by_fewer;
    outcome_.lost[slow_account][static_cast<std::size_t>(RunPhase::kSlow)] += wasted - by_fewer;
    if (by_fewer > 0) {
      record(shrunk_by_, RunPhase::kFewer, now_, now_ + spent, 1.0 - pace);
    } else if (wasted > 0) {
      record(slow_account, RunPhase::kSlow, now_, now_ + spent, 1.0 - pace);
    }
    now_ += spent;
    work_ += done;
  }

  Nanoseconds next_stop() const {
    const auto next = [this](Nanoseconds interval) {
      return interval > 0 ? (work_ / interval + 1) * interval : kNever;
    };
    return std::min({next(run_.storage.interval), next(run_.memory.interval), total_});
  }

  void begin_checkpoint() {
    pending_storage_ = run_.storage.interval > 0 && work_ % run_.storage.interval == 0;
    pending_ = pending_storage_ ? run_.storage.blocking : run_.memory.blocking;
    if (pending_ == 0) save();
  }

  void save() {
    if (pending_storage_) {
      before_last_ = last_;
      last_ = {work_, now_};
    }
    if (run_.memory.interval > 0) in_memory_ = work_;
  }

  Saved durable() const { return last_.work == 0 || now_ - last_.at >= run_.storage.writing ? last_ : before_last_; }

  Nanoseconds next_event() const {
    Nanoseconds next = std::min({next_failure_, next_phase_, next_maintenance_});
    if (!absences_.empty()) next = std::min(next, absences_.front().until);
    if (!phase_ends_.empty()) next = std::min(next, phase_ends_.front());
    if (!corruptions_.empty()) next = std::min(next, corruptions_.front().found_at);
    if (!evictions_.empty()) next = std::min(next, evictions_.front());
    return next;
  }

  // Handles one due event; others follow.
  void handle_event() {
    if (next_failure_ <= now_) {
      const std::size_t cause = draw_cause();
      draw_next_failure();
      return fail(cause);
    }
    if (!corruptions_.empty() && corruptions_.front().found_at <= now_) return find_corruption();
    if (!phase_ends_.empty() && phase_ends_.front() <= now_) return end_phase();
    if (next_phase_ <= now_) return begin_phase();
    if (!evictions_.empty() && evictions_.front() <= now_) return evict_slow_nodes();
    if (next_maintenance_ <= now_) {
      next_maintenance_ = later(next_maintenance_, run_.maintenance_every);
      return planned_stop(run_.maintenance(), RunPhase::kMaintenance, run_.maintenance_lasts);
    }
    rejoin_replicas();
    if (run_.keeps_state) {
      if (!pass(shrunk_by_, RunPhase::kRestart, run_.regroup)) shrink(last_failure_);
      return;
    }
    planned_stop(shrunk_by_, RunPhase::kRestart, 0);
  }

  void fail(std::size_t cause) {
    const RunCause& what = run_.causes[cause];
    if (what.silent) {
      const Saved clean = durable();
      corruptions_.push_back({later(now_, what.detection), work_, clean.work, cause});
      std::sort(corruptions_.begin(), corruptions_.end(), by(&Corruption::found_at));
      return;
    }
    ++outcome_.interruptions;
    if (can_shrink(what)) return shrink(cause);
    go_back_to(cause, restart_point(what));
    ready_ = now_;
    remove_nodes(cause);
    stop_and_restart(cause, what.detection);
    // All replicas start together.
    absences_.clear();
    missing_ = 0;
  }

  // Training since then is lost.
  void go_back_to(std::size_t account, Nanoseconds work) {
    const Nanoseconds again = work_ - work;
    outcome_.lost[account][static_cast<std::size_t>(RunPhase::kRedo)] += again;
    record(account, RunPhase::kRedo, std::max<Nanoseconds>(now_ - again, 0), now_);
    work_ = work;
    pending_ = 0;
    in_memory_ = std::min(in_memory_, work);
    if (last_.work > work) last_ = before_last_.work <= work ? before_last_ : Saved{work, now_ - run_.storage.writing};
    std::erase_if(corruptions_, [work](const Corruption& one) { return one.work >= work; });
  }

  Nanoseconds restart_point(const RunCause& cause) const {
    const Nanoseconds stored = durable().work;
    const bool from_memory = run_.memory.interval > 0 && !cause.needs_storage;
    return from_memory ? std::max(stored, in_memory_) : stored;
  }

  // From a failure to the next step. Failures meanwhile start the sequence again.
  void stop_and_restart(std::size_t cause, Nanoseconds detection) {
    for (;;) {
      if (gives_up()) return;
      if (pass(cause, RunPhase::kDetect, detection) && pass_until(cause, RunPhase::kWait, ready_) &&
          pass(cause, RunPhase::kRestart, restore_of(run_.causes[cause]))) {
        return;
      }
      cause = last_failure_;
      detection = run_.causes[cause].detection;
      if (run_.causes[cause].needs_storage) go_back_to(cause, std::min(work_, durable().work));
      remove_nodes(cause);
    }
  }

  bool pass(std::size_t account, RunPhase phase, Nanoseconds lasts) {
    return pass_until(account, phase, later(now_, lasts));
  }

  // Passes idle time; false if a failure ends it.
  bool pass_until(std::size_t account, RunPhase phase, Nanoseconds until) {
    while (next_failure_ < until && !gives_up()) {
      lose(account, phase, std::max<Nanoseconds>(next_failure_ - now_, 0));
      const std::size_t cause = draw_cause();
      draw_next_failure();
      if (run_.causes[cause].silent) continue;  // nothing is computing that could go wrong
      last_failure_ = cause;
      ++outcome_.interruptions;
      return false;
    }
    if (until > now_) lose(account, phase, until - now_);
    return true;
  }

  void remove_nodes(std::size_t cause) {
    const RunCause& what = run_.causes[cause];
    if (what.site) {
      ready_ = std::max(ready_, later(now_, what.repair));
      return;
    }
    const Nanoseconds ready = pool_.replace(what.nodes, now_, what.repair);
    if (ready > now_) ++outcome_.waits;
    ready_ = std::max(ready_, ready);
    change_nodes(what.nodes);
  }

  void change_nodes(int nodes) {
    if (run_.slow_node_share <= 0.0) return;
    for (int node = 0; node < nodes; ++node) {
      if (slow_nodes_ > 0 && dice_.uniform() * run_.nodes <= slow_nodes_) {
        --slow_nodes_;
        if (!evictions_.empty()) evictions_.erase(evictions_.begin());
      }
      if (dice_.uniform() > run_.slow_node_share) continue;
      ++slow_nodes_;
      if (run_.slow_node_evict > 0) evictions_.push_back(later(now_, run_.slow_node_evict));
    }
  }

  bool can_shrink(const RunCause& cause) const {
    return run_.least_replicas > 0 && !cause.site && cause.replicas < run_.replicas;
  }

  // Continues with fewer replicas.
  void shrink(std::size_t cause) {
    for (;;) {
      if (gives_up()) return;
      const RunCause& what = run_.causes[cause];
      const Nanoseconds found = later(now_, what.detection);
      if (!can_shrink(what)) {
        go_back_to(cause, restart_point(what));
        remove_nodes(cause);
        stop_and_restart(cause, what.detection);
        absences_.clear();
        missing_ = 0;
        return;
      }
      ready_ = now_;
      remove_nodes(cause);
      shrunk_by_ = cause;
      if (run_.keeps_state) {
        const Nanoseconds step_begin = work_ - work_ % run_.step;
        go_back_to(cause, step_begin);
        absent_until(later(std::max(ready_, found), run_.rejoin), what.replicas);
      } else {
        go_back_to(cause, restart_point(what));
        if (ready_ > found) absent_until(ready_, what.replicas);
      }
      const Nanoseconds stop = run_.keeps_state ? run_.regroup : restore_of(what);
      bool undisturbed = pass(cause, RunPhase::kDetect, what.detection);
      // A step needs a minimum number of replicas, and a number that the layout allows.
      while (undisturbed && (replicas() < run_.least_replicas || replica_pace() <= 0.0)) {
        undisturbed = pass_until(cause, RunPhase::kWait, absences_.front().until);
        if (undisturbed) rejoin_replicas();
      }
      if (undisturbed && pass(cause, RunPhase::kRestart, stop)) {
        rejoin_replicas();
        return;
      }
      cause = last_failure_;
    }
  }

  void absent_until(Nanoseconds time, int replicas) {
    const int lost = std::min(replicas, this->replicas());
    missing_ += lost;
    absences_.insert(std::upper_bound(absences_.begin(), absences_.end(), time,
                                      [](Nanoseconds at, const Absence& absence) { return at < absence.until; }),
                     {time, lost});
  }

  void rejoin_replicas() {
    std::size_t back = 0;
    while (back < absences_.size() && absences_[back].until <= now_) missing_ -= absences_[back++].replicas;
    absences_.erase(absences_.begin(), absences_.begin() + static_cast<std::ptrdiff_t>(back));
  }

  void find_corruption() {
    const Corruption found = corruptions_.front();
    corruptions_.erase(corruptions_.begin());
    ++outcome_.interruptions;
    before_last_ = last_ = {found.clean, now_ - run_.storage.writing};
    go_back_to(found.cause, found.clean);
    ready_ = now_;
    remove_nodes(found.cause);
    stop_and_restart(found.cause, 0);
    absences_.clear();
    missing_ = 0;
  }

  void begin_phase() {
    const Nanoseconds lasts = dice_.exponential(static_cast<double>(run_.slow_mean));
    const bool evicted = run_.slow_evict > 0 && lasts > run_.slow_evict;
    const Nanoseconds end = later(next_phase_, evicted ? run_.slow_evict : lasts);
    const auto place = std::upper_bound(phase_ends_.begin(), phase_ends_.end(), end);
    phase_evicted_.insert(phase_evicted_.begin() + (place - phase_ends_.begin()), evicted);
    phase_ends_.insert(place, end);
    const Nanoseconds gap = dice_.exponential(kPerSecond / run_.slow_per_second);
    next_phase_ = later(next_phase_, gap);
  }

  void end_phase() {
    const bool evicted = phase_evicted_.front();
    phase_ends_.erase(phase_ends_.begin());
    phase_evicted_.erase(phase_evicted_.begin());
    if (evicted) planned_stop(run_.slow_phases(), RunPhase::kRestart, 0);
  }

  void evict_slow_nodes() {
    int leave = 0;
    while (!evictions_.empty() && evictions_.front() <= now_) {
      evictions_.erase(evictions_.begin());
      ++leave;
    }
    slow_nodes_ -= leave;
    for (int node = 0; node < leave; ++node) {
      if (dice_.uniform() > run_.slow_node_share) continue;
      ++slow_nodes_;
      evictions_.push_back(later(now_, run_.slow_node_evict));
    }
    planned_stop(run_.slow_nodes(), RunPhase::kRestart, 0);
  }

  // After a checkpoint, so that no training is repeated.
  void planned_stop(std::size_t account, RunPhase phase, Nanoseconds lasts) {
    pending_ = 0;
    ready_ = now_;
    bool undisturbed = pass(account, RunPhase::kCheckpoint, run_.storage.blocking);
    if (undisturbed) {
      before_last_ = last_ = {work_, now_ - run_.storage.writing};
      in_memory_ = run_.memory.interval > 0 ? work_ : 0;
      undisturbed = pass(account, phase, lasts) && pass(account, RunPhase::kRestart, run_.storage.restore);
    }
    if (undisturbed) return;
    const RunCause& what = run_.causes[last_failure_];
    go_back_to(last_failure_, restart_point(what));
    ready_ = now_;
    remove_nodes(last_failure_);
    stop_and_restart(last_failure_, what.detection);
  }

  Nanoseconds restore_of(const RunCause& cause) const {
    const bool from_memory = run_.memory.interval > 0 && !cause.needs_storage && !cause.silent;
    return from_memory ? run_.memory.restore : run_.storage.restore;
  }

  bool gives_up() const { return now_ > limit_; }

  const RunCase& run_;
  RunRandom dice_;
  NodePool pool_;
  std::vector<RunSpan>* life_;
  RunOutcome outcome_;
  Nanoseconds total_;
  Nanoseconds limit_;

  std::vector<double> rates_;
  double total_rate_ = 0.0;
  double mean_ = 0.0;  // nanoseconds between failures

  Nanoseconds now_ = 0;
  Nanoseconds work_ = 0;     // training that counts
  Nanoseconds pending_ = 0;  // remaining time of the checkpoint at work_
  bool pending_storage_ = false;
  Saved last_;
  Saved before_last_;
  Nanoseconds in_memory_ = 0;

  Nanoseconds next_failure_ = kNever;
  std::size_t last_failure_ = 0;
  Nanoseconds ready_ = 0;  // time at which everything that failed is replaced
  std::vector<Corruption> corruptions_;

  int missing_ = 0;
  std::vector<Absence> absences_;  // sorted by time
  std::size_t shrunk_by_ = 0;

  Nanoseconds next_phase_ = kNever;
  std::vector<Nanoseconds> phase_ends_;  // ascending
  std::vector<bool> phase_evicted_;
  int slow_nodes_ = 0;
  std::vector<Nanoseconds> evictions_;  // ascending, of slow nodes
  Nanoseconds next_maintenance_ = kNever;
};

}  // namespace

RunOutcome simulate_run(const RunCase& run, int seed, int number, std::vector<RunSpan>* life) {
  FLOPCAST_CHECK(run.steps >= 1 && run.step >= 1 && run.steps <= kNever / run.step);
  return DrawnRun(run, seed, number, life).play();
}

}  // namespace flopcast
