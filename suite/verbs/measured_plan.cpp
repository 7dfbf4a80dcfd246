#include "suite/verbs/measured_plan.hpp"

#include <fmt/format.h>

#include "results/run_folder.hpp"
#include "results/run_summary.hpp"

namespace heteroperf {

std::optional<MeasuredPlan> measured_beside(const std::filesystem::path& plan_file) {
  const RunFiles files{std::filesystem::absolute(plan_file).parent_path()};
  const bool is_the_runs = plan_file.filename() == files.plan().filename();
  if (!is_the_runs || !std::filesystem::exists(files.journal())) return std::nullopt;
  const Journal journal = read_journal(files.journal().string());
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
