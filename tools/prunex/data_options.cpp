#include "tools/prunex/data_options.h"

namespace prunex::tools {

void add_data_options(CLI::App& app, data::DataOptions& data) {
  const auto add = [&app](const char* name, auto& value, const char* description) {
    app.add_option(name, value, description)->group("Data");
  };
  add("--dataset", data.dataset, "synthetic, cifar10, cifar100, or FILE.safetensors with images and labels");
  add("--test", data.test, "test set when --dataset is a file");
  add("--data-dir", data.data_dir, "folder of cifar10 and cifar100 in their official binary layout");
  add("--samples", data.samples, "training images of synthetic");
  add("--train-limit", data.train_limit, "use the first N training images; 0 = all");
  add("--test-limit", data.test_limit, "use the first N test images; 0 = all");
  add("--validation", data.validation, "hold out the last N training images and score them too");
}

}  // namespace prunex::tools
