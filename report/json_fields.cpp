#include "report/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <iterator>

namespace prunex::report {

using nlohmann::json;

json read_json(std::istream& file) {
  return text::parse_json(std::string{std::istreambuf_iterator<char>(file), {}});
}

std::ifstream open_bounded(const std::string& path, uintmax_t most) {
  if (!std::filesystem::is_regular_file(path)) throw std::invalid_argument("not a regular file");
  const auto size = std::filesystem::file_size(path);
  if (size > most) throw std::invalid_argument(fmt::format("got {} bytes, wanted at most {}", size, most));
  std::ifstream file(path);
  if (!file) throw std::invalid_argument("cannot be opened");
  return file;
}

int64_t whole_number(const json& value) {
  constexpr double kMost = 9007199254740992;  // 2^53
  if (!value.is_number()) throw std::invalid_argument(fmt::format("got {}, wanted a number", value.type_name()));
  if (std::abs(value.get<double>()) > kMost) {
    throw std::invalid_argument(fmt::format("got {}, wanted at most 2^53", value.dump()));
  }
  return value.get<int64_t>();
}

int64_t required_whole(const json& object, const char* key) {
  const auto& value = member(object, key);
  return within(key, [&] { return whole_number(value); });
}

const json& member(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw std::invalid_argument(fmt::format("{}: missing", key));
  return *found;
}

void each(const json& list, const std::function<void(const json&)>& use) {
  if (!list.is_array()) throw std::invalid_argument(fmt::format("got {}, wanted a list", list.type_name()));
  for (size_t i = 0; i < list.size(); ++i) within(fmt::format("entry {}", i + 1), [&] { use(list[i]); });
}

void each(const json& object, const char* key, const std::function<void(const json&)>& use) {
  const auto& list = member(object, key);
  within(key, [&] { each(list, use); });
}

std::optional<double> maybe(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

double number(const json& object, const char* key) {
  return maybe(object, key).value_or(0);
}

int64_t whole(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return 0;
  return within(key, [&] { return whole_number(*found); });
}

std::string word(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

json part(const json& object, const char* key) {
  return object.contains(key) ? object[key] : json::object();
}

}  // namespace prunex::report
