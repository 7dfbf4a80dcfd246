// The verb `list`: names what can be given to other verbs. Each listing is a function that returns
// items with a name, a summary and details, and a table maps words to functions. Listings of
// workloads and devices look at this machine: which size the scaling rule would choose on it, and
// what kind of device its cores make.
#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "results/record/ruleset.hpp"
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

using Items = std::vector<ListItem>;

std::uint64_t whole(std::int64_t count) { return static_cast<std::uint64_t>(count); }

ListItem choice_item(const CatalogEntry& entry, const ScalingChoice& choice,
                     const Placement& placement) {
  return {entry.name,
          entry.summary,
          {{"size", choice.size},
           {"ranks", whole(placement.ranks)},
           {"threads_per_rank", whole(placement.threads_per_rank)},
           {"memory_bytes", choice.memory_bytes},
           {"expected_step_s", choice.step_s},
           {"reason", choice.reason}}};
}

/// Lists the workloads with what the scaling rule would choose on this machine.
Items list_workloads() {
  const Placement placement = choose_placement({}, usable_cores(), 0);
  // The same placement and rule as those of a run without options.
  const ScalingInput machine = scaling_input(placement, placement.ranks);
  Items items;
  for (const CatalogEntry& entry : catalog()) {
    items.push_back(choice_item(entry, entry.choose(machine), placement));
  }
  return items;
}

/// Lists the models that `count` and `run` know, with the micro-batch that each is usually trained
/// with.
Items list_models() {
  Items items;
  for (const ModelSpec& model : models()) {
    items.push_back({model.name,
                     model.summary,
                     {{"family", model.family},
                      {"input", model.input.kind == InputKind::tokens ? "tokens" : "images"},
                      {"micro_batch", whole(model.micro_batch)}}});
  }
  return items;
}

/// Describes the emulated devices of a cluster that `--cluster` finds by name.
ListItem cluster_item(const std::string& name) {
  const Cluster cluster = shipped_cluster(name);
  std::string kinds;
  for (const DeviceClass& one : cluster.classes) {
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", one.count, one.name);
  }
  return {name,
          cluster.name,
          // Shipped descriptions are there to be emulated: nobody has them all.
          {{"kind", "paced"},
           {"ranks", whole(static_cast<std::int64_t>(cluster.ranks.size()))},
           {"classes", kinds}}};
}

/// Lists this machine's devices, then the shipped descriptions.
Items list_devices() {
  const Machine machine = probe_machine();
  const Placement placement = choose_placement({}, machine.cores, 0);
  // The class that a probe would make of this machine, without rates.
  const DeviceClass device = cpu_device_class(machine, placement.ranks, placement.threads_per_rank);
  Items items{{device.name,
               machine.cpu_model ? *machine.cpu_model : "CPU of this machine",
               {{"kind", to_string(device.kind)},
                {"count", whole(device.count)},
                {"threads", whole(device.threads)},
                {"memory_bytes", device.memory.value()}}}};
  for (const std::string& name : shipped_cluster_names()) items.push_back(cluster_item(name));
  return items;
}

/// The form in which --data takes it.
std::string usage_of(const DataKind& kind) {
  return kind.argument.empty() ? kind.prefix : kind.prefix + ":" + kind.argument;
}

/// The kinds of data that --data takes, each with its argument.
Items list_datasets() {
  Items items;
  for (const DataKind& kind : data_kinds()) items.push_back({usage_of(kind), kind.summary, {}});
  return items;
}

Items list_schedules() {
  Items items;
  for (const Generator& generator : generators()) {
    items.push_back({generator.name, generator.summary, {}});
  }
  return items;
}

/// One word that `list` knows.
struct Listing {
  const char* name;
  Items (*make)();
};
constexpr Listing listings[] = {{"workloads", list_workloads}, {"models", list_models},
                                {"schedules", list_schedules}, {"devices", list_devices},
                                {"datasets", list_datasets},   {"rules", list_rules}};

std::vector<std::string> listing_names() {
  std::vector<std::string> names;
  for (const Listing& listing : listings) names.emplace_back(listing.name);
  return names;
}

/// Details make a long list; they are shown where they are asked for.
enum class Details { shown, left_out };

void print(const Items& items, Details details) {
  // Summaries begin in one column.
  std::size_t width = 0;
  for (const ListItem& item : items) width = std::max(width, item.name.size());
  for (const ListItem& item : items) {
    fmt::print("{:<{}}  {}\n", item.name, width, item.summary);
    if (details == Details::left_out) continue;
    for (const auto& [key, value] : item.details) {
      const std::string text =
          // Each kind of value is shown as its own type prints.
          std::visit([](const auto& shown) { return fmt::format("{}", shown); }, value);
      fmt::print("{:<{}}    {}: {}\n", "", width, key, text);
    }
  }
}

class ListVerb : public Verb {
 public:
  const char* name() const override { return "list"; }
  const char* summary() const override {
    return "what there is: workloads, models, schedules, devices, datasets, rules";
  }
  std::vector<std::string> examples() const override {
    return {"list models", "list workloads --json"};
  }
  void declare(CLI::App& command) override {
    command.add_option("what", what_, fmt::format("{}", fmt::join(listing_names(), ", ")));
    command.add_flag("--details", details_, "everything that --json tells");
  }

  ExitCode run(const GlobalOptions& options) override {
    const Items items = find().make();
    if (options.json) {
      fmt::print("{}", listing_json_text(items));
    } else {
      print(items, details_ ? Details::shown : Details::left_out);
    }
    return ExitCode::ok;
  }

 private:
  /// Throws UserError with the nearest word.
  const Listing& find() const {
    for (const Listing& listing : listings) {
      if (what_ == listing.name) return listing;
    }
    const std::string nearest = nearest_name(what_, listing_names());
    throw UserError(fmt::format("cannot list '{}'", what_),
                    fmt::format("one of {}", fmt::join(listing_names(), " ")),
                    nearest.empty() ? "" : "Did you mean '" + nearest + "'?");
  }

  std::string what_ = "workloads";
  bool details_ = false;
};

}  // namespace

std::vector<ListItem> list_rules() {
  std::vector<ListItem> items;
  for (const Rule& rule : all_rules()) {
    items.push_back({rule.id,
                     rule.broken_by,
                     {{"severity", to_string(rule.severity)},
                      {"known", to_string(rule.moment)},
                      {"parameter", rule.parameter},
                      {"hint", rule.hint}}});
  }
  return items;
}

std::unique_ptr<Verb> make_list_verb() { return std::make_unique<ListVerb>(); }

}  // namespace heteroperf
