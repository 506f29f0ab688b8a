// Labels of ai.onnx.ml: each key becomes its value.
#include <cmath>
#include <map>
#include <string>

#include "convert/engine/strings.h"
#include "convert/onnx/texts.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

const AttributeValue* given(const OperatorCall& call, std::string_view name) {
  const auto found = call.attributes.find(name);
  return found == call.attributes.end() ? nullptr : &found->second;
}

template <typename T>
Array packed(Element element, const std::vector<T>& values) {
  return {element,
          {static_cast<std::int64_t>(values.size())},
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

Array of_strings(const std::vector<std::string>& texts) {
  return array_of(texts, {static_cast<std::int64_t>(texts.size())});
}

Array of_floats(const std::vector<double>& numbers) {
  return packed(Element::kFloat, std::vector<float>(numbers.begin(), numbers.end()));
}

/// "keys" or "values" in whatever type the node has them; nothing: it has none.
Array listed(const OperatorCall& call, const std::string& name) {
  if (const AttributeValue* const tensor = given(call, name + "_tensor")) return tensor->tensor;
  if (const AttributeValue* const texts = given(call, name + "_strings"))
    return of_strings(texts->texts);
  if (const AttributeValue* const numbers = given(call, name + "_int64s"))
    return packed(Element::kInt64, numbers->integers);
  if (const AttributeValue* const numbers = given(call, name + "_floats"))
    return of_floats(numbers->numbers);
  raise<UnsupportedError>("evaluate", "the labels have no ", name);
}

/// The value of keys that are not listed, of the type of the values.
Array otherwise(const OperatorCall& call, Element element) {
  if (const AttributeValue* const tensor = given(call, "default_tensor")) return tensor->tensor;
  if (element == Element::kString) {
    const AttributeValue* const text = given(call, "default_string");
    return of_strings({text == nullptr ? "_Unused" : text->text});
  }
  if (element == Element::kInt64) {
    const AttributeValue* const number = given(call, "default_int64");
    return packed(element, std::vector<std::int64_t>{number == nullptr ? -1 : number->integer});
  }
  const AttributeValue* const number = given(call, "default_float");
  const double value = number == nullptr ? -0.0 : number->number;
  if (element == Element::kDouble) return packed(element, std::vector<double>{value});
  return of_floats({value});
}

/// The bytes of each element.
std::vector<std::string> elements_of(const Array& array) {
  std::vector<std::string> elements;
  const std::size_t count = array.count(), size = count == 0 ? 0 : array.bytes.size() / count;
  elements.reserve(count);
  for (std::size_t i = 0; i < count; ++i) elements.push_back(array.bytes.substr(i * size, size));
  return elements;
}

/// NaN is a key like others; zero has one sign.
std::string key_of(const std::string& element, Element type) {
  const double value = type == Element::kFloat || type == Element::kDouble
                           ? Array{type, {1}, element}.values()[0]
                           : 1;
  return value == 0 ? "zero" : std::isnan(value) ? "not a number" : element;
}

std::vector<Array> translated(const Array& x, const Array& keys, const Array& values,
                              const Array& otherwise) {
  if (x.element != keys.element)
    raise("evaluate", "keys of the type ", name_of(keys.element), " are looked for among ",
          name_of(x.element));
  if (keys.count() != values.count())
    raise("evaluate", keys.count(), " keys have ", values.count(), " values");
  std::map<std::string, std::string> value_of;
  const std::vector<std::string> from = elements_of(keys), to = elements_of(values);
  for (std::size_t i = 0; i < from.size(); ++i)
    value_of.emplace(key_of(from[i], keys.element), to[i]);
  Array result{values.element, x.dims, {}};
  for (const std::string& element : elements_of(x)) {
    const auto found = value_of.find(key_of(element, x.element));
    result.bytes += found == value_of.end() ? otherwise.bytes : found->second;
  }
  return {result};
}

/// Strings become numbers and numbers become strings, as the operand asks.
std::vector<Array> either_way(const OperatorCall& call, const Array& texts, const Array& numbers) {
  const Array& x = *call.inputs.at(0);
  const bool from_texts = x.element == Element::kString;
  const Array &keys = from_texts ? texts : numbers, &values = from_texts ? numbers : texts;
  return translated(x, keys, values, otherwise(call, values.element));
}

}  // namespace

std::vector<Array> encoded_labels(const OperatorCall& call) {
  if (const AttributeValue* const classes = given(call, "classes_strings")) {  // version 1
    std::vector<std::int64_t> places(classes->texts.size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int64_t>(i);
    return either_way(call, of_strings(classes->texts), packed(Element::kInt64, places));
  }
  const Array keys = listed(call, "keys"), values = listed(call, "values");
  return translated(*call.inputs.at(0), keys, values, otherwise(call, values.element));
}

std::vector<Array> mapped_categories(const OperatorCall& call) {
  const AttributeValue* const texts = given(call, "cats_strings");
  const AttributeValue* const numbers = given(call, "cats_int64s");
  if (texts == nullptr || numbers == nullptr)
    raise<UnsupportedError>("evaluate", "the categories have no strings or no numbers");
  return either_way(call, of_strings(texts->texts), packed(Element::kInt64, numbers->integers));
}

}  // namespace mezzo::convert
