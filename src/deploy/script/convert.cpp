#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/frozen_graph_optimizations.h>
#include <torch/csrc/jit/passes/shape_analysis.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_set>

#include "core/raise.h"
#include "deploy/executor/literals.h"
#include "deploy/files/script_file.h"
#include "deploy/script/apply.h"
#include "deploy/script/check.h"
#include "deploy/script/fold.h"
#include "deploy/script/weights.h"
#include "deploy/values/sizes_text.h"
#include "mezzo/deploy_script.h"

namespace mezzo::deploy::script {
namespace {

using torch::jit::Node;

constexpr const char* kConvertScript = "convert_hybrid_block";

/// The tensors of a module, those in its graphs included, each once.
std::vector<at::Tensor> tensors_of(const torch::jit::Module& module) {
  std::unordered_set<const void*> seen;
  std::vector<at::Tensor> tensors;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage() &&
        seen.insert(tensor.storage().unsafeGetStorageImpl()).second)
      tensors.push_back(tensor);
  };
  for (const auto& attribute : module.named_attributes()) {
    if (attribute.value.isTensor()) add(attribute.value.toTensor());
  }
  for (const torch::jit::Method& method : module.get_methods()) {
    for_each_node(method.graph()->block(), [&](Node* node) {
      if (node->kind() != c10::prim::Constant) return;
      const auto value = torch::jit::toIValue(node->output());
      if (value && value->isTensor()) add(value->toTensor());
    });
  }
  return tensors;
}

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

/// The methods that are converted, as graphs without calls.
std::vector<ScriptMethod> open_methods(const torch::jit::Module& module, bool forward_alone) {
  std::vector<ScriptMethod> methods;
  for (const torch::jit::Method& method : module.get_methods()) {
    const std::string& name = method.name();
    if (name != "forward" && (forward_alone || name.starts_with("__"))) continue;
    ScriptMethod opened{.name = name, .graph = method.graph()};
    inline_calls(*opened.graph);
    methods.push_back(std::move(opened));
  }
  std::set<std::string> written;
  for (ScriptMethod& method : methods) {
    method.written = written_attributes(*method.graph);
    written.insert(method.written.begin(), method.written.end());
  }
  for (ScriptMethod& method : methods) {
    fold_settings(method.graph, module, written);
    unify_reads(*method.graph, module, written);
    place_by_parameters(*method.graph, module);
    refuse_training(*method.graph, kConvertScript);
  }
  return methods;
}

bool is_container(const torch::jit::Value& value) {
  const auto kind = value.type()->kind();
  return kind == c10::TypeKind::ListType || kind == c10::TypeKind::DictType;
}

/// Finds who writes what, and which lists change.
void find_writers(ScriptMethod& method) {
  // Attributes count as memory of their own. Otherwise whatever writes to an element of some list
  // would write to all weights. Each is read once, and weights that share memory stay together.
  method.aliases = std::make_unique<torch::jit::AliasDb>(method.graph, /*isFrozen=*/true);
  method.changing.clear();
  const auto note = [&](const torch::jit::Value* value) {
    if (is_container(*value)) method.changing[value] = method.aliases->hasWriters(value);
  };
  for (const torch::jit::Value* input : method.graph->inputs()) note(input);
  for_each_node(method.graph->block(), [&](Node* node) {
    for (const torch::jit::Value* output : node->outputs()) note(output);
  });
}

Types::Start start_of(const ScriptMethod& method, const ScriptOptions& options) {
  Types::Start start{.low = options.target_dtype, .inputs = {}};
  if (method.name == "forward" && options.check_with) {
    for (const c10::IValue& value : options.check_with->values())
      start.inputs.push_back(fact_of(value, options.target_dtype));
  }
  return start;
}

/// The calls of each operator, by what became of them.
class Tally {
 public:
  explicit Tally(ScriptReport& report) : report_(report) {}

  void add(const Node& node, const Verdict& verdict) {
    if (verdict.op.empty() || verdict.operands.empty()) return;
    const char* const name = count(verdict.way);
    ScriptOperator& one = rows_[{name, verdict.op, verdict.why}];
    one.op = verdict.op;
    one.cast_class = name;
    one.why = verdict.why;
    ++one.calls;
    std::string module = module_of(node);
    if (!module.empty() && std::ranges::find(one.modules, module) == one.modules.end())
      one.modules.push_back(std::move(module));
  }

  void finish() {
    for (auto& [key, row] : rows_) report_.operators.push_back(std::move(row));
  }

 private:
  const char* count(Way way) {
    switch (way) {
      case Way::kLow:
        ++report_.low_calls;
        return "low";
      case Way::kFloat:
      case Way::kFloatResult:
      case Way::kThroughFloat:
        ++report_.float_calls;
        return "float";
      case Way::kWidest:
      case Way::kWritten:
        ++report_.promote_calls;
        return "promote";
      default:
        ++report_.neutral_calls;
        return "neutral";
    }
  }

  ScriptReport& report_;
  std::map<std::tuple<std::string, std::string, std::string>, ScriptOperator> rows_;
};

