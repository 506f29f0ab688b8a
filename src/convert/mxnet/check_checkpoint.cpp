#include "convert/mxnet/check_checkpoint.h"

#include <algorithm>
#include <map>
#include <set>

#include "convert/mxnet/attribute_text.h"
#include "convert/mxnet/check_attributes.h"
#include "convert/mxnet/facts.h"
#include "convert/mxnet/operator_table.h"
#include "convert/mxnet/parameter_shapes.h"
#include "core/raise.h"
#include "mezzo/messages.h"

namespace mezzo::convert::mxnet {
namespace {

constexpr std::int64_t kSecondMajor = 20000;

std::string joined(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) (text += text.empty() ? "" : ", ") += name;
  return text.empty() ? "none" : text;
}

bool is_floating(std::string_view dtype) {
  return dtype == "float32" || dtype == "float16" || dtype == "bfloat16" || dtype == "float64";
}

class CheckpointCheck {
 public:
  CheckpointCheck(const Symbol& symbol, const NDArrays& args, const NDArrays& auxs,
                  const Origins& origins)
      : symbol_(symbol),
        nodes_(symbol.nodes()),
        args_(args),
        auxs_(auxs),
        origins_(origins),
        is_newer_(symbol.mxnet_version() >= kSecondMajor),
        shapes_(nodes_.size()) {}

