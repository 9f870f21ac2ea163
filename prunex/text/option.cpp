#include "prunex/text/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include "prunex/text/one_line.h"
#include "prunex/text/settings.h"

namespace prunex::text {
namespace {

/// Puts the option's name in front of what a value refuses.
template <class Call>
void named(const std::string& option, const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", field_name(option), error.what()));
  }
}

bool is_any_of(const std::string& word, const std::vector<std::string>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool read_flag(const std::string& word) {
  if (!is_any_of(word, {"true", "false", "1", "0"})) refuse_value(word, "true or false");
  return word == "true" || word == "1";
}

std::string flag_word(bool is_on) {
  return is_on ? "true" : "false";
}

[[noreturn]] void refuse_word(const std::string& word, const std::vector<std::string>& words,
                              const std::vector<std::string>& shown) {
  refuse_value(word, fmt::format("one of {}{}", fmt::join(shown, ", "), did_you_mean(word, words)));
}

}  // namespace

std::string Option::why_idle() const {
  for (const auto& condition : conditions) {
    if (auto why = condition.why_not(); !why.empty()) return why;
  }
  return "";
}

void Option::set(const std::string& word) {
  named(name, [&] { value.read(word); });
  given = true;
}

std::string field_name(const std::string& option) {
  std::string name = "`" + option + "`";
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string with_flags(std::string message) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  for (size_t at = 0; (at = message.find('`', at)) != std::string::npos;) {
    const size_t end = message.find_first_not_of(kLetters, at + 1);
    if (end == std::string::npos || message[end] != '`' || end == at + 1) {
      ++at;
      continue;
    }
    std::string flag = message.substr(at + 1, end - at - 1);
    std::replace(flag.begin(), flag.end(), '_', '-');
    flag.insert(0, flag.size() == 1 ? "-" : "--");
    message.replace(at, end + 1 - at, flag);
    at += flag.size();
  }
  return message;
}

Option& OptionList::add(std::string name, OptionValue value, std::string help, std::vector<Condition> conditions) {
  std::string usual = value.write ? value.write() : "";
  options_.push_back({.name = std::move(name),
                      .topic = topic_,
                      .value = std::move(value),
                      .help = std::move(help),
                      .usual = std::move(usual),
                      .conditions = std::move(conditions)});
  return options_.back();
}

Option* OptionList::find(const std::string& name) {
  const auto found = std::find_if(options_.begin(), options_.end(), [&](const Option& o) { return o.name == name; });
  return found == options_.end() ? nullptr : &*found;
}

void OptionList::apply(std::string_view file, const std::string& source, const std::string& owner) {
  std::set<std::string> settled;
  for (const auto& option : options_) {
    if (option.given) settled.insert({option.name, option.alternative});
  }
  for (const auto& setting : read_settings(file, source)) {
    try {
      Option* option = find(setting.name);
      if (option != nullptr && !option->in_files) {
        throw std::invalid_argument(
            fmt::format("'{}' goes on the command line, --{}: no file may set it", option->name, option->name));
      }
      if (option == nullptr) {
        std::vector<std::string> names;
        for (const auto& known : options_) {
          if (known.in_files) names.push_back(known.name);
        }
        throw std::invalid_argument(fmt::format("'{}' is not an option of {} that a file may set{}",
                                                one_line(setting.name), owner, did_you_mean(setting.name, names)));
      }
      if (option->value.is_flag && setting.kind != SettingKind::kSwitch) {
        named(option->name, [&] { refuse_value(one_line(setting.value), "true or false, without quotes"); });
      }
      if (settled.contains(option->name)) continue;
      option->set(setting.value);
      option->is_kept = option->value.write() == option->usual;
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("{}:{}: {}", source, setting.line, error.what()));
    }
  }
}

std::string OptionList::configuration() const {
  std::string lines;
  for (const auto& option : options_) {
    const std::string value = option.in_files && option.why_idle().empty() ? option.value.write() : "";
    if (!value.empty()) lines += setting_line(option.name, value);
  }
  return lines;
}

void OptionList::check() const {
  for (const auto& option : options_) {
    if (option.value.check) named(option.name, option.value.check);
  }
}

