#include "casting/sweep/drawing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>

namespace mezzo::casting::sweep {
namespace {

using Shape = std::vector<std::int64_t>;

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {3, 3}, {4},       {3},    {2, 3}, {2, 3, 4}, {2, 3, 4, 4}, {2, 2, 3, 4, 4}, {1},
      {},     {2, 3, 3}, {4, 4}, {2, 4}, {2, 2},    {2, 3, 5, 5}, {3, 4, 6, 6, 6}, {1, 3, 4, 4}};
  return all;
}

const std::vector<std::string>& words() {
  static const std::vector<std::string> all{
      "mean",    "sum",  "none",    "reflect",  "constant", "fro",     "nuc",      "ij",    "xy",
      "linear",  "tanh", "reduced", "complete", "V",        "U",       "L",        "left",  "right",
      "prod",    "amax", "amin",    "zeros",    "same",     "valid",   "trunc",    "floor", "r",
      "nearest", "eigh", "N",       "lower",    "inner",    "forward", "backward", "ortho"};
  return all;
}

bool holds_integers(std::string_view name) {
  static const std::set<std::string_view> names{
      "index",         "target",       "targets",     "offsets",      "lengths",
      "input_lengths", "repeats",      "batch_sizes", "num_samples",  "target_lengths",
      "plain_indices", "crow_indices", "col_indices", "ccol_indices", "row_indices"};
  return names.contains(name) || name.find("indices") != std::string_view::npos;
}

bool holds_conditions(std::string_view name) {
  return name == "mask" || name == "condition" || name == "attn_mask";
}

bool is_of_channels(std::string_view name) {
  return name == "weight" || name == "bias" || name == "running_mean" || name == "running_var" ||
         name == "other" || name == "vec2";
}

std::string kind_of(const c10::Argument& argument) {
  return argument.real_type()->str();
}

}  // namespace

Drawing::Drawing(std::string_view overload, std::uint64_t attempt)
    : random_(std::hash<std::string_view>()(overload) + 977 * attempt) {}

// Between 0 and 1, and well-conditioned where a matrix is square.
at::Tensor Drawing::values(const Shape& shape) {
  at::manual_seed(below(100000));
  at::Tensor drawn = at::rand(shape) * 0.7 + 0.2;
  if (shape.size() >= 2 && shape.back() == shape[shape.size() - 2])
    drawn = drawn.matmul(drawn.transpose(-1, -2)) * 0.3 + at::eye(shape.back()) * 0.5;
  return drawn.contiguous();
}

at::Tensor Drawing::tensor(const c10::Argument& argument) {
  const std::string& name = argument.name();
  Shape shape = alike_ && !chance(8) ? shape_ : one_of(shapes());
  if (chance(holds_conditions(name) ? 80 : 3)) return at::rand(shape) > 0.5;
  if (chance(holds_integers(name) ? 85 : 6)) {
    if (chance(40)) shape = {static_cast<std::int64_t>(1 + below(4))};
    return at::randint(0, static_cast<std::int64_t>(1 + below(3)), shape, at::kLong);
  }
  if (is_of_channels(name) && chance(35) && shape_.size() >= 2) shape = {shape_[1]};
  if (!shape_.empty() && chance(6)) shape = {shape_.back()};
  return values(shape);
}

std::int64_t Drawing::integer(std::string_view name) {
  if (name.find("dim") != std::string_view::npos || name.find("axis") != std::string_view::npos)
    return one_of<std::int64_t>({0, 1, -1, 2, 0, 1});
  return one_of<std::int64_t>({1, 2, 1, 3, 0, 2, 4, -1, -2});
}

c10::List<std::int64_t> Drawing::integers(const c10::Argument& argument, std::size_t size) {
  const std::string& name = argument.name();
  if ((name.find("size") != std::string::npos || name.find("shape") != std::string::npos) &&
      chance(50))
    return c10::List<std::int64_t>(shape_);
  c10::List<std::int64_t> all;
  if (name.find("dim") != std::string::npos) {
    const std::size_t count = 1 + below(2);
    const auto first = static_cast<std::int64_t>(count == 1 ? below(2) : 0);
    for (std::size_t i = 0; i < count; ++i) all.push_back(first + static_cast<std::int64_t>(i));
    return all;
  }
  const auto common = one_of<std::int64_t>({1, 2, 0, 1, 3});
  for (std::size_t i = 0; i < size; ++i)
    all.push_back(chance(85) ? common : static_cast<std::int64_t>(below(3)));
  return all;
}

