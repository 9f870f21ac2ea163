// The gradients of DistributedDataParallel's buckets, compressed between nodes.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>

#include "prunex/prune/words.h"
#include "prunex/strategies/dictionaries.h"
#include "prunex/strategies/exchange/payload.h"
#include "prunex/strategies/gradients/gradients.h"
#include "python/src/bindings.h"
#include "python/src/process_groups.h"
#include "python/src/tensors.h"

namespace prunex::python {
namespace {

using strategies::Codec;
using strategies::EntryCounts;
using strategies::Payload;

/// Those that round: fp32 is what DistributedDataParallel sends by itself.
Payload rounded_payload(const std::string& word) {
  static const prune::Words<Payload> kRounded(strategies::payloads().begin() + 1, strategies::payloads().end());
  return prune::meaning_of(word, kRounded, "`payload`");
}

std::vector<at::Tensor> tensors_of(const nb::sequence& gradients) {
  std::vector<at::Tensor> tensors;
  for (const auto& gradient : gradients) tensors.push_back(tensor_of(gradient).detach());
  return tensors;
}

void average_exactly(at::Tensor gradients, comm::Hierarchy& ranks) {
  ranks.world->all_reduce(gradients);
  gradients.div_(ranks.layout.world_size());
}

bool is_finite(const at::Tensor& tensor) {
  return at::isfinite(tensor).all().item<bool>();
}

/// Rounds what crosses nodes, and adds what was left out to the next step's.
class RoundedBucket {
 public:
  RoundedBucket(const std::vector<at::Tensor>& gradients, Payload payload, std::shared_ptr<Ranks> ranks)
      : ranks_(std::move(ranks)), codec_(payload) {
    for (const bool matrices : {true, false}) {
      for (size_t g = 0; g < gradients.size(); ++g) {
        if ((gradients[g].dim() > 1) != matrices) continue;
        order_.push_back(g);
        (matrices ? counts_.weights : counts_.vectors) += gradients[g].numel();
      }
    }
    work_ = at::empty({counts_.size()}, gradients[0].options().dtype(at::kFloat));
    const comm::Range mine = parts()[static_cast<size_t>(member())];
    feedback_ = {at::zeros({mine.size()}, work_.options()), at::zeros({mine.size()}, work_.options())};
  }

  void average(const std::vector<at::Tensor>& gradients) {
    each(gradients, [](at::Tensor place, const at::Tensor& gradient) { place.copy_(gradient.reshape({-1})); });
    const comm::Layout& layout = hierarchy().layout;
    const auto shares = parts();
    const comm::Range mine = shares[static_cast<size_t>(member())];
    at::Tensor share = comm::slice(work_, mine);
    if (layout.is_even()) {
      hierarchy().node->reduce_scatter(work_, shares);
      share.div_(layout.ranks_here());
    }
    compressed_mean(across(), codec_, share, counts_.part(mine), &feedback_);
    if (layout.is_even()) hierarchy().node->all_gather_parts(work_, shares);
    each(gradients, [](const at::Tensor& place, at::Tensor gradient) { gradient.copy_(place.view(gradient.sizes())); });
    if (is_finite(work_)) return;
    for (at::Tensor left : {feedback_.sent, feedback_.returned}) left.zero_();
  }

  TensorDict state() const {
    TensorDict state;
    state.insert("sent", feedback_.sent);
    state.insert("returned", feedback_.returned);
    return state;
  }
  void load(const TensorDict& state) {
    const at::Tensor& sent = strategies::saved(state, "sent", feedback_.sent.sizes());
    feedback_.returned.copy_(strategies::saved(state, "returned", feedback_.returned.sizes()));
    feedback_.sent.copy_(sent);
  }

 private:
  comm::Hierarchy& hierarchy() const { return ranks_->hierarchy(); }
  /// Nodes of different sizes are taken for ranks of one kind.
  comm::Communicator& across() const { return hierarchy().layout.is_even() ? *hierarchy().rail : *hierarchy().flat; }
  int member() const { return hierarchy().layout.is_even() ? hierarchy().layout.local_rank() : 0; }
  std::vector<comm::Range> parts() const {
    return comm::parts({0, counts_.size()}, hierarchy().layout.is_even() ? hierarchy().layout.ranks_here() : 1);
  }

  template <class Action>
  void each(const std::vector<at::Tensor>& gradients, const Action& action) {
    int64_t begin = 0;
    for (const size_t g : order_) {
      action(work_.narrow(0, begin, gradients[g].numel()), gradients[g]);
      begin += gradients[g].numel();
    }
  }

  std::shared_ptr<Ranks> ranks_;
  Codec codec_;
  std::vector<size_t> order_;  // matrices first, as EntryCounts has them
  EntryCounts counts_;
  at::Tensor work_;
  strategies::Feedback feedback_;
};

/// The largest entries of the gradients alone.
class SparseBucket {
 public:
  SparseBucket(const std::vector<at::Tensor>& gradients, const strategies::TopKOptions& options,
               std::shared_ptr<Ranks> ranks)
      : ranks_(std::move(ranks)) {
    for (size_t g = 0; g < gradients.size(); ++g) {
      // a strategy wants parameters: it takes their gradients alone
      const at::Tensor theta = at::zeros(gradients[g].sizes(), gradients[g].options());
      replica_.weights.params.insert(std::to_string(g), theta.set_requires_grad(true));
    }
    strategy_ = strategies::make_top_k(replica_, ranks_->hierarchy(), options);
  }

