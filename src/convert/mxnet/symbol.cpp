// Graphs as MXNet's text.
#include <algorithm>
#include <limits>
#include <sstream>

#include "convert/mxnet/facts.h"
#include "convert/report/json.h"
#include "core/raise.h"
#include "mezzo/convert_mxnet.h"
#include "platform/files.h"

namespace mezzo::convert::mxnet {
namespace {

constexpr const char* kInSymbol = "mxnet";
constexpr std::size_t kMostNodes = 1U << 24;

class SymbolReader {
 public:
  explicit SymbolReader(const std::string& origin) : origin_(origin) {}

  struct Parts {
    std::vector<Node> nodes;
    std::vector<Entry> heads;
    std::int64_t version = 0;
    std::optional<std::int64_t> np_shape;
  };

  Parts read(const ReadJson& json) const {
    Parts parts;
    const ReadJson& nodes = list(json, "nodes");
    if (nodes.size() > kMostNodes) fail("it has more nodes than can be");
    parts.version = graph_attribute(json, "mxnet_version").value_or(0);
    parts.np_shape = graph_attribute(json, "is_np_shape");
    for (const ReadJson& node : nodes) parts.nodes.push_back(read_node(node));
    for (const ReadJson& head : list(json, "heads")) parts.heads.push_back(read_entry(head));
    check_variables(json, parts.nodes);
    count_outputs(json, parts);
    return parts;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    raise(kInSymbol, "'", origin_, "' is no graph of MXNet, or damaged: ", what);
  }

  const ReadJson& list(const ReadJson& json, const char* key) const {
    if (!json.is_object() || !json.contains(key) || !json[key].is_array())
      fail(std::string("there is no list '") + key + "'");
    return json[key];
  }

  std::uint32_t index(const ReadJson& json) const {
    if (!json.is_number_integer() || json < 0 || json > 4294967295) fail("expected an index");
    return json.get<std::uint32_t>();
  }

  Entry read_entry(const ReadJson& json) const {
    if (!json.is_array() || json.size() < 2 || json.size() > 3)
      fail("an entry is not [node, output, version]");
    return {index(json[0]), index(json[1]), json.size() == 3 ? index(json[2]) : 0};
  }

  // MXNet's reader knows no \u, so that other control characters cannot be written.
  std::string text_of(const ReadJson& json, const char* key) const {
    if (!json.is_object() || !json.contains(key) || !json[key].is_string())
      fail(std::string("a node has no ") + key);
    auto text = json[key].get<std::string>();
    check_text(text);
    return text;
  }

  void check_text(const std::string& text) const {
    const auto is_control = [](char c) {
      return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r';
    };
    if (std::ranges::any_of(text, is_control)) fail("a text has control characters");
  }

  static std::string hidden(const std::string& key) {
    for (const char* known :
         {"ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage"}) {
      if (key == known) return "__" + key + "__";
    }
    return key;
  }

  Node read_node(const ReadJson& json) const {
    Node node{.op = text_of(json, "op"), .name = text_of(json, "name")};
    if (node.op.empty()) fail("a node has no operator");
    for (const char* key : {"param", "attr", "attrs"}) {  // the first two are of old releases
      if (!json.contains(key)) continue;
      if (!json[key].is_object()) fail("the attributes of '" + node.name + "' are no object");
      for (const auto& [name, value] : json[key].items()) {
        if (!value.is_string())
          fail("the attribute '" + name + "' of '" + node.name + "' is no text");
        const auto text = value.template get<std::string>();
        check_text(name);
        check_text(text);
        node.attrs[hidden(name)] = text;
      }
    }
    if (json.contains("inputs")) {
      for (const ReadJson& input : list(json, "inputs")) node.inputs.push_back(read_entry(input));
    }
    if (json.contains("control_deps")) {
      for (const ReadJson& before : list(json, "control_deps"))
        node.control_deps.push_back(index(before));
    }
    if (json.contains("subgraphs")) {
      for (const ReadJson& body : list(json, "subgraphs")) {
        Parts parts = read(body);
        node.subgraphs.push_back(
            std::make_shared<const Symbol>(std::move(parts.nodes), std::move(parts.heads)));
      }
    }
    return node;
  }

