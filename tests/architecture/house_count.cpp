#include "tests/architecture/house_count.hpp"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "tests/architecture/source_lines.hpp"

namespace heteroperf::architecture {
namespace {

namespace fs = std::filesystem;

using FolderGraph = std::map<std::string, std::set<std::string>>;

constexpr int small_file_lines = 30, large_folder_files = 40;

/// The numbers of one file that are sums over all files.
struct FileCount {
  int code_lines = 0, comment_lines = 0, blank_lines = 0;
  int doc_fragments = 0, member_fragments = 0, size_casts = 0, raw_indices = 0;
  std::vector<int> function_lines;
  bool has_plan_chain = false;

  void add(const FileCount& file) {
    code_lines += file.code_lines;
    comment_lines += file.comment_lines;
    blank_lines += file.blank_lines;
    doc_fragments += file.doc_fragments;
    member_fragments += file.member_fragments;
    size_casts += file.size_casts;
    raw_indices += file.raw_indices;
    std::ranges::copy(file.function_lines, std::back_inserter(function_lines));
  }
};

bool is_counted(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  return extension == ".cpp" || extension == ".hpp" || extension == ".cu" || extension == ".cuh";
}

bool is_product(const std::string& path) { return is_counted(path) && !path.starts_with("tests/"); }

bool is_header(const std::string& path) { return path.ends_with(".hpp") || path.ends_with(".cuh"); }

std::string parent_of(const std::string& path) {
  return fs::path(path).parent_path().generic_string();
}

fs::path without_extension(const std::string& path) { return fs::path(path).replace_extension(); }

int matches_in(const std::string& text, const std::regex& pattern) {
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), pattern),
                                        std::sregex_iterator()));
}

/// A comment's words, without the slashes, stars and spaces before them.
std::string words_of_comment(const std::string& comment) {
  return comment.substr(std::min(comment.find_first_not_of("/*!< \t"), comment.size()));
}

bool is_disabled_code(const std::string& words) {
  static const std::regex sentence(R"([A-Za-z]+,? [A-Za-z]+,? [A-Za-z]+)"), code(R"([;{}]\s*$)");
  return std::regex_search(words, code) && !std::regex_search(words, sentence);
}

/// The lines from the file's first that hold a licence.
std::size_t licence_lines(const std::vector<SourceLine>& lines) {
  static const std::regex licence("Copyright|SPDX-License");
  std::size_t count = 0;
  bool is_licence = false;
  while (count < lines.size() && !lines[count].has_code() && lines[count].has_comment()) {
    is_licence = is_licence || std::regex_search(lines[count].comment, licence);
    ++count;
  }
  return is_licence ? count : 0;
}

void count_lines(const std::vector<SourceLine>& lines, FileCount& count) {
  static const std::regex letter("[A-Za-z]");
  const std::size_t licence = licence_lines(lines);
  for (std::size_t at = 0; at < lines.size(); ++at) {
    const std::string words = words_of_comment(lines[at].comment);
    if (lines[at].has_code()) {
      ++count.code_lines;
    } else if (!lines[at].has_comment()) {
      ++count.blank_lines;
    } else if (at >= licence && std::regex_search(words, letter) && !is_disabled_code(words)) {
      ++count.comment_lines;
    }
  }
}

void count_fragments(const std::vector<SourceLine>& lines,
                     const std::vector<FunctionLines>& functions, FileCount& count) {
  static const std::regex fragment("^(Of|What|How|Whether)\\b");
  static const std::regex small_fragment("^(of|what|how|whether)\\b");
  bool in_comment = false;
  int number = 0;
  for (const SourceLine& line : lines) {
    ++number;
    const bool is_whole_line = line.has_comment() && !line.has_code();
    const bool is_member = line.has_code() && line.comment.starts_with("///<");
    const bool is_inside = std::ranges::any_of(functions, [&](const FunctionLines& function) {
      return function.first <= number && number <= function.last;
    });
    const bool is_doc =
        is_whole_line && !in_comment && (!is_inside || line.comment.starts_with("///"));
    const std::string words = words_of_comment(line.comment);
    if (is_doc || is_member) count.doc_fragments += std::regex_search(words, fragment);
    if (is_member) count.member_fragments += std::regex_search(words, small_fragment);
    in_comment = is_whole_line;
  }
}

/// The names that the code declares as int, singly or in a list that ends in ';'.
std::vector<std::string> int_names(const std::string& code) {
  static const std::regex declaration(R"(\bint\s+(\w+)([^;(){}]*;)?)"), next_name(R"(,\s*(\w+))");
  std::vector<std::string> names;
  for (std::sregex_iterator at(code.begin(), code.end(), declaration), end; at != end; ++at) {
    names.push_back((*at)[1]);
    const std::string list = (*at)[2];
    for (std::sregex_iterator name(list.begin(), list.end(), next_name); name != end; ++name) {
      names.push_back((*name)[1]);
    }
  }
  return names;
}

