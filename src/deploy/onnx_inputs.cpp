// The inputs of an export: their names, their axes, and the runs that show what changes.
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "deploy/files/script_file.h"
#include "deploy/kept_buffers.h"
#include "deploy/onnx_job.h"
#include "deploy/onnx_operand.h"

namespace mezzo::deploy {

bool is_number_input(const Job& job, std::size_t argument) {
  if (argument >= job.given) return false;
  return job.runs[0][argument].isScalar();
}

std::vector<at::Tensor> inputs_in(const Job& job, const std::vector<c10::IValue>& run) {
  std::vector<at::Tensor> tensors;
  for (std::size_t a = 0; a < run.size(); ++a) {
    if (is_number_input(job, a)) {
      tensors.push_back(at::scalar_tensor(run[a].toScalar(), detail::outer_type(run[a])));
    } else {
      collect_tensors(run[a], &tensors);
    }
  }
  for (at::Tensor& tensor : tensors) tensor = detail::real_form(tensor);
  return tensors;
}

std::vector<at::Tensor> outputs_in(const c10::IValue& result) {
  if (result.isScalar()) return {at::scalar_tensor(result.toScalar(), detail::outer_type(result))};
  std::vector<at::Tensor> tensors;
  const auto add = [&](const c10::IValue& part) {
    for (at::Tensor& tensor : outputs_in(part)) tensors.push_back(std::move(tensor));
  };
  if (result.isTuple()) {
    for (const c10::IValue& part : result.toTupleRef().elements()) add(part);
  } else if (result.isList()) {
    for (const c10::IValue& part : result.toListRef()) add(part);
  } else if (result.isGenericDict()) {
    for (const auto& item : result.toGenericDict()) add(item.value());
  } else {
    collect_tensors(result, &tensors);
  }
  for (at::Tensor& tensor : tensors) tensor = detail::real_form(tensor);
  return tensors;
}

std::vector<NamedInput> named_inputs(const Job& job, const OnnxOptions& options) {
  std::vector<NamedInput> inputs;
  for (const at::Tensor& tensor : inputs_in(job, job.runs[0]))
    inputs.push_back({"input_" + std::to_string(inputs.size()), tensor});
  std::size_t next = 0;
  for (std::size_t a = 0; a < job.runs[0].size() && a < job.argument_names.size(); ++a) {
    std::vector<at::Tensor> inside;
    collect_tensors(job.runs[0][a], &inside);
    const std::size_t count = is_number_input(job, a) ? 1 : inside.size();
    for (std::size_t i = 0; i < count; ++i)
      inputs[next++].name =
          count > 1 ? c10::str(job.argument_names[a], "_", i) : job.argument_names[a];
  }
  if (options.input_names.empty()) return inputs;
  if (options.input_names.size() != inputs.size())
    raise<ConfigError>(kWho, "input_names has ", options.input_names.size(),
                       " names, and the examples hold ", inputs.size(), " tensors");
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].name = options.input_names[i];
  return inputs;
}

namespace {

/// Which of the inputs are tensors to LibTorch.
std::vector<std::size_t> places_of_tensors(const Job& job) {
  std::vector<std::size_t> places;
  std::size_t next = 0;
  for (std::size_t a = 0; a < job.runs[0].size(); ++a) {
    std::vector<at::Tensor> inside;
    collect_tensors(job.runs[0][a], &inside);
    if (is_number_input(job, a)) ++next;
    for (std::size_t i = 0; i < inside.size(); ++i) places.push_back(next++);
  }
  return places;
}

}  // namespace

DynamicAxes axes_by_number(const Job& job, const DynamicAxes& axes,
                           const std::vector<NamedInput>& inputs) {
  const std::vector<std::size_t> places = places_of_tensors(job);
  DynamicAxes numbered;
  for (const auto& [name, dimensions] : axes) {
    std::string own = name;
    for (std::size_t t = 0; t < places.size(); ++t) {
      if (inputs[places[t]].name == name || std::to_string(places[t]) == name)
        own = "input_" + std::to_string(t);
    }
    numbered[own].insert(dimensions.begin(), dimensions.end());
  }
  return numbered;
}

std::vector<AxisOfInputs> axes_of(const Job& job, const DynamicAxes& axes,
                                  const std::vector<NamedInput>& inputs) {
  std::vector<NamedInput> tensors;
  for (const std::size_t place : places_of_tensors(job))
    tensors.push_back({"input_" + std::to_string(tensors.size()), inputs[place].tensor});
  return settle_axes(axes_by_number(job, axes, inputs), tensors, kWho);
}

