// Calls that kernels get wrong or refuse, made in another way.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "prunex/program/pt2.h"
#include "tests/program/graphs.h"
#include "tests/scratch.h"

namespace prunex::program {
namespace {

/// A convolution of 16 to 32 channels, its kernel and padding as they leave an input as large as it is.
Graph convolution_graph(int64_t side, int64_t kernel, int64_t stride) {
  Graph graph;
  graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {16}, {side}, {side}}})};
  const auto weight = add_value(
      graph, {.name = "w", .role = Role::kParameter, .weight = "w", .shape = {{32}, {16}, {kernel}, {kernel}}});
  const std::vector<int64_t> strides{stride, stride}, padding{kernel / 2, kernel / 2};
  graph.outputs = {add_node(
      graph, "aten::conv2d",
      {value("input", 0), value("weight", weight), literal("stride", strides), literal("padding", padding)}, "y")};
  return graph;
}

// oneDNN leaves those unset in bf16 that see padding alone.
TEST(Detours, GradientsInBf16OfImagesSmallerThanTheKernelAreThoseInDoubles) {
  for (const auto& [side, kernel, stride] :
       std::vector<std::array<int64_t, 3>>{{1, 3, 2}, {1, 3, 1}, {1, 5, 1}, {2, 3, 2}, {2, 7, 2}, {8, 3, 2}}) {
    const Program program(convolution_graph(side, kernel, stride));
    const auto x = at::randn({8, 16, side, side}), w = at::randn({32, 16, kernel, kernel});
    const auto gradient = [&](at::ScalarType type) {
      { const auto unset = at::full_like(w, std::nan(""), type); }  // what the next tensor of this size may begin as
      Weights weights;
      weights.params.insert("w", w.to(type).requires_grad_());
      program.run({x.to(type)}, weights, Mode::kTrain)[0].sum().backward();
      return weights.params["w"].grad().to(at::kDouble);
    };
    const auto wanted = gradient(at::kDouble);
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(at::allclose(gradient(at::kBFloat16), wanted, 0.02, 0.02 * wanted.abs().max().item<double>()))
          << side << " " << kernel << " " << stride;
    }
  }
}

TEST(Detours, EmbeddingsHaveDenseGradientsWhateverAFileSays) {
  Graph graph;
  graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .dtype = at::kLong, .shape = {{1, true}, {2}}})};
  const auto table = add_value(graph, {.name = "w", .role = Role::kParameter, .weight = "w", .shape = {{4}, {3}}});
  graph.outputs = {add_node(graph, "aten::embedding",
                            {value("weight", table), value("indices", 0), literal("sparse", true)}, "rows")};
  Weights weights;
  weights.params.insert("w", at::randn({4, 3}).requires_grad_());
  const auto x = at::tensor({0, 2, 2, 1}, at::kLong).view({2, 2});
  Program(graph).run({x}, weights, Mode::kTrain)[0].sum().backward();
  const at::Tensor& gradient = weights.params["w"].grad();
  ASSERT_EQ(gradient.layout(), at::kStrided);
  EXPECT_TRUE(gradient.equal(at::tensor({1.0F, 1.0F, 2.0F, 0.0F}).view({4, 1}).expand({4, 3})));
}

/// As torch.export has a view of what is contiguous there.
TEST(Detours, ViewsOfImagesWhoseChannelsLieSideBySideAreCopies) {
  for (const bool as_another : {false, true}) {
    Graph graph;
    graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {2}, {5}, {5}}})};
    const auto positive = add_node(graph, "aten::relu_", {value("self", 0)}, "positive");
    const auto other = add_node(graph, "aten::flatten.using_ints", {value("self", 0), literal("start_dim", 1)}, "flat");
    const Argument size = as_another ? value("other", other) : literal("size", std::vector<int64_t>{-1, 50});
    graph.outputs = {
        add_node(graph, as_another ? "aten::view_as" : "aten::view", {value("self", positive), size}, "rows")};
    const auto x = at::randn({3, 2, 5, 5});
    const auto wanted = x.relu().reshape({3, 50});
    Weights none;
    EXPECT_TRUE(at::equal(Program(graph).run({x.clone()}, none, Mode::kEval)[0], wanted));
    const auto beside = [&] { return x.contiguous(at::MemoryFormat::ChannelsLast).clone(); };
    EXPECT_TRUE(at::equal(Program(graph).run({beside()}, none, Mode::kEval)[0], wanted));
  }
}

