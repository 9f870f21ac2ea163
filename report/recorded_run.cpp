#include "report/recorded_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "prunex/text/settings.h"
#include "report/json_fields.h"

namespace prunex::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Those of an exchange that were measured, under their names in the record, in its order.
void each_measured(Exchange& exchange, const std::function<void(const char*, double&)>& use) {
  use("loss", exchange.loss);
  use("keep", exchange.keep);
  for (const auto& [name, of] : kSeconds) use(name, exchange.seconds.*of);
  for (const auto& [name, of] : kResiduals) use(name, exchange.residuals.*of);
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
  const auto add = [&](const char* name, const std::function<ordered_json(const Exchange&)>& value) {
    std::vector<ordered_json> values;
    for (const auto& exchange : exchanges) values.push_back(value(exchange));
    record[name] = column(std::move(values));
  };
  for (const auto& [name, of] : kCounted) add(name, [of = of](const Exchange& e) -> ordered_json { return e.*of; });
  std::vector<std::pair<const char*, std::vector<ordered_json>>> measured;
  for (Exchange exchange : exchanges) {
    size_t i = 0;
    each_measured(exchange, [&](const char* name, double value) {
      if (i == measured.size()) measured.push_back({name, {}});
      measured[i++].second.push_back(rounded(value));
    });
  }
  for (auto& [name, values] : measured) record[name] = column(std::move(values));
  add("frozen", [](const Exchange& e) -> ordered_json { return e.frozen ? 1 : 0; });
  add("accuracy", [](const Exchange& e) { return e.accuracy ? ordered_json(*e.accuracy) : ordered_json(); });
  return record;
}

std::vector<Exchange> exchanges_of(const json& record) {
  const int64_t count = whole_number(record.at("count"));
  if (count < 0 || static_cast<size_t>(count) > kMostExchanges) {
    throw std::invalid_argument(fmt::format("count: got {}, wanted 0 to {}", count, kMostExchanges));
  }
  if (count > 1) {  // no two are alike
    const json& steps = record.at("step");
    if (!steps.is_array() || steps.size() != static_cast<size_t>(count)) {
      throw std::invalid_argument(fmt::format("step: wanted {} numbers, as `count` says", count));
    }
  }
  std::vector<Exchange> exchanges(static_cast<size_t>(count));
  for (size_t i = 0; i < exchanges.size(); ++i) {
    Exchange& exchange = exchanges[i];
    for (const auto& [name, of] : kCounted) exchange.*of = whole_number(at(record.at(name), i));
    each_measured(exchange, [&](const char* name, double& value) { value = at(record.at(name), i).get<double>(); });
    exchange.frozen = at(record.at("frozen"), i) == 1;
    if (const auto& accuracy = at(record.at("accuracy"), i); !accuracy.is_null()) exchange.accuracy = accuracy;
  }
  return exchanges;
}

std::map<std::string, std::string> options_under(const char* key, const json& entry) {
  std::map<std::string, std::string> options;
  const json declared = part(entry, key);
  within(key, [&] {
    for (const auto& [name, value] : declared.items()) {
      options[name] = text::word_of(required<std::string>(declared, name.c_str()));
    }
  });
  return options;
}

Run recorded_run(const std::string& comparison, const json& entry) {
  const auto directory = required<std::string>(entry, "directory");
  Run run{.directory = std::filesystem::path(comparison) / directory};
  try {
    run.summary = parse_summary(member(entry, "summary"));
  } catch (const std::invalid_argument& error) {
    run.problems.push_back(fmt::format("{}/compare.json: {}: summary: {}", comparison, directory, error.what()));
  }
  if (entry.contains("exchanges")) {
    run.exchanges = within("exchanges", [&] { return exchanges_of(entry["exchanges"]); });
  }
  if (entry.contains("groups")) run.groups = parse_groups(entry);
  return run;
}

}  // namespace prunex::report
