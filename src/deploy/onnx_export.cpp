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
#include "deploy/executor/literals.h"
#include "deploy/kept_buffers.h"
#include "deploy/onnx_job.h"
#include "deploy/onnx_walk.h"
#include "deploy/script/check.h"
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
  if (value.operand()->kind == Operand::Kind::kGrown) {
    raise<UnsupportedError>(kWho, "the network returns a list whose length follows from the ",
                            "inputs, which an output of a model cannot be; stack it");
  }
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

using Runs = std::vector<std::vector<c10::IValue>>;

/// The module itself and its arguments.
std::vector<OnnxValue> operands_of(Builder& builder, const Job& job, const Runs& runs,
                                   const std::vector<NamedInput>& inputs) {
  std::vector<OnnxValue> operands = {detail::constant_of(job.module._ivalue(), runs.size())};
  std::size_t next = 0;
  for (std::size_t a = 0; a < runs[0].size(); ++a) {
    std::vector<c10::IValue> examples;
    examples.reserve(runs.size());
    for (const auto& run : runs) examples.push_back(run[a]);
    if (is_number_input(job, a)) {
      const std::string given = builder.op("Reshape", {inputs[next++].name, builder.ints({1})});
      const std::string name =
          builder.cast(given, detail::outer_type(examples[0]), detail::element_type(examples[0]));
      operands.push_back(detail::made_of(name, std::move(examples)));
    } else {
      operands.push_back(input_operand(examples, inputs, &next));
    }
  }
  return operands;
}

/// The tensors that LibTorch is given in each run.
std::vector<std::vector<at::Tensor>> tensors_of(const Runs& runs) {
  std::vector<std::vector<at::Tensor>> tensors(runs.size());
  for (std::size_t k = 0; k < runs.size(); ++k) {
    for (const c10::IValue& value : runs[k]) collect_tensors(value, &tensors[k]);
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

std::vector<convert::MadeValue> declared_inputs(const Job& job,
                                                const std::vector<NamedInput>& inputs,
                                                const Runs& runs, const AxisNames& axes) {
  std::vector<std::vector<at::Tensor>> tensors;
  tensors.reserve(runs.size());
  for (const auto& run : runs) tensors.push_back(inputs_in(job, run));
  std::vector<convert::MadeValue> declared;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<c10::IValue> examples;
    examples.reserve(runs.size());
    for (const std::vector<at::Tensor>& run : tensors) examples.emplace_back(run[i]);
    declared.push_back({inputs[i].name, element_of(tensors[0][i].scalar_type()), true,
                        dimensions_of(examples, axes, inputs[i].name)});
  }
  return declared;
}

at::Tensor as_tensor(const c10::IValue& value) {
  if (value.isTensor()) return detail::real_form(value.toTensor());
  return at::scalar_tensor(value.toScalar(), detail::outer_type(value));
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
    const c10::IValue example = detail::example_of(outputs[i], 0);
    if (!outputs[i].is_constant() && !example.isTensor()) name = builder.op("Squeeze", {name});
    name = builder.cast(name, detail::element_type(example), detail::outer_type(example));
    const std::string own =
        options.output_names.empty() ? "output_" + std::to_string(i) : options.output_names[i];
    made->output_types.push_back(examples[0].toTensor().scalar_type());
    declared.push_back(
        {own, element_of(made->output_types.back()), true, dimensions_of(examples, axes, own)});
    names.push_back(std::move(name));
  }
  made->model.graph = builder.finish(std::move(inputs), std::move(declared), names);
}

/// The model is made of so many imagined runs more, in which sizes that follow from values
/// differ.
Made make(const Job& job, const OnnxOptions& options, const std::vector<NamedInput>& inputs,
          const std::vector<AxisOfInputs>& axes, const jit::Graph& graph, std::size_t imagined) {
  // The last one is for the comparison alone.
  const std::size_t walked = std::max<std::size_t>(job.runs.size(), 3) - 1;
  Runs runs(job.runs.begin(),
            job.runs.begin() + static_cast<std::ptrdiff_t>(std::min(job.runs.size(), walked)));
  for (std::size_t i = 0; i < imagined; ++i) runs.push_back(imagined_run(job));
  Builder builder(options.opset, runs.size());
  builder.writes_in_place = writes_in_place(*graph.block());
  for (const NamedInput& input : inputs) builder.reserve(input.name);
  std::vector<OnnxValue> operands = operands_of(builder, job, runs, inputs);
  const at::NoGradGuard no_grad;
  detail::Walker walker(builder, options, imagined);
  std::vector<OnnxValue> outputs;
  collect_outputs(walker.run(graph, std::move(operands)), &outputs);
  if (outputs.empty()) raise<ConfigError>(kWho, "the network returns no tensor");
  if (!options.output_names.empty() && options.output_names.size() != outputs.size())
    raise<ConfigError>(kWho, "output_names has ", options.output_names.size(),
                       " names, and the network gives ", outputs.size(), " tensors");
  const AxisNames axis_names = axis_names_of(tensors_of(runs), axes);
  Made made;
  finish_graph(builder, outputs, options, declared_inputs(job, inputs, runs, axis_names),
               axis_names, &made);
  made.model.opsets[""] = options.opset;
  for (const std::string& domain : builder.domains()) made.model.opsets[domain] = 1;
  made.model.producer_version = version();
  made.draws = builder.draws();
  return made;
}

