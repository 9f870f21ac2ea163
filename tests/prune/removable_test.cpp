#include "prunex/prune/pruner.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "prunex/channels/analysis.h"
#include "prunex/program/builder.h"
#include "prunex/program/pt2.h"
#include "prunex/prune/training_groups.h"

namespace prunex::prune {
namespace {

using program::Builder;
using program::Model;
using program::ValueId;

struct Removable {
  std::vector<sparsity::Group> groups;
  sparsity::Masks alive;
};

/// stem (4) -> a (6) -> b (4), added to the stem, read by c (5); each with batch norm but c.
Model shortcut_network() {
  Builder net(0);
  const ValueId x = net.relu(net.batch_norm("bn", net.conv2d("stem", net.input("x", {2, 8, 8}), {.out = 4})));
  ValueId y = net.relu(net.batch_norm("bn_a", net.conv2d("a", x, {.out = 6, .kernel = 3, .padding = 1})));
  y = net.conv2d("c", net.add(net.batch_norm("bn_b", net.conv2d("b", y, {.out = 4})), x), {.out = 5});
  return std::move(net).finish(net.linear("fc", net.mean(y, {2, 3}), {.out = 3}));
}

struct Dead {
  std::string group;  ///< of training_groups
  std::vector<int64_t> units;
};

at::Tensor waves(at::IntArrayRef sizes) {
  return at::linspace(-1, 1, c10::multiply_integers(sizes)).sin().reshape(sizes);
}

/// Masks the model's weights and cuts what that makes useless; the outputs must not change.
Removable expect_exact(const std::string& words, const std::vector<Dead>& dead, Model model = shortcut_network(),
                       const std::vector<at::Tensor>& inputs = {waves({2, 2, 8, 8})}) {
  const at::NoGradGuard no_grad;
  const channels::Analysis analysis(model.program);
  const auto groups = training_groups(analysis, words, 0.5);
  sparsity::Masks masks = sparsity::full_masks(groups);
  for (const Dead& each : dead) masks[each.group].index_fill_(0, at::tensor(each.units, at::kLong), false);
  const auto supports = sparsity::supports_of(groups, masks, model.weights.params);
  sparsity::apply_supports(model.weights.params, supports);
  const at::Tensor expected = model.program.run(inputs, model.weights, program::Mode::kEval)[0];

  Removable removable{analysis.removable(), units_read(analysis, supports)};
  const auto cut = sparsity::make_cut(removable.groups, removable.alive, sparsity::shapes_of(model.weights));
  const auto small = channels::cut_program(analysis, cut);
  sparsity::apply_cut(model.weights, cut);
  const at::Tensor actual = small.run(inputs, model.weights, program::Mode::kEval)[0];
  EXPECT_LT((actual - expected).abs().max().item<double>(), 1e-5 * expected.abs().max().item<double>());
  return removable;
}

std::vector<int64_t> alive(const Removable& removable, const std::string& group) {
  const at::Tensor units = removable.alive[group].nonzero().flatten();
  return {units.const_data_ptr<int64_t>(), units.const_data_ptr<int64_t>() + units.numel()};
}

TEST(Removable, UnitsOfCoupledGroupsThatAreMasked) {
  const Removable removable = expect_exact("coupled", {{"a", {1, 4}}, {"b", {0}}});
  EXPECT_EQ(alive(removable, "a"), (std::vector<int64_t>{0, 2, 3, 5}));
  EXPECT_EQ(alive(removable, "b"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(alive(removable, "c").size(), 5u);
}

TEST(Removable, FiltersWhoseOutputNobodyReads) {
  EXPECT_EQ(alive(expect_exact("channel", {{"channel:b", {0, 3}}}), "a"), (std::vector<int64_t>{1, 2, 4, 5}));
}

TEST(Removable, AStreamLosesWhatAllItsReadersLost) {
  const Removable removable = expect_exact("channel", {{"channel:a", {0, 1}}, {"channel:c", {1, 2}}});
  EXPECT_EQ(alive(removable, "b"), (std::vector<int64_t>{0, 2, 3}));
}

// Columns of a: channel 1 of its 3x3 kernel owns columns 9 to 17.
TEST(Removable, AChannelDiesWithItsLastColumn) {
  const std::vector<int64_t> all{9, 10, 11, 12, 13, 14, 15, 16, 17}, most(all.begin() + 1, all.end());
  EXPECT_EQ(alive(expect_exact("shape", {{"shape:a", all}, {"shape:c", {1}}}), "b").size(), 3u);
  EXPECT_EQ(alive(expect_exact("shape", {{"shape:a", most}, {"shape:c", {1}}}), "b").size(), 4u);
}

/// stem (4) -> up (3), transposed, so that the stem's channels lie on its rows.
Model transposed() {
  Builder net(0);
  const ValueId x = net.relu(net.conv2d("stem", net.input("x", {2, 8, 8}), {.out = 4}));
  Model model = std::move(net).finish(net.conv2d("up", x, {.out = 3}));
  program::Graph graph = model.program.graph();
  program::Node& up = graph.nodes.back();
  up.target = "aten::conv_transpose2d.input";
  program::Value& weight = graph.values[up.tensor("weight")];
  std::swap(weight.shape[0], weight.shape[1]);
  at::Tensor& tensor = model.weights.params["up.weight"];
  tensor = tensor.detach().transpose(0, 1).contiguous();
  return {program::Program(graph), model.weights};
}

TEST(Removable, ATransposedConvolutionReadsItsRows) {
  EXPECT_EQ(alive(expect_exact("coupled", {{"stem", {1, 2}}}, transposed()), "stem"), (std::vector<int64_t>{0, 3}));
}

// Whether what follows keeps a masked filter's zeros at zero is not looked at.
TEST(Removable, MaskedFiltersThatAreReadStay) {
  EXPECT_EQ(alive(expect_exact("filter", {{"filter:a", {2}}}), "a").size(), 6u);
}

// Queries and keys meet in a product: no weight reads them.
TEST(Removable, FeaturesOfQueriesAndKeysThatAreMasked) {
  const auto model_of = [](const std::string& name) {
    return program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/" + name + ".pt2");
  };
  const std::vector<at::Tensor> sequence{waves({2, 5, 6})}, sequences{waves({2, 5, 4}), waves({2, 3, 6})};
  const Removable separate =
      expect_exact("coupled", {{"k", {1, 2}}, {"v", {0}}}, model_of("attention_separate_qkv"), sequence);
  EXPECT_EQ(alive(separate, "k"), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(alive(separate, "v"), (std::vector<int64_t>{1, 2, 3}));
  const Removable cross = expect_exact("coupled", {{"att", {0, 3}}}, model_of("mha_cross"), sequences);
  EXPECT_EQ(alive(cross, "att"), (std::vector<int64_t>{1, 2}));
}

// The masked query is zero, whatever its key is, but nothing looks at one of the two alone.
TEST(Removable, FeaturesOfKeysStayWithTheirQueries) {
  const Model model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/attention_separate_qkv.pt2");
  EXPECT_EQ(alive(expect_exact("filter", {{"filter:q", {1, 5}}}, model, {waves({2, 5, 6})}), "k").size(), 4u);
}

/// A graph of calls, without layers.
struct Calls {
  ValueId value(const std::string& name, program::Role role, program::Shape shape) {
    graph.values.push_back({.name = name, .role = role, .weight = name, .shape = std::move(shape)});
    return static_cast<ValueId>(graph.values.size() - 1);
  }
  ValueId input(program::Shape shape) {
    graph.inputs = {value("x", program::Role::kInput, std::move(shape))};
    return graph.inputs[0];
  }
  ValueId weight(const std::string& name, const at::Tensor& tensor) {
    weights.params.insert(name, tensor);
    program::Shape shape;
    for (const int64_t size : tensor.sizes()) shape.push_back({size});
    return value(name, program::Role::kParameter, shape);
  }
  ValueId call(const std::string& target, std::vector<program::Argument> arguments, program::Shape shape) {
    const ValueId output = value("v" + std::to_string(graph.values.size()), program::Role::kComputed, std::move(shape));
    graph.nodes.push_back({.target = target, .arguments = std::move(arguments), .outputs = {output}});
    return output;
  }
  Model finish(ValueId output) && {
    graph.outputs = {output};
    return {program::Program(std::move(graph)), std::move(weights)};
  }

  program::Graph graph;
  Weights weights;
};

/// x @ a, then relu, then @ b: parameters without a layer of their own; or @ (a + a), @ (b + b), no parameters at all.
Model products(bool computed = false) {
  Calls net;
  const ValueId x = net.input({{1, true}, {3}});
  ValueId a = net.weight("a", waves({3, 4})), b = net.weight("b", waves({4, 2}));
  if (computed) {
    a = net.call("aten::add.Tensor", {Builder::tensor("self", a), Builder::tensor("other", a)}, {{3}, {4}});
    b = net.call("aten::add.Tensor", {Builder::tensor("self", b), Builder::tensor("other", b)}, {{4}, {2}});
  }
  ValueId y = net.call("aten::mm", {Builder::tensor("self", x), Builder::tensor("mat2", a)}, {{1, true}, {4}});
  y = net.call("aten::relu", {Builder::tensor("self", y)}, {{1, true}, {4}});
  y = net.call("aten::mm", {Builder::tensor("self", y), Builder::tensor("mat2", b)}, {{1, true}, {2}});
  return std::move(net).finish(y);
}

TEST(UnitsAbove, OfProductsWithBareParametersAreFoundByTheirWeights) {
  Model model = products();
  model.weights.params["a"].fill_(0.5).select(1, 2).fill_(1e-3);
  model.weights.params["b"].fill_(0.5).select(0, 2).fill_(1e-3);
  const channels::Analysis analysis(model.program);
  ASSERT_EQ(analysis.removable().size(), 1u);
  const auto alive = units_above(analysis, model.weights, 1e-2);
  EXPECT_TRUE(at::equal(alive["a"], at::tensor({1, 1, 0, 1}).to(at::kBool)));
}

TEST(UnitsAbove, WhatIsIgnoredStaysWhole) {
  const Model model = products();
  const channels::Analysis analysis(model.program);
  EXPECT_EQ(units_above(analysis, model.weights, 1e9)["a"].sum().item<int64_t>(), 1);
  EXPECT_TRUE(units_above(analysis, model.weights, 1e9, {"a*"})["a"].all().item<bool>());
  EXPECT_THROW(units_above(analysis, model.weights, 1e9, {"nobody"}), std::invalid_argument);
}

TEST(UnitsAbove, AGroupOnNoLayersWeightsStaysWhole) {
  const Model model = products(true);
  const channels::Analysis analysis(model.program);
  ASSERT_EQ(analysis.removable().size(), 1u);
  const std::string& group = analysis.removable()[0].name;
  EXPECT_TRUE(units_above(analysis, model.weights, 1e9)[group].all().item<bool>());
}

/// a (6) is read by a convolution, and summed over.
Model summed() {
  Builder net(0);
  const ValueId x = net.relu(net.conv2d("stem", net.input("x", {2, 8, 8}), {.out = 4}));
  const ValueId y = net.relu(net.conv2d("a", x, {.out = 6}));
  const ValueId sum = net.call("aten::sum.dim_IntList",
                               {Builder::tensor("self", y), {.name = "dim", .literal = std::vector<int64_t>{1}}},
                               {net.shape(y)[0], net.shape(y)[2], net.shape(y)[3]});
  const ValueId read = net.linear("fc", net.mean(net.conv2d("c", y, {.out = 5}), {2, 3}), {.out = 3});
  return std::move(net).finish(net.add(read, net.linear("d", net.flatten(sum), {.out = 3})));
}

// What makes a unit is alive, and its sum counts.
TEST(Removable, UnitsThatAreSummedOverStayUntilWhatMakesThemIsMasked) {
  EXPECT_EQ(alive(expect_exact("channel", {{"channel:c", {0, 3}}}, summed()), "a").size(), 6u);
  EXPECT_EQ(alive(expect_exact("coupled", {{"a", {0, 3}}}, summed()), "a"), (std::vector<int64_t>{1, 2, 4, 5}));
}

/// Of two linear layers: what their weights, or what is left of features, are made of.
Model computed(const std::string& how) {
  const bool of_words = how == "aten::add.Tensor", inverts = how == "aten::reciprocal";
  const bool divides = how == "aten::div.Tensor" || inverts, roots = how == "aten::sqrt";
  const auto features = [&](int64_t count) {
    return of_words ? program::Shape{{1, true}, {5}, {count}} : program::Shape{{1, true}, {count}};
  };
  const auto numbers = [](at::IntArrayRef sizes) { return waves(sizes).add(1.5); };
  Calls net;
  const ValueId x = net.input(features(3));
  ValueId a = net.weight("a", numbers({4, 3}));
  if (how == "aten::_weight_norm") {
    const ValueId length = net.weight("g", numbers({4, 1}));
    a = net.call(how, {Builder::tensor("v", a), Builder::tensor("g", length)}, {{4}, {3}});
  } else if (!of_words && !divides && !roots) {
    a = net.call(how, {Builder::tensor("self", a)}, {{4}, {3}});
  }
  ValueId y = net.call("aten::linear", {Builder::tensor("input", x), Builder::tensor("weight", a)}, features(4));
  if (roots) y = net.call(how, {Builder::tensor("self", y)}, features(4));
  if (of_words || divides) {
    ValueId other = of_words ? net.weight("places", numbers({1, 5, 4})) : net.weight("scale", numbers({4}));
    if (inverts) other = net.call(how, {Builder::tensor("self", other)}, {{4}});
    y = net.call(inverts ? "aten::mul.Tensor" : how, {Builder::tensor("self", y), Builder::tensor("other", other)},
                 features(4));
  }
  const ValueId b = net.weight("b", numbers({2, 4}));
  y = net.call("aten::linear", {Builder::tensor("input", y), Builder::tensor("weight", b)}, features(2));
  return std::move(net).finish(y);
}

// Where zeros in parameters would not be zeros in the features, or would divide them, there are no masks.
TEST(Masks, LeaveOutWhatZerosInParametersWouldNotRemove) {
  for (const char* how : {"aten::relu", "aten::_weight_norm"}) {
    const Model model = computed(how);
    const channels::Analysis analysis(model.program);
    ASSERT_EQ(analysis.removable().size(), 1u) << how;
    EXPECT_TRUE(unmaskable_groups(analysis, "coupled").empty()) << how;
    const Removable removable =
        expect_exact("coupled", {{analysis.removable()[0].name, {1, 2}}}, model, {waves({2, 3})});
    EXPECT_EQ(alive(removable, removable.groups[0].name), (std::vector<int64_t>{0, 3})) << how;
  }
  const std::vector<std::pair<const char*, const char*>> left_out = {
      {"aten::softplus", "weight that is not 0"},     {"aten::exp", "weight that is not 0"},
      {"aten::div.Tensor", "would be infinite at 0"}, {"aten::reciprocal", "would be infinite at 0"},
      {"aten::sqrt", "has an infinite slope at 0"},   {"aten::add.Tensor", "places has them on axis 2"}};
  for (const auto& [how, why] : left_out) {
    const Model model = computed(how);
    const channels::Analysis analysis(model.program);
    ASSERT_EQ(analysis.removable().size(), 1u) << how << ": a cut takes them";
    EXPECT_TRUE(training_groups(analysis, "coupled", 0.5).empty()) << how;
    const auto said = unmaskable_groups(analysis, "coupled");
    ASSERT_EQ(said.size(), 1u) << how;
    EXPECT_NE(said[0].second.find(why), std::string::npos) << said[0].second;
  }
}

// x -> a -> relu -> b, whose weight is v times the length g over the norm of all of v: fewer columns, another norm.
TEST(Removable, NoColumnsOfADirectionWhoseNormIsOfTheWholeWeight) {
  for (const int64_t dim : {-1, 0}) {
    Calls net;
    const ValueId x = net.input({{1, true}, {3}});
    ValueId y = net.call("aten::linear",
                         {Builder::tensor("input", x), Builder::tensor("weight", net.weight("a", waves({4, 3})))},
                         {{1, true}, {4}});
    y = net.call("aten::relu", {Builder::tensor("self", y)}, {{1, true}, {4}});
    const ValueId v = net.weight("v", waves({2, 4}));
    const ValueId g = net.weight("g", dim == -1 ? waves({1}).sum() : waves({2, 1}));
    const ValueId b =
        net.call("aten::_weight_norm",
                 {Builder::tensor("v", v), Builder::tensor("g", g), {.name = "dim", .literal = dim}}, {{2}, {4}});
    y = net.call("aten::linear", {Builder::tensor("input", y), Builder::tensor("weight", b)}, {{1, true}, {2}});
    const Model model = std::move(net).finish(y);
    EXPECT_TRUE(channels::Analysis(model.program).removable().empty()) << dim;
  }
}

// The gate has one position for all channels, which it leaves as they are.
TEST(Removable, ChannelsThatAnEinsumMeetsWithASinglePosition) {
  Builder net(0);
  const ValueId x = net.input("x", {3});
  const ValueId y = net.linear("a", x, {.out = 6}), gate = net.linear("gate", x, {.out = 1});
  const ValueId gated = net.call("aten::einsum",
                                 {{.name = "equation", .literal = std::string("bc,bc->bc")},
                                  {.name = "tensors", .kind = program::Argument::Kind::kValues, .values = {gate, y}}},
                                 net.shape(y));
  const Model model = std::move(net).finish(net.linear("fc", gated, {.out = 2}));
  EXPECT_EQ(alive(expect_exact("coupled", {{"a", {0, 3}}}, model, {waves({2, 3})}), "a"),
            (std::vector<int64_t>{1, 2, 4, 5}));
}

TEST(Removable, AGroupThatNobodyReadsKeepsOneUnit) {
  EXPECT_EQ(alive(expect_exact("channel", {{"channel:b", {0, 1, 2, 3, 4, 5}}}), "a").size(), 1u);
}

}  // namespace
}  // namespace prunex::prune
