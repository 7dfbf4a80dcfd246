#pragma once

#include "suite/ranks/rank_context.hpp"

namespace heteroperf {

/// When a peak is measured: whatever loads a machine seldom does so at both ends of a run.
enum class PeakMoment { before_run, after_run };

/// Measures what all ranks together reach with the fastest product of each, over one interval in
/// which all of them work; before a run, also the rate of their hosts' memory. Where ranks have no
/// CPUs of their own, as many take part as have. Rank 0 posts the `peak` line. Takes
/// `measure.peak_s` (and half of that for the memory), however many ranks there are. Nothing is
/// done where that is 0, or in lockstep, where another program computes meanwhile.
///
/// Returns the rate of aten::mm of all ranks, the sum of what each reached in its best call; 0
/// where nothing was measured. Collective.
double measure_peak(RankContext& context, Precision precision, PeakMoment moment);

/// Operations per second that all ranks together reach with the fastest product of each, as above;
/// on every rank. Collective.
double peak_of_all(RankContext& context, Precision precision);

}  // namespace heteroperf
