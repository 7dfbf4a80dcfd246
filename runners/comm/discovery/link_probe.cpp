#include "runners/comm/discovery/link_probe.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"

namespace heteroperf {
namespace {

constexpr double most_repetitions = 100;
/// On a busy machine any small message can seem slow: none larger is left out because of one up to
/// here; of one up to `decisive`, only where it takes `hopeless` budgets.
constexpr Bytes indecisive{1 << 14}, decisive{1 << 20};
constexpr double hopeless = 20;

/// What `first` tells `second` to echo; no repetitions: nothing more.
struct Orders {
  std::int64_t bytes = 0;
  std::int64_t repetitions = 0;
};

/// One end of the link.
class End {
 public:
  End(const LinkGroup& links, RankId peer, Bytes largest)
      : links_(links),
        peer_(peer),
        peer_in_group_(links.rank_in_group(peer)),
        tag_(&links.group == &links.harness ? message_tags::link_probe : 0),
        largest_(largest),
        values_(links.group.memory(), largest.value()) {}

  void send(Bytes size) { links_.group.send(ConstBuffer(message(size)), peer_in_group_, tag_); }
  void receive(Bytes size) { links_.group.receive(message(size), peer_in_group_, tag_); }
  Seconds round_trip(Bytes size) {
    const Stopwatch stopwatch;
    send(size);
    receive(size);
    return Seconds(stopwatch.elapsed_s());
  }
  void echo(Bytes size) {
    receive(size);
    send(size);
  }
  void send(const Orders& orders) {
    const std::array<std::int64_t, 2> words = {orders.bytes, orders.repetitions};
    links_.harness.send(std::span(words), peer_, message_tags::link_probe);
  }
  Orders receive_orders() {
    std::array<std::int64_t, 2> words = {0, 0};
    links_.harness.receive(std::span(words), peer_, message_tags::link_probe);
    return {words[0], words[1]};
  }
  /// The round trips of one size.
  void measure(Bytes size, std::int64_t repetitions, std::vector<Seconds>& times) {
    send(Orders{static_cast<std::int64_t>(size.value()), repetitions});
    for (std::int64_t i = 0; i < repetitions; ++i) times.push_back(round_trip(size));
  }

 private:
  MutableBuffer message(Bytes size) {
    HETEROPERF_EXPECT(size <= largest_);
    return {values_.data(), static_cast<std::size_t>(size.value()), DataType::u8};
  }

  const LinkGroup& links_;
  RankId peer_, peer_in_group_;
  int tag_;  ///< of the group's messages, which may be a user's
  Bytes largest_;
  MemoryBlock values_;
};

bool is_last(Bytes size, Seconds one_way, Seconds budget) {
  return size > indecisive && one_way > budget * (size >= decisive ? 1 : hopeless);
}

std::int64_t repetitions_for(Bytes size, Seconds first, const PingPong& plan) {
  if (size > indecisive && first / 2 > plan.budget * hopeless) return 1;
  const double fitting = plan.budget / std::max(first, Seconds(1e-9));
  const double least = plan.repetition == Repetition::median ? 5 : 8;
  return static_cast<std::int64_t>(std::clamp(fitting, least, most_repetitions));
}

/// Half of the round trip that counts; `round_trips` are sorted.
Seconds one_way(const std::vector<Seconds>& round_trips, Repetition repetition) {
  const bool is_least = repetition == Repetition::least || round_trips.size() < 3;
  const Seconds chosen = is_least ? round_trips.front() : round_trips[round_trips.size() / 2];
  return std::max(chosen / 2, Seconds(1e-9));
}

std::vector<LinkCurve::Point> lead(End& end, const PingPong& plan) {
  std::vector<LinkCurve::Point> points;
  for (const Bytes size : plan.sizes) {
    std::vector<Seconds> round_trips;
    // The first of a size connects and touches memory; it counts where there is no time for more.
    end.measure(size, 1, round_trips);
    const Seconds first = round_trips.front();
    end.measure(size, repetitions_for(size, first, plan), round_trips);
    if (round_trips.size() > 2) round_trips.erase(round_trips.begin());
    std::sort(round_trips.begin(), round_trips.end());
    points.push_back({size, one_way(round_trips, plan.repetition)});
    if (is_last(size, round_trips.front() / 2, plan.budget)) break;
  }
  end.send(Orders{});
  return points;
}

void follow(End& end) {
  for (Orders orders = end.receive_orders(); orders.repetitions > 0;
       orders = end.receive_orders()) {
    for (std::int64_t i = 0; i < orders.repetitions; ++i) {
      end.echo(Bytes(static_cast<std::uint64_t>(orders.bytes)));
    }
  }
}

}  // namespace

RankId LinkGroup::rank_in_group(RankId rank) const {
  if (members.empty()) return rank;
  const auto found = std::find(members.begin(), members.end(), rank);
  HETEROPERF_EXPECT(found != members.end());
  return RankId(static_cast<std::int32_t>(found - members.begin()));
}

std::vector<LinkCurve::Point> ping_pong(const LinkGroup& links, const PingPong& plan) {
  HETEROPERF_EXPECT(!plan.sizes.empty() && plan.first != plan.second && plan.budget > Seconds(0));
  const RankId self = links.harness.rank();
  HETEROPERF_EXPECT(self == plan.first || self == plan.second);
  End end(links, self == plan.first ? plan.second : plan.first,
          std::max(Bytes(1), plan.sizes.back()));
  if (self == plan.first) return lead(end, plan);
  follow(end);
  return {};
}

LinkCurve curve_of(std::vector<LinkCurve::Point> points) {
  std::erase_if(points, [](const LinkCurve::Point& p) { return !(p.time > Seconds(0)); });
  for (std::size_t i = points.size(); i-- > 1;) {
    points[i - 1].time = std::min(points[i - 1].time, points[i].time);
  }
  return LinkCurve(std::move(points));
}

std::vector<std::vector<std::size_t>> disjoint_rounds(
    const std::vector<std::set<std::string>>& hosts_of_each) {
  std::vector<std::vector<std::size_t>> rounds;
  std::vector<std::set<std::string>> busy;
  for (std::size_t i = 0; i < hosts_of_each.size(); ++i) {
    const std::set<std::string>& hosts = hosts_of_each[i];
    const auto is_free = [&](const std::set<std::string>& taken) {
      return hosts.count("") + taken.count("") == 0 &&
             std::none_of(hosts.begin(), hosts.end(),
                          [&](const std::string& host) { return taken.count(host) != 0; });
    };
    const auto free = std::find_if(busy.begin(), busy.end(), is_free);
    const auto round = static_cast<std::size_t>(free - busy.begin());
    if (free == busy.end()) {
      rounds.emplace_back();
      busy.emplace_back();
    }
    rounds[round].push_back(i);
    busy[round].insert(hosts.begin(), hosts.end());
  }
  return rounds;
}

}  // namespace heteroperf
