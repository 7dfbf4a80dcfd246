// Pages name files, functions and types in backquotes, and the code moves on. These checks find the
// names that it has left behind: a file that is gone on any page, and in the chapters that lead
// through the code also a function or a type that its file does not declare any more.
//
// A function is looked for outside of the bodies of functions, so that a call does not count as its
// declaration.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <sstream>
#include <utility>

#include "tests/architecture/checks.hpp"
#include "tests/architecture/source_lines.hpp"

namespace heteroperf::architecture {
namespace {

namespace fs = std::filesystem;

constexpr const char* guide = "CONTRIBUTING.md";
constexpr const char* guide_chapters[] = {"Your first hour", "Glossary"};

/// Words in backquotes. A paragraph, a list item and a row of a table are a block each.
struct PageWord {
  int line = 0, block = 0;
  std::string chapter, text;
};

/// Indented lines are code blocks and passed over.
std::vector<PageWord> read_page_words(const std::string& page) {
  static const std::regex block_start(R"(\s*|(\||#|- |\d+\. ).*)");
  std::vector<PageWord> words;
  std::istringstream stream(page);
  std::string chapter;
  int number = 0, block = 0;
  bool is_quoted = false;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.starts_with("    ")) continue;
    if (std::regex_match(line, block_start)) ++block, is_quoted = false;
    if (line.starts_with("## ")) chapter = line.substr(3);
    for (const char c : line + '\n') {
      if (c == '`') {
        is_quoted = !is_quoted;
        if (is_quoted) words.push_back({number, block, chapter, ""});
      } else if (is_quoted) {
        words.back().text += c;
      }
    }
  }
  return words;
}

/// NAME stands for any name.
bool names_file(const std::string& word) {
  static const std::regex file(R"([\w./-]*\w\.(cpp|hpp|cu|cuh|sh|cmake|txt|md))");
  return std::regex_match(word, file) && word.find("NAME") == std::string::npos;
}

/// The path of a file that a page names from the root, from the page's folder or by its name alone;
/// empty where there is none.
std::string find_file(const SourceTree& tree, const std::string& page, const std::string& word) {
  const std::string beside =
      (fs::path(page).parent_path() / word).lexically_normal().generic_string();
  for (const std::string& path : {word, beside}) {
    if (tree.paths.contains(path) || std::ranges::count(tree.top_level, path) > 0) return path;
  }
  const auto has_name = [&](const std::string& path) { return path.ends_with('/' + word); };
  const auto path = std::ranges::find_if(tree.paths, has_name);
  return path == tree.paths.end() || word.find('/') != std::string::npos ? "" : *path;
}

/// The code of a file without comments and without what stands inside its functions.
std::string read_declarations(const std::string& text) {
  const std::vector<SourceLine> lines = read_source_lines(text);
  std::string code;
  const auto append = [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) code += lines[i].code + '\n';
  };
  std::size_t next = 0;
  for (const FunctionLines& function : read_functions(lines)) {
    const auto first = static_cast<std::size_t>(function.first - 1);
    append(next, first);
    const std::size_t head = code.size();
    next = static_cast<std::size_t>(function.last);
    append(first, next);
    code.resize(std::min(code.size(), code.find('{', head)));
    code += ";\n";
  }
  append(next, lines.size());
  return code;
}

/// `word` is "name()", "Type::name()" or "Type"; every part of it is declared.
bool declares(const std::string& code, const std::string& word) {
  const bool is_function = word.ends_with("()");
  const std::string name = is_function ? word.substr(0, word.size() - 2) : word;
  const std::size_t colons = name.rfind("::");
  if (colons != std::string::npos) {
    const std::regex scope("\\b" + name.substr(0, colons) + "\\b");
    const std::string member = name.substr(colons + 2) + (is_function ? "()" : "");
    return std::regex_search(code, scope) && declares(code, member);
  }
  const std::regex declaration(is_function ? "[\\w>*&:;{}\\]]\\s*\\b" + name + "\\s*\\("
                                           : "\\b((class|struct|union|enum) (class )?" + name +
                                                 "( final)?\\s*[:{]|using " + name + "\\s*=)");
  return std::regex_search(code, declaration);
}

/// A function has brackets behind it, a type begins with a capital letter and has small ones.
bool names_declaration(const std::string& word) {
  static const std::regex name(R"((\w+::)*(\w+\(\)|[A-Z]\w*[a-z]\w*))");
  return std::regex_match(word, name);
}

/// Goes through the pages and collects what they name and what is not there.
class PageCheck {
 public:
  PageCheck(const fs::path& root, const SourceTree& tree) : root_(root), tree_(tree) {}

  void read(const std::string& page) {
    std::string file;
    int block = 0;
    for (const PageWord& word : read_page_words(read_text(root_ / page))) {
      const bool leads_through_code =
          page == guide && std::ranges::count(guide_chapters, word.chapter) > 0;
      if (leads_through_code) missing_chapters_.erase(word.chapter);
      if (word.block != block) file.clear();
      block = word.block;
      const std::string place = page + ":" + std::to_string(word.line) + ": " + word.text;
      if (names_file(word.text)) {
        file = find_file(tree_, page, word.text);
        if (file.empty()) broken_.push_back(place + " is not there");
      } else if (leads_through_code && names_declaration(word.text)) {
        if (file.empty()) {
          broken_.push_back(place + " has no file before it");
        } else if (!declares(declarations_of(file), word.text)) {
          broken_.push_back(place + " is not declared in " + file);
        }
      }
    }
  }

  Violations finish() {
    for (const std::string& chapter : missing_chapters_) {
      broken_.push_back(std::string(guide) + ": has no chapter \"" + chapter + "\"");
    }
    return std::move(broken_);
  }

 private:
  const std::string& declarations_of(const std::string& file) {
    const auto [code, is_new] = declarations_.try_emplace(file);
    if (is_new) code->second = read_declarations(read_text(root_ / file));
    return code->second;
  }

  const fs::path& root_;
  const SourceTree& tree_;
  std::set<std::string> missing_chapters_{std::begin(guide_chapters), std::end(guide_chapters)};
  std::map<std::string, std::string> declarations_;
  Violations broken_;
};

}  // namespace

Violations check_pages(const fs::path& root, const SourceTree& tree) {
  PageCheck check(root, tree);
  for (const std::string& name : tree.top_level) {
    if (name.ends_with(".md")) check.read(name);
  }
  for (const std::string& path : tree.paths) {
    if (path.ends_with(".md")) check.read(path);
  }
  return check.finish();
}

}  // namespace heteroperf::architecture
