#include "deploy/trace.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/max.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/shape_analysis.h>

#include <limits>
#include <optional>
#include <utility>

#include "deploy/executor/literals.h"
#include "deploy/failed_run.h"
#include "deploy/files/script_file.h"
#include "deploy/follow_sizes.h"
#include "deploy/mirror.h"
#include "deploy/values/sizes_text.h"
#include "mezzo/deploy_script.h"

namespace mezzo::deploy {
namespace {

namespace jit = torch::jit;

double error_between(const at::Tensor& expected, const at::Tensor& got) {
  if (expected.sizes() != got.sizes() || expected.scalar_type() != got.scalar_type())
    return std::numeric_limits<double>::infinity();
  if (expected.numel() == 0) return 0;
  if (expected.is_complex())
    return error_between(at::view_as_real(expected.resolve_conj()),
                         at::view_as_real(got.resolve_conj()));
  const at::Tensor a = expected.to(at::kDouble), b = got.to(at::kDouble);
  const at::Tensor finite = a.isfinite();
  const at::Tensor zero = at::zeros_like(a);
  // Numbers that are not finite must be so in both: infinities of one sign, or NaN.
  const at::Tensor same = (a == b).logical_or(a.isnan().logical_and(b.isnan()));
  if (!same.logical_or(finite.logical_and(b.isfinite())).all().item<bool>())
    return std::numeric_limits<double>::infinity();
  const double worst = at::where(finite, a - b, zero).abs().max().item<double>();
  const double range = at::where(finite, a, zero).abs().max().item<double>();
  return range == 0 ? worst : worst / range;
}

void add_method(jit::Module& module, const Recording& recording) {
  const auto& graph = recording.graph;
  jit::EraseShapeInformation(graph);
  jit::EliminateDeadCode(graph);
  graph->lint();
  jit::Function* const function = module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), "forward"), graph);
  module.type()->addMethod(function);
}

std::vector<c10::IValue> traced_values(const std::vector<c10::IValue>& values) {
  std::vector<c10::IValue> traced;
  for (const c10::IValue& value : values) {
    if (is_traced(value)) traced.push_back(value);
  }
  return traced;
}

/// Does the trace give what the network gives?
void check_agreement(const detail::NetworkCall& call, jit::Module& module,
                     const std::vector<c10::IValue>& inputs, const TraceOptions& options,
                     const std::string& where) {
  const at::NoGradGuard no_grad;
  const c10::IValue expected = call.run(copied(inputs));
  c10::IValue got;
  try {
    got = module.forward(copied(traced_values(inputs)));
  } catch (const std::exception& error) {
    raise(where, "the trace does not run on inputs on which the network does (",
          text_of_sizes(inputs), "): ", reason_of(error));
  }
  const ResultDifference difference = difference_of(expected, got);
  if (difference.error <= options.check_tolerance) return;
  raise(where, "trace and network differ: output ", difference.tensor, " by ", difference.error,
        " of its range, and check_tolerance is ", options.check_tolerance,
        ". Random numbers, and values that the network computed outside of LibTorch's operators, ",
        "make such a difference");
}

void check_module(const detail::NetworkCall& call, const std::string& where) {
  if (!call.module) raise<ConfigError>(where, "the network's handle is empty");
}

}  // namespace

ResultDifference difference_of(const c10::IValue& expected, const c10::IValue& got) {
  std::vector<at::Tensor> first, second;
  collect_tensors(expected, &first);
  collect_tensors(got, &second);
  if (first.size() != second.size()) return {std::numeric_limits<double>::infinity(), 0};
  ResultDifference worst;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double error = error_between(first[i], second[i]);
    if (!(error <= worst.error)) worst = {error, i};
  }
  return worst;
}

Traced trace_with(const detail::NetworkCall& call, const Examples& examples,
                  const TraceOptions& options, const std::string& where) {
  check_module(call, where);
  const std::vector<c10::IValue>& values = examples.values();
  const std::vector<AxisOfInputs> axes =
      settle_axes(options.dynamic_axes, inputs_of(values), where);
  jit::Module module = mirror_of(*call.module, options.train);
  Traced result;
  std::optional<SizeFollower> follower;
  const Prepared prepared(call, options.train);
  follower.emplace(call, module, values, axes, where);
  if (!is_traced(follower->first().output)) {
    raise<ConfigError>(where, "the network returns no tensor, which leaves nothing to trace");
  }
  follower->follow();
  if (options.check_with) follower->check(options.check_with->values());
  follower->rewrite();
  for (const auto& inputs : follower->other_inputs())
    result.other_inputs.push_back(traced_values(inputs));
  add_method(module, follower->first());
  for (const auto& [path, value] : prepared.floats()) replace_tensor(module, path, value);
  jit::Module to_run = with_literals_kept(module);
  if (options.check_with) {
    check_agreement(call, to_run, options.check_with->values(), options, where);
  }
  if (!options.train) {
    for (const auto& inputs : follower->other_inputs())
      check_agreement(call, to_run, inputs, options, where);
  }
  result.module = options.share_parameters ? module : module.deepcopy();
  result.to_run = options.share_parameters ? to_run : to_run.deepcopy();
  result.inputs = traced_values(values);
  return result;
}

namespace detail {

jit::Module trace_call(const NetworkCall& call, const Examples& examples,
                       const TraceOptions& options) {
  return trace_with(call, examples, options, "trace").to_run;
}

jit::Module convert_call(const NetworkCall& call, const Examples& examples,
                         const ScriptOptions& options, ScriptReport* report) {
  TraceOptions tracing;
  tracing.dynamic_axes = options.dynamic_axes;
  return convert_hybrid_block(trace_with(call, examples, tracing, "convert_hybrid_block").module,
                              options, report);
}

}  // namespace detail
}  // namespace mezzo::deploy
