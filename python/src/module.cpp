// The extension module of the Python package; what people call is in python/prunex.
#include "prunex/version.h"
#include "python/src/bindings.h"
#include "python/src/tensors.h"

#include <torch/headeronly/version.h>

NB_MODULE(_prunex, module) {
  prunex::python::check_layout();
  module.attr("version") = prunex::kVersion;
  module.attr("torch_version") = TORCH_VERSION;
  prunex::python::bind_cuts(module);
  prunex::python::bind_gradient_exchanges(module);
  prunex::python::bind_loader(module);
  prunex::python::bind_networks(module);
  prunex::python::bind_strategies(module);
}
