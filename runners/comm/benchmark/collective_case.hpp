#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runners/comm/benchmark/exact_values.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

enum class Collective {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  send_receive,  ///< every rank sends to the next one and receives from the one before
};

/// As `heteroperf comm` spells them: "allreduce", "sendrecv", …
const char* to_string(Collective collective);
/// Throws UserError naming the nearest one.
Collective parse_collective(const std::string& text);
std::span<const Collective> all_collectives();
bool reduces(Collective collective);

/// busbw = algbw × this. NVIDIA nccl-tests, doc/PERFORMANCE.md: all-reduce 2(n−1)/n;
/// reduce-scatter, all-gather, all-to-all (n−1)/n; the others 1.
double bus_factor(Collective collective, int ranks);

/// One collective on buffers of one size.
struct CaseShape {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  Reduction reduction = Reduction::sum;
  RankId root{0};
  /// Size S as nccl-tests has it: of the vector; for reduce-scatter, all-gather and all-to-all of
  /// all ranks' blocks together. Rounded down to what these divide into.
  Bytes bytes{0};
  bool in_place = false;  ///< all_to_all and send_receive never are
};

/// Elements of S, rounded down: to a multiple of `ranks` where S is made of blocks.
std::size_t elements_of(const CaseShape& shape, int ranks);
/// Memory one rank needs for the buffers of a case.
Bytes memory_of(const CaseShape& shape, int ranks);

/// The buffers of one rank, in the group's memory, and the call.
class CollectiveCase {
 public:
  /// `group` outlives it.
  CollectiveCase(Communicator& group, const CaseShape& shape);

  Bytes bytes() const;  ///< S after rounding
  void run();
  /// Fresh inputs; the result is overwritten with what no call gives.
  void fill(std::uint64_t seed);
  /// What run() left, against what it had to leave. `tolerance` is for sums and averages.
  Deviation check(const Tolerance& tolerance) const;

 private:
  std::size_t own_block() const { return elements_ / static_cast<std::size_t>(ranks_); }
  MutableBuffer input() const;
  MutableBuffer output() const;
  /// Elements [first, first + expected.count) of what this rank's output must be.
  void expect(std::size_t first, MutableBuffer expected) const;

  Communicator& group_;
  CaseShape shape_;
  int ranks_;
  std::size_t elements_;
  std::vector<std::size_t> blocks_;  ///< elements of each rank's block
  ExactValues values_;
  MemoryBlock input_, output_;
};

}  // namespace heteroperf
