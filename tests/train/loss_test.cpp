// The loss of training, against its formulas written out.
#include "prunex/train/loss.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "prunex/program/pt2.h"
#include "prunex/train/local_step.h"
#include "prunex/train/mixing.h"
#include "prunex/train/optimizer.h"
#include "prunex/train/run/checkpoint.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/small_network.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using testing::HasSubstr;

/// Of logits, by the formula of torch.nn.CrossEntropyLoss.
TEST(TrainingLoss, SmoothsTheMixedLabels) {
  const program::Model model = small_network();
  const auto set = noise_images(6);
  data::Batch batch = data::evaluation_batch(set, 0, 6);
  constexpr double kSmoothing = 0.2;
  for (const bool mixes : {false, true}) {
    Replica replica{model.weights, fresh_state(model.weights.params)};
    for (auto& theta : replica.weights.params) theta.value().requires_grad_();
    const Mix mix{.image = 0.4, .label = 0.4};
    const LossOptions loss{.label_smoothing = kSmoothing, .mix = mixes ? mix.numbers() : at::Tensor()};
    const at::Tensor images = mixes ? mixed(batch.images, mix.numbers()) : batch.images;
    const at::Tensor logits =
        model.program.run({images}, replica.weights, program::Mode::kTrain).front().detach().to(at::kDouble);
    const int64_t classes = logits.size(1);
    const Mix none{};
    at::Tensor shares = mixed_labels(batch.labels, (mixes ? mix : none).numbers(), classes, at::kDouble);
    shares = (1 - kSmoothing) * shares + kSmoothing / static_cast<double>(classes);
    const double want = -(shares * logits.log_softmax(1)).sum(1).mean().item<double>();
    const at::Tensor got = compute_gradients(model.program, replica, batch, Arithmetic::kFp32, loss);
    EXPECT_NEAR(got.item<double>(), want, 1e-6);
  }
}

/// Of double logits: cross-entropy of the labels, Kullback and Leibler's divergence from the teacher's softened
/// answers.
struct Written {
  double labels, teacher;
  at::Tensor gradient;  ///< with respect to the logits
};

Written written_out(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& answers, double share,
                    double temperature) {
  const auto images = static_cast<double>(logits.size(0));
  const at::Tensor ours = (logits / temperature).softmax(1), theirs = (answers / temperature).softmax(1);
  const at::Tensor truth = at::one_hot(labels, logits.size(1)).to(at::kDouble);
  return {.labels = -(truth * logits.softmax(1).log()).sum().item<double>() / images,
          .teacher = (theirs * (theirs / ours).log()).sum().item<double>() / images,
          .gradient = ((1 - share) * (logits.softmax(1) - truth) + share * temperature * (ours - theirs)) / images};
}

TEST(TrainingLoss, LearnsTheAnswersOfATeacherToTheImagesThatItSees) {
  const program::Model model = small_network();
  const auto set = noise_images(6);
  const data::Batch batch = data::evaluation_batch(set, 0, 6);
  auto generator = at::detail::createCPUGenerator(8);
  constexpr double kShare = 0.3, kTemperature = 2.5;
  const auto teacher = std::make_shared<Teacher>(Teacher{model, kShare, kTemperature});
  const at::Tensor answers = model.program.run({batch.images}, model.weights, program::Mode::kEval).front();
  const at::Tensor logits = at::randn({6, kClasses}, generator).requires_grad_();
  const at::Tensor loss = training_loss(logits, batch.images, batch, {.teacher = teacher});
  const Written want = written_out(logits.detach().to(at::kDouble), batch.labels, answers.detach().to(at::kDouble),
                                   kShare, kTemperature);
  EXPECT_GT(want.teacher, 0.01);
  EXPECT_NEAR(loss.item<double>(), (1 - kShare) * want.labels + kShare * kTemperature * kTemperature * want.teacher,
              1e-6);
  loss.backward();
  EXPECT_TRUE(at::allclose(logits.grad().to(at::kDouble), want.gradient, 1e-5, 1e-7));
  for (const auto& theta : model.weights.params) EXPECT_FALSE(theta.value().grad().defined()) << theta.key();
}

