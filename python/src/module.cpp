// The extension module of the Python package; what people call is in python/prunex.
#include "prunex/version.h"
#include "python/src/bindings.h"
#include "python/src/tensors.h"

#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

#include <exception>

NB_MODULE(_prunex, module) {
  prunex::python::check_layout();
  nanobind::set_leak_warnings(false);  // what outlives the module is the user's
  nanobind::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const c10::Error& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
    }
  });
  module.attr("version") = prunex::kVersion;
  module.attr("torch_version") = TORCH_VERSION;
  prunex::python::bind_cuts(module);
  prunex::python::bind_gradient_exchanges(module);
  prunex::python::bind_loader(module);
  prunex::python::bind_networks(module);
  prunex::python::bind_strategies(module);
}
