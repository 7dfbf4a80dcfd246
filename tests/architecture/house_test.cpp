// The rules of layers.txt, held against this repository.
#include <gtest/gtest.h>

#include "tests/architecture/checks.hpp"

namespace heteroperf::architecture {
namespace {

class House : public ::testing::Test {
 protected:
  const LayerTable table_ =
      read_layer_table(HETEROPERF_SOURCE_DIR "/tests/architecture/layers.txt");
  const SourceTree tree_ = read_source_tree(HETEROPERF_SOURCE_DIR, table_);

  static void expect_none(const Violations& violations) {
    for (const std::string& violation : violations) ADD_FAILURE() << violation;
  }
};

TEST_F(House, IsReadWhole) {
  EXPECT_TRUE(tree_.files.contains("metrics/base/error.hpp"));
  EXPECT_TRUE(tree_.files.contains("tests/architecture/house_test.cpp"));
  EXPECT_GT(tree_.targets.size(), 5U);
  std::size_t types = 0;
  for (const auto& [ignored, defined] : tree_.types) types += defined.size();
  EXPECT_GT(types, 300U);
}

TEST_F(House, IncludesGoDown) { expect_none(check_layers(tree_, table_)); }
TEST_F(House, ThirdPartyHeadersStandInTheirRow) { expect_none(check_third_party(tree_, table_)); }
TEST_F(House, SealedHeadersAreNotReached) { expect_none(check_sealed(tree_, table_)); }
TEST_F(House, FoldersHaveNoCycle) { expect_none(check_cycles(tree_)); }
TEST_F(House, NamesSayWhatIsInside) { expect_none(check_names(tree_, table_)); }
TEST_F(House, TypesHaveOneName) { expect_none(check_type_names(tree_)); }
TEST_F(House, TopLevelIsExact) { expect_none(check_top_level(tree_, table_)); }
TEST_F(House, TargetsLinkAsFoldersInclude) { expect_none(check_targets(tree_, table_)); }
TEST_F(House, SourcesIncludeTheirHeaderFirst) { expect_none(check_own_header(tree_)); }
TEST_F(House, PagesNameWhatIsThere) { expect_none(check_pages(HETEROPERF_SOURCE_DIR, tree_)); }
TEST_F(House, NumbersKeepTheirLimits) {
  const HouseCount house = count_house(read_file_texts(HETEROPERF_SOURCE_DIR, tree_));
  ASSERT_GT(house.find("files")->value, 100);
  expect_none(check_limits(house, table_));
}

}  // namespace
}  // namespace heteroperf::architecture
