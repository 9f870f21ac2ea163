#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plan/plan.h"
#include "plan/tables.h"
#include "prunex/text/json.h"

namespace prunex::plan {
namespace {

using nlohmann::ordered_json;
using report::Cell;
using report::Table;
using report::Unit;

constexpr size_t kTerminalWidth = 100;

std::string interval_text(const report::Interval& range) {
  return fmt::format("{}–{}", report::format(range.low, Unit::kSeconds), report::format(range.high, Unit::kSeconds));
}

ordered_json range_json(const report::Interval& range) {
  return {{"low", range.low}, {"high", range.high}};
}

ordered_json or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

ordered_json to_json(const Plan& plan, const Row& row) {
  const Recorded& run = plan.of(row);
  ordered_json json{{"name", run.name},
                    {"strategy", run.strategy},
                    {"payload", row.setting.payload},
                    {"local_steps", row.setting.local_steps},
                    {"batch_size", row.setting.batch},
                    {"is_recorded", row.is_recorded},
                    {"steps", row.whole.steps},
                    {"exchanges", row.whole.exchanges},
                    {"seconds", row.whole.seconds},
                    {"seconds_range", range_json(row.range)},
                    {"seconds_per_epoch", or_null(row.epoch_seconds)},
                    {"wire_share", row.wire_share()},
                    {"bytes_per_node", row.whole.node_bytes},
                    {"accuracy", row.is_recorded ? ordered_json(run.accuracy->mean) : ordered_json()},
                    {"accuracy_seeds", run.accuracy->count},
                    {"scaling_efficiency", row.efficiency()},
                    {"to_accuracy", ordered_json()}};
  if (row.reaching) {
    json["to_accuracy"] = {{"images", row.reaching->images},
                           {"seconds", row.reaching->seconds},
                           {"seconds_range", range_json(row.reaching->range)},
                           {"seeds", row.reaching->seeds}};
  }
  if (plan.options.cluster.price_per_hour > 0) {
    json["cost"] = plan.cost(row.whole.seconds);
    if (row.reaching) json["to_accuracy"]["cost"] = plan.cost(row.reaching->seconds);
  }
  return json;
}

ordered_json to_json(const Cluster& cluster) {
  return {{"nodes", cluster.nodes},
          {"ranks_per_node", cluster.ranks_per_node},
          {"link", cluster.link},
          {"latency", cluster.latency},
          {"goodput", cluster.goodput},
          {"memory", cluster.memory},
          {"sites", cluster.sites},
          {"site_link", or_null(cluster.site_link)},
          {"site_latency", cluster.site_latency},
          {"straggler", cluster.straggler},
          {"price_per_hour", cluster.price_per_hour},
          {"other_flows", cluster.other_flows},
          {"flows", uses_flows(cluster)}};
}

ordered_json to_json(const Plan& plan, const Scaling& scaling) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < scaling.rows.size(); ++i) {
    ordered_json points = ordered_json::array();
    for (const auto& point : scaling.points) {
      points.push_back({{"nodes", point.nodes},
                        {"ranks", point.nodes * plan.options.cluster.ranks_per_node},
                        {"images_per_second", or_null(point.images_per_second[i])}});
    }
    list.push_back({{"name", plan.of(plan.rows[scaling.rows[i]]).name}, {"points", points}});
  }
  return list;
}

std::string paragraphs(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += report::wrapped(report::cleaned(line), kTerminalWidth) + "\n";
  return text;
}

}  // namespace

Table row_table(const Plan& plan) {
  const std::string target = report::percent(plan.target);
  Table table{{{"run", {}},
               {.name = "H", .digits = 5},
               {"payload", {}},
               {.name = "accuracy", .right = true},
               {"to " + target, Unit::kSeconds},
               {.name = "range", .right = true},
               {"cost to it", {}, 3},
               {"whole run", Unit::kSeconds},
               {.name = "an epoch", .unit = Unit::kSeconds, .detail = true},
               {"network", Unit::kShare, 2},
               {"sent by a node", Unit::kBytes},
               {.name = "efficiency", .unit = Unit::kShare, .digits = 2}},
              {}};
  const bool has_price = plan.options.cluster.price_per_hour > 0;
  for (const auto& row : plan.rows) {
    const Recorded& run = plan.of(row);
    const auto& reaching = row.reaching;
    table.rows.push_back(
        {run.name, run.sends_gradients ? Cell("1") : Cell(row.setting.local_steps), row.setting.payload,
         row.is_recorded ? report::percent(run.accuracy->mean, run.accuracy->half_width) : "not run",
         reaching ? Cell(reaching->seconds) : Cell(), reaching ? Cell(interval_text(reaching->range)) : Cell(),
         has_price && reaching ? Cell(plan.cost(reaching->seconds)) : Cell(), row.whole.seconds, row.epoch_seconds,
         row.wire_share(), row.whole.node_bytes, row.efficiency()});
  }
  return table;
}

Table scaling_table(const Plan& plan, const Scaling& scaling) {
  Table table{{{"times as fast, ranks", {}}}, {}};
  for (const auto& point : scaling.points) {
    table.columns.push_back({.name = std::to_string(point.nodes * plan.options.cluster.ranks_per_node), .digits = 3});
  }
  for (size_t i = 0; i < scaling.rows.size(); ++i) {
    std::vector<Cell> cells{plan.of(plan.rows[scaling.rows[i]]).name};
    const auto& first = scaling.points.front().images_per_second[i];
    for (const auto& point : scaling.points) {
      const auto& rate = point.images_per_second[i];
      cells.push_back(first && rate ? Cell(report::plain(*rate / *first, 3)) : Cell());
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string to_text(const Plan& plan) {
  std::string text =
      report::wrapped(report::cleaned(plan.task + ", on " + describe(plan.options.cluster)), kTerminalWidth) + "\n";
  text += paragraphs(plan.advice) + "\n" + report::to_text(row_table(plan), kTerminalWidth);
  text +=
      "\nWeak scaling: every rank keeps its batch\n" + report::to_text(scaling_table(plan, plan.weak), kTerminalWidth);
  text += "\nStrong scaling: a step keeps its images, divided among the ranks\n" +
          report::to_text(scaling_table(plan, plan.strong), kTerminalWidth);
  return text + "\n" + paragraphs(plan.caveats);
}

std::string to_json(const Plan& plan, const std::string& command) {
  ordered_json json{{"command", command},
                    {"task", plan.task},
                    {"cluster", to_json(plan.options.cluster)},
                    {"target", plan.target},
                    {"rows", ordered_json::array()},
                    {"recommended", ordered_json()}};
  for (const auto& row : plan.rows) json["rows"].push_back(to_json(plan, row));
  if (plan.recommended) json["recommended"] = json["rows"][*plan.recommended];
  json["advice"] = plan.advice;
  json["caveats"] = plan.caveats;
  json["weak_scaling"] = to_json(plan, plan.weak);
  json["strong_scaling"] = to_json(plan, plan.strong);
  return text::json_text(json, 1) + "\n";
}

}  // namespace prunex::plan
