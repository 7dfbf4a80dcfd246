#pragma once

namespace heteroperf {

/// SIGINT, SIGTERM and SIGUSR1 (a launcher's way to pass on an interrupt) ask the run to stop after
/// the current step; a second one ends the process at once, through `last_words`, and a third one
/// without them. A repeat within a second of one that counted is the same wish: timeout(1) and
/// terminals send some signals twice.
///
/// `last_words` runs once, on a thread of its own, and may allocate and lock.
void install_stop_signals(void (*last_words)());

/// Name of the signal that asked to stop ("SIGINT"), or null. Under this program's own mpirun the
/// signal that its launching process got.
const char* stop_signal();

}  // namespace heteroperf
