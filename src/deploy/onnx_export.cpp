// From a TorchScript module and examples to a verified file.
#include <c10/util/StringUtil.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/remove_expands.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include "core/torch.h"
#include "deploy/examples.h"
#include "deploy/onnx_job.h"
#include "deploy/onnx_walk.h"
#include "deploy/trace.h"
#include "mezzo/version.h"
#include "platform/files.h"
#include "platform/temporaries.h"

namespace mezzo::deploy {
namespace {

namespace fs = std::filesystem;
namespace jit = torch::jit;
using detail::Builder;
using detail::Names;
using detail::Operand;

constexpr int kLeastOpset = 13, kLatestOpset = 21;

bool writes_in_place(const jit::Block& block) {
  for (const jit::Node* node : block.nodes()) {
    for (const jit::Block* inner : node->blocks()) {
      if (writes_in_place(*inner)) return true;
    }
    const c10::FunctionSchema* const schema = node->maybeSchema();
    if (schema == nullptr || schema->arguments().empty()) continue;
    const auto* const alias = schema->arguments()[0].alias_info();
    const bool tensor = schema->arguments()[0].type()->isSubtypeOf(*c10::TensorType::get());
    if (alias != nullptr && alias->isWrite() && tensor) return true;
  }
  return false;
}

std::vector<NamedInput> named_inputs(const Job& job, const OnnxOptions& options) {
  std::vector<NamedInput> inputs = inputs_of(job.runs[0]);
  std::size_t next = 0;
  for (std::size_t a = 0; a < job.runs[0].size() && a < job.argument_names.size(); ++a) {
    std::vector<at::Tensor> inside;
    collect_tensors(job.runs[0][a], &inside);
    for (std::size_t i = 0; i < inside.size(); ++i)
      inputs[next++].name =
          inside.size() > 1 ? c10::str(job.argument_names[a], "_", i) : job.argument_names[a];
  }
  if (options.input_names.empty()) return inputs;
  if (options.input_names.size() != inputs.size())
    raise<ConfigError>(kWho, "input_names has ", options.input_names.size(),
                       " names, and the examples hold ", inputs.size(), " tensors");
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].name = options.input_names[i];
  return inputs;
}

/// Inputs as dynamic_axes may call them: by name, and by number.
DynamicAxes by_number(const DynamicAxes& axes, const std::vector<NamedInput>& inputs) {
  DynamicAxes numbered;
  for (const auto& [name, dimensions] : axes) {
    std::string own = name;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].name == name || std::to_string(i) == name) own = "input_" + std::to_string(i);
    }
    numbered[own].insert(dimensions.begin(), dimensions.end());
  }
  return numbered;
}

std::vector<NamedInput> numbered_inputs(std::vector<NamedInput> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].name = "input_" + std::to_string(i);
  return inputs;
}

/// The tensors of an argument as inputs of the model, in its structure.
OnnxValue input_operand(const std::vector<c10::IValue>& examples,
                        const std::vector<NamedInput>& inputs, std::size_t* next) {
  const c10::IValue& first = examples[0];
  if (first.isTensor() && first.toTensor().defined())
    return detail::made_of(inputs[(*next)++].name, examples);
  std::vector<at::Tensor> inside;
  collect_tensors(first, &inside);
  if (inside.empty()) return detail::constant_of(first, examples.size());
  OnnxValue made = detail::constant_of(first, examples.size());
  for (std::size_t i = 0; i < made.operand()->elements.size(); ++i) {
    std::vector<c10::IValue> parts;
    parts.reserve(examples.size());
    for (const c10::IValue& each : examples)
      parts.push_back(detail::example_of(detail::constant_of(each, 1).elements()[i], 0));
    made.operand()->elements[i] = input_operand(parts, inputs, next);
  }
  return made;
}

