#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/statistics.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Test data that tells a wrong result from a right one bit for bit. Every rank's elements are
/// random integers times a power of two, so small that the sum over all ranks is exact in `type` in
/// any order of adding. Any rank makes any element in O(1), and the expected result in O(ranks).
/// Averages are the exact sum divided once.
struct ExactValues {
  DataType type = DataType::f32;
  int ranks = 1;
  std::uint64_t seed = 1;

  /// Writes the elements [first, first + out.count) of a rank.
  void fill(RankId rank, std::size_t first, MutableBuffer out) const;
  /// Returns a bound: no element is larger.
  double largest() const;
  /// Writes the result of reducing all ranks' elements.
  void fill_reduced(Reduction reduction, std::size_t first, MutableBuffer out) const;
};

/// The distance from the truth that an element may have.
struct Tolerance {
  int ulps = 0;         ///< steps of the type, around the expected value
  double absolute = 0;  ///< for a compressed wire; float32 only
};

/// The findings of a comparison.
struct Deviation {
  std::uint64_t wrong = 0;                 ///< elements beyond the tolerance
  double largest = 0, sum_of_squares = 0;  ///< |got − expected|, where it is a number

  Deviation& operator+=(const Deviation& part);
};

/// Compares two buffers of the same count and type. NaN is right only where NaN is expected.
Deviation deviation(ConstBuffer got, ConstBuffer expected, const Tolerance& tolerance);

enum class Collective {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  send_receive,  ///< every rank sends to the next one and receives from the one before
};

/// Returns the name as `heteroperf comm` spells it: "allreduce", "sendrecv", …
const char* to_string(Collective collective);
/// Throws UserError naming the nearest name.
Collective parse_collective(const std::string& text);
std::span<const Collective> all_collectives();
bool reduces(Collective collective);

/// The factor in busbw = algbw × factor (NVIDIA nccl-tests, doc/PERFORMANCE.md): 2(n−1)/n for
/// all-reduce, (n−1)/n for reduce-scatter, all-gather and all-to-all, 1 for the others.
double bus_factor(Collective collective, int ranks);

/// One collective on buffers of one size.
struct CaseShape {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  Reduction reduction = Reduction::sum;
  RankId root{0};
  /// The size S as nccl-tests has it: of the vector, or of all ranks' blocks together for
  /// reduce-scatter, all-gather and all-to-all, which round it down to equal blocks.
  Bytes bytes{0};
  bool in_place = false;  ///< all_to_all and send_receive never are
};

/// The elements of S, rounded down to a multiple of `ranks` where S is made of blocks.
std::size_t elements_of(const CaseShape& shape, int ranks);
/// The memory that one rank needs for the buffers of a case.
Bytes memory_of(const CaseShape& shape, int ranks);

/// One rank's part in a case: its buffers, in the group's memory, and the call.
class CollectiveCase {
 public:
  /// `group` outlives this object.
  CollectiveCase(Communicator& group, const CaseShape& shape);

  Bytes bytes() const;  ///< S after rounding
  void run();
  /// Writes fresh inputs, and overwrites the result with bytes that no call gives.
  void fill(std::uint64_t seed);
  /// Compares the result of run() with the expected one. `tolerance` is for sums and averages.
  Deviation check(const Tolerance& tolerance) const;

 private:
  /// The elements of a rank's block.
  std::size_t block() const { return elements_ / static_cast<std::size_t>(ranks_); }
  MutableBuffer input() const;
  MutableBuffer output() const;
  MutableBuffer buffer_in(const MemoryBlock& memory, std::size_t count) const;
  /// Fills in the elements [first, first + expected.count) that this rank's output must have.
  void expect(std::size_t first, MutableBuffer expected) const;

  Communicator& group_;
  CaseShape shape_;
  int ranks_;
  std::size_t elements_;
  std::vector<std::size_t> blocks_;  ///< elements of each rank's block
  ExactValues values_;
  MemoryBlock input_, output_;
};

struct TimingConfig {
  int warmup = 5;
  int iterations = 0;   ///< 0: as many as fit into the budget, 7 to 5000
  Seconds budget{0.5};  ///< per case
};

/// The time of one call; an iteration counts with its slowest rank's time.
struct CallTime {
  Seconds median{0}, fastest{0}, p95{0};
  /// The 95 % interval of the median, in seconds, from order statistics: it assumes no
  /// distribution.
  Interval ci95;
  std::size_t iterations = 0;
};

/// Times `call` on all ranks of `group`, which starts it together and shares the times; `call`
/// itself may use another communicator of the same ranks. Collective; equal on all ranks.
CallTime time_calls(Communicator& group, const std::function<void()>& call,
                    const TimingConfig& config);

/// Summarises at least one sample, in seconds.
CallTime summarise(std::vector<double> seconds);

}  // namespace heteroperf
