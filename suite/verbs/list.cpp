// The verb `list`: names what can be given to other verbs. Each listing is a function that returns
// a table of items with a name, a summary and details, and a table maps words to functions.
// Listings of workloads and devices look at this machine: which size the scaling rule would choose
// on it, and what kind of device its cores make.
#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "results/record/ruleset.hpp"
#include "results/text/number_text.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "suite/program/catalog.hpp"
#include "suite/program/verb.hpp"
#include "suite/run/prepare.hpp"
#include "suite/verbs/listing.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

/// Lists the workloads with what the scaling rule would choose on this machine.
Table list_workloads() {
  const Placement placement = choose_placement({}, usable_cores(), 0);
  // The same placement and rule as those of a run without options.
  const ScalingInput machine = scaling_input(placement, placement.ranks);
  Table items = items_with({{"size", "size", Unit::none},
                            {"ranks", "ranks", Unit::none},
                            {"threads_per_rank", "threads per rank", Unit::none},
                            {"memory_bytes", "memory", Unit::bytes},
                            {"expected_step_s", "expected step", Unit::seconds},
                            {"reason", "reason", Unit::none}});
  for (const CatalogEntry& entry : catalog()) {
    const ScalingChoice choice = entry.choose(machine);
    items.add({entry.name, entry.summary, choice.size, placement.ranks, placement.threads_per_rank,
               choice.memory_bytes, choice.step_s, choice.reason});
  }
  return items;
}

/// Lists the models that `count` and `run` know, with the micro-batch that each is usually trained
/// with.
Table list_models() {
  Table items = items_with({{"family", "family", Unit::none},
                            {"input", "input", Unit::none},
                            {"micro_batch", "micro-batch", Unit::none}});
  for (const ModelSpec& model : models()) {
    items.add({model.name, model.summary, model.family,
               joined(model.inputs, "+",
                      [](const Input& input) { return std::string(to_string(input.kind)); }),
               model.micro_batch});
  }
  return items;
}

/// "4 a100, 8 v100" of the emulated devices of a cluster.
std::string classes_text(const Cluster& cluster) {
  return joined(cluster.classes, ", ", [](const DeviceClass& device) {
    return fmt::format("{} {}", device.count, device.name);
  });
}

/// Lists this machine's devices, the chips whose numerics `--device` finds by name, and the shipped
/// descriptions that `--cluster` does.
Table list_devices() {
  const Machine machine = probe_machine();
  const Placement placement = choose_placement({}, machine.cores, 0);
  // The class that a probe would make of this machine, without rates.
  const DeviceClass device = cpu_device_class(machine, placement.ranks, placement.threads_per_rank);
  Table items = items_with({{"kind", "kind", Unit::none},
                            {"count", "count", Unit::none},
                            {"threads", "threads", Unit::none},
                            {"memory_bytes", "memory", Unit::bytes},
                            {"ranks", "ranks", Unit::none},
                            {"classes", "classes", Unit::none}});
  items.add({device.name,
             machine.cpu_model ? *machine.cpu_model : "CPU of this machine",
             to_string(device.kind),
             device.count,
             device.threads,
             device.memory.value(),
             {},
             {}});
  for (const KernelSet set :
       {KernelSet::base, KernelSet::avx2, KernelSet::avx512, KernelSet::exact}) {
    if (!has_instructions(set)) continue;
    items.add({fmt::format("cpu:{}", to_string(set)),
               set == KernelSet::exact
                   ? "the reference, in float64"
                   : fmt::format("held to the instructions of {}", to_string(set)),
               to_string(device.kind),
               {},
               {},
               {},
               {},
               {}});
  }
  for (const std::string& name : shipped_chip_names()) {
    const EmulatedChip chip = *read_device("emulated:" + name).chip;
    items.add({"emulated:" + name,
               fmt::format("numerics of another chip: operands of products {}{}{}",
                           to_string(chip.products), chip.sum_order > 0 ? ", another order" : "",
                           chip.lacks.empty() ? "" : ", without some operators"),
               "emulated",
               {},
               {},
               {},
               {},
               {}});
  }
  for (const std::string& name : shipped_cluster_names()) {
    const Cluster cluster = shipped_cluster(name);
    // Shipped descriptions are there to be emulated: nobody has them all.
    items.add(
        {name, cluster.name, "paced", {}, {}, {}, cluster.ranks.size(), classes_text(cluster)});
  }
  return items;
}

/// Lists the kinds of data in the form in which --data takes them, each with its argument.
Table list_datasets() {
  Table items = items_with({});
  for (const DataKind& kind : data_kinds()) {
    items.add({kind.form(), kind.summary});
  }
  return items;
}

Table list_schedules() {
  Table items = items_with({});
  for (const Generator& generator : generators()) items.add({generator.name, generator.summary});
  return items;
}

/// The words that `list` knows.
constexpr Named<Table (*)()> listings[] = {{list_workloads, "workloads"}, {list_models, "models"},
                                           {list_schedules, "schedules"}, {list_devices, "devices"},
                                           {list_datasets, "datasets"},   {list_rules, "rules"}};

class ListVerb : public Verb {
 public:
  ListVerb()
      : Verb({"list",
              "what there is: workloads, models, schedules, devices, datasets, rules",
              {"list models", "list workloads --json"}}) {}

  void declare(CLI::App& command) override {
    command.add_option("what", what_, fmt::format("{}", fmt::join(names_of(listings), ", ")));
    command.add_flag("--details", details_, "everything that --json tells");
  }

  ExitCode run(const GlobalOptions& options) override {
    const Details details = details_ ? Details::shown : Details::left_out;
    print(listing_document(make_listing(), details), options);
    return ExitCode::ok;
  }

 private:
  /// Throws UserError with the nearest word.
  Table make_listing() const {
    for (const auto& [make, word] : listings) {
      if (what_ == word) return make();
    }
    throw UserError(fmt::format("cannot list '{}'", what_),
                    fmt::format("one of {}", fmt::join(names_of(listings), " ")),
                    suggest_name(what_, names_of(listings)));
  }

  std::string what_ = "workloads";
  bool details_ = false;
};

}  // namespace

Table list_rules() {
  Table items = items_with({{"severity", "severity", Unit::none},
                            {"known", "known", Unit::none},
                            {"parameter", "parameter", Unit::none},
                            {"hint", "hint", Unit::none}});
  for (const Rule& rule : all_rules()) {
    items.add({rule.id, rule.broken_by, to_string(rule.severity), to_string(rule.moment),
               rule.parameter, rule.hint});
  }
  return items;
}

Document listing_document(const Table& items, Details details) {
  Document document{"heteroperf-list"};
  document.table(items);
  constexpr std::size_t name = 0, summary = 1;
  for (const auto& row : items.rows) {
    document.field("", value_text(row[name], Unit::none), Unit::none, row[summary]);
    for (std::size_t i = summary + 1; details == Details::shown && i < row.size(); ++i) {
      document.field("", "  " + items.columns[i].label, items.columns[i].unit, row[i]);
    }
  }
  return document;
}

std::unique_ptr<Verb> make_list_verb() { return std::make_unique<ListVerb>(); }

}  // namespace heteroperf