void collect_outputs(const OnnxValue& value, std::vector<OnnxValue>* outputs) {
  if (value.operand()->kind != Operand::Kind::kValue) {
    for (const OnnxValue& element : value.elements()) collect_outputs(element, outputs);
  } else if (!value.is_none()) {
    outputs->push_back(value);
  }
}

using Dimension = std::variant<std::int64_t, std::string>;

/// Sizes that are equal in all runs; names for axes of inputs, and for others that have their
/// sizes.
std::vector<Dimension> dimensions_of(const std::vector<c10::IValue>& examples,
                                     const std::map<std::vector<std::int64_t>, std::string>& axes,
                                     const std::string& name) {
  std::vector<Dimension> dimensions;
  const at::Tensor first = examples[0].toTensor();
  for (std::int64_t d = 0; d < first.dim(); ++d) {
    std::vector<std::int64_t> seen;
    seen.reserve(examples.size());
    for (const c10::IValue& each : examples) seen.push_back(each.toTensor().size(d));
    const bool is_fixed =
        std::all_of(seen.begin(), seen.end(), [&](std::int64_t size) { return size == seen[0]; });
    const auto axis = axes.find(seen);
    if (is_fixed) {
      dimensions.emplace_back(seen[0]);
    } else {
      dimensions.emplace_back(axis != axes.end() ? axis->second : name + "_" + std::to_string(d));
    }
  }
  return dimensions;
}

/// Up to two sets of other sizes at which a script runs: all axes changed at once.
void add_runs(Job* job, const std::vector<AxisOfInputs>& axes) {
  std::string why;
  jit::Module module = job->module;
  for (const std::int64_t step : {1, 2, 3, 4, 8, 16, 32, 64}) {
    std::vector<std::int64_t> sizes;
    for (std::size_t a = 0; a < axes.size(); ++a)
      sizes.push_back(axes[a].size + step * (step < 4 ? static_cast<std::int64_t>(a) + 1 : 1));
    std::vector<c10::IValue> inputs = resized(job->runs[0], axes, sizes);
    try {
      const at::NoGradGuard no_grad;
      module.forward(copied(inputs));
      job->runs.push_back(std::move(inputs));
    } catch (const std::exception& error) {
      if (why.empty()) why = error.what();
    }
    if (job->runs.size() == 3) return;
  }
  if (job->runs.size() > 1) return;
  raise<UnsupportedError>(
      kWho, "the axis '", axes[0].name,
      "' cannot be dynamic: the module runs at no other sizes that were tried. It said: ",
      why.substr(0, 500));
}

int count_nodes(const convert::MadeGraph& graph) {
  auto count = static_cast<int>(graph.nodes.size());
  for (const convert::MadeNode& node : graph.nodes) {
    for (const auto& [name, value] : node.attributes) {
      if (const auto* body = std::get_if<std::shared_ptr<convert::MadeGraph>>(&value))
        count += count_nodes(**body);
    }
  }
  return count;
}

/// The module itself and its arguments.
std::vector<OnnxValue> operands_of(const Job& job, std::size_t count, std::size_t variants,
                                   const std::vector<NamedInput>& inputs) {
  std::vector<OnnxValue> operands = {detail::constant_of(job.module._ivalue(), variants)};
  std::size_t next = 0;
  for (std::size_t a = 0; a + 1 < count; ++a) {
    if (a >= job.runs[0].size())
      raise<ConfigError>(kWho, "the module takes ", count - 1,
                         " arguments; give an example for each, got ", job.runs[0].size());
    std::vector<c10::IValue> examples;
    examples.reserve(variants);
    for (std::size_t k = 0; k < variants; ++k) examples.push_back(job.runs[k][a]);
    operands.push_back(input_operand(examples, inputs, &next));
  }
  return operands;
}

