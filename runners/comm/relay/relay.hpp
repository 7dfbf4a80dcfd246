#pragma once

#include <cstdint>
#include <memory>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/relay/device_copier.hpp"
#include "runners/comm/relay/relay_chunk.hpp"

namespace heteroperf {

enum class RelayMode {
  pipelined,  ///< chunks: one is copied while another travels
  serial,     ///< the whole buffer to the host, across, to the device
};

struct RelayConfig {
  RelayMode mode = RelayMode::pipelined;
  int slots = 4;     ///< staging slots of each side, at least 3; the receiver's are the credits
  Bytes chunk{0};    ///< 0: best_chunk(); the smaller one of the two sides holds
  RelayCosts costs;  ///< for best_chunk()
  double timeout_s = 30;          ///< a device copy that takes longer is an error
  int tag = message_tags::relay;  ///< and the two after it
};

/// Adds what is wrong with slots and deadline.
void check_staging(const RelayConfig& config, ProblemList& problems);

/// Device memory; its address means something to the DeviceCopier alone.
struct DeviceBytes {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
};

struct RelayPlace;

/// What the last call did.
struct RelayStatistics {
  std::uint64_t chunks = 0;
  Bytes chunk{0};
  Bytes staging{0};        ///< host memory this side holds: slots of a chunk each
  int most_under_way = 0;  ///< chunks sent whose slot the receiver had not granted again
  int credits = 0;         ///< slots of the receiver
};

/// Moves buffers between devices that cannot talk to each other, by way of both hosts' memory.
///
/// The receiver grants its slots: the sender never has more chunks under way than that, so that a
/// slow receiver holds the sender back and costs no memory. Both sides make their calls with the
/// same number of bytes and the same mode; a difference is an Error{run_failed} on both. A wait for
/// the peer ends as the communicator's do; a copy that does not end is a SystemError{timeout}
/// naming chunk and device. After a failure the relay can only be destroyed.
class Relay {
 public:
  /// Both outlive this. Throws UserError with all that is wrong with the configuration.
  Relay(Communicator& group, DeviceCopier& copier, const RelayConfig& config);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  void send(DeviceBytes values, RankId to);
  void receive(DeviceBytes values, RankId from);
  /// values = values ⊕ what comes, chunk by chunk on the host while others travel. Not average.
  void receive_add(DeviceBytes values, DataType type, RankId from,
                   Reduction reduction = Reduction::sum);
  /// Both at once, neither waits for the other: a step around a ring.
  void exchange(DeviceBytes out, RankId to, DeviceBytes in, RankId from);

  const RelayStatistics& sent() const { return sent_; }
  const RelayStatistics& received() const { return received_; }

 private:
  struct Staging;
  RelayPlace place() const;

  Communicator& group_;
  DeviceCopier& copier_;
  RelayConfig config_;
  std::unique_ptr<Staging> staging_;
  RelayStatistics sent_, received_;
};

}  // namespace heteroperf
