#include "deploy/script/cast_functions.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <algorithm>

namespace mezzo::deploy::script {
namespace {

std::shared_ptr<torch::jit::Graph> compiled_function(const std::string& source) {
  torch::jit::CompilationUnit unit;
  unit.define(std::nullopt, source, torch::jit::nativeResolver(), nullptr);
  return torch::jit::toGraphFunction(unit.get_function(c10::QualifiedName("cast"))).graph()->copy();
}

/// Writes the statements that cast a variable.
class CastWriter {
 public:
  CastWriter(at::ScalarType from, at::ScalarType to)
      : from_(std::to_string(static_cast<int>(from))), to_(std::to_string(static_cast<int>(to))) {}

  /// Returns the name of the variable that holds the result.
  std::string write(const c10::TypePtr& type, const std::string& in, int depth) {
    if (!may_hold_tensors(type)) return in;
    switch (type->kind()) {
      case c10::TypeKind::TensorType: {
        std::string out = next();
        line(depth, out + " = " + in);
        line(depth, "if " + in + ".dtype == " + from_ + ":");
        line(depth + 1, out + " = " + in + ".to(" + to_ + ")");
        return out;
      }
      case c10::TypeKind::OptionalType: {
        std::string out = next();
        line(depth, out + " : " + type->annotation_str() + " = " + in);
        line(depth, "if " + in + " is not None:");
        const std::string inner =
            write(type->castRaw<c10::OptionalType>()->getElementType(), in, depth + 1);
        line(depth + 1, out + " = " + inner);
        return out;
      }
      case c10::TypeKind::ListType:
        return write_list(type, in, depth);
      case c10::TypeKind::DictType:
        return write_dict(type, in, depth);
      default:
        return write_tuple(type, in, depth);
    }
  }

  const std::string& text() const { return text_; }

 private:
  std::string write_list(const c10::TypePtr& type, const std::string& in, int depth) {
    std::string out = next();
    const std::string element = next();
    line(depth, out + " : " + type->annotation_str() + " = []");
    line(depth, "for " + element + " in " + in + ":");
    const std::string inner =
        write(type->castRaw<c10::ListType>()->getElementType(), element, depth + 1);
    line(depth + 1, out + ".append(" + inner + ")");
    return out;
  }

  std::string write_dict(const c10::TypePtr& type, const std::string& in, int depth) {
    std::string out = next();
    const std::string key = next();
    const std::string value = next();
    line(depth, out + " : " + type->annotation_str() + " = {}");
    line(depth, "for " + key + ", " + value + " in " + in + ".items():");
    const std::string inner =
        write(type->castRaw<c10::DictType>()->getValueType(), value, depth + 1);
    line(depth + 1, out + "[" + key + "] = " + inner);
    return out;
  }

  std::string write_tuple(const c10::TypePtr& type, const std::string& in, int depth) {
    std::string parts;
    int index = 0;
    for (const c10::TypePtr& each : type->castRaw<c10::TupleType>()->elements()) {
      const std::string part = next();
      line(depth, part + " = " + in + "[" + std::to_string(index++) + "]");
      parts += write(each, part, depth) + ", ";
    }
    std::string out = next();
    line(depth, out + " = (" + parts + ")");
    return out;
  }

  std::string next() { return "v" + std::to_string(count_++); }

  void line(int depth, const std::string& statement) {
    text_.append(static_cast<std::size_t>(depth) * 2, ' ');
    (text_ += statement) += '\n';
  }

  std::string from_, to_, text_;
  int count_ = 0;
};

}  // namespace

std::shared_ptr<torch::jit::Graph> function_that_casts(const c10::TypePtr& type,
                                                       at::ScalarType from, at::ScalarType to) {
  CastWriter writer(from, to);
  const std::string result = writer.write(type, "x", 1);
  const std::string name = type->annotation_str();
  return compiled_function("def cast(x: " + name + ") -> " + name + ":\n" + writer.text() +
                           "  return " + result + "\n");
}

std::shared_ptr<torch::jit::Graph> function_that_casts_like(at::ScalarType low) {
  const std::string low_type = std::to_string(static_cast<int>(low));
  const std::string float_type = std::to_string(static_cast<int>(at::kFloat));
  return compiled_function(
      "def cast(x: Tensor, like: Tensor) -> Tensor:\n"
      "  y = x\n"
      "  if x.dtype == " +
      float_type + " or x.dtype == " + low_type +
      ":\n"
      "    y = x.to(like.dtype)\n"
      "  return y\n");
}

bool may_hold_tensors(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return true;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
      return may_hold_tensors(type->containedType(0));
    case c10::TypeKind::DictType:
      return may_hold_tensors(type->containedType(1));
    case c10::TypeKind::TupleType: {
      // A named tuple would lose its name.
      const auto* const tuple = type->castRaw<c10::TupleType>();
      return !tuple->name() && std::ranges::any_of(tuple->elements(), may_hold_tensors);
    }
    default:
      return false;
  }
}

}  // namespace mezzo::deploy::script