/// The tensors that each run is given.
std::vector<std::vector<at::Tensor>> tensors_of(const Job& job, std::size_t variants) {
  std::vector<std::vector<at::Tensor>> tensors(variants);
  for (std::size_t k = 0; k < variants; ++k) {
    for (const c10::IValue& value : job.runs[k]) collect_tensors(value, &tensors[k]);
  }
  return tensors;
}

using AxisNames = std::map<std::vector<std::int64_t>, std::string>;

AxisNames axis_names_of(const std::vector<std::vector<at::Tensor>>& tensors,
                        const std::vector<AxisOfInputs>& axes) {
  AxisNames names;
  for (const AxisOfInputs& axis : axes) {
    const auto& [input, dimension] = axis.places[0];
    std::vector<std::int64_t> seen;
    seen.reserve(tensors.size());
    for (const std::vector<at::Tensor>& run : tensors) seen.push_back(run[input].size(dimension));
    names.emplace(std::move(seen), axis.name);
  }
  return names;
}

std::vector<convert::MadeValue> declared_inputs(const std::vector<NamedInput>& inputs,
                                                const std::vector<std::vector<at::Tensor>>& tensors,
                                                const AxisNames& axes) {
  std::vector<convert::MadeValue> declared;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<c10::IValue> examples;
    examples.reserve(tensors.size());
    for (const std::vector<at::Tensor>& run : tensors) examples.emplace_back(run[i]);
    declared.push_back({inputs[i].name, element_of(tensors[0][i].scalar_type()), true,
                        dimensions_of(examples, axes, inputs[i].name)});
  }
  return declared;
}

at::Tensor as_tensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  return at::scalar_tensor(value.toScalar(), value.isDouble() ? at::kFloat : at::kLong);
}

/// Ends the graph with these results, under the names that the caller or their place gives.
void finish_graph(Builder& builder, const std::vector<OnnxValue>& outputs,
                  const OnnxOptions& options, std::vector<convert::MadeValue> inputs,
                  const AxisNames& axes, Made* made) {
  std::vector<convert::MadeValue> declared;
  Names names;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::vector<c10::IValue> examples;
    for (std::size_t k = 0; k < builder.variants(); ++k)
      examples.emplace_back(as_tensor(detail::example_of(outputs[i], k)));
    std::string name = builder.name_of(outputs[i]);
    if (!outputs[i].is_constant() && !detail::example_of(outputs[i], 0).isTensor())
      name = builder.op("Squeeze", {name});
    const std::string own =
        options.output_names.empty() ? "output_" + std::to_string(i) : options.output_names[i];
    made->output_types.push_back(examples[0].toTensor().scalar_type());
    declared.push_back(
        {own, element_of(made->output_types.back()), true, dimensions_of(examples, axes, own)});
    names.push_back(std::move(name));
  }
  made->model.graph = builder.finish(std::move(inputs), std::move(declared), names);
}

Made make(const Job& job, const OnnxOptions& options, const std::vector<NamedInput>& inputs,
          const std::vector<AxisOfInputs>& axes) {
  const std::shared_ptr<jit::Graph> graph = job.module.get_method("forward").graph()->copy();
  jit::Inline(*graph);
  const std::size_t variants = std::min<std::size_t>(job.runs.size(), 2);
  Builder builder(options.opset, variants);
  builder.writes_in_place = writes_in_place(*graph->block());
  for (const NamedInput& input : inputs) builder.reserve(input.name);
  std::vector<OnnxValue> operands = operands_of(job, graph->inputs().size(), variants, inputs);
  const at::NoGradGuard no_grad;
  detail::Walker walker(builder, options);
  std::vector<OnnxValue> outputs;
  collect_outputs(walker.run(*graph, std::move(operands)), &outputs);
  if (outputs.empty()) raise<ConfigError>(kWho, "the network returns no tensor");
  if (!options.output_names.empty() && options.output_names.size() != outputs.size())
    raise<ConfigError>(kWho, "output_names has ", options.output_names.size(),
                       " names, and the network gives ", outputs.size(), " tensors");
  const std::vector<std::vector<at::Tensor>> tensors = tensors_of(job, variants);
  const AxisNames axis_names = axis_names_of(tensors, axes);
  Made made;
  finish_graph(builder, outputs, options, declared_inputs(inputs, tensors, axis_names), axis_names,
               &made);
  made.model.opsets[""] = options.opset;
  for (const std::string& domain : builder.domains()) made.model.opsets[domain] = 1;
  made.model.producer_version = version();
  made.nodes = count_nodes(made.model.graph);
  return made;
}

