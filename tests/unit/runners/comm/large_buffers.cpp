#include "tests/unit/runners/comm/large_buffers.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/cluster/machine.hpp"

namespace heteroperf {
namespace {

constexpr double gib = 1024.0 * 1024.0 * 1024.0;
/// A rank holds its vector and what transports stage; ThreadSanitizer keeps four shadow bytes or
/// more beside each byte of them.
#ifdef __SANITIZE_THREAD__
constexpr double rank_gib = 15;
#else
constexpr double rank_gib = 2.5;
#endif
constexpr std::size_t turn = std::size_t{1} << 31;

/// Where a vector is looked at.
std::vector<std::size_t> places() {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < large_count; i += 65537) {
    found.push_back(i);
    if (i + 1 < large_count) found.push_back(i + 1);
  }
  for (std::size_t i = turn - 3; i < large_count; ++i) found.push_back(i);
  return found;
}

class LargeVector {
 public:
  explicit LargeVector(int rank) : values_(large_count), rank_(rank) {}

  /// What rank r has at place i after fill(): an own number at every other place that is looked
  /// at, the rank's number elsewhere.
  static std::uint8_t value(std::size_t i, int r) {
    const bool marked = i % 65537 == 0 || i >= turn - 3;
    return static_cast<std::uint8_t>(marked ? random_bits(i, r)
                                            : 17 * (static_cast<unsigned>(r) + 1));
  }

  void fill() {
    std::memset(values_.data(), value(1, rank_), values_.size());
    for (const std::size_t i : places_) values_[i] = value(i, rank_);
  }
  std::size_t wrong(const std::function<std::uint8_t(std::size_t)>& expected) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(places_, [&](std::size_t i) { return values_[i] != expected(i); }));
  }
  MutableBuffer all() { return std::span(values_); }

 private:
  std::vector<std::uint8_t> values_;
  std::vector<std::size_t> places_ = places();
  int rank_;
};

void run_empty_operations(Communicator& comm) {
  const MutableBuffer none(nullptr, 0, DataType::u8);
  comm.all_reduce(none);
  comm.broadcast(none, RankId(1));
  comm.all_gather(none, none);
  if (comm.rank() == RankId(0)) comm.send(none, RankId(1));
  if (comm.rank() == RankId(1)) comm.receive(none, RankId(0));
}

}  // namespace

std::string no_room_for_large(Communicator& comm) {
  const double needed = rank_gib * comm.size();
  const Bytes available = probe_machine().memory_available.value.value_or(Bytes(0));
  double least = static_cast<double>(available.value()) / gib;
  comm.all_reduce(std::span(&least, 1), Reduction::min);
  if (least >= needed) return {};
  return fmt::format("needs {:.1f} GiB of memory, {:.1f} GiB are available", needed, least);
}

void run_large_operations(Communicator& comm) {
  const int ranks = comm.size(), self = comm.rank().value();
  LargeVector vector(self);
  const auto value = LargeVector::value;

  vector.fill();
  comm.all_reduce(vector.all());
  EXPECT_EQ(vector.wrong([&](std::size_t i) {
    unsigned sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(i, r);
    return static_cast<std::uint8_t>(sum);
  }),
            0U)
      << "all_reduce";

  vector.fill();
  comm.broadcast(vector.all(), RankId(1));
  EXPECT_EQ(vector.wrong([&](std::size_t i) { return value(i, 1); }), 0U) << "broadcast";

  // All but a few of the elements are rank 0's.
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), 1);
  counts[0] = large_count - counts.size() + 1;
  const auto owner = [&](std::size_t i) {
    return i < counts[0] ? 0 : static_cast<int>(i - counts[0]) + 1;
  };
  const std::size_t begin = self == 0 ? 0 : counts[0] + static_cast<std::size_t>(self) - 1;
  vector.fill();
  comm.all_gather(vector.all().part(begin, counts[static_cast<std::size_t>(self)]), vector.all(),
                  counts);
  EXPECT_EQ(vector.wrong([&](std::size_t i) { return value(i, owner(i)); }), 0U) << "all_gather";

  vector.fill();
  if (self == 0) comm.send(vector.all(), RankId(1));
  if (self == 1) comm.receive(vector.all(), RankId(0));
  const int holds = self == 1 ? 0 : self;
  EXPECT_EQ(vector.wrong([&](std::size_t i) { return value(i, holds); }), 0U) << "send, receive";

  run_empty_operations(comm);
}

}  // namespace heteroperf
