// One row per operation, and nothing forgotten in it: what a row must have is read from PyTorch's schemas.
#include "prunex/channels/operations.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace prunex::channels {
namespace {

std::set<std::string> arguments_of(const std::string& target) {
  if (target.starts_with("sym::")) return {"a", "b"};
  const auto dot = target.find('.');
  const auto overload = dot == std::string::npos ? "" : target.substr(dot + 1);
  std::set<std::string> names;
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(target.substr(0, dot).c_str(), overload.c_str());
  for (const auto& argument : handle.schema().arguments()) names.insert(argument.name());
  return names;
}

bool any_of(const std::set<std::string>& given, const std::set<std::string>& wanted) {
  return std::any_of(wanted.begin(), wanted.end(), [&](const auto& name) { return given.contains(name); });
}

/// What the row of an operation must have.
struct Wanted {
  bool rule = true;
  bool rewrite = false;  ///< an argument is a number of channels
  bool weights = false;  ///< an argument may be a parameter of a layer
};

Wanted wanted_of(const std::string& target) {
  const auto arguments = arguments_of(target);
  return {.rule = true,
          .rewrite = any_of(arguments, {"groups", "num_groups", "normalized_shape", "size", "shape", "sizes", "chunks",
                                        "split_size", "split_sizes", "start", "end", "length"}),
          .weights = any_of(arguments, {"weight", "params", "v"}) || program::operation_of(target).macs != nullptr};
}

TEST(Operations, OfFilesAllHaveACompleteRowOrSayWhatItLacks) {
  for (const auto& target : program::listed_operations()) {
    const Operation& row = operation_of(target);
    ASSERT_FALSE(row.names.empty()) << target << " has no row in channels/operations.cpp";
    const Wanted wanted = wanted_of(target);
    const bool complete = (!wanted.rule || row.rule != nullptr) && (!wanted.rewrite || row.rewrite != nullptr) &&
                          (!wanted.weights || row.weights != WeightKind::kOther);
    EXPECT_TRUE(complete || !row.lacks.empty()) << target << " lacks a rule, rewriting or a kind of weights";
  }
}

TEST(Operations, SayWhatTheyLackOnlyIfTheyLackIt) {
  for (const auto& target : program::listed_operations()) {
    const Operation& row = operation_of(target);
    const Wanted wanted = wanted_of(target);
    const bool complete = row.rule != nullptr && (!wanted.rewrite || row.rewrite != nullptr) &&
                          (!wanted.weights || row.weights != WeightKind::kOther);
    EXPECT_TRUE(!complete || row.lacks.empty()) << target << " says that it lacks something: " << row.lacks;
  }
}

TEST(Operations, OfRowsMayStandInFiles) {
  const auto listed = program::listed_operations();
  EXPECT_EQ(count_operations(), listed.size());
}

TEST(Operations, ThatAreLayersHaveWeightsAndMultiply) {
  for (const auto& target : program::listed_operations()) {
    const WeightKind kind = operation_of(target).weights;
    const bool multiplies = is_layer(kind) && kind != WeightKind::kEmbedding;
    EXPECT_EQ(program::operation_of(target).macs != nullptr,
              multiplies || target == "aten::scaled_dot_product_attention")
        << target;
    EXPECT_TRUE(!program::operation_of(target).layer || is_layer(kind)) << target;
  }
}

TEST(Operations, OnlyRewriteWhatTheyHaveARuleFor) {
  for (const auto& target : program::listed_operations()) {
    const Operation& row = operation_of(target);
    EXPECT_TRUE(row.rule != nullptr || (row.rewrite == nullptr && row.zero == Zero::kNever)) << target;
  }
}

}  // namespace
}  // namespace prunex::channels
