#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "metrics/quantity.hpp"

namespace heteroperf {

enum class DataType { f32, f64, i32, i64, u8 };
enum class Reduction { sum, min, max, average };

std::size_t size_of(DataType type);

template <class T>
constexpr DataType data_type_of() {
  if constexpr (std::is_same_v<T, float>) return DataType::f32;
  if constexpr (std::is_same_v<T, double>) return DataType::f64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DataType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DataType::i64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DataType::u8;
}

/// Elements to be read. Does not own them.
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
};

/// Elements to be written. Does not own them.
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
  operator ConstBuffer() const { return {data, count, type}; }
};

/// Moves tensors between the ranks of one group. Every call blocks until this rank's part is done.
///
/// Collectives are issued in the same order on every rank of the group, with equal counts and
/// types. Sums are in an order that depends on the rank count alone, so a repeated run gives the
/// same bits. Every wait fails with PeerError when a rank it depends on is dead, has aborted, or
/// showed no progress for the deadline; afterwards the communicator can only be destroyed.
/// One communicator is used by one thread at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual RankId rank() const = 0;
  virtual int size() const = 0;
  /// "threads", "mpi", "null".
  virtual std::string transport() const = 0;

  /// Element-wise, in place. i32/i64 average rounds towards zero.
  virtual void all_reduce(MutableBuffer values, Reduction reduction = Reduction::sum) = 0;
  virtual void broadcast(MutableBuffer values, RankId root) = 0;
  /// `all` holds size() blocks of `mine.count`, in rank order.
  virtual void all_gather(ConstBuffer mine, MutableBuffer all) = 0;
  /// `all` holds size() blocks of `mine.count`; rank r receives the reduced block r.
  virtual void reduce_scatter(ConstBuffer all, MutableBuffer mine,
                              Reduction reduction = Reduction::sum) = 0;
  /// Matching is by (peer, tag), in order.
  virtual void send(ConstBuffer values, RankId to, int tag = 0) = 0;
  virtual void receive(MutableBuffer values, RankId from, int tag = 0) = 0;
  virtual void barrier() = 0;
  /// A group of the ranks that pass the same colour, ordered by (key, rank). Collective.
  virtual std::unique_ptr<Communicator> split(int colour, int key) = 0;
};

/// A group of one, without any library.
std::unique_ptr<Communicator> make_null_communicator();

}  // namespace heteroperf
