#include "sim/schedule/dualpipe_order.hpp"

#include <cstddef>

namespace flopcast {

namespace {

class DualPipeRank {
 public:
  explicit DualPipeRank(const DualPipePlace& place) : place_(place), near_{place.near}, far_{place.far} {
    actions_.reserve(5 * static_cast<std::size_t>(place.microbatches));
  }

  std::vector<Action> order() {
    fill();
    steady();
    drain();
    return actions_;
  }

 private:
  // A stage with the microbatches that its next forward and its next backward are for.
  struct Side {
    int stage = 0;
    int forwards = 0;
    int backwards = 0;
  };

  void push(ActionKind kind, int stage, int microbatch) {
    Action action;
    action.microbatch = static_cast<std::uint32_t>(microbatch);
    action.stage = static_cast<std::uint16_t>(stage);
    action.kind = kind;
    actions_.push_back(action);
  }
  void forward(Side& side) { push(ActionKind::kForward, side.stage, side.forwards++); }
  void backward(Side& side) { push(ActionKind::kBackward, side.stage, side.backwards++); }
  void input_gradient(Side& side) {
    push(ActionKind::kInputGradient, side.stage, side.backwards++);
    waiting_.push_back(actions_.back());
  }
  void weight_gradient() {
    const Action& oldest = waiting_[weights_done_++];
    push(ActionKind::kWeightGradient, oldest.stage, static_cast<int>(oldest.microbatch));
  }
  void pair(Side& ahead, Side& back) {
    forward(ahead);
    actions_.back().overlaps_next = true;
    backward(back);
  }

  void fill() {
    const int behind = place_.positions - 1 - place_.position;
    for (int count = 0; count < 2 * behind; ++count) forward(near_);
    for (int count = 0; count <= place_.position; ++count) {
      forward(near_);
      forward(far_);
    }
    for (int count = 0; count < behind; ++count) {
      input_gradient(far_);
      weight_gradient();
      forward(far_);
    }
  }

  void steady() {
    const bool is_last = place_.position + 1 == place_.positions;
    const int rounds = place_.microbatches - 2 * place_.positions + place_.position + 1;
    for (int round = 0; round < rounds; ++round) {
      // Nothing is on its way yet that could hide the first transfer between the last position's two stages.
      if (round == 0 && is_last) {
        forward(near_);
        backward(far_);
      } else {
        pair(near_, far_);
      }
      pair(far_, near_);
    }
  }

  void drain() {
    const int behind = place_.positions - 1 - place_.position;
    for (int count = 0; count < behind; ++count) {
      backward(far_);
      pair(far_, near_);
    }
    for (int slot = 0; slot < 2 * (place_.position + 1); ++slot) {
      Side& side = slot % 2 == 0 ? far_ : near_;
      if (slot <= place_.position) {
        backward(side);
      } else {
        input_gradient(side);
      }
    }
    for (int count = 0; count < behind; ++count) {
      weight_gradient();
      input_gradient(near_);
    }
    while (weights_done_ < waiting_.size()) weight_gradient();
  }

  const DualPipePlace& place_;
  Side near_;
  Side far_;
  std::vector<Action> waiting_;  // every I so far, in order
  std::size_t weights_done_ = 0;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> dualpipe_order(const DualPipePlace& place) {
  return DualPipeRank(place).order();
}

}  // namespace flopcast
