#include "tests/unit/runners/comm/hybrid_configs.hpp"

#include <cctype>

namespace heteroperf {

RankClusters clusters_of(const std::string& pattern) {
  std::vector<std::string> labels;
  for (char letter : pattern) {
    labels.emplace_back(1, static_cast<char>(std::tolower(static_cast<unsigned char>(letter))));
  }
  RankClusters clusters = clusters_by_label(labels, static_cast<int>(pattern.size()));
  for (RankCluster& cluster : clusters.clusters) {
    std::vector<Bridge> bridges;
    for (RankId rank : cluster.ranks) {
      if (pattern[rank.index()] < 'a') bridges.push_back({rank, "", 1.0});
    }
    if (bridges.empty()) continue;
    // Uneven shares: 1, 2, 3, … parts.
    const auto parts = static_cast<double>(bridges.size() * (bridges.size() + 1) / 2);
    for (std::size_t k = 0; k < bridges.size(); ++k) {
      bridges[k].share = static_cast<double>(k + 1) / parts;
      bridges[k].card = "card " + std::to_string(k);
    }
    cluster.bridges = bridges;
  }
  return clusters;
}

HybridConfig config_of(const std::string& pattern, Algorithm algorithm, WireFormat wire) {
  HybridConfig config;
  config.clusters = clusters_of(pattern);
  config.wire = wire;
  config.rules = {{algorithm, Bytes(0), Bytes(~std::uint64_t{0})}};
  config.segment = Bytes(1024);
  return config;
}

void run_hybrid(const HybridConfig& config, const std::function<void(HybridCommunicator&)>& body) {
  run_on_threads(config.clusters.ranks(), {}, [&](World& world) {
    const auto group = make_hybrid_communicator(std::move(world.communicator), config);
    body(*group);
    group->barrier();
  });
}

}  // namespace heteroperf
