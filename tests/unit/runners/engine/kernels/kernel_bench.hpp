#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/scalar_types.hpp"

namespace heteroperf {
namespace {

/// Values of an element type or of its accumulation type.
struct Values {
  Element element = Element::float32;
  std::vector<std::byte> bytes;

  Values(Element type, std::int64_t count)
      : element(type), bytes(static_cast<std::size_t>(count) * size()) {}
  std::size_t size() const {
    return element == Element::float64 ? 8 : element == Element::float32 ? 4 : 2;
  }
  std::int64_t count() const { return static_cast<std::int64_t>(bytes.size() / size()); }
  void* data() { return bytes.data(); }
  void set(std::int64_t i, double value) {
    std::byte* at = bytes.data() + static_cast<std::size_t>(i) * size();
    if (element == Element::float64) {
      std::memcpy(at, &value, 8);
    } else if (element == Element::float32) {
      const auto single = static_cast<float>(value);
      std::memcpy(at, &single, 4);
    } else {
      const Bf16 half = round_to_bf16(static_cast<float>(value));
      std::memcpy(at, &half, 2);
    }
  }
  double at(std::int64_t i) const {
    const std::byte* from = bytes.data() + static_cast<std::size_t>(i) * size();
    if (element == Element::float64) return *reinterpret_cast<const double*>(from);
    if (element == Element::float32) return *reinterpret_cast<const float*>(from);
    return widen(*reinterpret_cast<const Bf16*>(from));
  }
};

/// What a case runs with: either the CPU's table or the device's, on values of its own seed.
class Bench {
 public:
  using Tables = const KernelTable& (*)(Element);
  Bench(Tables tables, Element element, bool device, std::uint64_t seed)
      : k(tables(element)), tables_(tables), element_(element), device_(device), random_(seed) {}

  Values data(std::int64_t count, double low = -2, double high = 2) {
    return draw(element_, count, low, high);
  }
  Values sums(std::int64_t count, double low = -2, double high = 2) {
    return draw(element_ == Element::float64 ? element_ : Element::float32, count, low, high);
  }
  std::vector<std::int64_t> indices(std::int64_t count, std::int64_t low, std::int64_t high) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(count));
    for (std::int64_t& index : all) {
      index =
          low + static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(high - low)));
    }
    return all;
  }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(bound)));
  }
  std::int64_t rows_per_block(std::int64_t rows, std::int64_t columns) const {
    return device_ ? device_rows_per_block(rows, columns) : std::max<std::int64_t>(rows, 1);
  }
  std::int64_t blocks(std::int64_t rows, std::int64_t columns) const {
    const std::int64_t per_block = rows_per_block(rows, columns);
    return (rows + per_block - 1) / per_block;
  }
  Values partials(std::int64_t rows, std::int64_t columns) {
    return sums(blocks(rows, columns) * columns);
  }
  void combine(Values& parts, std::int64_t columns,
               Accumulation accumulation = Accumulation::overwrite) {
    Values total = sums(columns);
    tables_(parts.element)
        .combine({0, columns, columns}, parts.count() / columns, parts.data(), accumulation,
                 total.data());
    outputs.push_back(total);
  }

  const KernelTable& k;
  std::vector<Values> outputs;

 private:
  Values draw(Element type, std::int64_t count, double low, double high) {
    Values values(type, count);
    for (std::int64_t i = 0; i < count; ++i) {
      values.set(i, low + (high - low) * random_.unit());
    }
    // Both benches draw alike whatever the sizes of their partial sums.
    random_ = RandomStream(mix64(++draws_));
    return values;
  }

  Tables tables_;
  Element element_;
  bool device_;
  RandomStream random_;
  std::uint64_t draws_ = 0;
};

}  // namespace
}  // namespace heteroperf
