#pragma once

#include <cstdint>
#include <memory>

#include "metrics/base/error.hpp"
#include "runners/comm/buffer.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/relay/staging.hpp"

namespace heteroperf {

enum class RelayMode {
  pipelined,  ///< in chunks: one is copied while another travels
  serial,     ///< the whole buffer to the host, across, to the device
};

/// The costs of the three stages of a relay: device to host, host to host, host to device.
struct RelayCosts {
  /// The cost of a chunk beside its bytes: starts, polls, latencies of the slowest stage.
  Seconds per_chunk{100e-6};
  BytesPerSecond read{0}, network{0}, write{0};  ///< 0: unknown
};

struct RelayConfig {
  RelayMode mode = RelayMode::pipelined;
  int slots = 4;     ///< staging slots of each side, at least 3; the receiver's are the credits
  Bytes chunk{0};    ///< 0: best_chunk(); the smaller one of the two sides holds
  RelayCosts costs;  ///< for best_chunk()
  double timeout_s = 30;          ///< a device copy that takes longer is an error
  int tag = message_tags::relay;  ///< this tag and the two after it
};

/// Adds everything that is wrong with the slots and the deadline.
void check_staging(const RelayConfig& config, ProblemList& problems);

/// Chunks begin at multiples of this many bytes, so that they hold whole elements of any type.
constexpr std::size_t chunk_unit = 8;

/// The chunk that makes a pipelined relay of n bytes fastest. With reciprocal bandwidths β of the
/// three stages and α per chunk, a relay in chunks of c bytes takes
/// T(c) = c (Σβ − β_max) + n·β_max + ⌈n/c⌉·α (Hockney's model), which is least at
/// c* = sqrt(n·α / (Σβ − β_max)). At least 4 KiB and at most n; 256 KiB when a bandwidth is
/// unknown.
Bytes best_chunk(Bytes size, const RelayCosts& costs);

/// Device memory; its address means something to the DeviceCopier alone.
struct DeviceBytes {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
};

/// The bytes of a buffer on a device. A relay that sends them only reads.
inline DeviceBytes device_bytes(ConstBuffer values) {
  return {static_cast<std::byte*>(const_cast<void*>(values.data)), values.bytes()};
}

struct RelayPlace;
class RelayEnd;

/// The figures of the last call on one side.
struct RelayStatistics {
  std::uint64_t chunks = 0;
  Bytes chunk{0};
  Bytes staging{0};        ///< host memory that this side holds: slots of one chunk each
  int most_under_way = 0;  ///< chunks sent whose slot the receiver had not granted again
  int credits = 0;         ///< slots of the receiver
};

/// Moves one buffer at a time between devices that cannot talk to each other, by way of both hosts'
/// memory; relay_task.cpp explains how. Nothing in the suite calls this class yet: it is here for
/// models of several components, each on devices of its own, that hand tensors to each other. The
/// hybrid communicator uses RelayMessages, which runs many such relays at once.
///
/// Both sides make their calls with the same number of bytes and the same mode; a difference is an
/// Error{run_failed} on both. A wait for the peer ends as the communicator's do; a copy that does
/// not end is a SystemError{timeout} naming chunk and device. After a failure the relay can only be
/// destroyed.
class Relay {
 public:
  /// `group` and `copier` outlive this object. Throws UserError with everything that is wrong with
  /// the configuration.
  Relay(Communicator& group, DeviceCopier& copier, const RelayConfig& config);

  void send(DeviceBytes values, RankId to);
  void receive(DeviceBytes values, RankId from);
  /// Combines each chunk that arrives with this device's values, on the host, while other chunks
  /// travel. Not for averages.
  void receive_add(DeviceBytes values, DataType type, RankId from,
                   Reduction reduction = Reduction::sum);
  /// Sends and receives at once, as in a step around a ring.
  void exchange(DeviceBytes out, RankId to, DeviceBytes in, RankId from);

  const RelayStatistics& sent() const { return sent_; }
  const RelayStatistics& received() const { return received_; }

 private:
  RelayPlace place() const;
  /// Runs the ends of one call, of which one may be null.
  void run(RelayEnd* sender, RelayEnd* receiver);

  Communicator& group_;
  DeviceCopier& copier_;
  RelayConfig config_;
  SlotMemory out_, in_, local_;
  RelayStatistics sent_, received_;
};

/// Messages between device buffers by way of both hosts, any number of them under way at once.
///
/// They match by (peer, tag) in the order in which they are started, as the group's own messages
/// do, and waits may come in any order. A message of one chunk, up to 64 KiB, is one message of the
/// group; a longer one is a relay with its own slots, credits and pair of tags
/// (message_tags::relay_channels). Slots are kept and used again.
///
/// Messages make progress whenever one of them is tested or waited for, or progress() is called.
/// Errors are those of Relay; after one of them these messages can only be destroyed.
class RelayMessages {
 public:
  /// `group` and `copier` outlive this object. `config.tag` is not used. Throws UserError with
  /// everything that is wrong with the configuration.
  RelayMessages(Communicator& group, DeviceCopier& copier, const RelayConfig& config);
  ~RelayMessages();
  RelayMessages(const RelayMessages&) = delete;
  RelayMessages& operator=(const RelayMessages&) = delete;

  std::unique_ptr<Transfer> start_send(DeviceBytes values, RankId to, int tag);
  std::unique_ptr<Transfer> start_receive(DeviceBytes values, RankId from, int tag);
  /// Goes as far as it can without waiting; returns true when anything moved.
  bool progress();

 private:
  class Traffic;
  class Arrival;

  std::shared_ptr<Traffic> traffic_;
};

}  // namespace heteroperf
