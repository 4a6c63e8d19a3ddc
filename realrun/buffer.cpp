#include "realrun/buffer.hpp"

namespace flopcast::realrun {

Buffer allocate_host(std::size_t bytes) {
  return bytes == 0 ? Buffer() : Buffer(std::shared_ptr<std::byte[]>(new std::byte[bytes]()), bytes);
}

}  // namespace flopcast::realrun
