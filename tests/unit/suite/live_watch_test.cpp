#include "suite/watch/live_watch.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/unit/results/sample_run.hpp"
#include "tests/unit/suite/no_engine.hpp"

namespace heteroperf {
namespace {

constexpr double never_s = 1e6;  // seconds

/// Ranks 0 and 1 on host "a", rank 2 on "b"; rank 1 computes on a GPU.
class LiveWatchTest : public ::testing::Test {
 protected:
  LiveWatchTest() {
    const CpuSet cpus = usable_cores().cpus;
    placement_.bindings = {{"a", cpus, ""}, {"a", cpus, ""}, {"b", cpus, ""}};
  }

  /// The lines of a run that looks around so often.
  Journal watched(int looks, const LiveWatch::Pace& pace) {
    const std::string path = (folder_.path() / "journal.jsonl").string();
    {
      JournalWriter journal(path);
      journal.append(StartEvent{});
      run_on_threads(3, {}, [&](World& world) { work(world, journal, looks, pace); });
    }
    return read_journal(path);
  }

 private:
  void work(World& world, JournalWriter& journal, int looks, const LiveWatch::Pace& pace) {
    std::optional<ServiceScope> service;
    test::NoEngine engine;
    RankContext context{config_, placement_, world, engine};
    if (context.is_first()) {
      context.first.journal = &journal;
      service.emplace(*world.control, answer_ranks(journal));
    }
    {
      LiveWatch watch(context, pace);
      EXPECT_FALSE(context.look_around);
      std::unique_ptr<const GpuWatch> gpu;
      if (world.communicator->rank() == RankId(1))
        gpu = std::make_unique<GpuWatch>("0000:1b:00.0", "a", 1, HETEROPERF_FAKE_NVML);
      watch.begin(std::move(gpu));
      for (int look = 0; look < looks; ++look) context.look_around();
      watch.close();
      ask_clock(context.control());
    }
    EXPECT_FALSE(context.look_around);
    world.communicator->barrier();
  }

  TemporaryFolder folder_;
  RunConfig config_;
  Placement placement_;
};

std::map<std::string, int> loads_by_host(const Journal& journal) {
  std::map<std::string, int> count;
  for (const HostLoadEvent* load : journal.all<HostLoadEvent>()) ++count[load->host];
  return count;
}

TEST_F(LiveWatchTest, TellsOfEveryHostAndGpuNowAndThenAndAtTheEnd) {
  const Journal journal = watched(2, {0, never_s});
  if (journal.all<HostLoadEvent>().empty()) GTEST_SKIP() << "/proc/stat does not tell of the CPUs";
  EXPECT_EQ(loads_by_host(journal), (std::map<std::string, int>{{"a", 3}, {"b", 3}}));
  const auto slowdowns = journal.all<GpuSlowdownEvent>();
  ASSERT_EQ(slowdowns.size(), 3u);
  for (std::size_t n = 0; n < slowdowns.size(); ++n) {
    EXPECT_EQ(slowdowns[n]->host, "a");
    EXPECT_EQ(slowdowns[n]->rank, 1);
    EXPECT_EQ(slowdowns[n]->thermal_s, static_cast<double>(n + 1));
  }
}

TEST_F(LiveWatchTest, TellsOfTheSetUp) {
  const Journal journal = watched(0, {never_s, 0});
  if (journal.all<HostLoadEvent>().empty()) GTEST_SKIP() << "/proc/stat does not tell of the CPUs";
  EXPECT_EQ(loads_by_host(journal), (std::map<std::string, int>{{"a", 2}, {"b", 2}}));
  EXPECT_EQ(journal.all<GpuSlowdownEvent>().size(), 1u);
}

TEST_F(LiveWatchTest, BetweenTwoLinesTimePasses) {
  const Journal journal = watched(2, {never_s, never_s});
  if (journal.all<HostLoadEvent>().empty()) GTEST_SKIP() << "/proc/stat does not tell of the CPUs";
  EXPECT_EQ(loads_by_host(journal), (std::map<std::string, int>{{"a", 1}, {"b", 1}}));
  EXPECT_EQ(journal.all<GpuSlowdownEvent>().size(), 1u);
}

}  // namespace
}  // namespace heteroperf
