#include "tools/prunex/data_options.h"

#include "tools/prunex/checks.h"

namespace prunex::tools {

void add_data_options(CLI::App& app, data::DataOptions& data) {
  const auto add = [&app](const char* name, auto& value, const char* description) {
    app.add_option(name, value, description)->group("Data");
  };
  app.add_option("--dataset", data.dataset, "built-in or CIFAR images, or a file with images and labels")
      ->check(one_of({"synthetic", "cifar10", "cifar100"}, ".safetensors"))
      ->type_name("")
      ->group("Data");
  add("--test", data.test, "test set when --dataset is a file");
  add("--data-dir", data.data_dir, "folder of cifar10 and cifar100 in their official binary layout");
  add("--samples", data.samples, "training images of synthetic");
  add("--train-limit", data.train_limit, "use the first N training images; 0 = all");
  add("--test-limit", data.test_limit, "use the first N test images; 0 = all");
  add("--validation", data.validation, "hold out the last N training images and score them too");
}

}  // namespace prunex::tools
