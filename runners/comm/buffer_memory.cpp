#include "runners/comm/buffer_memory.hpp"

#include <cstring>
#include <new>
#include <utility>

namespace heteroperf {
namespace {

class HostMemory final : public BufferMemory {
 public:
  bool on_host() const override { return true; }
  void* allocate(std::size_t bytes) override {
    // Written to at once: pages that are first touched inside a measured call would be counted.
    void* memory = ::operator new(bytes, alignment);
    std::memset(memory, 0, bytes);
    return memory;
  }
  void release(void* memory) noexcept override { ::operator delete(memory, alignment); }
  void write(void* to, const void* host, std::size_t bytes) override { copy(to, host, bytes); }
  void read(void* host, const void* from, std::size_t bytes) override { copy(host, from, bytes); }

 private:
  static constexpr std::align_val_t alignment{64};
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
};

}  // namespace

BufferMemory& host_memory() {
  static HostMemory memory;
  return memory;
}

MemoryBlock& MemoryBlock::operator=(MemoryBlock&& other) noexcept {
  reset();
  memory_ = other.memory_;
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

}  // namespace heteroperf
