#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "prunex/program/pt2/format.h"

namespace prunex::program {
namespace {

using Number = std::optional<double>;

constexpr int kMostNesting = 64;
constexpr double kMostExact = 9007199254740992;  // 2^53: integers of a double are exact up to here

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_letter(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

double floor_mod(double a, double b) {
  return a - b * std::floor(a / b);
}

Number fold(const std::vector<double>& operands, double (*combine)(double, double)) {
  if (operands.empty()) return {};
  double result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) result = combine(result, operands[i]);
  return result;
}

Number evaluate(std::string_view function, const std::vector<double>& x) {
  if (function == "Integer" && x.size() == 1) return x[0];
  if (function == "Mul") return fold(x, [](double a, double b) { return a * b; });
  if (function == "Add") return fold(x, [](double a, double b) { return a + b; });
  if (function == "Max") return fold(x, [](double a, double b) { return std::max(a, b); });
  if (function == "Min") return fold(x, [](double a, double b) { return std::min(a, b); });
  if (x.size() != 2) return {};
  if (function == "Rational" || function == "CleanDiv") return x[0] / x[1];
  if (function == "Pow") return std::pow(x[0], x[1]);
  if (function == "FloorDiv") return std::floor(x[0] / x[1]);
  if (function == "Mod" || function == "PythonMod") return floor_mod(x[0], x[1]);
  return {};
}

// Computes an expression for one batch size while reading it.
class Evaluation {
 public:
  Evaluation(std::string_view text, std::string_view symbol, double batch)
      : text_(text), symbol_(symbol), batch_(batch) {}

  Number result() {
    const auto value = term();
    return at_ == text_.size() ? value : Number();
  }

 private:
  Number term(int depth = 0) {
    if (depth > kMostNesting) return {};
    skip_spaces();
    if (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '-')) return literal();
    const auto name = identifier();
    if (name.empty() || !take('(')) return {};
    if (name == "Symbol") return symbol();
    std::vector<double> operands;
    while (!take(')')) {
      const auto operand = term(depth + 1);
      if (!operand) return {};
      operands.push_back(*operand);
      if (!take(',') && !at(')')) return {};
    }
    return evaluate(name, operands);
  }

  Number literal() {
    const auto begin = at_++;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ - begin > 18 || (text_[begin] == '-' && at_ == begin + 1)) return {};
    return static_cast<double>(std::stoll(std::string(text_.substr(begin, at_ - begin))));
  }

  std::string_view identifier() {
    const auto begin = at_;
    while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Number symbol() {
    const auto end = text_.find(')', at_);
    if (end == std::string_view::npos || end - at_ < symbol_.size() + 2) return {};
    const auto name = text_.substr(at_ + 1, symbol_.size());
    const char quote = text_[at_ + 1 + symbol_.size()];
    at_ = end + 1;
    return name == symbol_ && quote == '\'' ? Number(batch_) : Number();
  }

  bool at(char c) {
    skip_spaces();
    return at_ < text_.size() && text_[at_] == c;
  }

  bool take(char c) {
    if (!at(c)) return false;
    ++at_;
    return true;
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  std::string_view text_, symbol_;
  double batch_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::string> symbol_name(const std::string& expression) {
  constexpr std::string_view kHead = "Symbol('";
  if (!expression.starts_with(kHead) || expression.find(')') != expression.size() - 1) return {};
  const auto end = expression.find('\'', kHead.size());
  if (end == std::string::npos) return {};
  return expression.substr(kHead.size(), end - kHead.size());
}

// Sizes of networks are polynomials of low degree and floors of them: agreement at these batches is agreement.
std::optional<Extent> parse_extent(const std::string& expression, const std::string& batch) {
  constexpr std::array<double, 6> kBatches{2, 3, 5, 7, 64, 1001};
  std::array<double, kBatches.size()> values{};
  for (size_t i = 0; i < kBatches.size(); ++i) {
    const auto value = Evaluation(expression, batch, kBatches[i]).result();
    if (!value || !(std::abs(*value) <= kMostExact)) return {};
    values[i] = *value;
  }
  const double factor = values[0] / kBatches[0];
  bool constant = true, proportional = factor == std::floor(factor);
  for (size_t i = 0; i < kBatches.size(); ++i) {
    constant = constant && values[i] == values[0];
    proportional = proportional && values[i] == factor * kBatches[i];
  }
  if (constant && values[0] == std::floor(values[0])) return Extent{static_cast<int64_t>(values[0]), false};
  if (proportional) return Extent{static_cast<int64_t>(factor), true};
  return {};
}

}  // namespace prunex::program
