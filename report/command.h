// What runs were told, as one would type it.
#pragma once

#include <string>

#include "report/study.h"

namespace prunex::report {

/// Empty where no file says what the runs were told; else `prunex train` with the options on which all variants agree:
/// what one types to repeat them. Options that are off or left to prunex are not named.
std::string shared_command(const Task& task);

/// Those of the variant's options that not all share.
std::string own_options(const Task& task, const Variant& variant);

/// As one word of a shell's command line, whatever the text holds.
std::string quoted(const std::string& text);

}  // namespace prunex::report
