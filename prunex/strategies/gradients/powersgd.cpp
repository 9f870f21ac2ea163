#include "prunex/strategies/gradients/gradient_strategy.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/strategies/dictionaries.h"
#include "prunex/strategies/exchange/rail_exchange.h"

namespace prunex::strategies {
namespace {

/// A tensor that is sent as two factors.
struct Factored {
  int64_t parameter = 0;
  std::string name;
  at::Tensor error;  // rows x columns: what the factors have left out
  at::Tensor p, q;   // rows x rank; columns x rank
  at::Tensor first;  // q of the first step
};

bool shrinks(int64_t rows, int64_t columns, int64_t rank, double factor) {
  return factor * static_cast<double>(rank * (rows + columns)) < static_cast<double>(rows * columns);
}

/// Of a column that those before it span, all that is left is rounding: noise in their span, which made a unit column
/// would be sent twice.
constexpr double kSpanned = 1e-10;

/// Gram-Schmidt, column by column, in double: the same bits on every machine. Columns that those before them span
/// become 0. `columns`: rank x length, on the CPU.
void orthogonalise(const at::Tensor& columns) {
  const int64_t rank = columns.size(0), length = columns.size(1);
  auto* data = columns.mutable_data_ptr<double>();
  const auto dot = [&](int64_t a, int64_t b) {
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += data[a * length + i] * data[b * length + i];
    return sum;
  };
  for (int64_t j = 0; j < rank; ++j) {
    const double whole = std::sqrt(dot(j, j));
    for (int64_t before = 0; before < j; ++before) {
      const double share = dot(before, j);
      for (int64_t i = 0; i < length; ++i) data[j * length + i] -= share * data[before * length + i];
    }
    const double rest = std::sqrt(dot(j, j));
    const double factor = rest > kSpanned * whole ? 1 / rest : 0;
    for (int64_t i = 0; i < length; ++i) data[j * length + i] *= factor;
  }
}

/// The columns of every p <- an orthonormal basis of them, and 0. A device hands all of them to the host at once.
void orthogonalise(std::vector<Factored>& tensors) {
  if (tensors.empty()) return;
  std::vector<at::Tensor> flat;
  std::vector<int64_t> sizes;
  for (const auto& tensor : tensors) {
    flat.push_back(tensor.p.t().to(at::kDouble).flatten());
    sizes.push_back(flat.back().numel());
  }
  const at::Tensor on_host = at::cat(flat).cpu();
  const auto parts = on_host.split_with_sizes(sizes);
  for (size_t i = 0; i < tensors.size(); ++i) orthogonalise(parts[i].view({tensors[i].p.size(1), -1}));
  const auto back = on_host.to(tensors.front().p.device()).split_with_sizes(sizes);
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].p.copy_(back[i].view({tensors[i].p.size(1), -1}).t());
  }
}