  void run() {
    check_names();
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].is_variable()) {
        shapes_[i] = {shape_of_variable(i)};
      } else {
        check_attributes(nodes_[i]);
        check_inputs(nodes_[i]);
        check_parameters(nodes_[i]);
        check_shapes(i);
      }
    }
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    raise("mxnet", parts...);
  }

  std::string graph() const {
    return origins_.graph.empty() ? "the graph" : quoted(origins_.graph);
  }
  std::string params() const {
    return origins_.params.empty() ? "the parameters" : quoted(origins_.params);
  }
  static std::string quoted(const std::string& name) { return "'" + name + "'"; }
  static std::string titled(const Node& node) {
    return "node '" + node.name + "' (" + node.op + ")";
  }

  const NDArrays* holder(const std::string& name) const {
    if (args_.contains(name)) return &args_;
    return auxs_.contains(name) ? &auxs_ : nullptr;
  }

  // Where a value comes from, casts left out: a variable, or the node that computes it.
  std::uint32_t source_of(Entry entry) const {
    for (;;) {
      const Node& node = nodes_[entry.node];
      const bool is_cast = node.op == "amp_cast" || node.op == "amp_multicast";
      if (!is_cast || entry.output >= node.inputs.size()) return entry.node;
      entry = node.inputs[entry.output];
    }
  }

  std::string reader_of(std::uint32_t variable) const {
    for (const Node& node : nodes_)
      for (const Entry& input : node.inputs)
        if (input.node == variable) return "; " + titled(node) + " reads it";
    return {};
  }

  void check_names() const {
    std::map<std::string_view, std::uint32_t> variables;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (!node.is_variable()) continue;
      const auto [first, is_new] = variables.try_emplace(node.name, i);
      if (!is_new)
        fail(graph(), " has two variables '", node.name, "' (nodes ", first->second, " and ", i,
             reader_of(i), "), and ", params(), " can hold one value; expected names of their own");
      if (args_.contains(node.name) && auxs_.contains(node.name) && !are_same(node.name))
        fail(params(), " has '", node.name, "' as an argument and as a statistic, with different ",
             "values", reader_of(i), " in ", graph(), "; expected one of them");
    }
  }

  bool are_same(const std::string& name) const {
    return args_.dtype(name) == auxs_.dtype(name) && args_.shape(name) == auxs_.shape(name) &&
           args_.bytes(name) == auxs_.bytes(name);
  }

  void check_attributes(const Node& node) const {
    const auto fault = fault_of_attributes(node, is_newer_);
    if (fault) fail(graph(), ": ", titled(node), ": ", *fault);
    for (const auto& body : node.subgraphs)
      for (const Node& inner : body->nodes()) check_attributes(inner);
  }

  void check_inputs(const Node& node) const {
    const OperatorFacts* facts = find_operator(node.op);
    if (facts == nullptr) return;
    const std::size_t count = node.inputs.size();
    if (facts->takes_many) {
      const auto wanted = written(node, "num_args");
      if (wanted && integer_of(*wanted) != static_cast<std::int64_t>(count))
        fail(graph(), ": ", titled(node), " has ", count,
             " inputs, and the attribute 'num_args' is ", *wanted, "; expected as many");
      return;
    }
    const auto tensors = tensors_of(node);
    if (tensors && count < tensors->size())
      fail(graph(), ": ", titled(node), " lacks its input '", (*tensors)[count], "': it has ",
           count, "; expected ", joined(*tensors));
    const std::vector<std::string_view>& most = tensors ? *tensors : facts->tensors;
    if (!is_newer_ && node.subgraphs.empty() && count > most.size())
      fail(graph(), ": ", titled(node), " has ", count, " inputs; expected ", most.size(), ": ",
           joined(most));
  }

  void check_parameters(const Node& node) const {
    const auto tensors = tensors_of(node);
    if (!tensors) return;
    std::string double_of_node, other_of_node;
    for (std::size_t i = 0; i < std::min(tensors->size(), node.inputs.size()); ++i) {
      const std::string tensor((*tensors)[i]);
      const Node& from = nodes_[source_of(node.inputs[i])];
      if (!is_parameter(node.op, tensor) || !from.is_variable()) continue;
      const NDArrays* arrays = holder(from.name);
      if (arrays == nullptr)
        fail(graph(), ": '", from.name, "', which '", node.name, "' (", node.op, ") reads as its ",
             tensor, ", is not among the parameters", in_file(),
             "; expected the file of this graph");
      const std::string& dtype = arrays->dtype(from.name);
      if (!is_floating(dtype) && role_of(node, i) != Role::kOwn && node.op != "Embedding")
        fail(params(), ": '", from.name, "' has the type ", dtype, ", which ", titled(node), " of ",
             graph(), " cannot read as its ", tensor, "; expected float32");
      if (role_of(node, i) != Role::kData) continue;
      (dtype == "float64" ? double_of_node : other_of_node) = from.name;
    }
    if (!double_of_node.empty() && !other_of_node.empty())
      fail(params(), ": '", double_of_node, "' has the type float64, and '", other_of_node,
           "' has not, both of which ", titled(node), " of ", graph(), " reads; expected one type");
  }

  std::string in_file() const { return origins_.params.empty() ? "" : " of " + params(); }

  // Gluon marks parameters by how they train; data has no such marks.
  static bool is_marked(const Node& node) {
    return node.attrs.contains("__init__") || node.attrs.contains("__lr_mult__") ||
           node.attrs.contains("__wd_mult__");
  }

  KnownShape shape_of_variable(std::size_t i) const {
    const Node& node = nodes_[i];
    const NDArrays* arrays = holder(node.name);
    if (arrays == nullptr) {
      const std::string reader = reader_of(static_cast<std::uint32_t>(i));
      if (is_marked(node) && !reader.empty())
        fail(graph(), ": the parameter '", node.name, "' is not among the parameters", in_file(),
             reader, "; expected the file of this graph");
      return std::nullopt;
    }
    const std::vector<std::int64_t>& shape = arrays->shape(node.name);
    check_stated_shape(i, shape);
    return shape;
  }

  // Sizes of 0 and less were not known when the graph was made.
  void check_stated_shape(std::size_t i, const std::vector<std::int64_t>& shape) const {
    const Node& node = nodes_[i];
    const auto text = written(node, "__shape__");
    if (!text) return;
    std::vector<std::int64_t> stated;
    for (const std::string_view entry : entries_of(*text)) {
      const auto size = integer_of(entry);
      if (!size && entry != "None")
        fail(graph(), ": the shape of the variable '", node.name, "' is '", *text,
             "'; expected whole numbers in parentheses");
      stated.push_back(size && *size > 0 ? *size : -1);
    }
    if (stated.empty()) return;
    bool fits = stated.size() == shape.size();
    for (std::size_t d = 0; fits && d < shape.size(); ++d)
      fits = stated[d] < 0 || stated[d] == shape[d];
    if (!fits)
      fail(params(), ": '", node.name, "' is ", text_of(shape), ", and ", graph(), " says ",
           text_of(stated), reader_of(static_cast<std::uint32_t>(i)),
           "; expected the file of this graph");
  }

  void check_shapes(std::size_t i) {
    const Node& node = nodes_[i];
    std::vector<KnownShape> inputs;
    for (const Entry& entry : node.inputs) inputs.push_back(shapes_[entry.node][entry.output]);
    Shapes found = fitted(node, inputs);
    if (found.misfit) report(node, *found.misfit, inputs);
    shapes_[i] = std::move(found.outputs);
  }

  [[noreturn]] void report(const Node& node, const Misfit& misfit,
                           const std::vector<KnownShape>& inputs) const {
    if (!misfit.input)
      fail(graph(), ": the attributes of ", titled(node), " do not fit each other; expected ",
           misfit.expected);
    const std::size_t at = *misfit.input;
    const auto tensors = tensors_of(node);
    const std::string role = tensors && at < tensors->size() ? "its " + std::string((*tensors)[at])
                                                             : "its input " + std::to_string(at);
    const Node& from = nodes_[source_of(node.inputs[at])];
    const std::string shape = text_of(inputs[at].value_or(std::vector<std::int64_t>{}));
    if (from.is_variable())
      fail(params(), ": '", from.name, "' is ", shape, ", which ", titled(node), " of ", graph(),
           " cannot read as ", role, "; expected ", misfit.expected);
    fail(graph(), ": the result of ", titled(from), " is ", shape, ", which ", titled(node),
         " cannot read as ", role, "; expected ", misfit.expected, parameters_of(node));
  }

  // The parameters that decided, where a computed value is the one that does not fit.
  std::string parameters_of(const Node& node) const {
    std::string text;
    for (const Entry& entry : node.inputs) {
      const Node& from = nodes_[source_of(entry)];
      if (!from.is_variable() || holder(from.name) == nullptr) continue;
      text += (text.empty() ? "; it reads '" : ", '") + from.name + "'";
    }
    return text.empty() ? text : text + in_file();
  }

  const Symbol& symbol_;
  const std::vector<Node>& nodes_;
  const NDArrays& args_;
  const NDArrays& auxs_;
  const Origins& origins_;
  const bool is_newer_;
  std::vector<std::vector<KnownShape>> shapes_;  // of each node's outputs
};

