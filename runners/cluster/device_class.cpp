#include "runners/cluster/device_class.hpp"

#include "metrics/base/name_table.hpp"
#include "runners/cluster/machine.hpp"

namespace heteroperf {
namespace {

constexpr Named<DeviceKind> kinds[] = {
    {DeviceKind::cpu, "cpu"}, {DeviceKind::cuda, "cuda"}, {DeviceKind::paced, "paced"}};

}  // namespace

const char* to_string(DeviceKind kind) { return name_of(kinds, kind); }

DeviceKind parse_device_kind(const std::string& text) {
  return parse_name(kinds, "device kind", text);
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
