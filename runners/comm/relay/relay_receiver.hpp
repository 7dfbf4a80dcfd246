#pragma once

#include "runners/comm/relay/relay_task.hpp"

namespace heteroperf {

/// How arriving elements join those that are there.
struct RelayAddition {
  DataType type = DataType::u8;
  Reduction reduction = Reduction::sum;
};

/// Peer to host, host to device. Chunks [arrived, granted) may come at any time and have their
/// slots; chunks [written, arrived) are on their way to the device.
class RelayReceiver final : public RelayTask {
 public:
  /// `own_slots` hold this device's values while something is added to them; unused otherwise.
  RelayReceiver(const RelayPlace& place, DeviceBytes values, RankId from, SlotMemory& slots,
                SlotMemory& own_slots, std::optional<RelayAddition> addition);

  bool progress() override;
  bool finished() const override { return terms_ && written_ == chunks_ && credits_.empty(); }
  RelayStatistics statistics() const;

 private:
  struct Credit {
    std::int64_t granted;
    std::unique_ptr<Transfer> transfer;
  };

  void begin(const RelayTerms& terms);
  void grant_next();
  bool take_arrival();
  void add(std::size_t chunk);
  bool retire();
  bool forget_credits();

  const RelayPlace place_;
  const DeviceBytes values_;
  const RankId from_;
  SlotMemory& slots_;
  SlotMemory& own_slots_;
  const std::optional<RelayAddition> addition_;
  WatchedCopier copier_;
  Handshake handshake_;
  std::optional<RelayTerms> terms_;
  std::vector<std::unique_ptr<Transfer>> transfers_;  ///< by slot; null once here
  std::vector<WatchedCopier::Copy> reads_, writes_;   ///< by slot
  std::vector<std::unique_ptr<Credit>> credits_;      ///< on their way, oldest first
  std::size_t chunks_ = 0, granted_ = 0, arrived_ = 0, written_ = 0;
};

}  // namespace heteroperf
