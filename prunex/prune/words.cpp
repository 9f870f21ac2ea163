#include "prunex/prune/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace prunex::prune {

void refuse_word(const std::string& word, const std::vector<std::string>& names, const char* option) {
  throw std::invalid_argument(fmt::format("{}: got '{}', wanted one of {}", option, word, fmt::join(names, ", ")));
}

}  // namespace prunex::prune
