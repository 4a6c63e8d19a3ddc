#include "tests/realrun/emulated_cuda/emulation.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/realrun/emulated_cuda/include/cuda_bf16.h"

namespace flopcast::emulated {

namespace {

constexpr std::size_t kStackBytes = 64 * 1024;
constexpr std::size_t kUnasked = 48 * 1024;
constexpr std::size_t kLanes = 32;

// swapcontext() starts a fiber; later switches use longjmp, which needs no system call.
struct Fiber {
  ucontext_t context;
  jmp_buf left;
  std::unique_ptr<std::byte[]> stack;
  dim3 place;
  bool ended = false;
  bool waits_for_block = false;  // otherwise waits for its warp, unless it has ended
  alignas(8) std::array<std::byte, 24> given;
};

// One launch at a time, because ranks are threads.
std::mutex running;
std::deque<Fiber> fibers;
std::size_t count = 0;
std::size_t current = 0;
jmp_buf scheduler;
ucontext_t starter;
const std::function<void()>* body = nullptr;
std::vector<float> shared_memory;
thread_local std::size_t allowed = kUnasked;  // for this rank's next launch
std::size_t most_shared = std::size_t{163} * 1024;
bool events_held = false;
std::size_t launches = 0;
std::size_t threads = 0;

void leave() {
  Fiber& fiber = fibers[current];
  if (_setjmp(fiber.left) == 0) _longjmp(scheduler, 1);
}

// Fibers are reused for the following blocks.
void run_fiber() {
  while (true) {
    leave();
    (*body)();
    fibers[current].ended = true;
  }
}

void resume() {
  if (_setjmp(scheduler) == 0) _longjmp(fibers[current].left, 1);
}

void begin(std::size_t index) {
  Fiber& fiber = fibers[index];
  fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, run_fiber, 0);
  current = index;
  if (_setjmp(scheduler) == 0) swapcontext(&starter, &fiber.context);
}

// Runs until all lanes of a warp have ended or wait for the other warps. Returns true if any of them waits.
bool run_warp(std::size_t first) {
  const std::size_t lanes = std::min(kLanes, count - first);
  bool waits = false;
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t turn = 0; turn < lanes; ++turn) {
      current = first + (launches % 2 == 0 ? turn : lanes - 1 - turn);
      Fiber& fiber = fibers[current];
      if (fiber.ended || fiber.waits_for_block) continue;
      threadIdx = fiber.place;
      resume();
      waits = waits || fiber.waits_for_block;
      moves = true;
    }
  }
  return waits;
}

void run_block() {
  const std::size_t warps = (count + kLanes - 1) / kLanes;
  for (bool alive = true; alive;) {
    alive = false;
    for (std::size_t index = 0; index < count; ++index) fibers[index].waits_for_block = false;
    for (std::size_t turn = 0; turn < warps; ++turn) {
      const std::size_t warp = launches % 2 == 0 ? turn : warps - 1 - turn;
      alive = run_warp(warp * kLanes) || alive;
    }
  }
}

}  // namespace

void meet() {
  fibers[current].waits_for_block = true;
  leave();
}

namespace {

void meet_in_warp() {
  leave();
}

}  // namespace

void exchange(const void* given, void* received, std::size_t bytes, int offset) {
  if (bytes > sizeof(Fiber::given)) std::abort();
  std::memcpy(fibers[current].given.data(), given, bytes);
  const std::size_t other = current ^ static_cast<std::size_t>(offset);
  meet_in_warp();
  std::memcpy(received, fibers[other].given.data(), bytes);
  meet_in_warp();
}

void gather(const void* given, void* received, std::size_t bytes) {
  if (bytes > sizeof(Fiber::given)) std::abort();
  std::memcpy(fibers[current].given.data(), given, bytes);
  const std::size_t first = current / kLanes * kLanes;
  meet_in_warp();
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    std::memcpy(static_cast<std::byte*>(received) + lane * bytes, fibers[first + lane].given.data(), bytes);
  }
  meet_in_warp();
}

std::uint32_t rounded_pair(float low, float high) {
  return __float2bfloat16_rn(low).bits | static_cast<std::uint32_t>(__float2bfloat16_rn(high).bits) << 16U;
}

