#include "deploy/examples.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/remainder.h>

#include <algorithm>
#include <utility>

#include "core/torch.h"

namespace mezzo::deploy {

Examples::Examples(std::vector<c10::IValue> values) : values_(std::move(values)) {}
Examples::Examples(const std::vector<at::Tensor>& tensors)
    : values_(tensors.begin(), tensors.end()) {}
Examples::Examples(std::initializer_list<c10::IValue> values) : values_(values) {}

namespace detail {

void raise_argument(std::size_t index, const c10::IValue& got, const std::string& wanted) {
  raise<ConfigError>("deploy", "argument ", index, " of the network is ", wanted,
                     ", and the example for it is of type ", got.tagKind());
}

void raise_count(std::size_t got, std::size_t least, std::size_t most) {
  raise<ConfigError>("deploy", "the network takes ", least, " to ", most,
                     " arguments; give one example for each, got ", got);
}

}  // namespace detail

std::vector<NamedInput> inputs_of(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) collect_tensors(value, &tensors);
  std::vector<NamedInput> inputs;
  inputs.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors)
    inputs.push_back({"input_" + std::to_string(inputs.size()), tensor});
  return inputs;
}

c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& replace) {
  if (value.isTensor())
    return value.toTensor().defined() ? c10::IValue(replace(value.toTensor())) : value;
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue& element : value.toTupleRef().elements())
      elements.push_back(map_tensors(element, replace));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isList()) {
    c10::List<c10::IValue> list(value.toList().elementType());
    for (const c10::IValue& element : value.toListRef())
      list.push_back(map_tensors(element, replace));
    return list;
  }
  if (value.isGenericDict()) {
    const auto given = value.toGenericDict();
    c10::Dict<c10::IValue, c10::IValue> dict(given.keyType(), given.valueType());
    for (const auto& item : given) dict.insert(item.key(), map_tensors(item.value(), replace));
    return dict;
  }
  return value;
}

std::vector<c10::IValue> map_tensors(const std::vector<c10::IValue>& values,
                                     const std::function<at::Tensor(const at::Tensor&)>& replace) {
  std::vector<c10::IValue> result;
  result.reserve(values.size());
  for (const c10::IValue& value : values) result.push_back(map_tensors(value, replace));
  return result;
}

std::vector<c10::IValue> copied(const std::vector<c10::IValue>& values) {
  return map_tensors(values, [](const at::Tensor& tensor) { return tensor.detach().clone(); });
}

namespace {

std::string names_of_inputs(const std::vector<NamedInput>& inputs) {
  std::string text;
  for (const NamedInput& input : inputs) text += (text.empty() ? "" : ", ") + input.name;
  return text;
}

}  // namespace

std::vector<AxisOfInputs> settle_axes(const DynamicAxes& axes,
                                      const std::vector<NamedInput>& inputs,
                                      const std::string& where) {
  std::vector<AxisOfInputs> settled;
  for (const auto& [input_name, dimensions] : axes) {
    const auto input =
        std::find_if(inputs.begin(), inputs.end(),
                     [&name = input_name](const auto& one) { return one.name == name; });
    if (input == inputs.end()) {
      raise<ConfigError>(where, "dynamic_axes names the input '", input_name,
                         "', and the inputs are ", names_of_inputs(inputs));
    }
    for (const auto& [given, axis_name] : dimensions) {
      const std::int64_t rank = input->tensor.dim();
      const std::int64_t dimension = given < 0 ? given + rank : given;
      if (dimension < 0 || dimension >= rank) {
        raise<ConfigError>(where, "dynamic_axes names axis ", given, " of the input '", input_name,
                           "', which has ", rank, " dimensions");
      }
      const std::int64_t size = input->tensor.size(dimension);
      const auto known =
          std::find_if(settled.begin(), settled.end(),
                       [&name = axis_name](const auto& one) { return one.name == name; });
      if (known != settled.end() && known->size != size) {
        raise<ConfigError>(where, "the axis '", axis_name, "' has the size ", known->size,
                           " in one input and ", size, " in '", input_name,
                           "'; axes of one name have one size");
      }
      AxisOfInputs& axis =
          known != settled.end() ? *known : settled.emplace_back(AxisOfInputs{axis_name, size, {}});
      axis.places.emplace_back(input - inputs.begin(), dimension);
    }
  }
  return settled;
}

std::int64_t far_step(std::int64_t size, std::int64_t most) {
  constexpr std::int64_t kMost = 64;
  return std::clamp<std::int64_t>(size * most / kMost, 2, std::max(most, size / 4));
}

std::vector<c10::IValue> resized(const std::vector<c10::IValue>& values,
                                 const std::vector<AxisOfInputs>& axes,
                                 const std::vector<std::int64_t>& sizes) {
  std::size_t next = 0;
  return map_tensors(values, [&](const at::Tensor& tensor) {
    const std::size_t index = next++;
    at::Tensor result = tensor.detach().clone();
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      for (const auto& [input, dimension] : axes[axis].places) {
        if (input != index || result.size(dimension) == sizes[axis]) continue;
        const at::Tensor places =
            at::arange(sizes[axis], result.options().dtype(at::kLong)).remainder_(axes[axis].size);
        result = result.index_select(dimension, places);
      }
    }
    return result;
  });
}

}  // namespace mezzo::deploy
