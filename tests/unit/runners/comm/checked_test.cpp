#include "runners/comm/checked/checked_communicator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/typed_values.hpp"

namespace heteroperf {
namespace {

// ---- sound communicators stay as they are

using CaseRanksChecks = std::tuple<CommunicatorCase, int, Checks>;
class EveryCase : public testing::TestWithParam<CaseRanksChecks> {};

TEST_P(EveryCase, OnCheckedThreads) {
  const auto& [one, ranks, checks] = GetParam();
  run_on_threads(ranks, {}, [&the_case = one, wanted = checks](World& world) {
    const auto checked = make_checked_communicator(std::move(world.communicator), wanted);
    run_case(the_case, *checked);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Checked, EveryCase,
    testing::Combine(testing::ValuesIn(communicator_cases().begin(), communicator_cases().end()),
                     testing::Values(1, 2, 3), testing::Values(Checks::agreement, Checks::payload)),
    [](const auto& test) {
      return std::string(std::get<0>(test.param).name) + "_" +
             std::to_string(std::get<1>(test.param)) +
             (std::get<2>(test.param) == Checks::payload ? "_payload" : "_agreement");
    });

// ---- damage

/// Changes one bit of what its rank gets, after it has come, where it is of the wanted size.
class Damaging : public Communicator {
 public:
  struct Bytes {
    std::size_t least, most;
    bool hold(ConstBuffer values) const {
      return values.bytes() >= least && values.bytes() <= most;
    }
  };
  Damaging(std::unique_ptr<Communicator> group, Bytes victims)
      : group_(std::move(group)), victims_(victims) {}

  RankId rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string transport() const override { return group_->transport(); }
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    group_->all_reduce(input, result, reduction);
    damage(result);
  }
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction) override {
    group_->reduce(input, result, root, reduction);
    if (root == rank()) damage(result);
  }
  void broadcast(MutableBuffer values, RankId root) override {
    group_->broadcast(values, root);
    damage(values);
  }
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    group_->all_gather(input, all, counts);
    damage(all);
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override {
    group_->reduce_scatter(all, result, counts, reduction);
    damage(result);
  }
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    group_->all_to_all(input, to_each, result, from_each);
    damage(result);
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    return group_->start_send(values, to, tag);
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override;
  void barrier() override { group_->barrier(); }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    return group_->split(colour, key);
  }

 private:
  void damage(MutableBuffer values) {
    if (!victims_.hold(values)) return;
    // Another place each time, as a bad link would.
    const std::uint64_t bit = random_bits(17, ++damages_) % (8 * ConstBuffer(values).bytes());
    static_cast<std::uint8_t*>(values.data)[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
  }

  std::unique_ptr<Communicator> group_;
  Bytes victims_;
  std::uint64_t damages_ = 0;

  friend class DamagedReceive;
};

class DamagedReceive final : public Transfer {
 public:
  DamagedReceive(Damaging& group, std::unique_ptr<Transfer> transfer, MutableBuffer values)
      : group_(group), transfer_(std::move(transfer)), values_(values) {}
  bool test() override { return transfer_->test() && (wait(), true); }
  void wait() override {
    transfer_->wait();
    if (!std::exchange(damaged_, true)) group_.damage(values_);
  }

