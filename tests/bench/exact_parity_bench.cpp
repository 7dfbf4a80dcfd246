// Trains one step of a small model of two components in whole numbers under every layout of its
// components, and compares loss and gradients with those of one process bit for bit, and the bytes
// that the plans send between the components with the least possible ones.
//
//     exact_parity_bench [SHARE [PLACEMENT]]
//
// SHARE (1): every SHARE-th layout alone. PLACEMENT (all): same, apart or half. Two cores take
// about half an hour for all of it; a temporary folder in memory (TMPDIR=/dev/shm) saves the disk.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
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

int run(std::size_t share, const std::string& only) {
  const ExactParity parity;
  const std::vector<ParityLayout> layouts = parity_layouts();
  int failed = 0;
  for (const ParityPlacement placement : parity_placements) {
    if (!only.empty() && only != to_string(placement)) continue;
    const Stopwatch stopwatch;
    int tried = 0, holds = 0, most_ranks = 0;
    for (std::size_t i = 0; i < layouts.size(); i += share) {
      const ParityCase tested{layouts[i], placement};
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
  const int share = argc > 1 ? std::atoi(argv[1]) : 1;
  return heteroperf::test::run(static_cast<std::size_t>(std::max(1, share)),
                               argc > 2 ? argv[2] : "");
}