/// x relu_, then rows of it by `view`, to which 1 is added in place: what is shown must have that too.
Graph written_through(const std::string& view, std::vector<Argument> arguments, bool input) {
  Graph graph;
  graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {2}, {5}, {5}}})};
  const auto shown = add_node(graph, input ? "aten::relu_" : "aten::relu", {value("self", 0)}, "positive");
  arguments.push_back(value("self", shown));
  const auto rows = add_node(graph, view, arguments, "rows");
  const auto more = add_node(graph, "aten::add_.Scalar", {value("self", rows), literal("other", 1)}, "more");
  graph.outputs = {more, shown};
  return graph;
}

TEST(Detours, WhatIsWrittenThroughAViewIsInWhatItShows) {
  const std::vector<int64_t> sizes{-1, 50};
  const std::vector<std::pair<std::string, std::vector<Argument>>> views{
      {"aten::view", {literal("size", sizes)}},
      {"aten::reshape", {literal("shape", sizes)}},
      {"aten::flatten.using_ints", {literal("start_dim", 1)}}};
  const auto x = at::randn({3, 2, 5, 5});
  const auto wanted = x.relu() + 1;
  Weights none;
  for (const auto& [view, arguments] : views) {
    for (const bool input : {false, true}) {
      const Program program(written_through(view, arguments, input));
      for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
        const auto outputs = program.run({x.contiguous(layout)}, none, Mode::kEval);
        EXPECT_TRUE(at::equal(outputs[0], wanted.reshape({3, 50}))) << view;
        EXPECT_TRUE(at::equal(outputs[1], wanted)) << view;
      }
    }
  }
}

/// x is turned to rows of channels, which is a view of channels that lie last and a copy of others, and written to.
Graph written_rows(at::MemoryFormat order) {
  Graph graph;
  const Shape images{{1, true}, {2}, {5}, {5}}, columns{{1, true}, {2}, {25}};
  graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .shape = images})};
  const auto shown = add_node(graph, "aten::relu", {value("self", 0)}, "positive");
  graph.values[shown].order = order;
  const auto flat =
      add_node(graph, "aten::flatten.using_ints", {value("self", shown), literal("start_dim", 2)}, "flat");
  const auto turned =
      add_node(graph, "aten::transpose.int", {value("self", flat), literal("dim0", 1), literal("dim1", 2)}, "turned");
  graph.values[turned].order = order == at::MemoryFormat::Contiguous ? at::MemoryFormat::Preserve : order;
  const auto rows = add_node(graph, "aten::contiguous", {value("self", turned)}, "rows");
  const auto more = add_node(graph, "aten::add_.Scalar", {value("self", rows), literal("other", 1)}, "more");
  graph.outputs = {more, shown};
  return graph;
}

// What ATen does with a tensor that lies as it did in the export.
TEST(Detours, ViewsAndCopiesAreThoseOfTheExport) {
  const auto x = at::randn({3, 2, 5, 5});
  Weights none;
  for (const auto order : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    auto wanted = x.relu().contiguous(order);
    const auto rows = wanted.flatten(2).transpose(1, 2).contiguous().add_(1);
    for (const auto given : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const auto outputs = Program(written_rows(order)).run({x.contiguous(given)}, none, Mode::kEval);
      EXPECT_TRUE(at::equal(outputs[0], rows));
      EXPECT_TRUE(at::equal(outputs[1], wanted)) << (order == at::MemoryFormat::Contiguous);
    }
  }
}

/// In the order of channels that lie last, which x had or not.
TEST(Detours, CopiesInAnotherOrderAreThoseOfTheExport) {
  const auto x = at::randn({3, 2, 5, 5});
  Weights none;
  for (const auto order : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    Graph graph;
    graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {2}, {5}, {5}}})};
    const auto positive = add_node(graph, "aten::relu", {value("self", 0)}, "positive");
    graph.values[positive].order = order;
    const auto last = add_node(
        graph, "aten::to.dtype_layout",
        {value("self", positive), literal("memory_format", static_cast<int64_t>(at::MemoryFormat::ChannelsLast))},
        "last");
    graph.outputs = {add_node(graph, "aten::add_.Scalar", {value("self", last), literal("other", 1)}, "more"),
                     positive};
    auto wanted = x.relu().contiguous(order);
    const auto more = wanted.to(wanted.options(), false, false, at::MemoryFormat::ChannelsLast).add_(1);
    for (const auto given : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const auto outputs = Program(graph).run({x.contiguous(given)}, none, Mode::kEval);
      EXPECT_TRUE(at::equal(outputs[0], more));
      EXPECT_TRUE(at::equal(outputs[1], wanted)) << (order == at::MemoryFormat::Contiguous);
    }
  }
}

