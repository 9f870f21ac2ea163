#include "prunex/prune/regularizer.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

#include "prunex/program/program.h"
#include "prunex/prune/plan.h"
#include "prunex/prune/pruner.h"
#include "prunex/prune/words.h"

namespace prunex::prune {
namespace {

constexpr double kSteepest = 4;      // of kGroupNorm: 2^4 for the weakest unit
constexpr double kLeastNorm = 1e-2;  // of kGroupLasso: below it the pull falls with the norm, and units come to rest
constexpr double kLeastVariance = 1e-9;  // of kGroupBnScale

/// With the strength that is usual.
const Words<std::pair<Penalty, double>>& penalties() {
  static const Words<std::pair<Penalty, double>> words = {{"none", {Penalty::kNone, 0}},
                                                          {"bn_scale", {Penalty::kBnScale, 1e-5}},
                                                          {"group_bn_scale", {Penalty::kGroupBnScale, 1e-5}},
                                                          {"group_norm", {Penalty::kGroupNorm, 5e-4}},
                                                          {"growing", {Penalty::kGrowing, 1e-4}},
                                                          {"group_lasso", {Penalty::kGroupLasso, 0}}};
  return words;
}

/// What the coefficients of a penalty are functions of.
ImportanceOptions scores_for(Penalty penalty) {
  switch (penalty) {
    case Penalty::kGroupBnScale:
      return {.criterion = Criterion::kBatchNormScale, .power = 2, .normalizer = Normalizer::kNone};
    case Penalty::kGroupLasso:
      return {.reduction = Reduction::kSum, .normalizer = Normalizer::kNone};
    case Penalty::kGroupNorm:
      return {.normalizer = Normalizer::kMax};
    default:
      return {};
  }
}

/// 1 for the lowest, 0 for the highest; 0 for all if they are equal.
std::vector<double> weakness(const UnitScores& scores, bool of_roots) {
  std::vector<double> t;
  for (const double score : scores) t.push_back(of_roots ? std::sqrt(score) : score);
  const auto [low, high] = std::minmax_element(t.begin(), t.end());
  const double least = *low, most = *high, spread = most - least;
  for (double& value : t) value = spread > 0 && std::isfinite(spread) ? (most - value) / spread : 0;
  return t;
}

/// Adds factor times rows[i] times channels[j] times the entry to the gradient of every entry, in the order of memory.
template <class T>
void add_products(const at::Tensor& weight, at::Tensor& gradient, const double* rows, const double* channels,
                  double factor) {
  const T* w = weight.const_data_ptr<T>();
  T* g = gradient.mutable_data_ptr<T>();
  const int64_t n = weight.size(0), c = weight.dim() > 1 ? weight.size(1) : 1, rest = weight.numel() / (n * c);
  const bool channels_last = weight.dim() > 1 && weight.stride(1) == 1 && rest > 1;
  std::vector<T> by_channel(static_cast<size_t>(c), T{0});
  if (channels != nullptr) {
    for (int64_t k = 0; k < c; ++k) by_channel[static_cast<size_t>(k)] = static_cast<T>(factor * channels[k]);
  }
  for (int64_t i = 0; i < n; ++i) {
    const T row = rows == nullptr ? T{0} : static_cast<T>(factor * rows[i]);
    if (channels_last) {
      for (int64_t j = 0; j < rest; ++j, w += c, g += c) {
        for (int64_t k = 0; k < c; ++k) g[k] += (row + by_channel[static_cast<size_t>(k)]) * w[k];
      }
    } else {
      for (int64_t k = 0; k < c; ++k, w += rest, g += rest) {
        const T both = row + by_channel[static_cast<size_t>(k)];
        for (int64_t j = 0; j < rest; ++j) g[j] += both * w[j];
      }
    }
  }
}

[[noreturn]] void refuse_size_of(const std::string& name, const at::Tensor& weight) {
  throw std::invalid_argument(
      fmt::format("the penalties of {} are of another size than [{}]: they were made before it was pruned", name,
                  fmt::join(weight.sizes(), ", ")));
}

bool is_walkable(const at::Tensor& weight) {
  return weight.is_contiguous() || weight.is_contiguous(at::MemoryFormat::ChannelsLast) ||
         weight.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

/// The vector along one axis of a weight, for broadcasting.
at::Tensor along(const at::Tensor& vector, const at::Tensor& weight, int64_t axis) {
  std::vector<int64_t> shape(static_cast<size_t>(weight.dim()), 1);
  shape[static_cast<size_t>(axis)] = weight.size(axis);
  return vector.to(weight.options().requires_grad(false)).view(shape);
}

/// add_products()'s numbers where memory is not ours to walk through.
void add_products_on_device(const at::Tensor& weight, at::Tensor& gradient, const at::Tensor* rows,
                            const at::Tensor* channels, double factor) {
  const auto scaled = [&](const at::Tensor& vector, int64_t axis) { return along(vector * factor, weight, axis); };
  at::Tensor both = rows != nullptr ? scaled(*rows, sparsity::kRows) : scaled(*channels, sparsity::kChannels);
  if (rows != nullptr && channels != nullptr) both = both + scaled(*channels, sparsity::kChannels);
  gradient.add_(both * weight);
}

}  // namespace

std::vector<std::string> penalty_names() {
  return names_of(penalties());
}

Penalty penalty_named(const std::string& name) {
  return meaning_of(name, penalties(), "`sparse`").first;
}

double usual_strength(Penalty penalty) {
  const auto is_it = [&](const auto& word) { return word.second.first == penalty; };
  return std::find_if(penalties().begin(), penalties().end(), is_it)->second.second;
}

Regularizer::Regularizer(const RegularizerOptions& options, const channels::Analysis& analysis) : options_(options) {
  find_groups(analysis);
  if (options_.penalty == Penalty::kNone) return;
  const auto refuse = [](const char* what) { throw std::invalid_argument(std::string("`sparse`: ") + what); };
  if (weights_.empty()) {
    refuse(is_of_scales() ? "the network has no batch norm whose scales could become smaller"
                          : "the network has no layer whose weights could become smaller");
  }
  const bool chooses = options_.penalty == Penalty::kGroupLasso && options_.strength == 0;
  if (chooses && (options_.first_loss <= 0 || options_.loss_share <= 0 || options_.loss_share >= 1)) {
    refuse("a strength is chosen by `first_loss` above 0 and a `loss_share` in (0, 1)");
  }
  if (options_.penalty == Penalty::kBnScale) return;
  const auto scores = importance_->score(groups_, program::zero_weights(analysis.graph()));
  if (std::all_of(scores.begin(), scores.end(), [](const UnitScores& group) { return group.empty(); })) {
    refuse(is_of_scales() ? "no channels that could be removed have batch norm, whose scales could become smaller"
                          : "the network has no channels that could be removed, whose weights could become smaller");
  }
}

bool Regularizer::is_of_scales() const {
  return options_.penalty == Penalty::kBnScale || options_.penalty == Penalty::kGroupBnScale;
}

void Regularizer::find_groups(const channels::Analysis& analysis) {
  const std::set<std::string> spared = ignored_groups(analysis, options_.ignore);
  std::set<std::string> spared_weights;
  for (const auto& group : analysis.groups()) {
    if (!spared.contains(group.name)) continue;
    for (const auto& slice : group.slices) spared_weights.insert(slice.tensor);
  }
  groups_ = analysis.removable();
  std::erase_if(groups_, [&](const auto& group) { return spared.contains(group.name); });
  note(analysis.graph());
  for (const auto& [name, role] : analysis.roles()) {
    const bool carries = is_of_scales()
                             ? role.kind == channels::WeightKind::kBatchNorm
                             : role.kind != channels::WeightKind::kBias && role.kind != channels::WeightKind::kOther;
    const bool is_spared =
        is_of_scales() && spared_weights.contains(name);  // of others, groups_ say what is left alone
    if (carries && !is_spared) weights_.push_back(name);
  }
}

/// What the network is now, in which groups_ lie.
void Regularizer::note(const program::Graph& graph) {
  importance_ = make_importance(scores_for(options_.penalty), graph);
  for (const program::Value& value : graph.values) {
    if (value.role == program::Role::kParameter) sizes_[graph.owner(value.weight)] = program::sizes_of(value.shape, 1);
  }
}

void Regularizer::expect_noted(const TensorDict& params) const {
  for (const auto& [name, sizes] : sizes_) {
    const at::Tensor* weight = params.find(name);
    if (weight != nullptr && weight->sizes() != at::IntArrayRef(sizes)) refuse_size_of(name, *weight);
  }
}

bool Regularizer::counts(const std::string& tensor) const {
  return std::binary_search(weights_.begin(), weights_.end(), tensor);
}

void Regularizer::choose_strength(const std::vector<UnitScores>& scores) {
  if (options_.penalty != Penalty::kGroupLasso || options_.strength > 0) return;
  double norms = 0;
  for (const UnitScores& group : scores) {
    for (const double square : group) norms += std::sqrt(square);
  }
  TORCH_CHECK(norms > 0, "[prune] no unit that a group lasso could take hold of");
  options_.strength = options_.loss_share / (1 - options_.loss_share) * options_.first_loss / norms;
}

std::vector<double> Regularizer::coefficients(const UnitScores& scores) const {
  std::vector<double> by_unit(scores.size());
  const double strength = options_.strength;
  const bool relative = options_.penalty == Penalty::kGroupNorm || options_.penalty == Penalty::kGrowing;
  const auto t = relative ? weakness(scores, options_.penalty == Penalty::kGroupNorm) : by_unit;
  for (size_t k = 0; k < scores.size(); ++k) {
    switch (options_.penalty) {
      case Penalty::kGroupNorm:
        by_unit[k] = strength * std::exp2(kSteepest * t[k]);
        break;
      case Penalty::kGrowing:
        by_unit[k] = options_.growth * t[k];
        break;
      case Penalty::kGroupBnScale:
        by_unit[k] = strength / std::sqrt(scores[k] + kLeastVariance);
        break;
      default:
        by_unit[k] = strength / std::sqrt(scores[k] + kLeastNorm * kLeastNorm);
    }
  }
  return by_unit;
}

/// Positions += the coefficients of their units.
void Regularizer::spread(const sparsity::Group& group, const std::vector<double>& by_unit, const Weights& weights) {
  for (const sparsity::Slice& slice : group.slices) {
    const at::Tensor* weight = weights.params.find(slice.tensor);
    if (weight == nullptr || slice.axis > sparsity::kChannels || !counts(slice.tensor)) continue;
    at::Tensor& places = coefficients_[{slice.tensor, slice.axis}];
    if (!places.defined()) places = at::zeros({weight->size(slice.axis)}, at::kDouble);
    double* place = places.mutable_data_ptr<double>();
    const auto block = static_cast<size_t>(slice.positions_per_unit(static_cast<int64_t>(by_unit.size())));
    for (size_t i = 0; i < by_unit.size() * block; ++i) {
      place[slice.index.empty() ? static_cast<int64_t>(i) : slice.index[i]] += by_unit[i / block];
    }
  }
}

void Regularizer::refresh(const Weights& weights, double epochs) {
  at::NoGradGuard no_grad;
  placed_.clear();
  if (options_.penalty == Penalty::kNone) return;
  expect_noted(weights.params);
  if (options_.penalty == Penalty::kBnScale) {
    for (const auto& name : weights_) {
      if (weights.params.contains(name)) {
        coefficients_[{name, sparsity::kRows}] =
            at::full_like(weights.params[name], options_.strength, at::kDouble).cpu();
      }
    }
    return;
  }
  const bool first = coefficients_.empty();
  const bool grows = options_.penalty == Penalty::kGrowing;
  const auto scores = importance_->score(groups_, weights);
  if (first) choose_strength(scores);
  if (!grows) coefficients_.clear();
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (scores[i].empty()) continue;
    if (grows && first) spread(groups_[i], std::vector<double>(scores[i].size(), options_.strength), weights);
    std::vector<double> by_unit = coefficients(scores[i]);
    if (grows) {
      for (double& growth : by_unit) growth *= epochs;
    }
    spread(groups_[i], by_unit, weights);
  }
}

const std::map<Regularizer::Place, at::Tensor>& Regularizer::placed_with(const at::Tensor& weight) const {
  if (weight.is_cpu()) return coefficients_;
  if (placed_.empty()) {
    for (const auto& [place, positions] : coefficients_) placed_[place] = positions.to(weight.device());
  }
  return placed_;
}

void Regularizer::add_to_gradients(TensorDict& params, double factor) const {
  at::NoGradGuard no_grad;
  if (params.is_empty()) return;
  const auto& coefficients = placed_with(params.front().value());
  for (auto entry = coefficients.begin(); entry != coefficients.end();) {
    const std::string& name = entry->first.first;
    const at::Tensor *rows = nullptr, *channels = nullptr;
    for (; entry != coefficients.end() && entry->first.first == name; ++entry) {
      (entry->first.second == sparsity::kRows ? rows : channels) = &entry->second;
    }
    at::Tensor* parameter = params.find(name);
    if (parameter == nullptr || !parameter->grad().defined()) continue;
    const at::Tensor weight = parameter->detach();
    if ((rows != nullptr && rows->numel() != weight.size(0)) ||
        (channels != nullptr && (weight.dim() < 2 || channels->numel() != weight.size(1)))) {
      refuse_size_of(name, weight);
    }
    at::Tensor& gradient = parameter->mutable_grad();
    if (options_.penalty == Penalty::kBnScale) {
      gradient.addcmul_(weight.sign(), along(*rows, weight, 0), factor);
      continue;
    }
    if (!weight.is_cpu()) {
      add_products_on_device(weight, gradient, rows, channels, factor);
      continue;
    }
    if (!is_walkable(weight)) {
      if (rows != nullptr) gradient.addcmul_(weight, along(*rows, weight, 0), factor);
      if (channels != nullptr) gradient.addcmul_(weight, along(*channels, weight, 1), factor);
      continue;
    }
    if (gradient.strides() != weight.strides()) gradient = at::empty_like(weight).copy_(gradient);
    const double* by_row = rows == nullptr ? nullptr : rows->const_data_ptr<double>();
    const double* by_channel = channels == nullptr ? nullptr : channels->const_data_ptr<double>();
    AT_DISPATCH_FLOATING_TYPES(weight.scalar_type(), "add_to_gradients",
                               [&] { add_products<scalar_t>(weight, gradient, by_row, by_channel, factor); });
  }
}

void Regularizer::cut(const channels::Analysis& analysis, const sparsity::Cut& cut) {
  groups_ = remaining_groups(groups_, sparsity::units_left(groups_, cut), cut);
  note(analysis.graph());
  placed_.clear();
  for (auto& [place, positions] : coefficients_) {
    const auto& kept = cut.tensors.at(place.first).kept;
    const auto axis = kept.find(place.second);
    if (axis != kept.end()) positions = positions.index_select(0, at::tensor(axis->second, at::kLong));
  }
}

TensorDict Regularizer::state() const {
  TensorDict state;
  state.insert("strength", at::tensor({options_.strength}, at::kDouble));
  for (const auto& [place, positions] : coefficients_) {
    state.insert(fmt::format("{}/{}", place.second, place.first), positions);
  }
  return state;
}

void Regularizer::load(const TensorDict& state) {
  coefficients_.clear();
  placed_.clear();
  for (const auto& item : state) {
    const auto& name = item.key();
    const at::Tensor& value = item.value();
    const bool of_rows = name.starts_with("0/"), of_channels = name.starts_with("1/");
    if (name == "strength" && value.numel() == 1) {
      options_.strength = value.item<double>();
    } else if ((of_rows || of_channels) && value.dim() == 1 && value.scalar_type() == at::kDouble) {
      coefficients_[{name.substr(2), of_rows ? sparsity::kRows : sparsity::kChannels}] = value.cpu().clone();
    } else {
      throw std::invalid_argument(
          fmt::format("tensor {} is none of a penalty's: wanted \"strength\", a number, and "
                      "\"0/TENSOR\" and \"1/TENSOR\", one double per position",
                      name));
    }
  }
}

}  // namespace prunex::prune
