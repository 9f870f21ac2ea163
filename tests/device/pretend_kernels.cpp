// The kernels of the pretend device: the CPU's.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/device/pretend_device.h"
#include "tests/device/pretend_graph.h"
#include "tests/device/pretend_memory.h"

namespace prunex::tests {
namespace {

using torch::jit::Stack;

std::atomic<int64_t> reads = 0, uploads = 0, kernels = 0;
thread_local int uncounted = 0;

void count(std::atomic<int64_t>& counter) {
  if (uncounted == 0) ++counter;
}

/// The same memory as kernels see it: a tensor of the CPU.
at::Tensor opened(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  const auto options = at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU);
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(PretendMemory::instance().for_kernels(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
                       options);
}

bool is_open(const Recorder* recorder) {
  return recorder != nullptr && recorder->leaves_results_open();
}

/// A kernel's result, in the layout that the CPU gave it; its place alone, if the kernel is to run later.
at::Tensor on_device(const at::Tensor& result, bool later) {
  if (!result.defined()) return result;
  const at::Tensor dense = result.is_non_overlapping_and_dense() ? result : result.contiguous();
  const at::Tensor placed = at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(pretend_device()));
  if (!later) opened(placed).copy_(dense);
  return placed;
}

/// A kernel's result where the graph put it when it was recorded.
void put(const at::Tensor& result, const at::Tensor& place) {
  if (place.defined()) opened(place).copy_(result);
}

// What has to do with memory.

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &PretendMemory::instance(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &PretendMemory::instance(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat>) {
  at::TensorImpl* tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(size);
  const auto wanted = static_cast<size_t>(tensor->numel() + tensor->storage_offset()) * tensor->itemsize();
  const c10::Storage& storage = tensor->unsafe_storage();
  if (wanted <= storage.nbytes()) return self;
  c10::DataPtr larger = PretendMemory::instance().allocate(wanted);
  if (storage.nbytes() > 0) PretendMemory::instance().copy_data(larger.get(), storage.data(), storage.nbytes());
  storage.set_data_ptr_noswap(std::move(larger));
  storage.set_nbytes(wanted);
  return self;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Recorder* const recorder = recorder_of_kernel("copy");
  const at::Tensor& host = from.is_cpu() ? from : to;
  const bool meets_host = host.is_cpu();
  if (meets_host && recorder != nullptr) recorder->meet_host("a copy between host and device");
  const bool waits = meets_host && !(non_blocking && PinnedMemory::instance().holds(host.const_data_ptr()));
  if (to.is_cpu()) count(reads);
  if (from.is_cpu() && waits) count(uploads);
  if (recorder == nullptr) {
    opened(to).copy_(opened(from));
  } else {  // what the host does not wait for is read, or written, where it lies
    const at::Tensor taken = from.is_cpu() && waits ? from.clone() : from;
    recorder->add("copy", [taken, to] { opened(to).copy_(opened(taken)); });
    if (to.is_cpu() && waits) recorder->wait("a copy to the host");
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  if (Recorder* recorder = recorder_of_kernel("item")) recorder->wait("item()");
  count(reads);
  return opened(self).item();
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef size) {
  return at::native::view(self, size);
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

// What backends must bring.

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups) {
  const auto compute = [=, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                        output_padding = output_padding.vec()] {
    const std::optional<at::Tensor> own = bias ? std::optional(opened(*bias)) : std::nullopt;
    return at::convolution(opened(x), opened(weight), own, stride, padding, dilation, transposed, output_padding,
                           groups);
  };
  Recorder* const recorder = recorder_of_kernel("convolution");
  const at::Tensor result = on_device(compute(), is_open(recorder));
  if (recorder != nullptr) {
    recorder->add("convolution", [compute, result] { put(compute(), result); });
  }
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                                    const at::Tensor& weight, c10::IntArrayRef stride,
                                                                    c10::IntArrayRef padding, c10::IntArrayRef dilation,
                                                                    bool transposed, c10::IntArrayRef output_padding,
                                                                    int64_t groups, std::array<bool, 3> mask) {
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  const auto compute = [=, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                        output_padding = output_padding.vec()] {
    return at::convolution_backward(opened(gradient), opened(x), opened(weight), at::IntArrayRef{channels}, stride,
                                    padding, dilation, transposed, output_padding, groups, mask);
  };
  const auto [of_x, of_weight, of_bias] = compute();
  Recorder* const recorder = recorder_of_kernel("convolution_backward");
  const bool later = is_open(recorder);
  const std::tuple results{on_device(of_x, later), on_device(of_weight, later), on_device(of_bias, later)};
  if (recorder != nullptr) {
    recorder->add("convolution_backward", [compute, results] {
      const auto [x_again, weight_again, bias_again] = compute();
      put(x_again, std::get<0>(results));
      put(weight_again, std::get<1>(results));
      put(bias_again, std::get<2>(results));
    });
  }
  return results;
}

// Everything else: the CPU's kernel on opened memory.

bool is_ours(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kPretendType;
}

void check_place(const at::Tensor& tensor, const c10::OperatorHandle& op) {
  TORCH_CHECK(!tensor.defined() || is_ours(tensor) || (tensor.is_cpu() && tensor.dim() == 0), "[pretend] ",
              op.schema().name(), ": a tensor on ", tensor.device(), " of shape ", tensor.sizes(),
              " beside others on the device");
}

c10::IValue opened(const c10::IValue& argument, const c10::OperatorHandle& op) {
  if (argument.isTensor()) {
    check_place(argument.toTensor(), op);
    return opened(argument.toTensor());
  }
  if (argument.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : argument.toTensorVector()) {
      check_place(tensor, op);
      list.push_back(opened(tensor));
    }
    return list;
  }
  if (argument.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : argument.toOptionalTensorVector()) {
      if (tensor) check_place(*tensor, op);
      list.push_back(tensor ? std::optional(opened(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (argument.isDevice()) return c10::Device(at::kCPU);
  return argument;
}

/// Results that the host must have before it goes on: their size, or numbers.
bool depends_on_data(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::nonzero", "aten::masked_select", "aten::bincount",
                                              "aten::unique",  "aten::_unique2",      "aten::repeat_interleave"};
  const auto& returns = op.schema().returns();
  return names.contains(op.schema().name()) || std::any_of(returns.begin(), returns.end(), [](const auto& result) {
           const auto kind = result.type()->kind();
           return kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType;
         });
}

/// An `out` that came empty was resized by the kernel.
void take_size(const c10::IValue& given, const c10::IValue& computed) {
  if (!given.isTensor() || !is_ours(given.toTensor())) return;
  const at::Tensor target = given.toTensor(), result = computed.toTensor();
  if (target.sizes() == result.sizes()) return;
  target.resize_(result.sizes());
  opened(target).copy_(result);
}

c10::IValue returned(const c10::IValue& result, bool later) {
  if (result.isTensor()) return on_device(result.toTensor(), later);
  if (!result.isTensorList()) return result;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : result.toTensorVector()) list.push_back(on_device(tensor, later));
  return list;
}

/// The CPU's kernel on what the stack's last arguments are, opened; `copies`: of those that it may write to, so that
/// the device's memory stays as it is. Returns what it was given.
std::vector<c10::IValue> run_kernel(const c10::OperatorHandle& op, Stack* stack, bool copies) {
  const size_t begin = stack->size() - op.schema().arguments().size();
  std::vector<c10::IValue> ours;
  for (size_t i = begin; i < stack->size(); ++i) {
    c10::IValue& argument = (*stack)[i];
    argument = opened(argument, op);
    if (copies && argument.isTensor() && argument.toTensor().defined()) argument = argument.toTensor().clone();
    if (copies && argument.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : argument.toTensorVector()) list.push_back(tensor.clone());
      argument = list;
    }
    ours.push_back(argument);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  return ours;
}

bool is_alias(const c10::Argument& argument) {
  return argument.alias_info() != nullptr;
}

/// What was recorded, again: into the results that it had then.
void run_again(const c10::OperatorHandle& op, const std::vector<c10::IValue>& given,
               const std::vector<c10::IValue>& results) {
  Stack stack(given);
  run_kernel(op, &stack, false);
  for (size_t r = 0; r < results.size(); ++r) {
    if (is_alias(op.schema().returns()[r])) continue;
    if (results[r].isTensor()) {
      put(stack[r].toTensor(), results[r].toTensor());
      continue;
    }
    const auto again = stack[r].toTensorVector(), places = results[r].toTensorVector();
    for (size_t i = 0; i < places.size(); ++i) put(again[i], places[i]);
  }
}

/// cuDNN's batch norm reads its vectors 16 bytes at a time, wherever they begin.
void check_addresses(const c10::FunctionSchema& schema, const Stack& stack) {
  if (schema.name() != "aten::native_batch_norm") return;
  const auto arguments = torch::jit::last(stack, schema.arguments().size());
  if (!arguments[5].toBool()) return;  // not for training
  for (size_t i = 1; i < 5; ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const auto address = reinterpret_cast<uintptr_t>(arguments[i].toTensor().const_data_ptr());
    TORCH_CHECK(address % 16 == 0, "[pretend] ", schema.name(), ": misaligned ", schema.arguments()[i].name());
  }
}

void run_on_opened(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  compute_alone();
  ++kernels;
  const auto& schema = op.schema();
  check_addresses(schema, *stack);
  Recorder* recorder = recorder_of_kernel(schema.name());
  if (depends_on_data(op)) {
    if (recorder != nullptr) std::exchange(recorder, nullptr)->wait(schema.name());
    count(reads);
  }
  const size_t begin = stack->size() - schema.arguments().size();
  const std::vector<c10::IValue> given(stack->begin() + static_cast<std::ptrdiff_t>(begin), stack->end());
  const std::vector<c10::IValue> ours = run_kernel(op, stack, recorder != nullptr);
  for (size_t i = 0; i < given.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) take_size(given[i], ours[i]);
  }
  for (size_t r = 0; r < schema.returns().size(); ++r) {
    c10::IValue& result = (*stack)[begin + r];
    const auto* alias = schema.returns()[r].alias_info();
    if (alias == nullptr) {
      result = returned(result, is_open(recorder));
      continue;
    }
    TORCH_CHECK(alias->isWrite(), "[pretend] ", schema.name(), " gives out a view");
    for (size_t i = 0; i < given.size(); ++i) {
      const auto* of_argument = schema.arguments()[i].alias_info();
      if (of_argument != nullptr && *of_argument == *alias) result = given[i];
    }
  }
  if (recorder == nullptr) return;
  const std::vector<c10::IValue> results(stack->begin() + static_cast<std::ptrdiff_t>(begin), stack->end());
  recorder->add(schema.name(), [op, given, results] { run_again(op, given, results); });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_opened>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("resize_", &resize);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("view", &view);
  m.impl("as_strided", &as_strided);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
}

// Autocast, as the CPU has it, of what networks here are made of.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp) KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
}

}  // namespace

HostTraffic HostTraffic::operator-(const HostTraffic& before) const {
  return {reads - before.reads, uploads - before.uploads, kernels - before.kernels, grown - before.grown};
}

HostTraffic host_traffic() {
  return {reads, uploads, kernels, PretendMemory::instance().grown()};
}

Uncounted::Uncounted() {
  ++uncounted;
}

Uncounted::~Uncounted() {
  --uncounted;
}

}  // namespace prunex::tests
