#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "runners/comm/mpi/mpi_group.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// Memory that several processes share; unmapped with this object.
class SharedMemory {
 public:
  static constexpr std::size_t header_bytes = 64;

  SharedMemory() = default;
  SharedMemory(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  /// The usable memory, zeros at first. It begins behind a line that served to recognise it.
  std::byte* data() const { return static_cast<std::byte*>(data_) + header_bytes; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The way in which a group's collectives move data, and the things they need for it.
struct HostChoice {
  HostPath path = HostPath::messages;
  std::string reason;          ///< "2 ranks on one host", "the ranks are on 3 hosts", …
  bool crowded = false;        ///< more ranks than cores: a waiting rank gives its core away
  SharedMemory memory;         ///< unless messages
  std::vector<pid_t> members;  ///< processes of the group; unless messages
};

/// Collective. All ranks of the group come to the same choice: `widest` or, where a rank cannot go
/// as far, less. The memory has no name: it ends with the last process that has it, however that
/// ends.
HostChoice choose_host_path(const MpiGroup& group, HostPath widest, std::size_t bytes);

}  // namespace heteroperf