bool is_index_name(const std::string& name) {
  static const std::regex index("(^|_)(stage|segment|edge|micro_batch|position|replica)(_|$)"),
      zero_stage("^zero_stage_?$");
  return std::regex_search(name, index) && !std::regex_search(name, zero_stage);
}

bool has_plan_chain(const std::string& code) {
  static const std::regex step(
      R"(\b(check_plan|cut_graph|stage_times|plan_schedule|predict)\s*\()");
  std::set<std::string> steps;
  for (std::sregex_iterator at(code.begin(), code.end(), step), end; at != end; ++at) {
    steps.insert((*at)[1]);
  }
  return steps.size() >= 3;
}

FileCount count_file(const std::string& path, const std::vector<SourceLine>& lines) {
  static const std::regex size_cast(R"(static_cast<\s*std::size_t\s*>)");
  FileCount count;
  std::string code;
  for (const SourceLine& line : lines) code += line.code + '\n';
  const std::vector<FunctionLines> functions = read_functions(lines);
  for (const auto& [first, last] : functions) count.function_lines.push_back(last - first + 1);
  count_lines(lines, count);
  count_fragments(lines, functions, count);
  count.size_casts = matches_in(code, size_cast);
  if (is_header(path) && path.starts_with("runners/")) {
    count.raw_indices = static_cast<int>(std::ranges::count_if(int_names(code), is_index_name));
  }
  count.has_plan_chain = !is_header(path) && has_plan_chain(code);
  return count;
}

