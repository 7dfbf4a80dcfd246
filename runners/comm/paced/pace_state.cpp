#include "runners/comm/paced/pace_state.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/comm/paced/host_clock.hpp"

namespace heteroperf {
namespace {

/// How often a sleeper looks whether the run still goes on.
constexpr Instant look_around = 50'000'000;
/// A transfer that is nearly over is brought to its end.
constexpr Instant stop_patience = 2'000'000'000;

}  // namespace

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
  const auto place = [this](RankId rank) -> const RankPlace& {
    return cluster_.ranks[static_cast<std::size_t>(rank.value())];
  };
  const LinkCurve& curve = cluster_.link(self_, to);
  const bool by_card = leaves_host(place(self_), place(to));
  std::lock_guard lock(mutex_);
  return pass(posted, size, curve, links_[static_cast<std::size_t>(to.value())],
              by_card ? cards_.nearest_free() : CardUse());
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
  if (now - seen < stop_patience || due - now < look_around) return;
  throw Error(ErrorKind::interrupted,
              {{"stopped during a paced transfer",
                fmt::format("it had {:.3g} s to go", static_cast<double>(due - now) / 1e9), ""}});
}

void PaceState::sleep_until(Instant due) {
  for (Instant now = host_now(); due - now > look_around; now = host_now()) {
    nap_until(now + look_around);
    check_run(due);
  }
  heteroperf::sleep_until(due);
}

PaceReport PaceState::report() const {
  std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace heteroperf
