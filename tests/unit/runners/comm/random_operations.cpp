#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/comm/element_types.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/typed_values.hpp"

namespace heteroperf {
namespace {

/// One operation, the same draw on every rank.
struct Draw {
  Communicator& comm;
  std::size_t count;
  DataType type;
  Reduction reduction;
  RankId root;
  std::vector<std::size_t> blocks;

  int self() const { return comm.rank().value(); }
  std::size_t place() const { return static_cast<std::size_t>(self()); }
  std::size_t total() const { return std::accumulate(blocks.begin(), blocks.end(), 0UL); }
  std::size_t begin(std::size_t r) const {
    return std::accumulate(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(r), 0UL);
  }
  TypedValues local() const { return samples(type, self(), count); }
  TypedValues::Formula reduction_of(int ranks) const {
    return [this, ranks](std::size_t i) { return reduced(type, ranks, i, reduction); };
  }
};

void check(const TypedValues& values, const TypedValues::Formula& expected, double off = 0) {
  EXPECT_EQ(values.wrong(expected, off), 0u) << to_string(values.type()) << ' ' << values.count();
}

void all_reduce(const Draw& draw) {
  TypedValues values = draw.local();
  draw.comm.all_reduce(values.buffer(), draw.reduction);
  check(values, draw.reduction_of(draw.comm.size()),
        tolerance(draw.type, draw.comm.size(), draw.reduction));
}

void reduce(const Draw& draw) {
  TypedValues values = draw.local();
  draw.comm.reduce(values.buffer(), values.buffer(), draw.root, draw.reduction);
  if (draw.comm.rank() != draw.root) return;
  check(values, draw.reduction_of(draw.comm.size()),
        tolerance(draw.type, draw.comm.size(), draw.reduction));
}

void broadcast(const Draw& draw) {
  TypedValues values = draw.local();
  draw.comm.broadcast(values.buffer(), draw.root);
  check(values, [&](std::size_t i) { return sample(draw.type, draw.root.value(), i); });
}

void all_gather(const Draw& draw) {
  TypedValues all(draw.type, draw.total());
  draw.comm.all_gather(samples(draw.type, draw.self(), draw.blocks[draw.place()]).buffer(),
                       all.buffer(), draw.blocks);
  std::size_t r = 0, first = 0;
  check(all, [&](std::size_t i) {
    for (; i >= first + draw.blocks[r]; first += draw.blocks[r++]) {
    }
    return sample(draw.type, static_cast<int>(r), i - first);
  });
}

void reduce_scatter(const Draw& draw) {
  TypedValues block(draw.type, draw.blocks[draw.place()]);
  draw.comm.reduce_scatter(samples(draw.type, draw.self(), draw.total()).buffer(), block.buffer(),
                           draw.blocks, draw.reduction);
  const std::size_t begin = draw.begin(draw.place());
  const auto whole = draw.reduction_of(draw.comm.size());
  check(
      block, [&](std::size_t i) { return whole(begin + i); },
      tolerance(draw.type, draw.comm.size(), draw.reduction));
}

/// Every rank sends blocks[r] elements to rank r.
void all_to_all(const Draw& draw) {
  const std::size_t own = draw.blocks[draw.place()];
  const std::vector<std::size_t> from_each(draw.blocks.size(), own);
  TypedValues received(draw.type, own * draw.blocks.size());
  draw.comm.all_to_all(samples(draw.type, draw.self(), draw.total()).buffer(), draw.blocks,
                       received.buffer(), from_each);
  const std::size_t begin = draw.begin(draw.place());
  check(received, [&](std::size_t i) {
    return sample(draw.type, static_cast<int>(i / own), begin + i % own);
  });
}

/// Around the ring in both directions, as one group.
void exchange(const Draw& draw) {
  const int ranks = draw.comm.size();
  const RankId next((draw.self() + 1) % ranks), previous((draw.self() + ranks - 1) % ranks);
  if (ranks == 1) return;
  const TypedValues local = draw.local();
  TypedValues from_next(draw.type, draw.count), from_previous(draw.type, draw.count);
  const Outgoing sends[] = {{local.buffer(), next, 1}, {local.buffer(), previous, 2}};
  const Incoming receives[] = {{from_previous.buffer(), previous, 1},
                               {from_next.buffer(), next, 2}};
  draw.comm.exchange(sends, receives);
  check(from_next, [&](std::size_t i) { return sample(draw.type, next.value(), i); });
  check(from_previous, [&](std::size_t i) { return sample(draw.type, previous.value(), i); });
}

void split(const Draw& draw) {
  auto group = draw.comm.split(draw.self() % 2, -draw.self());
  TypedValues values = samples(draw.type, group->rank().value(), draw.count);
  group->all_reduce(values.buffer(), draw.reduction);
  check(values, draw.reduction_of(group->size()),
        tolerance(draw.type, group->size(), draw.reduction));
}

void barrier(const Draw& draw) { draw.comm.barrier(); }

constexpr void (*operations[])(const Draw&) = {all_reduce, reduce,         broadcast,
                                               all_gather, exchange,       all_to_all,
                                               split,      reduce_scatter, barrier};

}  // namespace

void run_random_operation(Communicator& comm, std::uint64_t step) {
  RandomStream random(random_bits(41, step));
  const auto ranks = static_cast<std::uint64_t>(comm.size());
  const std::uint64_t limit = std::uint64_t{1} << random.below(14);
  Draw draw{comm,
            random.below(limit),
            all_types[random.below(std::size(all_types))],
            all_reductions[random.below(std::size(all_reductions))],
            RankId(static_cast<std::int32_t>(random.below(ranks))),
            {}};
  for (std::uint64_t r = 0; r < ranks; ++r) draw.blocks.push_back(random.below(limit));
  operations[random.below(std::size(operations))](draw);
}

}  // namespace heteroperf
