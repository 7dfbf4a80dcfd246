#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace heteroperf {

/// Copies between one device's memory and this host's. A copy runs beside its caller, and its host
/// memory stays in place until it is done. Used by one thread at a time.
class DeviceCopier {
 public:
  using Ticket = std::uint64_t;

  virtual ~DeviceCopier() = default;
  /// Of the device, for messages: "cuda:0".
  virtual std::string name() const = 0;
  virtual Ticket start_read(const std::byte* device, std::span<std::byte> host) = 0;
  virtual Ticket start_write(std::span<const std::byte> host, std::byte* device) = 0;
  /// Whether a copy has ended; not asked again once it has. Throws SystemError when it failed.
  virtual bool done(Ticket copy) = 0;
  /// Staging memory of the kind that this device reads and writes best.
  virtual std::shared_ptr<std::byte[]> host_memory(std::size_t bytes) {
    return std::shared_ptr<std::byte[]>(new std::byte[bytes]);
  }
};

}  // namespace heteroperf
