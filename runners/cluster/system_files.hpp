#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/base/name_table.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {

enum class Availability { ok, unavailable, denied };
constexpr std::array<const char*, 3> value_names(Availability) {
  return {"ok", "unavailable", "denied"};
}

/// A value read from the machine with the place it came from, or the reason why it could not be
/// read. A text value is never empty.
template <class T>
struct Observed {
  std::optional<T> value;
  std::string source;  ///< the file, call or library that was asked
  std::string reason;  ///< says why there is no value; empty when there is one
  Availability status = Availability::unavailable;

  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }

  static Observed of(T value, std::string source) {
    return {std::move(value), std::move(source), {}, Availability::ok};
  }
  static Observed none(std::string source, std::string reason,
                       Availability status = Availability::unavailable) {
    return {std::nullopt, std::move(source), std::move(reason), status};
  }
  /// Carries the same absence over to a value of another type.
  template <class U>
  static Observed none(const Observed<U>& absent) {
    return none(absent.source, absent.reason, absent.status);
  }
};

/// Reads the small text files of /proc, /sys and /etc below a root, so that tests can bring their
/// own. Paths are relative to the root ("proc/cpuinfo"); sources are reported as "/proc/cpuinfo".
class SystemFiles {
 public:
  explicit SystemFiles(std::filesystem::path root = "/") : root_(std::move(root)) {}

  /// Reads the whole file without trailing white space; unavailable when missing, unreadable or
  /// empty.
  Observed<std::string> text(const std::string& path) const;
  /// Reads the file's first word as an integer.
  Observed<long long> integer(const std::string& path) const;
  /// Reads the first line "key<separator>value" ("model name : …", "NAME=…") and returns the value
  /// without quotes.
  Observed<std::string> field(const std::string& path, std::string_view key, char separator) const;
  /// Reads a field "16384 kB", as /proc/meminfo and /proc/PID/status write it.
  Observed<Bytes> memory(const std::string& path, std::string_view key) const;
  bool exists(const std::string& path) const;

 private:
  std::filesystem::path root_;
};

/// Returns the text without white space at either end.
std::string_view trimmed(std::string_view text);
/// Splits at any of `separators` and drops empty parts.
std::vector<std::string> split_words(std::string_view text, std::string_view separators = " \t\n");
/// Reads a decimal integer that fills the whole text; nothing otherwise.
std::optional<long long> parse_integer(std::string_view text);

/// A GPU that CUDA_VISIBLE_DEVICES shows.
struct CudaDevice {
  std::string name;  ///< "NVIDIA H200"
  std::uint64_t memory_bytes = 0;
  std::string pci_bus_id = {};  ///< "0000:1B:00.0"
};

/// Ask this before any library of a GPU is loaded, because loading takes longer than all else.
inline bool has_nvidia_driver() { return std::filesystem::exists("/dev/nvidiactl"); }
inline constexpr const char* no_nvidia_driver =
    "no NVIDIA driver is loaded (/dev/nvidiactl is missing)";

/// The limits that the control groups of this process set. A limit that is not set is `unavailable`
/// with the reason "no limit". A group without a limit of its own is still bound by its parents.
struct CgroupLimits {
  Observed<double> cores;  ///< CPU time per wall time (cpu.max, cpu.cfs_quota_us)
  Observed<Bytes> memory;  ///< memory.max, memory.limit_in_bytes
  /// The least memory that any of these groups leaves of its limit. Files that the kernel only
  /// keeps until somebody needs the memory (inactive_file) do not count as used.
  Observed<Bytes> memory_left;
};

/// Reads the tightest limits on the way from this process's group to the root of its hierarchy, for
/// hierarchies of version 2 and of version 1, which may stand side by side.
CgroupLimits read_cgroup_limits(const SystemFiles& files);

/// Returns the memory that further processes may take: that which the system has available, or that
/// which the control groups leave, whichever is less.
Observed<Bytes> available_memory(const SystemFiles& files);

}  // namespace heteroperf
