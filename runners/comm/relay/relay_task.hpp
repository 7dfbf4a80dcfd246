#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "runners/comm/paced/link_clock.hpp"
#include "runners/comm/relay/relay.hpp"

namespace heteroperf {

/// One side of a relay, as far as it can go without waiting.
class RelayTask {
 public:
  virtual ~RelayTask() = default;
  /// Whether anything happened. Throws as Relay does.
  virtual bool progress() = 0;
  virtual bool finished() const = 0;
  /// Whether its first message is on its way, so that a later task's cannot be taken for it.
  virtual bool announced() const { return true; }
};

/// Between looks at what others do: looks again a few times, then sleeps for a moment: on a busy
/// machine a sleeper is back sooner than one that gave way.
class Idle {
 public:
  void reset() { rounds_ = 0; }
  void pause();

 private:
  int rounds_ = 0;
};

/// Runs them until all have finished.
void run_relay(std::span<RelayTask* const> tasks);

/// What the two sides must agree about.
struct RelayTerms {
  std::int64_t bytes = 0, chunk = 0, slots = 0, mode = 0;

  std::size_t chunks() const { return static_cast<std::size_t>((bytes + chunk - 1) / chunk); }
  std::size_t chunk_begin(std::size_t index) const {
    return index * static_cast<std::size_t>(chunk);
  }
  std::size_t chunk_bytes(std::size_t index) const;
};

/// Which tags a relay uses. Messages to the peer and from it never share one, so that two relays
/// of opposite directions do not mix.
struct RelayTags {
  int terms = 0;   ///< from the sender: what comes
  int data = -1;   ///< chunks; below 0 on a receiver: the sender's terms name data and reply
  int reply = -1;  ///< from the receiver: its terms, then credits

  static RelayTags from(int first) { return {first, first + 1, first + 2}; }
};

/// Tells the peer this side's terms and hears the peer's.
class Handshake {
 public:
  enum class Side { sender, receiver };
  Handshake(Communicator& group, RankId peer, const RelayTags& tags, const RelayTerms& mine,
            Side side);
  /// The chunk both sides use and the receiver's slots, once they are known. Throws
  /// Error{run_failed} when the buffers or modes differ.
  std::optional<RelayTerms> agreed();
  /// Complete once agreed.
  const RelayTags& tags() const { return tags_; }

 private:
  void answer();

  Communicator& group_;
  const RankId peer_;
  RelayTags tags_;
  const RelayTerms mine_;
  const Side side_;
  /// bytes, chunk, slots, mode, data tag, reply tag.
  std::array<std::int64_t, 6> out_, in_{};
  std::unique_ptr<Transfer> sending_, receiving_;
};

/// Slots of host memory; chunk i lies in slot i modulo their number.
class SlotMemory {
 public:
  /// Grows, never shrinks.
  void reserve(DeviceCopier& copier, std::size_t slots, std::size_t chunk);
  std::span<std::byte> slot(std::size_t chunk_index, std::size_t bytes) const {
    return {memory_.get() + chunk_index % slots_ * chunk_, bytes};
  }
  std::size_t bytes() const { return bytes_; }
  /// Something may still write to it, so it is kept until the process ends.
  void abandon();

 private:
  std::shared_ptr<std::byte[]> memory_;
  std::size_t slots_ = 1, chunk_ = 0, bytes_ = 0;
};

/// A copier whose copies have a deadline: each ends within `timeout_s` of its start or of the end
/// of the copy before.
class WatchedCopier {
 public:
  WatchedCopier(DeviceCopier& copier, double timeout_s);

  struct Copy {
    DeviceCopier::Ticket ticket = 0;
    Instant started = 0;
  };
  Copy start_read(const std::byte* device, std::span<std::byte> host);
  Copy start_write(std::span<const std::byte> host, std::byte* device);
  /// Throws SystemError{timeout} after the deadline; `what` and `chunk` name the copy.
  bool done(const Copy& copy, const char* what, std::size_t chunk);

 private:
  DeviceCopier& copier_;
  const double timeout_s_;
  Instant last_end_ = 0;
};

/// What both sides work with.
struct RelayPlace {
  Communicator& group;
  DeviceCopier& copier;
  const RelayConfig& config;
  RelayTags tags;
};
RelayTerms terms_of(const RelayConfig& config, std::size_t bytes);

}  // namespace heteroperf