  std::optional<std::int64_t> graph_attribute(const ReadJson& json, const char* name) const {
    if (!json.contains("attrs") || !json["attrs"].is_object() || !json["attrs"].contains(name))
      return std::nullopt;
    const ReadJson& pair = json["attrs"][name];
    if (!pair.is_array() || pair.size() != 2)
      fail("an attribute of the graph is not [type, value]");
    return index(pair[1]);
  }

  // MXNet does not load a graph whose list of variables names something else.
  void check_variables(const ReadJson& json, const std::vector<Node>& nodes) const {
    if (!json.contains("arg_nodes")) return;
    for (const ReadJson& place : list(json, "arg_nodes")) {
      const std::uint32_t at = index(place);
      if (at >= nodes.size())
        fail("arg_nodes names node " + std::to_string(at) + ", which is not there");
      if (!nodes[at].is_variable())
        fail("arg_nodes names node " + std::to_string(at) + " ('" + nodes[at].name +
             "'), which is no variable");
    }
  }

  // From the running total where it is written, which knows operators that nothing here does.
  void count_outputs(const ReadJson& json, Parts& parts) const {
    const ReadJson rows =
        json.contains("node_row_ptr") ? list(json, "node_row_ptr") : ReadJson::array();
    if (!rows.empty() && rows.size() != parts.nodes.size() + 1)
      fail("node_row_ptr does not fit the nodes");
    for (std::size_t i = 0; i < parts.nodes.size(); ++i) {
      Node& node = parts.nodes[i];
      node.outputs = output_count(node);
      if (rows.empty()) continue;
      const std::uint32_t from = index(rows[i]);
      const std::uint32_t to = index(rows[i + 1]);
      if (to < from || to - from > (1U << 16)) fail("node_row_ptr does not fit the nodes");
      node.outputs = to - from;
    }
    if (!rows.empty()) return;
    const auto use = [&](const Entry& entry) {
      if (entry.node < parts.nodes.size() && entry.output < (1U << 16))
        parts.nodes[entry.node].outputs =
            std::max(parts.nodes[entry.node].outputs, entry.output + 1);
    };
    for (const Node& node : parts.nodes) std::ranges::for_each(node.inputs, use);
    std::ranges::for_each(parts.heads, use);
  }

  const std::string& origin_;
};

// Files before 0.9 leave statistics out; 0.9.4 and before write an axis of -1 for none.
void upgrade(std::vector<Node>& nodes, std::vector<Entry>& heads, std::int64_t version) {
  if (version >= 905) return;
  std::vector<Node> upgraded;
  std::vector<std::uint32_t> places;
  for (Node& node : nodes) {
    for (Entry& input : node.inputs) {
      if (input.node < places.size()) input.node = places[input.node];
    }
    for (std::uint32_t& before : node.control_deps) {
      if (before < places.size()) before = places[before];
    }
    if ((node.op == "BatchNorm" || node.op == "BatchNorm_v1") && node.inputs.size() == 3) {
      for (const char* statistic : {"moving_mean", "moving_var"}) {
        node.inputs.push_back({static_cast<std::uint32_t>(upgraded.size()), 0, 0});
        upgraded.push_back({.op = "null", .name = node.name + "_" + statistic});
      }
    }
    const auto axis = node.attrs.find("axis");
    if ((node.op == "argmax" || node.op == "argmin") && axis != node.attrs.end() &&
        axis->second == "-1") {
      node.attrs.erase(axis);
    }
    places.push_back(static_cast<std::uint32_t>(upgraded.size()));
    upgraded.push_back(std::move(node));
  }
  for (Entry& head : heads) {
    if (head.node < places.size()) head.node = places[head.node];
  }
  nodes = std::move(upgraded);
}

class SymbolWriter {
 public:
  explicit SymbolWriter(std::string indent = "") : indent_(std::move(indent)) {}

  std::string write(const Symbol& symbol, std::int64_t version,
                    std::optional<std::int64_t> np_shape) {
    out_ << "{\n" << indent_ << "  \"nodes\": [";
    std::string between = "\n";
    for (const Node& node : symbol.nodes()) {
      out_ << between;
      write_node(node);
      between = ",\n";
    }
    out_ << "\n" << indent_ << "  ],\n" << indent_ << "  \"arg_nodes\": [";
    write_variables(symbol);
    out_ << "],\n" << indent_ << "  \"node_row_ptr\": [0";
    std::uint64_t total = 0;
    for (const Node& node : symbol.nodes()) out_ << ", " << (total += node.outputs);
    out_ << "],\n" << indent_ << "  \"heads\": ";
    write_entries(symbol.heads());
    out_ << ",\n" << indent_ << "  \"attrs\": {";
    if (np_shape) out_ << "\"is_np_shape\": [\"int\", " << *np_shape << "], ";
    out_ << "\"mxnet_version\": [\"int\", " << version << "]}\n" << indent_ << "}";
    return out_.str();
  }

