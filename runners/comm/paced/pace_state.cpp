#include "runners/comm/paced/pace_state.hpp"

#include "runners/comm/paced/host_clock.hpp"

namespace heteroperf {

PaceState::PaceState(Communicator& world, Cluster cluster)
    : cluster_(std::move(cluster)),
      self_(world.rank()),
      cards_(world, cluster_),
      links_(cluster_.ranks.size()) {
  report_.cards_divided = cards_.sharing() == CardTable::Sharing::equal_shares;
}

Passage PaceState::send(Bytes size, RankId to) {
  const auto place = [this](RankId rank) -> const RankPlace& {
    return cluster_.ranks[static_cast<std::size_t>(rank.value())];
  };
  const LinkCurve& curve = cluster_.link(self_, to);
  const bool by_card = leaves_host(place(self_), place(to));
  std::lock_guard lock(mutex_);
  return pass(timeline_.now(host_now()), size, curve, links_[static_cast<std::size_t>(to.value())],
              by_card ? cards_.nearest_free() : CardUse());
}

Instant PaceState::modelled_now() const {
  std::lock_guard lock(mutex_);
  return timeline_.now(host_now());
}

void PaceState::waited(Instant began, Instant due, Instant took) {
  std::lock_guard lock(mutex_);
  timeline_.waited(began, due, host_now());
  const Instant lag = timeline_.lag();
  ++report_.waits;
  report_.late_waits += lag > took / 100;
  report_.greatest_lag = std::max(report_.greatest_lag, Seconds(static_cast<double>(lag) / 1e9));
}

void PaceState::forgive() {
  std::lock_guard lock(mutex_);
  timeline_.forgive();
}

PaceReport PaceState::report() const {
  std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace heteroperf
