// Operators on complex numbers, by their real and imaginary parts.
#include <algorithm>
#include <map>
#include <numbers>

#include "deploy/onnx_complex.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

/// Moves numbers, or adds those of one tensor: the same with both parts.
Names moved(C c) {
  return joined(c, on_part(c, Part::kReal), on_part(c, Part::kImaginary));
}

Names added(C c) {
  return joined(c, on_part(c, Part::kReal, true), on_part(c, Part::kImaginary, true));
}

/// The places of complex operands; of a list, each element is one.
struct Place {
  std::size_t argument, element;
};

bool is_convolution(C c) {
  return c.schema().name().find("conv") != std::string::npos;
}

std::vector<Place> complex_places(C c) {
  std::vector<Place> places;
  const auto& arguments = c.schema().arguments();
  for (std::size_t a = 0; a < arguments.size(); ++a) {
    const OnnxValue& value = c.arg(arguments[a].name());
    if (!is_complex(value) || arguments[a].name() == "bias") continue;
    const std::vector<OnnxValue> elements = value.elements();
    if (elements.empty()) places.push_back({a, 0});
    for (std::size_t e = 0; e < elements.size(); ++e) {
      if (is_complex(elements[e])) places.push_back({a, e});
    }
  }
  return places;
}

/// The call with these parts of the complex operands.
std::string product_of(C c, const std::vector<Place>& places, const std::vector<Part>& parts) {
  std::vector<OnnxValue> operands;
  const auto& arguments = c.schema().arguments();
  operands.reserve(arguments.size());
  for (const auto& argument : arguments)
    operands.push_back(argument.name() == "bias" ? constant_of({}, c.g.variants())
                                                 : c.arg(argument.name()));
  for (std::size_t i = 0; i < places.size(); ++i) {
    OnnxValue& operand = operands[places[i].argument];
    if (operand.operand()->kind != Operand::Kind::kList) {
      operand = part_of(c, operand, parts[i]);
      continue;
    }
    std::vector<OnnxValue> elements = operand.elements();
    OnnxValue& element = elements[places[i].element];
    element = part_of(c, element, parts[i]);
    operand = list_like(operand, std::move(elements));
  }
  return on_operands(c, std::move(operands)).at(0);
}

/// Linear in each of its operands; a bias is added.
Names multiplied(C c) {
  constexpr Part re = Part::kReal, im = Part::kImaginary;
  const std::vector<Place> places = complex_places(c);
  const auto product = [&](const std::vector<Part>& parts) { return product_of(c, places, parts); };
  Parts made;
  if (places.size() == 1) {
    made = {product({re}), product({im})};
  } else if (places.size() == 2) {
    made = {c.one("Sub", {product({re, re}), product({im, im})}),
            c.one("Add", {product({re, im}), product({im, re})})};
  } else {
    c.refuse("more than two of its operands are complex; multiply in turn");
  }
  if (!c.has("bias")) return joined(c, {made[0]}, {made[1]});
  const Parts bias = parts_of(c, "bias");
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (bias[i].empty()) continue;
    std::vector<std::int64_t> after;  // the axes of images
    for (std::int64_t d = 1; is_convolution(c) && d < c.rank("weight") - 1; ++d) after.push_back(d);
    made[i] = c.one("Add", {made[i], c.unsqueezed(bias[i], after)});
  }
  return joined(c, {made[0]}, {made[1]});
}

std::string square_sum(C c, const Parts& parts) {
  return c.one("Add", {c.one("Mul", {parts[0], parts[0]}), c.one("Mul", {parts[1], parts[1]})});
}

Names quotient(C c) {
  if (!is_complex(c.arg("other"))) return moved(c);
  Parts b = parts_of(c, "other");
  const std::string size = square_sum(c, b);
  const at::ScalarType type = c.out_type();
  if (!is_complex(c.arg("self"))) {
    const std::string a = c.x("self", type);
    return joined(c, {c.one("Div", {c.one("Mul", {a, b[0]}), size})},
                  {c.one("Neg", {c.one("Div", {c.one("Mul", {a, b[1]}), size})})});
  }
  const Parts a = parts_of(c, "self");
  const std::string real = c.one("Add", {c.one("Mul", {a[0], b[0]}), c.one("Mul", {a[1], b[1]})});
  const std::string imaginary =
      c.one("Sub", {c.one("Mul", {a[1], b[0]}), c.one("Mul", {a[0], b[1]})});
  return joined(c, {c.one("Div", {real, size})}, {c.one("Div", {imaginary, size})});
}

Names reciprocal(C c) {
  const Parts x = parts_of(c);
  const std::string size = square_sum(c, x);
  return joined(c, {c.one("Div", {x[0], size})}, {c.one("Neg", {c.one("Div", {x[1], size})})});
}

Names complex_product(C c, const Parts& a, const Parts& b) {
  return {c.one("Sub", {c.one("Mul", {a[0], b[0]}), c.one("Mul", {a[1], b[1]})}),
          c.one("Add", {c.one("Mul", {a[0], b[1]}), c.one("Mul", {a[1], b[0]})})};
}

Names complex_power(C c) {
  const c10::IValue exponent = example_of(c.arg("exponent"), 0);
  const bool is_whole = c.is_fixed("exponent") && exponent.isScalar() &&
                        !exponent.isComplexDouble() && c.d("exponent") == c.i("exponent");
  if (!is_whole || c.i("exponent") < 1 || c.i("exponent") > 16)
    c.refuse("complex powers are said in ONNX for whole exponents from 1 to 16");
  const Parts x = parts_of(c);
  Parts result = x;
  for (std::int64_t n = c.i("exponent"); n > 1; --n) {
    const Names next = complex_product(c, result, x);
    result = {next[0], next[1]};
  }
  return joined(c, {result[0]}, {result[1]});
}

