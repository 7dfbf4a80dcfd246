#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace heteroperf {

/// A bfloat16 number is the upper half of a float32. Conversions have no branches, so that loops of
/// them become vector instructions.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  /// Rounds to the nearest number, ties to even; NaN stays NaN.
  constexpr explicit BFloat16(float value);
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  friend bool operator==(BFloat16, BFloat16) = default;
};

/// A number of IEEE 754's binary16: 1 sign bit, 5 bits of exponent, 10 of mantissa.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  /// Rounds to the nearest number, ties to even. Values beyond 65504 become infinite, NaN stays
  /// NaN, and subnormal numbers are kept.
  constexpr explicit Float16(float value);
  constexpr explicit operator float() const;
  friend bool operator==(Float16, Float16) = default;
};

namespace detail {

constexpr std::int32_t infinity_bits = 0x7f800000;  // of float32
/// The difference between the exponent fields of float32 and binary16 for the same number, shifted
/// to the place of float32's exponent.
constexpr std::int32_t half_rebias = (127 - 15) << 23;

/// Chooses without a branch: both values are computed already.
constexpr std::int32_t choose(bool condition, std::int32_t yes, std::int32_t no) {
  const std::int32_t mask = -static_cast<std::int32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

}  // namespace detail

constexpr BFloat16::BFloat16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (word + 0x7fff + (word >> 16 & 1)) >> 16;
  const bool nan = static_cast<std::int32_t>(word & 0x7fffffff) > detail::infinity_bits;
  bits = static_cast<std::uint16_t>(nan ? (word >> 16 | 0x40) : rounded);
}

constexpr Float16::operator float() const {
  const std::int32_t magnitude = (bits & 0x7fff) << 13;
  constexpr std::int32_t top = 0x7c00 << 13;
  const std::int32_t normal = magnitude + detail::half_rebias;
  const std::int32_t special = normal + ((128 - 16) << 23);
  // A subnormal number has no leading 1. The digits are put below a leading 1 of 2^-14, which a
  // subtraction then takes away.
  constexpr std::int32_t leading = 113 << 23;
  const float small = std::bit_cast<float>(magnitude + leading) - std::bit_cast<float>(leading);
  std::int32_t word = detail::choose(magnitude >= top, special, normal);
  word = detail::choose(magnitude < (1 << 23), std::bit_cast<std::int32_t>(small), word);
  return std::bit_cast<float>(static_cast<std::uint32_t>(word) |
                              static_cast<std::uint32_t>(bits & 0x8000) << 16);
}

constexpr Float16::Float16(float value) {
  const auto whole = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(whole & 0x7fffffff);
  // Rounding may carry into the exponent, all the way up to infinity, which is as it should be.
  const std::int32_t normal =
      (magnitude - detail::half_rebias + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // The last digit of a float32 near 0.5 is binary16's smallest number, so for subnormal results
  // the addition of 0.5 itself rounds.
  const std::int32_t small = std::bit_cast<std::int32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
                             std::bit_cast<std::int32_t>(0.5F);
  constexpr std::int32_t overflow = (127 + 16) << 23;
  constexpr std::int32_t least_normal = 113 << 23;
  std::int32_t half = detail::choose(magnitude < least_normal, small, normal);
  half = detail::choose(magnitude >= overflow, 0x7c00, half);
  half = detail::choose(magnitude > detail::infinity_bits, 0x7e00, half);
  bits = static_cast<std::uint16_t>(static_cast<std::uint32_t>(half) | (whole >> 16 & 0x8000));
}

/// Copies between the memory of one device and the memory of this host. A copy runs beside its
/// caller, and its host memory stays in place until it is done. Used by one thread at a time.
class DeviceCopier {
 public:
  using Ticket = std::uint64_t;

  virtual ~DeviceCopier() = default;
  /// The name of the device in messages: "cuda:0".
  virtual std::string name() const = 0;
  virtual Ticket start_read(const std::byte* device, std::span<std::byte> host) = 0;
  virtual Ticket start_write(std::span<const std::byte> host, std::byte* device) = 0;
  /// Returns true when a copy has ended; the caller does not ask for it again. Throws SystemError
  /// when the copy failed.
  virtual bool done(Ticket copy) = 0;
  /// Allocates staging memory of the kind that this device reads and writes best.
  virtual std::shared_ptr<std::byte[]> host_memory(std::size_t bytes) {
    return std::shared_ptr<std::byte[]>(new std::byte[bytes]);
  }
};

/// The element types that every transport can move and reduce.
enum class DataType { f32, f64, bf16, f16, i32, i64, u8 };
/// The names of types as users write them.
constexpr std::array<const char*, 7> value_names(DataType) {
  return {"f32", "f64", "bf16", "f16", "i32", "i64", "u8"};
}

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

/// A view of elements; `Void` is const where they are only read. It does not own them.
template <class Void>
struct BufferOf {
  static constexpr bool only_reads = std::is_const_v<Void>;
  Void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::u8;

  BufferOf() = default;
  BufferOf(Void* d, std::size_t n, DataType t) : data(d), count(n), type(t) {}
  template <class T, std::size_t extent>
  requires(std::is_const_v<T> == only_reads) BufferOf(std::span<T, extent> values)
      : data(values.data()), count(values.size()), type(data_type_of<std::remove_const_t<T>>()) {}
  std::size_t bytes() const { return count * size_of(type); }
  /// The elements [begin, begin + n).
  BufferOf part(std::size_t begin, std::size_t n) const {
    using Byte = std::conditional_t<only_reads, const std::byte, std::byte>;
    return {static_cast<Byte*>(data) + begin * size_of(type), n, type};
  }
  operator BufferOf<const void>() const requires(!only_reads) { return {data, count, type}; }
};
using ConstBuffer = BufferOf<const void>;  ///< elements that a call reads
using MutableBuffer = BufferOf<void>;      ///< elements that a call writes

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