/// The value below which the given share of the values lies, as one of them.
int quantile(std::vector<int> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

std::set<std::string> reached_from(const FolderGraph& graph, const std::string& folder) {
  std::set<std::string> reached;
  std::vector<std::string> open = {folder};
  while (!open.empty()) {
    const auto next = graph.find(open.back());
    open.pop_back();
    if (next == graph.end()) continue;
    for (const std::string& to : next->second) {
      if (reached.insert(to).second) open.push_back(to);
    }
  }
  return reached;
}

std::vector<std::string> mutual_pairs(const FolderGraph& graph) {
  std::vector<std::string> pairs;
  for (const auto& [from, included] : graph) {
    for (const std::string& to : included) {
      const auto back = graph.find(to);
      if (from < to && back != graph.end() && back->second.contains(from)) {
        pairs.push_back(from + " <-> " + to);
      }
    }
  }
  return pairs;
}

/// Each set of two or more folders that all reach each other, as one line.
std::vector<std::string> folder_cycles(const FolderGraph& graph) {
  std::map<std::string, std::set<std::string>> reached;
  for (const auto& [folder, ignored] : graph) reached[folder] = reached_from(graph, folder);
  std::vector<std::string> cycles;
  std::set<std::string> listed;
  for (const auto& [folder, targets] : reached) {
    std::string cycle = folder;
    for (const std::string& target : targets) {
      const auto back = reached.find(target);
      const bool is_mutual = back != reached.end() && back->second.contains(folder);
      if (target != folder && is_mutual && listed.insert(target).second) cycle += ", " + target;
    }
    if (listed.insert(folder).second && cycle != folder) cycles.push_back(cycle);
  }
  return cycles;
}

/// The include graph of the product, between folders and between files.
struct IncludeCount {
  FolderGraph folders;
  std::set<std::string> headers;
  std::map<std::string, std::set<std::string>> users;  ///< files that include a header

  void add(const std::string& path, const std::string& text) {
    if (is_header(path)) headers.insert(path);
    for (const Include& include : read_includes(text)) {
      if (!include.quoted) continue;
      const std::string from = parent_of(path), to = parent_of(include.header);
      if (from != to) folders[from].insert(to);
      const bool is_own_source = without_extension(path) == without_extension(include.header);
      if (!is_own_source) users[include.header].insert(path);
    }
  }

  /// Generated headers are left out: they are no files of the product.
  std::vector<std::string> headers_with_one_user() const {
    std::vector<std::string> names;
    for (const auto& [header, files] : users) {
      if (files.size() == 1 && headers.contains(header)) {
        names.push_back(header + " (" + *files.begin() + ")");
      }
    }
    return names;
  }
};

/// All that is counted of the product, file after file.
struct ProductCount {
  FileCount sum;
  std::vector<int> file_lines;
  IncludeCount includes;
  std::map<std::string, FolderCount> folders;
  std::vector<std::string> plan_chains;

  void add(const std::string& path, const std::string& text) {
    const std::vector<SourceLine> lines = read_source_lines(text);
    const FileCount file = count_file(path, lines);
    sum.add(file);
    file_lines.push_back(static_cast<int>(lines.size()));
    includes.add(path, text);
    FolderCount& folder = folders[parent_of(path)];
    ++folder.files;
    folder.code_lines += file.code_lines;
    folder.comment_lines += file.comment_lines;
    if (file.has_plan_chain) plan_chains.push_back(path);
  }

  std::vector<std::string> large_folders() const {
    std::vector<std::string> names;
    for (const auto& [name, folder] : folders) {
      if (folder.files > large_folder_files) {
        names.push_back(name + " (" + std::to_string(folder.files) + ")");
      }
    }
    return names;
  }

  int files_of_largest_folder() const {
    int files = 0;
    for (const auto& [name, folder] : folders) files = std::max(files, folder.files);
    return files;
  }
};

std::vector<HouseList> lists_of(const ProductCount& product) {
  return {
      {"large_folders", "folders over 40 files", product.large_folders()},
      {"mutual_folder_pairs", "folders that include each other",
       mutual_pairs(product.includes.folders)},
      {"folder_cycles", "sets of folders that all reach each other",
       folder_cycles(product.includes.folders)},
      {"plan_chains", "files with a hand-made chain from plan to prediction", product.plan_chains},
      {"headers_with_one_user", "headers that one file other than their own includes",
       product.includes.headers_with_one_user()}};
}

std::vector<HouseNumber> numbers_of(const ProductCount& product) {
  const FileCount& sum = product.sum;
  const std::vector<int>& files = product.file_lines;
  const std::vector<int>& functions = sum.function_lines;
  const auto small = std::ranges::count_if(files, [](int n) { return n < small_file_lines; });
  std::vector<HouseNumber> numbers;
  const auto add = [&](const char* key, const char* label, auto value) {
    numbers.push_back({key, label, static_cast<double>(value)});
  };
  add("code_lines", "code lines", sum.code_lines);
  add("comment_lines", "comment lines", sum.comment_lines);
  add("blank_lines", "blank lines", sum.blank_lines);
  add("comment_share", "comment lines / code lines",
      sum.code_lines == 0 ? 0.0 : sum.comment_lines / static_cast<double>(sum.code_lines));
  add("files", "files", files.size());
  add("small_files", "files under 30 lines", small);
  add("file_median", "file lines, median", quantile(files, .5));
  add("file_p90", "file lines, p90", quantile(files, .9));
  add("file_max", "file lines, largest", quantile(files, 1));
  add("functions", "functions", functions.size());
  add("function_median", "function lines, median", quantile(functions, .5));
  add("function_p90", "function lines, p90", quantile(functions, .9));
  add("function_p99", "function lines, p99", quantile(functions, .99));
  add("function_max", "function lines, largest", quantile(functions, 1));
  add("doc_fragments", "doc comments that begin with Of, What, How or Whether", sum.doc_fragments);
  add("member_fragments", "comments behind a member that begin so in small letters",
      sum.member_fragments);
  add("largest_folder", "files of the largest folder", product.files_of_largest_folder());
  add("size_casts", "static_cast<std::size_t>", sum.size_casts);
  add("raw_indices", "raw int for an index in headers of runners", sum.raw_indices);
  return numbers;
}

}  // namespace

FileTexts read_file_texts(const fs::path& root, const SourceTree& tree) {
  FileTexts texts;
  for (const std::string& path : tree.paths) {
    const bool is_wanted = is_counted(path) || path.starts_with("scripts/");
    if (is_wanted && fs::is_regular_file(root / path)) texts[path] = read_text(root / path);
  }
  return texts;
}

const HouseNumber* HouseCount::find(const std::string& key) const {
  const auto number = std::ranges::find(numbers, key, &HouseNumber::key);
  return number == numbers.end() ? nullptr : &*number;
}

HouseCount count_house(const FileTexts& texts) {
  ProductCount product;
  FileCount tests;
  double script_lines = 0;
  for (const auto& [path, text] : texts) {
    if (is_product(path)) {
      product.add(path, text);
    } else if (is_counted(path)) {
      count_lines(read_source_lines(text), tests);
    } else if (path.starts_with("scripts/")) {
      script_lines += static_cast<double>(std::ranges::count(text, '\n'));
    }
  }
  HouseCount house{numbers_of(product), lists_of(product), product.folders};
  for (const HouseList& list : house.lists) {
    house.numbers.push_back({list.key, list.label, static_cast<double>(list.places.size())});
  }
  house.numbers.push_back(
      {"test_code_lines", "code lines of tests", static_cast<double>(tests.code_lines)});
  house.numbers.push_back({"script_lines", "lines below scripts", script_lines});
  return house;
}

}  // namespace heteroperf::architecture
