// JSON from files: bounded in depth, errors with line and column.
#pragma once

#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace prunex::text {

/// What walks, copies, compares or writes values recurses: deeper ones could exhaust the stack.
constexpr int kDeepestJson = 100;

/// Throws std::invalid_argument, "not valid JSON (line L, column C)" or what else is wrong at such a place; the text
/// begins in line `first_line`. The ordered form takes time in the square of an object's members.
nlohmann::json parse_json(std::string_view text, int64_t first_line = 1);
nlohmann::ordered_json parse_ordered_json(std::string_view text, int64_t first_line = 1);

/// Whether parse_json would take it.
bool is_json(std::string_view text);

/// With U+FFFD for what is no UTF-8: a file's name, say. `indent`: spaces per level; -1: all in one line.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// The names of an object's members as the text has them: in their order, repeated ones too. For valid JSON.
std::vector<std::string> member_names(std::string_view object);

/// What an error says; one of the JSON library's, without its number and its functions' names.
std::string reason(const std::exception& error);

}  // namespace prunex::text
