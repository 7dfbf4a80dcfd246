#include "runners/cluster/topology.hpp"

#include <gtest/gtest.h>

#include "tests/unit/runners/cluster/fake_root.hpp"

namespace heteroperf {
namespace {

using test::FakeRoot;

void add_card(FakeRoot& root, const std::string& name, const std::string& speed,
              const std::string& node) {
  const std::string folder = "sys/class/net/" + name;
  root.write(folder + "/type", "1\n").write(folder + "/speed", speed + "\n");
  root.write(folder + "/device/numa_node", node + "\n");
}

TEST(NetworkCards, ComeNearestThenFastestFirst) {
  FakeRoot root;
  add_card(root, "eth0", "1000", "1");
  add_card(root, "eth1", "10000", "1");
  add_card(root, "eth2", "-1", "0");
  add_card(root, "eth3", "100", "-1");
  root.write("sys/devices/system/node/node0/cpu4/online", "1");
  const auto cards = network_cards({"eth0", "eth1", "eth2", "eth3"}, {4, 5}, root.files());
  EXPECT_EQ(cards, (std::vector<NetworkCard>{{"eth2", BytesPerSecond(0)},
                                             {"eth1", BytesPerSecond(1.25e9)},
                                             {"eth0", BytesPerSecond(1.25e8)},
                                             {"eth3", BytesPerSecond(1.25e7)}}));
}

TEST(NetworkCards, LeaveOutWhatIsNone) {
  FakeRoot root;
  add_card(root, "eth0", "1000", "0");
  add_card(root, "eth1", "1000", "0");
  root.write("sys/class/net/eth1/master/x", "");  // a real card below a bond
  for (const char* name : {"bond0", "bridge0", "vlan5", "veth1", "dummy0", "tun0", "veth2"}) {
    const std::string folder = std::string("sys/class/net/") + name;
    root.write(folder + "/type", std::string(name) == "tun0" ? "65534" : "1");
    root.write(folder + "/speed", "10000").write(folder + "/ifindex", "7");
    root.write(folder + "/iflink", std::string(name) == "dummy0" ? "7" : "8");
  }
  root.write("sys/class/net/bond0/bonding/mode", "").write("sys/class/net/bridge0/bridge/x", "");
  root.write("sys/class/net/vlan5/lower_eth0/x", "").write("sys/class/net/veth1/master/x", "");
  const auto cards = network_cards(
      {"bond0", "bridge0", "dummy0", "eth0", "eth1", "tun0", "veth1", "veth2", "vlan5"}, {0},
      root.files());
  ASSERT_EQ(cards.size(), 3u);
  EXPECT_EQ(cards[0].name, "eth0");
  EXPECT_EQ(cards[1].name, "eth1");
  // The far end of a virtual cable: its speed is only nominal.
  EXPECT_EQ(cards[2], (NetworkCard{"veth2", BytesPerSecond(0)}));
}

TEST(NetworkCards, AreTakenAtTheirWordWithoutSystemFiles) {
  FakeRoot root;
  EXPECT_EQ(network_cards({"net1"}, {}, root.files()).size(), 1u);
  EXPECT_TRUE(network_cards({}, {}, root.files()).empty());
}

TEST(NetworkCards, RunningInterfacesLeaveLoopbackOut) {
  for (const std::string& name : running_interfaces()) EXPECT_NE(name, "lo");
}

}  // namespace
}  // namespace heteroperf
