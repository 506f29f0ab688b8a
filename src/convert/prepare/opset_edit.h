// One node under the hands of an adapter: attributes, inputs, and nodes put before or behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "convert/graph/names.h"
#include "convert/onnx/document.h"
#include "convert/prepare/opset_facts.h"

namespace mezzo::convert {

class NodeEdit {
 public:
  /// `target`: the opset under which the result will stand.
  NodeEdit(Document& document, Names& names, Message& message, int target,
           const NodeFacts* facts = nullptr)
      : document_(document), names_(names), message_(message), target_(target), facts_(facts) {}

  int target() const { return target_; }
  /// The known shape of an input or output as it was read; nothing if no facts were given.
  std::optional<Dims> shape(std::size_t input) const;
  std::optional<std::vector<double>> constant_numbers(std::size_t input) const;
  std::optional<Element> element(std::size_t output) const;
  bool is_read(std::size_t output) const;

  Message& message() { return message_; }
  std::string_view op() const;
  std::string_view input(std::size_t i) const;
  std::size_t output_count() const;
  Message* find(std::string_view attribute) const;
  /// Does any attribute take its value from the function around the node?
  bool has_references() const;
  std::int64_t integer(std::string_view attribute, std::int64_t otherwise) const;
  std::string_view text(std::string_view attribute) const;

  void remove(std::string_view attribute);
  void set_integer(std::string_view attribute, std::int64_t value);
  void set_float(std::string_view attribute, float value);
  void set_integers(std::string_view attribute, const std::vector<std::int64_t>& values);
  void set_floats(std::string_view attribute, const std::vector<float>& values);
  void set_text(std::string_view attribute, std::string_view value);
  void set_op(std::string_view op);
  /// Sets input i; inputs in front of it that are not there are left out ("").
  void set_input(std::size_t i, std::string_view name);
  /// Only the first `count` inputs, or outputs, stay.
  void keep_inputs(std::size_t count);
  void keep_outputs(std::size_t count);
  /// Input i, numbers of any type, is cast to int64 in front of the node.
  void cast_input(std::size_t i);
  /// Output i, of that type now, is cast to another one behind the node.
  void cast_output(std::size_t i, Element to);
  /// Input i gets so many dimensions of one behind those that it has.
  void append_ones(std::size_t i, std::size_t rank, std::size_t ones);
  /// Input i, a number of any type, becomes the list of `rank` ones with that number at `at`.
  void place_in_ones(std::size_t i, std::size_t rank, std::size_t at);
  /// The name of a constant that is true.
  std::string_view truth();
  /// A float or integer attribute becomes a Constant in front of the node: lists as they are,
  /// single numbers as scalars.
  void attribute_to_input(std::string_view attribute, std::size_t i);
  void attribute_to_scalar_input(std::string_view attribute, std::size_t i) {
    attribute_to_input(attribute, i);
  }
  /// A single integer becomes a list of one.
  void attribute_to_list_input(std::string_view attribute, std::size_t i);
  /// The name of a float constant without elements.
  std::string_view empty_floats();
  /// Input i, which has one value per group, gets one per channel of input 0.
  void repeat_per_channel(std::size_t i, std::int64_t groups);
  /// The Scan, which went over a batch of sequences, goes over the batch, and what it was over
  /// each. Returns false if it has no body.
  bool scan_batch();
  /// Computes on the last axis of the matrix that the input makes when flattened at `axis`.
  void flatten_around(std::int64_t axis);

  std::vector<Message> before, after;

 private:
  std::string_view constant(Message tensor);
  std::string_view integers(const std::vector<std::int64_t>& values, bool is_single = false);
  /// The output of a new node in front of this one.
  std::string_view computed(std::string_view op, std::initializer_list<std::string_view> inputs,
                            std::string_view suffix);
  std::string_view fresh(std::string_view wanted);
  Message plain_node(std::string_view op, std::initializer_list<std::string_view> inputs,
                     std::string_view output);

  Document& document_;
  Names& names_;
  Message& message_;
  int target_;
  const NodeFacts* facts_;
};

}  // namespace mezzo::convert
