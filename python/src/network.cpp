// Networks as torch.export writes them: what of them lives and dies together, and what is left when some of it goes.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "prunex/program/pt2.h"
#include "prunex/prune/pruner.h"
#include "prunex/prune/regularizer.h"
#include "prunex/prune/words.h"
#include "prunex/train/remarks.h"
#include "python/src/bindings.h"
#include "python/src/tensors.h"

namespace prunex::python {
namespace {

using channels::DependencyGroup;
using prune::Pruned;

nb::list to_python(const std::vector<at::Tensor>& tensors) {
  nb::list list;
  for (const auto& tensor : tensors) list.append(python::to_python(tensor));
  return list;
}

/// With the weights that `values` has by name, of the same shapes, in the place of its own.
nb::list run(const program::Model& model, const nb::sequence& inputs, const nb::dict& values) {
  std::vector<at::Tensor> tensors;
  for (const auto& input : inputs) tensors.push_back(tensor_of(input));
  const TensorDict others = dictionary_of(values);
  Weights weights = model.weights;
  for (auto* own : {&weights.params, &weights.buffers}) {
    for (auto& item : *own) {
      const at::Tensor* other = others.find(item.key());
      if (other == nullptr) continue;
      if (other->sizes() != item.value().sizes()) throw std::invalid_argument("another shape: " + item.key());
      item.value() = *other;
    }
  }
  std::vector<at::Tensor> outputs;
  {
    const nb::gil_scoped_release released;
    const at::NoGradGuard no_grad;
    outputs = model.program.run(tensors, weights, program::Mode::kEval);
  }
  return to_python(outputs);
}

/// Positions of an axis, unit by unit.
std::vector<int64_t> positions_of(const sparsity::Slice& slice, int64_t units) {
  if (!slice.index.empty()) return slice.index;
  std::vector<int64_t> all;
  for (int64_t unit = 0; unit < units; ++unit) all.push_back(unit);
  return all;
}

/// How units are chosen, as `prune` is told.
struct Choice {
  std::string target;
  double value = 0;
  std::string importance;
  std::optional<std::string> reduction, normalizer;
  std::string scope;
  prune::LimitOptions limits;
  int64_t steps = 1;
  uint64_t seed = 0;
};

class Network {
 public:
  /// `own`: exported by this process.
  Network(const nb::bytes& file, const std::string& name, bool own, channels::GroupOptions options)
      : model_(program::parse_pt2({file.c_str(), file.size()}, name, 0, program::Batch::kAny,
                                  own ? program::Maker::kSelf : program::Maker::kStranger)),
        analysis_(model_.program, options) {
    if (options.heads) train::expect_heads(analysis_, name);
    if (options.statistics) train::expect_statistics(analysis_, name);
  }

  const std::vector<DependencyGroup>& groups() const { return analysis_.groups(); }
  const channels::Analysis& analysis() const { return analysis_; }

  /// What LimitOptions may name: groups, and layers that make their units.
  std::set<std::string> makers() const {
    std::set<std::string> makers;
    for (const DependencyGroup& group : groups()) makers.insert(group.name);
    for (const prune::Limit& limit : prune::limits_of(analysis_, {})) {
      makers.insert(limit.layers.begin(), limit.layers.end());
    }
    return makers;
  }

  /// By an importance that is named. `evidence`: by parameter, what the importance asks of data.
  Pruned prune(const Choice& choice, const nb::dict& evidence) const {
    auto importance = prune::importance_named(choice.importance);
    if (choice.reduction)
      importance.reduction = prune::meaning_of(*choice.reduction, prune::reductions(), "`reduction`");
    if (choice.normalizer) importance.normalizer = prune::normalizer_named(*choice.normalizer);
    importance.seed = choice.seed;
    const auto chosen = prune::make_importance(importance, model_.program.graph(), python::dictionary_of(evidence));
    return pruned(choice, [&](prune::Pruner& pruner, const prune::Target& target) {
      pruner.prune(*chosen, target, choice.steps);
    });
  }

  /// By scores of one's own, one per unit for every group that can be cut; empty ones stay whole.
  Pruned prune_by(const Choice& choice, const std::vector<prune::UnitScores>& scores) const {
    return pruned(choice, [&](prune::Pruner& pruner, const prune::Target& target) { pruner.step(scores, target, 1); });
  }

