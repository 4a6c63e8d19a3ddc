#pragma once

#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A transport that shows NVIDIA's tools what its rank is at.
template <class Base>
class Traced : public Base {
 public:
  using Base::Base;
  void note(const Activity& activity) override {
    range_.begin(to_string(activity));
    Base::note(activity);
  }

 private:
  cuda::ToolRange range_;
};

}  // namespace flopcast::realrun
