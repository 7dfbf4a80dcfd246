#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runners/comm/buffer.hpp"
#include "runners/comm/paced/link_clock.hpp"

namespace heteroperf {

/// Passes the time between two looks at what others do. It looks again a few times at once, then
/// sleeps for a moment: on a busy machine a sleeper is back sooner than a thread that yielded.
class Idle {
 public:
  void reset() { rounds_ = 0; }
  void pause();
  /// Pauses unless something moved since the last look.
  void after(bool moved) { moved ? reset() : pause(); }

 private:
  int rounds_ = 0;
};

/// Slots of host memory for chunks on their way to or from a device. Chunk i lies in slot i modulo
/// the number of slots. The memory grows and never shrinks.
class SlotMemory {
 public:
  void reserve(DeviceCopier& copier, std::size_t slots, std::size_t chunk);
  std::span<std::byte> slot(std::size_t chunk_index, std::size_t bytes) const {
    return {memory_.get() + chunk_index % slots_ * chunk_, bytes};
  }
  std::size_t bytes() const { return bytes_; }
  /// Gives the memory up after a failure. It is kept until the process ends, since a copy or a
  /// message may still write to it.
  void abandon();

 private:
  std::shared_ptr<std::byte[]> memory_;
  std::size_t slots_ = 1, chunk_ = 0, bytes_ = 0;
};

/// A copier whose copies have a deadline: each ends within `timeout_s` of its start or of the end
/// of the copy before it.
class WatchedCopier {
 public:
  WatchedCopier(DeviceCopier& copier, double timeout_s) : copier_(copier), timeout_s_(timeout_s) {}

  struct Copy {
    DeviceCopier::Ticket ticket = 0;
    Instant started = 0;
  };
  Copy start_read(const std::byte* device, std::span<std::byte> host);
  Copy start_write(std::span<const std::byte> host, std::byte* device);
  /// Returns true when the copy has ended. Throws SystemError{timeout} after the deadline; `what`
  /// and `chunk` name the copy in its message.
  bool done(const Copy& copy, const char* what, std::size_t chunk);

 private:
  DeviceCopier& copier_;
  const double timeout_s_;
  Instant last_end_ = 0;
};

/// Takes whole buffers of a device through this host. Its memory is kept from call to call. All
/// calls wait for their copy and throw SystemError when it fails or does not end.
class HostStage {
 public:
  /// `copier` outlives this object.
  HostStage(DeviceCopier& copier, double timeout_s) : copier_(copier, timeout_s), device_(copier) {}

  /// Copies values from the device; the copy is valid until the next read().
  MutableBuffer read(ConstBuffer values);
  /// Returns room on the host for as many values, valid until the next room().
  MutableBuffer room(ConstBuffer like);
  void write(ConstBuffer host, MutableBuffer values);

 private:
  void wait_for(const WatchedCopier::Copy& copy, const char* what);

  WatchedCopier copier_;
  DeviceCopier& device_;
  SlotMemory in_, out_;
};

}  // namespace heteroperf
