// A strategy under a loop in Python: what LocalSGD, DiLoCo and HSADMM are made of.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include "prunex/program/pt2.h"
#include "prunex/prune/pruner.h"
#include "prunex/sparsity/compaction.h"
#include "prunex/text/one_line.h"
#include "prunex/train/elastic/handover.h"
#include "prunex/train/prepare.h"
#include "prunex/train/pruning/mask_choice.h"
#include "prunex/train/remarks.h"
#include "prunex/train/strategy_choice.h"
#include "prunex/train/trainer.h"
#include "python/src/bindings.h"
#include "python/src/process_groups.h"
#include "python/src/tensors.h"

namespace prunex::python {
namespace {

using train::TrainOptions;

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// By Python's names: prune_end.
std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const auto& option : train::loop_options()) names.push_back(with_underscores(option));
  return names;
}

using Settings = std::vector<std::pair<std::string, std::string>>;

void set_options(TrainOptions& options, const Settings& settings) {
  const std::vector<std::string> known = option_names();
  text::OptionList list = train::describe(options);
  for (const auto& [name, word] : settings) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw std::invalid_argument(
          fmt::format("`{}`: no option of a strategy{}", text::one_line(name), text::did_you_mean(name, known)));
    }
    list.find(with_dashes(name))->set(word);
  }
  list.check();
  list.refuse_idle();
}

/// Of steps 1, 2, …; one for all of them, or one for each.
std::function<double(int64_t)> rates(std::vector<double> learning_rates) {
  return [rates = std::move(learning_rates)](int64_t step) {
    const auto last = static_cast<int64_t>(rates.size()) - 1;
    return rates[static_cast<size_t>(std::min(step - 1, last))];
  };
}

/// A loop's weights: the tensors of a module, by name.
Weights weights_of(const nb::dict& params, const nb::dict& buffers) {
  return {dictionary_of(params), dictionary_of(buffers)};
}

/// A strategy sees no images of a loop.
void refuse_images(const std::string& importance) {
  if (importance == train::kNormImportance) return;
  if (!prune::needs_evidence(prune::importance_named(importance).criterion)) return;
  throw std::invalid_argument(
      fmt::format("`mask_importance`: got {}, which looks at images, and a loop's are not seen; wanted one of weights",
                  importance));
}

class LoopStrategy {
 public:
  LoopStrategy(const std::string& name, const nb::dict& params, const nb::dict& buffers, const Settings& settings,
               int64_t local_steps, int64_t total_steps, double momentum, std::vector<double> learning_rates,
               std::shared_ptr<Ranks> ranks, const std::optional<nb::bytes>& program)
      : ranks_(std::move(ranks)), replica_{weights_of(params, buffers), OptimizerState()} {
    const comm::Layout& layout = ranks_->hierarchy().layout;
    options_.strategy = name;
    options_.local_steps = local_steps;
    options_.momentum = momentum;
    // what has no effect on these ranks may have on others, on which the same loop runs tomorrow
    options_.nodes = 2;
    options_.ranks_per_node = {2};
    set_options(options_, settings);
    options_.nodes = layout.nodes();
    options_.ranks_per_node = layout.node_sizes;
    train::validate(options_);
    refuse_images(options_.mask_importance);
    train::RunPlan plan{.length = train::length_of_steps(options_, total_steps > 0 ? total_steps : kEndless),
                        .learning_rate = rates(std::move(learning_rates))};
    if (program) {
      const auto model = program::parse_pt2({program->c_str(), program->size()}, "the exported module", 0,
                                            program::Batch::kAny, program::Maker::kSelf);
      analysis_.emplace(model.program, channels::GroupOptions{.heads = options_.heads});
      if (options_.heads) train::expect_heads(*analysis_, "the exported module");
      groups_ = train::groups_to_prune(*analysis_, options_);
      expect_known(groups_);
      plan.masked = train::masked_units(options_, groups_, model, *analysis_, {}, {});
    }
    doubts_ = train::check_plan(options_, plan.length, groups_);
    ranks_->run([&] { strategy_ = train::make_strategy(options_, plan, replica_, ranks_->hierarchy()); });
  }

  /// An exchange that is on its way ends before, and asks the interpreter for signals until then.
  ~LoopStrategy() {
    const nb::gil_scoped_release released;
    strategy_.reset();
  }
  LoopStrategy(const LoopStrategy&) = delete;
  LoopStrategy& operator=(const LoopStrategy&) = delete;

  void before_update(const std::optional<std::map<std::string, double>>& rates) {
    ranks_->run([&] {
      strategy_->before_update(replica_);
      const auto& terms = strategy_->local_terms();
      if (!terms.anchor.is_empty() || !terms.masks.is_empty()) {
        train::add_local_terms(replica_.weights, terms, rates ? &*rates : nullptr);
      }
    });
  }