namespace {

float half_of(std::uint32_t pair, std::size_t half) {
  return std::bit_cast<float>(half == 0 ? pair << 16U : pair & 0xffff0000U);
}

// Loads one matrix per register, whose row address each lane gives; `element` maps row and column to the value for lane
// and half.
template <class Element>
void load(std::uint32_t (&tiles)[4], const void* row, const Element& element) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) std::abort();
  std::array<const std::uint16_t*, kLanes> rows;
  gather(&row, rows.data(), sizeof(row));
  const std::size_t lane = current % kLanes;
  for (std::size_t matrix = 0; matrix < 4; ++matrix) {
    tiles[matrix] = 0;
    for (std::size_t half = 0; half < 2; ++half) {
      tiles[matrix] |= static_cast<std::uint32_t>(element(&rows[8 * matrix], lane, half)) << (16U * half);
    }
  }
}

}  // namespace

void multiply_tiles(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b_low, std::uint32_t b_high) {
  const std::array<std::uint32_t, 6> own = {a[0], a[1], a[2], a[3], b_low, b_high};
  std::array<std::array<std::uint32_t, 6>, kLanes> all;
  gather(&own, &all, sizeof(own));
  const std::size_t lane = current % kLanes;
  for (std::size_t place = 0; place < 4; ++place) {
    const std::size_t row = lane / 4;
    const std::size_t column = 2 * (lane % 4) + place % 2;
    for (std::size_t k = 0; k < 16; ++k) {
      const std::size_t of_pair = k % 8 / 2;
      const float left = half_of(all[4 * row + of_pair][place / 2 + 2 * (k / 8)], k % 2);
      sums[place] += left * half_of(all[4 * column + of_pair][4 + k / 8], k % 2);
    }
  }
}

void load_tiles(std::uint32_t (&tiles)[4], const void* row) {
  load(tiles, row, [](const std::uint16_t* const* rows, std::size_t lane, std::size_t half) {
    return rows[lane / 4][2 * (lane % 4) + half];
  });
}

void load_tiles_transposed(std::uint32_t (&tiles)[4], const void* row) {
  load(tiles, row, [](const std::uint16_t* const* rows, std::size_t lane, std::size_t half) {
    return rows[2 * (lane % 4) + half][lane / 4];
  });
}

float* dynamic_shared() {
  return shared_memory.data();
}

void hold_events(bool held) {
  const std::lock_guard lock(running);
  events_held = held;
}

bool events_are_held() {
  const std::lock_guard lock(running);
  return events_held;
}

int shared_limit() {
  const std::lock_guard lock(running);
  return static_cast<int>(most_shared);
}

void set_shared_limit(int bytes) {
  const std::lock_guard lock(running);
  most_shared = static_cast<std::size_t>(bytes);
}

bool allow_shared(int bytes) {
  const std::lock_guard lock(running);
  if (static_cast<std::size_t>(bytes) > most_shared) return false;
  allowed = static_cast<std::size_t>(bytes);
  return true;
}

void launch(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread) {
  const std::lock_guard lock(running);
  if (shared_bytes > std::exchange(allowed, kUnasked) || block.x * block.y * block.z > 1024) std::abort();
  count = static_cast<std::size_t>(block.x) * block.y * block.z;
  body = &thread;
  while (fibers.size() < count) {
    fibers.emplace_back();
    begin(fibers.size() - 1);
  }
  blockDim = block;
  gridDim = grid;
  ++launches;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        // Not zeros, because kernels must not rely on them.
        shared_memory.assign(shared_bytes / sizeof(float) + 1, -1e30F);
        for (std::size_t index = 0; index < count; ++index) {
          const auto number = static_cast<unsigned>(index);
          fibers[index].place = dim3(number % block.x, number / block.x % block.y, number / block.x / block.y);
          fibers[index].ended = false;
        }
        run_block();
        threads += count;
      }
    }
  }
}

std::size_t threads_run() {
  const std::lock_guard lock(running);
  return threads;
}

}  // namespace flopcast::emulated
