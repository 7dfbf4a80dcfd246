#pragma once

#include <cstdint>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// `graph` with dropout and kernel size set.
///
/// - Dropout: every dropout node gets p = `dropout`. A graph without one gets the node "dropout" in
///   front of its last linear layer.
/// - Kernel: the k×k convolutions that deeper morphs have added (named "deeper<n>.…") become
///   `kernel`×`kernel` with padding kernel / 2, but never larger than 2·min(H, W) − 1 on an H×W
///   map: beyond that, weights would only ever meet padding.
///
/// Overwrites earlier settings, so graph_with(graph_with(g, a, b), c, d) = graph_with(g, c, d).
ModelGraph graph_with(const ModelGraph& graph, double dropout, std::int64_t kernel);

/// The architecture behind a trial's graph: dropout 0, kernel 3. Its hash is the trial's identity
/// in the search.
ModelGraph architecture_of(const ModelGraph& graph);

}  // namespace heteroperf
