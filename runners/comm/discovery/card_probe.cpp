// Finding what the ranks of a host share on their way to other hosts: a network card, or a shaper
// in front of it. A shaper lets a *burst* of bytes pass after a pause before it holds a sender to
// its rate, so transfers are made large, after pauses in which the burst fills up again, and the
// burst is subtracted.
#include "runners/comm/discovery/link_probe.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"

namespace heteroperf {
namespace {

/// The bounds of a transfer, many times what shapers let pass at any rate (128 KiB or so).
constexpr Bytes least_size{std::uint64_t{2} << 20}, most_size{std::uint64_t{16} << 20};
/// Each rank sends this much at least where all send.
constexpr Bytes least_each{std::uint64_t{1} << 20};
constexpr Seconds transfer_time{0.08};
/// The times of smaller messages are latency.
constexpr Bytes least_burst{16384};
/// A message that passes a shaper at once is at least so many times faster than its rate.
constexpr double much_faster = 1.5;
constexpr double shared_below = 0.75;
constexpr int most_card_rounds = 7;
/// A transfer that takes longer is made once.
constexpr Seconds long_time{0.3};
/// A shaper needs the time of so many bytes at the link's rate to fill up again.
constexpr double refill_bytes = 1 << 19;
constexpr Seconds least_pause{0.01}, most_pause{0.2};

using Pair = std::pair<RankId, RankId>;  ///< from, to

/// Returns the rate past a burst; `time` includes a latency there, and one for the answer.
BytesPerSecond past_burst(Bytes size, Bytes burst, Seconds time, const LinkCurve& link) {
  const double bytes = static_cast<double>(size.value()) - static_cast<double>(burst.value());
  const Seconds transfer = std::max(time - link.latency() * 2, time / 10);
  return BytesPerSecond(bytes / std::max(transfer.value(), 1e-9));
}

std::vector<std::string> hosts_of(const Cluster& cluster) {
  std::vector<std::string> hosts;
  for (const RankPlace& place : cluster.ranks) {
    if (std::find(hosts.begin(), hosts.end(), place.host) == hosts.end()) {
      hosts.push_back(place.host);
    }
  }
  return hosts;
}

/// Pairs every rank of the host with a rank of another host; the latter take turns.
std::vector<Pair> pairs_of(const Cluster& cluster, const std::string& host) {
  std::vector<RankId> here, elsewhere;
  for (std::size_t r = 0; r < cluster.ranks.size(); ++r) {
    (cluster.ranks[r].host == host ? here : elsewhere).emplace_back(static_cast<std::int32_t>(r));
  }
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < here.size(); ++i) {
    pairs.emplace_back(here[i], elsewhere[i % elsewhere.size()]);
  }
  return pairs;
}

/// One rank's part in the transfers of a host. Each sender waits for an answer of one byte, so that
/// its time ends when the last byte has arrived.
class HostProbe {
 public:
  HostProbe(Communicator& world, const LinkCurve& link)
      : world_(world), link_(link), values_(most_size.value()) {}

  HostRate measure(std::span<const Pair> pairs) {
    const Bytes size = this->size();
    HostRate rate = host_rate(link_, size, time(pairs.first(1), size));
    if (pairs.size() == 1) return rate;
    const auto senders = static_cast<std::uint64_t>(pairs.size());
    const Bytes each = std::max(least_each, Bytes(2 * size.value() / senders));
    rate.together = past_burst(each * senders, rate.burst, time(pairs, each), link_);
    return rate;
  }

