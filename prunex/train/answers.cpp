#include "prunex/train/answers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "prunex/data/loader.h"
#include "prunex/train/local_step.h"

namespace prunex::train {
namespace {

constexpr int64_t kAnswerBatch = 256;

/// By falling confidence; of equal ones the first image.
bool is_worse(const Mistake& a, const Mistake& b) {
  return a.confidence != b.confidence ? a.confidence > b.confidence : a.image < b.image;
}

void add_mistakes(std::vector<Mistake>& mistakes, const at::Tensor& logits, const at::Tensor& labels, int64_t first) {
  const auto [confidence, answer] = at::softmax(logits.to(at::kDouble), 1).max(1);
  const auto confident = confidence.accessor<double, 1>();
  const auto answered = answer.accessor<int64_t, 1>(), label = labels.accessor<int64_t, 1>();
  for (int64_t i = 0; i < labels.size(0); ++i) {
    if (answered[i] != label[i]) mistakes.push_back({first + i, label[i], answered[i], confident[i]});
  }
}

int64_t among_largest(const at::Tensor& logits, const at::Tensor& labels) {
  const auto largest = std::get<1>(logits.topk(std::min(kTopAnswers, logits.size(1)), 1));
  return largest.eq(labels.unsqueeze(1)).sum().item<int64_t>();
}

}  // namespace

int64_t Answers::images() const {
  return counts.sum().item<int64_t>();
}

double Answers::accuracy() const {
  return counts.diagonal().sum().item<double>() / static_cast<double>(images());
}

double Answers::top_5() const {
  return static_cast<double>(in_top_5) / static_cast<double>(images());
}

Answers answers(const program::Program& program, const Weights& weights, const data::Dataset& dataset, int64_t most) {
  at::NoGradGuard no_grad;
  const auto device = device_of(weights);
  Answers all{.counts = at::zeros({dataset.classes * dataset.classes}, at::kLong)};
  for (int64_t first = 0; first < dataset.size(); first += kAnswerBatch) {
    const auto batch = data::evaluation_batch(dataset, first, std::min(first + kAnswerBatch, dataset.size()));
    const at::Tensor logits =
        program.run({on_device(batch.images, device)}, weights, program::Mode::kEval).front().cpu();
    const at::Tensor pairs = batch.labels * dataset.classes + logits.argmax(1);
    all.counts += at::bincount(pairs, {}, all.counts.numel());
    all.loss += at::cross_entropy_loss(logits, batch.labels, {}, at::Reduction::Sum).item<double>();
    all.in_top_5 += among_largest(logits, batch.labels);
    add_mistakes(all.mistakes, logits, batch.labels, first);
    std::sort(all.mistakes.begin(), all.mistakes.end(), is_worse);
    all.mistakes.resize(std::min(all.mistakes.size(), static_cast<size_t>(most)));
  }
  all.loss /= static_cast<double>(dataset.size());
  all.counts = all.counts.view({dataset.classes, dataset.classes});
  return all;
}

std::string answers_json(const Answers& answers, const data::Dataset& dataset) {
  nlohmann::ordered_json json{{"images", answers.images()}, {"accuracy", answers.accuracy()}, {"loss", answers.loss}};
  if (dataset.classes > kTopAnswers) json["top_5"] = answers.top_5();
  json["classes"] = data::names_or_numbers(dataset.class_names, dataset.classes);
  json["counts"] = nlohmann::ordered_json::array();
  const auto counts = answers.counts.accessor<int64_t, 2>();
  for (int64_t label = 0; label < dataset.classes; ++label) {
    for (int64_t answer = 0; answer < dataset.classes; ++answer) {
      if (counts[label][answer] > 0) json["counts"].push_back({label, answer, counts[label][answer]});
    }
  }
  json["mistakes"] = nlohmann::ordered_json::array();
  for (const auto& [image, label, answer, confidence] : answers.mistakes) {
    json["mistakes"].push_back({{"image", image}, {"label", label}, {"answer", answer}, {"confidence", confidence}});
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace prunex::train
