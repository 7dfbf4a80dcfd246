#pragma once

#include <string>

#include "tests/golden/result_verbs.hpp"

namespace heteroperf::testing {

/// Gates whose commands leave runs that were made before.
class GatesOfRuns : public ResultVerbs {
 protected:
  /// A command that leaves the next run of `name`, where nothing lies yet.
  std::string next_of(const std::string& name) const {
    const std::string home = folder_ / name;
    return "[ ! -e \"$HETEROPERF_OUT\" ] || exit 40; i=$(cat " + home +
           "/next 2>/dev/null || echo 1); echo $((i+1)) > " + home + "/next; cp -r $(ls -d " +
           home + "/run-* | sed -n ${i}p) \"$HETEROPERF_OUT\"";
  }

  CommandResult gate(const std::string& base, const std::string& head, const Words& more = {}) {
    Words words{"gate", "--base-cmd", base, "--head-cmd", head,     "--max-load",
                "1",    "--settle",   "0",  "-q",         "--json", "--out"};
    words.push_back("gate-" + std::to_string(++gates_));
    words.insert(words.end(), more.begin(), more.end());
    return heteroperf(words, folder_.path());
  }

 private:
  int gates_ = 0;
};

}  // namespace heteroperf::testing
