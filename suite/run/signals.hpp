#pragma once

namespace heteroperf {

/// SIGINT, SIGTERM and SIGUSR1 (a launcher's way to pass on an interrupt) ask the run to stop after
/// the current step; a second one ends the process at once, through `last_words`.
///
/// `last_words` runs inside the signal handler: it must be async-signal-safe.
void install_stop_signals(void (*last_words)());

/// Name of the signal that asked to stop ("SIGINT"), or null.
const char* stop_signal();

}  // namespace heteroperf
