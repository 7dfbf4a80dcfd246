#pragma once

#include <map>

#include "runners/comm/paced/link_clock.hpp"
#include "runners/comm/relay/device_copier.hpp"

namespace heteroperf {

/// One copy engine of a modelled device: a copy takes latency + bytes / bandwidth, one at a time.
struct CopyEngine {
  Seconds latency{0};
  BytesPerSecond bandwidth{0};  ///< > 0
};

/// A device that is a part of this host's memory, with an engine for each direction. Bytes move
/// when a copy is found done, never before its modelled end.
class PacedCopier final : public DeviceCopier {
 public:
  PacedCopier(std::string name, const CopyEngine& read, const CopyEngine& write)
      : name_(std::move(name)), read_{read, {}}, write_{write, {}} {}

  std::string name() const override { return name_; }
  Ticket start_read(const std::byte* device, std::span<std::byte> host) override {
    return start(read_, device, host.data(), host.size());
  }
  Ticket start_write(std::span<const std::byte> host, std::byte* device) override {
    return start(write_, host.data(), device, host.size());
  }
  bool done(Ticket copy) override;

 private:
  struct Engine {
    CopyEngine rates;
    Bucket busy;
  };
  struct Copy {
    Instant due;
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  Ticket start(Engine& engine, const std::byte* from, std::byte* to, std::size_t bytes);

  std::string name_;
  Engine read_, write_;
  std::map<Ticket, Copy> under_way_;
  Ticket next_ = 0;
};

}  // namespace heteroperf
