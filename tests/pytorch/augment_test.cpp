// Operations of augmentation beside torchvision's, on the same numbers.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "prunex/data/augment.h"
#include "prunex/io/safetensors.h"
#include "tests/python.h"
#include "tests/scratch.h"

namespace prunex::data {
namespace {

/// "operation:number" -> height x width x channels.
using Results = TensorDict;

void add(Results& results, const at::Tensor& image, const std::string& name, const std::function<void(Picture)>& work) {
  at::Tensor result = image.clone();
  work({result.data_ptr<uint8_t>(), result.size(0), result.size(1), result.size(2)});
  results.insert(name, result);
}

Results results_of(const at::Tensor& image) {
  Results results;
  results.insert("image", image);
  for (const auto& operation : rand_operations()) {
    for (const int64_t magnitude : {0, 1, 9, 15, 16, 30}) {
      const double strength = operation.strength(magnitude, image.size(0), image.size(1));
      for (const int sign : {1, -1}) {
        if (sign < 0 && !operation.is_signed) continue;
        add(results, image, fmt::format("{}:{}:{}", operation.name, magnitude, sign),
            [&](Picture picture) { operation.apply(picture, sign * strength); });
      }
    }
  }
  for (const double factor : {0.6, 0.93, 1.37}) {
    add(results, image, fmt::format("adjust_brightness:{}", factor), [&](Picture p) { adjust_brightness(p, factor); });
    add(results, image, fmt::format("adjust_contrast:{}", factor), [&](Picture p) { adjust_contrast(p, factor); });
    add(results, image, fmt::format("adjust_saturation:{}", factor), [&](Picture p) { adjust_saturation(p, factor); });
  }
  add(results, image, "horizontal_flip", [](Picture p) { flip(p); });
  const std::vector<uint8_t> levels{124, 116, 104};
  add(results, image, "erase:3:5:20:9", [&](Picture p) { erase(p, {3, 5, 20, 9}, levels); });
  for (const Box& box : {Box{0, 0, image.size(0), image.size(1)}, Box{4, 7, 20, 31}, Box{1, 2, 3, 2}}) {
    at::Tensor scaled = at::empty({24, 24, image.size(2)}, at::kByte);
    at::Tensor whole = image.clone();
    resize({whole.data_ptr<uint8_t>(), image.size(0), image.size(1), image.size(2)}, box,
           {scaled.data_ptr<uint8_t>(), 24, 24, image.size(2)});
    results.insert(fmt::format("resized_crop:{}:{}:{}:{}", box.top, box.left, box.height, box.width), scaled);
  }
  return results;
}

TEST(Augment, OperationsAreTorchvisions) {
  const tests::Scratch scratch;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
  for (const int64_t channels : {3, 1}) {
    const at::Tensor coarse = at::rand({1, channels, 7, 9}, generator);
    const at::Tensor smooth = at::upsample_bicubic2d(coarse, {61, 78}, false).mul_(300).sub_(20);
    const at::Tensor noise = at::rand({1, channels, 61, 78}, generator).mul_(16);
    const at::Tensor image = (smooth + noise).clamp(0, 255).to(at::kByte)[0].permute({1, 2, 0}).contiguous();
    io::write_safetensors(scratch / fmt::format("{}.safetensors", channels), results_of(image));
  }
  PRUNEX_RUN_PYTHON("tests/pytorch/augment.py", scratch / "3.safetensors", scratch / "1.safetensors");
}

}  // namespace
}  // namespace prunex::data