void OptionList::refuse_idle() const {
  for (const auto& option : options_) {
    const std::string why = option.given && !option.is_kept ? option.why_idle() : "";
    if (!why.empty()) throw std::invalid_argument(fmt::format("{}: {}", field_name(option.name), why));
  }
}

bool Range::holds(double value) const {
  if (or_zero && value == 0) return true;
  if (!std::isfinite(value)) return false;
  return (without_least ? value > least : value >= least) && (without_most ? value < most : value <= most);
}

std::string Range::wanted_instead_of(double value) const {
  if (!wanted.empty()) return wanted;
  return value > most ? fmt::format("at most {:.15g}", most) : fmt::format("{:.15g} or more", least);
}

Range at_least(double least) {
  return {.least = least};
}

Range between(double least, double most) {
  return {.least = least, .most = most};
}

Range above_zero() {
  return {.least = 0, .without_least = true, .wanted = "a number above 0"};
}

Range share() {
  return {.least = 0, .most = 1, .without_least = true, .wanted = "a share in (0, 1]"};
}

Range inner_share() {
  return {.least = 0, .most = 1, .without_least = true, .without_most = true, .wanted = "a share in (0, 1)"};
}

Range below_one() {
  return {.least = 0, .most = 1, .without_most = true, .wanted = "a number in [0, 1)"};
}

template <class Number>
std::optional<Number> number_in(const std::string& text) {
  const char* end = text.data() + text.size();
  const char* begin = text.data() + (text.starts_with('+') && !text.starts_with("+-") ? 1 : 0);
  Number value{};
  const auto [rest, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || rest != end || !std::isfinite(static_cast<double>(value))) return std::nullopt;
  return value;
}
template std::optional<int64_t> number_in(const std::string&);
template std::optional<double> number_in(const std::string&);

void refuse_if(bool condition, const std::string& message) {
  if (condition) throw std::invalid_argument(message);
}

void refuse_value(const std::string& got, const std::string& wanted) {
  throw std::invalid_argument(fmt::format("got '{}', wanted {}", got, wanted));
}

template <class Number>
Number read_number(const std::string& word, const std::string& or_words) {
  using Wide = std::conditional_t<std::is_floating_point_v<Number>, double, int64_t>;
  const auto number = number_in<Wide>(word);
  const std::string others = or_words.empty() ? "" : " or " + or_words;
  const char* kind = std::is_floating_point_v<Number> ? "a number"
                     : std::is_unsigned_v<Number>     ? "a whole number from 0"
                                                      : "a whole number";
  if (!number) refuse_value(word, (kind + std::string(std::is_unsigned_v<Number> ? " on" : "")) + others);
  if constexpr (std::is_unsigned_v<Number>) {
    if (*number < 0) refuse_value(word, fmt::format("{} to {}", kind, std::numeric_limits<int64_t>::max()));
  } else if constexpr (sizeof(Number) < sizeof(Wide)) {
    constexpr auto kMost = std::numeric_limits<Number>::max();
    if (std::abs(static_cast<double>(*number)) > kMost) {
      refuse_value(word, fmt::format("a whole number of at most {}", kMost));
    }
  }
  return static_cast<Number>(*number);
}

template <class Number>
std::string write_number(Number number) {
  return fmt::format("{}", number);
}

template <class Number>
void check_range(const Range& range, Number number) {
  const auto value = static_cast<double>(number);
  if (range.holds(value)) return;
  throw std::invalid_argument(fmt::format("got {}, wanted {}", number, range.wanted_instead_of(value)));
}

#define PRUNEX_NUMBER(type)                                                \
  template type read_number<type>(const std::string&, const std::string&); \
  template std::string write_number<type>(type);                           \
  template void check_range<type>(const Range&, type);
PRUNEX_NUMBER(int)
PRUNEX_NUMBER(int64_t)
PRUNEX_NUMBER(uint64_t)
PRUNEX_NUMBER(double)
#undef PRUNEX_NUMBER

