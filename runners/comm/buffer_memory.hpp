#pragma once

#include <cstddef>

namespace heteroperf {

class DeviceCopier;

/// Where the buffers of a communicator's calls must live.
class BufferMemory {
 public:
  virtual ~BufferMemory() = default;
  /// Whether ordinary code may read and write it.
  virtual bool on_host() const = 0;
  /// Throws SystemError when there is none left.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  /// Copies `bytes` bytes from this process's memory, done on return.
  virtual void write(void* to, const void* host, std::size_t bytes) = 0;
  virtual void read(void* host, const void* from, std::size_t bytes) = 0;
  /// Copies beside its caller; null where ordinary code reads and writes the memory, or where the
  /// device cannot.
  virtual DeviceCopier* copier() { return nullptr; }
};

/// Ordinary memory of the process.
BufferMemory& host_memory();

/// Owns one block.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  MemoryBlock(BufferMemory& memory, std::size_t bytes)
      : memory_(&memory), data_(memory.allocate(bytes)) {}
  MemoryBlock(MemoryBlock&& other) noexcept : memory_(other.memory_), data_(other.data_) {
    other.data_ = nullptr;
  }
  MemoryBlock& operator=(MemoryBlock&& other) noexcept;
  ~MemoryBlock() { reset(); }

  void* data() const { return data_; }

 private:
  void reset() noexcept {
    if (data_ != nullptr) memory_->release(data_);
    data_ = nullptr;
  }

  BufferMemory* memory_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace heteroperf
