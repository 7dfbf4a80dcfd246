#include "runners/comm/reshard/freight.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace heteroperf {
namespace {

TEST(MessageRounds, UseAsManyRoundsAsTheBusiestRankHasMessages) {
  std::mt19937 engine(8);
  for (int i = 0; i < 300; ++i) {
    const int senders = 1 + static_cast<int>(engine() % 12);
    const int receivers = 1 + static_cast<int>(engine() % 12);
    std::vector<std::pair<RankId, RankId>> messages;
    std::map<int, int> degree;
    int most = 0;
    for (unsigned n = engine() % 90; n > 0; --n) {
      const int from = static_cast<int>(engine() % static_cast<unsigned>(senders));
      const int to = static_cast<int>(engine() % static_cast<unsigned>(receivers));
      messages.emplace_back(RankId(from), RankId(to));
      most = std::max({most, ++degree[from], ++degree[100 + to]});
    }
    const MessageRounds rounds = message_rounds(messages);
    EXPECT_EQ(rounds.count, most);
    std::set<std::pair<int, int>> seen;
    for (std::size_t k = 0; k < messages.size(); ++k) {
      EXPECT_GE(rounds.round[k], 0);
      EXPECT_LT(rounds.round[k], most);
      EXPECT_TRUE(seen.emplace(rounds.round[k], messages[k].first.value()).second);
      EXPECT_TRUE(seen.emplace(rounds.round[k], 100 + messages[k].second.value()).second);
    }
  }
}

TEST(MessageRounds, MoreThanOneWordOfRounds) {
  std::vector<std::pair<RankId, RankId>> messages;
  for (int from = 0; from < 70; ++from)
    for (int to = 0; to < 70; ++to) messages.emplace_back(RankId(from), RankId((to * 37) % 70));
  EXPECT_EQ(message_rounds(messages).count, 70);
}

// --- bad input and the cache -----------------------------------------------------------------

}  // namespace
}  // namespace heteroperf
