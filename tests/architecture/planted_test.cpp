// Each rule is broken once in a small house of its own; the check has to see exactly that.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/architecture/checks.hpp"

namespace heteroperf::architecture {
namespace {

namespace fs = std::filesystem;

/// A sound house that follows the real table; `write` plants something into it.
class Planted : public ::testing::Test {
 protected:
  Planted() {
    std::string name = (fs::temp_directory_path() / "heteroperf-house-XXXXXX").string();
    root_ = mkdtemp(name.data());
    for (const std::string& entry : table_.top_level) {
      if (entry.find('.') == std::string::npos && entry != "LICENSE") {
        fs::create_directories(root_ / entry);
      } else {
        write(entry, "");
      }
    }
    write("metrics/CMakeLists.txt",
          "heteroperf_add_library(metrics SOURCES a.cpp HEADERS a.hpp)\n");
    write("metrics/a.hpp", "#include <vector>\n#include <fmt/format.h>\n");
    write("workloads/CMakeLists.txt",
          "heteroperf_add_library(workloads SOURCES w.cpp DEPENDS heteroperf::metrics)\n");
    write("workloads/w.cpp", "#include \"metrics/a.hpp\"\n#include <unistd.h>\n");
  }
  ~Planted() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& content) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content;
  }

  Violations violations() const { return check_all(read_source_tree(root_, table_), table_); }

  void expect_only(const std::string& expected) const {
    const Violations found = violations();
    ASSERT_EQ(found.size(), 1U) << [&] {
      std::string all;
      for (const auto& violation : found) all += violation + "\n";
      return all;
    }();
    EXPECT_EQ(found.front(), expected);
  }

  const LayerTable table_ =
      read_layer_table(HETEROPERF_SOURCE_DIR "/tests/architecture/layers.txt");
  fs::path root_;
};

TEST_F(Planted, ASoundHouseHasNoViolation) { EXPECT_EQ(violations(), Violations{}); }

TEST_F(Planted, AnIncludeUpwards) {
  write("workloads/bad.cpp", "\n#include \"results/record/record.hpp\"\n");
  expect_only(
      "workloads/bad.cpp:2: workloads may not include results (\"results/record/record.hpp\")");
}

TEST_F(Planted, AnIncludeSidewards) {
  write("runners/comm/CMakeLists.txt", "heteroperf_add_library(comm SOURCES c.cpp)");
  write("runners/comm/c.cpp", "#  include  \"workloads/w.hpp\"");
  expect_only("runners/comm/c.cpp:1: runners/comm may not include workloads (\"workloads/w.hpp\")");
}

TEST_F(Planted, AnIncludeNotFromTheRoot) {
  write("metrics/b.cpp", "#include \"a.hpp\"\n");
  expect_only("metrics/b.cpp:1: \"a.hpp\" is not written from the repository's root");
}

TEST_F(Planted, AFileOutsideEveryRow) {
  write("scripts/tool.cpp", "#include \"metrics/a.hpp\"\n");
  expect_only("scripts/tool.cpp:1: the file's folder has no row");
}

TEST_F(Planted, AHeaderThatItsSourceIncludesLate) {
  write("metrics/a.cpp", "#include <vector>\n#include \"metrics/a.hpp\"\n");
  expect_only("metrics/a.cpp:1: \"metrics/a.hpp\" is not included first");
}

TEST_F(Planted, IncludesInCommentsDoNotCount) {
  write("metrics/b.cpp", "// #include \"suite/x.hpp\"\n/* \n#include <mpi.h>\n*/\n");
  EXPECT_EQ(violations(), Violations{});
}

struct ForbiddenHeader {
  const char* file;
  const char* header;
};
class PlantedHeader : public Planted, public ::testing::WithParamInterface<ForbiddenHeader> {};

TEST_P(PlantedHeader, IsSeen) {
  const auto [file, header] = GetParam();
  const std::string folder = table_.layer_of(file)->folder;
  if (folder != "metrics" && folder != "workloads" && folder != "tests") {
    write(folder + "/CMakeLists.txt", "heteroperf_add_library(x SOURCES a.cpp)");
  }
  write(file, std::string("#include <") + header + ">\n");
  expect_only(std::string(file) + ":1: <" + header + "> is not allowed here");
}