void settle_arguments(Job* job) {
  const auto& arguments = job->module.get_method("forward").function().getSchema().arguments();
  std::vector<c10::IValue>& values = job->runs[0];
  job->given = values.size();
  if (values.size() + 1 > arguments.size())
    raise<ConfigError>(kWho, "the module takes ", arguments.size() - 1,
                       " arguments, and there are ", values.size(), " examples");
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    job->argument_names.push_back(arguments[i].name());
    if (i <= job->given) {
      const auto kind = arguments[i].type()->kind();
      c10::IValue& value = values[i - 1];
      const bool wants_number = kind == c10::TypeKind::IntType ||
                                kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType;
      if (!wants_number || !value.isTensor() || value.toTensor().numel() != 1) continue;
      const at::Scalar number = value.toTensor().item();
      value = kind == c10::TypeKind::IntType     ? c10::IValue(number.to<std::int64_t>())
              : kind == c10::TypeKind::FloatType ? c10::IValue(number.to<double>())
                                                 : c10::IValue(number.to<bool>());
    } else if (arguments[i].default_value()) {
      values.push_back(*arguments[i].default_value());
    } else {
      raise<ConfigError>(kWho, "the module takes ", arguments.size() - 1,
                         " arguments; there is no example for '", arguments[i].name(), "'");
    }
  }
}

namespace {

/// Adds a run at these sizes. Empty: it did; else why the module does not run there.
std::string try_run(Job* job, const std::vector<AxisOfInputs>& axes,
                    const std::vector<std::int64_t>& sizes) {
  torch::jit::Module module = before_calls(*job);
  std::vector<c10::IValue> inputs = resized(job->runs[0], axes, sizes);
  try {
    const at::NoGradGuard no_grad;
    const KeptBuffers kept(module);
    module.forward(copied(inputs));
    job->runs.push_back(std::move(inputs));
    return {};
  } catch (const std::exception& error) {
    return reason_of(error);
  }
}

/// Larger sizes; a batch does not become 64 times as large.
std::vector<std::int64_t> larger_sizes(const std::vector<AxisOfInputs>& axes, std::int64_t most) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(axes.size());
  for (const AxisOfInputs& axis : axes) sizes.push_back(axis.size + far_step(axis.size, most));
  return sizes;
}

/// The axes of images change places: which side is the shorter one, and what a module computes from
/// that, changes as well. Equal sides become different ones, by odd numbers of steps: what is
/// missing to a multiple differs from that of the far run.
std::vector<std::int64_t> turned_sizes(const std::vector<AxisOfInputs>& axes) {
  constexpr std::int64_t kLong = 16, kApart = 32;  // batches and channels keep their places
  std::vector<std::size_t> order;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (axes[a].size >= kLong) order.push_back(a);
  }
  const auto size_of = [&](std::size_t a) { return axes[a].size; };
  std::ranges::stable_sort(order, {}, size_of);
  std::vector<std::int64_t> turned = larger_sizes(axes, kApart);
  if (order.empty()) return turned;
  const bool are_equal = size_of(order.front()) == size_of(order.back());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t other = order.size() - 1 - i;
    turned[order[i]] = are_equal
                           ? size_of(order[i]) + kApart * static_cast<std::int64_t>(2 * other + 1)
                           : size_of(order[other]);
  }
  return turned;
}

// So far from the example that a map of a thirty-second of an image has another size, and half as
// far, so that what is missing to a multiple changes as well.
bool add_far_run(Job* job, const std::vector<AxisOfInputs>& axes, std::int64_t most) {
  for (; most >= 16; most /= 2) {
    if (try_run(job, axes, larger_sizes(axes, most)).empty()) return true;
  }
  return false;
}

}  // namespace

void add_runs(Job* job, const std::vector<AxisOfInputs>& axes) {
  std::string why;
  if (add_far_run(job, axes, 64) && !try_run(job, axes, turned_sizes(axes)).empty())
    add_far_run(job, axes, 32);
  const std::size_t most = job->runs.size() + 1;
  for (const std::int64_t step : {1, 2, 3, 4, 8, 16, 32, 64}) {
    std::vector<std::int64_t> sizes;
    for (std::size_t a = 0; a < axes.size(); ++a)
      sizes.push_back(axes[a].size + step * (step < 4 ? static_cast<std::int64_t>(a) + 1 : 1));
    const std::string failed = try_run(job, axes, sizes);
    if (why.empty()) why = failed;
    if (job->runs.size() == std::max<std::size_t>(most, 3)) return;
  }
  if (job->runs.size() > 1) return;
  raise<UnsupportedError>(
      kWho, "the axis '", axes[0].name,
      "' cannot be dynamic: the module runs at no other sizes that were tried. It said: ", why);
}

std::vector<c10::IValue> imagined_run(const Job& job) {
  std::vector<c10::IValue> run = copied(job.runs[0]);
  for (std::size_t a = 0; a < run.size(); ++a) {
    if (is_number_input(job, a) && run[a].isInt()) run[a] = run[a].toInt() + 1;
  }
  return run;
}

}  // namespace mezzo::deploy