  void average(const std::vector<at::Tensor>& gradients) {
    for (size_t g = 0; g < gradients.size(); ++g) replica_.weights.params[g].value().mutable_grad() = gradients[g];
    strategy_->before_update(replica_);
    std::vector<at::Tensor> finite;
    for (size_t g = 0; g < gradients.size(); ++g) {
      const at::Tensor mean = replica_.weights.params[g].value().grad();
      finite.push_back(at::isfinite(mean).all());
      at::Tensor(gradients[g]).copy_(mean);
      replica_.weights.params[g].value().mutable_grad().reset();
    }
    if (at::stack(finite).all().item<bool>()) return;  // read once
    const strategies::State state = strategy_->state();
    for (auto& kept : state.rank) kept.value().zero_();
    for (auto& kept : state.global) {
      if (is_velocity(kept.key())) kept.value().zero_();
    }
  }

  TensorDict state() const {
    const strategies::State own = strategy_->state();
    TensorDict state = own.rank;
    for (const auto& item : own.global) {
      if (item.key() == "step" || item.key() == "progress" || is_velocity(item.key()))
        state.insert(item.key(), item.value());
    }
    return state;
  }
  void load(const TensorDict& state) {
    strategies::State before;
    before.global = before.rank = state;
    strategy_->go_back(before);
  }

 private:
  /// DGC's of vectors, which all ranks have alike.
  static bool is_velocity(const std::string& name) { return name.starts_with("velocity/"); }

  std::shared_ptr<Ranks> ranks_;
  Replica replica_;
  std::unique_ptr<strategies::Strategy> strategy_;
};

strategies::TopKOptions top_k_options(double density, bool dgc, double momentum, int64_t warmup_steps) {
  strategies::TopKOptions options{
      .reporting = {kEndless, kEndless}, .density = density, .dgc = dgc, .dgc_options = {momentum, warmup_steps, 0}};
  check(options);
  return options;
}

template <class Bucket>
void average(Bucket& bucket, const nb::sequence& gradients) {
  const auto tensors = tensors_of(gradients);
  const nb::gil_scoped_release released;
  const at::NoGradGuard no_grad;
  bucket.average(tensors);
}

/// What average() and its state have in common.
template <class Bucket>
void bind_exchange(nb::class_<Bucket>& bucket) {
  bucket.def("average", &average<Bucket>, nb::sig("def average(self, gradients: Sequence[torch.Tensor]) -> None"))
      .def(
          "state", [](const Bucket& self) { return to_python(self.state()); },
          nb::sig("def state(self) -> dict[str, torch.Tensor]"))
      .def(
          "load",
          [](Bucket& self, const nb::dict& state) {
            const at::NoGradGuard no_grad;
            self.load(dictionary_of(state));
          },
          nb::sig("def load(self, state: dict[str, torch.Tensor]) -> None"));
}

}  // namespace

void bind_gradient_exchanges(nb::module_& module) {
  nb::class_<RoundedBucket> rounded(module, "RoundedBucket");
  rounded.def(
      "__init__",
      [](RoundedBucket* self, const nb::sequence& gradients, const std::string& payload, std::shared_ptr<Ranks> ranks) {
        const Payload meaning = rounded_payload(payload);
        new (self) RoundedBucket(tensors_of(gradients), meaning, std::move(ranks));
      },
      nb::sig("def __init__(self, gradients: Sequence[torch.Tensor], payload: str, ranks: Ranks) -> None"));
  bind_exchange(rounded);

  nb::class_<SparseBucket> sparse(module, "SparseBucket");
  sparse.def(
      "__init__",
      [](SparseBucket* self, const nb::sequence& gradients, double density, bool dgc, double momentum,
         int64_t warmup_steps, std::shared_ptr<Ranks> ranks) {
        const auto tensors = tensors_of(gradients);
        const auto options = top_k_options(density, dgc, momentum, warmup_steps);
        const nb::gil_scoped_release released;
        new (self) SparseBucket(tensors, options, std::move(ranks));
      },
      nb::sig("def __init__(self, gradients: Sequence[torch.Tensor], density: float, dgc: bool, momentum: float, "
              "warmup_steps: int, ranks: Ranks) -> None"));
  bind_exchange(sparse);

  module.def(
      "average_exactly",
      [](const nb::object& gradients, const std::shared_ptr<Ranks>& ranks) {
        const at::Tensor tensor = tensor_of(gradients).detach();
        const nb::gil_scoped_release released;
        const at::NoGradGuard no_grad;
        average_exactly(tensor, ranks->hierarchy());
      },
      nb::sig("def average_exactly(gradients: torch.Tensor, ranks: Ranks) -> None"));
  module.def("check_payload", [](const std::string& payload) { rounded_payload(payload); });
  module.def("check_density", [](double density, int64_t warmup_steps) {
    top_k_options(density, false, 0, 0);
    if (warmup_steps == 0 || density < strategies::kFirstDensity) return;
    throw std::invalid_argument(fmt::format("`warmup_steps`: the density falls from {}, and `density` is {}",
                                            strategies::kFirstDensity, density));
  });
}

}  // namespace prunex::python