void check(const OnnxOptions& options) {
  if (options.opset < kLeastOpset || options.opset > kLatestOpset)
    raise<ConfigError>(kWho, "opset must be between ", kLeastOpset, " and ", kLatestOpset, ", got ",
                       options.opset);
  for (const auto* names : {&options.input_names, &options.output_names}) {
    std::set<std::string> seen;
    for (const std::string& name : *names) {
      if (name.empty() || !seen.insert(name).second)
        raise<ConfigError>(kWho, "names of inputs and outputs must differ and not be empty, got '",
                           name, "' ", name.empty() ? "" : "twice");
    }
  }
}

ExportReport export_job(const Job& job, const fs::path& path, const OnnxOptions& options,
                        const std::vector<NamedInput>& inputs,
                        const std::vector<AxisOfInputs>& axes) {
  for (const auto& parameter : job.module.parameters()) {
    if (!parameter.is_cpu())
      raise<ConfigError>(kWho, "the network is on ", parameter.device(),
                         "; move it to the CPU for the export");
    break;
  }
  const Made made = make(job, options, inputs, axes);
  ExportReport report;
  report.nodes = made.nodes;
  const auto folder = platform::folder_beside(path, kWho);
  const fs::path file = folder->path() / path.filename();
  convert::store_made(made.model, file, options.external_data);
  if (options.verify) verify(job, made, options, inputs, file, &report);
  platform::replace_with_data(file, path);
  return report;
}

}  // namespace

ExportReport export_onnx(const jit::Module& module, const Examples& examples, const fs::path& path,
                         const OnnxOptions& options) {
  check(options);
  Job job{module.copy(), {examples.values()}, {}};
  job.module.eval();
  const auto& arguments = job.module.get_method("forward").function().getSchema().arguments();
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    job.argument_names.push_back(arguments[i].name());
    if (i > job.runs[0].size() && arguments[i].default_value())
      job.runs[0].push_back(*arguments[i].default_value());
  }
  for (c10::IValue& value : job.runs[0]) {
    if (value.isInt() || value.isDouble() || value.isBool()) continue;
  }
  const std::vector<NamedInput> inputs = named_inputs(job, options);
  const std::vector<AxisOfInputs> axes =
      settle_axes(by_number(options.dynamic_axes, inputs), numbered_inputs(inputs), kWho);
  if (!axes.empty()) add_runs(&job, axes);
  return export_job(job, path, options, inputs, axes);
}

namespace detail {

ExportReport export_call(const NetworkCall& call, const Examples& examples, const fs::path& path,
                         const OnnxOptions& options) {
  check(options);
  Job job;
  job.runs = {examples.values()};
  const std::vector<NamedInput> inputs = named_inputs(job, options);
  TraceOptions tracing;
  tracing.dynamic_axes = by_number(options.dynamic_axes, inputs);
  tracing.check_with = options.check_with;
  const Traced traced = trace_with(call, examples, tracing, kWho);
  const std::vector<AxisOfInputs> axes =
      settle_axes(tracing.dynamic_axes, numbered_inputs(inputs), kWho);
  job.module = traced.module;
  job.runs = {traced.inputs};
  if (!traced.other_inputs.empty()) job.runs.push_back(traced.other_inputs);
  return export_job(job, path, options, inputs, axes);
}

}  // namespace detail
}  // namespace mezzo::deploy
