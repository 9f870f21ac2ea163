// Options by name. Each stands once, with how it is read from a word, written, checked and explained; command lines,
// configuration files, resumed runs, records and docs/options.md are made of such lists.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace prunex::text {

/// How the field of an option is read and written. The field must outlive it. What is refused is a
/// std::invalid_argument "got …, wanted …".
struct OptionValue {
  std::string type;                ///< "FLOAT", "INT|auto"; empty of words and flags
  std::vector<std::string> words;  ///< that it may be; "FILE.pt2" stands for any name with this ending
  bool is_flag = false;
  bool is_list = false;  ///< read() adds to the field
  std::function<void(const std::string&)> read;
  std::function<std::string()> write = {};  ///< what read() would take; empty: nothing was said
  std::function<void()> check = {};         ///< whether the field is in range, whoever set it
};

/// When an option has an effect.
struct Condition {
  std::string with;                      ///< as a table says it: "`strategy` top_k"
  std::function<std::string()> why_not;  ///< empty while it has one, else such as "ddp has no masks"
};

struct Option {
  std::string name;   ///< "local-steps": so in files, and behind two dashes on a command line
  std::string topic;  ///< "Local training"
  OptionValue value;
  std::string help;
  std::string usual = {};                  ///< the value when the list was made
  std::vector<Condition> conditions = {};  ///< all of them
  std::string alternative = {};  ///< an option that says the same otherwise: a file says neither where one is given
  char letter = 0;               ///< -b
  bool is_positional = false;
  bool required = false;
  bool is_basic = false;    ///< one that people use: help shows it first
  bool in_files = true;     ///< a configuration file may set it
  bool may_differ = false;  ///< a run may go on with another value
  bool is_shared = false;   ///< its ranks have the same: they do together what it says
  bool is_identity = true;  ///< runs that differ in it are different variants
  bool given = false;       ///< by a command line or a file
  bool is_kept = false;     ///< given by a file, as the value that it has without, or by a run that goes on

  Option& basic() { return is_basic = true, *this; }
  Option& not_in_files() { return in_files = false, is_identity = false, may_differ = true, *this; }
  Option& resumable() { return may_differ = true, *this; }
  /// What a result does not depend on.
  Option& circumstance() { return may_differ = true, is_identity = false, *this; }
  Option& of_all_ranks() { return is_shared = true, *this; }
  Option& instead_of(std::string other) { return alternative = std::move(other), *this; }
  Option& must() { return required = true, *this; }
  Option& positional() { return is_positional = true, *this; }
  Option& short_form(char c) { return letter = c, *this; }

  /// The first condition that does not hold says why it has no effect; "" if it has one.
  std::string why_idle() const;
  void set(const std::string& word);
};

/// Messages name options as code does, in backticks: `local_steps`.
std::string field_name(const std::string& option);
/// The same for a command line: --local-steps.
std::string with_flags(std::string message);

class OptionList {
 public:
  /// Of what is added next.
  void topic(std::string name) { topic_ = std::move(name); }
  Option& add(std::string name, OptionValue value, std::string help, std::vector<Condition> conditions = {});

  Option* find(const std::string& name);
  std::vector<Option>& all() { return options_; }
  const std::vector<Option>& all() const { return options_; }

  /// Takes what the lines `name = value` of a file say for options that were not given yet, nor were their
  /// alternatives. `owner`: whose options these are. Throws std::invalid_argument that names `source` and line.
  void apply(std::string_view file, const std::string& source, const std::string& owner);
  /// Every option that has an effect, a value and a place in files, as it is now.
  std::string configuration() const;
  /// Throws std::invalid_argument that names the first field out of range.
  void check() const;
  /// Throws std::invalid_argument that names the first option that was given and has no effect. Values of a file that
  /// are the usual ones are left alone: the configuration of a run has them, beside which others may be given.
  void refuse_idle() const;

 private:
  std::vector<Option> options_;
  std::string topic_ = "Options";
};

// Ranges.

struct Range {
  double least = std::numeric_limits<double>::lowest(), most = std::numeric_limits<double>::max();
  bool without_least = false, without_most = false;  ///< the ends themselves
  bool or_zero = false;
  std::string wanted = {};  ///< empty: said by the ends

  bool holds(double value) const;
  std::string wanted_instead_of(double value) const;
};
Range at_least(double least);
Range between(double least, double most);
Range above_zero();
/// (0, 1], (0, 1), and [0, 1).
Range share();
Range inner_share();
Range below_one();

