#pragma once

#include <map>
#include <optional>
#include <string>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

struct Machine;

enum class DeviceKind { cpu, cuda, paced };

const char* to_string(DeviceKind kind);
/// Throws UserError naming the nearest kind.
DeviceKind parse_device_kind(const std::string& text);

/// Chips that are alike: the same rate, the same memory. One rank drives one device.
struct DeviceClass {
  std::string name;
  DeviceKind kind = DeviceKind::cpu;
  Bytes memory{0};  ///< of one device
  int count = 1;    ///< devices of this class
  int threads = 1;  ///< CPU threads that compute for one device
  /// Measured operations per second of one device, by precision ("fp32", "bf16", "fp64"). Empty
  /// until a probe or a run has measured it.
  std::map<std::string, OpsPerSecond> rates = {};

  /// Of one device: what an hour of its use costs, in any one currency; power while it waits and
  /// while it computes. Absent: unknown.
  std::optional<double> price_per_hour = {}, idle_watts = {}, busy_watts = {};

  /// Its time is modelled: results are marked and never ranked.
  bool emulated() const { return kind == DeviceKind::paced; }
};

/// This machine as `ranks` equal CPU devices of `threads_per_rank` threads, which share its memory
/// evenly. Both arguments are > 0.
DeviceClass cpu_device_class(const Machine& machine, int ranks, int threads_per_rank);

}  // namespace heteroperf
