#include "convert/from_mxnet/translate.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <stdexcept>

#include "convert/from_mxnet/input_shapes.h"
#include "convert/from_mxnet/rows.h"
#include "convert/mxnet/facts.h"
#include "convert/mxnet/numpy_operators.h"
#include "core/nearest.h"
#include "core/raise.h"
#include "core/words.h"

namespace mezzo::convert::mxnet {
namespace {

using Tables = std::array<std::span<const TranslationRow>, 13>;

const Tables& tables() {
  static const Tables kTables{
      elementwise_rows(), layer_rows(),     norm_rows(),       product_rows(),  shape_rows(),
      image_rows(),       reduction_rows(), indexing_rows(),   sequence_rows(), recurrent_rows(),
      detection_rows(),   numpy_rows(),     numpy_shape_rows()};
  return kTables;
}

bool reads(const TranslationRow& row, std::size_t input) {
  switch (row.reads) {
    case Reads::kFirst:
      return input == 0;
    case Reads::kAllButSecond:
      return input != 1;
    case Reads::kAll:
      return true;
  }
  return true;
}

// The graph with older names for operators of numpy mode that mean the same.
Symbol with_classic_names(const Symbol& symbol) {
  std::vector<Node> nodes = symbol.nodes();
  for (Node& node : nodes) node.op = classic_name(node.op);
  return symbol.with_graph(std::move(nodes), symbol.heads());
}

class Translation {
 public:
  Translation(const Checkpoint& checkpoint,
              const std::map<std::string, std::vector<std::int64_t>>& shapes, OnnxWriter& writer)
      : symbol_(with_classic_names(checkpoint.symbol)),
        source_{symbol_, checkpoint.arg_params, checkpoint.aux_params},
        shapes_(shapes),
        writer_(writer),
        is_needed_(symbol_.nodes().size()),
        values_(symbol_.nodes().size()) {
    for (const Entry& head : symbol_.heads()) heads_.push_back(without_cast(head));
  }

  void run() {
    find_needed();
    check_shapes();
    for (std::uint32_t i = 0; i < symbol_.nodes().size(); ++i) {
      if (!is_needed_[i]) continue;
      if (symbol_.nodes()[i].is_variable())
        values_[i] = {variable(i)};
      else
        values_[i] = translated(symbol_.nodes()[i]);
    }
    for (const Entry& head : heads_)
      writer_.result(value(head, "the result"), name_of_result(head));
  }

 private:
  // A converted graph gives the results of the one that it was made of, under their names.
  Entry without_cast(Entry entry) const {
    for (;;) {
      const Node& node = symbol_.nodes()[entry.node];
      const bool is_cast = node.op == "amp_cast" || node.op == "amp_multicast";
      if (!is_cast || entry.output >= node.inputs.size()) return entry;
      entry = node.inputs[entry.output];
    }
  }

  static const TranslationRow& row_of(const Node& node) {
    const TranslationRow* row = find_translation(node.op);
    if (row != nullptr) return *row;
    const std::vector<std::string_view> known = translated_operators();
    raise<UnsupportedError>("mxnet", "operator ", node.op, " (node '", node.name,
                            "') has no translation to ONNX", did_you_mean(node.op, known),
                            "; what works: the graph in other operators (", known.size(),
                            " are translated), or a pair of files for MXNet (-o without .onnx)");
  }

  void find_needed() {
    const std::vector<Node>& nodes = symbol_.nodes();
    for (const Entry& head : heads_) is_needed_[head.node] = true;
    for (std::size_t i = nodes.size(); i-- > 0;) {
      if (!is_needed_[i] || nodes[i].is_variable()) continue;
      const TranslationRow& row = row_of(nodes[i]);
      for (std::size_t input = 0; input < nodes[i].inputs.size(); ++input)
        if (reads(row, input)) is_needed_[nodes[i].inputs[input].node] = true;
    }
  }