INSTANTIATE_TEST_SUITE_P(
    Rows, PlantedHeader,
    ::testing::Values(ForbiddenHeader{"runners/comm/world.cpp", "mpi.h"},
                      ForbiddenHeader{"runners/comm/mpi/x.cpp", "nccl.h"},
                      ForbiddenHeader{"runners/engine/engine.hpp", "ATen/core/Tensor.h"},
                      ForbiddenHeader{"runners/engine/training.hpp", "c10/core/Device.h"},
                      ForbiddenHeader{"suite/main.cpp", "torch/torch.h"},
                      ForbiddenHeader{"metrics/record.hpp", "nlohmann/json.hpp"},
                      ForbiddenHeader{"results/a.cpp", "CLI/CLI.hpp"},
                      ForbiddenHeader{"workloads/models/a.cpp", "zlib.h"},
                      ForbiddenHeader{"suite/a.cpp", "hwloc.h"},
                      ForbiddenHeader{"suite/b.cpp", "hdf5.h"},
                      ForbiddenHeader{"metrics/sha.cpp", "openssl/evp.h"},
                      ForbiddenHeader{"metrics/m.cpp", "Eigen/Dense"},
                      ForbiddenHeader{"runners/plan/a.cpp", "yaml-cpp/yaml.h"},
                      ForbiddenHeader{"metrics/t.cpp", "gtest/gtest.h"},
                      ForbiddenHeader{"tests/unit/x.cpp", "benchmark/benchmark.h"}));

TEST_F(Planted, AThirdPartyHeaderInNoRow) {
  write("metrics/b.cpp", "#include <boost/any.hpp>\n");
  expect_only("metrics/b.cpp:1: <boost/any.hpp> is in no row");
}

TEST_F(Planted, ASealedHeaderReachedThroughOurOwn) {
  write("runners/engine/CMakeLists.txt", "heteroperf_add_library(engine SOURCES e.cpp)");
  write("runners/engine/deep.hpp", "#include <ATen/core/Tensor.h>\n");
  write("runners/engine/outer.hpp", "#include \"runners/engine/deep.hpp\"\n");
  write("suite/CMakeLists.txt", "add_executable(heteroperf s.cpp)");
  write("suite/s.cpp", "#include \"runners/engine/outer.hpp\"\n");
  expect_only("suite/s.cpp: reaches <ATen/core/Tensor.h> through runners/engine/deep.hpp");
}

TEST_F(Planted, AFolderCycleWithinOneRow) {
  write("workloads/data/x.hpp", "#include \"workloads/models/y.hpp\"\n");
  write("workloads/models/y.hpp", "#include \"workloads/text/z.hpp\"\n");
  write("workloads/text/z.hpp", "#include \"workloads/data/x.hpp\"\n");
  expect_only(
      "folders include each other: workloads/data -> workloads/models -> workloads/text -> "
      "workloads/data");
}

TEST_F(Planted, AFolderMayIncludeItsOwnSubfolders) {
  write("workloads/z.hpp", "#include \"workloads/data/x.hpp\"\n");
  write("workloads/data/x.hpp", "#include \"workloads/v.hpp\"\n");
  EXPECT_EQ(violations(), Violations{});
}

TEST_F(Planted, ANameThatSaysNothing) {
  write("metrics/string_utils.hpp", "");
  expect_only("metrics/string_utils.hpp: \"string_utils\" does not say what is inside");
}

TEST_F(Planted, AFolderThatSaysNothing) {
  write("workloads/common/readme.md", "");
  expect_only("workloads/common: \"common\" does not say what is inside");
}

TEST_F(Planted, ATypeOfTwoHeaders) {
  write("metrics/b.hpp", "template <class T>\nstruct Pair {};\nclass Pair;\nenum class Kind;\n");
  write("workloads/b.hpp",
        "\nclass Pair final : public Base,\n                  public Other {};\n");
  expect_only("workloads/b.hpp:2: Pair is defined a second time (metrics/b.hpp:2: first)");
}

TEST_F(Planted, ATypeThatATestDefinesAgain) {
  write("metrics/b.hpp", "enum class Kind : int { a, b };\n");
  write("tests/unit/c.hpp", "struct Own {};\nstruct Kind {\n  struct Own {};\n};\n");
  write("tests/unit/d.hpp", "struct Own {};\n");
  expect_only("tests/unit/c.hpp:2: Kind is defined a second time (metrics/b.hpp:1: first)");
}

TEST_F(Planted, SpecialisationsAndNestedTypesShareNames) {
  write("metrics/b.hpp",
        "template <class T>\nstruct Fields;\ntemplate <>\nstruct Fields<int> {};\n"
        "struct A {\n  enum class Kind { a };\n};\n");
  write("metrics/c.hpp",
        "template <>\nstruct Fields<char> {};\nstruct B {\n  enum class Kind { b };\n};\n");
  EXPECT_EQ(violations(), Violations{});
}

TEST_F(Planted, SomethingElseAtTheTop) {
  write("docs/x.md", "");
  expect_only("docs: does not belong to the top level");
}

TEST_F(Planted, SomethingMissingAtTheTop) {
  fs::remove(root_ / "CONTRIBUTING.md");
  expect_only("CONTRIBUTING.md: is missing at the top level");
}

TEST_F(Planted, BuildFoldersAndDotFilesAreFree) {
  write("build/x/utils.cpp", "#include \"nowhere.hpp\"\n");
  write("build-debug/y", "");
  write(".clang-format", "");
  EXPECT_EQ(violations(), Violations{});
}

TEST_F(Planted, ARowWithoutALibrary) {
  write("automl/search.cpp", "#include <vector>\n");
  expect_only("automl: has C++ files and no CMake target");
}