TEST(TrainingLoss, OfATeacherIsThatOfMixedImagesAndSmoothedLabels) {
  const program::Model model = small_network();
  const auto set = noise_images(6);
  const data::Batch batch = data::evaluation_batch(set, 0, 6);
  const Mix mix{.image = 0.4, .label = 0.4};
  const auto teacher = std::make_shared<Teacher>(Teacher{model, 0.3, 2});
  const LossOptions plain{.label_smoothing = 0.1, .mix = mix.numbers()};
  LossOptions taught = plain;
  taught.teacher = teacher;
  const at::Tensor images = shown_images(batch, taught);
  EXPECT_TRUE(images.equal(mixed(batch.images, mix.numbers())));
  // a network that answers as its teacher does has nothing to learn from it
  const at::Tensor logits = model.program.run({images}, model.weights, program::Mode::kEval).front();
  EXPECT_NEAR(training_loss(logits, images, batch, taught).item<double>(),
              0.7 * training_loss(logits, images, batch, plain).item<double>(), 1e-6);
  const at::Tensor others = model.program.run({batch.images}, model.weights, program::Mode::kEval).front();
  EXPECT_GT(training_loss(others, images, batch, taught).item<double>(),
            0.7 * training_loss(others, images, batch, plain).item<double>() + 1e-4);
}

TEST(ReadTeacher, RefusesAnotherNumberOfLogitsOtherImagesAndWhatIsNoProgram) {
  const tests::Scratch scratch;
  TrainOptions options;
  options.model = "student";
  const auto images = noise_images(4);
  const program::Model student = small_network();
  EXPECT_EQ(read_teacher(options, images, student.program.graph()), nullptr);
  options.teacher = scratch / "teacher.pt2";
  const auto refusal = [&](const data::Dataset& set) {
    return tests::message([&] { read_teacher(options, set, student.program.graph()); });
  };
  EXPECT_THAT(refusal(images), HasSubstr(options.teacher + ": no such file"));
  program::write_pt2(options.teacher, student);
  const auto teacher = read_teacher(options, images, student.program.graph());
  ASSERT_NE(teacher, nullptr);
  for (const auto& theta : teacher->model.weights.params) EXPECT_FALSE(theta.value().requires_grad()) << theta.key();
  program::Graph small_batches = student.program.graph();
  small_batches.most_images = options.batch_size - 1;
  program::write_pt2(options.teacher, {program::Program(small_batches), student.weights});
  EXPECT_THAT(refusal(images), HasSubstr(options.teacher + ": `batch_size`: got a batch of"));
  program::write_pt2(options.teacher, student);
  auto larger = images;
  larger.images = at::zeros({4, 3, 2 * kSide, 2 * kSide}, at::kByte);
  EXPECT_THAT(refusal(larger), HasSubstr("its input is [batch, 3, 8, 8]"));
  program::Builder builder(1);
  const auto x = builder.flatten(builder.input("x", {3, kSide, kSide}));
  program::write_pt2(options.teacher, std::move(builder).finish(builder.linear("fc", x, {.out = kClasses + 1})));
  EXPECT_THAT(refusal(images), HasSubstr("it has 6 logits, `model` student has 5"));
}

