// The entry of libmezzo_convert_torch.so: ONNX operators on LibTorch's CPU operators.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <utility>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {

namespace {

constexpr std::array<std::pair<Element, at::ScalarType>, 11> kTypes{
    {{Element::kFloat, at::kFloat},
     {Element::kDouble, at::kDouble},
     {Element::kInt8, at::kChar},
     {Element::kUint8, at::kByte},
     {Element::kInt16, at::kShort},
     {Element::kUint16, at::kUInt16},
     {Element::kInt32, at::kInt},
     {Element::kUint32, at::kUInt32},
     {Element::kInt64, at::kLong},
     {Element::kUint64, at::kUInt64},
     {Element::kBool, at::kBool}}};

}  // namespace

at::ScalarType scalar_type(Element element) {
  // The evaluator rounds what is 16 bits wide.
  if (element == Element::kFloat16 || element == Element::kBFloat16) return at::kFloat;
  const auto* found = std::ranges::find(kTypes, element, &decltype(kTypes)::value_type::first);
  if (found == kTypes.end()) refuse("values of type ", static_cast<int>(element));
  return found->second;
}

at::Tensor tensor_of(const Array& array) {
  const at::ScalarType type = scalar_type(array.element);
  // Nothing writes to inputs.
  void* data = const_cast<char*>(array.bytes.data());
  return at::from_blob(data, array.dims, at::TensorOptions().dtype(type));
}

namespace {

Element element_of(at::ScalarType type) {
  const auto* found = std::ranges::find(kTypes, type, &decltype(kTypes)::value_type::second);
  if (found == kTypes.end()) refuse("a result of LibTorch's type ", c10::toString(type));
  return found->first;
}

Array array_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  Array array;
  array.element = element_of(dense.scalar_type());
  array.dims.assign(dense.sizes().begin(), dense.sizes().end());
  array.bytes.assign(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  return array;
}

const TorchOperator* find(std::string_view op) {
  for (const auto& part :
       {elementwise_operators(), reduction_operators(), shape_operators(), indexing_operators(),
        product_operators(), convolution_operators(), recurrent_operators(), image_operators(),
        quantised_operators(), spectrum_operators(), region_operators(), attention_operators(),
        random_operators(), ngram_operators(), training_operators()}) {
    const auto found = std::ranges::lower_bound(part, op, {}, &TorchOperator::name);
    if (found != part.end() && found->name == op) return &*found;
  }
  return nullptr;
}

void run(const OperatorCall& call, std::vector<Array>* outputs) {
  const TorchOperator* known = find(call.op);
  if (known == nullptr) refuse("the operator is not known");
  const at::NoGradGuard no_gradients;
  Tensors results = known->run(TorchCall(call));
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    if (i >= results.size() || !results[i].defined()) {
      outputs->emplace_back();
      continue;
    }
    const bool is_free = call.outputs[i] == Element::kUndefined;
    outputs->push_back(
        array_of(is_free ? results[i] : results[i].to(scalar_type(call.outputs[i]))));
  }
}

std::string run_guarded(const OperatorCall& call, std::vector<Array>* outputs) {
  try {
    run(call, outputs);
    return {};
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

TorchCall::TorchCall(const OperatorCall& call) : call_(call) {
  for (const Array* array : call.inputs)
    inputs_.push_back(array == nullptr ? at::Tensor() : tensor_of(*array));
}

const at::Tensor& TorchCall::in(std::size_t i) const {
  if (!has(i)) refuse("input ", i, " is missing");
  return inputs_[i];
}

std::vector<std::int64_t> TorchCall::list(std::size_t i) const {
  const at::Tensor values = in(i).to(at::kLong).contiguous();
  const auto* data = values.const_data_ptr<std::int64_t>();
  return {data, data + values.numel()};
}

std::int64_t TorchCall::integer(std::string_view name, std::int64_t otherwise) const {
  const auto found = call_.attributes.find(name);
  return found == call_.attributes.end() ? otherwise : found->second.integer;
}

double TorchCall::number(std::string_view name, double otherwise) const {
  const auto found = call_.attributes.find(name);
  return found == call_.attributes.end() ? otherwise : found->second.number;
}

std::string TorchCall::text(std::string_view name, std::string_view otherwise) const {
  const auto found = call_.attributes.find(name);
  return found == call_.attributes.end() ? std::string(otherwise) : found->second.text;
}

std::vector<std::int64_t> TorchCall::integers(std::string_view name) const {
  const auto found = call_.attributes.find(name);
  return found == call_.attributes.end() ? std::vector<std::int64_t>() : found->second.integers;
}

std::vector<double> TorchCall::numbers(std::string_view name) const {
  const auto found = call_.attributes.find(name);
  return found == call_.attributes.end() ? std::vector<double>() : found->second.numbers;
}

std::vector<std::string> TorchCall::texts(std::string_view name) const {
  const auto found = call_.attributes.find(name);
  return found == call_.attributes.end() ? std::vector<std::string>() : found->second.texts;
}

const Array* TorchCall::tensor(std::string_view name) const {
  const auto found = call_.attributes.find(name);
  return found == call_.attributes.end() ? nullptr : &found->second.tensor;
}

std::vector<std::int64_t> TorchCall::integers(std::string_view name, std::size_t input) const {
  if (is_given(name)) return integers(name);
  return has(input) ? list(input) : std::vector<std::int64_t>();
}

}  // namespace mezzo::convert

extern "C" __attribute__((visibility("default"))) const mezzo::convert::OperatorLibrary*
mezzo_convert_operators() {
  static const mezzo::convert::OperatorLibrary kLibrary{mezzo::convert::kOperatorLayout,
                                                        mezzo::convert::run_guarded};
  return &kLibrary;
}