TEST_F(Planted, ATargetThatLinksUpwards) {
  write("metrics/CMakeLists.txt",
        "heteroperf_add_library(metrics SOURCES a.cpp)\n# heteroperf::automl\n"
        "target_link_libraries(heteroperf_metrics PRIVATE heteroperf::workloads)\n");
  expect_only("metrics/CMakeLists.txt: metrics may not link heteroperf::workloads");
}

/// A house whose pages name only what is there; `tell` writes another walk through its code.
class PlantedPage : public Planted {
 protected:
  PlantedPage() {
    write("metrics/b.cpp",
          "int f(int x) { return g(x); }\nA::A(int x) : x_(h(x)), y_{1} {}\n"
          "using Name = int;\nclass Both final : public Name {\n  void m();\n};\n");
    write("README.md", "`b.cpp` calls `g()`, and this page need not say where it is.\n");
    tell("1. `metrics/b.cpp`:\n   `f()`, `A::A()`, `Both::m()`, `gone`\n\n    `in/a/block.cpp`");
  }

  void tell(const std::string& walk) {
    write("CONTRIBUTING.md", "## Your first hour\n\n" + walk +
                                 "\n\n## Glossary\n\n| both | `b.cpp` `Both`, `Name` |\n");
  }

  void expect_broken(const Violations& expected) const {
    EXPECT_EQ(check_pages(root_, read_source_tree(root_, table_)), expected);
  }
};

TEST_F(PlantedPage, NamesWhatIsThere) { expect_broken({}); }

TEST_F(PlantedPage, AFileThatIsGone) {
  write("metrics/README.md", "\n`b.cpp`, `../metrics/b.cpp`, `NAME.cpp` and `metrics/c.cpp`\n");
  expect_broken({"metrics/README.md:2: metrics/c.cpp is not there"});
}

TEST_F(PlantedPage, AFunctionThatIsOnlyCalled) {
  tell("`metrics/b.cpp` has `f()`, `g()`\nand `h()`");
  expect_broken({"CONTRIBUTING.md:3: g() is not declared in metrics/b.cpp",
                 "CONTRIBUTING.md:4: h() is not declared in metrics/b.cpp"});
}

TEST_F(PlantedPage, ATypeThatIsOnlyUsed) {
  tell("`metrics/b.cpp` `Gone::f()` `A`\n- `metrics/a.hpp` `Both`");
  expect_broken({"CONTRIBUTING.md:3: Gone::f() is not declared in metrics/b.cpp",
                 "CONTRIBUTING.md:4: Both is not declared in metrics/a.hpp"});
}

TEST_F(PlantedPage, ANameWithoutAFile) {
  tell("`metrics/b.cpp`\n\n`f()`");
  expect_broken({"CONTRIBUTING.md:5: f() has no file before it"});
}

TEST_F(PlantedPage, AChapterThatIsGone) {
  write("CONTRIBUTING.md", "## Your first hour\n\n`metrics/b.cpp`\n");
  expect_broken({"CONTRIBUTING.md: has no chapter \"Glossary\""});
}

TEST(LayerTableFile, RefusesATableThatIsNotLayered) {
  std::string name = (fs::temp_directory_path() / "heteroperf-table-XXXXXX").string();
  const fs::path folder = mkdtemp(name.data());
  const auto expect_refused = [&](const std::string& content) {
    std::ofstream(folder / "layers.txt") << content;
    EXPECT_THROW(read_layer_table(folder / "layers.txt"), std::runtime_error) << content;
  };
  expect_refused("[layers]\na 1 b\nb 1 -\n");
  expect_refused("[layers]\na 1 nowhere\n");
  expect_refused("[layers]\na\n");
  expect_refused("[layers]\na first -\n");
  expect_refused("[third-party]\nmpi.h\n");
  expect_refused("[limits]\nfiles 3\n");
  expect_refused("[limits]\nfiles about 3\n");
  expect_refused("[limits]\nfiles at_most few\n");
  expect_refused("[unknown]\nx\n");
  fs::remove_all(folder);
  EXPECT_THROW(read_layer_table(folder / "layers.txt"), std::runtime_error);
}

TEST(Patterns, StarsStopAtFoldersUnlessDoubled) {
  EXPECT_TRUE(matches("a/*.cpp", "a/b.cpp"));
  EXPECT_FALSE(matches("a/*.cpp", "a/b/c.cpp"));
  EXPECT_TRUE(matches("a/**", "a/b/c.cpp"));
  EXPECT_TRUE(matches("**/*_json.cpp", "results/record/record_json.cpp"));
  EXPECT_TRUE(matches("**/*_json.cpp", "record_json.cpp"));
  EXPECT_FALSE(matches("**/*_json.cpp", "results/json.cpp"));
  EXPECT_TRUE(matches("build-*", "build-x"));
  EXPECT_FALSE(matches("build", "builds"));
}

}  // namespace
}  // namespace heteroperf::architecture
