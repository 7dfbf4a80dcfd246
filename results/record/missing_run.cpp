// The error for a path where nothing is. It names the nearest name that lies beside it, as most
// such paths have a typing mistake.
#include "results/record/missing_run.hpp"

#include <string>
#include <vector>

#include "results/record/run_folder.hpp"

namespace heteroperf {
namespace fs = std::filesystem;

UserError no_such_run(const fs::path& path) {
  const fs::path home = home_of(path);
  std::error_code error;
  if (!fs::is_directory(home, error)) {
    return UserError("no such run: " + path.string(), "there is no folder " + home.string());
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(home, error)) {
    names.push_back(entry.path().filename().string());
  }
  const std::string nearest = nearest_name(path.filename().string(), names);
  return UserError("no such run: " + path.string(), "no file or folder has that name",
                   nearest.empty()
                       ? "`heteroperf run` makes one and prints its path."
                       : "Did you mean '" + (path.parent_path() / nearest).string() + "'?");
}

}  // namespace heteroperf