class PowerSgd final : public GradientStrategy {
 public:
  PowerSgd(Replica& replica, comm::Hierarchy& ranks, const PowerSgdOptions& options)
      : GradientStrategy(replica, ranks, options.reporting), exchange_(ranks), options_(options) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
    for (size_t i = 0; i < replica.weights.params.size(); ++i) {
      const at::Tensor theta = replica.weights.params[i].value().detach();
      const bool matrix = theta.dim() > 1 && theta.numel() > 0;
      const int64_t rows = matrix ? theta.size(0) : 1, columns = theta.numel() / rows;
      const int64_t rank = std::min({options.rank, rows, columns});
      if (!matrix || !shrinks(rows, columns, rank, options.least_shrinkage)) {
        whole_.push_back(static_cast<int64_t>(i));
        continue;
      }
      const at::Tensor first = at::randn({columns, rank}, generator, theta.dtype()).to(theta.device());
      factored_.push_back({static_cast<int64_t>(i), replica.weights.params[i].key(),
                           at::zeros({rows, columns}, theta.options()), at::empty({rows, rank}, theta.options()),
                           first.clone(), first});
    }
  }

  State state() const override {
    State state = GradientStrategy::state();
    for (const auto& tensor : factored_) {
      state.rank.insert("rest/" + tensor.name, tensor.error);
      state.global.insert("q/" + tensor.name, tensor.q);
    }
    state.global.insert("step", at::tensor({step_}, at::kLong));
    return state;
  }

 private:
  void restore_own(const State& state) override {
    for (auto& tensor : factored_) {
      tensor.error.copy_(saved(state.rank, "rest/" + tensor.name, tensor.error.sizes()));
      tensor.q.copy_(saved(state.global, "q/" + tensor.name, tensor.q.sizes()));
    }
    step_ = saved_numbers<int64_t, 1>(state.global, "step")[0];
  }

  /// What is left of the errors and of the factors' rows. A tensor stays factored, with fewer columns if it must.
  void cut_state(const sparsity::Cut& cut, Replica&) override {
    for (auto& tensor : factored_) {
      const sparsity::TensorCut& part = cut.tensors.at(tensor.name);
      if (part.kept.empty()) continue;
      const at::Tensor error = sparsity::slice(tensor.error.view(part.shape), part, tensor.name);
      const int64_t rows = error.size(0), columns = error.numel() / rows;
      const int64_t rank = std::min({tensor.q.size(1), rows, columns});
      const at::Tensor kept =
          sparsity::slice(at::arange(tensor.error.numel(), at::kLong).view(part.shape), part, tensor.name);
      const at::Tensor kept_columns = kept.reshape({rows, columns})[0].remainder(tensor.error.size(1));
      tensor.error = error.reshape({rows, columns});
      for (at::Tensor* q : {&tensor.q, &tensor.first}) {
        *q = q->index_select(0, kept_columns.to(q->device())).narrow(1, 0, rank).contiguous();
      }
      tensor.p = at::empty({rows, rank}, tensor.error.options());
    }
  }

  void average_gradients(TensorDict& params) override {
    std::vector<at::Tensor> grads;
    for (auto& theta : params) {
      at::Tensor& grad = theta.value().mutable_grad();
      if (!grad.defined()) grad = at::zeros_like(theta.value());
      grad = grad.contiguous();
      grads.push_back(grad);
    }
    if (step_++ < options_.start_after) return exchange_.mean_over_ranks(grads);
    std::vector<at::Tensor> first;
    for (const int64_t i : whole_) first.push_back(grads[static_cast<size_t>(i)]);
    for (auto& tensor : factored_) {
      tensor.error.add_(grads[static_cast<size_t>(tensor.parameter)].view(tensor.error.sizes()));
      first.push_back(at::mm_out(tensor.p, tensor.error, tensor.q));
    }
    exchange_.mean_over_ranks(first);
    std::vector<at::Tensor> second;
    orthogonalise(factored_);
    for (auto& tensor : factored_) {
      second.push_back(at::mm_out(tensor.q, tensor.error.t(), tensor.p));
    }
    exchange_.mean_over_ranks(second);
    for (auto& tensor : factored_) {
      at::Tensor grad = grads[static_cast<size_t>(tensor.parameter)].view(tensor.error.sizes());
      grad.copy_(at::mm(tensor.p, tensor.q.t()));
      tensor.error.sub_(grad);
      begin_anew(tensor);
    }
  }

  /// Columns of q that are 0 would stay so in all steps that follow: of a gradient that is 0, or of too low a rank.
  static void begin_anew(Factored& tensor) {
    const at::Tensor gone = tensor.q.eq(0).all(0, /*keepdim=*/true);
    tensor.q.copy_(at::where(gone, tensor.first, tensor.q));
  }

  RailExchange exchange_;
  const PowerSgdOptions options_;
  int64_t step_ = 0;
  std::vector<Factored> factored_;
  std::vector<int64_t> whole_;  // parameters that are sent as they are
};

}  // namespace

void check(const PowerSgdOptions& options) {
  if (options.rank < 1) {
    throw std::invalid_argument(fmt::format("`powersgd_rank`: got {}, wanted 1 or more", options.rank));
  }
  if (options.start_after < 0) {
    throw std::invalid_argument(fmt::format("`powersgd_start`: got {}, wanted 0 or more", options.start_after));
  }
  if (!(options.least_shrinkage >= 0)) {
    throw std::invalid_argument(fmt::format("`least_shrinkage`: got {}, wanted 0 or more", options.least_shrinkage));
  }
}

std::unique_ptr<Strategy> make_powersgd(Replica& replica, comm::Hierarchy& ranks, const PowerSgdOptions& options) {
  check(options);
  return std::make_unique<PowerSgd>(replica, ranks, options);
}

}  // namespace prunex::strategies