bool has_counts(const jit::Block& block) {
  return std::any_of(block.nodes().begin(), block.nodes().end(), [](const jit::Node* node) {
    const auto blocks = node->blocks();
    return detail::counts_values(*node) ||
           std::any_of(blocks.begin(), blocks.end(),
                       [](const jit::Block* inner) { return has_counts(*inner); });
  });
}

/// Sizes that follow from values are looked for where there may be such; a module that does not
/// run at other lengths is exported with those of the examples.
Made make(Job* job, const OnnxOptions& options, const std::vector<NamedInput>& inputs,
          const std::vector<AxisOfInputs>& axes) {
  const std::shared_ptr<jit::Graph> graph = job->module.get_method("forward").graph()->copy();
  jit::Inline(*graph);
  script::refuse_training(*graph, kWho);
  bool by_values = has_counts(*graph->block());
  for (std::size_t a = 0; a < job->runs[0].size(); ++a)
    by_values = by_values || (is_number_input(*job, a) && job->runs[0][a].isInt());
  for (std::size_t imagined = by_values ? 2 : 0; imagined > 0; --imagined) {
    try {
      return make(*job, options, inputs, axes, *graph, imagined);
    } catch (const std::exception&) {
      // Without it the export succeeds, or says what is wrong.
    }
  }
  Made made = make(*job, options, inputs, axes, *graph, 0);
  if (by_values)
    job->warnings.emplace_back(
        "lengths that follow from the values of inputs may be fixed to those of the examples");
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

ExportReport export_job(Job job, const fs::path& path, const OnnxOptions& options,
                        const std::vector<NamedInput>& inputs,
                        const std::vector<AxisOfInputs>& axes) {
  for (const auto& parameter : job.module.parameters()) {
    if (!parameter.is_cpu())
      raise<ConfigError>(kWho, "the network is on ", parameter.device(),
                         "; move it to the CPU for the export");
    break;
  }
  Made made = make(&job, options, inputs, axes);
  ExportReport report;
  report.warnings = job.warnings;
  const auto folder = platform::folder_beside(path, kWho);
  const fs::path file = folder->path() / path.filename();
  report.nodes = convert::store_made(made.model, file, options.external_data);
  if (options.verify) verify(job, made, options, inputs, file, &report);
  platform::replace_with_data(file, path);
  return report;
}

/// A model of ONNX begins every call as the module begins its first one: attributes that calls
/// write must not change what the next call gives.
void refuse_counting(const Job& job) {
  torch::jit::Module module = before_calls(job);
  const at::NoGradGuard no_grad;
  const KeptBuffers kept(module);
  std::vector<std::vector<at::Tensor>> results;
  for (int call = 0; call < 2; ++call) {
    try {
      results.push_back(outputs_in(module.forward(copied(job.runs[0]))));
    } catch (const std::exception&) {
      return;  // the export says what is wrong with the examples
    }
  }
  for (std::size_t i = 0; i < results[0].size() && i < results[1].size(); ++i) {
    if (results[0][i].sizes() == results[1][i].sizes() &&
        at::allclose(results[0][i], results[1][i], 1e-5, 1e-8, /*equal_nan=*/true))
      continue;
    raise<UnsupportedError>(kWho, "the module gives something else when it is called again: it ",
                            "keeps attributes from call to call, which a model of ONNX does not; ",
                            "make them inputs and outputs");
  }
}

}  // namespace

ExportReport export_onnx(const jit::Module& module, const Examples& examples, const fs::path& path,
                         const OnnxOptions& options) {
  check(options);
  if (!module.find_method("forward"))
    raise<UnsupportedError>(kWho, "the module has no method forward()");
  const KeptBuffers kept(module);
  // A copy has its own modes, and shares the weights.
  Job job{module.clone(), {}, {examples.values()}, {}, 0, false, {}};
  job.module.eval();
  job.to_run = with_literals_kept(job.module);
  job.keeps_attributes = keeps_attributes(job.module);
  settle_arguments(&job);
  if (job.keeps_attributes) refuse_counting(job);
  const std::vector<NamedInput> inputs = named_inputs(job, options);
  const std::vector<AxisOfInputs> axes = axes_of(job, options.dynamic_axes, inputs);
  if (!axes.empty()) add_runs(&job, axes);
  return export_job(std::move(job), path, options, inputs, axes);
}

namespace detail {

ExportReport export_call(const NetworkCall& call, const Examples& examples, const fs::path& path,
                         const OnnxOptions& options) {
  check(options);
  Job job;
  job.runs = {examples.values()};
  const std::vector<NamedInput> inputs = named_inputs(job, options);
  TraceOptions tracing;
  tracing.dynamic_axes = axes_by_number(job, options.dynamic_axes, inputs);
  tracing.check_with = options.check_with;
  const Traced traced = trace_with(call, examples, tracing, kWho);
  const std::vector<AxisOfInputs> axes = axes_of(job, options.dynamic_axes, inputs);
  const KeptBuffers kept(traced.module);
  job.module = traced.module;
  job.to_run = traced.to_run;
  job.runs = {traced.inputs};
  job.runs.insert(job.runs.end(), traced.other_inputs.begin(), traced.other_inputs.end());
  return export_job(std::move(job), path, options, inputs, axes);
}

}  // namespace detail
}  // namespace mezzo::deploy
