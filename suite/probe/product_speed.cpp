// `doctor --speed` shows why a run is as fast as it is: each way's rate at each product of the
// workloads, and which one a run takes. It does what a run does before its first step
// (training/product_ways.hpp), for every workload, without its steps and without what was kept from
// earlier runs.
#include "suite/probe/product_speed.hpp"

#include <algorithm>
#include <memory>

#include "runners/comm/communicator.hpp"
#include "runners/engine/engine.hpp"
#include "suite/ranks/rank_session.hpp"
#include "suite/run/prepare.hpp"
#include "suite/search/search_service.hpp"
#include "suite/training/group_trainer.hpp"
#include "suite/training/product_ways.hpp"
#include "suite/watch/peak_measurement.hpp"

namespace heteroperf {
namespace {

/// Collective.
ProductSpeed speed_on_ranks(const std::vector<PreparedRun>& runs, World& world, Engine& engine) {
  ProductSpeed speed;
  const RankId rank = world.communicator->rank();
  for (const PreparedRun& run : runs) {
    stop_if_asked(*world.communicator);
    RankContext context{run.config, run.placement, world, engine};
    if (speed.workloads.empty()) {
      speed.ranks = run.placement.ranks;
      speed.threads_per_rank = run.placement.threads_per_rank;
      speed.peak_ops_per_second = peak_of_all(context, Precision::fp32) / speed.ranks;
    }
    const TrainingSpec spec = run.plan ? planned_spec(context, run.workload, *run.plan)
                                       : first_trial_spec(context, run.workload);
    const RankId place(run.plan ? rank.value() : rank.value() % run.config.automl.group_ranks);
    speed.workloads.push_back(
        {run.workload.name, run.workload.size,
         measure_products(context, spec, place, KnownProducts::measured_anew)});
  }
  return speed;
}

double rate_of(const MeasuredProduct& product, const std::string& way) {
  const double seconds = product.seconds_of(way);
  return seconds > 0 ? ProductShape::parse(product.shape).operations() / seconds : 0;
}

}  // namespace

ExitCode measure_product_speed(const std::vector<std::string>& argv,
                               const std::function<void(const Error&)>& keep, ProductSpeed& speed) {
  const std::shared_ptr<Engine> engine = load_engine();
  const RunConfig config;
  const Placement placement = choose_placement(config.scale, usable_cores(), 0);
  const std::vector<PreparedRun> runs = prepare_runs(config, {}, placement, placement.ranks);
  RankWork work;
  work.body = [&](World& world) {
    ProductSpeed measured = speed_on_ranks(runs, world, *engine);
    if (world.communicator->rank() == RankId(0)) speed = std::move(measured);
    return ExitCode::ok;
  };
  work.keep = keep;
  const ExitCode code = run_session({placement.ranks, Transport::threads, argv, config.comm}, work);
  // The best call of a way may be faster than the whole machine at its peak is for long.
  for (const auto& of : speed.workloads) {
    for (const MeasuredProduct& product : of.products) {
      speed.peak_ops_per_second =
          std::max(speed.peak_ops_per_second, rate_of(product, product.way));
    }
  }
  return code;
}

void add_product_speed(Document& document, const ProductSpeed& speed) {
  document.heading("products of float32");
  document.field("speed.ranks", "ranks, all at once", Unit::count, speed.ranks);
  document.field("speed.threads_per_rank", "threads of each", Unit::count, speed.threads_per_rank);
  document.field("speed.peak_ops_per_second", "peak of a rank", Unit::operations_per_second,
                 speed.peak_ops_per_second);
  Table table{.key = "speed.products"};
  for (const auto& of : speed.workloads) {
    for (const MeasuredProduct& product : of.products) {
      std::vector<TableCell> cells{{"workload", "workload", Unit::none, of.workload},
                                   {"size", "size", Unit::none, of.size},
                                   {"shape", "product", Unit::none, product.shape}};
      for (const char* way : value_names(ProductWay{})) {
        const double rate = rate_of(product, way);
        Datum cell;
        if (rate > 0) cell = rate;
        cells.push_back({std::string(way) + "_ops_per_second", way, Unit::operations_per_second,
                         std::move(cell)});
      }
      cells.push_back({"way", "taken", Unit::none, product.way});
      cells.push_back({"utilization", "of peak", Unit::fraction,
                       rate_of(product, product.way) / speed.peak_ops_per_second});
      table.add_cells(std::move(cells));
    }
  }
  document.table(std::move(table));
}

}  // namespace heteroperf