TEST(Detours, ViewsAndCopiesAreThoseOfTheExportWhenTheProgramIsReadBack) {
  const tests::Scratch scratch;
  const auto x = at::randn({3, 2, 5, 5});
  Weights none;
  for (const auto order : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const Program program(with_measured_shapes(written_rows(order), none));
    write_pt2(scratch / "net.pt2", {program, none});
    const auto outputs = program.run({x}, none, Mode::kEval);
    const auto again = read_pt2(scratch / "net.pt2").program.run({x}, none, Mode::kEval);
    EXPECT_TRUE(at::equal(again[1], outputs[1])) << (order == at::MemoryFormat::Contiguous);
  }
}

/// What has its type already is shown, however it lies; x comes with its axes in another order.
TEST(Detours, WhatIsWrittenThroughATypeOfItsOwnIsInWhatItShows) {
  Graph graph;
  graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {4}, {5}}})};
  const auto turned =
      add_node(graph, "aten::transpose.int", {value("self", 0), literal("dim0", 1), literal("dim1", 2)}, "turned");
  const auto shown = add_node(graph, "aten::relu", {value("self", turned)}, "positive");
  graph.values[shown].order = at::MemoryFormat::Preserve;
  const auto same = add_node(graph, "aten::to.dtype", {value("self", shown), literal("dtype", at::kFloat)}, "same");
  const auto more = add_node(graph, "aten::add_.Scalar", {value("self", same), literal("other", 1)}, "more");
  graph.outputs = {more, shown};
  const auto x = at::randn({3, 4, 5});
  Weights none;
  EXPECT_TRUE(at::equal(Program(graph).run({x}, none, Mode::kEval)[1], x.transpose(1, 2).relu() + 1));
}

TEST(Detours, InputsStayAsTheCallerHasThem) {
  auto graph = rows_graph(4);
  graph.outputs = {add_node(graph, "aten::mul_.Scalar", {value("self", 0), literal("other", 3)}, "thrice")};
  const auto x = at::randn({2, 4}), before = x.clone();
  Weights none;
  for (const auto mode : {Mode::kTrain, Mode::kEval}) {
    EXPECT_TRUE(at::equal(Program(graph).run({x}, none, mode)[0], before * 3));
    EXPECT_TRUE(at::equal(x, before));
  }
}

// oneDNN has wrong ones, and writes beyond its memory, where pixels are the outer axes and channels fewer than a vector
// holds.
TEST(Detours, GradientsOfStridedConvolutionsByOnePositionAreThoseInDoubles) {
  for (const auto* target : {"aten::conv2d", "aten::convolution"}) {
    for (int64_t channels = 1; channels <= 17; ++channels) {
      Graph graph;
      graph.inputs = {
          add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {channels}, {32}, {32}}})};
      const auto weight = add_value(
          graph, {.name = "w", .role = Role::kParameter, .weight = "w", .shape = {{12}, {channels}, {1}, {1}}});
      std::vector<Argument> arguments{value("input", 0), value("weight", weight),
                                      literal("stride", std::vector<int64_t>{2, 2})};
      if (std::string(target) == "aten::convolution") {
        for (const auto* name : {"padding", "output_padding"})
          arguments.push_back(literal(name, std::vector<int64_t>{0, 0}));
        arguments.push_back(literal("dilation", std::vector<int64_t>{1, 1}));
        arguments.push_back(literal("bias", {}));
        arguments.push_back(literal("transposed", false));
        arguments.push_back(literal("groups", 1));
      }
      graph.outputs = {add_node(graph, target, arguments, "y")};
      const auto x = at::randn({8, channels, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast);
      Weights weights;
      weights.params.insert("w", at::randn({12, channels, 1, 1}).requires_grad_());
      const auto y = Program(graph).run({x}, weights, Mode::kTrain)[0];
      y.square().sum().backward();
      const auto copy = weights.params["w"].detach().to(at::kDouble).requires_grad_();
      const auto exact = at::conv2d(x.to(at::kDouble), copy, {}, 2);
      exact.square().sum().backward();
      EXPECT_TRUE(at::allclose(y, exact.to(at::kFloat), 1e-4, 1e-4)) << target << ", " << channels;
      EXPECT_TRUE(at::allclose(weights.params["w"].grad(), copy.grad().to(at::kFloat), 1e-4, 1e-2))
          << target << ", " << channels;
    }
  }
}

}  // namespace
}  // namespace prunex::program
