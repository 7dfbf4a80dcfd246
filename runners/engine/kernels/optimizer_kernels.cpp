// The loops of the optimizer on the host. Each element is read and written once. Blocks have fixed
// bounds, so that sums have the same bits with any number of threads.
//
// An update is bound by memory: per parameter it reads four values and writes three, and computes
// little. So the whole formula is one loop over the arenas, and each loop is compiled for several
// instruction sets, of which the loader takes the widest that the processor has. The blocks are
// 16384 elements, enough to hide the cost of handing a block to a thread.
#include "runners/engine/kernels/optimizer_kernels.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

// One body, compiled for several instruction sets; the loader picks. Sanitizers run before the
// loader's choice can.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HETEROPERF_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HETEROPERF_VECTOR_CLONES
#endif

namespace heteroperf {
namespace {

// Sixteen partial sums let the loop use vector registers without reordering by the compiler.
template <class T>
[[gnu::always_inline]] inline double squares_body(const T* values, std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  std::array<double, lanes> partial{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const auto x = static_cast<double>(values[i + lane]);
      partial[lane] += x * x;
    }
  }
  for (; i < count; ++i)
    partial[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

HETEROPERF_VECTOR_CLONES void adamw_block(float* __restrict w, const float* __restrict g,
                                          float* __restrict m, float* __restrict v, std::int64_t n,
                                          const AdamwFactors<float>& k) {
  for (std::int64_t i = 0; i < n; ++i) k.update(i, w, g, m, v);
}
HETEROPERF_VECTOR_CLONES void adamw_block(double* __restrict w, const double* __restrict g,
                                          double* __restrict m, double* __restrict v,
                                          std::int64_t n, const AdamwFactors<double>& k) {
  for (std::int64_t i = 0; i < n; ++i) k.update(i, w, g, m, v);
}
HETEROPERF_VECTOR_CLONES void sgd_block(float* __restrict w, const float* __restrict g,
                                        float* __restrict b, std::int64_t n,
                                        const SgdFactors<float>& k) {
  for (std::int64_t i = 0; i < n; ++i) k.update(i, w, g, b);
}
HETEROPERF_VECTOR_CLONES void sgd_block(double* __restrict w, const double* __restrict g,
                                        double* __restrict b, std::int64_t n,
                                        const SgdFactors<double>& k) {
  for (std::int64_t i = 0; i < n; ++i) k.update(i, w, g, b);
}
HETEROPERF_VECTOR_CLONES double squares_block(const float* values, std::int64_t n) {
  return squares_body(values, n);
}
HETEROPERF_VECTOR_CLONES double squares_block(const double* values, std::int64_t n) {
  return squares_body(values, n);
}

constexpr std::int64_t block_elements = 1 << 14;

/// Runs body(block, first, count) on blocks of fixed bounds: what a block computes does not depend
/// on the number of threads.
template <class Body>
void for_blocks(std::int64_t begin, std::int64_t end, const Body& body) {
  const std::int64_t blocks = (end - begin + block_elements - 1) / block_elements;
  at::parallel_for(0, blocks, 1, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t block = from; block < to; ++block) {
      const std::int64_t first = begin + block * block_elements;
      body(block, first, std::min(block_elements, end - first));
    }
  });
}

}  // namespace

template <class T>
void adamw_update(T* weight, const T* gradient, T* first, T* second, std::int64_t begin,
                  std::int64_t end, const AdamwScalars& scalars) {
  const AdamwFactors<T> k(scalars);
  for_blocks(begin, end, [&](std::int64_t, std::int64_t start, std::int64_t count) {
    adamw_block(weight + start, gradient + start, first + start, second + start, count, k);
  });
}

template <class T>
void sgd_update(T* weight, const T* gradient, T* velocity, std::int64_t begin, std::int64_t end,
                const SgdScalars& scalars) {
  const SgdFactors<T> k(scalars);
  for_blocks(begin, end, [&](std::int64_t, std::int64_t start, std::int64_t count) {
    sgd_block(weight + start, gradient + start, velocity + start, count, k);
  });
}

template <class T>
double sum_of_squares(const T* values, std::int64_t count) {
  std::vector<double> sums(static_cast<std::size_t>((count + block_elements - 1) / block_elements));
  for_blocks(0, count, [&](std::int64_t block, std::int64_t start, std::int64_t length) {
    sums[block] = squares_block(values + start, length);
  });
  // The blocks are added in their order.
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

template void adamw_update(float*, const float*, float*, float*, std::int64_t, std::int64_t,
                           const AdamwScalars&);
template void adamw_update(double*, const double*, double*, double*, std::int64_t, std::int64_t,
                           const AdamwScalars&);
template void sgd_update(float*, const float*, float*, std::int64_t, std::int64_t,
                         const SgdScalars&);
template void sgd_update(double*, const double*, double*, std::int64_t, std::int64_t,
                         const SgdScalars&);
template double sum_of_squares(const float*, std::int64_t);
template double sum_of_squares(const double*, std::int64_t);

}  // namespace heteroperf
