#pragma once

#include "runners/comm/relay/relay_task.hpp"

namespace heteroperf {

/// Device to host, host to peer. At any time chunks [sent, read) are in or on their way to slots,
/// and chunks [left, sent) on their way to the peer.
class RelaySender final : public RelayTask {
 public:
  RelaySender(const RelayPlace& place, DeviceBytes values, RankId to, SlotMemory& slots);

  bool progress() override;
  bool finished() const override { return terms_ && left_ == chunks_ && !credit_transfer_; }
  RelayStatistics statistics() const;

 private:
  void begin(const RelayTerms& terms);
  void await_credit();
  bool take_credit();
  bool read_next();
  bool send_next();
  bool retire();

  const RelayPlace place_;
  const DeviceBytes values_;
  const RankId to_;
  SlotMemory& slots_;
  WatchedCopier copier_;
  Handshake handshake_;
  std::optional<RelayTerms> terms_;
  std::vector<WatchedCopier::Copy> reads_;            ///< by slot
  std::vector<std::unique_ptr<Transfer>> transfers_;  ///< by slot
  std::unique_ptr<Transfer> credit_transfer_;
  std::int64_t granted_ = 0, credit_ = 0;
  std::size_t chunks_ = 0, read_ = 0, sent_ = 0, left_ = 0;
  int most_under_way_ = 0;
};

}  // namespace heteroperf
