// The NCCL communicator against a library that is played by threads: every call, its waits, its
// asynchronous errors, abort and split.
#include "runners/comm/nccl/device_world.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>

#include "runners/comm/world.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/played_nccl.hpp"

namespace heteroperf {
namespace {

Script played(int polls) {
  Script script;
  script.polls = polls;
  return script;
}

Script failing(const char* call) {
  Script script;
  script.fails = call;
  return script;
}

Script hanging_stream(const char* asynchronous_error = "") {
  Script script = played(0);
  script.stream_hangs = true;
  script.asynchronous_error = asynchronous_error;
  return script;
}

class NobodyFails final : public PeerWatch {
 public:
  std::optional<RankFailure> failure_among(std::span<const RankId>) const override { return {}; }
};

/// Rank 1 is lost once `lost` is set.
class OneIsLost final : public PeerWatch {
 public:
  std::atomic<bool> lost{false};
  std::optional<RankFailure> failure_among(std::span<const RankId>) const override {
    if (!lost) return {};
    return RankFailure{RankId(1), ErrorKind::run_failed, "killed by signal 9"};
  }
};

std::vector<RankId> all_of(const Communicator& world) {
  std::vector<RankId> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.emplace_back(r);
  return ranks;
}

std::unique_ptr<Communicator> over(const std::shared_ptr<PlayedNccl>& library, Communicator& world,
                                   std::shared_ptr<PeerWatch> watch = nullptr) {
  if (!watch) watch = std::make_shared<NobodyFails>();
  return make_on_device(
      make_nccl_communicator(library, {}, world.rank(), all_of(world), std::move(watch)));
}

using CaseAndRanks = std::tuple<CommunicatorCase, int>;
class EveryCase : public testing::TestWithParam<CaseAndRanks> {};

TEST_P(EveryCase, OverNccl) {
  run_on_threads(std::get<1>(GetParam()), {}, [](World& world) {
    for (const int polls : {0, 5}) {
      auto library = std::make_shared<PlayedNccl>(*world.communicator, played(polls));
      const auto group = over(library, *world.communicator);
      run_case(std::get<0>(GetParam()), *group);
    }
  });
}

std::string name_of(const testing::TestParamInfo<CaseAndRanks>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
}

/// NCCL has no tags: these rely on them.
bool needs_tags(const char* name) {
  for (const char* one :
       {"random_operations", "messages_match_by_tag_in_order", "waits_in_any_order"}) {
    if (std::strcmp(name, one) == 0) return true;
  }
  return false;
}

std::vector<CommunicatorCase> cases_without_tags() {
  std::vector<CommunicatorCase> cases;
  for (const CommunicatorCase& one : communicator_cases()) {
    if (!needs_tags(one.name)) cases.push_back(one);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Nccl, EveryCase,
                         testing::Combine(testing::ValuesIn(cases_without_tags()),
                                          testing::Values(1, 2, 3, 4)),
                         name_of);

TEST(NcclCommunicator, MessagesOfOneWaitAreOneGroup) {
  run_on_threads(2, {}, [](World& world) {
    auto library = std::make_shared<PlayedNccl>(*world.communicator, Script{});
    const auto group = over(library, *world.communicator);
    const RankId other(1 - group->rank().value());
    std::vector<float> local(1000, static_cast<float>(group->rank().value())), received(1000);
    // Both send first: outside of a group they would wait for each other.
    const auto send = group->start_send(std::span<const float>(local), other);
    const auto receive = group->start_receive(std::span<float>(received), other);
    send->wait();
    EXPECT_TRUE(receive->test());
    EXPECT_EQ(library->counts.groups, 1);
    EXPECT_EQ(library->counts.messages, 2);
    EXPECT_EQ(received, std::vector<float>(1000, static_cast<float>(other.value())));
  });
}

TEST(NcclCommunicator, LeavesInOrder) {
  run_on_threads(2, {}, [](World& world) {
    auto library = std::make_shared<PlayedNccl>(*world.communicator, Script{});
    auto group = over(library, *world.communicator);
    auto part = group->split(group->rank().value(), 0);
    EXPECT_EQ(part->size(), 1);
    part.reset();
    group.reset();
    EXPECT_EQ(library->counts.finalized, 2);
    EXPECT_EQ(library->counts.destroyed, 2);
    EXPECT_EQ(library->counts.aborted, 0);
  });
}

/// What a group of one rank says when its library behaves like that.
std::string complaint(const Script& script, const std::function<void(Communicator&)>& work,
                      int* aborted = nullptr) {
  std::string text;
  run_on_threads(1, {}, [&](World& world) {
    auto library = std::make_shared<PlayedNccl>(*world.communicator, script);
    try {
      const auto group = over(library, *world.communicator);
      work(*group);
    } catch (const SystemError& error) {
      text = error.what();
    }
    if (aborted != nullptr) *aborted = library->counts.aborted;
    EXPECT_EQ(library->counts.aborted + library->counts.destroyed, 1);
  });
  return text;
}

void reduce_something(Communicator& group) {
  float value = 1;
  group.all_reduce(std::span(&value, 1));
}

TEST(NcclCommunicator, AFailureNamesTheOperationAndAborts) {
  int aborted = 0;
  const std::string text = complaint(failing("all_reduce"), reduce_something, &aborted);
  EXPECT_NE(text.find("all_reduce of 1 f32"), std::string::npos) << text;
  EXPECT_NE(text.find("played failure"), std::string::npos) << text;
  EXPECT_EQ(aborted, 1);
  const std::string joining = complaint(failing("init"), reduce_something);
  EXPECT_NE(joining.find("joining the group"), std::string::npos) << joining;
  EXPECT_NE(joining.find("played failure"), std::string::npos) << joining;
  EXPECT_NE(complaint(failing("send"),
                      [](Communicator& group) {
                        float value = 1;
                        const Outgoing send{std::span<const float>(&value, 1), RankId(0)};
                        group.exchange({&send, 1}, {});
                      })
                .find("exchange"),
            std::string::npos);
}

TEST(NcclCommunicator, AnAsynchronousErrorEndsAHangingStream) {
  run_on_threads(1, {}, [](World& world) {
    Script script;
    auto library = std::make_shared<PlayedNccl>(*world.communicator, script);
    const auto watch = std::make_shared<OneIsLost>();
    auto group = over(library, *world.communicator, watch);
    auto hanging = std::make_shared<PlayedNccl>(*world.communicator, hanging_stream());
    const auto stuck = over(hanging, *world.communicator, watch);
    watch->lost = true;
    float value = 1;
    try {
      stuck->all_reduce(std::span(&value, 1));
      FAIL() << "did not notice";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.failure().rank, RankId(1));
    }
    EXPECT_EQ(hanging->counts.aborted, 1);
    // A broken group stays broken, and says so.
    EXPECT_THROW(stuck->barrier(), SystemError);
    watch->lost = false;
  });
  const std::string text =
      complaint(hanging_stream("unhandled system error"), [](Communicator& group) {
        float value = 1;
        group.all_reduce(std::span(&value, 1));
      });
  EXPECT_NE(text.find("unhandled system error"), std::string::npos) << text;
}

TEST(NcclStatusOf, ThisBuildSaysWhyItIsNotUsable) {
  const BackendStatus status = nccl_status();
  EXPECT_EQ(status.usable, status.reason.empty()) << status.reason;
}

}  // namespace
}  // namespace heteroperf
