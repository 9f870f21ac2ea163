#include "tests/strategies/oracle_problem.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <map>

namespace prunex::oracle {
namespace {

using nlohmann::json;
using strategies::LocalTerms;

template <class T>
T choice(const json& key, const std::map<std::string, T>& names) {
  return names.at(key.get<std::string>());
}

/// rho1 and anchor of one tensor; no term where duals do not hold it.
struct Pull {
  double rho = 0;
  at::Tensor anchor;
};

Pull pull_of(const LocalTerms& terms, const at::Tensor& theta, const std::string& name) {
  for (size_t t = 0; t < terms.anchor.size(); ++t) {
    if (terms.anchor.keys()[t] == name) return {terms.rho1[t], terms.anchor[name]};
  }
  return {0, at::zeros_like(theta)};
}

at::Tensor mask_of(const LocalTerms& terms, const at::Tensor& theta, const std::string& name) {
  const at::Tensor* mask = terms.masks.find(name);
  return mask == nullptr ? at::ones_like(theta) : *mask;
}

sparsity::Group group_of(const json& entry) {
  static const std::map<std::string, int64_t> axes{
      {"out", sparsity::kRows}, {"in", sparsity::kChannels}, {"column", sparsity::kColumns}};
  sparsity::Group group{.name = entry["name"], .slices = {}, .size = entry["n"], .keep = entry["keep"]};
  for (const auto& member : entry["members"]) group.slices.push_back({member[0], axes.at(member[1]), {}});
  return group;
}

}  // namespace

at::Tensor read_tensor(const json& entries, at::IntArrayRef shape) {
  return at::tensor(entries.get<std::vector<double>>(), at::kDouble).view(shape).clone();
}

std::vector<int64_t> shape_of(const json& oracle, const std::string& tensor) {
  const auto& shapes = oracle["shapes"];
  if (shapes.contains(tensor)) return shapes[tensor];
  return {static_cast<int64_t>(oracle["init_buffers"][tensor].size())};
}

strategies::HsadmmOptions options_of(const json& oracle) {
  using namespace strategies;
  const json& cfg = oracle["cfg"];
  HsadmmOptions options;
  for (const auto& entry : oracle["groups"]) options.masks.groups.push_back(group_of(entry));
  options.masks.keep = {choice<sparsity::KeepRamp>(cfg["keep_sched"], {{"hard", sparsity::KeepRamp::kHard},
                                                                       {"cubic", sparsity::KeepRamp::kCubic}}),
                        cfg["k0"], cfg["k1"]};
  options.masks.rule = choice<MaskRule>(cfg["mask_rule"], {{"union", MaskRule::kUnion}, {"joint", MaskRule::kJoint}});
  options.masks.freeze_after = cfg["T_freeze"] == 1'000'000'000 ? kNever : cfg["T_freeze"].get<int64_t>();
  options.masks.freeze_when_stable = cfg["stable_for"];
  options.masks.mask_theta = cfg["freeze_theta"];
  const bool exact = oracle["problem"] == "lsq";
  options.local.steps = exact ? 1 : oracle["local_steps"].get<int64_t>();
  options.local.total_steps = (oracle["K"].get<int64_t>() + 1) * options.local.steps;  // so that rho of K + 1 has steps
  options.local.learning_rate = [lr = cfg["lr"].get<double>()](int64_t) { return lr; };
  options.local.momentum = cfg["momentum"];
  options.consensus.penalty = {
      .rule = choice<admm::PenaltyRule>(cfg["rho_sched"], {{"boyd", admm::PenaltyRule::kResidual},
                                                           {"geom", admm::PenaltyRule::kGeometric},
                                                           {"fixed", admm::PenaltyRule::kFixed},
                                                           {"kappa", admm::PenaltyRule::kKappa}}),
      .kappa = cfg["kappa"],
      .rho2_ratio = cfg["rho2_ratio"],
      .rho1 = cfg["rho1"],
      .rho2 = cfg["rho2"],
      .rho1_max = cfg["rho1_max"],
      .rho2_max = cfg["rho2_max"],
      .mu = cfg["mu"],
      .tau = cfg["tau"],
      .growth = cfg["rho_growth"]};
  options.consensus.lambda = cfg["wd_in"] == "z" ? cfg["wd"].get<double>() : 0;
  options.consensus.start_from =
      choice<StartFrom>(cfg["theta_start"], {{"theta", StartFrom::kTheta}, {"z", StartFrom::kZ}});
  options.consensus.aux = choice<AuxTensors>(cfg["aux"], {{"admm", AuxTensors::kAdmm}, {"avg", AuxTensors::kAverage}});
  options.after_freeze = choice<AfterFreeze>(
      cfg["post"],
      {{"admm", AfterFreeze::kAdmm}, {"avg", AfterFreeze::kAverage}, {"nesterov", AfterFreeze::kNesterov}});
  options.outer.rate = cfg["outer_lr"];
  options.outer.momentum = cfg["outer_mom"];
  return options;
}

Problem::Problem(const json& oracle, int node, int local_rank) : oracle_(oracle) {
  const json& data = oracle["data"][fmt::format("{},{}", node, local_rank)];
  x_ = read_tensor(data["x"], data["x_shape"].get<std::vector<int64_t>>());
  y_ = read_tensor(data["y"], data["y_shape"].get<std::vector<int64_t>>());
  if (oracle["problem"] != "lsq") y_ = y_.to(at::kLong);
}

Replica Problem::initial_replica() const {
  Replica replica;
  TensorDict momentum;
  for (const auto& [name, shape] : oracle_["shapes"].items()) {
    const at::Tensor theta = read_tensor(oracle_["init"][name], shape.get<std::vector<int64_t>>());
    momentum.insert(name, at::zeros_like(theta));
    replica.weights.params.insert(name, theta.clone().set_requires_grad(true));
  }
  replica.optimizer.insert("momentum", momentum);
  for (const auto& [name, entries] : oracle_["init_buffers"].items()) {
    at::Tensor buffer = read_tensor(entries, {static_cast<int64_t>(entries.size())});
    const bool counter = name.ends_with("num_batches_tracked");
    replica.weights.buffers.insert(name, counter ? buffer.to(at::kLong) : buffer);
  }
  return replica;
}

void Problem::local_phase(Replica& replica, const LocalTerms& terms) const {
  oracle_["problem"] == "lsq" ? solve_least_squares(replica, terms) : train_network(replica, terms);
}

/// Row by row over [W | b]: (X'X/n + diag(rho + wd)) t = X'y/n + diag(rho) anchor, on the entries the mask leaves.
void Problem::solve_least_squares(Replica& replica, const LocalTerms& terms) const {
  at::NoGradGuard no_grad;
  at::Tensor weight = replica.weights.params["conv.weight"].detach(),
             bias = replica.weights.params["conv.bias"].detach();
  const int64_t rows = weight.size(0), width = weight.numel() / rows;
  const auto on_weight = pull_of(terms, weight, "conv.weight"), on_bias = pull_of(terms, bias, "conv.bias");
  const at::Tensor x = at::cat({x_, at::ones({x_.size(0), 1}, at::kDouble)}, 1);
  const double n = static_cast<double>(x_.size(0));
  const double decay = oracle_["cfg"]["wd_in"] == "f" ? oracle_["cfg"]["wd"].get<double>() : 0;
  const at::Tensor rho =
      at::cat({at::full({width}, on_weight.rho, at::kDouble), at::full({1}, on_bias.rho, at::kDouble)});
  const at::Tensor matrix = x.t().matmul(x) / n + at::diag(rho + decay);
  const at::Tensor anchor = at::cat({on_weight.anchor.reshape({rows, width}), on_bias.anchor.view({rows, 1})}, 1);
  const at::Tensor right = y_.t().matmul(x) / n + rho * anchor;
  const at::Tensor alive = at::cat(
      {mask_of(terms, weight, "conv.weight").reshape({rows, width}), mask_of(terms, bias, "conv.bias").view({rows, 1})},
      1);
  at::Tensor solution = at::zeros_like(right);
  for (int64_t r = 0; r < rows; ++r) {
    const at::Tensor kept = alive[r].nonzero().flatten();
    if (kept.numel() == 0) continue;
    const at::Tensor sub = matrix.index_select(0, kept).index_select(1, kept);
    const at::Tensor t = at::matmul(at::inverse(sub), right[r].index_select(0, kept).unsqueeze(1)).flatten();
    solution[r].index_copy_(0, kept, t);
  }
  weight.copy_(solution.slice(1, 0, width).reshape(weight.sizes()));
  bias.copy_(solution.select(1, width));
}

at::Tensor Problem::loss(const Weights& weights) const {
  const TensorDict& p = weights.params;
  const TensorDict& b = weights.buffers;
  const auto optional = [&](const char* name) {
    const at::Tensor* tensor = p.find(name);
    return tensor == nullptr ? std::optional<at::Tensor>() : *tensor;
  };
  const auto normalise = [&](const at::Tensor& input, const std::string& name) {
    if (p.find(name + ".weight") == nullptr) return input;
    b[name + ".num_batches_tracked"].add_(1);
    return at::batch_norm(input, p[name + ".weight"], p[name + ".bias"], b[name + ".running_mean"],
                          b[name + ".running_var"], true, 0.1, 1e-5, false);
  };
  at::Tensor h = at::conv2d(x_, p["conv1.weight"], optional("conv1.bias"), 1, 1);
  h = normalise(h, "bn1").relu();
  h = at::conv2d(h, p["conv2.weight"], {}, 2, 1);
  h = normalise(h, "bn2").relu().mean(at::IntArrayRef{2, 3});
  return at::cross_entropy_loss(at::linear(h, p["fc.weight"], p["fc.bias"]), y_);
}

void Problem::train_network(Replica& replica, const LocalTerms& terms) const {
  const json& cfg = oracle_["cfg"];
  const double lr = cfg["lr"], momentum = cfg["momentum"];
  const double decay = cfg["wd_in"] == "f" ? cfg["wd"].get<double>() : 0;
  for (int64_t step = 0; step < oracle_["local_steps"].get<int64_t>(); ++step) {
    for (auto& theta : replica.weights.params) theta.value().mutable_grad() = at::Tensor();
    loss(replica.weights).backward();
    at::NoGradGuard no_grad;
    for (auto& item : replica.weights.params) {
      at::Tensor theta = item.value().detach();
      const auto [rho, anchor] = pull_of(terms, theta, item.key());
      const at::Tensor gradient = item.value().grad() + decay * theta + rho * (theta - anchor);
      const at::Tensor mask = mask_of(terms, theta, item.key());
      at::Tensor& velocity = replica.optimizer["momentum"][item.key()];
      velocity.mul_(momentum).add_(gradient).mul_(mask);
      theta.sub_(velocity, lr).mul_(mask);
    }
  }
}

}  // namespace prunex::oracle
