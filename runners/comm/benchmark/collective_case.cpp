#include "runners/comm/benchmark/collective_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"

namespace heteroperf {
namespace {

struct CollectiveRow {
  Collective value;
  const char* name;
  bool of_blocks;  ///< S is made of one block per rank
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
constexpr auto collectives = values_of(rows);

/// Some calls leave their result where the input was, whatever was asked for.
bool shares_buffer(const CaseShape& shape) {
  if (shape.collective == Collective::broadcast) return true;
  if (shape.collective == Collective::all_to_all) return false;
  if (shape.collective == Collective::send_receive) return false;
  return shape.in_place;
}

std::size_t input_elements(const CaseShape& shape, std::size_t elements, int ranks) {
  const bool block = shape.collective == Collective::all_gather;
  return block ? elements / static_cast<std::size_t>(ranks) : elements;
}

std::size_t output_elements(const CaseShape& shape, std::size_t elements, int ranks) {
  const bool block = shape.collective == Collective::reduce_scatter;
  return block ? elements / static_cast<std::size_t>(ranks) : elements;
}

constexpr int poison = 0xa5;
constexpr std::size_t chunk_elements = 16384;

/// work(first, part) for consecutive parts of a buffer.
template <class Work>
void each_chunk(MutableBuffer buffer, Work work) {
  for (std::size_t first = 0; first < buffer.count; first += chunk_elements) {
    work(first, buffer.part(first, std::min(chunk_elements, buffer.count - first)));
  }
}

}  // namespace

const char* to_string(Collective collective) { return name_of(rows, collective); }

Collective parse_collective(const std::string& text) {
  return parse_name(rows, "collective", text);
}

std::span<const Collective> all_collectives() { return collectives; }

bool reduces(Collective collective) { return row_of(rows, collective).reduces; }

double bus_factor(Collective collective, int ranks) {
  const double n = ranks;
  if (collective == Collective::all_reduce) return 2 * (n - 1) / n;
  return row_of(rows, collective).of_blocks ? (n - 1) / n : 1;
}

std::size_t elements_of(const CaseShape& shape, int ranks) {
  const std::size_t elements = shape.bytes.value() / size_of(shape.type);
  const auto n = static_cast<std::size_t>(ranks);
  return row_of(rows, shape.collective).of_blocks ? elements / n * n : elements;
}

Bytes memory_of(const CaseShape& shape, int ranks) {
  const std::size_t elements = elements_of(shape, ranks);
  const std::size_t in = input_elements(shape, elements, ranks);
  const std::size_t out = output_elements(shape, elements, ranks);
  return Bytes((shares_buffer(shape) ? std::max(in, out) : in + out) * size_of(shape.type));
}

CollectiveCase::CollectiveCase(Communicator& group, const CaseShape& shape)
    : group_(group),
      shape_(shape),
      ranks_(group.size()),
      elements_(elements_of(shape, ranks_)),
      blocks_(static_cast<std::size_t>(ranks_), own_block()),
      values_{shape.type, ranks_, 1} {
  const std::size_t width = size_of(shape.type);
  const std::size_t in = input_elements(shape, elements_, ranks_);
  const std::size_t out = output_elements(shape, elements_, ranks_);
  const bool shared = shares_buffer(shape);
  input_ = MemoryBlock(group.memory(), (shared ? std::max(in, out) : in) * width);
  if (!shared) output_ = MemoryBlock(group.memory(), out * width);
}

Bytes CollectiveCase::bytes() const { return Bytes(elements_ * size_of(shape_.type)); }

/// The input inside a shared buffer is the rank's own block of it where the other side is larger.
MutableBuffer CollectiveCase::input() const {
  const std::size_t count = input_elements(shape_, elements_, ranks_);
  const bool inside = shares_buffer(shape_) && shape_.collective == Collective::all_gather;
  const std::size_t offset =
      inside ? own_block() * static_cast<std::size_t>(group_.rank().value()) : 0;
  return MutableBuffer(input_.data(), offset + count, shape_.type).part(offset, count);
}

MutableBuffer CollectiveCase::output() const {
  const std::size_t count = output_elements(shape_, elements_, ranks_);
  if (!shares_buffer(shape_)) return {output_.data(), count, shape_.type};
  const bool inside = shape_.collective == Collective::reduce_scatter;
  const std::size_t offset =
      inside ? own_block() * static_cast<std::size_t>(group_.rank().value()) : 0;
  return MutableBuffer(input_.data(), offset + count, shape_.type).part(offset, count);
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
      const int me = group_.rank().value();
      const Outgoing send{in, RankId((me + 1) % ranks_)};
      const Incoming receive{out, RankId((me + ranks_ - 1) % ranks_)};
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
    const Deviation found = deviation(got, expected, exact ? Tolerance{} : tolerance);
    all.wrong += found.wrong;
    all.largest = std::max(all.largest, found.largest);
    all.sum_of_squares += found.sum_of_squares;
  });
  return all;
}

void CollectiveCase::expect(std::size_t first, MutableBuffer expected) const {
  const int me = group_.rank().value();
  const auto mine = static_cast<std::size_t>(me);
  switch (shape_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return values_.fill_reduced(shape_.reduction, first, expected);
    case Collective::reduce_scatter:
      return values_.fill_reduced(shape_.reduction, mine * own_block() + first, expected);
    case Collective::broadcast:
      return values_.fill(shape_.root, first, expected);
    case Collective::send_receive:
      return values_.fill(RankId((me + ranks_ - 1) % ranks_), first, expected);
    case Collective::all_gather:
    case Collective::all_to_all:
      break;
  }
  // Block r is rank r's: its whole input, or the block it made for this rank.
  const std::size_t skipped = shape_.collective == Collective::all_to_all ? mine * own_block() : 0;
  for (std::size_t done = 0; done < expected.count;) {
    const std::size_t rank = (first + done) / own_block();
    const std::size_t inside = (first + done) % own_block();
    const std::size_t n = std::min(expected.count - done, own_block() - inside);
    values_.fill(RankId(static_cast<std::int32_t>(rank)), skipped + inside, expected.part(done, n));
    done += n;
  }
}

}  // namespace heteroperf
