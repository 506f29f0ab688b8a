// Operators of numpy mode that differ from their older relatives: operands of different types are
// joined, and comparisons give truth values.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

// Numpy's order of types: two operands get the later one.
std::size_t place_of_type(Element element) {
  constexpr std::array kOrder{Element::kBool,  Element::kUint8, Element::kInt8,  Element::kInt32,
                              Element::kInt64, Element::kFloat, Element::kDouble};
  return static_cast<std::size_t>(std::ranges::find(kOrder, element) - kOrder.begin());
}

Element later_type(Element a, Element b) {
  return place_of_type(a) >= place_of_type(b) ? a : b;
}

bool is_floating(Element element) {
  return place_of_type(element) >= place_of_type(Element::kFloat);
}

Operands of_one_type(Call& call, Operands operands, Element least) {
  Element element = least;
  for (const Operand& operand : operands) element = later_type(element, operand.element);
  for (Operand& operand : operands) operand = call.cast(operand, element);
  return operands;
}

// The operands of a function of two, or of one and a number.
Operands operands_of(Call& call, bool is_reversed, Element least) {
  if (!call.has("scalar")) return of_one_type(call, {call.input(0), call.input(1)}, least);
  const Element of_number = call.flag("is_int", true) ? Element::kBool : Element::kFloat;
  const Operand& given = call.input(0);
  const Operand x = of_one_type(call, {given}, later_type(least, of_number)).front();
  const Operand number = call.writer.number(call.number("scalar", 1), x.element);
  return is_reversed ? Operands{number, x} : Operands{x, number};
}

// A function by its name without "_npi_", "r" and "_scalar".
struct Function {
  std::string_view name;
  const char* onnx;
};

std::string_view function_of(const Call& call, bool* is_reversed) {
  std::string_view name = call.node().op;
  name.remove_prefix(std::string_view("_npi_").size());
  if (name.ends_with("_scalar")) name.remove_suffix(std::string_view("_scalar").size());
  *is_reversed = name.starts_with('r');
  if (*is_reversed) name.remove_prefix(1);
  return name;
}

const char* onnx_name_of(Call& call, std::span<const Function> functions, std::string_view name) {
  const auto found = std::ranges::find(functions, name, &Function::name);
  if (found == functions.end()) call.refuse("no such function is known here; expected another");
  return found->onnx;
}

Operands arithmetic(Call& call) {
  constexpr std::array<Function, 6> kFunctions{{{"add", "Add"},
                                                {"subtract", "Sub"},
                                                {"multiply", "Mul"},
                                                {"true_divide", "Div"},
                                                {"power", "Pow"},
                                                {"mod", "Mod"}}};
  bool is_reversed = false;
  const std::string_view name = function_of(call, &is_reversed);
  const std::string onnx = onnx_name_of(call, kFunctions, name);
  // Truth values are counted; quotients are fractions.
  const Element least = name == "true_divide" ? Element::kFloat : Element::kInt32;
  const Operands operands = operands_of(call, is_reversed, least);
  if (onnx == "Mod" && is_floating(operands[0].element))
    return {call.modulo(operands[0], operands[1])};
  return {call.broadcast(onnx, operands[0], operands[1])};
}

Operand truth(Call& call, const std::string& op, const Operands& operands) {
  std::optional<Dims> dims = operands.front().dims;
  for (const Operand& operand : operands) dims = broadcast_dims(dims, operand.dims);
  return call.add(op, operands, {}, {Element::kBool, dims});
}

Operands comparison(Call& call) {
  constexpr std::array<Function, 6> kFunctions{{{"equal", "Equal"},
                                                {"not_equal", "Equal"},
                                                {"greater", "Greater"},
                                                {"greater_equal", "GreaterOrEqual"},
                                                {"less", "Less"},
                                                {"less_equal", "LessOrEqual"}}};
  bool is_reversed = false;
  const std::string_view name = function_of(call, &is_reversed);
  const Operands operands = operands_of(call, is_reversed, Element::kInt32);
  const Operand result = truth(call, onnx_name_of(call, kFunctions, name), operands);
  return {name == "not_equal" ? truth(call, "Not", {result}) : result};
}

