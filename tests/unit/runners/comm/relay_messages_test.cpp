#include "runners/comm/relay/relay.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/comm/mock_copier.hpp"

namespace heteroperf {
namespace {

constexpr MockCopier::Pace copies_at_once;

using RelayBlock = std::vector<std::byte>;

RelayBlock block_pattern(int seed, std::size_t bytes) {
  RelayBlock values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    values[i] = static_cast<std::byte>(random_bits(8, seed, i));
  }
  return values;
}

DeviceBytes block_bytes(RelayBlock& values) { return {values.data(), values.size()}; }

RelayConfig chunks_of(std::uint64_t bytes) {
  RelayConfig config;
  config.chunk = Bytes(bytes);
  return config;
}

/// Two ranks, each with messages to the other.
void run_pair(const RelayConfig& config,
              const std::function<void(RelayMessages&, bool sends)>& body) {
  run_on_threads(2, {}, [&](World& world) {
    MockCopier copier("mock", copies_at_once, copies_at_once);
    RelayMessages messages(*world.communicator, copier, config);
    body(messages, world.communicator->rank() == RankId(0));
    world.communicator->barrier();
  });
}

/// Sizes on both sides of a chunk, of a handshake's worth, and none.
std::size_t size_of_message(int k) {
  constexpr std::size_t sizes[] = {0, 1, 4096, 4097, 100001, 7, 65536, 70000};
  return sizes[static_cast<std::size_t>(k) % std::size(sizes)];
}

TEST(RelayMessages, MatchByTagInOrderWhateverTheirSizes) {
  // More than there are channels, several of each tag; awaited from the last to the first.
  constexpr int count = 200, tags = 3;
  for (const std::uint64_t chunk : {262144, 4096}) {
    run_pair(chunks_of(chunk), [](RelayMessages& messages, bool sends) {
      std::vector<RelayBlock> blocks;
      std::vector<std::unique_ptr<Transfer>> transfers;
      blocks.reserve(count);
      // The receiver takes all of one tag before the next.
      for (int k = 0; k < count; ++k) {
        const int per_tag = count / tags + 1;
        const int number = sends ? k : (k % per_tag) * tags + k / per_tag;
        if (number >= count) continue;
        blocks.push_back(sends ? block_pattern(number, size_of_message(number))
                               : RelayBlock(size_of_message(number)));
        transfers.push_back(
            sends ? messages.start_send(block_bytes(blocks.back()), RankId(1), number % tags)
                  : messages.start_receive(block_bytes(blocks.back()), RankId(0), number % tags));
      }
      for (std::size_t i = transfers.size(); i-- > 0;) transfers[i]->wait();
      if (sends) return;
      std::size_t at = 0;
      for (int k = 0; k < count; ++k) {
        const int per_tag = count / tags + 1;
        const int number = (k % per_tag) * tags + k / per_tag;
        if (number >= count) continue;
        EXPECT_EQ(blocks[at++], block_pattern(number, size_of_message(number))) << number;
      }
    });
  }
}

TEST(RelayMessages, BothWaysAtOnce) {
  run_pair(chunks_of(1024), [](RelayMessages& messages, bool first) {
    const RankId other(first ? 1 : 0);
    // Of other sizes in the two directions, with one tag.
    RelayBlock out = block_pattern(first ? 1 : 2, first ? 50000 : 20001), in(first ? 20001 : 50000);
    const auto send = messages.start_send(block_bytes(out), other, 5);
    const auto receive = messages.start_receive(block_bytes(in), other, 5);
    while (!send->test() || !receive->test()) {
    }
    EXPECT_EQ(in, block_pattern(first ? 2 : 1, in.size()));
  });
}

TEST(RelayMessages, ADifferenceIsFoundOnBothSidesAndOthersGoOn) {
  std::atomic<int> found{0};
  run_pair(chunks_of(1024), [&](RelayMessages& messages, bool sends) {
    RelayBlock wrong(sends ? 10000 : 10001),
        good = sends ? block_pattern(3, 5000) : RelayBlock(5000);
    const auto start = [&](RelayBlock& block, int tag) {
      return sends ? messages.start_send(block_bytes(block), RankId(1), tag)
                   : messages.start_receive(block_bytes(block), RankId(0), tag);
    };
    const auto first = start(wrong, 1), second = start(good, 2);
    try {
      first->wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::run_failed);
      EXPECT_NE(std::string(error.what()).find("10001 bytes"), std::string::npos) << error.what();
      ++found;
    }
    second->wait();
    EXPECT_EQ(good, block_pattern(3, 5000));
  });
  EXPECT_EQ(found, 2);
}

TEST(RelayMessages, AWrongConfigurationIsRefused) {
  run_on_threads(1, {}, [](World& world) {
    MockCopier copier("mock", copies_at_once, copies_at_once);
    RelayConfig config;
    config.slots = 1;
    EXPECT_THROW(RelayMessages(*world.communicator, copier, config), Error);
  });
}

}  // namespace
}  // namespace heteroperf
