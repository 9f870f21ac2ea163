#include "prunex/text/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace prunex::text {
namespace {

/// Place of the byte behind `before`, counted from 1.
std::string place(std::string_view before, int64_t first_line) {
  const auto line = first_line + std::count(before.begin(), before.end(), '\n');
  const auto column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
  return fmt::format("(line {}, column {})", line, column);
}

void check_depth(std::string_view text, int64_t first_line) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    if (byte == '"') in_string = !in_string;
    if (in_string) {
      if (byte == '\\') ++i;
    } else if (byte == '[' || byte == '{') {
      if (++depth <= kDeepestJson) continue;
      throw std::invalid_argument(
          fmt::format("nested deeper than {} levels {}", kDeepestJson, place(text.substr(0, i), first_line)));
    } else if (byte == ']' || byte == '}') {
      --depth;
    }
  }
}

template <class Json>
Json parse(std::string_view text, int64_t first_line) {
  check_depth(text, first_line);
  try {
    return Json::parse(text);
  } catch (const typename Json::parse_error& error) {  // `byte` counts from 1, up to one behind the end
    const auto before = text.substr(0, std::max<size_t>(error.byte, 1) - 1);
    throw std::invalid_argument("not valid JSON " + place(before, first_line));
  } catch (const typename Json::out_of_range&) {
    throw std::invalid_argument("not valid JSON: a number is too large");
  }
}

/// Keeps the names one level below the top.
class Names final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<std::string> found;

  bool key(string_t& name) override {
    if (depth_ == 1) found.push_back(name);
    return true;
  }
  bool start_object(size_t) override { return ++depth_ > 0; }
  bool end_object() override { return depth_-- > 0; }
  bool start_array(size_t) override { return ++depth_ > 0; }
  bool end_array() override { return depth_-- > 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  int depth_ = 0;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, int64_t first_line) {
  return parse<nlohmann::json>(text, first_line);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, int64_t first_line) {
  return parse<nlohmann::ordered_json>(text, first_line);
}

bool is_json(std::string_view text) {
  try {
    parse_json(text);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::vector<std::string> member_names(std::string_view object) {
  Names names;
  nlohmann::json::sax_parse(object, &names);
  return std::move(names.found);
}

std::string reason(const std::exception& error) {
  const std::string text = error.what();
  const auto begin = text.find("] "), with = text.rfind(" with ");
  if (!text.starts_with("[json.exception.") || begin == std::string::npos) return text;
  if (!text.substr(begin).starts_with("] cannot use ") || with == std::string::npos) return text.substr(begin + 2);
  return fmt::format("got {}, wanted an object or a list", text.substr(with + std::string_view(" with ").size()));
}

}  // namespace prunex::text
