// The command's batches, for loops that are to see what it sees.
#include <nanobind/stl/string.h>

#include "prunex/data/load.h"
#include "prunex/data/loader.h"
#include "python/src/bindings.h"
#include "python/src/tensors.h"

namespace prunex::python {

void bind_loader(nb::module_& module) {
  nb::class_<data::Loader>(module, "Loader")
      .def(
          "__init__",
          [](data::Loader* self, const std::string& dataset, const std::string& data_dir, int64_t samples,
             int64_t batch_size, int64_t rank, int64_t ranks, uint64_t seed) {
            const data::DataOptions options{.dataset = dataset, .data_dir = data_dir, .samples = samples};
            const data::LoaderOptions batches{.batch_size = batch_size, .rank = rank, .ranks = ranks, .seed = seed};
            new (self) data::Loader(data::load_datasets(options).train, batches);
          },
          nb::arg("dataset"), nb::arg("data_dir"), nb::arg("samples"), nb::arg("batch_size"), nb::arg("rank"),
          nb::arg("ranks"), nb::arg("seed"))
      .def("steps_per_epoch", &data::Loader::steps_per_epoch)
      .def(
          "batch",
          [](data::Loader& self, int64_t epoch, int64_t step) {
            const data::Batch batch = self.batch(epoch, step);
            return nb::make_tuple(to_python(batch.images), to_python(batch.labels));
          },
          nb::sig("def batch(self, epoch: int, step: int) -> tuple[torch.Tensor, torch.Tensor]"));
}

}  // namespace prunex::python
