// A case of the benchmark: one collective on buffers of one size, its check, and its time.
//
// Inputs are exact values (exact_values.cpp), so that every rank can compute every element of the
// expected result. Buffers may be on a device; they are filled and checked in chunks through host
// memory. All ranks start a series of calls together and do not meet in between.
#include "runners/comm/benchmark/collective_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

struct CollectiveRow {
  Collective value;
  const char* name;
  bool of_blocks;  ///< true when S is made of one block per rank
  bool reduces;
};

constexpr CollectiveRow rows[] = {
    {Collective::all_reduce, "allreduce", false, true},
    {Collective::reduce_scatter, "reducescatter", true, true},
    {Collective::all_gather, "allgather", true, false},
    {Collective::broadcast, "broadcast", false, false},
    {Collective::reduce, "reduce", false, true},
    {Collective::all_to_all, "alltoall", true, false},
    {Collective::send_receive, "sendrecv", false, false},
};
constexpr auto every_collective = values_of(rows);

/// Returns true when input and result are one buffer: a broadcast has no other form, and some
/// calls are never in place.
bool shares_buffer(const CaseShape& shape) {
  if (shape.collective == Collective::broadcast) return true;
  const bool is_exchange =
      shape.collective == Collective::all_to_all || shape.collective == Collective::send_receive;
  return shape.in_place && !is_exchange;
}

/// The elements of a buffer that is a block for one collective and all of S for the others.
std::size_t buffer_elements(const CaseShape& shape, Collective of_block, int ranks) {
  const std::size_t elements = elements_of(shape, ranks);
  return shape.collective == of_block ? elements / static_cast<std::size_t>(ranks) : elements;
}
std::size_t input_elements(const CaseShape& shape, int ranks) {
  return buffer_elements(shape, Collective::all_gather, ranks);
}
std::size_t output_elements(const CaseShape& shape, int ranks) {
  return buffer_elements(shape, Collective::reduce_scatter, ranks);
}

constexpr int poison = 0xa5;
constexpr std::size_t chunk_elements = 16384;

/// Calls work(first, part) for consecutive parts of a buffer.
template <class Work>
void each_chunk(MutableBuffer buffer, Work work) {
  for (std::size_t first = 0; first < buffer.count; first += chunk_elements) {
    work(first, buffer.part(first, std::min(chunk_elements, buffer.count - first)));
  }
}

constexpr int least_iterations = 7;
constexpr int most_iterations = 5000;

double seconds_of(const std::function<void()>& call) {
  const Stopwatch stopwatch;
  call();
  return stopwatch.elapsed_s();
}

/// Decides by the slowest rank's last warm-up call, so that all ranks decide alike.
int iterations_for(Communicator& group, double call_s, const TimingConfig& config) {
  if (config.iterations > 0) return config.iterations;
  group.all_reduce(std::span(&call_s, 1), Reduction::max);
  const double fit = config.budget.value() / std::max(call_s, 1e-9);
  return static_cast<int>(std::clamp<double>(fit, least_iterations, most_iterations));
}

/// Takes the order statistics around the median, by the normal approximation of the binomial
/// distribution.
Interval median_interval(const std::vector<double>& sorted) {
  const double n = static_cast<double>(sorted.size());
  const double reach = 1.96 * std::sqrt(n) / 2;
  const double low = std::floor(n / 2 - reach), high = std::ceil(n / 2 + reach);
  const auto at = [&](double index) {
    return sorted[static_cast<std::size_t>(std::clamp(index, 0.0, n - 1))];
  };
  return {at(low), at(high)};
}

}  // namespace

const char* to_string(Collective collective) { return name_of(rows, collective); }

Collective parse_collective(const std::string& text) {
  return parse_name(rows, "collective", text);
}

std::span<const Collective> all_collectives() { return every_collective; }

bool reduces(Collective collective) { return row_of(rows, collective).reduces; }

double bus_factor(Collective collective, int ranks) {
  const double n = ranks;
  if (collective == Collective::all_reduce) return 2 * (n - 1) / n;
  return row_of(rows, collective).of_blocks ? (n - 1) / n : 1;
}

std::size_t elements_of(const CaseShape& shape, int ranks) {
  const std::size_t elements = shape.bytes.value() / size_of(shape.type);
  const std::size_t n = ranks;
  return row_of(rows, shape.collective).of_blocks ? elements / n * n : elements;
}

Bytes memory_of(const CaseShape& shape, int ranks) {
  const std::size_t in = input_elements(shape, ranks), out = output_elements(shape, ranks);
  return Bytes((shares_buffer(shape) ? std::max(in, out) : in + out) * size_of(shape.type));
}

CollectiveCase::CollectiveCase(Communicator& group, const CaseShape& shape)
    : group_(group),
      shape_(shape),
      ranks_(group.size()),
      elements_(elements_of(shape, ranks_)),
      blocks_(ranks_, block()),
      values_{shape.type, ranks_, 1} {
  const std::size_t width = size_of(shape.type);
  const std::size_t in = input_elements(shape, ranks_), out = output_elements(shape, ranks_);
  const bool shared = shares_buffer(shape);
  input_ = MemoryBlock(group.memory(), (shared ? std::max(in, out) : in) * width);
  if (!shared) output_ = MemoryBlock(group.memory(), out * width);
}

