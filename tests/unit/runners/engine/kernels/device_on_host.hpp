#pragma once

// Plays the part of a device for the sources of CUDA kernels compiled as plain C++: blocks run one
// after the other, the threads of a block as contexts that switch where they wait for each other.
// So barriers, shared memory and exchanges within a warp mean what they mean on a device.
#define HETEROPERF_CUDA_ON_HOST

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#define __global__
#define __device__
#define HETEROPERF_SHARED static

namespace heteroperf {

struct DevicePosition {
  unsigned x = 0, y = 0;
};

/// One block's threads at a time, on contexts of their own that stay for the next block.
class DeviceBlock {
 public:
  static DeviceBlock& instance() {
    static DeviceBlock block;
    return block;
  }

  /// Until all threads have ended. Throws std::logic_error where they wait for ever.
  void run(unsigned threads_x, unsigned threads_y, const std::function<void()>& body);
  /// Waits for the threads of [first, first + count) that have not ended.
  void wait(unsigned first, unsigned count);
  unsigned own() const { return own_; }
  std::uint64_t& mail(unsigned thread) { return threads_[thread]->mail; }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{1} << 16;
  struct Thread {
    ucontext_t first{};
    jmp_buf later{};
    std::unique_ptr<char[]> stack;
    bool started = false, ended = false;
    std::uint64_t waits = 0;  ///< barriers reached
    std::uint64_t mail = 0;
  };
  static void live();
  void make(unsigned count);
  // Apart from its caller: getcontext() may return twice.
  [[gnu::noinline]] static void prepare(Thread& thread) {
    getcontext(&thread.first);
    thread.first.uc_stack.ss_sp = thread.stack.get();
    thread.first.uc_stack.ss_size = stack_bytes;
    thread.first.uc_link = nullptr;
    makecontext(&thread.first, &DeviceBlock::live, 0);
  }
  void go_on(Thread& thread);
  void leave(Thread& thread);

  std::vector<std::unique_ptr<Thread>> threads_;
  unsigned count_ = 0, own_ = 0;
  const std::function<void()>* body_ = nullptr;
  jmp_buf scheduler_{};
};

}  // namespace heteroperf

// As CUDA calls them.
inline heteroperf::DevicePosition threadIdx, blockIdx, blockDim, gridDim;
inline void __syncthreads() {
  heteroperf::DeviceBlock::instance().wait(0, blockDim.x * blockDim.y);
}
inline int __syncthreads_or(int condition) {
  heteroperf::DeviceBlock& block = heteroperf::DeviceBlock::instance();
  block.mail(block.own()) = condition != 0;
  __syncthreads();
  bool any = false;
  for (unsigned t = 0; t < blockDim.x * blockDim.y; ++t) any = any || block.mail(t) != 0;
  __syncthreads();
  return any;
}
template <class A>
A __shfl_xor_sync(unsigned, A value, int lanes) {
  static_assert(sizeof(A) <= sizeof(std::uint64_t));
  heteroperf::DeviceBlock& block = heteroperf::DeviceBlock::instance();
  const unsigned warp = block.own() / 32 * 32;
  __builtin_memcpy(&block.mail(block.own()), &value, sizeof(A));
  block.wait(warp, 32);
  A other;
  __builtin_memcpy(&other, &block.mail(block.own() ^ static_cast<unsigned>(lanes)), sizeof(A));
  block.wait(warp, 32);
  return other;
}

#include "runners/engine/kernels/cuda/launch.cuh"

namespace heteroperf {

// A thread's life: body after body.
inline void DeviceBlock::live() {
  DeviceBlock& block = instance();
  for (;;) {
    (*block.body_)();
    Thread& own = *block.threads_[block.own_];
    own.ended = true;
    block.leave(own);
  }
}

// Jumps make no call into the system, unlike swapcontext().
inline void DeviceBlock::go_on(Thread& thread) {
  if (_setjmp(scheduler_) != 0) return;
  if (thread.started) _longjmp(thread.later, 1);
  thread.started = true;
  setcontext(&thread.first);
}
inline void DeviceBlock::leave(Thread& thread) {
  if (_setjmp(thread.later) == 0) _longjmp(scheduler_, 1);
}

inline void DeviceBlock::make(unsigned count) {
  while (threads_.size() < count) {
    auto thread = std::make_unique<Thread>();
    thread->stack = std::make_unique<char[]>(stack_bytes);
    prepare(*thread);
    threads_.push_back(std::move(thread));
  }
}

inline void DeviceBlock::run(unsigned threads_x, unsigned threads_y,
                             const std::function<void()>& body) {
  count_ = threads_x * threads_y;
  make(count_);
  body_ = &body;
  for (unsigned t = 0; t < count_; ++t) threads_[t]->ended = false, threads_[t]->waits = 0;
  for (bool left = true; left;) {
    left = false;
    bool moved = false;
    for (unsigned t = 0; t < count_; ++t) {
      Thread& thread = *threads_[t];
      if (thread.ended) continue;
      own_ = t;
      threadIdx = {t % threads_x, t / threads_x};
      const std::uint64_t before = thread.waits;
      go_on(thread);
      moved = moved || thread.ended || thread.waits != before;
      left = left || !thread.ended;
    }
    if (left && !moved) throw std::logic_error("threads of a block wait for ever");
  }
}

// A thread goes on when every other one has reached as many barriers: blocks and warps share one
// count, so a barrier that a part of a warp misses is found.
inline void DeviceBlock::wait(unsigned first, unsigned count) {
  Thread& own = *threads_[own_];
  const std::uint64_t reached = ++own.waits;
  const auto all_here = [&] {
    for (unsigned t = first; t < first + count; ++t) {
      if (!threads_[t]->ended && threads_[t]->waits < reached) return false;
    }
    return true;
  };
  while (!all_here()) leave(own);
}

/// What is launched here is done at once.
inline void wait_for_stream(int) {}

template <class... P>
void launch(void (*kernel)(P...), LaunchShape shape, P... arguments) {
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_y > 65535 ||
      shape.threads_x * shape.threads_y > 1024) {
    throw std::logic_error("no device takes this launch");
  }
  gridDim = {shape.grid_x, shape.grid_y};
  blockDim = {shape.threads_x, shape.threads_y};
  for (unsigned y = 0; y < shape.grid_y; ++y) {
    for (unsigned x = 0; x < shape.grid_x; ++x) {
      blockIdx = {x, y};
      const std::function<void()> body = [&] { kernel(arguments...); };
      DeviceBlock::instance().run(shape.threads_x, shape.threads_y, body);
    }
  }
}

}  // namespace heteroperf
