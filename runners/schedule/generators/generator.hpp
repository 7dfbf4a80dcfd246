#pragma once

#include <span>
#include <string_view>

#include "runners/schedule/search/search.hpp"

namespace heteroperf {

/// The ranks on which a schedule has its stages.
enum class StageOrder {
  looped,   ///< stage s on rank s mod p
  zig_zag,  ///< down the ranks and up again
  two_way,  ///< two copies: stage s on rank s going down, on rank p−1−s going up
  any,      ///< anywhere, as the request's graph says
};

/// A published schedule, or the search. A generator decides the order of F, B, W or BW on every
/// rank and nothing about messages.
struct Generator {
  const char* name;
  const char* summary;  ///< one line, with the source
  StageOrder order;
  /// Throws UserError where the definition does not allow the request.
  Schedule (*make)(const ScheduleRequest& request);
};
std::span<const Generator> generators();
/// Throws UserError naming the nearest names.
const Generator& find_generator(std::string_view name);

/// The work of the generator `auto`, with its cost: the search on the request's graph or chain,
/// with every published schedule for it among the templates. Half the evaluations are those of
/// zb-1p and zb-2p on a plain chain; a chain of several chunks is tried looped and as a zig-zag.
SearchResult search_auto(const ScheduleRequest& request);

}  // namespace heteroperf
