#include "prunex/train/images/answers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "prunex/data/decode.h"
#include "prunex/data/description.h"
#include "prunex/data/image_stream.h"
#include "prunex/data/pixels.h"
#include "prunex/text/json.h"
#include "prunex/train/batches.h"
#include "prunex/train/device.h"
#include "prunex/train/loss.h"

namespace prunex::train {
namespace {

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

void keep_worst(std::vector<Mistake>& mistakes, int64_t most) {
  std::sort(mistakes.begin(), mistakes.end(), is_worse);
  mistakes.resize(std::min(mistakes.size(), static_cast<size_t>(most)));
}

/// Of these images: the loss as a sum, mistakes not shown yet.
Answers sums_over(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                  const comm::Range& images, int64_t most) {
  at::NoGradGuard no_grad;
  const auto device = device_of(weights);
  Answers sums;
  for (const comm::Range& part : batches_of(images, program.graph(), kEvaluationBatch)) {
    const auto batch = data::evaluation_batch(dataset, part.begin, part.end);
    const at::Tensor logits =
        in_fp32(program.run({on_device(batch.images, device)}, weights, program::Mode::kEval).front().cpu());
    sums.outputs = std::max(dataset.classes, logits.size(1));
    const at::Tensor answered = logits.argmax(1);
    const auto answer = answered.accessor<int64_t, 1>(), label = batch.labels.accessor<int64_t, 1>();
    for (int64_t i = 0; i < label.size(0); ++i) ++sums.counts[{label[i], answer[i]}];
    sums.loss += at::cross_entropy_loss(logits, batch.labels, {}, at::Reduction::Sum).item<double>();
    sums.in_top_5 += among_largest(logits, batch.labels);
    add_mistakes(sums.mistakes, logits, batch.labels, part.begin);
    keep_worst(sums.mistakes, most);
  }
  return sums;
}

void finish(Answers& sums, const data::Dataset& dataset) {
  const data::Pixels pixels(dataset);
  for (auto& mistake : sums.mistakes) show(mistake, dataset, pixels);
  sums.loss /= static_cast<double>(dataset.size());
}

std::string to_bytes(const Answers& sums) {
  nlohmann::json counts = nlohmann::json::array(), mistakes = nlohmann::json::array();
  for (const auto& [pair, count] : sums.counts) counts.push_back({pair.first, pair.second, count});
  for (const auto& one : sums.mistakes) mistakes.push_back({one.image, one.label, one.answer, one.confidence});
  return nlohmann::json{{"loss", sums.loss},
                        {"outputs", sums.outputs},
                        {"in_top_5", sums.in_top_5},
                        {"counts", counts},
                        {"mistakes", mistakes}}
      .dump();
}

void add(Answers& all, const std::string& part) {
  const auto json = text::parse_json(part);
  all.loss += json.at("loss").get<double>();
  all.outputs = std::max(all.outputs, json.at("outputs").get<int64_t>());
  all.in_top_5 += json.at("in_top_5").get<int64_t>();
  for (const auto& [label, answer, count] : json.at("counts").get<std::vector<std::array<int64_t, 3>>>()) {
    all.counts[{label, answer}] += count;
  }
  for (const auto& one : json.at("mistakes")) all.mistakes.push_back({one.at(0), one.at(1), one.at(2), one.at(3)});
}

}  // namespace

int64_t Answers::images() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0},
                         [](int64_t sum, const auto& count) { return sum + count.second; });
}

double Answers::accuracy() const {
  int64_t right = 0;
  for (const auto& [pair, count] : counts) right += pair.first == pair.second ? count : 0;
  return static_cast<double>(right) / static_cast<double>(images());
}

std::optional<double> Answers::top5_accuracy() const {
  if (outputs <= kTopAnswers) return {};
  return static_cast<double>(in_top_5) / static_cast<double>(images());
}

Answers answers(const program::Program& program, const Weights& weights, const data::Dataset& dataset, int64_t most) {
  Answers all = sums_over(program, weights, dataset, {0, dataset.size()}, most);
  finish(all, dataset);
  return all;
}

Answers answers(const program::Program& program, const Weights& weights, const data::Dataset& dataset,
                comm::Communicator& world) {
  const Answers own = sums_over(program, weights, dataset, images_of_rank(dataset, world), kMostMistakes);
  Answers all;
  for (const auto& part : comm::gather_texts(world, to_bytes(own))) add(all, part);
  keep_worst(all.mistakes, kMostMistakes);
  finish(all, dataset);
  return all;
}

std::string answers_json(const Answers& answers, const data::Dataset& dataset) {
  nlohmann::ordered_json json{{"images", answers.images()}, {"accuracy", answers.accuracy()}, {"loss", answers.loss}};
  if (const auto top5 = answers.top5_accuracy()) json["top5_accuracy"] = *top5;
  auto names = data::names_or_numbers(dataset.class_names, dataset.classes);
  for (auto output = static_cast<int64_t>(names.size()); output < answers.outputs; ++output) {
    names.push_back(std::to_string(output));
  }
  json["classes"] = std::move(names);
  json["counts"] = nlohmann::ordered_json::array();
  for (const auto& [pair, count] : answers.counts) json["counts"].push_back({pair.first, pair.second, count});
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
  return text::json_text(json) + "\n";
}

}  // namespace prunex::train
