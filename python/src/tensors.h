// Python's tensors as ATen's and back, without libtorch_python.
#pragma once

#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>

#include "prunex/tensors.h"

namespace prunex::python {

namespace nb = nanobind;

/// The tensor that a torch.Tensor stands for: the same object, not a copy; so its gradient is there too. Throws
/// nb::type_error for anything else.
at::Tensor tensor_of(nb::handle object);

/// A torch.Tensor over the same memory; without its gradient.
nb::object to_python(const at::Tensor& tensor);

/// dict[str, torch.Tensor], in its order.
TensorDict dictionary_of(const nb::dict& tensors);
nb::dict to_python(const TensorDict& tensors);

/// Throws ImportError unless this torch lays out its tensors as the one that this module was built for.
void check_layout();

}  // namespace prunex::python