 private:
  Damaging& group_;
  std::unique_ptr<Transfer> transfer_;
  MutableBuffer values_;
  bool damaged_ = false;
};

std::unique_ptr<Transfer> Damaging::start_receive(MutableBuffer values, RankId from, int tag) {
  return std::make_unique<DamagedReceive>(*this, group_->start_receive(values, from, tag), values);
}

/// What each rank's Error{run_failed} says; "" where it saw none.
std::vector<std::string> errors_on(int ranks, const std::function<void(World&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, {}, [&](World& world) {
    const auto self = world.communicator->rank().index();
    try {
      body(world);
    } catch (const Error& error) {
      texts[self] = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::run_failed) << error.what();
    }
  });
  return texts;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// 250 float32 per rank of three; rank 1's data are damaged.
constexpr std::size_t count = 250;
struct Damage {
  const char* name;
  void (*run)(Communicator& comm);
  std::vector<std::string> parts;  ///< of the message
  std::vector<int> told;           ///< ranks that must hear
};

TypedValues filled(Communicator& comm, std::size_t blocks) {
  return samples(DataType::f32, comm.rank().value(), blocks * count);
}

const Damage damages[] = {
    {"all_reduce",
     [](Communicator& comm) { comm.all_reduce(filled(comm, 1).buffer()); },
     {"all_reduce of 250 f32 (1000 bytes)", "ranks 0 and 2 and rank 1 hold different results"},
     {0, 1, 2}},
    {"broadcast",
     [](Communicator& comm) { comm.broadcast(filled(comm, 1).buffer(), RankId(2)); },
     {"broadcast of 250 f32, 1000 bytes from rank 2 to rank 1"},
     {0, 1, 2}},
    {"reduce",
     [](Communicator& comm) {
       TypedValues values = filled(comm, 1);
       comm.reduce(values.buffer(), values.buffer(), RankId(1));
     },
     {"reduce of 250 f32, the 1000 bytes of rank 1's result", "repeating it gave other bits"},
     {0, 1, 2}},
    {"all_gather",
     [](Communicator& comm) {
       comm.all_gather(filled(comm, 1).buffer(), filled(comm, 3).buffer());
     },
     {"all_gather of 750 f32, 1000 bytes from rank ", " to rank 1"},
     {0, 1, 2}},
    {"reduce_scatter",
     [](Communicator& comm) {
       comm.reduce_scatter(filled(comm, 3).buffer(), filled(comm, 1).buffer());
     },
     {"reduce_scatter of 750 f32, the 1000 bytes of rank 1's result"},
     {0, 1, 2}},
    {"all_to_all",
     [](Communicator& comm) {
       const std::vector<std::size_t> each(3, count);
       comm.all_to_all(filled(comm, 3).buffer(), each, filled(comm, 3).buffer(), each);
     },
     {"all_to_all of f32, 1000 bytes from rank ", " to rank 1"},
     {0, 1, 2}},
    {"send_and_receive",
     [](Communicator& comm) {
       if (comm.rank() == RankId(0)) comm.send(filled(comm, 1).buffer(), RankId(1), 5);
       if (comm.rank() == RankId(1)) comm.receive(filled(comm, 1).buffer(), RankId(0), 5);
     },
     {"send/receive of 250 f32 (1000 bytes) with tag 5, from rank 0 to rank 1"},
     {1}},
};

class EveryDamage : public testing::TestWithParam<Damage> {};

TEST_P(EveryDamage, IsFoundAndNamed) {
  const auto texts = errors_on(3, [](World& world) {
    const bool victim = world.communicator->rank() == RankId(1);
    const std::size_t most = victim ? 100000 : 0;
    auto damaging =
        std::make_unique<Damaging>(std::move(world.communicator), Damaging::Bytes{1000, most});
    const auto checked = make_checked_communicator(std::move(damaging), Checks::payload);
    GetParam().run(*checked);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    const bool told = std::ranges::find(GetParam().told, rank) != GetParam().told.end();
    EXPECT_EQ(!text.empty(), told) << "rank " << rank << ": " << text;
    for (const std::string& part : GetParam().parts) {
      EXPECT_TRUE(!told || says(text, part)) << text;
    }
  }
}

/// The checks' own messages may be what is damaged.
TEST_P(EveryDamage, OfTheChecksThemselvesIsFound) {
  const auto found = [](World& world) {
    const bool victim = world.communicator->rank() == RankId(1);
    auto damaging = std::make_unique<Damaging>(std::move(world.communicator),
                                               Damaging::Bytes{1, victim ? 500UL : 0UL});
    const auto checked = make_checked_communicator(std::move(damaging), Checks::payload);
    GetParam().run(*checked);
  };
  std::string text;
  try {
    run_on_threads(3, {}, found);
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_TRUE(says(text, "rank 1") && says(text, "damaged")) << text;
}

INSTANTIATE_TEST_SUITE_P(Checked, EveryDamage, testing::ValuesIn(damages),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- disagreement

/// What rank 2 of four does, while the others do something else.
struct Disagreement {
  const char* name;
  void (*others)(Communicator& comm);
  void (*rank_2)(Communicator& comm);
  std::vector<std::string> parts;
};

template <DataType type, std::size_t n, Reduction reduction>
void reduce_all(Communicator& comm) {
  comm.all_reduce(TypedValues(type, n).buffer(), reduction);
}
template <int root>
void tell(Communicator& comm) {
  comm.broadcast(TypedValues(DataType::f32, 8).buffer(), RankId(root));
}
template <std::size_t n>
void gather(Communicator& comm) {
  comm.all_gather(TypedValues(DataType::f32, n).buffer(),
                  TypedValues(DataType::f32, 4 * n).buffer());
}
/// To rank 0 `extra` elements more than it awaits.
template <std::size_t extra>
void swap_all(Communicator& comm) {
  const std::vector<std::size_t> to{2 + extra, 2, 2, 2}, from{2, 2, 2, 2};
  comm.all_to_all(TypedValues(DataType::f32, 8 + extra).buffer(), to,
                  TypedValues(DataType::f32, 8).buffer(), from);
}

const Disagreement disagreements[] = {
    {"count",
     reduce_all<DataType::f32, 8, Reduction::sum>,
     reduce_all<DataType::f32, 400000, Reduction::sum>,
     {"ranks 0, 1 and 3 are in all_reduce of 8 f32", "rank 2 in all_reduce of 400000 f32"}},
    {"type",
     reduce_all<DataType::f32, 8, Reduction::sum>,
     reduce_all<DataType::bf16, 8, Reduction::sum>,
     {"ranks 0, 1 and 3 are in all_reduce of 8 f32", "rank 2 in all_reduce of 8 bf16"}},
    {"reduction",
     reduce_all<DataType::f32, 8, Reduction::sum>,
     reduce_all<DataType::f32, 8, Reduction::max>,
     {"all_reduce of 8 f32 (sum)", "rank 2 in all_reduce of 8 f32 (max)"}},
    {"root",
     tell<0>,
     tell<3>,
     {"broadcast of 8 f32 (root 0)", "rank 2 in broadcast of 8 f32 (root 3)"}},
    {"operation",
     tell<0>,
     [](Communicator& comm) { comm.barrier(); },
     {"are in broadcast of 8 f32", "rank 2 in barrier"}},
    {"split",
     [](Communicator& comm) { comm.split(0, 0); },
     gather<2>,
     {"are in split", "rank 2 in all_gather of 8 f32"}},
    {"blocks", gather<3>, gather<2>, {"all_gather of 12 f32", "rank 2 in all_gather of 8 f32"}},
    {"all_to_all", swap_all<0>, swap_all<5>, {"rank 2 sends 7 to rank 0, which awaits 2"}},
};

class EveryDisagreement : public testing::TestWithParam<Disagreement> {};

TEST_P(EveryDisagreement, IsNamedOnEveryRank) {
  const auto texts = errors_on(4, [](World& world) {
    const bool odd = world.communicator->rank() == RankId(2);
    const auto checked = make_checked_communicator(std::move(world.communicator));
    (odd ? GetParam().rank_2 : GetParam().others)(*checked);
  });
  for (const std::string& text : texts) {
    for (const std::string& part : GetParam().parts) EXPECT_TRUE(says(text, part)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Checked, EveryDisagreement, testing::ValuesIn(disagreements),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Checked, EveryCampIsNamed) {
  const auto texts = errors_on(5, [](World& world) {
    const int self = world.communicator->rank().value();
    const auto checked = make_checked_communicator(std::move(world.communicator));
    checked->all_reduce(
        TypedValues(DataType::i64, 1 + static_cast<std::size_t>(self % 3)).buffer());
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(says(text,
                     "ranks 0 and 3 are in all_reduce of 1 i64 (sum), ranks 1 and 4 in "
                     "all_reduce of 2 i64 (sum), rank 2 in all_reduce of 3 i64 (sum)"))
        << text;
  }
}

TEST(Checked, MessagesThatDoNotFitAreNamed) {
  const auto texts = errors_on(2, [](World& world) {
    const auto checked = make_checked_communicator(std::move(world.communicator));
    if (checked->rank() == RankId(0)) {
      checked->send(TypedValues(DataType::f32, 3).buffer(), RankId(1), 6);
    } else {
      checked->receive(TypedValues(DataType::i32, 3).buffer(), RankId(0), 6);
    }
  });
  EXPECT_EQ(texts[0], "");
  EXPECT_TRUE(says(texts[1], "rank 1 awaits 3 i32 with tag 6 from rank 0, which sent 3 f32"))
      << texts[1];
}

/// Checksums are made by this process, so buffers on a device are refused.
TEST(Checked, RefusesBuffersElsewhere) {
  struct Elsewhere final : BufferMemory {
    bool on_host() const override { return false; }
    void* allocate(std::size_t) override { return nullptr; }
    void release(void*) noexcept override {}
    void write(void*, const void*, std::size_t) override {}
    void read(void*, const void*, std::size_t) override {}
  };
  struct OnDevice final : Damaging {
    using Damaging::Damaging;
    BufferMemory& memory() override { return elsewhere; }
    Elsewhere elsewhere;
  };
  auto group = std::make_unique<OnDevice>(make_null_communicator(), Damaging::Bytes{1, 0});
  EXPECT_THROW(make_checked_communicator(std::move(group), Checks::payload), UserError);
}

// ---- the checksum

TEST(Checksum, SeesEveryChangedBitAndByteLost) {
  std::vector<std::uint8_t> data(133);
  std::iota(data.begin(), data.end(), std::uint8_t{3});
  for (std::size_t bytes : {1UL, 8UL, 31UL, 32UL, 33UL, 133UL}) {
    const std::uint64_t sound = checksum(data.data(), bytes);
    for (std::size_t bit = 0; bit < 8 * bytes; ++bit) {
      data[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      EXPECT_NE(checksum(data.data(), bytes), sound) << bytes << " bytes, bit " << bit;
      data[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    }
    EXPECT_NE(checksum(data.data(), bytes - 1), sound);
    // The same wherever it lies.
    std::vector<std::uint8_t> moved(data.begin(),
                                    data.begin() + static_cast<std::ptrdiff_t>(bytes));
    moved.insert(moved.begin(), 0);
    EXPECT_EQ(checksum(moved.data() + 1, bytes), sound);
  }
  const std::vector<std::uint8_t> zeros(64);
  EXPECT_NE(checksum(zeros.data(), 64), checksum(zeros.data(), 63));
}

}  // namespace
}  // namespace heteroperf