  /// The groups that these patterns spare.
  std::set<std::string> ignored(const std::vector<std::string>& patterns) const {
    return prune::ignored_groups(analysis_, patterns);
  }

  /// The groups' first units gone, so many of each, nothing else.
  Pruned without_units(const std::vector<std::string>& groups, int64_t count) const {
    const nb::gil_scoped_release released;
    const at::NoGradGuard no_grad;
    auto masks = sparsity::full_masks(analysis_.removable());
    for (const auto& group : groups) masks[group].narrow(0, 0, count).fill_(false);
    return without(sparsity::make_cut(analysis_.removable(), masks, sparsity::shapes_of(model_.weights)));
  }

  /// What was cut from an equal network, and the sizes before and after.
  Pruned prune_as(const sparsity::Cut& cut) const {
    const nb::gil_scoped_release released;
    const at::NoGradGuard no_grad;
    const auto shapes = sparsity::shapes_of(model_.weights);
    for (const auto& [name, tensor] : cut.tensors) {
      const auto own = shapes.find(name);
      if (own != shapes.end() && own->second == tensor.shape) continue;
      throw std::invalid_argument(fmt::format("`cut`: it is of another network, with a tensor {} of [{}]", name,
                                              fmt::join(tensor.shape, ", ")));
    }
    Pruned pruned = without(cut);
    pruned.before = whole_size(model_);
    pruned.after = whole_size(pruned.model);
    return pruned;
  }

 private:
  static prune::Size whole_size(const program::Model& model) { return prune::Pruner(model, {}).result().before; }

  Pruned without(const sparsity::Cut& cut) const {
    Pruned pruned{.model = model_, .cut = cut};
    pruned.model.program = channels::cut_program(analysis_, pruned.cut);
    sparsity::apply_cut(pruned.model.weights, pruned.cut);
    return pruned;
  }

  static prune::Target target_of(const Choice& choice, const prune::Pruner& pruner) {
    const std::string name = choice.target == "speed_up" ? "speed-up" : choice.target;
    return prune::target_named("`" + choice.target + "`", name, choice.value, pruner.planner());
  }

  static prune::PlanOptions plan_options(const Choice& choice) {
    return {.scope = prune::meaning_of(choice.scope, prune::scopes(), "`scope`"), .limits = choice.limits};
  }

  template <class Cut>
  Pruned pruned(const Choice& choice, const Cut& cut) const {
    const nb::gil_scoped_release released;
    const at::NoGradGuard no_grad;
    prune::Pruner pruner(model_, analysis_, plan_options(choice));
    cut(pruner, target_of(choice, pruner));
    return pruner.result();
  }

  program::Model model_;
  channels::Analysis analysis_;
};

nb::dict dictionary_of(const prune::Decision& decision) {
  nb::dict values;
  values["group"] = decision.group;
  values["kind"] = channels::name_of(decision.kind);
  values["layers"] = decision.layers;
  values["units"] = decision.units;
  values["asked"] = decision.asked;
  values["kept"] = decision.kept;
  values["reason"] = decision.reason;
  values["inexact"] = decision.inexact;
  return values;
}

nb::dict dictionary_of(const prune::LayerWidth& layer) {
  nb::dict values;
  values["layer"] = layer.layer;
  values["before"] = layer.before;
  values["asked"] = layer.asked;
  values["after"] = layer.done;
  values["reason"] = layer.reason;
  return values;
}

template <class Rows>
nb::list list_of(const Rows& rows) {
  nb::list list;
  for (const auto& row : rows) list.append(dictionary_of(row));
  return list;
}

nb::tuple size_of(const prune::Size& size) {
  return nb::make_tuple(size.parameters, size.macs);
}

/// The penalties of sparse training on the gradients of a module.
class Penalties {
 public:
  Penalties(const Network& network, const std::string& penalty, std::optional<double> strength, double growth,
            std::vector<std::string> ignore)
      : regularizer_(options_of(penalty, strength, growth, std::move(ignore)), network.analysis()) {}

  void refresh(const nb::dict& params, double epochs) {
    const Weights weights{dictionary_of(params), TensorDict()};
    const nb::gil_scoped_release released;
    const at::NoGradGuard no_grad;
    regularizer_.refresh(weights, epochs);
  }