Operands logical_function(Call& call) {
  constexpr std::array<Function, 4> kFunctions{{{"logical_and", "And"},
                                                {"logical_or", "Or"},
                                                {"logical_xor", "Xor"},
                                                {"logical_not", "Not"}}};
  bool is_reversed = false;
  const char* onnx = onnx_name_of(call, kFunctions, function_of(call, &is_reversed));
  Operands operands{call.input(0)};
  if (std::string_view(onnx) != "Not") operands.push_back(call.input(1));
  for (Operand& operand : operands) operand = call.cast(operand, Element::kBool);
  return {truth(call, onnx, operands)};
}

// Broadcasts its three operands, the condition too.
Operands where_of_three(Call& call) {
  const Operands values = of_one_type(call, {call.input(1), call.input(2)}, Element::kBool);
  return {call.where(call.cast(call.input(0), Element::kBool), values[0], values[1])};
}

Operands where_with_number(Call& call) {
  const Operand& x = call.input(1);
  const Operand number = call.writer.number(call.number("scalar", 0), x.element);
  const Operand condition = call.cast(call.input(0), Element::kBool);
  const bool is_first = call.node().op == "_npi_where_lscalar";
  return {is_first ? call.where(condition, number, x) : call.where(condition, x, number)};
}

// The sizes of a product of matrices, where a vector is a row in front and a column behind.
std::optional<Dims> dims_of_matmul(const Operand& a, const Operand& b) {
  if (!a.dims || !b.dims || a.dims->empty() || b.dims->empty()) return std::nullopt;
  const std::size_t inner_a = a.dims->size() > 1 ? 2 : 1, inner_b = b.dims->size() > 1 ? 2 : 1;
  const Dims before_a(a.dims->begin(), a.dims->end() - static_cast<std::ptrdiff_t>(inner_a));
  const Dims before_b(b.dims->begin(), b.dims->end() - static_cast<std::ptrdiff_t>(inner_b));
  std::optional<Dims> dims = broadcast_dims(before_a, before_b);
  if (inner_a == 2) dims->push_back(*(a.dims->end() - 2));
  if (inner_b == 2) dims->push_back(b.dims->back());
  return dims;
}

Operands matmul(Call& call) {
  const Operands operands = of_one_type(call, {call.input(0), call.input(1)}, Element::kInt32);
  return {call.add("MatMul", operands, {},
                   {operands[0].element, dims_of_matmul(operands[0], operands[1])})};
}

// Sums over the last axis of the first and the last but one of the second: a product of matrices
// as long as the second has two dimensions at most.
Operands numpy_dot(Call& call) {
  const std::int64_t a = call.rank(call.input(0)), b = call.rank(call.input(1));
  if (a == 0 || b == 0) {
    const Operands operands = of_one_type(call, {call.input(0), call.input(1)}, Element::kInt32);
    return {call.broadcast("Mul", operands[0], operands[1])};
  }
  if (b > 2)
    call.refuse("its second operand has " + std::to_string(b) +
                " dimensions; expected two at most, or matmul");
  return matmul(call);
}

// The sizes of a result, by the letters behind the arrow.
std::optional<Dims> dims_of_einsum(std::string_view equation, const Operands& operands) {
  const std::size_t arrow = equation.find("->");
  if (arrow == std::string_view::npos || equation.find('.') != std::string_view::npos)
    return std::nullopt;
  std::map<char, std::int64_t> sizes;
  std::string_view terms = equation.substr(0, arrow);
  for (const Operand& operand : operands) {
    const std::string_view term = terms.substr(0, terms.find(','));
    if (!operand.has_rank(term.size())) return std::nullopt;
    for (std::size_t i = 0; i < term.size(); ++i) {
      std::int64_t& size = sizes.try_emplace(term[i], kUnknownSize).first->second;
      size = std::max(size, (*operand.dims)[i]);
    }
    terms.remove_prefix(std::min(terms.size(), term.size() + 1));
  }
  Dims dims;
  for (const char letter : equation.substr(arrow + 2)) {
    if (!sizes.contains(letter)) return std::nullopt;
    dims.push_back(sizes[letter]);
  }
  return dims;
}

