// The ways of a run's products. Every rank says which products it makes; all ranks then time all of
// them at once, because ranks share caches, memory and clocks while they train, and the mean over
// the ranks decides, so that all choose alike. What was measured is kept in the cache folder for
// the next run of the same kind on the same machine: the same processors, kernels, versions, ranks
// and threads. So a run that is repeated makes the same choice, and only the first one measures.
//
// The choice changes the last bits of every number. It is therefore a line of the journal, from
// which a record's command, `resume` and `verify --replay` take it.
#include "suite/training/product_ways.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "metrics/base/cache_folder.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/comm/communicator.hpp"
#include "suite/program/version.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Long enough for a few turns of every way.
constexpr double measuring_s = 1.5, measuring_s_each = 0.04;

using KnownTimes = std::map<ProductShape, ProductTimes>;

/// Everything besides the shapes that the times depend on: all ranks' processors, threads and
/// programs. It is one text on all ranks, so that all or none of them measure. Collective.
std::string machine_text(const RankContext& context) {
  const Observed<std::string> cpu = probe_machine().cpu_model;
  std::map<std::string, int> ranks;
  for (const std::string& rank : gather_texts(
           context.all_ranks(),
           fmt::format("{} with {}, {} threads, LibTorch {}, HeteroPerf {} {} {}",
                       cpu ? *cpu : "unknown", context.engine.product_ways_here(),
                       context.placement.threads_per_rank, context.engine.libtorch_version(),
                       version_text(), git_commit(), build_text()))) {
    ++ranks[rank];
  }
  std::string text;
  for (const auto& [rank, count] : ranks) text += fmt::format("{} x {}; ", count, rank);
  return text;
}

/// The products of all ranks, each once. Collective.
std::set<ProductShape> products_of_all(Communicator& all, const std::set<ProductShape>& own) {
  std::string words;
  for (const ProductShape& shape : own) words += to_string(shape) + " ";
  std::set<ProductShape> shapes;
  for (const std::string& theirs : gather_texts(all, words)) {
    std::istringstream list(theirs);
    for (std::string word; list >> word;) shapes.insert(ProductShape::parse(word));
  }
  return shapes;
}

// ---------------------------------------------------------------- what was measured before

constexpr const char* kept_title = "heteroperf-products 1";

fs::path kept_file(const std::string& machine) {
  return cache_folder() / fmt::format("products-{}", Hash128("products").update(machine).hex());
}

/// A line per product behind the title and the machine: its shape and the seconds of each way.
std::string kept_text(const std::string& machine, const KnownTimes& times) {
  std::string text = fmt::format("{}\n{}\n", kept_title, machine);
  for (const auto& [shape, seconds] : times) {
    text += fmt::format("{} {}\n", to_string(shape), fmt::join(seconds, " "));
  }
  return text;
}

/// Nothing of a text that is of another version or machine, or cut off: then all is measured anew.
KnownTimes parse_kept(const std::string& machine, const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kept_title) return {};
  if (!std::getline(lines, line) || line != machine) return {};
  KnownTimes times;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string shape;
    ProductTimes seconds{};
    words >> shape;
    for (double& way_s : seconds) words >> way_s;
    std::string more;
    if (lines.eof() || words.fail() || words >> more) return {};
    try {
      const ProductShape known = ProductShape::parse(shape);
      if (!(seconds[static_cast<std::size_t>(usual_way(known))] > 0)) return {};
      times[known] = seconds;
    } catch (const UserError&) {
      return {};
    }
  }
  return times;
}

/// The text of what earlier runs measured; empty where there is none.
std::string read_kept(const std::string& machine) {
  try {
    return read_regular_file(kept_file(machine));
  } catch (const Error&) {
    return {};
  }
}

