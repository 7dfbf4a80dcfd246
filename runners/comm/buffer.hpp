#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "runners/comm/half_types.hpp"

namespace heteroperf {

/// The element types that every transport can move and reduce.
enum class DataType { f32, f64, bf16, f16, i32, i64, u8 };

/// Calls work(T()) with the C++ type of `type` and returns its result.
template <class Work>
constexpr auto with_type(DataType type, Work&& work) {
  switch (type) {
    case DataType::f32:
      return work(float());
    case DataType::f64:
      return work(double());
    case DataType::bf16:
      return work(BFloat16());
    case DataType::f16:
      return work(Float16());
    case DataType::i32:
      return work(std::int32_t());
    case DataType::i64:
      return work(std::int64_t());
    case DataType::u8:
      break;
  }
  return work(std::uint8_t());
}

constexpr std::size_t size_of(DataType type) {
  return with_type(type, [](auto zero) { return sizeof zero; });
}

template <class T>
constexpr DataType data_type_of() {
  if constexpr (std::is_same_v<T, float>) return DataType::f32;
  if constexpr (std::is_same_v<T, double>) return DataType::f64;
  if constexpr (std::is_same_v<T, BFloat16>) return DataType::bf16;
  if constexpr (std::is_same_v<T, Float16>) return DataType::f16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DataType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DataType::i64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DataType::u8;
}

/// A view of elements that a call reads. It does not own them.
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::u8;

  ConstBuffer() = default;
  ConstBuffer(const void* d, std::size_t n, DataType t) : data(d), count(n), type(t) {}
  template <class T, std::size_t extent>
  ConstBuffer(std::span<const T, extent> values)
      : data(values.data()), count(values.size()), type(data_type_of<T>()) {}
  std::size_t bytes() const { return count * size_of(type); }
  /// The elements [begin, begin + n).
  ConstBuffer part(std::size_t begin, std::size_t n) const {
    return {static_cast<const std::byte*>(data) + begin * size_of(type), n, type};
  }
};

/// A view of elements that a call writes. It does not own them.
struct MutableBuffer {
  void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::u8;

  MutableBuffer() = default;
  MutableBuffer(void* d, std::size_t n, DataType t) : data(d), count(n), type(t) {}
  template <class T, std::size_t extent>
  requires(!std::is_const_v<T>) MutableBuffer(std::span<T, extent> values)
      : data(values.data()), count(values.size()), type(data_type_of<T>()) {}
  std::size_t bytes() const { return count * size_of(type); }
  /// The elements [begin, begin + n).
  MutableBuffer part(std::size_t begin, std::size_t n) const {
    return {static_cast<std::byte*>(data) + begin * size_of(type), n, type};
  }
  operator ConstBuffer() const { return {data, count, type}; }
};

class DeviceCopier;

/// The kind of memory in which the buffers of a communicator's calls must live: a transport between
/// GPUs takes buffers on the device, all others take ordinary memory.
class BufferMemory {
 public:
  virtual ~BufferMemory() = default;
  /// True when ordinary code may read and write the memory.
  virtual bool on_host() const = 0;
  /// Throws SystemError when no memory is left.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  /// Both copies have ended when the call returns.
  virtual void write(void* to, const void* host, std::size_t bytes) = 0;
  virtual void read(void* host, const void* from, std::size_t bytes) = 0;
  /// A copier that works beside its caller. Null where ordinary code reads and writes the memory,
  /// or where the device has no such copies.
  virtual DeviceCopier* copier() { return nullptr; }
};

/// The ordinary memory of the process.
BufferMemory& host_memory();

/// Owns one block of memory of any kind and releases it at its end.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  MemoryBlock(BufferMemory& memory, std::size_t bytes)
      : memory_(&memory), data_(memory.allocate(bytes)) {}
  MemoryBlock(MemoryBlock&& other) noexcept { *this = std::move(other); }
  MemoryBlock& operator=(MemoryBlock&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~MemoryBlock() {
    if (data_ != nullptr) memory_->release(data_);
  }

  void* data() const { return data_; }

 private:
  BufferMemory* memory_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace heteroperf
