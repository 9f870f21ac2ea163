// Headers that are costly to parse and used nearly everywhere; sources still include what they use.
#pragma once
#include <ATen/ATen.h>
#include <torch/ordered_dict.h>
