#pragma once

#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"

namespace heteroperf::test {

/// One class "cpu", a rank per label, a link within every label and between every two.
inline Cluster small_cluster(const std::vector<std::string>& labels) {
  Cluster cluster;
  cluster.classes.push_back({.name = "cpu", .memory = Bytes(1 << 30), .rates = {}});
  std::vector<std::string> distinct;
  for (const std::string& label : labels) {
    cluster.ranks.push_back({"cpu", "host-" + label, label, {}});
    bool is_known = false;
    for (const std::string& known : distinct) is_known |= known == label;
    if (is_known) continue;
    distinct.push_back(label);
    for (const std::string& other : distinct) {
      const LinkCurve fast{Seconds(1e-6), BytesPerSecond(5e9)};
      const LinkCurve slow{Seconds(5e-5), BytesPerSecond(1.17e8)};
      cluster.links.push_back({other, label, {}, other == label ? fast : slow, "given"});
    }
  }
  return cluster;
}

/// What `call` throws, problems joined; "" when it throws nothing.
template <class Error, class Call>
std::string complaint(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace heteroperf::test
