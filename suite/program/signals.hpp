#pragma once

namespace heteroperf {

/// SIGINT, SIGTERM and SIGUSR1 (a launcher's way to pass on an interrupt) ask the run to stop after
/// the current step; a second one ends the process at once, through `last_words`, and a third one
/// without them. A repeat within a second of one that counted is the same wish: timeout(1) and
/// terminals send some signals twice.
///
/// `last_words` runs once, on a thread of its own, and may allocate and lock.
void install_stop_signals(void (*last_words)());

/// Names the process that started this one; which is to end with it.
inline constexpr const char* parent_variable = "HETEROPERF_PARENT";
/// Where that variable names this process's parent: SIGTERM once the parent is gone, so that what a
/// sweep had started does not outlive its SIGKILL.
void end_with_parent();

/// Name of the signal that asked to stop ("SIGINT"), or null. Under this program's own mpirun the
/// signal that its launching process got.
const char* stop_signal();

}  // namespace heteroperf
