// Containers while a graph is gone through.
#include <algorithm>
#include <utility>

#include "deploy/onnx_walk.h"

namespace mezzo::deploy::detail {
namespace {

OnnxValue container(Operand::Kind kind, const c10::TypePtr& type, std::vector<OnnxValue> elements) {
  auto operand = std::make_shared<Operand>();
  operand->kind = kind;
  operand->type = type;
  operand->elements = std::move(elements);
  return OnnxValue(std::move(operand));
}

bool is_container(const OnnxValue& value, Operand::Kind kind) {
  return value.operand()->kind == kind;
}

std::int64_t index_in(const OnnxValue& index, std::size_t size) {
  const std::int64_t given = index.to_int(), count = static_cast<std::int64_t>(size);
  const std::int64_t place = given < 0 ? given + count : given;
  if (place < 0 || place >= count)
    raise<UnsupportedError>("export_onnx", "a list of ", count,
                            " elements is asked for its element ", given);
  return place;
}

}  // namespace

bool Walker::structure(const Node& node) {
  const auto kind = node.kind();
  if (kind == c10::prim::TupleConstruct) {
    set(node.output(), container(Operand::Kind::kTuple, node.output()->type(), operands_of(node)));
  } else if (kind == c10::prim::ListConstruct) {
    set(node.output(), container(Operand::Kind::kList, node.output()->type(), operands_of(node)));
  } else if (kind == c10::prim::TupleUnpack || kind == c10::prim::ListUnpack) {
    const std::vector<OnnxValue> elements = value(node.input()).elements();
    if (elements.size() != node.outputs().size()) return false;
    for (std::size_t i = 0; i < elements.size(); ++i) set(node.outputs()[i], elements[i]);
  } else if (kind == c10::prim::TupleIndex) {
    const std::vector<OnnxValue> elements = value(node.input(0)).elements();
    set(node.output(),
        elements[static_cast<std::size_t>(index_in(value(node.input(1)), elements.size()))]);
  } else if (kind == c10::prim::isinstance) {
    const c10::TypePtr type = example_of(value(node.input()), 0).type();
    const std::vector<c10::TypePtr>& types = node.tys(c10::attr::types);
    const bool is_one = std::ranges::any_of(
        types, [&](const c10::TypePtr& each) { return type->isSubtypeOf(*each); });
    set(node.output(), constant_of(is_one, g_.variants()));
  } else if (kind == c10::prim::DictConstruct) {
    auto operand = std::make_shared<Operand>();
    operand->kind = Operand::Kind::kDict;
    operand->type = node.output()->type();
    for (std::size_t i = 0; i + 1 < node.inputs().size(); i += 2) {
      operand->keys.push_back(value(node.input(i)).operand()->examples.at(0));
      operand->elements.push_back(value(node.input(i + 1)));
    }
    set(node.output(), OnnxValue(std::move(operand)));
  } else if (node.kind().toQualString() == std::string("prim::NumToTensor")) {
    const OnnxValue& number = value(node.input());
    std::vector<c10::IValue> examples;
    for (std::size_t k = 0; k < g_.variants(); ++k)
      examples.emplace_back(
          at::scalar_tensor(example_of(number, k).toScalar(),
                            example_of(number, k).isDouble() ? at::kDouble : at::kLong));
    if (number.is_constant()) {
      auto operand = std::make_shared<Operand>();
      operand->examples = std::move(examples);
      set(node.output(), OnnxValue(std::move(operand)));
    } else {
      OnnxValue tensor = made_of(g_.op("Squeeze", {number.operand()->name}), std::move(examples));
      tensor.operand()->is_size = number.operand()->is_size;
      set(node.output(), std::move(tensor));
    }
  } else {
    return false;
  }
  return true;
}

bool Walker::lists(const Node& node) {
  const std::string kind = node.kind().toQualString();
  if (node.inputs().empty()) return false;
  const auto found = values_.find(node.input(0));
  if (found == values_.end()) return false;
  const OnnxValue list = found->second;
  if (!is_container(list, Operand::Kind::kList) && !is_container(list, Operand::Kind::kTuple))
    return false;
  std::vector<OnnxValue>& elements = list.operand()->elements;
  if (kind == "aten::__getitem__") {
    set(node.output(),
        elements[static_cast<std::size_t>(index_in(value(node.input(1)), elements.size()))]);
  } else if (kind == "aten::len") {
    set(node.output(), constant_of(static_cast<std::int64_t>(elements.size()), g_.variants()));
  } else if (kind == "aten::add" && is_container(value(node.input(1)), Operand::Kind::kList)) {
    std::vector<OnnxValue> all = elements;
    for (const OnnxValue& one : value(node.input(1)).elements()) all.push_back(one);
    set(node.output(), container(Operand::Kind::kList, node.output()->type(), std::move(all)));
  } else if (kind == "aten::list" || kind == "aten::copy") {
    set(node.output(), container(Operand::Kind::kList, node.output()->type(), elements));
  } else if (kind == "aten::slice" && !is_constant(list) &&
             is_container(list, Operand::Kind::kList)) {
    const auto size = static_cast<std::int64_t>(elements.size());
    const auto bound = [&](std::size_t i, std::int64_t otherwise) {
      const OnnxValue& given = value(node.input(i));
      const std::int64_t place = given.is_none() ? otherwise : given.to_int();
      return std::clamp<std::int64_t>(place < 0 ? place + size : place, 0, size);
    };
    std::vector<OnnxValue> part;
    for (std::int64_t i = bound(1, 0); i < bound(2, size); i += value(node.input(3)).to_int())
      part.push_back(elements[static_cast<std::size_t>(i)]);
    set(node.output(), container(Operand::Kind::kList, node.output()->type(), std::move(part)));
  } else if (kind == "aten::dict") {
    OnnxValue dict = container(Operand::Kind::kDict, node.output()->type(), {});
    for (const OnnxValue& item : elements) {
      dict.operand()->keys.push_back(item.elements().at(0).operand()->examples.at(0));
      dict.operand()->elements.push_back(item.elements().at(1));
    }
    set(node.output(), std::move(dict));
  } else {
    return changes_list(node, list);
  }
  return true;
}

bool Walker::changes_list(const Node& node, const OnnxValue& list) {
  const std::string kind = node.kind().toQualString();
  std::vector<OnnxValue>& elements = list.operand()->elements;
  const auto size = static_cast<std::int64_t>(elements.size());
  const auto at = [&](std::int64_t place) { return elements.begin() + place; };
  const auto index = [&] { return index_in(value(node.input(1)), elements.size()); };
  if (kind == "aten::append") {
    elements.push_back(value(node.input(1)));
  } else if (kind == "aten::_set_item") {
    *at(index()) = value(node.input(2));
  } else if (kind == "aten::insert") {
    const std::int64_t given = value(node.input(1)).to_int();
    elements.insert(at(std::clamp<std::int64_t>(given < 0 ? given + size : given, 0, size)),
                    value(node.input(2)));
  } else if (kind == "aten::extend") {
    const std::vector<OnnxValue> more = value(node.input(1)).elements();
    elements.insert(elements.end(), more.begin(), more.end());
  } else if (kind == "aten::pop") {
    const std::int64_t place = index();
    set(node.output(), *at(place));
    elements.erase(at(place));
    return true;
  } else if (kind == "aten::Delete") {
    elements.erase(at(index()));
  } else if (kind == "aten::reverse") {
    std::ranges::reverse(elements);
  } else if (kind == "aten::clear") {
    elements.clear();
  } else {
    return false;
  }
  if (!node.outputs().empty()) set(node.output(), list);
  return true;
}

bool Walker::dictionaries(const Node& node) {
  const std::string kind = node.kind().toQualString();
  if (node.inputs().empty()) return false;
  const auto found = values_.find(node.input(0));
  if (found == values_.end() || !is_container(found->second, Operand::Kind::kDict)) return false;
  Operand& dict = *found->second.operand();
  const auto key = [&] { return value(node.input(1)).operand()->examples.at(0); };
  const auto place = [&](const c10::IValue& of) {
    return static_cast<std::size_t>(std::find(dict.keys.begin(), dict.keys.end(), of) -
                                    dict.keys.begin());
  };
  const auto put = [&](const c10::IValue& at, const OnnxValue& element) {
    const std::size_t known = place(at);
    if (known < dict.keys.size()) {
      dict.elements[known] = element;
    } else {
      dict.keys.push_back(at);
      dict.elements.push_back(element);
    }
  };
  if (kind == "aten::__getitem__" || kind == "aten::get") {
    const std::size_t at = place(key());
    const bool is_there = at < dict.keys.size();
    if (!is_there && kind == "aten::__getitem__")
      raise<UnsupportedError>("export_onnx", "a dictionary has not the key that is asked for");
    set(node.output(), is_there                   ? dict.elements[at]
                       : node.inputs().size() > 2 ? value(node.input(2))
                                                  : constant_of(c10::IValue(), g_.variants()));
  } else if (kind == "aten::_set_item") {
    put(key(), value(node.input(2)));
  } else if (kind == "aten::update") {
    const OnnxValue more = value(node.input(1));
    for (std::size_t i = 0; i < more.operand()->keys.size(); ++i)
      put(more.operand()->keys[i], more.elements()[i]);
  } else if (kind == "aten::dict" || kind == "aten::copy") {
    OnnxValue same = container(Operand::Kind::kDict, node.output()->type(), dict.elements);
    same.operand()->keys = dict.keys;
    set(node.output(), std::move(same));
  } else if (kind == "aten::items") {
    const auto& type = node.output()->type()->expectRef<c10::ListType>().getElementType();
    std::vector<OnnxValue> items;
    for (std::size_t i = 0; i < dict.keys.size(); ++i)
      items.push_back(container(Operand::Kind::kTuple, type,
                                {constant_of(dict.keys[i], g_.variants()), dict.elements[i]}));
    set(node.output(), container(Operand::Kind::kList, node.output()->type(), std::move(items)));
  } else if (kind == "aten::values") {
    set(node.output(), container(Operand::Kind::kList, node.output()->type(), dict.elements));
  } else if (kind == "aten::keys") {
    std::vector<OnnxValue> keys;
    for (const c10::IValue& each : dict.keys) keys.push_back(constant_of(each, g_.variants()));
    set(node.output(), container(Operand::Kind::kList, node.output()->type(), std::move(keys)));
  } else {
    return false;
  }
  return true;
}

}  // namespace mezzo::deploy::detail
