// Headers that are costly to parse and used by nearly every test; sources still include what they use.
#pragma once
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/ordered_dict.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>
