#pragma once

// The host's exception: a kernel that needs a form of its own here beside what a skeleton makes of
// its description.
#include "runners/engine/kernels/update_kernels.hpp"

namespace heteroperf {
namespace {

/// The description's order depends on the vectors' width. Sixteen partial sums let the loop use
/// vector registers in one order for all instruction sets.
template <class T>
void host_square_sums(RowRange blocks, std::int64_t count, const void* x, double* sums) {
  constexpr std::int64_t lanes = 16;
  for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
    const T* const values = as<T>(x) + block * blocks.columns;
    const std::int64_t rest = count - block * blocks.columns;
    const std::int64_t n = rest < blocks.columns ? rest : blocks.columns;
    double partial[lanes] = {}, total = 0;
    const auto square = [&](std::int64_t i) HETEROPERF_INLINED {
      const auto v = static_cast<double>(widen(values[i]));
      return v * v;
    };
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) partial[lane] += square(i + lane);
    }
    for (; i < n; ++i) partial[0] += square(i);
    for (const double sum : partial) total += sum;
    sums[block] = total;
  }
}

template <class T>
constexpr KernelTable own_forms(KernelTable table) {
  table.square_sums = host_square_sums<T>;
  return table;
}

}  // namespace
}  // namespace heteroperf
