#include "deploy/onnx_operand.h"

#include <ATen/ops/view_as_real.h>

#include <algorithm>

namespace mezzo::deploy {

using detail::Operand;

namespace detail {

void Operand::note_written_constant() {
  name.clear();
  path.clear();
  ++version;
  if (view) view->base->note_written_constant();
}

c10::IValue example_of(const OnnxValue& value, std::size_t k) {
  const Operand& operand = *value.operand();
  if (operand.kind == Operand::Kind::kValue || operand.kind == Operand::Kind::kGrown)
    return operand.examples.at(operand.is_constant ? std::min(k, operand.examples.size() - 1) : k);
  if (operand.kind == Operand::Kind::kTuple) {
    std::vector<c10::IValue> elements;
    for (const OnnxValue& element : operand.elements) elements.push_back(example_of(element, k));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (operand.kind == Operand::Kind::kList) {
    c10::List<c10::IValue> list(operand.type->expectRef<c10::ListType>().getElementType());
    for (const OnnxValue& element : operand.elements) list.push_back(example_of(element, k));
    return list;
  }
  if (operand.kind == Operand::Kind::kObject) {
    const auto type = operand.type->expect<c10::ClassType>();
    auto object =
        c10::ivalue::Object::create({type->compilation_unit(), type}, type->numAttributes());
    for (std::size_t i = 0; i < operand.keys.size(); ++i)
      object->setAttr(operand.keys[i].toStringRef(), example_of(operand.elements[i], k));
    return object;
  }
  const auto& type = operand.type->expectRef<c10::DictType>();
  c10::impl::GenericDict dict(type.getKeyType(), type.getValueType());
  for (std::size_t i = 0; i < operand.keys.size(); ++i)
    dict.insert(operand.keys[i], example_of(operand.elements[i], k));
  return dict;
}

bool is_constant(const OnnxValue& value) {
  const Operand& operand = *value.operand();
  if (operand.kind == Operand::Kind::kValue || operand.kind == Operand::Kind::kGrown)
    return operand.is_constant;
  return std::all_of(operand.elements.begin(), operand.elements.end(),
                     [](const OnnxValue& element) { return is_constant(element); });
}

OnnxValue constant_of(const c10::IValue& value, std::size_t variants) {
  auto operand = std::make_shared<Operand>();
  const auto add = [&](const c10::IValue& element) {
    operand->elements.push_back(constant_of(element, variants));
  };
  if (value.isTuple()) {
    operand->kind = Operand::Kind::kTuple;
    operand->type = value.type();
    for (const c10::IValue& element : value.toTupleRef().elements()) add(element);
  } else if (value.isList()) {
    operand->kind = Operand::Kind::kList;
    operand->type = value.type();
    for (const c10::IValue& element : value.toListRef()) add(element);
  } else if (value.isGenericDict()) {
    operand->kind = Operand::Kind::kDict;
    operand->type = value.type();
    for (const auto& item : value.toGenericDict()) {
      operand->keys.push_back(item.key());
      add(item.value());
    }
  } else {
    operand->examples.assign(variants, value);
  }
  return OnnxValue(std::move(operand));
}

at::Tensor real_form(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::Tensor plain = tensor.resolve_conj().resolve_neg();
  return plain.is_complex() ? at::view_as_real(plain) : plain;
}

at::ScalarType element_type(const c10::IValue& example) {
  if (example.isTensor()) return c10::toRealValueType(example.toTensor().scalar_type());
  return example.isDouble() ? at::kDouble : example.isBool() ? at::kBool : at::kLong;
}

at::ScalarType outer_type(const c10::IValue& example) {
  return example.isDouble() ? at::kFloat : element_type(example);
}

void leaves_of(const OnnxValue& value, std::vector<OnnxValue>* leaves) {
  if (value.operand()->kind == Operand::Kind::kValue) {
    leaves->push_back(value);
  } else if (value.operand()->kind == Operand::Kind::kGrown) {
    raise<UnsupportedError>("export_onnx", "a list whose length follows from the inputs cannot be ",
                            "handed on in ONNX; stack it");
  } else {
    for (const OnnxValue& element : value.elements()) leaves_of(element, leaves);
  }
}

OnnxValue with_leaves(const OnnxValue& like, const std::vector<OnnxValue>& leaves,
                      std::size_t* next) {
  if (like.operand()->kind == Operand::Kind::kValue) return leaves.at((*next)++);
  auto operand = std::make_shared<Operand>();
  operand->kind = like.operand()->kind;
  operand->type = like.operand()->type;
  operand->keys = like.operand()->keys;
  for (const OnnxValue& element : like.elements())
    operand->elements.push_back(with_leaves(element, leaves, next));
  return OnnxValue(std::move(operand));
}

OnnxValue list_like(const OnnxValue& list, std::vector<OnnxValue> elements) {
  auto operand = std::make_shared<Operand>();
  operand->kind = Operand::Kind::kList;
  operand->type = list.operand()->type;
  operand->elements = std::move(elements);
  return OnnxValue(std::move(operand));
}

OnnxValue made_of(std::string name, std::vector<c10::IValue> examples) {
  auto operand = std::make_shared<Operand>();
  operand->name = std::move(name);
  operand->examples = std::move(examples);
  operand->is_constant = false;
  return OnnxValue(std::move(operand));
}

}  // namespace detail

namespace {

const c10::IValue& constant_value(const OnnxValue& value, const char* wanted) {
  const Operand& operand = *value.operand();
  if (operand.kind != Operand::Kind::kValue || !operand.is_constant) {
    raise<UnsupportedError>("export_onnx", "an operand must be a constant ", wanted,
                            " and follows from the model's inputs");
  }
  return operand.examples.front();
}

}  // namespace

OnnxValue::OnnxValue() : OnnxValue(detail::constant_of(c10::IValue(), 2)) {}
OnnxValue::OnnxValue(std::shared_ptr<Operand> operand) : operand_(std::move(operand)) {}

bool OnnxValue::is_none() const {
  if (operand_->kind != Operand::Kind::kValue || operand_->examples.empty()) return false;
  const c10::IValue& value = operand_->examples.front();
  return value.isNone() || (value.isTensor() && !value.toTensor().defined());
}

bool OnnxValue::is_constant() const {
  return detail::is_constant(*this);
}

c10::IValue OnnxValue::example() const {
  return detail::example_of(*this, 0);
}

at::ScalarType OnnxValue::dtype() const {
  return example().toTensor().scalar_type();
}

std::vector<std::int64_t> OnnxValue::sizes() const {
  return example().toTensor().sizes().vec();
}

std::int64_t OnnxValue::to_int() const {
  const c10::IValue& value = constant_value(*this, "integer");
  return value.isTensor() ? value.toTensor().item<std::int64_t>()
                          : value.toScalar().to<std::int64_t>();
}

double OnnxValue::to_double() const {
  const c10::IValue& value = constant_value(*this, "number");
  return value.isTensor() ? value.toTensor().item<double>() : value.toScalar().to<double>();
}

bool OnnxValue::to_bool() const {
  const c10::IValue& value = constant_value(*this, "bool");
  return value.isTensor() ? value.toTensor().item<bool>() : value.toScalar().to<bool>();
}

std::string OnnxValue::to_text() const {
  return constant_value(*this, "text").toStringRef();
}

std::vector<OnnxValue> OnnxValue::elements() const {
  return operand_->elements;
}

}  // namespace mezzo::deploy
