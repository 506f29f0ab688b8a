// An operand while a graph of TorchScript becomes a graph of ONNX.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/torch.h"
#include "mezzo/deploy_onnx.h"

namespace mezzo::deploy::detail {

class Builder;

/// A view of another operand, for graphs that write in place: how it is taken again after its base
/// was written, and what the base becomes when it is written itself. Without `take`: nothing known.
struct View {
  std::shared_ptr<Operand> base;
  std::size_t base_version = 0;
  std::function<std::string(const std::string& base)> take;
  std::function<std::string(const std::string& base, const std::string& written)> put;
};

/// A value of the graph with what is known of it. `examples` has one value for each set of inputs
/// that the graph is run on. A number in the model is a tensor of one dimension and one element.
struct Operand {
  /// kObject: of a class of the script; kGrown: a list that grew in a loop, as one tensor of its
  /// elements one behind the other.
  enum class Kind : std::uint8_t { kValue, kList, kTuple, kDict, kObject, kGrown };
  Kind kind = Kind::kValue;
  std::vector<c10::IValue> examples;  // of kValue; of kGrown, lists
  bool is_constant = true;            // follows from no input
  bool is_size = false;               // a number that follows from sizes of inputs alone
  bool is_packed = false;             // of a packed sequence: the padded one, or the lengths
  std::string name;                   // in the model, where it is in it
  std::string path;                   // of a parameter
  std::vector<OnnxValue> elements;    // of lists and tuples; values of dictionaries and objects
  std::vector<c10::IValue> keys;      // of dictionaries; names of attributes
  c10::TypePtr type;                  // of containers
  std::size_t version = 0;            // counts writes
  std::unique_ptr<View> view;

  /// The examples, and those of what this is a view of, were written: what stands in the model is
  /// the value of before.
  void note_written_constant();
};

/// The value on the k-th set of inputs; containers are put together.
c10::IValue example_of(const OnnxValue& value, std::size_t k);

/// Everything in it follows from no input.
bool is_constant(const OnnxValue& value);

OnnxValue constant_of(const c10::IValue& value, std::size_t variants);

/// Complex tensors as pairs of real numbers along a last axis, all others as they are.
at::Tensor real_form(const at::Tensor& tensor);

/// The type that a tensor or number has in the model. Numbers are as wide as those of scripts:
/// floor(0.7f * 10) is 6 in doubles and 7 in floats.
at::ScalarType element_type(const c10::IValue& example);
/// As above, where it is an input or an output: numbers of floating point are float32.
at::ScalarType outer_type(const c10::IValue& example);

/// The tensors and numbers in a value, depth first.
void leaves_of(const OnnxValue& value, std::vector<OnnxValue>* leaves);
/// The same containers with other leaves, from `next` on, which is moved on.
OnnxValue with_leaves(const OnnxValue& like, const std::vector<OnnxValue>& leaves,
                      std::size_t* next);

/// A list of the same type with other elements.
OnnxValue list_like(const OnnxValue& list, std::vector<OnnxValue> elements);

/// A value of the model.
OnnxValue made_of(std::string name, std::vector<c10::IValue> examples);

}  // namespace mezzo::deploy::detail