  /// The exchange that the step has led to, if it has.
  std::optional<strategies::Exchange> after_update(int64_t step) {
    auto exchange = ranks_->run([&] { return strategy_->after_update(replica_, step); });
    if (!exchange.exchanged) return std::nullopt;
    if (groups_.empty()) exchange.frozen = false;  // without masks it is as behind the freeze from the first one on
    return exchange;
  }

  /// Afterwards all ranks have the same buffers, too: the mean of statistics, which with a rounded payload were each
  /// rank's own, and the first rank's of whole numbers.
  void finish() {
    ranks_->run([&] {
      strategy_->finish();
      const at::NoGradGuard no_grad;
      const comm::Hierarchy& ranks = ranks_->hierarchy();
      const bool are_equal = options_.exchange.payload == strategies::Payload::kFp32;
      for (const auto& buffer : strategy_->product().buffers) {
        at::Tensor own = buffer.value();
        if (own.is_floating_point()) {
          if (are_equal) continue;
          ranks.world->all_reduce(own);
          own.div_(ranks.layout.world_size());
        } else {
          at::Tensor first = own.contiguous();
          ranks.world->broadcast(first);
          own.copy_(first);
        }
      }
    });
  }

  /// z: parameters and buffers.
  nb::tuple product() const {
    return nb::make_tuple(to_python(strategy_->product().params), to_python(strategy_->product().buffers));
  }

  nb::dict masks() const { return to_python(strategy_->masks()); }

  /// To be called for every kind of the optimizer's state once the masks are final: nothing must move what they hide.
  void mask(const nb::dict& state) const {
    const at::NoGradGuard no_grad;
    const auto supports = sparsity::supports_of(groups_, strategy_->masks(), replica_.weights.params);
    TensorDict tensors = dictionary_of(state);
    sparsity::Supports own;
    for (const auto& support : supports) {
      if (tensors.contains(support.key())) own.insert(support.key(), support.value());
    }
    sparsity::apply_supports(tensors, own);
  }

  /// What the final masks allow to remove.
  sparsity::Cut removable() const {
    if (!analysis_) throw std::invalid_argument("cut: there are no masks: wanted `groups`");
    return prune::removable_cut(*analysis_, groups_, strategy_->masks(), replica_.weights);
  }

  /// By weight, of convolutions and group norms of the network that `cut` leaves.
  std::map<std::string, int64_t> layer_groups(const sparsity::Cut& cut) const {
    TORCH_CHECK(analysis_, "[python] a cut of a network without a graph");
    return groups_in_layers(channels::cut_graph(*analysis_, cut));
  }

  /// The module has lost what `cut` removes; these are its tensors now.
  void cut(const sparsity::Cut& cut, const nb::dict& params, const nb::dict& buffers) {
    set_weights(params, buffers);
    if (!cut.empty()) ranks_->run([&] { strategy_->cut(cut, replica_); });
    analysis_.reset();
  }

  /// The module's tensors, where they are other objects than before.
  void set_weights(const nb::dict& params, const nb::dict& buffers) { replica_.weights = weights_of(params, buffers); }

  nb::tuple state() const {
    const strategies::State state = strategy_->state();
    return nb::make_tuple(to_python(state.global), to_python(state.node), to_python(state.rank));
  }

  /// `own`: what this rank has saved, else another one's, of which it keeps what all have. `lost`: nobody goes on from
  /// what some node had.
  void load(const nb::dict& global, const nb::dict& node, const nb::dict& rank, const std::optional<sparsity::Cut>& cut,
            bool own, bool lost) {
    strategies::State state{dictionary_of(global), dictionary_of(node), dictionary_of(rank)};
    if (!own) forget_own(state);
    ranks_->run([&] {
      strategy_->load(state, cut ? &*cut : nullptr, replica_);
      if (lost) strategy_->note_change(true);
    });
    if (cut) analysis_.reset();
  }

  const std::vector<std::string>& doubts() const { return doubts_; }
  comm::Volume sent() const { return comm::moved_by_exchanges(ranks_->hierarchy()); }

 private:
  static void forget_own(strategies::State& state) {
    const std::string z = strategies::State::kZ;
    train::Checkpoint checkpoint;
    checkpoint.node = state.node;
    checkpoint.rank = state.rank;
    for (const auto& item : state.global) {
      if (item.key().starts_with(z)) checkpoint.product.insert(item.key().substr(z.size()), item.value());
    }
    train::forget_own(checkpoint);
    state.node = checkpoint.node;
    state.rank = checkpoint.rank;
  }

  /// A module has more parameters than are trained.
  void expect_known(const std::vector<sparsity::Group>& groups) const {
    for (const auto& group : groups) {
      for (const auto& slice : group.slices) {
        if (replica_.weights.params.contains(slice.tensor)) continue;
        throw std::invalid_argument(fmt::format(
            "`model`: {} takes no gradients, and goes with units that masks would choose; wanted `groups` without it",
            slice.tensor));
      }
    }
  }

