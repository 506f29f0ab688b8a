#include "deploy/onnx_complex.h"

#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>

#include <algorithm>
#include <map>

namespace mezzo::deploy::detail {
namespace {

at::Tensor part_of(const at::Tensor& tensor, Part part) {
  if (!tensor.is_complex()) return tensor;
  return (part == Part::kReal ? at::real(tensor) : at::imag(tensor)).resolve_neg();
}

c10::IValue part_of(const c10::IValue& value, Part part) {
  if (value.isTensor()) return part_of(value.toTensor(), part);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) list.push_back(part_of(each, part));
    return list;
  }
  const c10::complex<double> number = value.toComplexDouble();
  return part == Part::kReal ? number.real() : number.imag();
}

/// A zero of the shape of a tensor; a number for a number.
OnnxValue zero_like(const Call& call, const OnnxValue& value) {
  const c10::IValue example = example_of(value, 0);
  if (!example.isTensor()) return constant_of(c10::IValue(0.0), call.g.variants());
  const std::string zero = call.g.number(0, element_type(example));
  const std::string name = call.g.op("Expand", {zero, call.g.op("Shape", {call.g.name_of(value)})});
  return made_of(name, value.operand()->examples);
}

/// The imaginary part of an operand that is added; zero if it is real.
OnnxValue imaginary_of_real(const Call& call, const OnnxValue& value) {
  const Operand& from = *value.operand();
  if (from.kind == Operand::Kind::kList) {
    std::vector<OnnxValue> elements = from.elements;
    for (OnnxValue& element : elements)
      element =
          is_complex(element) ? part_of(call, element, Part::kImaginary) : zero_like(call, element);
    return list_like(value, std::move(elements));
  }
  return value.is_none() || is_complex(value) ? part_of(call, value, Part::kImaginary)
                                              : zero_like(call, value);
}

/// Operands that are added to others; flags, sizes and factors are none of these.
bool is_added(std::string_view argument) {
  return argument == "self" || argument == "other" || argument == "tensors" ||
         argument == "value" || argument == "src";
}

}  // namespace

std::string Builder::pairs(const Names& parts) {
  Names columns;
  columns.reserve(parts.size());
  for (const std::string& part : parts) columns.push_back(op("Unsqueeze", {part, ints({-1})}));
  std::string name = op("Concat", columns, {{"axis", std::int64_t{-1}}});
  parts_.emplace(name, parts);
  return name;
}

Names Builder::parts_of(const std::string& pairs) {
  const auto known = parts_.find(pairs);
  if (known != parts_.end()) return known->second;
  const OnnxAttributes last{{"axis", std::int64_t{-1}}};
  return {op("Gather", {pairs, integer(0)}, last), op("Gather", {pairs, integer(1)}, last)};
}

const std::array<at::Tensor, 2>& Builder::parts_of(const at::Tensor& complex) {
  ConstantParts& known = constant_parts_[complex.unsafeGetTensorImpl()];
  if (!known.whole.defined()) {
    known.whole = complex;
    const at::Tensor pairs = real_form(complex);
    known.parts = {pairs.select(-1, 0).clone(), pairs.select(-1, 1).clone()};
  }
  return known.parts;
}

bool is_complex(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() && value.toTensor().is_complex();
  if (value.isTensorList())
    return std::ranges::any_of(value.toTensorVector(),
                               [](const at::Tensor& each) { return each.is_complex(); });
  return value.isComplexDouble();
}

bool is_complex(const OnnxValue& value) {
  const Operand& operand = *value.operand();
  if (operand.kind == Operand::Kind::kList)
    return std::ranges::any_of(operand.elements, [](const auto& one) { return is_complex(one); });
  return operand.kind == Operand::Kind::kValue && !operand.examples.empty() &&
         is_complex(operand.examples.front());
}

OnnxValue part_of(const Call& call, const OnnxValue& value, Part part) {
  const Operand& from = *value.operand();
  if (!is_complex(value)) return value;
  const auto index = static_cast<std::size_t>(part);
  if (from.kind == Operand::Kind::kList) {
    std::vector<OnnxValue> elements = from.elements;
    for (OnnxValue& element : elements) element = part_of(call, element, part);
    return list_like(value, std::move(elements));
  }
  std::vector<c10::IValue> examples;
  examples.reserve(from.examples.size());
  if (!from.is_constant) {
    for (const c10::IValue& example : from.examples) examples.push_back(part_of(example, part));
    return made_of(call.g.parts_of(call.g.name_of(value))[index], std::move(examples));
  }
  auto constant = std::make_shared<Operand>();
  for (const c10::IValue& example : from.examples)
    constant->examples.push_back(example.isTensor()
                                     ? c10::IValue(call.g.parts_of(example.toTensor())[index])
                                     : part_of(example, part));
  return OnnxValue(std::move(constant));
}

Names on_operands(const Call& call, std::vector<OnnxValue> operands) {
  std::vector<std::vector<c10::IValue>> results(call.results());
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (std::size_t k = 0; k < call.g.variants(); ++k) {
      const c10::IValue& whole = call.result(i, k);
      results[i].push_back(is_complex(whole) ? part_of(whole, Part::kReal) : whole);
    }
  }
  const Row* const row = find_row(row_name(call.schema()));
  if (row == nullptr) call.refuse("it takes no complex numbers in ONNX");
  return row->say(Call(call.g, call.schema(), std::move(operands), std::move(results)));
}

Parts parts_of(const Call& call, const OnnxValue& value) {
  if (!is_complex(value)) return {call.g.name_of(value), ""};
  return {call.g.name_of(part_of(call, value, Part::kReal)),
          call.g.name_of(part_of(call, value, Part::kImaginary))};
}

Parts parts_of(const Call& call, std::string_view argument) {
  return parts_of(call, call.arg(argument));
}

Names on_part(const Call& call, Part part, bool adds) {
  std::vector<OnnxValue> operands;
  for (const auto& argument : call.schema().arguments()) {
    const OnnxValue& value = call.arg(argument.name());
    const bool is_zero = adds && part == Part::kImaginary && is_added(argument.name());
    operands.push_back(is_zero ? imaginary_of_real(call, value) : part_of(call, value, part));
  }
  return on_operands(call, std::move(operands));
}

Names joined(const Call& call, const Names& real, const Names& imaginary) {
  if (!is_complex(call.result())) return real;
  Names made;
  made.reserve(real.size());
  for (std::size_t i = 0; i < real.size(); ++i)
    made.push_back(call.g.pairs({real[i], imaginary[i]}));
  return made;
}

}  // namespace mezzo::deploy::detail
