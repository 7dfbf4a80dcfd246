// Prints the numbers of the house: how much there is to read, and how well it is arranged.
//
//   house_table [--json | --folders] [--start TABLE.json] [--root FOLDER]
//
// TABLE.json is what an earlier `--json` printed; it adds a column to compare with. FOLDER is the
// checkout that is counted, by default the one that the program was built from. Hidden files and
// what layers.txt lists as not tracked are passed over.
//
// The rules of counting:
// - The product is every .cpp, .hpp, .cu and .cuh outside tests/.
// - A line is blank when nothing stands on it, code when something other than a comment stands on
//   it, and else a line of comment. Comment marks inside strings and raw strings are code.
// - A line of comment counts unless it has no letter, belongs to a licence (the comment at the top
//   of a file with "Copyright" or "SPDX-License"), or is disabled code: it ends in ';', '{' or '}'
//   and has nowhere three words that only a space or a comma separates.
// - A function is a pair of braces behind a parameter list, outside of every other function, from
//   the first line of its declaration to its closing brace. A lambda or a type inside a function is
//   part of it. Namespaces, classes, enums, and lambdas that are part of a value are no functions.
// - A doc comment is a comment on lines of its own that starts with "///" or stands outside every
//   function, or one behind a member with "///<". Its first word is looked at, with a capital
//   letter; those behind a member that begin with a small letter are counted apart.
// - A folder has the files that lie directly in it. Two folders are a mutual pair when files of
//   each include headers of the other, a folder and its sub-folder too. A cycle is a largest set
//   of folders each of which reaches all others through includes.
// - A raw index is a name declared as `int NAME` in a header below runners/, with one of the words
//   stage, segment, edge, micro_batch, position and replica as a part between underscores (also
//   `rank_of_stage` and `micro_batch_of`). Each name of a list `int stage = 0, replica = 0;`
//   counts. Plurals are counts and do not; nor does zero_stage, which is a level of sharding.
// - A header has one user when one file of the product includes it beside the source of its name.
// - A hand-made chain is a source file that names three or more of check_plan, cut_graph,
//   stage_times, plan_schedule and predict before an opening parenthesis.
// - A quantile p of n sorted values is the one at place p·n, counted from 0.
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "tests/architecture/checks.hpp"

namespace heteroperf::architecture {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  bool json = false, folders = false;
  std::string root = HETEROPERF_SOURCE_DIR, start;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int at = 1; at < argc; ++at) {
    const std::string word = argv[at];
    const bool has_value = at + 1 < argc;
    if (word == "--json") {
      options.json = true;
    } else if (word == "--folders") {
      options.folders = true;
    } else if (word == "--start" && has_value) {
      options.start = argv[++at];
    } else if (word == "--root" && has_value) {
      options.root = argv[++at];
    } else {
      throw std::invalid_argument(
          word +
          " is not understood (house_table [--json | --folders] [--start TABLE.json] "
          "[--root FOLDER])");
    }
  }
  return options;
}

Json read_start(const std::string& path) {
  if (path.empty()) return Json::object();
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("cannot read " + path);
  return Json::parse(stream).at("numbers");
}

Json json_of(const HouseCount& house) {
  Json document = {{"_format", "heteroperf-house"}, {"_version", 1}};
  for (const auto& [key, label, value] : house.numbers) {
    const bool is_whole = std::trunc(value) == value;
    document["numbers"][key] = is_whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
  }
  for (const HouseList& list : house.lists) document["lists"][list.key] = list.places;
  for (const auto& [name, folder] : house.folders) {
    document["folders"][name] = {{"files", folder.files},
                                 {"code_lines", folder.code_lines},
                                 {"comment_lines", folder.comment_lines}};
  }
  return document;
}

std::string limit_of(const HouseNumber& number, const LayerTable& table) {
  for (const HouseLimit& limit : table.limits) {
    if (limit.key == number.key) {
      return fmt::format("{} {:.6g}", limit.at_least ? ">=" : "<=", limit.bound);
    }
  }
  return "";
}

void print_numbers(const HouseCount& house, const LayerTable& table, const Json& start) {
  fmt::print("{:<58}{:>10}{:>12}", "", "now", "limit");
  fmt::print("{}\n", start.empty() ? "" : fmt::format("{:>10}{:>12}", "start", "now/start"));
  for (const HouseNumber& number : house.numbers) {
    fmt::print("{:<58}{:>10.6g}{:>12}", number.label, number.value, limit_of(number, table));
    const double before = start.value(number.key, 0.0);
    if (start.contains(number.key)) fmt::print("{:>10.6g}", before);
    if (before > 0) fmt::print("{:>12.3f}", number.value / before);
    fmt::print("\n");
  }
}

void print_lists(const HouseCount& house) {
  for (const HouseList& list : house.lists) {
    const bool is_long = list.places.size() > 40;
    fmt::print("\n{}: {}{}\n", list.label, list.places.size(),
               is_long ? " (--json lists them)" : "");
    if (is_long) continue;
    for (const std::string& place : list.places) fmt::print("  {}\n", place);
  }
}

void print_folders(const HouseCount& house) {
  fmt::print("\n{:<40}{:>8}{:>8}{:>16}\n", "folder", "files", "code", "comment / code");
  for (const auto& [name, folder] : house.folders) {
    const double share = folder.code_lines == 0
                             ? 0.0
                             : folder.comment_lines / static_cast<double>(folder.code_lines);
    fmt::print("{:<40}{:>8}{:>8}{:>16.3f}\n", name, folder.files, folder.code_lines, share);
  }
}

void run(const Options& options) {
  const LayerTable table = read_layer_table(HETEROPERF_SOURCE_DIR "/tests/architecture/layers.txt");
  const SourceTree tree = read_source_tree(options.root, table);
  const HouseCount house = count_house(read_file_texts(options.root, tree));
  const Json start = read_start(options.start);
  if (options.json) {
    fmt::print("{}\n", json_of(house).dump(2));
    return;
  }
  print_numbers(house, table, start);
  print_lists(house);
  if (options.folders) print_folders(house);
}

}  // namespace
}  // namespace heteroperf::architecture

int main(int argc, char** argv) {
  namespace house = heteroperf::architecture;
  try {
    house::run(house::read_options(argc, argv));
    return 0;
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "house_table: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "house_table: {}\n", error.what());
    return 1;
  }
}
