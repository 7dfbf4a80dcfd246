#include "runners/cluster/device_class.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "metrics/error.hpp"
#include "runners/cluster/machine.hpp"

namespace heteroperf {
namespace {

constexpr std::array<DeviceKind, 3> kinds = {DeviceKind::cpu, DeviceKind::cuda, DeviceKind::paced};

}  // namespace

const char* to_string(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::paced:
      return "paced";
  }
  return "cpu";
}

DeviceKind parse_device_kind(const std::string& text) {
  std::vector<std::string> names;
  for (const DeviceKind kind : kinds) {
    if (text == to_string(kind)) return kind;
    names.emplace_back(to_string(kind));
  }
  const std::string near = nearest_name(text, names);
  throw UserError("unknown device kind \"" + text + "\"", "known: cpu, cuda, paced",
                  near.empty() ? "" : "did you mean " + near + "?");
}

DeviceClass cpu_device_class(const Machine& machine, int ranks, int threads_per_rank) {
  HETEROPERF_EXPECT(ranks > 0 && threads_per_rank > 0);
  const Bytes memory = machine.usable_memory();
  return {.name = "cpu",
          .kind = DeviceKind::cpu,
          .memory = memory / static_cast<std::uint64_t>(ranks),
          .count = ranks,
          .threads = threads_per_rank,
          .rates = {}};
}

}  // namespace heteroperf