  void add_to_gradients(const nb::dict& params, double factor) const {
    TensorDict tensors = dictionary_of(params);
    const nb::gil_scoped_release released;
    const at::NoGradGuard no_grad;
    regularizer_.add_to_gradients(tensors, factor);
  }

  nb::dict state() const { return python::to_python(regularizer_.state()); }

  void load(const nb::dict& state) { regularizer_.load(dictionary_of(state)); }

 private:
  static prune::RegularizerOptions options_of(const std::string& penalty, std::optional<double> strength, double growth,
                                              std::vector<std::string> ignore) {
    const auto kind = prune::penalty_named(penalty);
    if (kind == prune::Penalty::kNone) throw std::invalid_argument("`penalty`: got none, which adds nothing");
    if (kind == prune::Penalty::kGroupLasso && !strength) {
      throw std::invalid_argument("`strength`: got none, group_lasso has no usual one");
    }
    return {.penalty = kind,
            .strength = strength.value_or(prune::usual_strength(kind)),
            .growth = growth,
            .ignore = std::move(ignore)};
  }

  static TensorDict dictionary_of(const nb::dict& params) { return python::dictionary_of(params); }

  prune::Regularizer regularizer_;
};

void bind_groups(nb::module_& module) {
  nb::class_<sparsity::Slice>(module, "Slice", "Where the units of a group lie in one tensor.")
      .def_ro("tensor", &sparsity::Slice::tensor, "Its name in the state dict.")
      .def_ro("axis", &sparsity::Slice::axis, "Its dimension.");

  nb::class_<DependencyGroup>(module, "Group", "Channels that live and die together.")
      .def_ro("name", &DependencyGroup::name, "The first layer that makes the channels.")
      .def_ro("size", &DependencyGroup::size, "Units.")
      .def_prop_ro(
          "kind", [](const DependencyGroup& group) { return channels::name_of(group.kind); },
          "inner: one layer makes them; stream: several do, as in a residual stream; input or output of the model.")
      .def_ro("prunable", &DependencyGroup::prunable, "Whether units can be removed.")
      .def_ro("reason", &DependencyGroup::reason, "Why not.")
      .def_ro("inexact", &DependencyGroup::inexact, "Which statistics change with its units; empty: none.")
      .def_ro("slices", &DependencyGroup::slices, "Where the units lie.")
      .def(
          "positions",
          [](const DependencyGroup& group, const sparsity::Slice& slice) { return positions_of(slice, group.size); },
          nb::arg("slice"), "Along the axis of the slice: as many for every unit, unit by unit.")
      .def("__repr__", [](const DependencyGroup& group) {
        const std::string not_why = group.prunable ? "" : fmt::format(", not prunable: {}", group.reason);
        return fmt::format("<prunex.Group {}: {} units, {}{}>", group.name, group.size, channels::name_of(group.kind),
                           not_why);
      });
}

void bind_choices(nb::module_& module) {
  nb::class_<prune::LimitOptions>(module, "Limits")
      .def(
          "__init__",
          [](prune::LimitOptions* self, int64_t round_to, double max_ratio,
             const std::vector<std::pair<std::string, double>>& ratios, std::vector<std::string> ignore,
             std::map<std::string, std::string> whole) {
            new (self) prune::LimitOptions{
                .round_to = round_to, .max_ratio = max_ratio, .ignore = std::move(ignore), .whole = std::move(whole)};
            for (const auto& [pattern, ratio] : ratios) self->ratios.push_back({pattern, ratio});
          },
          nb::arg("round_to"), nb::arg("max_ratio"), nb::arg("ratios"), nb::arg("ignore"), nb::arg("whole"));

  nb::class_<Choice>(module, "Choice")
      .def(
          "__init__",
          [](Choice* self, const std::string& target, double value, const std::string& importance,
             const std::optional<std::string>& reduction, const std::optional<std::string>& normalizer,
             const std::string& scope, const prune::LimitOptions& limits, int64_t steps, uint64_t seed) {
            new (self) Choice{target, value, importance, reduction, normalizer, scope, limits, steps, seed};
          },
          nb::arg("target"), nb::arg("value"), nb::arg("importance"), nb::arg("reduction").none(),
          nb::arg("normalizer").none(), nb::arg("scope"), nb::arg("limits"), nb::arg("steps"), nb::arg("seed"));
}

void bind_network(nb::module_& module) {
  nb::class_<Network>(module, "Network")
      .def(
          "__init__",
          [](Network* self, const nb::bytes& file, const std::string& name, bool own, bool heads, bool statistics) {
            new (self) Network(file, name, own, {.statistics = statistics, .heads = heads});
          },
          nb::arg("file"), nb::arg("name"), nb::arg("own"), nb::arg("heads") = false, nb::arg("statistics") = false)
      .def("groups", &Network::groups)
      .def("makers", &Network::makers)
      .def("removable",
           [](const Network& self) {
             std::vector<std::string> names;
             for (const auto& group : self.analysis().removable()) names.push_back(group.name);
             return names;
           })
      .def("prune", &Network::prune,
           nb::sig("def prune(self, choice: Choice, evidence: dict[str, torch.Tensor]) -> PrunedNetwork"))
      .def("prune_by", &Network::prune_by)
      .def("prune_as", &Network::prune_as)
      .def("ignored", &Network::ignored)
      .def("without_units", &Network::without_units);
}

void bind_results(nb::module_& module) {
  nb::class_<Pruned>(module, "PrunedNetwork")
      .def_ro("cut", &Pruned::cut)
      .def_prop_ro(
          "before", [](const Pruned& self) { return size_of(self.before); },
          nb::sig("def before(self) -> tuple[int, int]"))
      .def_prop_ro(
          "after", [](const Pruned& self) { return size_of(self.after); },
          nb::sig("def after(self) -> tuple[int, int]"))
      .def_prop_ro(
          "groups", [](const Pruned& self) { return list_of(self.decisions); },
          nb::sig("def groups(self) -> list[dict[str, object]]"))
      .def_prop_ro(
          "layers", [](const Pruned& self) { return list_of(self.layers); },
          nb::sig("def layers(self) -> list[dict[str, object]]"))
      .def("layer_groups", [](const Pruned& self) { return groups_in_layers(self.model.program.graph()); })
      .def(
          "run",
          [](const Pruned& self, const nb::sequence& inputs, const nb::dict& values) {
            return run(self.model, inputs, values);
          },
          nb::sig("def run(self, inputs: Sequence[torch.Tensor], values: dict[str, torch.Tensor]) -> "
                  "list[torch.Tensor]"))
      .def("write", [](const Pruned& self, const std::string& path) { program::write_pt2(path, self.model); });
}

void bind_penalties(nb::module_& module) {
  nb::class_<Penalties>(module, "Penalties")
      .def(nb::init<const Network&, const std::string&, std::optional<double>, double, std::vector<std::string>>(),
           nb::arg("network"), nb::arg("penalty"), nb::arg("strength").none(), nb::arg("growth"), nb::arg("ignore"))
      .def("refresh", &Penalties::refresh,
           nb::sig("def refresh(self, params: dict[str, torch.Tensor], epochs: float) -> None"))
      .def("add_to_gradients", &Penalties::add_to_gradients,
           nb::sig("def add_to_gradients(self, params: dict[str, torch.Tensor], factor: float) -> None"))
      .def("state", &Penalties::state, nb::sig("def state(self) -> dict[str, torch.Tensor]"))
      .def("load", &Penalties::load, nb::sig("def load(self, state: dict[str, torch.Tensor]) -> None"));
}

}  // namespace

std::map<std::string, int64_t> groups_in_layers(const program::Graph& graph) {
  std::map<std::string, int64_t> groups;
  for (const auto& node : graph.nodes) {
    const program::ValueId weight = node.tensor("weight");
    const bool norm = node.target == "aten::group_norm";
    if (weight == program::kNoValue || (!norm && node.find("groups") == nullptr)) continue;
    const std::string& name = graph.values[weight].weight;
    if (!name.empty()) groups[graph.owner(name)] = node.integer(norm ? "num_groups" : "groups", 1);
  }
  return groups;
}

void bind_networks(nb::module_& module) {
  bind_groups(module);
  bind_choices(module);
  bind_network(module);
  bind_results(module);
  bind_penalties(module);
  module.def("penalties", [] {
    auto names = prune::penalty_names();
    std::erase(names, "none");
    return names;
  });
  module.def("needs_evidence",
             [](const std::string& name) { return prune::needs_evidence(prune::importance_named(name).criterion); });
}

}  // namespace prunex::python