Bytes CollectiveCase::bytes() const { return Bytes(elements_ * size_of(shape_.type)); }

MutableBuffer CollectiveCase::input() const {
  return buffer_in(input_, input_elements(shape_, ranks_));
}

MutableBuffer CollectiveCase::output() const {
  const MemoryBlock& memory = shares_buffer(shape_) ? input_ : output_;
  return buffer_in(memory, output_elements(shape_, ranks_));
}

/// In a shared buffer the smaller side is this rank's block of the larger one.
MutableBuffer CollectiveCase::buffer_in(const MemoryBlock& memory, std::size_t count) const {
  const bool is_block = shares_buffer(shape_) && count < elements_;
  const std::size_t offset = is_block ? block() * group_.rank().index() : 0;
  return MutableBuffer(memory.data(), offset + count, shape_.type).part(offset, count);
}

void CollectiveCase::run() {
  const ConstBuffer in = input();
  const MutableBuffer out = output();
  switch (shape_.collective) {
    case Collective::all_reduce:
      return group_.all_reduce(in, out, shape_.reduction);
    case Collective::reduce_scatter:
      return group_.reduce_scatter(in, out, blocks_, shape_.reduction);
    case Collective::all_gather:
      return group_.all_gather(in, out, blocks_);
    case Collective::broadcast:
      return group_.broadcast(out, shape_.root);
    case Collective::reduce:
      return group_.reduce(in, out, shape_.root, shape_.reduction);
    case Collective::all_to_all:
      return group_.all_to_all(in, blocks_, out, blocks_);
    case Collective::send_receive: {
      const int self = group_.rank().value();
      const Outgoing send{in, RankId((self + 1) % ranks_)};
      const Incoming receive{out, RankId((self + ranks_ - 1) % ranks_)};
      return group_.exchange({&send, 1}, {&receive, 1});
    }
  }
}

void CollectiveCase::fill(std::uint64_t seed) {
  values_.seed = seed;
  std::vector<std::byte> chunk(chunk_elements * size_of(shape_.type));
  std::memset(chunk.data(), poison, chunk.size());
  each_chunk(output(), [&](std::size_t, MutableBuffer part) {
    group_.memory().write(part.data, chunk.data(), part.bytes());
  });
  if (shape_.collective == Collective::broadcast && group_.rank() != shape_.root) return;
  each_chunk(input(), [&](std::size_t first, MutableBuffer part) {
    values_.fill(group_.rank(), first, {chunk.data(), part.count, part.type});
    group_.memory().write(part.data, chunk.data(), part.bytes());
  });
}

Deviation CollectiveCase::check(const Tolerance& tolerance) const {
  Deviation all;
  if (shape_.collective == Collective::reduce && group_.rank() != shape_.root) return all;
  const bool exact = !reduces(shape_.collective);
  std::vector<std::byte> got_memory(chunk_elements * size_of(shape_.type));
  std::vector<std::byte> expected_memory(got_memory.size());
  each_chunk(output(), [&](std::size_t first, MutableBuffer part) {
    const MutableBuffer got(got_memory.data(), part.count, part.type);
    const MutableBuffer expected(expected_memory.data(), part.count, part.type);
    group_.memory().read(got.data, part.data, part.bytes());
    expect(first, expected);
    all += deviation(got, expected, exact ? Tolerance{} : tolerance);
  });
  return all;
}

void CollectiveCase::expect(std::size_t first, MutableBuffer expected) const {
  const int self = group_.rank().value();
  const std::size_t block_begin = static_cast<std::size_t>(self) * block();
  switch (shape_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return values_.fill_reduced(shape_.reduction, first, expected);
    case Collective::reduce_scatter:
      return values_.fill_reduced(shape_.reduction, block_begin + first, expected);
    case Collective::broadcast:
      return values_.fill(shape_.root, first, expected);
    case Collective::send_receive:
      return values_.fill(RankId((self + ranks_ - 1) % ranks_), first, expected);
    case Collective::all_gather:
    case Collective::all_to_all:
      break;
  }
  // Block r comes from rank r: it is that rank's whole input, or its block for this rank.
  const std::size_t skipped = shape_.collective == Collective::all_to_all ? block_begin : 0;
  for (std::size_t done = 0; done < expected.count;) {
    const std::size_t rank = (first + done) / block();
    const std::size_t inside = (first + done) % block();
    const std::size_t n = std::min(expected.count - done, block() - inside);
    values_.fill(RankId(rank), skipped + inside, expected.part(done, n));
    done += n;
  }
}

CallTime summarise(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  CallTime time;
  time.median = Seconds(median(seconds));
  time.fastest = Seconds(seconds.front());
  time.p95 = Seconds(quantile(seconds, 0.95));
  time.ci95 = median_interval(seconds);
  time.iterations = seconds.size();
  return time;
}

CallTime time_calls(Communicator& group, const std::function<void()>& call,
                    const TimingConfig& config) {
  double last_s = 0;
  group.barrier();
  for (int i = 0; i < std::max(config.warmup, 1); ++i) last_s = seconds_of(call);
  std::vector<double> seconds(static_cast<std::size_t>(iterations_for(group, last_s, config)));
  group.barrier();
  for (double& second : seconds) second = seconds_of(call);
  group.all_reduce(std::span<double>(seconds), Reduction::max);
  return summarise(std::move(seconds));
}

}  // namespace heteroperf
