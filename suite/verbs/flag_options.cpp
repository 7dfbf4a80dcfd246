// Declares flags of `run` on a verb and collects those that were typed as settings. A setting keeps
// the flag's name, so that messages speak of "--ranks 4" and not of the key behind it. Texts are
// parsed later, by the type of the key. Only the sign is looked at here: a key may read 0 as
// "choose for me", which nobody means who types a flag.
#include "suite/verbs/flag_options.hpp"

#include <fmt/format.h>

#include "suite/config/run_flags.hpp"

namespace heteroperf {
namespace {

bool is_zero_or_less(const std::string& text) {
  return !text.empty() && (text[0] == '-' || text.find_first_not_of("0.") == std::string::npos);
}

/// Turns one flag into a setting, or into a problem where its number may not be 0.
void add_flag(const RunFlag& flag, const std::string& value, std::vector<Setting>& list,
              ProblemList& problems) {
  if (!flag.positive || !is_zero_or_less(value)) {
    return list.push_back({flag.path, value, flag.flag});
  }
  const bool seconds = flag.path == std::string("measure.duration_s");
  problems.add(fmt::format("{} {} is out of range", flag.flag, value),
               seconds ? "above 0 seconds" : "at least 1");
}

}  // namespace

void FlagOptions::declare(CLI::App& command,
                          const std::function<bool(const std::string& path)>& wanted) {
  const auto& all = run_flags();
  // The parser keeps references into this list, so it may not grow later.
  values_.resize(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!wanted(all[i].path)) continue;
    // The key in brackets tells how --set and a record name the same thing.
    const std::string help = std::string(all[i].help) + "  [" + all[i].path + "]";
    options_.push_back(
        command.add_option(all[i].flag, values_[i], help)->type_name(all[i].value_name));
    flags_.push_back(i);
  }
}

std::vector<Setting> FlagOptions::settings(ProblemList& problems) const {
  std::vector<Setting> list;
  for (std::size_t i = 0; i < flags_.size(); ++i) {
    const std::size_t flag = flags_[i];
    // An option that was given by a variable counts as given.
    if (options_[i]->count() > 0) add_flag(run_flags()[flag], values_[flag], list, problems);
  }
  return list;
}

}  // namespace heteroperf
