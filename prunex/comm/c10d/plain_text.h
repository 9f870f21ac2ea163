// What c10d's backends throw, for people.
#pragma once

#include <string>

namespace prunex::comm {

/// A Gloo error without places in Gloo's sources, and with one text for all the ways in which a connection ends.
std::string plain_text(const std::string& gloo_error);

}  // namespace prunex::comm
