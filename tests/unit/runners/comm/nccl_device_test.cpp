// On a real device, where there is one: NCCL's own results, and copies between device and host.
// Without one every test is skipped and says why.
#include <gtest/gtest.h>

#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/nccl/device_world.hpp"
#include "runners/comm/relay/staging.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/played_nccl.hpp"

namespace heteroperf {
namespace {

class RealDevice : public testing::Test {
 protected:
  void SetUp() override {
    const BackendStatus status = nccl_status();
    if (!status.usable) {
      GTEST_SKIP() << "no usable device: "
                   << (status.built ? status.reason : std::string("not built with NCCL"));
    }
  }
};

TEST_F(RealDevice, SaysWhatItIs) {
  run_on_threads(1, {}, [](World& world) {
    const auto library = open_nccl_device(world);
    EXPECT_EQ(library->device().vendor, "nvidia");
    EXPECT_FALSE(library->device().model.empty());
    EXPECT_GT(library->device().memory.value(), std::uint64_t{1} << 28);
    EXPECT_EQ(library->version(), nccl_status().version);
  });
}

TEST_F(RealDevice, CopiesEveryByteThereAndBack) {
  run_on_threads(1, {}, [](World& world) {
    const auto library = open_nccl_device(world);
    DeviceCopier* const copier = library->memory().copier();
    ASSERT_NE(copier, nullptr);
    HostStage stage(*copier, 30);
    for (const std::size_t count : {1, 1000, 3000001}) {
      std::vector<std::uint8_t> values(count);
      for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
      MemoryBlock block(library->memory(), count);
      const MutableBuffer device(block.data(), count, DataType::u8);
      const MutableBuffer room = stage.room(device);
      std::copy(values.begin(), values.end(), static_cast<std::uint8_t*>(room.data));
      stage.write(room, device);
      const auto* const back = static_cast<const std::uint8_t*>(stage.read(device).data);
      EXPECT_TRUE(std::equal(values.begin(), values.end(), back)) << count;
    }
  });
}

TEST_F(RealDevice, OneRankBehavesAsATransport) {
  run_on_threads(1, {}, [](World& world) {
    const auto library = open_nccl_device(world);
    const auto part = world.communicator->split(0, 0);
    const auto group = make_on_device(make_nccl_group(world, library, *part));
    for (const CommunicatorCase& one : communicator_cases()) {
      SCOPED_TRACE(one.name);
      // NCCL averages integers in a way of its own; one rank's average is itself.
      run_case(one, *group);
    }
  });
}

/// A rank per cluster: what NCCL refuses, two ranks of one device in a group, does not occur, and
/// everything between the clusters is staged through the host.
TEST_F(RealDevice, TwoClustersOfOneRankShareIt) {
  run_on_threads(2, {}, [](World& world) {
    const auto library = open_nccl_device(world);
    DeviceWorld devices =
        make_device_world(world, library, describe_this_rank("threads", ""), {"a", "b"});
    const auto group = make_on_device(make_device_group(world, devices, {}));
    for (const CommunicatorCase& one : communicator_cases()) {
      SCOPED_TRACE(one.name);
      run_case(one, *group);
    }
  });
}

}  // namespace
}  // namespace heteroperf
