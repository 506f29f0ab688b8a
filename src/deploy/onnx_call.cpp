#include "deploy/onnx_call.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <utility>

#include "core/words.h"
#include "deploy/onnx_facts.h"

namespace mezzo::deploy::detail {

bool Call::takes(std::string_view argument) const {
  return schema_.argumentIndexWithName(argument).has_value();
}

bool Call::has(std::string_view argument) const {
  return takes(argument) && !arg(argument).is_none();
}

const OnnxValue& Call::arg(std::string_view argument) const {
  auto index = schema_.argumentIndexWithName(argument);
  if (!index && argument == "self") index = schema_.argumentIndexWithName("a");
  if (!index && argument == "other") index = schema_.argumentIndexWithName("b");
  if (!index || *index >= static_cast<int>(operands_.size()))
    refuse("it has no argument '" + std::string(argument) + "'");
  return operands_[static_cast<std::size_t>(*index)];
}

void Call::refuse(std::string_view why) const {
  raise<UnsupportedError>("export_onnx", schema_.operator_name(), ": ", why);
}

std::string Call::as(const OnnxValue& value, at::ScalarType type) const {
  const c10::IValue example = example_of(value, 0);
  if (value.is_constant() && example.isScalar())
    return g.tensor(at::scalar_tensor(example.toScalar(), type));
  const std::string name = g.name_of(value);
  if (example.isTensor()) return g.cast(name, example.toTensor().scalar_type(), type);
  const std::string cast = g.cast(name, element_type(example), type);
  // Numbers have one dimension in the model, which would make a scalar result one of rank 1.
  const bool flat =
      !results_.empty() && !results_[0].empty() && results_[0][0].isTensor() && out_rank() == 0;
  return flat ? g.op("Squeeze", {cast}) : cast;
}

std::int64_t Call::i(std::string_view argument) const {
  if (!is_constant(arg(argument)))
    refuse("its argument '" + std::string(argument) +
           "' follows from the model's inputs, and ONNX wants a number");
  return arg(argument).to_int();
}

double Call::d(std::string_view argument) const {
  if (!is_constant(arg(argument)))
    refuse("its argument '" + std::string(argument) +
           "' follows from the model's inputs, and ONNX wants a number");
  return arg(argument).to_double();
}

std::vector<std::int64_t> Call::is(std::string_view argument) const {
  const OnnxValue& value = arg(argument);
  if (value.operand()->kind == Operand::Kind::kValue) return {i(argument)};
  std::vector<std::int64_t> result;
  for (const OnnxValue& element : value.elements()) {
    if (!element.is_constant())
      refuse("its argument '" + std::string(argument) +
             "' follows from the model's inputs, and ONNX wants numbers");
    result.push_back(element.to_int());
  }
  return result;
}

at::ScalarType Call::type(std::string_view argument) const {
  return element_type(example_of(arg(argument), 0));
}

std::int64_t Call::dim(std::string_view argument, std::string_view of) const {
  const std::int64_t given = i(argument);
  return given < 0 ? given + std::max<std::int64_t>(rank(of), 1) : given;
}

std::int64_t Call::fixed_size(const OnnxValue& value, std::int64_t dimension) const {
  const std::int64_t first = example_of(value, 0).toTensor().size(dimension);
  for (std::size_t k = 1; k < g.variants(); ++k) {
    if (example_of(value, k).toTensor().size(dimension) != first) return -1;
  }
  return first;
}

at::ScalarType Call::out_type(std::size_t i) const {
  const c10::IValue& value = result(i);
  if (value.isTensorList()) return value.toTensorVector().at(0).scalar_type();
  return element_type(value);
}

std::int64_t Call::fixed_out(std::int64_t dimension, std::size_t i) const {
  const std::int64_t first = result(i).toTensor().size(dimension);
  for (std::size_t k = 1; k < results_[i].size(); ++k) {
    if (result(i, k).toTensor().size(dimension) != first) return -1;
  }
  return first;
}

std::string Call::unary(std::string_view op, const OnnxAttributes& attributes) const {
  return g.op(op, {x(schema_.arguments().at(0).name(), out_type())}, attributes);
}

std::string Call::gelu(const std::string& x, bool by_tanh) const {
  if (g.opset() >= 20)
    return one("Gelu", {x}, {{"approximate", std::string(by_tanh ? "tanh" : "none")}});
  std::string inner;
  if (by_tanh) {
    const std::string cube = one("Mul", {one("Mul", {x, x}), x});
    const std::string sum = one("Add", {x, one("Mul", {cube, constant(0.044715)})});
    inner = one("Tanh", {one("Mul", {sum, constant(std::sqrt(2 / std::numbers::pi))})});
  } else {
    inner = one("Erf", {one("Div", {x, constant(std::numbers::sqrt2)})});
  }
  return one("Mul", {one("Mul", {x, one("Add", {inner, constant(1)})}), constant(0.5)});
}

std::string Call::dense(const std::string& x, std::string_view weight,
                        std::string_view bias) const {
  const std::int64_t rank = this->rank(weight);
  std::string turned;
  if (rank == 2 && is_fixed(weight)) {
    const std::string& path = arg(weight).operand()->path;
    turned = g.tensor(example(weight).t().contiguous(), path.empty() ? "" : path + "_t");
  } else {
    turned = rank < 2 ? this->x(weight) : transposed(this->x(weight), rank, rank - 2, rank - 1);
  }
  const std::string y = one("MatMul", {x, turned});
  return has(bias) ? one("Add", {y, this->x(bias)}) : y;
}

std::string Call::sizes(const std::string& tensor, std::int64_t begin, std::int64_t end) const {
  if (g.opset() >= 15) return g.op("Shape", {tensor}, {{"start", begin}, {"end", end}});
  return g.op("Slice", {g.op("Shape", {tensor}), g.ints({begin}), g.ints({end})});
}

std::string Call::neighbours_product(const std::string& tensor, const OnnxValue& like,
                                     std::int64_t d, std::size_t result) const {
  const auto fits = [&](std::int64_t begin, std::int64_t end) {
    for (std::size_t k = 0; k < g.variants(); ++k) {
      const at::Tensor example = example_of(like, k).toTensor();
      std::int64_t product = 1;
      for (std::int64_t each = begin; each < end; ++each) product *= example.size(each);
      if (product != this->result(result, k).toTensor().size(d)) return false;
    }
    return true;
  };
  const std::int64_t given = example_of(like, 0).toTensor().dim();
  for (std::int64_t begin = 0; begin < given; ++begin) {
    for (std::int64_t end = begin + 1; end <= given; ++end) {
      if (!fits(begin, end)) continue;
      std::string part = sizes(tensor, begin, begin + 1);
      for (std::int64_t each = begin + 1; each < end; ++each)
        part = g.op("Mul", {part, sizes(tensor, each, each + 1)});
      return part;
    }
  }
  return {};
}

/// Sizes that are equal in all runs are numbers, one that the tensor has at the same place is 0,
/// and one other is -1. All others are computed, as the one factor between two products.
std::string Call::resized(const std::string& tensor, const std::vector<std::int64_t>& sizes) const {
  const bool is_empty = std::count(sizes.begin(), sizes.end(), 0) > 0;
  if (!is_empty) return g.op("Reshape", {tensor, g.ints(sizes)});
  if (g.opset() < 14) refuse("its result has no elements, which needs opset 14; set options.opset");
  return g.op("Reshape", {tensor, g.ints(sizes)}, {{"allowzero", std::int64_t{1}}});
}

Call::Columns Call::columns_of(const OnnxValue& value) const {
  Columns columns(static_cast<std::size_t>(example_of(value, 0).toTensor().dim()));
  for (std::size_t k = 0; k < g.variants(); ++k) {
    for (std::size_t d = 0; d < columns.size(); ++d)
      columns[d].push_back(example_of(value, k).toTensor().size(static_cast<std::int64_t>(d)));
  }
  return columns;
}

std::string Call::with_other_ones(const std::string& tensor, const OnnxValue& like,
                                  std::size_t result) const {
  const std::vector<std::int64_t> ones(g.variants(), 1);
  const Columns wanted = columns_of_result(result), given = columns_of(like);
  std::vector<std::int64_t> inserted, removed;
  std::size_t from = 0, to = 0;
  while (from < given.size() || to < wanted.size()) {
    if (from < given.size() && to < wanted.size() && given[from] == wanted[to]) {
      ++from, ++to;
    } else if (to < wanted.size() && wanted[to] == ones) {
      inserted.push_back(static_cast<std::int64_t>(to++));
    } else if (from < given.size() && given[from] == ones) {
      removed.push_back(static_cast<std::int64_t>(from++));
    } else {
      return {};
    }
  }
  if (!inserted.empty() && !removed.empty()) return {};
  return inserted.empty() ? squeezed(tensor, removed) : unsqueezed(tensor, inserted);
}

std::string Call::with_moved_sizes(const std::string& tensor, const OnnxValue& like,
                                   std::size_t result) const {
  const Columns wanted = columns_of_result(result), given = columns_of(like);
  Names parts;
  std::vector<std::int64_t> numbers;
  std::int64_t begin = 0, end = 0;  // sizes of the tensor that stand side by side
  const auto flush = [&] {
    if (!numbers.empty()) parts.push_back(g.ints(numbers));
    if (end > begin) parts.push_back(sizes(tensor, begin, end));
    numbers.clear();
    begin = end = 0;
  };
  bool is_inferred = false;
  for (std::size_t d = 0; d < wanted.size(); ++d) {
    const bool is_same = d < given.size() && given[d] == wanted[d];
    const std::int64_t fixed = fixed_out(static_cast<std::int64_t>(d), result);
    const bool goes_on = end > begin && static_cast<std::size_t>(end) < given.size() &&
                         given[static_cast<std::size_t>(end)] == wanted[d];
    const auto source = std::ranges::find(given, wanted[d]);
    if (fixed == 0) return {};
    if (goes_on && fixed < 0) {
      ++end;
      continue;
    }
    if (fixed > 0 || is_same || source == given.end()) {
      if (end > begin) flush();
      if (fixed <= 0 && !is_same && std::exchange(is_inferred, true)) return {};
      numbers.push_back(fixed > 0 ? fixed : is_same ? 0 : -1);
      continue;
    }
    flush();
    begin = source - given.begin();
    end = begin + 1;
  }
  flush();
  if (parts.size() < 2) return parts.empty() ? tensor : g.op("Reshape", {tensor, parts[0]});
  return g.op("Reshape", {tensor, g.op("Concat", parts, {{"axis", std::int64_t{0}}})});
}

std::string Call::reshaped(const std::string& tensor, const OnnxValue& like,
                           std::size_t result) const {
  const std::int64_t rank = out_rank(result);
  const std::int64_t given = example_of(like, 0).toTensor().dim();
  std::vector<std::int64_t> wanted;
  std::vector<std::int64_t> open;
  for (std::int64_t d = 0; d < rank; ++d) {
    wanted.push_back(fixed_out(d, result));
    if (wanted.back() < 0) open.push_back(d);
  }
  if (open.empty()) return resized(tensor, wanted);
  if (std::count(wanted.begin(), wanted.end(), 0) > 0)
    refuse("its result has no elements, and sizes that follow from the model's inputs");
  if (open.size() == 1) {
    wanted[static_cast<std::size_t>(open[0])] = -1;
    return g.op("Reshape", {tensor, g.ints(wanted)});
  }
  if (std::string made = with_other_ones(tensor, like, result); !made.empty()) return made;
  std::vector<std::int64_t> left;
  for (const std::int64_t d : open) {
    bool same = d < given;
    for (std::size_t k = 0; same && k < g.variants(); ++k)
      same = example_of(like, k).toTensor().size(d) == this->result(result, k).toTensor().size(d);
    if (same) {
      wanted[static_cast<std::size_t>(d)] = 0;
    } else {
      left.push_back(d);
    }
  }
  if (left.size() <= 1) {
    if (left.size() == 1) wanted[static_cast<std::size_t>(left[0])] = -1;
    return g.op("Reshape", {tensor, g.ints(wanted)});
  }
  if (std::string made = with_moved_sizes(tensor, like, result); !made.empty()) return made;
  // Other sizes are products of neighbours.
  Names parts;
  for (std::int64_t d = 0; d < rank; ++d) {
    const std::int64_t number = wanted[static_cast<std::size_t>(d)];
    if (number != -1) {
      parts.push_back(g.ints({number}));
      continue;
    }
    std::string part = neighbours_product(tensor, like, d, result);
    if (part.empty()) {
      if (std::count(parts.begin(), parts.end(), g.ints({-1})) != 0)
        refuse(
            "two of the sizes of its result follow from the inputs in a way that is not "
            "understood");
      part = g.ints({-1});
    }
    parts.push_back(part);
  }
  return g.op("Reshape", {tensor, g.op("Concat", parts, {{"axis", std::int64_t{0}}})});
}

std::string Call::transposed(const std::string& tensor, std::int64_t rank, std::int64_t a,
                             std::int64_t b) const {
  if (a == b) return tensor;
  std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
  return g.op("Transpose", {tensor}, {{"perm", order}});
}

std::string Call::sliced(const std::string& tensor, std::int64_t axis, std::int64_t begin,
                         std::int64_t end) const {
  return g.op("Slice", {tensor, g.ints({begin}), g.ints({end}), g.ints({axis})});
}

std::string Call::squeezed(const std::string& tensor, const std::vector<std::int64_t>& axes) const {
  return axes.empty() ? tensor : g.op("Squeeze", {tensor, g.ints(axes)});
}

std::string Call::unsqueezed(const std::string& tensor,
                             const std::vector<std::int64_t>& axes) const {
  return axes.empty() ? tensor : g.op("Unsqueeze", {tensor, g.ints(axes)});
}

std::string Call::reduced(std::string_view op, const std::string& tensor,
                          std::vector<std::int64_t> axes, bool keep, std::int64_t rank) const {
  for (std::int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  OnnxAttributes attributes{{"keepdims", std::int64_t{keep}}};
  const bool as_input = op == "ReduceSum" || g.opset() >= 18;
  if (as_input)
    return g.op(op, axes.empty() ? Names{tensor} : Names{tensor, g.ints(axes)}, attributes);
  if (!axes.empty()) attributes["axes"] = axes;
  return g.op(op, {tensor}, attributes);
}

std::vector<std::span<const Row>> all_rows() {
  return {elementwise_rows(), comparison_rows(), reduction_rows(),   shape_rows(),
          index_rows(),       product_rows(),    image_rows(),       norm_rows(),
          factory_rows(),     recurrent_rows(),  composite_rows(),   loss_rows(),
          matrix_rows(),      window_rows(),     running_rows(),     random_rows(),
          complex_rows(),     spectrum_rows(),   transformer_rows(), padding_rows()};
}

bool writes(const c10::FunctionSchema& schema) {
  return !schema.arguments().empty() && schema.arguments()[0].alias_info() != nullptr &&
         schema.arguments()[0].alias_info()->isWrite();
}

std::string row_name(const c10::FunctionSchema& schema) {
  std::string name = schema.name();
  if (name.starts_with("aten::")) name = name.substr(6);
  if (writes(schema) && name.ends_with("_") && !name.ends_with("__")) name.pop_back();
  return name;
}

void add_rows(std::span<const Row> rows, std::map<std::string_view, const Row*>& to) {
  for (const Row& row : rows) {
    each_word(row.names, [&](std::string_view name) { to.emplace(name, &row); });
  }
}

const Row* find_row(std::string_view name) {
  static const auto rows = [] {
    std::map<std::string_view, const Row*> all;
    for (const auto& part : all_rows()) add_rows(part, all);
    return all;
  }();
  auto found = rows.find(name);
  constexpr std::string_view kSpecial = "special_";  // most of these have two names
  if (found == rows.end() && name.starts_with(kSpecial))
    found = rows.find(name.substr(kSpecial.size()));
  return found == rows.end() ? nullptr : found->second;
}

}  // namespace mezzo::deploy::detail

namespace mezzo::deploy {

std::vector<std::pair<std::string, int>> onnx_operators() {
  std::map<std::string, int> names;
  constexpr int kLeast = 13;
  for (const auto& part : detail::all_rows()) {
    for (const detail::Row& row : part) {
      each_word(row.names, [&](std::string_view word) {
        const std::string name(word);
        names.emplace(name.find("::") == std::string::npos ? "aten::" + name : name, row.opset);
      });
    }
  }
  for (const std::string& name : detail::identities()) {
    if (name.starts_with("aten::") && !name.ends_with("_")) names.emplace(name, kLeast);
  }
  return {names.begin(), names.end()};
}

}  // namespace mezzo::deploy