Operands einsum(Call& call) {
  std::string equation = call.text("subscripts", "");
  std::erase(equation, ' ');
  call.input(0);  // or a refusal
  const Operands operands = of_one_type(call, call.inputs(), Element::kInt32);
  return {call.add("Einsum", operands, {{"equation", equation}},
                   {operands.front().element, dims_of_einsum(equation, operands)})};
}

// A sum or extreme along some axes, or of all, which is a number without dimensions.
struct Along {
  Dims axes;
  bool keeps;
  std::optional<Dims> dims;  // of the result
};

Along along(Call& call, const Operand& x) {
  Along along{call.list("axis"), call.flag("keepdims"), {}};
  if (call.has("initial")) call.refuse("a first value (initial); expected none");
  if (!call.has("axis") && !x.dims && !along.keeps) return {{}, false, Dims{}};
  std::vector<bool> goes(static_cast<std::size_t>(call.rank(x)), !call.has("axis"));
  for (const std::int64_t axis : along.axes)
    goes[static_cast<std::size_t>(call.axis_of(axis, x))] = true;
  along.axes.clear();
  along.dims.emplace();
  for (std::size_t i = 0; i < goes.size(); ++i) {
    if (goes[i]) along.axes.push_back(static_cast<std::int64_t>(i));
    if (!goes[i])
      along.dims->push_back((*x.dims)[i]);
    else if (along.keeps)
      along.dims->push_back(1);
  }
  return along;
}

Operand reduce_along(Call& call, const std::string& op, const Operand& x, const Along& along) {
  // No axes are all to ONNX, and none to MXNet.
  if (along.axes.empty() && (!x.dims || !x.dims->empty()) && along.dims != Dims{}) return x;
  Attributes attributes{{"keepdims", std::int64_t{along.keeps ? 1 : 0}}};
  Operands inputs{x};
  if (op == "ReduceSum" && !along.axes.empty())
    inputs.push_back(call.writer.integers(along.axes));
  else if (!along.axes.empty())
    attributes.push_back({"axes", along.axes});
  return call.add(op, inputs, attributes, {x.element, along.dims});
}

// In the type of the data, or of the attribute; truth values are counted.
Operands reduce_numbers(Call& call) {
  std::string_view name = call.node().op;
  name.remove_prefix(name.starts_with("_npi_") ? 5 : 4);
  const Operand& given = call.input(0);
  const bool is_mean = name == "mean";
  const bool is_total = name == "sum" || name == "prod";
  Element element = is_mean ? later_type(given.element, Element::kFloat)
                    : is_total && given.element == Element::kBool ? Element::kInt64
                                                                  : given.element;
  if (is_mean || is_total) element = call.dtype(element);
  const Operand x = call.cast(given, element);
  const char* op = is_mean          ? "ReduceMean"
                   : name == "sum"  ? "ReduceSum"
                   : name == "prod" ? "ReduceProd"
                   : name == "max"  ? "ReduceMax"
                                    : "ReduceMin";
  return {reduce_along(call, op, x, along(call, x))};
}

Operands variance(Call& call) {
  const Operand x = call.cast(call.input(0), later_type(call.input(0).element, Element::kFloat));
  const Along wanted = along(call, x);
  Along kept = wanted;
  kept.keeps = true;
  kept.dims = call.dims(x);
  for (const std::int64_t axis : kept.axes) kept.dims->at(static_cast<std::size_t>(axis)) = 1;
  const Operand mean = reduce_along(call, "ReduceMean", x, kept);
  Operand distance = call.broadcast("Sub", x, mean);
  distance = call.broadcast("Mul", distance, distance);
  Operand result = reduce_along(call, "ReduceMean", distance, wanted);
  if (const double less = call.number("ddof", 0); less != 0) {
    double count = 1;
    for (const std::int64_t axis : wanted.axes) {
      const std::int64_t size = x.dims->at(static_cast<std::size_t>(axis));
      if (size < 0)
        call.refuse(
            "ddof of sizes that are not known; give the shapes of the data (--input "
            "NAME=SHAPE)");
      count *= static_cast<double>(size);
    }
    if (count <= less) call.refuse("ddof is not below the number of elements; expected less");
    result = call.broadcast("Mul", result, count / (count - less));
  }
  return {call.node().op == "_npi_std" ? call.map("Sqrt", result) : result};
}

