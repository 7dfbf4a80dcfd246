// Rounds of messages as an edge colouring. Senders and receivers are the two sides of a graph,
// messages its edges, rounds the colours. Each message takes the round that it *wishes* where both
// ends have it free, else the first round that both have free. Where there is none, the sender has
// a round `a` free and the receiver a round `b`: along the path of messages that leaves the
// receiver by `a` and alternates between `a` and `b`, the two rounds change places, which frees `a`
// at the receiver too. The path never comes to the sender, since it reaches senders by `a` only.
#include "runners/comm/reshard/freight.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>

namespace heteroperf {
namespace {

constexpr std::int32_t none = -1;

/// The message of each rank in each round, for the ranks of one side.
class BusyRounds {
 public:
  BusyRounds(std::size_t ranks, std::size_t rounds)
      : rounds_(rounds),
        words_((rounds + 63) / 64),
        message_(ranks * rounds, none),
        taken_(ranks * words_, 0) {}

  std::int32_t message(std::size_t rank, std::size_t round) const {
    return message_[rank * rounds_ + round];
  }
  /// Returns the first free round, which a rank with fewer messages than rounds always has.
  std::size_t free_round(std::size_t rank) const {
    std::size_t word = 0;
    while (taken_[rank * words_ + word] == ~std::uint64_t{0}) ++word;
    return word * 64 + static_cast<std::size_t>(std::countr_one(taken_[rank * words_ + word]));
  }
  bool is_free(std::size_t rank, std::size_t round) const { return message(rank, round) == none; }
  /// Returns the first round that is free at both ranks; `rounds` when there is none.
  static std::size_t common_round(const BusyRounds& a, std::size_t rank_a, const BusyRounds& b,
                                  std::size_t rank_b) {
    for (std::size_t word = 0; word < a.words_; ++word) {
      const std::uint64_t taken =
          a.taken_[rank_a * a.words_ + word] | b.taken_[rank_b * b.words_ + word];
      if (~taken == 0) continue;
      const std::size_t round = word * 64 + static_cast<std::size_t>(std::countr_one(taken));
      return std::min(round, a.rounds_);
    }
    return a.rounds_;
  }
  void set(std::size_t rank, std::size_t round, std::int32_t message) {
    message_[rank * rounds_ + round] = message;
    const std::uint64_t bit = std::uint64_t{1} << (round % 64);
    std::uint64_t& word = taken_[rank * words_ + round / 64];
    word = message == none ? word & ~bit : word | bit;
  }

 private:
  std::size_t rounds_, words_;
  std::vector<std::int32_t> message_;
  std::vector<std::uint64_t> taken_;
};

/// The ranks of one side, numbered 0, 1, …, and the most messages of any of them.
struct Numbered {
  std::vector<std::size_t> of_message;  ///< the number of a message's rank
  std::size_t ranks = 0, degree = 0;
};

template <class Select>
Numbered number_ranks(std::span<const std::pair<RankId, RankId>> messages, Select select) {
  std::vector<RankId> ranks;
  for (const auto& message : messages) ranks.push_back(select(message));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());

  Numbered numbered;
  numbered.ranks = ranks.size();
  std::vector<std::size_t> degree(ranks.size(), 0);
  for (const auto& message : messages) {
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), select(message)) - ranks.begin();
    numbered.of_message.push_back(at);
    numbered.degree = std::max(numbered.degree, ++degree[at]);
  }
  return numbered;
}

class Colouring {
 public:
  Colouring(const Numbered& from, const Numbered& to, std::size_t rounds)
      : from_(from),
        to_(to),
        rounds_(rounds),
        senders_(from.ranks, rounds),
        receivers_(to.ranks, rounds),
        round_(from.of_message.size(), none) {}

  /// Adds a message, in round `wish` where that is free.
  void add(std::size_t message, std::size_t wish) {
    const std::size_t sender = from_.of_message[message], receiver = to_.of_message[message];
    if (senders_.is_free(sender, wish) && receivers_.is_free(receiver, wish))
      return put(message, wish);
    std::size_t round = BusyRounds::common_round(senders_, sender, receivers_, receiver);
    if (round == rounds_) {
      round = senders_.free_round(sender);
      swap_path(receiver, round, receivers_.free_round(receiver));
    }
    put(message, round);
  }
  std::vector<std::int32_t> rounds() && { return std::move(round_); }

 private:
  void put(std::size_t message, std::size_t round) {
    round_[message] = static_cast<std::int32_t>(round);
    senders_.set(from_.of_message[message], round, static_cast<std::int32_t>(message));
    receivers_.set(to_.of_message[message], round, static_cast<std::int32_t>(message));
  }

  /// Exchanges the rounds `busy` and `spare` along the path that leaves the receiver by `busy`,
  /// which frees it there.
  void swap_path(std::size_t receiver, std::size_t busy, std::size_t spare) {
    std::vector<std::size_t> path;
    for (std::size_t at = receiver;;) {
      const std::int32_t out = receivers_.message(at, busy);
      if (out == none) break;
      path.push_back(out);
      const std::int32_t back = senders_.message(from_.of_message[path.back()], spare);
      if (back == none) break;
      path.push_back(back);
      at = to_.of_message[path.back()];
    }
    for (const std::size_t message : path) {
      const std::size_t round = round_[message];
      senders_.set(from_.of_message[message], round, none);
      receivers_.set(to_.of_message[message], round, none);
    }
    for (const std::size_t message : path)
      put(message, static_cast<std::size_t>(round_[message]) == busy ? spare : busy);
  }

  const Numbered& from_;
  const Numbered& to_;
  std::size_t rounds_;
  BusyRounds senders_, receivers_;
  std::vector<std::int32_t> round_;
};

/// The wished round of each message: its place among the sender's receivers less its place among
/// the receiver's senders. That makes a perfect table where all ranks of a group send to all ranks
/// of another.
std::vector<std::size_t> wishes(const Numbered& from, const Numbered& to, std::size_t rounds) {
  std::vector<std::size_t> order(from.of_message.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(from.of_message[a], to.of_message[a]) <
           std::pair(from.of_message[b], to.of_message[b]);
  });
  std::vector<std::size_t> sent(from.ranks, 0), received(to.ranks, 0), wish(order.size());
  for (const std::size_t message : order)
    wish[message] =
        (sent[from.of_message[message]]++ + rounds - received[to.of_message[message]]++) % rounds;
  return wish;
}

}  // namespace

MessageRounds message_rounds(std::span<const std::pair<RankId, RankId>> messages) {
  const Numbered from = number_ranks(messages, [](const auto& message) { return message.first; });
  const Numbered to = number_ranks(messages, [](const auto& message) { return message.second; });
  const std::size_t rounds = std::max(from.degree, to.degree);
  Colouring colouring(from, to, rounds);
  const std::vector<std::size_t> wish = wishes(from, to, rounds);
  for (std::size_t message = 0; message < messages.size(); ++message)
    colouring.add(message, wish[message]);
  return {static_cast<int>(rounds), std::move(colouring).rounds()};
}

}  // namespace heteroperf
