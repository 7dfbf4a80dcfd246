// The NCCL communicator against a library that is played by threads: every call, its waits, its
// asynchronous errors, abort and split.
#include "runners/comm/nccl/nccl_communicator.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>

#include "runners/comm/nccl/nccl_group.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"

namespace heteroperf {
namespace {

using State = NcclStatus::State;

/// How the played library behaves.
struct Script {
  int polls = 3;                   ///< answers "in progress" before every end
  std::string fails;               ///< a call that answers with a failure
  bool stream_hangs = false;       ///< the stream never ends
  std::string asynchronous_error;  ///< what status() reports while the stream hangs
};

/// What it was asked, over its life.
struct Counts {
  int aborted = 0, destroyed = 0, finalized = 0, groups = 0, messages = 0;
};

/// Carries every call out at once over a communicator of threads; answers late.
class PlayedNccl final : public NcclLibrary {
 public:
  PlayedNccl(Communicator& world, Script script) : world_(world), script_(std::move(script)) {}

  Counts counts;

  std::string version() const override { return "0.0.0"; }
  NcclId unique_id() override { return {}; }
  NcclStatus init(const NcclId&, int ranks, int rank, void*& handle) override {
    EXPECT_EQ(ranks, world_.size());
    EXPECT_EQ(rank, world_.rank().value());
    handle = keep(world_.split(0, rank));
    return late("init");
  }
  NcclStatus split(void* handle, int colour, int key, void*& part) override {
    EXPECT_GE(colour, 0);
    part = keep(group(handle).split(colour, key));
    return late("split");
  }
  NcclStatus status(void* handle) override {
    EXPECT_EQ(groups_.count(handle), 1U) << "asked of a handle that is gone";
    if (!script_.asynchronous_error.empty()) return {State::failed, script_.asynchronous_error};
    return --pending_ > 0 ? NcclStatus{State::in_progress, {}} : NcclStatus{};
  }
  void abort(void* handle) noexcept override {
    ++counts.aborted;
    groups_.erase(handle);
  }
  NcclStatus finalize(void*) override {
    ++counts.finalized;
    return late("finalize");
  }
  void destroy(void* handle) noexcept override {
    ++counts.destroyed;
    groups_.erase(handle);
  }