// Indices are int64; that of the largest of all counts through the whole array.
Operands extreme_place(Call& call) {
  const char* op = call.node().op == "_npi_argmax" ? "ArgMax" : "ArgMin";
  Operand x = call.input(0);
  const bool is_whole = !call.has("axis");
  if (is_whole) x = call.reshape(x, {-1}, Dims{x.dims ? product(*x.dims) : kUnknownSize});
  const std::int64_t axis = is_whole ? 0 : call.axis_of(call.integer("axis", 0), x);
  const bool keeps = !is_whole && call.flag("keepdims");
  if (is_whole && call.flag("keepdims")) call.refuse("keepdims without an axis; expected an axis");
  std::optional<Dims> dims = x.dims;
  if (dims && keeps) dims->at(static_cast<std::size_t>(axis)) = 1;
  if (dims && !keeps) dims->erase(dims->begin() + axis);
  return {call.add(op, {x}, {{"axis", axis}, {"keepdims", std::int64_t{keeps ? 1 : 0}}},
                   {Element::kInt64, dims})};
}

Operands full_like(Call& call) {
  const Operand& x = call.input(0);
  const Operand number = call.writer.number(call.number("fill_value", 0), call.dtype(x.element));
  return {call.expand(number, call.sizes(x), x.dims)};
}

// Softmax of the places where the second input holds; the others get what no element gets.
Operands masked_softmax(Call& call) {
  const bool is_log = call.node().op == "masked_log_softmax";
  constexpr double kLeast = -3.4e38;
  Operand x = call.input(0);
  const double temperature = call.flag("normalize", true) ? call.number("temperature", 1) : 1;
  if (temperature != 1) x = call.broadcast("Mul", x, 1 / temperature);
  const Operand mask = call.cast(call.input(1), Element::kBool);
  const Operand least = call.writer.number(kLeast, x.element);
  const Operand result = call.map(is_log ? "LogSoftmax" : "Softmax", call.where(mask, x, least),
                                  {{"axis", call.integer("axis", -1)}});
  const double otherwise = is_log ? -HUGE_VAL : 0;
  return {call.where(mask, result, call.writer.number(otherwise, x.element))};
}

constexpr TranslationRow kNumpyRows[] = {
    {"_npi_add _npi_subtract _npi_multiply _npi_true_divide _npi_power _npi_mod", arithmetic},
    {"_npi_add_scalar _npi_subtract_scalar _npi_rsubtract_scalar", arithmetic, Reads::kAll, true},
    {"_npi_multiply_scalar _npi_true_divide_scalar", arithmetic, Reads::kAll, true},
    {"_npi_rtrue_divide_scalar _npi_power_scalar", arithmetic, Reads::kAll, true},
    {"_npi_rpower_scalar _npi_mod_scalar _npi_rmod_scalar", arithmetic, Reads::kAll, true},
    {"_npi_equal _npi_not_equal _npi_greater _npi_greater_equal _npi_less", comparison},
    {"_npi_less_equal", comparison},
    {"_npi_equal_scalar _npi_not_equal_scalar _npi_greater_scalar", comparison, Reads::kAll, true},
    {"_npi_greater_equal_scalar _npi_less_scalar", comparison, Reads::kAll, true},
    {"_npi_less_equal_scalar", comparison, Reads::kAll, true},
    {"_npi_logical_and _npi_logical_or _npi_logical_xor", logical_function},
    {"_npi_logical_not", logical_function, Reads::kAll, true},
    {"_npi_where", where_of_three},
    {"_npi_where_lscalar _npi_where_rscalar", where_with_number},
    {"_npi_matmul", matmul},
    {"_npi_dot _np_dot", numpy_dot},
    {"_npi_einsum", einsum},
    {"_np_sum _npi_sum _npi_mean _np_prod _npi_prod _np_max _npi_max _np_min", reduce_numbers},
    {"_npi_min", reduce_numbers},
    {"_npi_var _npi_std", variance},
    {"_npi_argmax _npi_argmin", extreme_place},
    {"_npi_full_like", full_like, Reads::kAll, true},
    {"masked_softmax masked_log_softmax", masked_softmax, Reads::kAll, true},
};

}  // namespace

std::span<const TranslationRow> numpy_rows() {
  return kNumpyRows;
}

}  // namespace mezzo::convert::mxnet