/// Adds to what is kept, where another run may have left its own times meanwhile. A folder that
/// cannot be written to costs the next run its measurement, which may then end in another choice.
void keep(RankContext& context, const std::string& machine, const KnownTimes& times) {
  if (!context.is_first()) return;
  try {
    own_cache_folder();
    KnownTimes all = times;
    all.merge(parse_kept(machine, read_kept(machine)));
    write_file_atomically(kept_file(machine), kept_text(machine, all));
  } catch (const Error& error) {
    context.post(
        WarningEvent{fmt::format("the times of products are not kept: {}", error.what()), ""});
  }
}

// ---------------------------------------------------------------- measuring

/// Adds the times of these products. Ranks on GPUs wait. Collective.
void measure(RankContext& context, const std::vector<ProductShape>& shapes, KnownTimes& times) {
  Communicator& all = context.all_ranks();
  all.barrier();
  std::vector<ProductTimes> own(shapes.size());
  if (!context.gpu()) {
    const double seconds =
        std::max(measuring_s, measuring_s_each * static_cast<double>(shapes.size()));
    own = context.engine.time_products(shapes, context.placement.threads_per_rank, seconds);
  }
  const double works = context.gpu() ? 0 : 1;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    // By way: the sum of the seconds, and how many ranks have it; behind them the ranks that work.
    std::array<double, 2 * product_ways + 1> sums{};
    for (std::size_t w = 0; w < product_ways; ++w) {
      sums[w] = own[i][w];
      sums[product_ways + w] = own[i][w] > 0 ? 1 : 0;
    }
    sums.back() = works;
    all.all_reduce(std::span<double>(sums));
    ProductTimes& mean = times[shapes[i]];
    for (std::size_t w = 0; w < product_ways; ++w) {
      mean[w] = sums[product_ways + w] == sums.back() ? sums[w] / sums.back() : 0;
    }
  }
}

}  // namespace

std::vector<MeasuredProduct> measure_products(RankContext& context, const TrainingSpec& spec,
                                              RankId rank, KnownProducts known_products) {
  const std::set<ProductShape> shapes =
      products_of_all(context.all_ranks(), context.engine.products_of(spec, rank));
  if (shapes.empty()) return {};
  const std::string machine = machine_text(context);
  const std::string kept = context.is_first() ? read_kept(machine) : std::string();
  KnownTimes known = parse_kept(machine, share_text(context.all_ranks(), kept));
  std::vector<ProductShape> missing;
  for (const ProductShape& shape : shapes) {
    const bool anew = known_products == KnownProducts::measured_anew;
    if (anew || !known.contains(shape)) missing.push_back(shape);
  }
  if (!missing.empty()) {
    context.show({.phase = "set-up", .note = "ways of products"});
    measure(context, missing, known);
    keep(context, machine, known);
  }
  std::vector<MeasuredProduct> products;
  for (const ProductShape& shape : shapes) {
    const ProductTimes& seconds = known.at(shape);
    MeasuredProduct product{to_string(shape), to_string(faster_way(shape, seconds))};
    for (std::size_t w = 0; w < product_ways; ++w) {
      if (seconds[w] > 0) {
        product.ways.push_back({to_string(static_cast<ProductWay>(w)), seconds[w]});
      }
    }
    products.push_back(std::move(product));
  }
  return products;
}

void settle_products(RankContext& context, const TrainingSpec& spec, RankId rank) {
  ProductsEvent event{context.config.engine.products};
  if (event.choice == automatic_products && spec.pacing) {
    // An emulated device's times are modelled, whoever multiplies.
    event.choice = to_string(ProductWay::own);
  } else if (event.choice == automatic_products) {
    event.measured = measure_products(context, spec, rank, KnownProducts::taken);
    std::vector<ProductChoice> choices;
    for (const MeasuredProduct& product : event.measured) {
      choices.push_back({ProductShape::parse(product.shape), *find_value<ProductWay>(product.way)});
    }
    event.choice = ProductChoices(std::move(choices)).text();
  }
  context.products = std::make_shared<const ProductChoices>(ProductChoices::parse(event.choice));
  if (context.is_first()) context.post(event);
}

}  // namespace heteroperf
