// Declares flags of configuration keys on a verb and collects those that were typed as settings. A
// setting keeps the flag's name, so that messages speak of "--ranks 4" and not of the key behind
// it. Texts are parsed later, by the type of the key. Only the sign is looked at here: a key may
// read 0 as "choose for me", which nobody means who types a flag.
#include "suite/config/flag_options.hpp"

#include <fmt/format.h>

namespace heteroperf {
namespace {

bool is_zero_or_less(const std::string& text) {
  return !text.empty() && (text[0] == '-' || text.find_first_not_of("0.%") == std::string::npos);
}

/// The help of a flag. The key in brackets tells how --set and a record name the same thing.
std::string help_of(const ConfigKey& key) {
  const bool says_default = key.default_text != "none" && !key.value_name.empty();
  return fmt::format("{}{}  [{}]", key.help,
                     says_default ? fmt::format(" (default {})", key.default_text) : "", key.path);
}

}  // namespace

void FlagOptions::declare(CLI::App& command,
                          const std::function<bool(const std::string& path)>& wanted,
                          std::string ConfigKey::*flag_of) {
  for (const ConfigKey& key : config_keys()) {
    const std::string &flag = key.*flag_of, help = help_of(key);
    if (flag.empty() || !wanted(key.path)) continue;
    CLI::Option* const option =
        key.value_name.empty() ? command.add_flag(flag, help) : command.add_option(flag, help);
    if (key.joins) option->join(' ');
    flags_.push_back({&key, option->type_name(key.value_name)});
  }
}

std::vector<Setting> FlagOptions::settings(ProblemList& problems) const {
  std::vector<Setting> list;
  for (const auto& [key, option] : flags_) {
    // An option that was given by a variable counts as given.
    if (option->count() == 0) continue;
    const std::string value = !key->value_name.empty() ? option->as<std::string>()
                              : option->as<bool>()     ? "true"
                                                       : "false";
    if (key->least_of_flag.empty() || !is_zero_or_less(value)) {
      list.push_back({key->path, value, option->get_name()});
    } else {
      problems.add(fmt::format("{} {} is out of range", option->get_name(), value),
                   key->least_of_flag);
    }
  }
  return list;
}

}  // namespace heteroperf