  void check_shapes() const {
    std::set<std::string, std::less<>> data;
    for (std::size_t i = 0; i < symbol_.nodes().size(); ++i) {
      const Node& node = symbol_.nodes()[i];
      if (is_needed_[i] && node.is_variable() && source_.holder(node.name) == nullptr)
        data.insert(node.name);
    }
    for (const auto& [name, shape] : shapes_) {
      if (!data.contains(name)) {
        std::string names;
        for (const std::string& known : data) names += (names.empty() ? "'" : ", '") + known + "'";
        raise<ConfigError>("mxnet", "a shape is given for '", name,
                           "', which is no data of the graph; expected ", names);
      }
      if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 0; }))
        raise<ConfigError>("mxnet", "the shape of '", name,
                           "' has a size below 0; expected sizes, or 0 where they change");
    }
  }

  // A variable that is read as a weight must have a value.
  void check_is_data(std::uint32_t variable) const {
    static const std::set<std::string_view> kWithWeights = {
        "Convolution", "Deconvolution", "FullyConnected", "BatchNorm", "Embedding", "LayerNorm"};
    for (std::size_t i = 0; i < symbol_.nodes().size(); ++i) {
      const Node& node = symbol_.nodes()[i];
      if (!is_needed_[i] || !kWithWeights.contains(node.op)) continue;
      for (std::size_t input = 1; input < node.inputs.size(); ++input) {
        if (node.inputs[input].node != variable) continue;
        raise(
            "mxnet", "'", symbol_.nodes()[variable].name, "', which '", node.name, "' (", node.op,
            ") reads as a parameter, is not among the parameters; expected the file of this graph");
      }
    }
  }

  Operand variable(std::uint32_t i) {
    const Node& node = symbol_.nodes()[i];
    if (const NDArrays* holder = source_.holder(node.name))
      return writer_.parameter(*holder, node.name);
    check_is_data(i);
    const InputShape shape = input_shape(source_, i, shapes_);
    OnnxWriter unused;
    const Element element = element_of(Call(source_, node, {}, unused));
    return writer_.input(node.name, {element, shape.dims}, shape.names);
  }

  static Element element_of(const Call& call) {
    Node typed{.op = "null", .name = call.node().name};
    if (!call.has("__dtype__")) return Element::kFloat;
    typed.attrs["dtype"] = call.text("__dtype__", "0");
    OnnxWriter unused;
    return Call(call.source(), typed, {}, unused).dtype(Element::kFloat);
  }

  const Operand& value(const Entry& entry, const std::string& reader) const {
    const Operands& values = values_[entry.node];
    if (entry.output >= values.size() || !values[entry.output].is_there()) {
      const Node& node = symbol_.nodes()[entry.node];
      raise<UnsupportedError>("mxnet", "operator ", node.op, " (node '", node.name,
                              "'): its output ", entry.output, ", which ", reader,
                              " reads, is not there when a network is used; expected output 0");
    }
    return values[entry.output];
  }

  Operands translated(const Node& node) {
    const TranslationRow& row = row_of(node);
    Operands inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back(reads(row, i) ? value(node.inputs[i], "'" + node.name + "'") : Operand{});
    writer_.begin(node.name);
    Call call(source_, node, std::move(inputs), writer_);
    Operands results = translated(row, call);
    if (disables_amp(node)) writer_.keep_in_float();
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i].is_there())
        writer_.rename(results[i], name_of_output(node, results.size(), i));
    return results;
  }

  static Operands translated(const TranslationRow& row, Call& call) {
    try {
      return row.translate(call);
    } catch (const std::logic_error&) {  // a place that a list does not have
      call.refuse(
          "its inputs and attributes do not fit each other; expected them as MXNet has them");
    }
  }

  // As MXNet's list_outputs says it.
  static std::string name_of_output(const Node& node, std::size_t count, std::size_t i) {
    const bool is_only = count == 1 || node.outputs == 1;
    if (is_only) return node.name + (i == 0 ? "_output" : "_hidden" + std::to_string(i));
    return node.name + "_output" + std::to_string(i);
  }

  std::string name_of_result(const Entry& entry) const {
    const Node& node = symbol_.nodes()[entry.node];
    if (node.is_variable()) return node.name;
    return name_of_output(node, values_[entry.node].size(), entry.output);
  }

  const Symbol symbol_;
  const Source source_;
  const std::map<std::string, std::vector<std::int64_t>>& shapes_;
  OnnxWriter& writer_;
  std::vector<Entry> heads_;
  std::vector<bool> is_needed_;
  std::vector<Operands> values_;
};

}  // namespace

const TranslationRow* find_translation(std::string_view op) {
  static const std::map<std::string_view, const TranslationRow*> kRows = [] {
    std::map<std::string_view, const TranslationRow*> rows;
    for (const auto& table : tables())
      for (const TranslationRow& row : table)
        each_word(row.ops, [&](std::string_view name) { rows.emplace(name, &row); });
    return rows;
  }();
  const auto found = kRows.find(op);
  return found == kRows.end() ? nullptr : found->second;
}

std::vector<std::string_view> translated_operators() {
  std::vector<std::string_view> names;
  for (const auto& table : tables())
    for (const TranslationRow& row : table)
      each_word(row.ops, [&](std::string_view op) { names.push_back(op); });
  for (const NumpyOperator& op : numpy_operators())
    if (!op.classic.empty() && find_translation(op.classic) != nullptr) names.push_back(op.name);
  return names;
}

void translate(const Checkpoint& checkpoint,
               const std::map<std::string, std::vector<std::int64_t>>& shapes, OnnxWriter& writer) {
  Translation(checkpoint, shapes, writer).run();
}

}  // namespace mezzo::convert::mxnet
