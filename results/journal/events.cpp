// The words by which journals name kinds of events and values of enumerations. A name stands at the
// index of its kind in the variant `Event`, or at the number of its value, so both lists change
// together. Stored journals are read by these words, so none is ever changed.
#include "results/journal/events.hpp"

#include <array>

namespace heteroperf {
namespace {

// In the order of the variant and of the enums.
constexpr std::array<const char*, std::variant_size_v<Event>> kind_names{
    "start",      "config", "system",   "plan",       "scale",      "workload",
    "phase",      "step",   "until",    "look",       "trial",      "eval",
    "observed",   "memory", "checksum", "rank_plan",  "prediction", "rank_time",
    "rank_steps", "pacing", "baseline", "overhead",   "host_load",  "gpu_slowdown",
    "warning",    "peak",   "search",   "checkpoint", "stop"};
constexpr std::array family_names{"classifier", "language_model"};
constexpr std::array measure_names{"accuracy", "loss"};
constexpr std::array phase_names{"setup", "warmup", "measure", "evaluate", "finish"};
constexpr std::array trial_state_names{"running",  "completed", "stopped",
                                       "diverged", "failed",    "truncated"};
constexpr std::array status_names{"complete", "partial", "failed"};

}  // namespace

const char* kind_name(const Event& event) { return kind_names[event.index()]; }
const char* to_string(WorkloadFamily f) { return family_names[static_cast<std::size_t>(f)]; }
const char* to_string(QualityMeasure m) { return measure_names[static_cast<std::size_t>(m)]; }
const char* to_string(Phase p) { return phase_names[static_cast<std::size_t>(p)]; }
const char* to_string(TrialStatus s) { return trial_state_names[static_cast<std::size_t>(s)]; }
const char* to_string(RunStatus s) { return status_names[static_cast<std::size_t>(s)]; }

}  // namespace heteroperf
