#pragma once

namespace flopcast::realrun {

/// Base of everything that is used through pointers to an abstract class: neither copied nor moved.
class Interface {
 public:
  Interface() = default;
  Interface(const Interface&) = delete;
  Interface& operator=(const Interface&) = delete;
  Interface(Interface&&) = delete;
  Interface& operator=(Interface&&) = delete;
  virtual ~Interface() = default;
};

}  // namespace flopcast::realrun
