// Modules, objects of a script's own classes, and their attributes while a graph is gone through.
#include <algorithm>

#include "deploy/onnx_job.h"
#include "deploy/onnx_walk.h"

namespace mezzo::deploy {
namespace {

namespace jit = torch::jit;

bool writes_attributes(const jit::Block& block) {
  return std::any_of(block.nodes().begin(), block.nodes().end(), [](const jit::Node* node) {
    const auto blocks = node->blocks();
    return node->kind() == c10::prim::SetAttr ||
           std::any_of(blocks.begin(), blocks.end(),
                       [](const jit::Block* inner) { return writes_attributes(*inner); });
  });
}

}  // namespace

bool keeps_attributes(const jit::Module& module) {
  for (const jit::Module& each : module.modules()) {
    for (const jit::Method& method : each.get_methods()) {
      if (writes_attributes(*method.graph()->block())) return true;
    }
  }
  return false;
}

namespace detail {

std::size_t Walker::place_in(const Operand& object, const std::string& name) {
  const auto found = std::find(object.keys.begin(), object.keys.end(), c10::IValue(name));
  return static_cast<std::size_t>(found - object.keys.begin());
}

void Walker::attribute(const Node& node) {
  const std::string& name = node.s(c10::attr::name);
  const Operand& from = *value(node.input()).operand();
  if (from.kind == Operand::Kind::kObject) {
    const std::size_t place = place_in(from, name);
    if (place == from.keys.size())
      raise<UnsupportedError>("export_onnx", "an object's attribute '", name,
                              "' is read before it is written");
    return set(node.output(), from.elements[place]);
  }
  const c10::IValue owner = from.examples.at(0);
  const std::string outer = paths_[&owner.toObjectRef()];
  const std::string path = outer.empty() ? name : outer + "." + name;
  const auto written = written_.find({&owner.toObjectRef(), name});
  if (written != written_.end()) return set(node.output(), written->second);
  c10::IValue got = owner.toObjectRef().getAttr(name);
  if (got.isObject()) paths_[&got.toObjectRef()] = path;
  if (got.isTensor()) {
    last_module_ = outer;
    // One operand, so that a read sees what was written before.
    const auto known = attributes_.find({&owner.toObjectRef(), name});
    if (known != attributes_.end() && known->second.operand()->examples.size() == g_.variants())
      return set(node.output(), known->second);
    if (g_.writes_in_place && got.toTensor().defined()) got = got.toTensor().detach().clone();
  }
  OnnxValue operand = constant_of(got, g_.variants());
  operand.operand()->path = got.isTensor() ? path : "";
  if (got.isTensor()) attributes_.insert_or_assign({&owner.toObjectRef(), name}, operand);
  set(node.output(), std::move(operand));
}

void Walker::write_attribute(const Node& node) {
  const std::string& name = node.s(c10::attr::name);
  Operand& to = *value(node.input(0)).operand();
  const OnnxValue& given = value(node.input(1));
  if (to.kind == Operand::Kind::kObject) {
    const std::size_t place = place_in(to, name);
    if (place < to.keys.size()) {
      to.elements[place] = given;
    } else {
      to.keys.emplace_back(name);
      to.elements.push_back(given);
    }
    return;
  }
  if (g_.in_body())
    raise<UnsupportedError>("export_onnx", "the module's attribute '", name, "' is written in a ",
                            "branch or a loop that follows from inputs; write it behind that");
  written_.insert_or_assign({&to.examples.at(0).toObjectRef(), name}, given);
}

bool Walker::objects(const Node& node) {
  if (node.kind() == c10::prim::CreateObject) {
    auto object = std::make_shared<Operand>();
    object->kind = Operand::Kind::kObject;
    object->type = node.output()->type();
    set(node.output(), OnnxValue(std::move(object)));
  } else if (node.kind() == c10::prim::GetAttr) {
    attribute(node);
  } else if (node.kind() == c10::prim::SetAttr) {
    write_attribute(node);
  } else if (node.kind() == c10::prim::Enter || node.kind() == c10::prim::Exit) {
    // Modes of gradients change no value.
    const std::string type = node.input()->type()->annotation_str();
    return type.find("grad_mode") != std::string::npos;
  } else {
    return false;
  }
  return true;
}

}  // namespace detail
}  // namespace mezzo::deploy