// Makers of values.

/// All of a text as a decimal number, finite; a leading + is fine. Nothing for nan, inf, hexadecimal.
template <class Number>
std::optional<Number> number_in(const std::string& text);

/// The message as std::invalid_argument, if so.
void refuse_if(bool condition, const std::string& message);
/// "got 'x', wanted …" likewise.
[[noreturn]] void refuse_value(const std::string& got, const std::string& wanted);

/// "INT", "UINT" or "FLOAT".
template <class Number>
std::string number_type() {
  return std::is_floating_point_v<Number> ? "FLOAT" : std::is_unsigned_v<Number> ? "UINT" : "INT";
}

template <class Number>
Number read_number(const std::string& word, const std::string& or_words = "");

template <class Number>
std::string write_number(Number number);

template <class Number>
void check_range(const Range& range, Number number);

template <class Number>
OptionValue number(Number& field, Range range = {}) {
  return {.type = number_type<Number>(),
          .read = [&field](const std::string& word) { field = read_number<Number>(word); },
          .write = [&field] { return write_number(field); },
          .check = [&field, range] { check_range(range, field); }};
}

/// Nothing as long as it is not given; or, with a word for that, `nothing`.
template <class Number>
OptionValue number(std::optional<Number>& field, Range range = {}, const std::string& nothing = "") {
  return {.type = number_type<Number>() + (nothing.empty() ? "" : "|" + nothing),
          .read =
              [&field, nothing](const std::string& word) {
                field = !nothing.empty() && word == nothing ? std::nullopt
                                                            : std::optional(read_number<Number>(word, nothing));
              },
          .write = [&field, nothing] { return field ? write_number(*field) : nothing; },
          .check =
              [&field, range] {
                if (field) check_range(range, *field);
              }};
}

/// A count from 0 on, or one of the words for numbers that no count is.
OptionValue count_or(int64_t& field, std::vector<std::pair<std::string, int64_t>> words, Range range);

OptionValue flag(bool& field);
/// With its word, 0 or 1 as well.
OptionValue switch_value(bool& field);
/// --no-shrink: on while the field is off.
OptionValue no_flag(bool& field);

/// NAME=NUMBER, at the last '='; nothing if the text is not that.
std::optional<std::pair<std::string, double>> assignment_in(const std::string& text);

/// What lies between the separators, empty parts too: one more than there are separators.
std::vector<std::string> parts_of(const std::string& text, char between);
/// The parts between commas that are not empty.
std::vector<std::string> split(const std::string& list);

/// With commas between.
OptionValue numbers(std::vector<double>& field, const std::string& type, const Range& range);

OptionValue text_value(std::string& field, const std::string& type = "TEXT");
/// Words with commas between.
OptionValue text_list(std::vector<std::string>& field);
/// Every word by itself: of shells.
OptionValue texts(std::vector<std::string>& field);
/// Both.
OptionValue text_lists(std::vector<std::string>& field);

/// One of the words, or, if `file` is an ending such as ".pt2", any name that ends so.
OptionValue one_of(std::string& field, std::vector<std::string> words, const std::string& file = "");
/// Throws as one_of() does.
size_t index_of(const std::string& word, const std::vector<std::string>& words);

template <class T>
OptionValue choice(T& field, const std::vector<std::pair<std::string, std::type_identity_t<T>>>& table) {
  std::vector<std::string> words;
  for (const auto& [word, meaning] : table) words.push_back(word);
  return {.words = words,
          .read = [&field, table, words](const std::string& word) { field = table[index_of(word, words)].second; },
          .write =
              [&field, table] {
                for (const auto& [word, meaning] : table) {
                  if (meaning == field) return word;
                }
                return std::string();
              }};
}

/// The same for a list of words with commas between.
template <class T>
OptionValue choices(std::vector<T>& fields, const std::vector<std::pair<std::string, T>>& table) {
  T one = table.front().second;
  OptionValue value = choice(one, table);
  value.read = [&fields, table, words = value.words](const std::string& list) {
    std::vector<T> read;
    for (const auto& word : split(list)) read.push_back(table[index_of(word, words)].second);
    fields = read;
  };
  value.write = [&fields, table] {
    std::string list;
    for (const auto& field : fields) {
      for (const auto& [word, meaning] : table) {
        if (meaning == field) list += (list.empty() ? "" : ",") + word;
      }
    }
    return list;
  };
  return value;
}

}  // namespace prunex::text