void count_unknown(const Symbol& symbol, std::map<std::string, std::vector<std::string>>& unknown) {
  for (const Node& node : symbol.nodes()) {
    if (!is_known(node.op)) unknown[node.op].push_back(node.name);
    for (const auto& body : node.subgraphs) count_unknown(*body, unknown);
  }
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

}  // namespace

void check_checkpoint(const Symbol& symbol, const NDArrays& args, const NDArrays& auxs,
                      const Origins& origins) {
  CheckpointCheck(symbol, args, auxs, origins).run();
}

void tell_of_oddities(const std::vector<const Symbol*>& graphs, const NDArrays& args,
                      const NDArrays& auxs) {
  std::map<std::string, std::vector<std::string>> unknown;
  std::set<std::string> variables, said;
  for (const Symbol* graph : graphs) {
    count_unknown(*graph, unknown);
    for (const std::string& name : graph->list_inputs()) variables.insert(name);
    for (const Node& node : graph->nodes()) {
      const auto words = misspelled_attributes(node);
      if (words && said.insert(node.name).second)
        send_message("mxnet: node '" + node.name + "' (" + node.op +
                     ") has attributes that its operator does not read: " + *words);
    }
  }
  for (const auto& [op, nodes] : unknown)
    send_message("mxnet: nobody knows the operator '" + op + "' (node " + listed(nodes) +
                 "): it is kept, and reads and gives float32" + nearest_operators(op));
  std::vector<std::string> extra;
  for (const NDArrays* arrays : {&args, &auxs})
    for (const std::string& name : arrays->names())
      if (!variables.contains(name)) extra.push_back(name);
  if (!extra.empty())
    send_message("mxnet: the graph reads none of these parameters, which are kept: " +
                 listed(extra));
}

}  // namespace mezzo::convert::mxnet