OptionValue count_or(int64_t& field, std::vector<std::pair<std::string, int64_t>> words, Range range) {
  std::vector<std::string> names;
  for (const auto& [word, meaning] : words) names.push_back(word);
  return {.type = fmt::format("INT|{}", fmt::join(names, "|")),
          .read =
              [&field, words, names](const std::string& word) {
                for (const auto& [name, meaning] : words) {
                  if (word == name) {
                    field = meaning;
                    return;
                  }
                }
                const auto number = number_in<int64_t>(word);
                if (!number || *number < 0) {
                  refuse_value(word, fmt::format("a whole number from 0 on or {}", fmt::join(names, " or ")));
                }
                field = *number;
              },
          .write =
              [&field, words] {
                for (const auto& [name, meaning] : words) {
                  if (field == meaning) return name;
                }
                return write_number(field);
              },
          .check =
              [&field, words, range] {
                const auto is_word = [&](const auto& word) { return field == word.second; };
                if (!std::any_of(words.begin(), words.end(), is_word)) check_range(range, field);
              }};
}

OptionValue flag(bool& field) {
  return {.is_flag = true,
          .read = [&field](const std::string& word) { field = read_flag(word); },
          .write = [&field] { return flag_word(field); }};
}

OptionValue switch_value(bool& field) {
  OptionValue value = flag(field);
  value.is_flag = false;
  value.type = "BOOLEAN";
  return value;
}

OptionValue no_flag(bool& field) {
  return {.is_flag = true,
          .read = [&field](const std::string& word) { field = !read_flag(word); },
          .write = [&field] { return flag_word(!field); }};
}

std::optional<std::pair<std::string, double>> assignment_in(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  const auto number = number_in<double>(text.substr(equals + 1));
  return number ? std::optional(std::pair(text.substr(0, equals), *number)) : std::nullopt;
}

std::vector<std::string> parts_of(const std::string& text, char between) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == between) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts = parts_of(list, ',');
  std::erase(parts, "");
  if (parts.empty() && !list.empty()) refuse_value(list, "words with commas between");
  return parts;
}

OptionValue numbers(std::vector<double>& field, const std::string& type, const Range& range) {
  const auto read = [&field](const std::string& list) {
    field.clear();
    for (const auto& word : split(list)) field.push_back(read_number<double>(word));
  };
  const auto check = [&field, range] {
    for (const double one : field) check_range(range, one);
  };
  return {.type = type,
          .read = read,
          .write = [&field] { return fmt::format("{}", fmt::join(field, ",")); },
          .check = check};
}

OptionValue text_value(std::string& field, const std::string& type) {
  return {
      .type = type, .read = [&field](const std::string& word) { field = word; }, .write = [&field] { return field; }};
}

OptionValue text_list(std::vector<std::string>& field) {
  return {.type = "TEXT",
          .read = [&field](const std::string& list) { field = split(list); },
          .write = [&field] { return fmt::format("{}", fmt::join(field, ",")); }};
}

OptionValue texts(std::vector<std::string>& field) {
  return {.type = "TEXT", .is_list = true, .read = [&field](const std::string& word) { field.push_back(word); }};
}

OptionValue text_lists(std::vector<std::string>& field) {
  OptionValue value = texts(field);
  value.read = [&field](const std::string& list) {
    for (const auto& word : split(list)) field.push_back(word);
  };
  return value;
}

OptionValue one_of(std::string& field, std::vector<std::string> words, const std::string& file) {
  std::vector<std::string> shown = words;
  std::erase(shown, "");
  if (!file.empty()) shown.push_back("FILE" + file);
  const auto expect = [words = std::move(words), shown, file](const std::string& word) {
    const bool fits = is_any_of(word, words) || (!file.empty() && word.ends_with(file));
    if (!fits) refuse_word(word, words, shown);
  };
  return {.words = shown,
          .read = [&field, expect](const std::string& word) { expect(word), field = word; },
          .write = [&field] { return field; },
          .check =
              [&field, expect] {
                if (!field.empty()) expect(field);
              }};
}

size_t index_of(const std::string& word, const std::vector<std::string>& words) {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) refuse_word(word, words, words);
  return static_cast<size_t>(found - words.begin());
}

}  // namespace prunex::text
