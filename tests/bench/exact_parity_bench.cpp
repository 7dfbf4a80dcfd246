// Trains one step of a small model of two components in whole numbers under every layout of its
// components, and compares loss and gradients with those of one process bit for bit, and the bytes
// that the plans send between the components with the least possible ones.
//
//     exact_parity_bench [COUNT [PLACEMENT]]
//
// COUNT (all): so many layouts, drawn. PLACEMENT (all): same, apart or half. A temporary folder in
// memory (TMPDIR=/dev/shm) saves the disk.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "tests/unit/runners/engine/exact_parity.hpp"

namespace heteroperf::test {
namespace {

/// Tells what is wrong with a case; nothing where all is as it should be.
std::string failure_of(const ExactParity& parity, const ParityCase& tested) {
  try {
    return parity.difference(tested) + ExactParity::wasted_bytes(parity.training(tested));
  } catch (const Error& error) {
    return error.what();
  }
}

int run(std::size_t count, const std::string& only) {
  const ExactParity parity;
  std::vector<ParityLayout> layouts = parity_layouts();
  std::mt19937_64 random(3);
  std::ranges::shuffle(layouts, random);
  layouts.resize(std::min(count, layouts.size()));
  int failed = 0;
  for (const ParityPlacement placement : parity_placements) {
    if (!only.empty() && only != to_string(placement)) continue;
    const Stopwatch stopwatch;
    int tried = 0, holds = 0, most_ranks = 0;
    for (const ParityLayout& layout : layouts) {
      const ParityCase tested{layout, placement};
      const std::string failure = failure_of(parity, tested);
      ++tried;
      holds += failure.empty() ? 1 : 0;
      most_ranks = std::max(most_ranks, tested.ranks());
      if (!failure.empty()) fmt::print("{}: {}\n", tested.name(), failure);
    }
    failed += tried - holds;
    fmt::print(
        "{}: {} of {} layouts equal one process bit for bit, on up to {} ranks, in {:.0f} s\n",
        to_string(placement), holds, tried, most_ranks, stopwatch.elapsed_s());
    std::fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heteroperf::test

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : ~std::size_t{0};
  return heteroperf::test::run(count, argc > 2 ? argv[2] : "");
}