/// Follows the types of the methods as they are, and judges their nodes.
void judge_methods(std::vector<ScriptMethod>& methods, const torch::jit::Module& module,
                   const OperatorClasses& classes, const ScriptOptions& options,
                   ScriptReport& report) {
  const ExcludedNames excluded(options.excluded_sym_names, module);
  const Judge judge(classes, excluded, module);
  Tally tally(report);
  for (ScriptMethod& method : methods) {
    find_writers(method);
    for_each_node(method.graph->block(), [&](Node* node) {
      Verdict verdict = judge.judge(*node);
      tally.add(*node, verdict);
      method.verdicts.emplace(node, std::move(verdict));
    });
  }
  tally.finish();
}

void convert_methods(std::vector<ScriptMethod>& methods, const torch::jit::Module& module,
                     const ScriptOptions& options, DType low, ScriptReport& report) {
  const std::set<std::string> weights = low_weights(methods, module, options.target_dtype);
  for (ScriptMethod& method : methods) {
    if (options.cast_optional_params) continue;
    const auto casts = cast_weights(method, weights, module, options.target_dtype);
    report.weight_casts += std::ssize(casts);
  }
  for (ScriptMethod& method : methods) {
    find_writers(method);
    method.original =
        std::make_unique<Types>(*method.graph, module, method.changing, start_of(method, options));
    Types::Start start = start_of(method, options);
    start.verdicts = &method.verdicts;
    start.original = method.original.get();
    if (options.cast_optional_params) start.known = facts_of_weights(method, weights, module);
    method.converted =
        std::make_unique<Types>(*method.graph, module, method.changing, std::move(start));
    Casts casts(method, options.target_dtype);
    apply_verdicts(method, casts, low);
    report.casts += casts.made();
    report.guarded_casts += casts.guarded();
  }
  report.casts += report.weight_casts;
  if (options.cast_optional_params) store_low(weights, module, options.target_dtype);
  for (ScriptMethod& method : methods) {
    method.verdicts.clear();
    torch::jit::EraseShapeInformation(method.graph);
    torch::jit::EliminateDeadCode(method.graph);
    torch::jit::ConstantPooling(method.graph);
    method.graph->lint();
  }
}

torch::jit::Module frozen(const torch::jit::Module& module) {
  torch::jit::Module result = torch::jit::freeze_module(module);
  auto graph = result.get_method("forward").graph();
  torch::jit::ConstantPropagation(graph);
  torch::jit::OptimizeFrozenGraph(graph, /*optimize_numerics=*/false);
  return result;
}

void check_result(const torch::jit::Module& module, const torch::jit::Module& result,
                  const ScriptOptions& options, ScriptReport& report) {
  if (!options.check_with) return;
  torch::jit::Module original = with_literals_kept(module);
  if (options.device) {
    original = original.deepcopy();
    original.to(*options.device);
  }
  const double usual = options.target_dtype == at::kHalf ? 0.05 : 0.2;
  const double tolerance = options.check_tolerance.value_or(usual);
  double error = 0;
  try {
    error = error_between(original, result, options.check_with->values());
  } catch (const std::exception& failure) {
    raise(kConvertScript, "check_with: the module or its conversion does not run on these inputs (",
          text_of_sizes(options.check_with->values()), "): ", reason_of(failure));
  }
  report.error = error;
  if (!(error <= tolerance)) {
    raise(kConvertScript, "check_with: an output differs by ", error,
          " of its range, and check_tolerance is ", tolerance,
          "; keep what is sensitive in float with excluded_sym_names or fp32_ops");
  }
}

torch::jit::Module convert(const torch::jit::Module& module, const ScriptOptions& options,
                           ScriptReport* report) {
  const OperatorClasses classes(options);
  if (!module.find_method("forward"))
    raise<UnsupportedError>(kConvertScript, "the module has no method forward()");
  ScriptReport made;
  made.target_dtype = std::string(name_of(classes.low()));
  const std::vector<at::Tensor> before = tensors_of(module);
  made.bytes_before = bytes_of(before);

  torch::jit::Module result = module.clone();
  if (options.device) result.to(*options.device);
  result.eval();
  std::vector<ScriptMethod> methods = open_methods(result, options.freeze);
  if (options.fold_batch_norm)
    made.folded_batch_norms = fold_batch_norms(methods, result, made.warnings);
  judge_methods(methods, result, classes, options, made);
  convert_methods(methods, result, options, classes.low(), made);
  methods.clear();
  if (options.freeze) result = frozen(result);
  for (const torch::jit::Method& method : result.get_methods()) keep_literals(*method.graph());

  const std::vector<at::Tensor> after = tensors_of(result);
  made.bytes_after = bytes_of(after);
  made.weights = std::ssize(before);
  made.low_weights = std::ranges::count_if(after, [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == options.target_dtype;
  });
  if (made.low_calls == 0)
    made.warnings.push_back("nothing became " + made.target_dtype +
                            ": no operator that the lists name was found");
  check_result(module, result, options, made);
  if (report != nullptr) *report = std::move(made);
  return result;
}

}  // namespace
}  // namespace mezzo::deploy::script

namespace mezzo::deploy {

torch::jit::Module convert_hybrid_block(const torch::jit::Module& module,
                                        const ScriptOptions& options, ScriptReport* report) {
  return script::convert(module, options, report);
}

}  // namespace mezzo::deploy
