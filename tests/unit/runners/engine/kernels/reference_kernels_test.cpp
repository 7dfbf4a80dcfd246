#include <gtest/gtest.h>

#include <vector>

#include "runners/engine/kernels/kernel_table.hpp"
#include "tests/unit/runners/engine/kernels/kernel_cases.hpp"

namespace heteroperf {
namespace {

TEST(ReferenceKernels, GiveWhatEveryVariantGives) {
  for (const KernelVariant& variant : kernel_variants()) {
    SCOPED_TRACE(variant.name);
    for_drawn_shapes([&](const KernelCase& kernel, Element element, std::int64_t rows,
                         std::int64_t columns, std::uint64_t seed) {
      expect_alike(kernel, {variant.kernels, false}, {reference_kernels, false}, element, rows,
                   columns, seed);
    });
  }
}

// Threads share the elements in ranges of any size, and a number of threads must change no bit.
template <class Run>
void expect_the_same_bits_in_parts(const KernelTable& kernels, const Run& run) {
  constexpr std::int64_t elements = 1003;
  std::vector<std::vector<float>> whole, parts;
  for (int i = 0; i < 4; ++i) {
    std::vector<float> values;
    RandomStream random(static_cast<std::uint64_t>(i));
    for (std::int64_t e = 0; e < elements; ++e) values.push_back(static_cast<float>(random.unit()));
    whole.push_back(values);
    parts.push_back(values);
  }
  run(kernels, RowRange{0, elements, 1}, whole);
  std::int64_t begin = 0;
  for (const std::int64_t end : {1, 7, 300, 333, 640, 1003}) {
    run(kernels, RowRange{begin, end, 1}, parts);
    begin = end;
  }
  EXPECT_EQ(whole, parts);
}

TEST(ReferenceKernels, AndAllVariantsDoNotDependOnWhereARangeIsCut) {
  using Arrays = std::vector<std::vector<float>>;
  DropoutKey key;
  key.seed = 3, key.sample_elements = 100, key.keep = 0.7;
  std::vector<const KernelTable*> tables{&reference_kernels(Element::float32)};
  for (const KernelVariant& variant : kernel_variants()) {
    tables.push_back(&variant.kernels(Element::float32));
  }
  for (const KernelTable* table : tables) {
    expect_the_same_bits_in_parts(*table, [](const KernelTable& k, RowRange r, Arrays& a) {
      k.adamw(r, {0.5, 0.99, 0.9, 0.95, 1e-8, 1e-2, 1.5}, a[0].data(), a[1].data(), a[2].data(),
              a[3].data());
    });
    expect_the_same_bits_in_parts(*table, [](const KernelTable& k, RowRange r, Arrays& a) {
      k.sgd(r, {0.5, 1e-2, 0.9, 0.1}, a[0].data(), a[1].data(), a[2].data());
    });
    expect_the_same_bits_in_parts(*table, [&](const KernelTable& k, RowRange r, Arrays& a) {
      k.dropout(r, key, a[0].data(), a[1].data());
    });
  }
}

// A sum whose terms cancel in float32 shows in which type it was made.
TEST(ReferenceKernels, ComputeFloat32InFloat64) {
  Values x(Element::float32, 3), sum(Element::float32, 1);
  x.set(0, 1e8), x.set(1, 1), x.set(2, -1e8);
  reference_kernels(Element::float32).column_sum({0, 3, 1}, x.data(), sum.data());
  EXPECT_EQ(sum.at(0), 1);
}

}  // namespace
}  // namespace heteroperf
