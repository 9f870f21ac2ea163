#include "prunex/train/images/answers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "prunex/data/decode.h"
#include "prunex/data/description.h"
#include "prunex/data/image_stream.h"
#include "prunex/data/loader.h"
#include "prunex/data/pixels.h"
#include "prunex/train/device.h"

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

/// RFC 4648's.
std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t j = i; j < i + 3; ++j) three = three << 8 | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0U);
    for (size_t digit = 0; digit < 4; ++digit) {
      text += i + digit <= bytes.size() ? kDigits[three >> (18 - 6 * digit) & 63] : '=';
    }
  }
  return text;
}

/// As a PNG in base64, made smaller.
std::string text_of(const data::Picture& image) {
  constexpr int64_t kSide = 64;
  if (image.channels != 1 && image.channels != 3) return "";
  const double scale =
      std::min(1.0, static_cast<double>(kSide) / static_cast<double>(std::max(image.height, image.width)));
  const auto scaled = [&](int64_t side) {
    return std::max<int64_t>(1, std::lround(static_cast<double>(side) * scale));
  };
  std::vector<uint8_t> pixels(static_cast<size_t>(scaled(image.height) * scaled(image.width) * image.channels));
  const data::Picture small{pixels.data(), scaled(image.height), scaled(image.width), image.channels};
  data::resize(image, data::whole_image(image.height, image.width), small);
  return base64(data::encode_png(small));
}

void show(Mistake& mistake, const data::Dataset& dataset, const data::Pixels& pixels) {
  const auto shape = dataset.image_shape();
  std::vector<uint8_t> image(static_cast<size_t>(pixels.image_bytes()));
  const int64_t taken = pixels.plain(mistake.image, image.data());
  mistake.png = text_of({image.data(), shape[1], shape[2], shape[0]});
  if (!dataset.is_streamed()) return;
  mistake.file = dataset.streamed.stream->images().short_name(dataset.streamed.number_of(taken));
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
  int64_t answers = dataset.classes;
  Answers all;
  for (int64_t first = 0; first < dataset.size(); first += kAnswerBatch) {
    const auto batch = data::evaluation_batch(dataset, first, std::min(first + kAnswerBatch, dataset.size()));
    const at::Tensor logits =
        program.run({on_device(batch.images, device)}, weights, program::Mode::kEval).front().cpu();
    if (!all.counts.defined()) {
      answers = std::max(answers, logits.size(1));
      all.counts = at::zeros({answers * answers}, at::kLong);
    }
    all.counts += at::bincount(batch.labels * answers + logits.argmax(1), {}, all.counts.numel());
    all.loss += at::cross_entropy_loss(logits, batch.labels, {}, at::Reduction::Sum).item<double>();
    all.in_top_5 += among_largest(logits, batch.labels);
    add_mistakes(all.mistakes, logits, batch.labels, first);
    std::sort(all.mistakes.begin(), all.mistakes.end(), is_worse);
    all.mistakes.resize(std::min(all.mistakes.size(), static_cast<size_t>(most)));
  }
  const data::Pixels pixels(dataset);
  for (auto& mistake : all.mistakes) show(mistake, dataset, pixels);
  all.loss /= static_cast<double>(dataset.size());
  all.counts = all.counts.view({answers, answers});
  return all;
}

std::string answers_json(const Answers& answers, const data::Dataset& dataset) {
  nlohmann::ordered_json json{{"images", answers.images()}, {"accuracy", answers.accuracy()}, {"loss", answers.loss}};
  if (dataset.classes > kTopAnswers) json["top_5"] = answers.top_5();
  const int64_t outputs = answers.counts.size(0);
  auto names = data::names_or_numbers(dataset.class_names, dataset.classes);
  for (auto output = static_cast<int64_t>(names.size()); output < outputs; ++output) {
    names.push_back(std::to_string(output));
  }
  json["classes"] = std::move(names);
  json["counts"] = nlohmann::ordered_json::array();
  const auto counts = answers.counts.accessor<int64_t, 2>();
  for (int64_t label = 0; label < outputs; ++label) {
    for (int64_t answer = 0; answer < outputs; ++answer) {
      if (counts[label][answer] > 0) json["counts"].push_back({label, answer, counts[label][answer]});
    }
  }
  json["mistakes"] = nlohmann::ordered_json::array();
  for (const auto& mistake : answers.mistakes) {
    nlohmann::ordered_json one{{"image", mistake.image},
                               {"label", mistake.label},
                               {"answer", mistake.answer},
                               {"confidence", mistake.confidence}};
    if (!mistake.file.empty()) one["file"] = mistake.file;
    if (!mistake.png.empty()) one["png"] = mistake.png;
    json["mistakes"].push_back(std::move(one));
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace prunex::train