std::optional<c10::IValue> Drawing::list(const c10::Argument& argument,
                                         const c10::TypePtr& element) {
  const std::size_t dims = shape_.size();
  std::size_t size = 1 + below(3);
  if (argument.N()) {
    size = static_cast<std::size_t>(*argument.N());
  } else if (dims > 2 && chance(60)) {
    size = chance(50) ? dims - 2 : dims;
  }
  switch (element->kind()) {
    case c10::TypeKind::TensorType: {
      c10::List<at::Tensor> all;
      for (std::size_t i = 1 + below(3); i > 0; --i) all.push_back(tensor(argument));
      return all;
    }
    case c10::TypeKind::OptionalType: {
      c10::List<std::optional<at::Tensor>> all;
      for (std::size_t i = 1 + below(2); i > 0; --i)
        all.push_back(chance(20) ? std::optional<at::Tensor>() : at::randint(0, 2, {3}, at::kLong));
      return all;
    }
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return integers(argument, size);
    case c10::TypeKind::FloatType:
      return c10::List<double>(std::vector<double>(size, one_of<double>({0.5, 1, 2})));
    case c10::TypeKind::BoolType:
      return c10::List<bool>(std::initializer_list<bool>{true, true, true});
    case c10::TypeKind::NumberType: {
      c10::impl::GenericList all(c10::NumberType::get());
      for (std::size_t i = 0; i < size; ++i) all.push_back(c10::IValue(0.5));
      return all;
    }
    default:
      return std::nullopt;
  }
}

std::optional<c10::IValue> Drawing::value(const c10::Argument& argument, const c10::TypePtr& type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return tensor(argument);
    case c10::TypeKind::OptionalType:
      if (chance(45)) return c10::IValue();
      return value(argument, type->castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return integer(argument.name());
    case c10::TypeKind::FloatType:
      return one_of<double>({0.5, 1, 0.1, 2, 0});
    case c10::TypeKind::NumberType:
      if (argument.name() == "ord" || argument.name() == "p")
        return one_of<double>({2, 1, -2, -1, 0, 3, kInfinity, -kInfinity});
      if (chance(50)) return one_of<double>({0.5, 1, 0.25, 2, 3});
      return one_of<std::int64_t>({1, 2, 3, 0, -1});
    case c10::TypeKind::BoolType:
      return chance(50);
    case c10::TypeKind::StringType:
      return one_of(words());
    case c10::TypeKind::ScalarTypeType:
      return c10::IValue(static_cast<std::int64_t>(at::kFloat));
    case c10::TypeKind::LayoutType:
      return c10::IValue(at::kStrided);
    case c10::TypeKind::DeviceObjType:
      return c10::IValue(at::Device("cpu"));
    case c10::TypeKind::MemoryFormatType:
      return c10::IValue(at::MemoryFormat::Contiguous);
    case c10::TypeKind::GeneratorType:
      return c10::IValue(at::detail::getDefaultCPUGenerator());
    case c10::TypeKind::ListType:
      return list(argument, type->castRaw<c10::ListType>()->getElementType());
    default:
      return std::nullopt;
  }
}

std::optional<Stack> Drawing::draw(const c10::FunctionSchema& schema) {
  alike_ = chance(85);
  shape_ = one_of(shapes());
  Stack stack;
  for (const c10::Argument& argument : schema.arguments()) {
    const bool holds_tensors = kind_of(argument).find("Tensor") != std::string::npos;
    if (argument.default_value() && chance(holds_tensors ? 30 : 60)) {
      stack.push_back(*argument.default_value());
      continue;
    }
    std::optional<c10::IValue> drawn = value(argument, argument.real_type());
    if (!drawn) return std::nullopt;
    stack.push_back(std::move(*drawn));
  }
  return stack;
}

}  // namespace mezzo::casting::sweep
