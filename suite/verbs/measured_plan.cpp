#include "suite/verbs/measured_plan.hpp"

#include <fmt/format.h>

#include "results/run_folder.hpp"
#include "results/run_summary.hpp"
#include "runners/cluster/efficiency_matrix.hpp"

namespace heteroperf {
namespace {

/// Of a copy: what is read, what is written, and what a cache reads before it writes.
constexpr double bytes_moved_per_byte = 3;
constexpr Seconds hand_over{2e-6};

std::optional<Journal> journal_beside(const std::filesystem::path& plan_file) {
  const RunFiles files{std::filesystem::absolute(plan_file).parent_path()};
  const bool is_the_runs = plan_file.filename() == files.plan().filename();
  if (!is_the_runs || !std::filesystem::exists(files.journal())) return std::nullopt;
  return read_journal(files.journal().string());
}

}  // namespace

std::optional<Cluster> machine_beside(const std::filesystem::path& plan_file) {
  const auto journal = journal_beside(plan_file);
  if (!journal) return std::nullopt;
  const auto peak = measured_peak(*journal);
  const auto* scale = journal->last<ScaleEvent>();
  if (!peak || !peak->memory_bytes_per_second || scale == nullptr) return std::nullopt;
  if (scale->transport != "threads" || scale->devices.size() != 1) return std::nullopt;
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
  cluster.ranks.assign(static_cast<std::size_t>(scale->ranks), {device.name, "", "host", {}});
  cluster.links.push_back({"host", "host", std::nullopt,
                           LinkCurve(hand_over, BytesPerSecond(memory / bytes_moved_per_byte)),
                           "assumed: copies in memory"});
  EfficiencyMatrix matrix;
  matrix.add({device.name, DeviceQuantity::memory_bytes_per_s},
             {memory, {Provenance::probe, "measured by the run, triad"}});
  apply(matrix, cluster);
  return cluster;
}

std::optional<MeasuredPlan> measured_beside(const std::filesystem::path& plan_file) {
  const auto found = journal_beside(plan_file);
  if (!found) return std::nullopt;
  const Journal& journal = *found;
  const RunSummary summary = summarize(journal);
  if (!summary.step_time) return std::nullopt;
  MeasuredPlan measured;
  measured.run_id = journal.first<StartEvent>()->run_id;
  const double dilation = summary.plan.pacing ? summary.plan.pacing->dilation : 1;
  measured.step_time_s = summary.step_time->median_s / dilation;
  measured.samples_per_s = summary.plan.samples_per_s;
  measured.bubble_rate = summary.plan.bubble_rate;
  return measured;
}

std::string measured_text(const MeasuredPlan& measured, double predicted_step_s) {
  std::string text = fmt::format("measured        {:.6g} s ({:+.2f} %)", measured.step_time_s,
                                 100 * (measured.step_time_s / predicted_step_s - 1));
  if (measured.samples_per_s)
    text += fmt::format("  throughput {:.6g} samples/s", *measured.samples_per_s);
  if (measured.bubble_rate) text += fmt::format("  not computing {:.4f}", *measured.bubble_rate);
  return text + fmt::format("  in {}\n", measured.run_id);
}

}  // namespace heteroperf
