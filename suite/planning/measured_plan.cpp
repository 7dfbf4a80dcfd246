// Reads what a run measured from the folder in which its plan.json lies, in two ways.
// measured_beside() takes the step time, to set it beside a prediction; machine_beside() takes the
// measured peak and memory bandwidth and makes a small cluster description of them, for a plan that
// names no cluster.
//
// Both must not be applied to another machine. A described cluster has the same classes with the
// same counts, emulated or not; emulated ones also the same memory, for that changes which plans
// fit. A run without a description is compared by host names, ranks and threads. Only the plan.json
// of a run folder counts: a copy elsewhere has no journal beside it.
#include "suite/planning/measured_plan.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/run_summary.hpp"
#include "results/text/number_text.hpp"
#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/plan/plan_json.hpp"
#include "suite/planning/plan_sources.hpp"

namespace heteroperf {
namespace {

/// A copy of one byte moves three: the one that is read, the one that is written, and the one that
/// a cache reads before it writes.
constexpr double bytes_moved_per_byte = 3;
/// The latency of a message between threads, which is assumed and not measured.
constexpr Seconds hand_over{2e-6};

std::optional<Journal> journal_beside(const std::filesystem::path& plan_file) {
  const RunFiles files{std::filesystem::absolute(plan_file).parent_path()};
  const bool is_the_runs = plan_file.filename() == files.plan().filename();
  if (!is_the_runs || !std::filesystem::exists(files.journal())) return std::nullopt;
  return read_journal(files.journal().string());
}

/// "2 x fast, 6 x slow, emulated".
std::string devices_text(const std::map<std::string, std::uint64_t>& counts, bool emulated) {
  return joined(counts, ", ",
                [](const auto& row) { return fmt::format("{} x {}", row.second, row.first); }) +
         (emulated ? ", emulated" : "");
}

std::string devices_of(const Cluster& machine) {
  std::map<std::string, std::uint64_t> counts;
  for (const RankPlace& place : machine.ranks) ++counts[place.device_class];
  return devices_text(counts, is_emulated(machine));
}

std::string devices_of(const Journal& journal) {
  std::map<std::string, std::uint64_t> counts;
  bool emulated = false;
  if (const auto* scale = journal.last<ScaleEvent>()) {
    for (const DeviceCount& device : scale->devices) {
      counts[device.device_class] += device.count;
      emulated = emulated || device.emulated;
    }
  }
  return devices_text(counts, emulated);
}

/// A run on no described cluster calls its devices "cpu". Its machine is the cluster's when they
/// have the same hosts, and as many ranks with as many threads. What follows the colon of a probed
/// host's name changes with every start of that host.
bool is_machine_of(const Journal& journal, const Cluster& machine) {
  const auto* scale = journal.last<ScaleEvent>();
  if (scale == nullptr || scale->devices.size() != 1) return false;
  const DeviceCount& device = scale->devices.front();
  if (device.device_class != to_string(DeviceKind::cpu) || device.emulated) return false;
  if (device.count != machine.ranks.size()) return false;
  std::set<std::string> ran_on, here;
  for (const HostLoadEvent* load : journal.all<HostLoadEvent>()) ran_on.insert(load->host);
  for (std::size_t rank = 0; rank < machine.ranks.size(); ++rank) {
    const DeviceClass& described = class_of(machine, RankId(rank));
    if (described.kind != DeviceKind::cpu || described.threads != static_cast<int>(device.threads))
      return false;
    const std::string& host = machine.ranks[rank].host;
    here.insert(host.substr(0, host.find(':')));
  }
  return ran_on == here && !here.contains("");
}

/// The rank whose emulated device has another memory than it had in the run; null: none has. A
/// probe of one machine finds another memory every time.
const RankPlanEvent* rank_of_other_memory(const Journal& journal, const Cluster& machine) {
  if (!is_emulated(machine)) return nullptr;
  for (const RankPlanEvent* rank : journal.all<RankPlanEvent>()) {
    const Bytes here = class_of(machine, RankId(rank->rank)).memory;
    if (rank->limit_bytes && *rank->limit_bytes != here.value()) return rank;
  }
  return nullptr;
}

void require_made_on(const Journal& journal, const Cluster& machine) {
  if (is_machine_of(journal, machine)) return;
  // Both sides are described in the same words, so that a user sees the difference.
  const auto refuse = [&](const std::string& why) {
    throw UserError(
        fmt::format("{} was not made on {}", journal.first<StartEvent>()->run_id, machine.name),
        why, "Give the cluster that it ran on, or a run of this one.");
  };
  const std::string ran_on = devices_of(journal), here = devices_of(machine);
  if (ran_on != here) refuse(fmt::format("it ran on {}; this cluster has {}", ran_on, here));
  if (const RankPlanEvent* rank = rank_of_other_memory(journal, machine)) {
    refuse(fmt::format("there a {} had {} of memory; in this cluster it has {}", rank->device_class,
                       rounded_byte_size(static_cast<double>(*rank->limit_bytes)),
                       rounded_byte_size(class_of(machine, RankId(rank->rank)).memory)));
  }
}

}  // namespace

std::optional<Cluster> machine_beside(const std::filesystem::path& plan_file) {
  const auto journal = journal_beside(plan_file);
  if (!journal) return std::nullopt;
  const auto peak = measured_peak(*journal);
  const auto* scale = journal->last<ScaleEvent>();
  if (!peak || !peak->memory_bytes_per_second || scale == nullptr) return std::nullopt;
  if (scale->transport != "threads" || scale->devices.size() != 1) return std::nullopt;
  const int ranks = read_plan_file(plan_file.string()).ranks();
  if (scale->ranks < 1 || scale->ranks != ranks) {
    throw UserError(fmt::format("{} is no plan of the run beside it", plan_file.string()),
                    fmt::format("the plan has {} ranks, the run's journal {}", ranks, scale->ranks),
                    "Move the plan out of the run's folder and give --cluster.");
  }
  // Operators compute with aten::mm, which may be far below the peak.
  const double rate = peak->mm_ops_per_second.value_or(peak->ops_per_second) / scale->ranks;
  const double memory = *peak->memory_bytes_per_second / scale->ranks;
  Cluster cluster;
  cluster.name = fmt::format(
      "the machine as this run measured it ({:.4g} Gop/s at most and {:.3g} GB/s of memory a rank; "
      "messages are copies in it)",
      rate * 1e-9, memory * 1e-9);
  DeviceClass device{scale->devices.front().device_class};
  device.count = scale->ranks;
  device.threads = static_cast<int>(scale->devices.front().threads);
  device.rates[peak->precision] = OpsPerSecond(rate);
  cluster.classes.push_back(device);
  cluster.ranks.assign(scale->ranks, {device.name, "", "host", {}});
  cluster.links.push_back({"host", "host", std::nullopt,
                           LinkCurve(hand_over, BytesPerSecond(memory / bytes_moved_per_byte)),
                           "assumed: copies in memory"});
  EfficiencyMatrix matrix;
  matrix.add({device.name, DeviceQuantity::memory_bytes_per_s},
             {memory, {Provenance::probe, "measured by the run, triad"}});
  apply(matrix, cluster);
  return cluster;
}

std::optional<MeasuredPlan> measured_beside(const std::filesystem::path& plan_file,
                                            const Cluster& machine) {
  const auto beside = journal_beside(plan_file);
  if (!beside) return std::nullopt;
  const Journal& journal = *beside;
  const RunSummary summary = summarize(journal);
  if (!summary.step_time) return std::nullopt;
  if (changes_plan(journal)) {
    throw UserError(
        fmt::format("{} changed its plan in mid-run", journal.first<StartEvent>()->run_id),
        "its times are of several plans", "Give a run without --adapt.");
  }
  require_made_on(journal, machine);
  MeasuredPlan measured;
  measured.run_id = journal.first<StartEvent>()->run_id;
  // Times of emulated devices are told in modelled seconds.
  const double dilation = summary.plan.pacing ? summary.plan.pacing->dilation : 1;
  measured.step_time_s = summary.step_time->median_s / dilation;
  measured.samples_per_s = summary.plan.samples_per_s;
  measured.bubble_rate = summary.plan.bubble_rate;
  return measured;
}

}  // namespace heteroperf
