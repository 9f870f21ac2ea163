#include "tools/prunex/prune_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "prunex/sparsity/cut.h"
#include "prunex/text/option.h"
#include "prunex/version.h"
#include "tools/prunex/help.h"

namespace prunex::tools {
namespace {

using channels::GroupKind;
using nlohmann::ordered_json;
using prune::Decision;
using prune::Pruned;

double ratio(int64_t before, int64_t after) {
  return before == 0 ? 1 : static_cast<double>(before) / static_cast<double>(std::max<int64_t>(after, 1));
}

ordered_json layers_of(const Pruned& pruned) {
  ordered_json layers = ordered_json::array();
  for (const auto& layer : pruned.layers) {
    layers.push_back({{"name", layer.layer}, {"channels", layer.before}, {"asked", layer.asked}, {"done", layer.done}});
    if (!layer.reason.empty()) layers.back()["reason"] = text::with_flags(layer.reason);
  }
  return layers;
}

ordered_json groups_of(const Pruned& pruned) {
  ordered_json groups = ordered_json::array();
  for (const Decision& decision : pruned.decisions) {
    ordered_json group{{"name", decision.group},    {"kind", channels::name_of(decision.kind)},
                       {"layers", decision.layers}, {"units", decision.units},
                       {"asked", decision.asked},   {"done", decision.kept}};
    if (!decision.reason.empty()) group["reason"] = text::with_flags(decision.reason);
    if (!decision.inexact.empty()) group["inexact"] = decision.inexact;
    groups.push_back(std::move(group));
  }
  return groups;
}

ordered_json not_pruned(const Pruned& pruned) {
  ordered_json groups = ordered_json::array();
  for (const Decision& decision : pruned.decisions) {
    if (decision.kept < decision.units || decision.reason.empty()) continue;
    groups.push_back({{"name", decision.group},
                      {"kind", channels::name_of(decision.kind)},
                      {"layers", decision.layers},
                      {"units", decision.units},
                      {"reason", text::with_flags(decision.reason)}});
  }
  return groups;
}

ordered_json before_after(int64_t before, int64_t after) {
  return {{"before", before}, {"after", after}};
}

void print_size(const char* what, int64_t before, int64_t after) {
  fmt::print("{:<12} {:>16} -> {:<16} {:.3f} of it, 1/{:.2f}\n", what, before, after, 1 / ratio(before, after),
             ratio(before, after));
}

}  // namespace

ordered_json report_json(const PruneSettings& settings, const Pruned& pruned, const std::optional<Evaluations>& found) {
  ordered_json json{{"version", kVersion},
                    {"model", settings.model},
                    {"importance", settings.importance},
                    {"scope", settings.scope},
                    {"target", {{settings.target, settings.value}}},
                    {"steps", settings.steps},
                    {"device", settings.device},
                    {"counting", settings.tp_compat ? "torch-pruning" : "macs"},
                    {"parameters", before_after(pruned.before.parameters, pruned.after.parameters)},
                    {"macs", before_after(pruned.before.macs, pruned.after.macs)},
                    {"speed_up", ratio(pruned.before.macs, pruned.after.macs)},
                    {"plan", fmt::format("{:016x}", sparsity::hash(pruned.cut))}};
  if (const auto& latency = settings.latency) {
    json["latency"] = {{"batch", latency->images},
                       {"milliseconds_before", latency->milliseconds_before},
                       {"milliseconds_after", latency->milliseconds_after}};
  }
  if (found) {
    json["accuracy"] = {{"before", found->before.accuracy}, {"after", found->after.accuracy}};
    json["loss"] = {{"before", found->before.loss}, {"after", found->after.loss}};
    if (const auto& anew = found->after_statistics) {
      json["accuracy"]["after_statistics"] = anew->accuracy;
      json["loss"]["after_statistics"] = anew->loss;
    }
    json["milliseconds_per_batch"] = {{"before", found->milliseconds_before}, {"after", found->milliseconds_after}};
  }
  json["layers"] = layers_of(pruned);
  json["groups"] = groups_of(pruned);
  json["not_pruned"] = not_pruned(pruned);
  return json;
}

void print_report(const Pruned& pruned, const std::optional<Evaluations>& found) {
  print_size("parameters", pruned.before.parameters, pruned.after.parameters);
  print_size("MACs", pruned.before.macs, pruned.after.macs);
  if (found) {
    fmt::print("{:<12} {:.2f} % before, {:.2f} % after", "accuracy", 100 * found->before.accuracy,
               100 * found->after.accuracy);
    if (const auto& anew = found->after_statistics) {
      fmt::print(", {:.2f} % with statistics estimated anew", 100 * anew->accuracy);
    }
    fmt::print("\n");
    fmt::print("{:<12} {:.2f} ms -> {:.2f} ms\n", "a batch", found->milliseconds_before, found->milliseconds_after);
  }
  for (const Decision& decision : pruned.decisions) {
    const bool boundary = decision.kind == GroupKind::kInput || decision.kind == GroupKind::kOutput;
    if (boundary || decision.reason.empty()) continue;
    const auto text = fmt::format("{}: {} of {} units kept, asked {}: {}", decision.group, decision.kept,
                                  decision.units, decision.asked, text::with_flags(decision.reason));
    fmt::print("{}\n", wrap(text, 0, 2));
  }
}

}  // namespace prunex::tools