 private:
  Bytes size() const {
    const double bytes = link_.bandwidth().value() * transfer_time.value();
    return std::clamp(Bytes(static_cast<std::uint64_t>(bytes)), least_size, most_size);
  }
  /// The least time in which all pairs have carried `size` each; the same on every rank.
  Seconds time(std::span<const Pair> pairs, Bytes size) {
    Seconds least = time_once(pairs, size);
    for (int i = 1; i < most_card_rounds && least < long_time; ++i) {
      least = std::min(least, time_once(pairs, size));
    }
    return least;
  }
  Seconds time_once(std::span<const Pair> pairs, Bytes size) {
    std::vector<RankId> senders;
    for (const auto& [from, to] : pairs) {
      if (to == world_.rank()) senders.push_back(from);
    }
    world_.barrier();
    // A rank that starts at once would delay the others' last messages of the barrier on a shared
    // card.
    const Seconds pause(refill_bytes / link_.bandwidth().value());
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::clamp(pause, least_pause, most_pause).value()));
    const Stopwatch stopwatch;
    for (const auto& [from, to] : pairs) {
      if (from == world_.rank()) send(to, size);
    }
    receive(senders, size);
    double took_s = stopwatch.elapsed_s();
    world_.all_reduce(std::span(&took_s, 1), Reduction::max);
    return Seconds(took_s);
  }
  void send(RankId to, Bytes size) {
    std::uint8_t answer = 0;
    world_.send(values(size), to, message_tags::link_probe);
    world_.receive(std::span(&answer, 1), to, message_tags::link_probe);
  }
  void receive(std::span<const RankId> from, Bytes size) {
    std::vector<std::unique_ptr<Transfer>> transfers;
    received_.resize(std::max(received_.size(), from.size()));
    for (std::size_t i = 0; i < from.size(); ++i) {
      received_[i].resize(std::max<std::size_t>(received_[i].size(), size.value()));
      const MutableBuffer buffer(received_[i].data(), size.value(), DataType::u8);
      transfers.push_back(world_.start_receive(buffer, from[i], message_tags::link_probe));
    }
    const std::uint8_t answer = 1;
    for (std::size_t i = 0; i < from.size(); ++i) {
      transfers[i]->wait();
      world_.send(std::span(&answer, 1), from[i], message_tags::link_probe);
    }
  }
  MutableBuffer values(Bytes size) {
    return {values_.data(), static_cast<std::size_t>(size.value()), DataType::u8};
  }

  Communicator& world_;
  const LinkCurve& link_;
  std::vector<std::uint8_t> values_;
  std::vector<std::vector<std::uint8_t>> received_;
};

/// Returns the names of the cards of a host's ranks; adds a card where they have none.
std::vector<std::string> cards_of_host(Cluster& cluster, const std::string& host) {
  std::vector<std::string> names;
  for (const RankPlace& place : cluster.ranks) {
    if (place.host != host) continue;
    for (const std::string& card : place.cards) {
      if (std::find(names.begin(), names.end(), card) == names.end()) names.push_back(card);
    }
  }
  if (!names.empty()) return names;
  names.push_back(host + "/network");
  cluster.cards.push_back({names.front()});
  for (RankPlace& place : cluster.ranks) {
    if (place.host == host) place.cards = names;
  }
  return names;
}

}  // namespace

Bytes burst_of(const LinkCurve& link, BytesPerSecond rate) {
  double burst = 0;
  for (const LinkCurve::Point& point : link.points()) {
    const double bytes = static_cast<double>(point.size.value());
    const bool is_fast = bytes >= much_faster * rate.value() * point.time.value();
    if (!is_fast || point.size < least_burst) continue;
    if (point == link.points().back()) return Bytes(0);
    burst = std::max(burst, bytes - rate.value() * (point.time - link.latency()).value());
  }
  return Bytes(static_cast<std::uint64_t>(burst));
}

HostRate host_rate(const LinkCurve& link, Bytes size, Seconds time) {
  HostRate rate;
  rate.burst = burst_of(link, past_burst(size, Bytes(0), time, link));
  rate.alone = rate.together = past_burst(size, rate.burst, time, link);
  return rate;
}

void note_host_rate(Cluster& cluster, const std::string& host, const HostRate& rate) {
  const auto ranks = std::count_if(cluster.ranks.begin(), cluster.ranks.end(),
                                   [&](const RankPlace& place) { return place.host == host; });
  HETEROPERF_EXPECT(ranks > 0);
  const double unlimited = rate.alone.value() * static_cast<double>(ranks);
  const bool shared = ranks > 1 && rate.together.value() < shared_below * unlimited;
  if (!shared && rate.burst == Bytes(0)) return;
  const std::vector<std::string> names = cards_of_host(cluster, host);
  for (NetworkCard& card : cluster.cards) {
    if (std::find(names.begin(), names.end(), card.name) == names.end()) continue;
    card.bandwidth = BytesPerSecond(rate.together.value() / static_cast<double>(names.size()));
    card.burst = Bytes(rate.burst.value() / names.size());
  }
}

void measure_cards(Communicator& world, Cluster& cluster,
                   const std::function<void()>& before_host) {
  const std::vector<std::string> hosts = hosts_of(cluster);
  if (hosts.size() < 2 || std::find(hosts.begin(), hosts.end(), "") != hosts.end()) return;
  for (const std::string& host : hosts) {
    if (before_host) before_host();
    const std::vector<Pair> pairs = pairs_of(cluster, host);
    const LinkCurve& link = cluster.link(pairs.front().first, pairs.front().second);
    note_host_rate(cluster, host, HostProbe(world, link).measure(pairs));
  }
}

}  // namespace heteroperf
