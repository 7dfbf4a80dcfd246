#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

constexpr DataType all_types[] = {DataType::f32, DataType::f64, DataType::bf16, DataType::f16,
                                  DataType::i32, DataType::i64, DataType::u8};
constexpr Reduction all_reductions[] = {Reduction::sum, Reduction::min, Reduction::max,
                                        Reduction::average};

/// Elements of a type chosen at run time, read and written as doubles.
class TypedValues {
 public:
  using Formula = std::function<double(std::size_t i)>;

  TypedValues(DataType type, std::size_t count) : type_(type), bytes_(count * size_of(type)) {}
  TypedValues(DataType type, std::size_t count, const Formula& formula) : TypedValues(type, count) {
    fill(0, count, formula);
  }

  DataType type() const { return type_; }
  std::size_t count() const { return bytes_.size() / size_of(type_); }
  MutableBuffer buffer() { return {bytes_.data(), count(), type_}; }
  ConstBuffer buffer() const { return {bytes_.data(), count(), type_}; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

  /// Element begin + i becomes formula(i).
  void fill(std::size_t begin, std::size_t count, const Formula& formula);
  double operator[](std::size_t i) const;
  /// Elements that are not formula(i) to within `tolerance` × |formula(i)|.
  std::size_t wrong(const Formula& formula, double tolerance = 0) const;

 private:
  DataType type_;
  std::vector<std::byte> bytes_;
};

/// Element i of `rank`: a small whole number, negative ones included where the type has them. Sums
/// over eight ranks are exact in every type.
double sample(DataType type, int rank, std::size_t i);
TypedValues samples(DataType type, int rank, std::size_t count);
/// What `ranks` ranks make of their element i.
double reduced(DataType type, int ranks, std::size_t i, Reduction reduction);
/// Averages over other than 2ⁿ ranks may be 2 ULP off; everything else is exact.
double tolerance(DataType type, int ranks, Reduction reduction);

}  // namespace heteroperf
