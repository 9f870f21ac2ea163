#include "python/src/tensors.h"

#include <ATen/DLConvertor.h>
#include <nanobind/stl/string.h>

#include <string>

namespace prunex::python {
namespace {

/// The head of torch.Tensor's object: torch/csrc/autograd/python_variable.h, whose functions need libtorch_python.
struct TensorObject {
  PyObject_HEAD at::Tensor tensor;
};

nb::object torch(const char* name) {
  return nb::module_::import_("torch").attr(name);
}

constexpr const char* kCapsule = "dltensor";

void release(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kCapsule) == 0) return;  // torch has taken it
  auto* tensor = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsule));
  tensor->deleter(tensor);
}

}  // namespace

at::Tensor tensor_of(nb::handle object) {
  if (!nb::isinstance(object, torch("Tensor"))) {
    throw nb::type_error(("got " + std::string(nb::inst_name(object).c_str()) + ", wanted a torch.Tensor").c_str());
  }
  const at::Tensor& tensor = reinterpret_cast<const TensorObject*>(object.ptr())->tensor;
  if (tensor.key_set().has(c10::DispatchKey::Python) || !tensor.has_storage()) {
    throw nb::type_error(("got " + std::string(nb::inst_name(object).c_str()) +
                          ", which keeps its numbers in a way of its own, wanted a plain torch.Tensor")
                             .c_str());
  }
  return tensor;
}

nb::object to_python(const at::Tensor& tensor) {
  PyObject* capsule = PyCapsule_New(at::toDLPack(tensor.detach()), kCapsule, release);
  return torch("from_dlpack")(nb::steal(capsule));
}

TensorDict dictionary_of(const nb::dict& tensors) {
  TensorDict dictionary;
  for (const auto& [name, tensor] : tensors) dictionary.insert(nb::cast<std::string>(name), tensor_of(tensor));
  return dictionary;
}

nb::dict to_python(const TensorDict& tensors) {
  nb::dict dictionary;
  for (const auto& item : tensors) dictionary[item.key().c_str()] = to_python(item.value());
  return dictionary;
}

void check_layout() {
  const nb::object probe = torch("arange")(7);
  const auto* found = reinterpret_cast<const TensorObject*>(probe.ptr());
  void* const* impl = reinterpret_cast<void* const*>(&found->tensor);
  const auto memory = nb::cast<uintptr_t>(probe.attr("data_ptr")());
  if (*impl != nullptr && found->tensor.numel() == 7 &&
      reinterpret_cast<uintptr_t>(found->tensor.const_data_ptr()) == memory) {
    return;
  }
  throw nb::import_error("prunex: this torch lays out its tensors in another way than the one prunex was built for");
}

}  // namespace prunex::python