  void group_start() override {
    ++counts.groups;
    grouping_ = true;
  }
  NcclStatus group_end() override {
    grouping_ = false;
    for (const auto& call : calls_) call();
    calls_.clear();
    if (!sends_.empty() || !receives_.empty()) messages_->exchange(sends_, receives_);
    sends_.clear();
    receives_.clear();
    return late("group_end");
  }
  NcclStatus all_reduce(ConstBuffer in, void* out, Reduction reduction, void* handle) override {
    return enqueue("all_reduce", [=, this] {
      group(handle).all_reduce(in, {out, in.count, in.type}, reduction);
    });
  }
  NcclStatus reduce(ConstBuffer in, void* out, Reduction reduction, int root,
                    void* handle) override {
    return enqueue("reduce", [=, this] {
      group(handle).reduce(in, {out, out == nullptr ? 0 : in.count, in.type}, RankId(root),
                           reduction);
    });
  }
  NcclStatus broadcast(MutableBuffer values, int root, void* handle) override {
    return enqueue("broadcast", [=, this] { group(handle).broadcast(values, RankId(root)); });
  }
  NcclStatus all_gather(ConstBuffer in, void* out, void* handle) override {
    return enqueue("all_gather", [=, this] {
      const auto ranks = static_cast<std::size_t>(group(handle).size());
      group(handle).all_gather(in, {out, in.count * ranks, in.type});
    });
  }
  NcclStatus reduce_scatter(ConstBuffer in, MutableBuffer out, Reduction reduction,
                            void* handle) override {
    return enqueue("reduce_scatter",
                   [=, this] { group(handle).reduce_scatter(in, out, reduction); });
  }
  NcclStatus send(ConstBuffer values, int to, void* handle) override {
    EXPECT_TRUE(grouping_) << "a message outside of a group can block";
    ++counts.messages;
    messages_ = &group(handle);
    sends_.push_back({values, RankId(to)});
    return script_.fails == "send" ? NcclStatus{State::failed, "played failure"} : NcclStatus{};
  }
  NcclStatus receive(MutableBuffer values, int from, void* handle) override {
    EXPECT_TRUE(grouping_) << "a message outside of a group can block";
    ++counts.messages;
    messages_ = &group(handle);
    receives_.push_back({values, RankId(from)});
    return {};
  }
  NcclStatus stream_status() override {
    if (script_.stream_hangs) return {State::in_progress, {}};
    return --pending_ > 0 ? NcclStatus{State::in_progress, {}} : NcclStatus{};
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  BufferMemory& memory() override { return host_memory(); }

 private:
  void* keep(std::unique_ptr<Communicator> group) {
    void* handle = group.get();
    groups_[handle] = std::move(group);
    return handle;
  }
  Communicator& group(void* handle) {
    EXPECT_EQ(groups_.count(handle), 1U) << "used a handle that is gone";
    return *groups_.at(handle);
  }
  NcclStatus enqueue(const char* name, std::function<void()> call) {
    if (script_.fails == name) return {State::failed, "played failure"};
    if (grouping_) {
      calls_.push_back(std::move(call));
    } else {
      call();
    }
    return late(name);
  }
  NcclStatus late(const std::string& name) {
    if (script_.fails == name) return {State::failed, "played failure"};
    pending_ = script_.polls;
    return {pending_ > 0 ? State::in_progress : State::done, {}};
  }

  Communicator& world_;
  Script script_;
  std::map<void*, std::unique_ptr<Communicator>> groups_;
  std::vector<std::function<void()>> calls_;
  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
  Communicator* messages_ = nullptr;
  bool grouping_ = false;
  int pending_ = 0;
};

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
  return make_nccl_communicator(library, {}, world.rank(), all_of(world), std::move(watch));
}

using CaseAndRanks = std::tuple<CommunicatorCase, int>;
class EveryCase : public testing::TestWithParam<CaseAndRanks> {};

TEST_P(EveryCase, OverNccl) {
  run_on_threads(std::get<1>(GetParam()), {}, [](World& world) {
    for (const int polls : {0, 5}) {
      auto library =
          std::make_shared<PlayedNccl>(*world.communicator, Script{polls, {}, false, {}});
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
    std::vector<float> mine(1000, static_cast<float>(group->rank().value())), theirs(1000);
    // Both send first: outside of a group they would wait for each other.
    const auto send = group->start_send(std::span<const float>(mine), other);
    const auto receive = group->start_receive(std::span<float>(theirs), other);
    send->wait();
    EXPECT_TRUE(receive->test());
    EXPECT_EQ(library->counts.groups, 1);
    EXPECT_EQ(library->counts.messages, 2);
    EXPECT_EQ(theirs, std::vector<float>(1000, static_cast<float>(other.value())));
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
  const std::string text = complaint({3, "all_reduce", false, {}}, reduce_something, &aborted);
  EXPECT_NE(text.find("all_reduce of 1 f32"), std::string::npos) << text;
  EXPECT_NE(text.find("played failure"), std::string::npos) << text;
  EXPECT_EQ(aborted, 1);
  const std::string joining = complaint({3, "init", false, {}}, reduce_something);
  EXPECT_NE(joining.find("joining the group"), std::string::npos) << joining;
  EXPECT_NE(joining.find("played failure"), std::string::npos) << joining;
  EXPECT_NE(complaint({3, "send", false, {}},
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
    auto hanging = std::make_shared<PlayedNccl>(*world.communicator, Script{0, {}, true, {}});
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
      complaint({0, {}, true, "unhandled system error"}, [](Communicator& group) {
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
