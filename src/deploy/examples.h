// The inputs of a call: their tensors, which of them a trace can take, and the same at other sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/torch.h"
#include "deploy/values/collect_tensors.h"
#include "mezzo/deploy_trace.h"

namespace mezzo::deploy {

/// A tensor of the examples that is an input, with its name.
struct NamedInput {
  std::string name;
  at::Tensor tensor;
};

/// The tensors in order, depth first, called "input_0" and so on.
std::vector<NamedInput> inputs_of(const std::vector<c10::IValue>& values);

/// The values with every tensor replaced; containers are new.
c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& replace);
std::vector<c10::IValue> map_tensors(const std::vector<c10::IValue>& values,
                                     const std::function<at::Tensor(const at::Tensor&)>& replace);

/// Copies, so that a network that writes to its inputs leaves the caller's alone.
std::vector<c10::IValue> copied(const std::vector<c10::IValue>& values);

/// One dynamic axis: everything in the inputs that has its size.
struct AxisOfInputs {
  std::string name;
  std::int64_t size = 0;
  std::vector<std::pair<std::size_t, std::int64_t>> places;  // input, dimension
};

/// Settles the names of inputs and axes. Throws ConfigError for inputs and dimensions that are not
/// there and for axes of one name with two sizes. `where` is for messages.
std::vector<AxisOfInputs> settle_axes(const DynamicAxes& axes,
                                      const std::vector<NamedInput>& inputs,
                                      const std::string& where);

/// How far another size is from this one: up to `most` or a quarter of it, whichever is more. A map
/// of a thirty-second of an image has another size then, and a sound has more frames.
std::int64_t far_step(std::int64_t size, std::int64_t most = 64);

/// The examples with other sizes of the axes (one for each): tensors are repeated or cut, so that
/// every element occurs in the examples.
std::vector<c10::IValue> resized(const std::vector<c10::IValue>& values,
                                 const std::vector<AxisOfInputs>& axes,
                                 const std::vector<std::int64_t>& sizes);

}  // namespace mezzo::deploy
