#include "prunex/prune/axis_sums.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace prunex::prune {
namespace {

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

}  // namespace

AxisSums axis_sums(const at::Tensor& weight, const at::Tensor& other, Term term, double power) {
  TORCH_CHECK(!other.defined() || other.sizes() == weight.sizes(), "[prune] evidence of ", other.sizes(),
              " for a weight of ", weight.sizes());
  AxisSums sums = sum(rows_of(weight, other), term, static_cast<float>(power));
  if (weight.dim() < 2) sums.channels.clear();
  return sums;
}

}  // namespace prunex::prune
