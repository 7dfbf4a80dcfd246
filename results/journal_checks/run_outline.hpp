#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "results/journal/journal.hpp"
#include "results/journal_checks/plan_outline.hpp"
#include "workloads/search_space.hpp"

namespace heteroperf {

/// The keys of a journal's `config` line that other lines can be held to. A key that may be absent
/// has the value that its comment names.
struct AskedRun {
  std::string workload, size, precision, data, transport;
  std::string cluster_file, schedule;  ///< empty: none; not said
  std::int64_t sequence_length = 0;    ///< 0: of no tokens
  std::int64_t images = 0;             ///< most of a sample; 0: the model's own
  bool quick = false;
  std::string seed;  ///< its digits
  std::int64_t ranks = 0, threads_per_rank = 0;
  std::int64_t micro_batch = 0, micro_batches = 0;  ///< 0: left to the plan
  std::string freeze;                               ///< empty: nothing
  std::string layout;                               ///< empty: none
  std::uint64_t steps = 0;                          ///< 0: by time
  double duration_s = 0, until_percent = 0, until_after_s = 0;
  std::uint64_t warmup_steps = 0, evaluation_samples = 0;
  double dilation = 0;            ///< 0: measured
  std::uint64_t adapt_every = 0;  ///< 0: never
  double replan_threshold = 0;
  std::int64_t group_ranks = 0;  ///< in a search
  std::uint64_t rungs = 0;       ///< in a search
};

/// First and last CPU of each range, numbered as the kernel does; ranges may overlap.
using CpuRanges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

/// The place where a rank runs, as the `binding` in the `system` line tells it.
struct RankHome {
  std::string host, device;
  CpuRanges cpus;
  bool has_gpu = false;
};

/// A setting that stands in the configuration and in the workload's own settings, as JSON.
struct SharedSetting {
  std::string name, asked, stated;
};

/// The documents in a journal's opening lines, read as far as other lines depend on them. A
/// document whose line is not there is absent.
struct RunOutline {
  std::optional<AskedRun> asked;
  std::optional<PlanOutline> plan;
  std::vector<RankHome> homes;  ///< by rank
  std::vector<SharedSetting> settings;
  std::string stated_size, stated_model;  ///< from the workload's own settings
  std::int64_t trial_micro_batches = 0;   ///< in a search, per rank and step
  std::string problem;                    ///< with the first document that cannot be read
};

/// Never throws for what a document says: `problem` has the first fault, and the documents behind
/// it stay absent.
RunOutline read_run_outline(const Journal& journal);

/// Samples per rank and micro-batch of a trial; 0 where its hyper-parameters do not tell.
std::uint64_t batch_of_trial(const JsonText& hyper_parameters);

/// Names a hyper-parameter whose value the search cannot draw from `space`; empty where there is
/// none.
std::string outside_space(const JsonText& hyper_parameters, const SearchSpace& space);

/// Adds the CPUs of a list in the kernel's form, "0-3,8". The list ends where it has another form.
void add_listed_cpus(const std::string& list, CpuRanges& cpus);
/// Counts each CPU once. Numbers from 65536 on are left out, as a stranger's list may name any.
std::uint64_t count_cpus(CpuRanges cpus);

}  // namespace heteroperf
