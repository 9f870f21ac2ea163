// What a trained network says of its images and classes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/data/dataset.h"

namespace prunex::data {

/// The files that hold the network carry this.
struct Description {
  std::vector<double> mean, std;     ///< per channel, of pixels scaled to 0 … 1
  std::vector<std::string> classes;  ///< names, by label; empty if they are not known
  int64_t resize = 0;  ///< the shorter side that images from files got before their middle was tested; 0: not known
  int64_t crop = 0;    ///< the side of that middle; 0: not known
};

/// The name of the text in a .pt2's extra files and in the metadata of a .safetensors.
inline constexpr const char* kDescriptionName = "prunex.json";

/// {"normalization": {"mean": […], "std": […]}, "classes": […], "resize": pixels, "crop": pixels, "input": how they
/// are meant}; resize and crop are left out if they are not known.
std::string description_json(const Description& description);

/// The inverse; `source` is named in the std::invalid_argument for anything else.
Description parse_description(const std::string& json, const std::string& source);

Description describe(const Dataset& dataset);

/// The set's images are normalised by the description from now on; its classes take their names from there if they
/// have none. std::invalid_argument names `source` if it has other channels than the images.
void normalise_by(Dataset& dataset, const Description& description, const std::string& source);

/// Beyond what rounding does.
bool normalise_differently(const Description& a, const Description& b);

/// "mean 0.4914, 0.4822, 0.4465, std 0.247, 0.2435, 0.2616".
std::string normalization_text(const Description& description);

/// The names, or "0", "1", … of `count` classes without any.
std::vector<std::string> names_or_numbers(const std::vector<std::string>& names, int64_t count);

}  // namespace prunex::data