Names square(C c) {
  const Names result = complex_product(c, parts_of(c), parts_of(c));
  return joined(c, {result[0]}, {result[1]});
}

Names exponential(C c) {
  const Parts x = parts_of(c);
  const std::string size = c.one("Exp", {x[0]});
  return joined(c, {c.one("Mul", {size, c.one("Cos", {x[1]})})},
                {c.one("Mul", {size, c.one("Sin", {x[1]})})});
}

Names from_angle(C c) {
  const std::string size = c.x("abs"), angle = c.x("angle");
  return joined(c, {c.one("Mul", {size, c.one("Cos", {angle})})},
                {c.one("Mul", {size, c.one("Sin", {angle})})});
}

/// Both parts have the sizes of the result.
Names from_parts(C c) {
  Names parts = {c.x("real"), c.x("imag")};
  const auto has_size = [&](std::string_view name) {
    return c.columns_of(c.arg(name)) == c.columns_of_result();
  };
  const bool fits[] = {has_size("real"), has_size("imag")};
  if (!fits[0]) parts[0] = c.one("Add", {parts[0], c.one("Mul", {parts[1], c.constant(0)})});
  if (!fits[1]) parts[1] = c.one("Add", {parts[1], c.one("Mul", {parts[0], c.constant(0)})});
  return joined(c, {parts[0]}, {parts[1]});
}

Names conjugate(C c) {
  const Parts x = parts_of(c);
  if (x[1].empty()) return {x[0]};
  return joined(c, {x[0]}, {c.one("Neg", {x[1]})});
}

Names modulus(C c) {
  return {c.one("Sqrt", {square_sum(c, parts_of(c))})};
}

/// atan2(imag, real), by the row for real numbers.
Names angle(C c) {
  const Parts x = parts_of(c);
  if (x[1].empty()) {
    const at::ScalarType type = c.out_type();
    const std::string negative = c.one("Less", {x[0], c.g.number(0, c.type())});
    return {c.one("Where", {negative, c.g.number(std::numbers::pi, type), c.g.number(0, type)})};
  }
  std::vector<c10::IValue> examples;
  examples.reserve(c.g.variants());
  for (std::size_t k = 0; k < c.g.variants(); ++k) examples.push_back(c.result(0, k));
  const std::vector<std::vector<c10::IValue>> results = {examples};
  static const c10::FunctionSchema schema("aten::atan2", "",
                                          {c10::Argument("self", c10::TensorType::get()),
                                           c10::Argument("other", c10::TensorType::get())},
                                          {c10::Argument("", c10::TensorType::get())});
  return find_row("atan2")->say(
      Call(c.g, schema, {made_of(x[1], examples), made_of(x[0], examples)}, results));
}

/// To another type: of real numbers, their real part is left.
Names to_complex(C c) {
  if (!is_complex(c.result())) return on_part(c, Part::kReal);
  return added(c);
}

Names pairs_as_numbers(C c) {
  const Names parts = c.g.parts_of(c.x());
  return joined(c, {parts[0]}, {parts[1]});
}

/// Rows of operators that give or take complex numbers alone, or leave real ones as they are.
constexpr Row kComplexNumbers[] = {
    {"polar", 13, from_angle},
    {"complex", 13, from_parts},
    {"view_as_complex view_as_complex_copy", 13, pairs_as_numbers},
    {"view_as_real", 13, [](C c) { return Names{c.x()}; }},
    {"real", 13, [](C c) { return Names{parts_of(c)[0]}; }},
    {"imag", 13, [](C c) { return Names{parts_of(c)[1]}; }},
    {"conj _conj conj_physical _conj_physical", 13, conjugate},
    {"angle", 13, angle},
};

/// Beside the rows for real numbers.
constexpr Row kByParts[] = {
    {"as_strided chunk clone cumsum diagonal empty empty_like expand expand_as flatten flip "
     "gather index index_select mean movedim moveaxis mT narrow neg negative new_empty new_zeros "
     "numpy_T permute repeat repeat_interleave reshape reshape_as roll select slice split "
     "split_with_sizes squeeze sum swapaxes t take_along_dim tensor_split tile transpose tril "
     "triu unbind unflatten unfold unsqueeze view view_as zero zeros zeros_like _unsafe_view "
     "_reshape_alias fft_fftshift fft_ifftshift size sym_size numel len _shape_as_tensor",
     13, moved},
    {"add sub subtract rsub cat concat concatenate stack where masked_fill copy constant_pad_nd "
     "pad _pad_enum _pad_circular slice_scatter select_scatter index_put index_add",
     13, added},
    {"mul multiply matmul mm bmm mv dot inner outer einsum tensordot linalg_matmul linear conv1d "
     "conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d _convolution convolution",
     13, multiplied},
    {"abs absolute", 13, modulus},
    {"div divide true_divide", 13, quotient},
    {"reciprocal", 13, reciprocal},
    {"pow", 13, complex_power},
    {"square", 13, square},
    {"exp", 13, exponential},
    {"to type_as _to_copy", 13, to_complex},
};

}  // namespace

std::span<const Row> complex_rows() {
  return kComplexNumbers;
}

const Row* find_complex_row(std::string_view name) {
  static const auto rows = [] {
    std::map<std::string_view, const Row*> all;
    for (const std::span<const Row> part :
         {std::span<const Row>(kByParts), complex_rows(), spectrum_rows()})
      add_rows(part, all);
    return all;
  }();
  const auto found = rows.find(name);
  return found == rows.end() ? nullptr : found->second;
}

}  // namespace mezzo::deploy::detail
