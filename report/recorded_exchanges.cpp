#include "report/recorded_exchanges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "report/json_fields.h"

namespace prunex::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// A quantity of an exchange under its name in the record.
struct Measured {
  const char* name;
  std::function<double&(Exchange&)> of;
};
struct Counted {
  const char* name;
  int64_t Exchange::*of;
};

const std::vector<Counted>& counted() {
  static const std::vector<Counted> all{{"exchange", &Exchange::index},
                                        {"step", &Exchange::step},
                                        {"samples", &Exchange::samples},
                                        {"mask_changes", &Exchange::mask_changes},
                                        {"parameters", &Exchange::parameters},
                                        {"macs", &Exchange::macs},
                                        {"inter_node_bytes", &Exchange::inter_node_bytes},
                                        {"inter_node_bytes_bound", &Exchange::inter_node_bytes_bound},
                                        {"intra_node_bytes", &Exchange::intra_node_bytes}};
  return all;
}

const std::vector<Measured>& measured() {
  static const std::vector<Measured> all{
      {"loss", [](Exchange& e) -> double& { return e.loss; }},
      {"keep", [](Exchange& e) -> double& { return e.keep; }},
      {"local", [](Exchange& e) -> double& { return e.seconds.local; }},
      {"intra", [](Exchange& e) -> double& { return e.seconds.intra; }},
      {"project", [](Exchange& e) -> double& { return e.seconds.project; }},
      {"inter", [](Exchange& e) -> double& { return e.seconds.inter; }},
      {"dual", [](Exchange& e) -> double& { return e.seconds.dual; }},
      {"evaluate", [](Exchange& e) -> double& { return e.seconds.evaluate; }},
      {"total", [](Exchange& e) -> double& { return e.seconds.total; }},
      {"r_intra", [](Exchange& e) -> double& { return e.residuals.r_intra; }},
      {"s_intra", [](Exchange& e) -> double& { return e.residuals.s_intra; }},
      {"r_inter", [](Exchange& e) -> double& { return e.residuals.r_inter; }},
      {"s_inter", [](Exchange& e) -> double& { return e.residuals.s_inter; }},
  };
  return all;
}

double rounded(double value) {
  return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
}

ordered_json column(std::vector<ordered_json> values) {
  const bool constant = std::all_of(values.begin(), values.end(), [&](const auto& v) { return v == values.front(); });
  return constant ? values.front() : ordered_json(std::move(values));
}

const json& at(const json& column, size_t i) {
  return column.is_array() ? column.at(i) : column;
}

}  // namespace

ordered_json record_of(const std::vector<Exchange>& exchanges) {
  ordered_json record{{"count", exchanges.size()}};
  if (exchanges.empty()) return record;
  const auto add = [&](const char* name, const std::function<ordered_json(Exchange)>& value) {
    std::vector<ordered_json> values;
    for (const auto& exchange : exchanges) values.push_back(value(exchange));
    record[name] = column(std::move(values));
  };
  for (const auto& [name, of] : counted()) add(name, [of = of](Exchange e) -> ordered_json { return e.*of; });
  for (const auto& one : measured()) add(one.name, [&](Exchange e) -> ordered_json { return rounded(one.of(e)); });
  add("frozen", [](Exchange e) -> ordered_json { return e.frozen ? 1 : 0; });
  add("accuracy", [](Exchange e) { return e.accuracy ? ordered_json(*e.accuracy) : ordered_json(); });
  return record;
}

std::vector<Exchange> exchanges_of(const json& record) {
  const int64_t count = whole_number(record.at("count"));
  if (count < 0 || static_cast<size_t>(count) > kMostExchanges) {
    throw std::invalid_argument(fmt::format("count: got {}, wanted 0 to {}", count, kMostExchanges));
  }
  std::vector<Exchange> exchanges(static_cast<size_t>(count));
  for (size_t i = 0; i < exchanges.size(); ++i) {
    Exchange& exchange = exchanges[i];
    for (const auto& [name, of] : counted()) exchange.*of = whole_number(at(record.at(name), i));
    for (const auto& one : measured()) one.of(exchange) = at(record.at(one.name), i).get<double>();
    exchange.frozen = at(record.at("frozen"), i) == 1;
    if (const auto& accuracy = at(record.at("accuracy"), i); !accuracy.is_null()) exchange.accuracy = accuracy;
  }
  return exchanges;
}

}  // namespace prunex::report
