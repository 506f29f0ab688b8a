#include "deploy/recording.h"

#include <ATen/ops/equal.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "deploy/examples.h"
#include "deploy/files/script_file.h"

namespace mezzo::deploy {
namespace {

namespace jit = torch::jit;

/// Is a value fetched from the module? While the tracer listens it writes so with a node of its
/// own.
bool is_fetched(const jit::Node& node) {
  return node.kind() == c10::prim::GetAttr || node.kind() == c10::prim::TracedAttr;
}

/// "encoder.0.weight" of a value that is fetched from the module; empty for any other.
std::string path_of(const jit::Value* value) {
  if (value->node()->kind() == c10::prim::TracedAttr) {
    const std::string scope = value->node()->s(c10::attr::scope);  // "__module.encoder.0.weight"
    return scope.substr(std::min(scope.find('.'), scope.size() - 1) + 1);
  }
  if (value->node()->kind() != c10::prim::GetAttr) return {};
  const std::string name = value->node()->s(c10::attr::name);
  const jit::Value* owner = value->node()->input();
  const std::string outer = path_of(owner);
  return outer.empty() ? name : outer + "." + name;
}

void list_nodes(Recording& recording) {
  std::size_t next = 0;
  for (const jit::Value* input : recording.graph->inputs()) recording.numbers[input] = next++;
  for (jit::Node* node : recording.graph->nodes()) {
    if (is_fetched(*node)) {
      recording.parameters[node->output()] = path_of(node->output());
      continue;
    }
    recording.nodes.push_back(node);
    for (const jit::Value* output : node->outputs()) recording.numbers[output] = next++;
  }
}

/// The parameters of a node that are fetched from a module, and that module's path.
std::string module_of(const Recording& recording, const jit::Node* node) {
  for (const jit::Value* input : node->inputs()) {
    const auto found = recording.parameters.find(input);
    if (found == recording.parameters.end()) continue;
    const std::size_t dot = found->second.rfind('.');
    return dot == std::string::npos ? std::string("the network") : found->second.substr(0, dot);
  }
  return {};
}

/// Without the values that it prints.
std::string reason_of_tracer(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  const std::size_t rule = text.find("only ");
  return rule == std::string::npos ? reason_of(error)
                                   : text.substr(rule, text.find('\n', rule) - rule);
}

bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensor() && b.isTensor()) {
    const at::Tensor &x = a.toTensor(), &y = b.toTensor();
    if (x.defined() != y.defined()) return false;
    return !x.defined() ||
           (x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() && at::equal(x, y));
  }
  if (a.isDouble() && b.isDouble() && std::isnan(a.toDouble())) return std::isnan(b.toDouble());
  return a.tagKind() == b.tagKind() && a == b;
}

std::optional<std::string> connections_differ(const Recording& one, const jit::Node* a,
                                              const Recording& other, const jit::Node* b) {
  if (a->inputs().size() != b->inputs().size()) return "with another number of inputs";
  for (std::size_t i = 0; i < a->inputs().size(); ++i) {
    const auto first = one.parameters.find(a->input(i));
    const auto second = other.parameters.find(b->input(i));
    const bool fetched = first != one.parameters.end();
    if (fetched != (second != other.parameters.end())) return "on other values";
    if (fetched ? first->second != second->second
                : one.numbers.at(a->input(i)) != other.numbers.at(b->input(i)))
      return "on other values";
  }
  return {};
}

}  // namespace

bool is_traced(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  collect_tensors(value, &tensors);
  return !tensors.empty();
}

Recording listed(std::shared_ptr<jit::Graph> graph) {
  Recording recording;
  recording.graph = std::move(graph);
  list_nodes(recording);
  return recording;
}

Recording record(const detail::NetworkCall& call, const std::vector<c10::IValue>& values,
                 jit::Module& mirror, const RunOf& run) {
  jit::Stack inputs;
  std::vector<std::string> names;
  std::size_t tensors = 0;
  for (const c10::IValue& value : copied(values)) {
    std::vector<at::Tensor> inside;
    collect_tensors(value, &inside);
    if (inside.empty()) continue;
    inputs.push_back(value);
    names.push_back("input_" + std::to_string(tensors));
    tensors += inside.size();
  }
  const auto listen = [&](const jit::Stack& traced) {
    std::size_t next = 0;
    std::vector<c10::IValue> arguments;
    arguments.reserve(values.size());
    for (const c10::IValue& value : values)
      arguments.push_back(is_traced(value) ? traced[next++] : value);
    const std::shared_ptr<jit::Graph> graph = jit::tracer::getTracingState()->graph;
    try {
      return jit::Stack{call.run(arguments)};
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      raise_failed_run(run, values, graph, mirror, error);
    }
  };
  const at::NoGradGuard no_grad;
  try {
    auto [state, outputs] = jit::tracer::trace(
        std::move(inputs), listen, [](const at::Tensor&) { return std::string(); },
        /*strict=*/false, /*force_outplace=*/false, &mirror, names);
    Recording recording = listed(state->graph);
    recording.output = outputs.at(0);
    return recording;
  } catch (const c10::Error& error) {
    raise<UnsupportedError>(
        run.where, "a trace cannot give what the network returns: ", reason_of_tracer(error));
  }
}

std::string place_of(const Recording& recording, std::size_t node) {
  std::string kind = recording.nodes[node]->kind().toQualString();
  const std::string own = module_of(recording, recording.nodes[node]);
  if (!own.empty()) return kind + " in '" + own + "'";
  for (std::size_t before = node; before-- > 0;) {
    const std::string module = module_of(recording, recording.nodes[before]);
    if (!module.empty()) return kind + " after '" + module + "'";
  }
  for (std::size_t after = node + 1; after < recording.nodes.size(); ++after) {
    const std::string module = module_of(recording, recording.nodes[after]);
    if (!module.empty()) return kind + " before '" + module + "'";
  }
  return kind;
}

std::optional<Parting> compare(const Recording& one, const Recording& other,
                               std::vector<std::size_t>* constants) {
  const std::size_t count = std::min(one.nodes.size(), other.nodes.size());
  for (std::size_t i = 0; i < count; ++i) {
    const jit::Node *a = one.nodes[i], *b = other.nodes[i];
    const std::string named = std::string(b->kind().toQualString());
    if (a->kind() != b->kind()) return Parting{i, "it runs " + named + " there"};
    if (a->outputs().size() != b->outputs().size())
      return Parting{i, "it gives another number of values there"};
    if (const auto how = connections_differ(one, a, other, b))
      return Parting{i, "it runs " + named + " " + *how + " there"};
    if (a->kind() != c10::prim::Constant) continue;
    const auto x = jit::toIValue(a->output()), y = jit::toIValue(b->output());
    if (x && y && !same_constant(*x, *y)) constants->push_back(i);
  }
  if (one.nodes.size() != other.nodes.size()) {
    return Parting{count == 0 ? 0 : count - 1, "it runs " + std::to_string(other.nodes.size()) +
                                                   " operators and constants " + "there, and " +
                                                   std::to_string(one.nodes.size()) + " here"};
  }
  return {};
}

std::string text_of(const c10::IValue& value) {
  std::ostringstream text;
  if (value.isTensor()) {
    if (!value.toTensor().defined()) return "an undefined tensor";
    text << "a tensor of sizes " << value.toTensor().sizes();
  } else {
    text << value;
  }
  return text.str();
}

}  // namespace mezzo::deploy
