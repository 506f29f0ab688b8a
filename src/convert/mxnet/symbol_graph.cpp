// Graphs: what must hold, who the variables are, and casts taken out.
#include <set>

#include "convert/mxnet/facts.h"
#include "core/raise.h"
#include "mezzo/convert_mxnet.h"

namespace mezzo::convert::mxnet {
namespace {

constexpr const char* kInGraph = "mxnet";

}  // namespace

std::optional<std::string_view> Node::attr(std::string_view key) const {
  const auto found = attrs.find(std::string(key));
  if (found == attrs.end()) return std::nullopt;
  return found->second;
}

Symbol::Symbol(std::vector<Node> nodes, std::vector<Entry> heads)
    : nodes_(std::move(nodes)), heads_(std::move(heads)) {
  const auto check = [&](const Entry& entry, std::size_t end, const std::string& reader) {
    if (entry.node >= end || entry.output >= nodes_[entry.node].outputs) {
      raise<ConfigError>(kInGraph, reader, " reads output ", entry.output, " of node ", entry.node,
                         ", which is not there before it");
    }
  };
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const std::string reader = "node " + std::to_string(i) + " ('" + nodes_[i].name + "')";
    for (const Entry& input : nodes_[i].inputs) check(input, i, reader);
    for (const std::uint32_t before : nodes_[i].control_deps) check({before, 0, 0}, i, reader);
    if (nodes_[i].is_variable() && (!nodes_[i].inputs.empty() || nodes_[i].outputs != 1))
      raise<ConfigError>(kInGraph, reader, " is a variable and has inputs or several outputs");
  }
  for (const Entry& head : heads_) check(head, nodes_.size(), "the result");
}

Symbol Symbol::with_graph(std::vector<Node> nodes, std::vector<Entry> heads) const {
  Symbol symbol(std::move(nodes), std::move(heads));
  symbol.version_ = version_;
  symbol.np_shape_ = np_shape_;
  return symbol;
}

std::vector<std::string> Symbol::list_inputs() const {
  std::vector<std::string> names;
  for (const Node& node : nodes_) {
    if (node.is_variable()) names.push_back(node.name);
  }
  return names;
}

std::vector<std::string> Symbol::list_auxiliary_states() const {
  std::vector<std::string> names;
  std::set<std::uint32_t> seen;
  for (const Node& node : nodes_) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const std::uint32_t from = node.inputs[i].node;
      if (role_of(node, i) != Role::kStatistic || !nodes_[from].is_variable()) continue;
      if (seen.insert(from).second) names.push_back(nodes_[from].name);
    }
  }
  return names;
}

Symbol Symbol::without_amp_casts() const {
  const auto is_cast = [&](const Entry& entry) {
    const std::string& op = nodes_[entry.node].op;
    return op == "amp_cast" || op == "amp_multicast";
  };
  const auto source = [&](Entry entry) {
    while (is_cast(entry)) {
      const Node& cast = nodes_[entry.node];
      if (entry.output >= cast.inputs.size())
        raise<ConfigError>(kInGraph, "'", cast.name, "' has fewer inputs than results");
      entry = cast.inputs[entry.output];
    }
    return entry;
  };
  std::vector<bool> stays(nodes_.size(), true);
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    stays[i] = !is_cast({static_cast<std::uint32_t>(i), 0, 0});
  for (const Entry& head : heads_) stays[head.node] = true;
  std::vector<std::uint32_t> places(nodes_.size());
  Symbol result = *this;
  result.nodes_.clear();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!stays[i]) continue;
    places[i] = static_cast<std::uint32_t>(result.nodes_.size());
    Node node = nodes_[i];
    for (Entry& input : node.inputs) {
      input = source(input);
      input.node = places[input.node];
    }
    std::erase_if(node.control_deps, [&](std::uint32_t before) { return !stays[before]; });
    for (std::uint32_t& before : node.control_deps) before = places[before];
    result.nodes_.push_back(std::move(node));
  }
  for (Entry& head : result.heads_) head.node = places[head.node];
  return result;
}

}  // namespace mezzo::convert::mxnet