 private:
  void write_text(std::string_view text) {
    out_ << '"';
    for (const char c : text) {
      switch (c) {
        case '"':
        case '\\':
          out_ << '\\' << c;
          break;
        case '\n':
          out_ << "\\n";
          break;
        case '\r':
          out_ << "\\r";
          break;
        case '\t':
          out_ << "\\t";
          break;
        default:
          out_ << c;
      }
    }
    out_ << '"';
  }

  void write_entries(const std::vector<Entry>& entries) {
    out_ << '[';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      out_ << (i == 0 ? "[" : ", [") << entry.node << ", " << entry.output << ", " << entry.version
           << ']';
    }
    out_ << ']';
  }

  void write_variables(const Symbol& symbol) {
    std::string between;
    for (std::size_t i = 0; i < symbol.nodes().size(); ++i) {
      if (!symbol.nodes()[i].is_variable()) continue;
      out_ << between << i;
      between = ", ";
    }
  }

  void write_node(const Node& node) {
    const std::string inner = indent_ + "      ";
    out_ << indent_ << "    {\n" << inner << "\"op\": ";
    write_text(node.op);
    out_ << ",\n" << inner << "\"name\": ";
    write_text(node.name);
    if (!node.attrs.empty()) {
      out_ << ",\n" << inner << "\"attrs\": {";
      std::string between = "\n";
      for (const auto& [key, value] : node.attrs) {
        out_ << between << inner << "  ";
        write_text(key);
        out_ << ": ";
        write_text(value);
        between = ",\n";
      }
      out_ << "\n" << inner << "}";
    }
    out_ << ",\n" << inner << "\"inputs\": ";
    write_entries(node.inputs);
    if (!node.control_deps.empty()) {
      out_ << ",\n" << inner << "\"control_deps\": [";
      for (std::size_t i = 0; i < node.control_deps.size(); ++i)
        out_ << (i == 0 ? "" : ", ") << node.control_deps[i];
      out_ << ']';
    }
    if (!node.subgraphs.empty()) {
      out_ << ",\n" << inner << "\"subgraphs\": [";
      for (std::size_t i = 0; i < node.subgraphs.size(); ++i) {
        const Symbol& body = *node.subgraphs[i];
        out_ << (i == 0 ? "" : ", ")
             << SymbolWriter(inner).write(body, body.mxnet_version(), std::nullopt);
      }
      out_ << ']';
    }
    out_ << "\n" << indent_ << "    }";
  }

  std::string indent_;
  std::ostringstream out_;
};

}  // namespace

Symbol Symbol::from_json(std::string_view text, const std::string& origin) {
  try {
    SymbolReader::Parts parts = SymbolReader(origin).read(parse_json(text));
    upgrade(parts.nodes, parts.heads, parts.version);
    if (parts.heads.empty()) raise<ConfigError>(kInSymbol, "it has no result");
    Symbol symbol(std::move(parts.nodes), std::move(parts.heads));
    symbol.version_ = std::max<std::int64_t>(parts.version, 10500);  // the first with amp_cast
    symbol.np_shape_ = parts.np_shape;
    return symbol;
  } catch (const ConfigError& error) {
    raise(kInSymbol, "'", origin, "' is no graph of MXNet, or damaged: ", error.what());
  }
}

Symbol Symbol::load(const std::filesystem::path& file) {
  const platform::MappedFile mapped(file);
  return from_json(mapped.bytes(), file.string());
}

std::string Symbol::to_json() const {
  return SymbolWriter().write(*this, version_, np_shape_);
}

void Symbol::save(const std::filesystem::path& file) const {
  const std::string text = to_json();
  platform::write_atomically(platform::behind_links(file), [&](std::ostream& out) { out << text; });
}

}  // namespace mezzo::convert::mxnet
