// Which devices make clusters, and their links, over played libraries.
#include "runners/comm/nccl/device_world.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/played_nccl.hpp"

namespace heteroperf {
namespace {

Script on(const std::string& vendor, const std::string& version = "3.2.1") {
  Script script;
  script.device = {vendor, vendor + " one", Bytes(1 << 30)};
  script.version = version;
  return script;
}

RankDescriptor host_descriptor() {
  RankDescriptor host{"cpu", "some cpu", "threads", "host", {}, ""};
  host.cards.push_back({"host/eth0", BytesPerSecond(1e9)});
  return host;
}

/// A rank per script; `body` gets each rank's world, its device world and its communicator over
/// everybody.
using Body = std::function<void(World&, const DeviceWorld&, Communicator&)>;
void run_devices(const std::vector<Script>& scripts, const std::vector<std::string>& labels,
                 const Body& body) {
  run_on_threads(static_cast<int>(scripts.size()), {}, [&](World& world) {
    Communicator& hosts = *world.communicator;
    const auto played_world = hosts.split(0, 0);
    const auto library = std::make_shared<PlayedNccl>(*played_world, scripts[hosts.rank().index()]);
    DeviceWorld devices = make_device_world(world, library, host_descriptor(), labels);
    const auto group = make_device_group(world, devices, {});
    body(world, devices, *group);
    hosts.barrier();
  });
}

TEST(DeviceWorld, DescribesDevicesInPlaceOfTheirHosts) {
  run_on_threads(1, {}, [](World& world) {
    PlayedNccl library(*world.communicator, on("nvidia", "2.28.9"));
    const RankDescriptor found = describe_device(library, host_descriptor());
    EXPECT_EQ(found.vendor, "nvidia");
    EXPECT_EQ(found.model, "nvidia one");
    EXPECT_EQ(found.library, "nccl 2");
    EXPECT_EQ(found.library_version, "2.28.9");
    EXPECT_EQ(found.host, "host");
    EXPECT_EQ(found.cards.size(), 1u);
  });
}

TEST(DeviceWorld, UnlikeDevicesAreClustersAndTheReasonSaysSo) {
  run_devices({on("left"), on("right"), on("left"), on("right")}, {},
              [](World& world, const DeviceWorld& devices, Communicator& group) {
                const auto& clusters = devices.clusters.clusters;
                ASSERT_EQ(clusters.size(), 2u);
                EXPECT_EQ(clusters[0].ranks, (std::vector<RankId>{RankId(0), RankId(2)}));
                EXPECT_EQ(clusters[1].ranks, (std::vector<RankId>{RankId(1), RankId(3)}));
                EXPECT_NE(devices.clusters.reason.find(
                              "unlike devices or libraries: left nccl 3, right nccl 3"),
                          std::string::npos)
                    << devices.clusters.reason;
                EXPECT_EQ(devices.descriptors[1].vendor, "right");
                EXPECT_FALSE(group.memory().on_host());
                EXPECT_EQ(group.size(), world.communicator->size());
              });
}

TEST(DeviceWorld, LibrariesOfAnotherMajorVersionAreUnlike) {
  run_devices(
      {on("nvidia", "2.28.9"), on("nvidia", "3.0.1"), on("nvidia", "2.20.0")}, {},
      [](World&, const DeviceWorld& devices, Communicator&) {
        EXPECT_NE(devices.clusters.reason.find("nvidia nccl 2, nvidia nccl 3"), std::string::npos)
            << devices.clusters.reason;
        EXPECT_NE(devices.clusters.cluster_of(RankId(0)), devices.clusters.cluster_of(RankId(1)));
      });
}

TEST(DeviceWorld, SumsOverWhateverClustersWereFound) {
  run_on_threads(3, {}, [](World& world) {
    const auto played_world = world.communicator->split(0, 0);
    const bool right = world.communicator->rank() == RankId(1);
    const auto library = std::make_shared<PlayedNccl>(*played_world, on(right ? "right" : "left"));
    DeviceWorld devices = make_device_world(world, library, host_descriptor(), {});
    const auto group = make_on_device(make_device_group(world, devices, {}));
    for (const CommunicatorCase& one : communicator_cases()) {
      if (std::string(one.name) == "blocks_of_one_size") run_case(one, *group);
    }
  });
}

TEST(DeviceWorld, LabelsDecide) {
  run_devices({on("left"), on("left"), on("left")}, {"a", "b", "a"},
              [](World&, const DeviceWorld& devices, Communicator& group) {
                EXPECT_EQ(devices.clusters.clusters.size(), 2u);
                EXPECT_EQ(devices.clusters.reason, "labels given");
                EXPECT_EQ(group.transport(), "hybrid");
              });
  run_devices({on("left"), on("left")}, {"a", "a"},
              [](World&, const DeviceWorld&, Communicator& group) {
                EXPECT_EQ(group.transport(), "nccl");
              });
}

TEST(DeviceWorld, ALabelForUnlikeDevicesIsRefused) {
  std::string text;
  try {
    run_devices({on("left"), on("right"), on("left")}, {"a", "a", "b"},
                [](World&, const DeviceWorld&, Communicator&) { FAIL() << "accepted"; });
  } catch (const UserError& error) {
    text = error.what();
  }
  for (const char* part : {"cluster a has unlike devices", "rank 0 is left left one over nccl 3",
                           "rank 1 is right right one over nccl 3"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(DeviceWorld, LinksAreMeasuredInsideAndStagedAcross) {
  run_on_threads(3, {}, [](World& world) {
    const auto played_world = world.communicator->split(0, 0);
    const bool right = world.communicator->rank() == RankId(1);
    const auto library = std::make_shared<PlayedNccl>(*played_world, on(right ? "right" : "left"));
    DeviceWorld devices = make_device_world(world, library, host_descriptor(), {});
    const LinkSweep sweep{{Bytes(64), Bytes(4096), Bytes(1 << 17)}, Seconds(0.001)};
    const MeasuredDevices measured = measure_devices(world, devices, {}, sweep);
    ASSERT_EQ(measured.file.links.size(), 3u);
    for (const Link& link : measured.file.links) {
      EXPECT_GT(link.curve.bandwidth().value(), 0);
      EXPECT_EQ(link.curve.points().size(), 3u);
    }
    EXPECT_EQ(measured.file.ranks.size(), 3u);
    // What the links say is theirs to say; but unlike devices are never one cluster.
    EXPECT_GE(measured.clusters.clusters.size(), 2u);
    EXPECT_NE(measured.clusters.cluster_of(RankId(0)), measured.clusters.cluster_of(RankId(1)));
    EXPECT_NE(measured.clusters.reason.find("unlike devices"), std::string::npos)
        << measured.clusters.reason;
  });
}

TEST(DeviceWorld, LikeDevicesAreOneClusterHoweverFarApart) {
  run_on_threads(2, {}, [](World& world) {
    const auto played_world = world.communicator->split(0, 0);
    const auto library = std::make_shared<PlayedNccl>(*played_world, on("left"));
    RankDescriptor host = host_descriptor();
    host.host = "host " + std::to_string(world.communicator->rank().value());
    const DeviceWorld devices = make_device_world(world, library, host, {});
    EXPECT_EQ(devices.clusters.clusters.size(), 1u);
    EXPECT_EQ(devices.clusters.reason, "one kind of device and library: left nccl 3");
  });
}

}  // namespace
}  // namespace heteroperf