/// Which it has seen normalised by numbers of its own: what it says of the pixels is the same.
TEST(ReadTeacher, ShowsItImagesAsItsFileSays) {
  const tests::Scratch scratch;
  TrainOptions options;
  options.teacher = scratch / "teacher.pt2";
  auto images = noise_images(4);
  images.class_names = {"a", "b", "c", "d", "e"};
  const program::Model model = small_network();
  const auto read = [&](const data::Description& description) {
    program::write_pt2(options.teacher, model, {{data::kDescriptionName, data::description_json(description)}});
    return read_teacher(options, images, model.program.graph());
  };
  data::Dataset others = images;
  others.mean = {0.1, 0.2, 0.3};
  others.std = {0.6, 0.5, 0.4};
  const at::Tensor shown = data::evaluation_batch(images, 0, 4).images;
  const at::Tensor want =
      model.program.run({data::evaluation_batch(others, 0, 4).images}, model.weights, program::Mode::kEval).front();
  EXPECT_TRUE(logits_of(*read(data::describe(others)), shown).allclose(want, 1e-4, 1e-5));
  const auto same = read(data::describe(images));
  EXPECT_FALSE(same->scale.defined());
  data::Description description = data::describe(images);
  std::swap(description.classes[0], description.classes[1]);
  EXPECT_THAT(tests::message([&] { read(description); }), HasSubstr("its classes are b, a, c"));
  description.classes = {"A", "B", "C", "D", "E"};
  EXPECT_NO_THROW(read(description)) << "names of another language";
  description.mean = {0.5};
  description.std = {0.5};
  EXPECT_THAT(tests::message([&] { read(description); }), HasSubstr("images of 1 channels, noise has 3"));
}

/// small_network() but for one weight.
Teacher another_teacher() {
  Teacher teacher{small_network()};
  teacher.model.weights.params["fc.bias"].detach()[0] += 1;
  return teacher;
}

TEST(ExpectSameTeacher, NamesTheRankThatHasAnother) {
  comm::run_ranks(comm::Layout::even(3, 1), [](comm::Hierarchy& ranks) {
    const Teacher same{small_network()}, mine = ranks.layout.rank == 2 ? another_teacher() : same;
    expect_same_teacher(&same, *ranks.world);
    expect_same_teacher(nullptr, *ranks.world);
    EXPECT_THAT(tests::message([&] { expect_same_teacher(&mine, *ranks.world); }),
                HasSubstr("`teacher`: rank 2 has another network there than rank 0"));
  });
}

TEST(TeacherAfter, RefusesAnotherFileThanTheRunBeganWith) {
  TrainOptions options;
  options.teacher = "teacher.pt2";
  const auto teacher = std::make_shared<Teacher>(Teacher{small_network()});
  Checkpoint checkpoint;
  save_teacher(options, teacher.get(), checkpoint);
  EXPECT_EQ(teacher_after(checkpoint, options, teacher, small_network()), teacher);
  const auto another = std::make_shared<Teacher>(another_teacher());
  EXPECT_THAT(tests::message([&] { teacher_after(checkpoint, options, another, small_network()); }),
              HasSubstr("`teacher`: the network is not the one with which the run began"));
}

/// A run of a few exchanges on two nodes, and the model that it leaves.
std::string product_of(TrainOptions options) {
  const tests::Scratch scratch;
  options.run_dir = scratch / "run";
  run_to_end(options);
  return tests::text_of(options.run_dir + "/model.safetensors");
}

TEST(Train, LearnsFromATeacher) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "first");
  options.exchanges = 4;
  run_to_end(options);
  const std::string before = scratch / "first/model.pt2";
  const std::string alone = product_of(options);
  options.teacher = before;
  const std::string taught = product_of(options);
  EXPECT_NE(taught, alone);
  EXPECT_EQ(product_of(options), taught);
  options.teacher_share = 0.25;
  EXPECT_NE(product_of(options), taught);
  options.teacher_share = 0.5;
  options.teacher_temperature = 1;
  EXPECT_NE(product_of(options), taught);
}

/// What is cut before the first step has a file for its teacher that says the same.
TEST(Train, LearnsFromTheWholeNetworkWhatItsFileWouldTeach) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "first");
  options.strategy = "diloco";
  run_to_end(options);
  options.model = scratch / "first/model.pt2";
  options.exchanges = 0;
  options.epochs = 0;
  options.finetune.epochs = 1;
  options.pruning.target = "speed-up=2";
  const std::string alone = product_of(options);
  options.teacher = options.model;
  const std::string taught = product_of(options);
  EXPECT_NE(taught, alone);
  options.teacher = kWholeTeacher;
  EXPECT_EQ(product_of(options), taught);
}

}  // namespace
}  // namespace prunex::train
