// A record should say when something beside the run took its cores or slowed its GPU, even when the
// run breaks off. So the watch posts lines while the run goes on and not only at its end. One rank
// per host reads the host's counters; a clock of its own decides when it is time, because no rank
// waits for another here.
// The driver counts for how long heat or the power limit held a GPU below its clocks; the
// difference of two readings is a run's. One that counts neither gives no line, which is something
// else than a line of 0 s.
//
// Looking costs time that belongs to measuring, not to training, and is charged to `measuring_s`.
// With more than a hundred hosts the interval grows with their number: all lines end in one journal
// on rank 0.
#include "suite/watch/live_watch.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

constexpr double hosts_per_interval = 100;  // their lines all end in rank 0's journal

double times_rarer(const std::vector<RankBinding>& bindings) {
  std::set<std::string> hosts;
  for (const RankBinding& binding : bindings) hosts.insert(binding.host);
  return std::max(1.0, static_cast<double>(hosts.size()) / hosts_per_interval);
}

}  // namespace

GpuWatch::GpuWatch(std::string pci_bus_id, std::string host, int rank, const std::string& library)
    : pci_bus_id_(std::move(pci_bus_id)),
      host_(std::move(host)),
      rank_(rank),
      reader_(library),
      start_ns_(now_ns()),
      start_(reader_.read(pci_bus_id_)) {}

std::optional<GpuSlowdownEvent> GpuWatch::until_now() const {
  const GpuSlowdown slowdown = reader_.read(pci_bus_id_) - start_;
  if (!slowdown.thermal_s && !slowdown.power_s) return std::nullopt;
  return GpuSlowdownEvent{
      host_, pci_bus_id_, rank_, seconds_since(start_ns_), slowdown.thermal_s, slowdown.power_s};
}

LiveWatch::LiveWatch(RankContext& context, const Pace& pace)
    : context_(context),
      hosts_(context.all_ranks(), context.placement.bindings),
      shortest_setup_s_(pace.shortest_setup_s),
      interval_ns_(static_cast<std::int64_t>(pace.interval_s / nanosecond *
                                             times_rarer(context.placement.bindings))) {}

LiveWatch::~LiveWatch() { context_.look_around = {}; }

void LiveWatch::begin(std::unique_ptr<const GpuWatch> gpu) {
  const auto load = hosts_.so_far();
  // A set-up of a few ticks of the kernel's counters says nothing.
  if (load && load->seconds >= shortest_setup_s_) context_.post(*load);
  gpu_ = std::move(gpu);
  hosts_.start();
  next_ns_ = now_ns() + interval_ns_;
  context_.look_around = [this] { look(); };
}

void LiveWatch::look() {
  const std::int64_t begin_ns = now_ns();
  if (begin_ns >= next_ns_) post(hosts_.so_far(), begin_ns);
}

void LiveWatch::close() {
  const auto load = hosts_.until_now();
  post(load, now_ns());  // the wait for the other ranks is no overhead
}

void LiveWatch::post(const std::optional<HostLoadEvent>& load, std::int64_t begin_ns) {
  const auto slowdown = gpu_ ? gpu_->until_now() : std::nullopt;
  next_ns_ = now_ns() + interval_ns_;
  context_.measuring_s += seconds_since(begin_ns);
  if (load) context_.post(*load);
  if (slowdown) context_.post(*slowdown);
}

}  // namespace heteroperf
