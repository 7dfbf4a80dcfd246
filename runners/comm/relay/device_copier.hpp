#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace heteroperf {

/// Copies between the memory of one device and the memory of this host. A copy runs beside its
/// caller, and its host memory stays in place until it is done. Used by one thread at a time.
class DeviceCopier {
 public:
  using Ticket = std::uint64_t;

  virtual ~DeviceCopier() = default;
  /// The name of the device in messages: "cuda:0".
  virtual std::string name() const = 0;
  virtual Ticket start_read(const std::byte* device, std::span<std::byte> host) = 0;
  virtual Ticket start_write(std::span<const std::byte> host, std::byte* device) = 0;
  /// Returns true when a copy has ended; the caller does not ask for it again. Throws SystemError
  /// when the copy failed.
  virtual bool done(Ticket copy) = 0;
  /// Allocates staging memory of the kind that this device reads and writes best.
  virtual std::shared_ptr<std::byte[]> host_memory(std::size_t bytes) {
    return std::shared_ptr<std::byte[]>(new std::byte[bytes]);
  }
};

}  // namespace heteroperf
