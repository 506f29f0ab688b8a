// The built-in evaluator: a model computed node by node. Scopes, bodies, functions and sequences
// are its own; single operators go to a library on LibTorch, which is opened at run time.
//
// Arithmetic is in float32 (or what the inputs are); every float16 and bfloat16 value is rounded
// where it is made, as hardware does that stores every value in 16 bits and accumulates in float.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/engine/operator_call.h"
#include "convert/engine/runner.h"

namespace mezzo::convert {

/// Opens the operators: `path` (the library, or a folder that has it) or, empty, if Mezzo is
/// installed. Null, with the reason in `why`, if they are not there.
const OperatorLibrary* open_operators(const std::filesystem::path& path, std::string* why);

/// The evaluator as an engine. Values inside bodies and functions are watched too.
class Evaluator final : public Engine {
 public:
  explicit Evaluator(const OperatorLibrary& library) : library_(library) {}
  std::string name() const override { return "the built-in evaluator"; }
  bool rounds_every_value() const override { return true; }
  std::unique_ptr<LoadedModel> open(const std::filesystem::path& model,
                                    bool optimise) const override;
  ValueRanges ranges(Document&, const Graph&, const std::vector<Sample>&,
                     const std::filesystem::path& scratch) const override;
  std::vector<LocalError> local_errors(Document&, const Graph&, const Rounding&,
                                       const std::vector<Sample>&) const override;

 private:
  const OperatorLibrary& library_;
};

/// A value while a model is evaluated: a tensor, a sequence, or an optional without
/// content.
struct Datum {
  enum class Kind : std::uint8_t { kTensor, kSequence, kNothing };
  Kind kind = Kind::kTensor;
  Array tensor;
  std::vector<std::shared_ptr<const Datum>> items;
};
using DatumPtr = std::shared_ptr<const Datum>;

/// One evaluation of a graph. Not for several threads at once.
class Evaluation {
 public:
  using Watch = std::function<void(ValueId, const Array&)>;
  using Observe = std::function<void(const Node&, const OperatorCall&, const std::vector<Array>&)>;

  Evaluation(const OperatorLibrary& library, Document& document, const Graph& graph)
      : library_(library), document_(document), graph_(graph), values_(graph.values.size()) {}

  /// `watch` sees every dense value that an input gives or a node makes, `observe` every operator
  /// that was computed, with its results before they are rounded. Throws UnsupportedError if an
  /// operator cannot be computed, naming the node.
  std::vector<DatumPtr> run(const Sample& sample, const Watch* watch = nullptr,
                            const Observe* observe = nullptr);

 private:
  const DatumPtr& value(ValueId id) const;
  const DatumPtr& input(const Node& node, std::size_t i) const;
  bool has(const Node& node, std::size_t i) const;
  std::int64_t whole(const Node& node, std::size_t i) const;
  void set(ValueId id, DatumPtr datum);
  void bind(ScopeId scope, std::size_t i, DatumPtr datum);
  std::vector<DatumPtr> outputs_of(ScopeId scope) const;
  void give(const Node& node, const std::vector<DatumPtr>& results);

  void constants_of(ScopeId scope);
  void scope(ScopeId scope);
  void node(const Node& node);
  void call(const Node& node);
  // evaluate_bodies.cpp
  bool body(const Node& node);
  void branch(const Node& node);
  void loop(const Node& node);
  void scan(const Node& node);
  void sequence_map(const Node& node);
  // evaluate_sequences.cpp
  bool container(const Node& node);
  void concat_from_sequence(const Node& node);
  void split_to_sequence(const Node& node);
  void sequence_insert(const Node& node);

  void constant(const Node& node);
  void compute(const Node& node);
  OperatorCall call_of(const Node& node, std::vector<Array>* widened) const;
  AttributeValue attribute_of(const Message& attribute) const;

  const OperatorLibrary& library_;
  Document& document_;
  const Graph& graph_;
  std::vector<DatumPtr> values_;
  std::unordered_map<ValueId, DatumPtr> constants_;
  const Watch* watch_ = nullptr;
  const Observe* observe_ = nullptr;
};

DatumPtr datum_of(Array array);
DatumPtr sequence_of(std::vector<DatumPtr> items);

/// The part of an array at one place of an axis, that axis gone.
Array slice_at(const Array&, std::int64_t axis, std::int64_t place);

/// Arrays of one shape along a new axis.
Array stacked(const std::vector<Array>&, std::int64_t axis);

}  // namespace mezzo::convert
