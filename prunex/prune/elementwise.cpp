#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "prunex/prune/entries.h"

namespace prunex::prune {
namespace {

/// What an entry w adds; x is the entry of another tensor at its place.
enum class Term {
  kAbsolute,         ///< |w|
  kSquare,           ///< w^2
  kPower,            ///< |w|^power
  kProduct,          ///< w x
  kAbsoluteProduct,  ///< |w x|
  kCurvature,        ///< w^2 x
};

/// Sums over the rows and the channels of a tensor, in one pass over its memory.
struct AxisSums {
  std::vector<double> rows;      ///< by position of axis 0
  std::vector<double> channels;  ///< by position of axis 1; empty for vectors
};

constexpr int64_t kRun = 512;      // entries of a row that are added in single precision
constexpr int64_t kRowsRun = 64;   // rows that are added in single precision
constexpr int64_t kLanes = 8;      // independent sums, so that the compiler can vectorise
constexpr int64_t kNoKernels = 1;  // positions of a matrix per row and channel

/// A tensor as rows of `width` numbers: channels x kernel, or kernel x channels where channels lie innermost.
struct Rows {
  at::Tensor weight, other;  // keep the memory alive
  int64_t count = 0, channels = 0, kernel = kNoKernels;
  bool channels_innermost = false;

  int64_t width() const { return channels * kernel; }
};

Rows rows_of(const at::Tensor& weight, const at::Tensor& other) {
  Rows rows;
  rows.channels_innermost =
      weight.dim() == 4 && !weight.is_contiguous() && weight.is_contiguous(at::MemoryFormat::ChannelsLast);
  const auto format = rows.channels_innermost ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  rows.weight = weight.detach().to(at::kCPU, at::kFloat).contiguous(format);
  rows.other = other.defined() ? other.detach().to(at::kCPU, at::kFloat).contiguous(format) : rows.weight;
  rows.count = weight.dim() == 0 ? 1 : weight.size(0);
  rows.channels = weight.dim() < 2 ? 1 : weight.size(1);
  rows.kernel = weight.numel() == 0 ? 0 : weight.numel() / (rows.count * rows.channels);
  return rows;
}

/// Adds the terms of one row to `columns`; returns their sum.
template <class Term>
double add_row(const float* w, const float* x, float* columns, int64_t width, const Term& term) {
  double total = 0;
  for (int64_t begin = 0; begin < width; begin += kRun) {
    const int64_t end = std::min(begin + kRun, width);
    std::array<float, kLanes> lanes{};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const float value = term(w[i + lane], x[i + lane]);
        lanes[lane] += value;
        columns[i + lane] += value;
      }
    }
    for (; i < end; ++i) {
      const float value = term(w[i], x[i]);
      lanes[0] += value;
      columns[i] += value;
    }
    for (float lane : lanes) total += lane;
  }
  return total;
}

void fold(std::vector<float>& columns, const Rows& rows, std::vector<double>& channels) {
  for (int64_t i = 0; i < rows.width(); ++i) {
    channels[rows.channels_innermost ? i % rows.channels : i / rows.kernel] += columns[i];
  }
  std::fill(columns.begin(), columns.end(), 0.0f);
}

template <class Term>
AxisSums sum(const Rows& rows, const Term& term) {
  AxisSums sums{std::vector<double>(rows.count), std::vector<double>(rows.channels)};
  std::vector<float> columns(rows.width());
  const auto* w = rows.weight.const_data_ptr<float>();
  const auto* x = rows.other.const_data_ptr<float>();
  for (int64_t row = 0; row < rows.count; ++row) {
    const int64_t at = row * rows.width();
    sums.rows[row] = add_row(w + at, x + at, columns.data(), rows.width(), term);
    if ((row + 1) % kRowsRun == 0 || row + 1 == rows.count) fold(columns, rows, sums.channels);
  }
  return sums;
}

AxisSums sum(const Rows& rows, Term term, float power) {
  switch (term) {
    case Term::kAbsolute:
      return sum(rows, [](float w, float) { return std::abs(w); });
    case Term::kSquare:
      return sum(rows, [](float w, float) { return w * w; });
    case Term::kPower:
      return sum(rows, [power](float w, float) { return std::pow(std::abs(w), power); });
    case Term::kProduct:
      return sum(rows, [](float w, float x) { return w * x; });
    case Term::kAbsoluteProduct:
      return sum(rows, [](float w, float x) { return std::abs(w * x); });
    case Term::kCurvature:
      return sum(rows, [](float w, float x) { return w * w * x; });
  }
  return {};
}

/// `other` is undefined for terms without x, else of the same shape. Single precision in short runs, summed in double.
AxisSums axis_sums(const at::Tensor& weight, const at::Tensor& other, Term term, double power) {
  TORCH_CHECK(!other.defined() || other.sizes() == weight.sizes(), "[prune] evidence of ", other.sizes(),
              " for a weight of ", weight.sizes());
  AxisSums sums = sum(rows_of(weight, other), term, static_cast<float>(power));
  if (weight.dim() < 2) sums.channels.clear();
  return sums;
}

using sparsity::Slice;

constexpr double kObdcEpsilon = 1e-10;

