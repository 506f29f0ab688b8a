// The ONNX model while it is made: nodes by names of values, equal nodes once, constants as
// initializers.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "convert/make/made_model.h"
#include "deploy/onnx_operand.h"

namespace mezzo::deploy::detail {

using Names = std::vector<std::string>;

/// ONNX's number of a type. Throws UnsupportedError for types that it has not.
std::int64_t onnx_type(at::ScalarType type);

class Builder {
 public:
  Builder(int opset, std::size_t variants) : opset_(opset), variants_(variants) {
    scopes_.emplace_back();
  }

  int opset() const { return opset_; }
  /// The number of sets of inputs that values have examples for. In the body of a loop these are
  /// samples of its turns.
  std::size_t variants() const { return variants_; }
  void set_variants(std::size_t count) { variants_ = count; }
  /// Random numbers are drawn in the model.
  bool draws() const { return draws_; }
  bool writes_in_place = false;  // constants may be written after they were stored: copies

  /// One output; equal nodes are made once.
  std::string op(std::string_view type, const Names& inputs, const OnnxAttributes& attributes = {});
  Names ops(std::string_view type, const Names& inputs, const OnnxAttributes& attributes,
            std::size_t outputs);
  /// One input and output; always a node of its own.
  std::string own_node(std::string_view type, const std::string& input);
  /// Constants.
  std::string tensor(const at::Tensor& value, const std::string& hint = {});
  std::string ints(const std::vector<std::int64_t>& values);
  std::string number(double value, at::ScalarType type);
  std::string integer(std::int64_t value);  // without dimensions

  /// Takes a view again if what it shows was written in place since.
  void refresh(Operand& operand);
  /// The value in the model, as a tensor.
  std::string name_of(const OnnxValue& value);
  /// A number of one element and one dimension; of a list: all of them.
  std::string list_of(const OnnxValue& value);
  /// The value as loops and branches hand it on: tensors of a type, numbers with one dimension.
  std::string state_of(const OnnxValue& value, at::ScalarType type);
  std::string cast(const std::string& name, at::ScalarType from, at::ScalarType to);
  /// Complex numbers are pairs along a last axis, as ONNX's Fourier transforms have them: made of
  /// their parts, and the parts of pairs.
  std::string pairs(const Names& parts);
  Names parts_of(const std::string& pairs);
  /// The parts of a constant, the same tensors each time.
  const std::array<at::Tensor, 2>& parts_of(const at::Tensor& complex);

  /// Bodies: nodes go there until it is closed.
  void open_body() { scopes_.emplace_back(); }
  bool in_body() const { return scopes_.size() > 1; }
  /// The body, without nodes that nothing needs.
  std::shared_ptr<convert::MadeGraph> close_body(const Names& outputs,
                                                 std::vector<convert::MadeValue> inputs);
  void add_node(convert::MadeNode node);
  std::string fresh(const std::string& hint);
  void reserve(const std::string& name) { taken_.insert(name); }

  /// The finished graph, without nodes that nothing needs. Names of outputs replace those in it.
  convert::MadeGraph finish(std::vector<convert::MadeValue> inputs,
                            std::vector<convert::MadeValue> outputs, const Names& made);
  const std::unordered_set<std::string>& domains() const { return domains_; }

 private:
  struct Scope {
    std::vector<convert::MadeNode> nodes;
    std::map<std::string, Names> known;
  };
  convert::MadeTensor made(const at::Tensor& value, std::string name) const;

  int opset_;
  std::size_t variants_;
  bool draws_ = false;
  std::vector<Scope> scopes_;
  std::vector<convert::MadeTensor> initializers_;
  std::map<std::string, std::string> small_;  // constants by their content
  /// Larger ones by their memory and how they lie in it.
  using Place =
      std::tuple<const void*, std::vector<std::int64_t>, std::vector<std::int64_t>, at::ScalarType>;
  std::map<Place, std::pair<std::string, at::Tensor>> large_;
  std::map<std::string, Names> parts_;  // of pairs that were made
  struct ConstantParts {
    at::Tensor whole;
    std::array<at::Tensor, 2> parts;
  };
  std::map<const void*, ConstantParts> constant_parts_;
  std::unordered_set<std::string> taken_, domains_;
};

}  // namespace mezzo::deploy::detail
