#pragma once

namespace heteroperf {

/// Bytes per second that `threads` threads of this rank read and write in STREAM's triad
/// (McCalpin 1995), a[i] = b[i] + s·c[i] counted as 24 bytes, on 24 MiB per thread, in the best of
/// the passes made in `seconds`. All ranks of a host at once share its memory, as in training.
double measure_memory_rate(int threads, double seconds);

}  // namespace heteroperf
