#include "runners/comm/paced/card_table.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <random>

#include "metrics/base/error.hpp"
#include "runners/comm/paced/host_clock.hpp"

namespace heteroperf {
namespace {

/// Memory of this host under a name, which the rank that made it takes away again.
class NamedMemory {
 public:
  NamedMemory(std::uint64_t key, std::size_t bytes)
      : name_(fmt::format("/heteroperf-cards-{:016x}", key)), bytes_(bytes) {}
  ~NamedMemory() {
    if (made_) shm_unlink(name_.c_str());
  }
  NamedMemory(const NamedMemory&) = delete;
  NamedMemory& operator=(const NamedMemory&) = delete;

  /// Null when it cannot be had. Memory that is new is zero.
  void* make() {
    const int fd = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    made_ = fd >= 0;
    if (made_ && ftruncate(fd, static_cast<off_t>(bytes_)) == 0) return map(fd);
    if (fd >= 0) close(fd);
    return nullptr;
  }
  void* open() {
    const int fd = shm_open(name_.c_str(), O_RDWR, 0);
    return fd >= 0 ? map(fd) : nullptr;
  }

 private:
  void* map(int fd) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? nullptr : memory;
  }

  std::string name_;
  std::size_t bytes_;
  bool made_ = false;
};

bool everywhere(Communicator& world, bool here) {
  std::int32_t all = here ? 1 : 0;
  world.all_reduce(std::span<std::int32_t>(&all, 1), Reduction::min);
  return all == 1;
}

std::uint64_t random_key() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

std::size_t card_index(const Cluster& cluster, const std::string& name) {
  const auto found = std::ranges::find(cluster.cards, name, &NetworkCard::name);
  HETEROPERF_EXPECT(found != cluster.cards.end());
  return static_cast<std::size_t>(found - cluster.cards.begin());
}

}  // namespace

/// What the ranks tell each other about their hosts.
struct CardTable::Hosts {
  std::vector<std::int64_t> clocks, keys;
  std::size_t self;

  explicit Hosts(Communicator& world)
      : clocks(static_cast<std::size_t>(world.size())),
        keys(clocks.size()),
        self(static_cast<std::size_t>(world.rank().value())) {
    auto clock = static_cast<std::int64_t>(host_clock_id());
    // Unknown: a clock of its own.
    if (clock == 0) clock = -1 - static_cast<std::int64_t>(self);
    const auto key = static_cast<std::int64_t>(random_key());
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

CardTable::CardTable(Communicator& world, const Cluster& cluster)
    : own_(std::make_unique<Bucket[]>(cluster.cards.size())) {
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
    const NetworkCard& known = cluster.cards[card];
    if (here) {
      cards_.push_back({shared_ + card, known.bandwidth, known.burst});
    } else {
      const double part = known.bandwidth.value() / static_cast<double>(users);
      cards_.push_back({&own_[card], BytesPerSecond(part), Bytes(known.burst.value() / users)});
      if (users > 1) sharing_ = Sharing::equal_shares;
    }
  }
}

CardTable::~CardTable() {
  if (shared_) munmap(shared_, shared_bytes_);
}

/// All ranks of the world decide alike.
bool CardTable::share_memory(Communicator& world, const Hosts& hosts, std::size_t cards) {
  shared_bytes_ = cards * sizeof(Bucket);
  const std::size_t leader = hosts.leader();
  NamedMemory memory(static_cast<std::uint64_t>(hosts.keys[leader]), shared_bytes_);
  void* mapped = leader == hosts.self ? memory.make() : nullptr;
  const bool made = everywhere(world, leader != hosts.self || mapped);
  if (made && leader != hosts.self) mapped = memory.open();
  const bool had = everywhere(world, made && mapped);
  if (mapped && !had) munmap(mapped, shared_bytes_);
  // A bucket that is all zero bits is a new one, whoever of the ranks looks first.
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

bool CardTable::same_clock(RankId rank) const {
  return same_clock_[static_cast<std::size_t>(rank.value())];
}

}  // namespace heteroperf