  TrainOptions options_;
  std::shared_ptr<Ranks> ranks_;
  Replica replica_;
  std::optional<channels::Analysis> analysis_;
  std::vector<sparsity::Group> groups_;
  std::vector<std::string> doubts_;
  std::unique_ptr<strategies::Strategy> strategy_;
};

nb::dict phases_of(const strategies::Exchange& exchange) {
  nb::dict seconds;
  for (const auto& phase : exchange.phases) seconds[phase.name] = phase.seconds;
  return seconds;
}

void bind_exchange(nb::module_& module) {
  nb::class_<strategies::Exchange>(module, "Exchange", "What an exchange has done.")
      .def_ro("index", &strategies::Exchange::index, "Its number, from 1.")
      .def_ro("frozen", &strategies::Exchange::frozen, "Whether the masks are final.")
      .def_ro("converged", &strategies::Exchange::converged, "Whether the residuals are below the tolerance.")
      .def_ro("keep", &strategies::Exchange::keep, "Kept units / all units of the groups.")
      .def_ro("mask_changes", &strategies::Exchange::mask_changes, "Units whose mask has changed.")
      .def_ro("rho1", &strategies::Exchange::rho1, "Pull towards the node's model, mean over tensors.")
      .def_ro("rho2", &strategies::Exchange::rho2, "Pull of the nodes towards each other, mean over tensors.")
      .def_ro("overlapped", &strategies::Exchange::overlapped, "Local steps that ran beside it.")
      .def_prop_ro("seconds", &phases_of, nb::sig("def seconds(self) -> dict[str, float]"),
                   "Seconds of its phases, waiting included, by name.")
      .def("__repr__", [](const strategies::Exchange& exchange) {
        return fmt::format("<prunex.Exchange {}: keeps {:.3g} of the units{}>", exchange.index, exchange.keep,
                           exchange.frozen ? ", masks are final" : "");
      });
}

}  // namespace

void bind_strategies(nb::module_& module) {
  nb::class_<Ranks>(module, "Ranks")
      .def("__init__",
           [](Ranks* self, std::vector<int> node_sizes, int rank, const std::string& world, const std::string& node,
              const std::string& rail, double timeout) {
             new (self) Ranks(std::move(node_sizes), rank, {world, node, rail}, timeout);
           })
      .def("gathered", &Ranks::gathered)
      .def("sound", &Ranks::sound)
      .def("give_up", &Ranks::give_up);

  bind_exchange(module);

  nb::class_<LoopStrategy>(module, "Strategy")
      .def(
          "__init__",
          [](LoopStrategy* self, const std::string& name, const nb::dict& params, const nb::dict& buffers,
             const std::vector<std::pair<std::string, std::string>>& settings, int64_t local_steps, int64_t total_steps,
             double momentum, std::vector<double> learning_rates, std::shared_ptr<Ranks> ranks,
             const std::optional<nb::bytes>& program) {
            new (self) LoopStrategy(name, params, buffers, settings, local_steps, total_steps, momentum,
                                    std::move(learning_rates), std::move(ranks), program);
          },
          nb::sig("def __init__(self, name: str, params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor], "
                  "settings: list[tuple[str, str]], local_steps: int, total_steps: int, momentum: float, "
                  "learning_rates: list[float], ranks: Ranks, program: bytes | None) -> None"))
      .def("before_update", &LoopStrategy::before_update, nb::arg("rates").none())
      .def("after_update", &LoopStrategy::after_update)
      .def("finish", &LoopStrategy::finish)
      .def("product", &LoopStrategy::product,
           nb::sig("def product(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]"))
      .def("masks", &LoopStrategy::masks, nb::sig("def masks(self) -> dict[str, torch.Tensor]"))
      .def("mask", &LoopStrategy::mask, nb::sig("def mask(self, state: dict[str, torch.Tensor]) -> None"))
      .def("removable", &LoopStrategy::removable)
      .def("layer_groups", &LoopStrategy::layer_groups)
      .def(
          "cut", &LoopStrategy::cut,
          nb::sig("def cut(self, cut: Cut, params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor]) -> None"))
      .def("set_weights", &LoopStrategy::set_weights,
           nb::sig("def set_weights(self, params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor]) -> None"))
      .def("state", &LoopStrategy::state,
           nb::sig(
               "def state(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, torch.Tensor]]"))
      .def("load", &LoopStrategy::load,
           nb::sig("def load(self, everyone: dict[str, torch.Tensor], node: dict[str, torch.Tensor], "
                   "rank: dict[str, torch.Tensor], cut: Cut | None, own: bool, lost: bool) -> None"))
      .def("doubts", &LoopStrategy::doubts)
      .def("sent_bytes", [](const LoopStrategy& self) { return self.sent().sent; })
      .def("sent_to_nodes", [](const LoopStrategy& self) { return self.sent().sent_to_nodes; });
}

}  // namespace prunex::python