Term term_of(const ImportanceOptions& options) {
  switch (options.criterion) {
    case Criterion::kTaylor:
      return options.signed_sum ? Term::kProduct : Term::kAbsoluteProduct;
    case Criterion::kHessian:
    case Criterion::kObdc:
      return Term::kCurvature;
    default:
      return options.power == 1 ? Term::kAbsolute : options.power == 2 ? Term::kSquare : Term::kPower;
  }
}

class Elementwise final : public Importance {
 public:
  Elementwise(const ImportanceOptions& options, const program::Graph& graph, TensorDict evidence)
      : entries_(options, graph), evidence_(std::move(evidence)), term_(term_of(options)) {
    if (options.criterion != Criterion::kObdc) return;
    for (auto& item : evidence_) item.value() = item.value() + kObdcEpsilon;
  }

  std::vector<UnitScores> score(const std::vector<sparsity::Group>& groups, const Weights& weights) const override {
    Sums sums;
    return entries_.score(
        groups, [&](const Slice& slice, const WeightRole& role, int64_t) { return local(slice, role, weights, sums); });
  }

  /// The p-norm of every kernel: its |w|^p is the sum that it stands for. What has no say is left out.
  Weights condensed(const Weights& weights) const override {
    if (has_evidence()) return weights;
    const at::NoGradGuard no_grad;
    Weights small;
    for (const auto& item : weights.params) {
      const at::Tensor& weight = item.value();
      if (!counts(item.key())) continue;
      const WeightRole& role = entries_.role(item.key());
      const bool has_flat_units = role.out_axis >= 0 && role.out_axis <= sparsity::kChannels && role.inputs >> 2 == 0;
      const bool kernels = weight.dim() > 2 && has_flat_units && role.kind != WeightKind::kFactor;
      small.params.insert(item.key(), kernels ? weight.flatten(2).norm(entries_.options().power, 2) : weight);
    }
    return small;
  }

  bool has_evidence() const override { return needs_evidence(entries_.options().criterion); }

 private:
  using Sums = std::map<std::pair<std::string, int64_t>, AxisSums>;

  bool counts(const std::string& tensor) const { return has_a_say(entries_.role(tensor)); }

  bool has_a_say(const WeightRole& role) const {
    const ImportanceOptions& options = entries_.options();
    if (!entries_.counts(role)) return false;
    if (options.criterion == Criterion::kBatchNormScale) return role.kind == WeightKind::kBatchNorm;
    if (options.criterion == Criterion::kObdc) return role.out_axis >= 0 || role.kind == WeightKind::kBias;
    return !(options.tp_compat && is_forgotten(role));
  }

  /// By Torch-Pruning: batch norm in Taylor, its bias also in Hessian.
  bool is_forgotten(const WeightRole& role) const {
    const bool taylor = entries_.options().criterion == Criterion::kTaylor;
    const bool hessian = entries_.options().criterion == Criterion::kHessian;
    return (taylor && role.kind == WeightKind::kBatchNorm) ||
           ((taylor || hessian) && role.kind == WeightKind::kBias && role.layer == WeightKind::kBatchNorm);
  }

  std::optional<std::vector<double>> local(const Slice& slice, const WeightRole& role, const Weights& weights,
                                           Sums& sums) const {
    if (!has_a_say(role)) return std::nullopt;
    if (entries_.options().criterion == Criterion::kObdc && role.out_axis >= 0 && slice.axis != role.out_axis) {
      return std::nullopt;
    }
    const at::Tensor* other = evidence_.find(slice.tensor);
    if (other == nullptr && has_evidence()) return std::nullopt;
    const AxisSums& both = sums_of(slice, weights, other == nullptr ? at::Tensor() : *other, sums);
    return slice.axis == sparsity::kChannels ? both.channels : both.rows;
  }

  /// Axes 0 and 1 of a tensor share a pass; a later axis becomes the rows.
  const AxisSums& sums_of(const Slice& slice, const Weights& weights, const at::Tensor& other, Sums& sums) const {
    const int64_t first = slice.axis > sparsity::kChannels ? slice.axis : 0;
    const auto found = sums.find({slice.tensor, first});
    if (found != sums.end()) return found->second;
    const at::Tensor* weight = weights.params.find(slice.tensor);
    TORCH_CHECK(weight != nullptr, "[prune] a group lies on '", slice.tensor, "', which is no parameter");
    const auto front = [&](const at::Tensor& tensor) { return first == 0 ? tensor : tensor.movedim(first, 0); };
    AxisSums made = axis_sums(front(*weight), other.defined() ? front(other) : other, term_, entries_.options().power);
    if (term_ == Term::kProduct) absolute(made);
    return sums.emplace(std::make_pair(slice.tensor, first), std::move(made)).first->second;
  }

  static void absolute(AxisSums& sums) {
    for (double& sum : sums.rows) sum = std::abs(sum);
    for (double& sum : sums.channels) sum = std::abs(sum);
  }

  Entries entries_;
  TensorDict evidence_;
  Term term_;
};

}  // namespace

std::unique_ptr<Importance> make_elementwise(const ImportanceOptions& options, const program::Graph& graph,
                                             TensorDict evidence) {
  return std::make_unique<Elementwise>(options, graph, std::move(evidence));
}

}  // namespace prunex::prune
