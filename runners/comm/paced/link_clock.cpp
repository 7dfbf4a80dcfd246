#include "runners/comm/paced/link_clock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <string>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/control/socket.hpp"

// A message passes two buckets, its sender's card and its link, and is modelled like this:
//
//     card   ──┤ n / card bandwidth ├──────────
//     link   ──┤ T(n) − latency      ├┤latency├─
//              ▲                      ▲        ▲
//            begins                 leaves   arrives
//
// T(n) is the link's curve. The card may begin earlier than the link by its burst, the bytes that
// it has saved up while it was idle.

namespace heteroperf {

namespace {

constexpr Instant second_ns = 1000000000;
/// A sleeper is woken about this late on an idle machine.
constexpr Instant spin = 70000;
constexpr double longest_s = 30.0 * 365 * 86400;

Instant on_card(Bytes size, const CardUse& card) {
  if (!card.bucket || card.bandwidth.value() <= 0) return 0;
  return to_duration(Seconds(static_cast<double>(size.value()) / card.bandwidth.value()));
}

}  // namespace

void nap_until(Instant wake) {
  const timespec at{wake / second_ns, wake % second_ns};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

void sleep_until(Instant due) {
  if (due - host_now() > spin) nap_until(due - spin);
  while (host_now() < due) {
  }
}

std::uint64_t host_clock_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (!(file >> id)) return 0;
  std::uint64_t hash = 1;
  for (char c : id) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

Instant to_duration(Seconds seconds) {
  return std::llround(std::clamp(seconds.value(), 0.0, longest_s) * 1e9);
}

Instant Bucket::take(Instant earliest, Instant duration, Instant saved) {
  Instant free_at = free_at_.load();
  while (true) {
    const Instant begin = std::max(earliest - saved, free_at);
    if (free_at_.compare_exchange_weak(free_at, begin + duration)) return begin;
  }
}

Passage pass(Instant posted, Bytes size, const LinkCurve& curve, Bucket& link,
             const CardUse& card) {
  const Instant latency = to_duration(curve.latency());
  Instant begin = std::max(posted, link.free_at());
  Instant card_end = begin;
  if (card.bucket) {
    const Instant card_time = on_card(size, card);
    const Instant card_begin = card.bucket->take(begin, card_time, on_card(card.burst, card));
    card_end = card_begin + card_time;
    begin = std::max(begin, card_begin);
  }
  const Instant leaves = std::max(begin + to_duration(curve.time(size)) - latency, card_end);
  link.take(begin, leaves - begin);
  return {posted, leaves, leaves + latency};
}

// Every rank models the links on which it sends, and its cards. A card belongs to all ranks of a
// host that name it, so its bucket lies in memory which these ranks share: the first rank of a host
// makes it under a random name, the others open it, and then the name is removed. Where one rank of
// the world cannot do that, nobody does, and each rank has an equal share of the card's bandwidth.

namespace {

/// A sleeper looks so often whether the run still goes on.
constexpr Instant look_period = 50'000'000;
/// After the wish to stop, transfers have so long to end.
constexpr Instant stop_patience = 2'000'000'000;

/// Memory of this host under a name. The rank that made it removes the name at the end, when all
/// ranks that share it have it open.
class NamedMemory {
 public:
  NamedMemory(std::uint64_t key, std::size_t bytes)
      : name_(fmt::format("/heteroperf-cards-{:016x}", key)), bytes_(bytes) {}
  ~NamedMemory() {
    if (made_) shm_unlink(name_.c_str());
  }
  NamedMemory(const NamedMemory&) = delete;
  NamedMemory& operator=(const NamedMemory&) = delete;

  /// Both return null when the memory cannot be had. New memory is zero.
  void* make() {
    const Descriptor file(shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    made_ = static_cast<bool>(file);
    return made_ && ftruncate(file.fd(), static_cast<off_t>(bytes_)) == 0 ? map(file) : nullptr;
  }
  void* open() {
    const Descriptor file(shm_open(name_.c_str(), O_RDWR, 0));
    return file ? map(file) : nullptr;
  }

 private:
  void* map(const Descriptor& file) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
    return memory == MAP_FAILED ? nullptr : memory;
  }

  std::string name_;
  std::size_t bytes_;
  bool made_ = false;
};

/// True on all ranks when it is true on each. Collective.
bool everywhere(Communicator& world, bool here) {
  std::int32_t all = here ? 1 : 0;
  world.all_reduce(std::span<std::int32_t>(&all, 1), Reduction::min);
  return all == 1;
}

std::size_t card_index(const Cluster& cluster, const std::string& name) {
  const auto card = std::ranges::find(cluster.cards, name, &NetworkCard::name);
  HETEROPERF_EXPECT(card != cluster.cards.end());
  return static_cast<std::size_t>(card - cluster.cards.begin());
}

}  // namespace

/// Clock and key of every rank. Ranks with one clock are on one host; the first of them is the
/// host's leader, whose key names the shared memory.
struct CardTable::Hosts {
  std::vector<std::int64_t> clocks, keys;
  std::size_t self;

  explicit Hosts(Communicator& world)
      : clocks(world.size()), keys(clocks.size()), self(world.rank().index()) {
    auto clock = static_cast<std::int64_t>(host_clock_id());
    // A rank that does not know its clock counts as a host by itself.
    if (clock == 0) clock = -1 - static_cast<std::int64_t>(self);
    const auto key = static_cast<std::int64_t>(unpredictable_bits());
    world.all_gather(std::span<const std::int64_t>(&clock, 1), std::span<std::int64_t>(clocks));
    world.all_gather(std::span<const std::int64_t>(&key, 1), std::span<std::int64_t>(keys));
  }
  bool same(std::size_t rank) const { return clocks[rank] == clocks[self]; }
  std::size_t leader() const {
    return static_cast<std::size_t>(std::ranges::find(clocks, clocks[self]) - clocks.begin());
  }
};

bool leaves_host(const RankPlace& from, const RankPlace& to) {
  if (from.host.empty() || to.host.empty()) return from.cluster != to.cluster;
  return from.host != to.host;
}

/// A card is shared in memory only when all ranks that use it have this rank's clock, since buckets
/// hold times of that clock.
CardTable::CardTable(Communicator& world, const Cluster& cluster)
    : private_buckets_(std::make_unique<Bucket[]>(cluster.cards.size())) {
  const Hosts hosts(world);
  for (std::size_t r = 0; r < hosts.clocks.size(); ++r) same_clock_.push_back(hosts.same(r));
  const std::size_t cards = cluster.cards.size();
  const bool shared = cards > 0 && share_memory(world, hosts, cards);

  for (const std::string& name : cluster.ranks[hosts.self].cards) {
    const std::size_t card = card_index(cluster, name);
    std::size_t users = 0;
    bool here = shared;
    for (std::size_t r = 0; r < cluster.ranks.size(); ++r) {
      const auto uses = std::ranges::count(cluster.ranks[r].cards, name);
      users += uses > 0;
      here = here && (uses == 0 || hosts.same(r));
    }
    const NetworkCard& limit = cluster.cards[card];
    if (here) {
      cards_.push_back({shared_ + card, limit.bandwidth, limit.burst});
    } else {
      const double part = limit.bandwidth.value() / static_cast<double>(users);
      cards_.push_back(
          {&private_buckets_[card], BytesPerSecond(part), Bytes(limit.burst.value() / users)});
      if (users > 1) sharing_ = Sharing::equal_shares;
    }
  }
}

CardTable::~CardTable() {
  if (shared_) munmap(shared_, shared_bytes_);
}

/// All ranks of the world come to the same decision.
bool CardTable::share_memory(Communicator& world, const Hosts& hosts, std::size_t cards) {
  shared_bytes_ = cards * sizeof(Bucket);
  const std::size_t leader = hosts.leader();
  NamedMemory memory(static_cast<std::uint64_t>(hosts.keys[leader]), shared_bytes_);
  void* mapped = leader == hosts.self ? memory.make() : nullptr;
  const bool made = everywhere(world, leader != hosts.self || mapped);
  if (made && leader != hosts.self) mapped = memory.open();
  const bool had = everywhere(world, made && mapped);
  if (mapped && !had) munmap(mapped, shared_bytes_);
  if (had) shared_ = static_cast<Bucket*>(mapped);
  return had;
}

CardUse CardTable::nearest_free() const {
  CardUse best;
  for (const CardUse& card : cards_) {
    if (card.bandwidth.value() <= 0) return {};
    if (!best.bucket || card.bucket->free_at() < best.bucket->free_at()) best = card;
  }
  return best;
}

PaceState::PaceState(Communicator& world, Cluster cluster,
                     std::shared_ptr<const ControlChannel> control)
    : cluster_(std::move(cluster)),
      self_(world.rank()),
      control_(std::move(control)),
      cards_(world, cluster_),
      links_(cluster_.ranks.size()) {
  report_.cards_divided = cards_.sharing() == CardTable::Sharing::equal_shares;
}

Passage PaceState::send(Instant posted, Bytes size, RankId to) {
  const LinkCurve& curve = cluster_.link(self_, to);
  const bool by_card = leaves_host(cluster_.ranks[self_.index()], cluster_.ranks[to.index()]);
  std::lock_guard lock(mutex_);
  return pass(posted, size, curve, links_[to.index()], by_card ? cards_.nearest_free() : CardUse());
}

void PaceState::waited(Instant late, Instant took) {
  std::lock_guard lock(mutex_);
  ++report_.waits;
  report_.late_waits += late > took / 100;
  report_.greatest_lag = std::max(report_.greatest_lag, Seconds(static_cast<double>(late) / 1e9));
}

void PaceState::check_run(Instant due) {
  if (!control_) return;
  if (const auto failure = control_->failure()) throw PeerError(*failure, "a paced transfer");
  if (!control_->stop_requested()) return;
  const Instant now = host_now();
  Instant seen = 0;
  if (stop_seen_.compare_exchange_strong(seen, now)) seen = now;
  if (now - seen < stop_patience || due - now < look_period) return;
  throw Error(ErrorKind::interrupted,
              {{"stopped during a paced transfer",
                fmt::format("it had {:.3g} s to go", static_cast<double>(due - now) / 1e9), ""}});
}

void PaceState::sleep_until(Instant due) {
  for (Instant now = host_now(); due - now > look_period; now = host_now()) {
    nap_until(now + look_period);
    check_run(due);
  }
  heteroperf::sleep_until(due);
}

PaceReport PaceState::report() const {
  std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace heteroperf
