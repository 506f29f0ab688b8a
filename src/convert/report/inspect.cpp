// The content of a model file.
#include <algorithm>
#include <sstream>

#include "convert/graph/check.h"
#include "convert/graph/constants.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/low.h"
#include "convert/report/json.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

constexpr std::size_t kMostRanges = 100;

std::string line_of(const Value& value) {
  return concat({value.name, ": ", name_of(value.type),
                 value.has_dims ? shape_text(value.dims) : std::string()});
}

std::int64_t depth_of(const Graph& graph, const Scope& scope) {
  std::int64_t depth = 0;
  for (NodeId owner = scope.owner; owner != kNone;
       owner = graph.scope(graph.node(owner).scope).owner)
    ++depth;
  return depth;
}

std::string range_line(const Value& value, const ConstantFacts& facts) {
  std::ostringstream text;
  text.precision(4);
  text << value.name << ": " << facts.count << " values up to " << facts.largest << ", smallest "
       << facts.smallest;
  if (facts.overflowing != 0) text << ", " << facts.overflowing << " beyond float16's range";
  if (facts.vanishing != 0) text << ", " << facts.vanishing << " would become zero";
  if (facts.infinite != 0) text << ", " << facts.infinite << " infinite";
  if (facts.nan != 0) text << ", " << facts.nan << " NaN";
  return text.str();
}

void add_weights(Inspection& inspection, Document& document, const Graph& graph) {
  Constants constants(graph, Element::kFloat16);
  std::size_t lines = 0;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.initializer != nullptr && value.origin != Origin::kSparseInitializer) {
      const Tensor tensor = read_tensor(document, *value.initializer);
      const auto bytes =
          static_cast<std::int64_t>((tensor.count * bits_of(tensor.element) + 7) / 8);
      inspection.weight_bytes += bytes;
      inspection.weight_bytes_by_type[name_of(tensor.element)] += bytes;
    }
    if (!constants.is_constant(static_cast<ValueId>(v))) continue;
    const ConstantFacts& facts = constants.facts(static_cast<ValueId>(v));
    if (facts.overflowing + facts.vanishing + facts.infinite + facts.nan == 0) continue;
    if (++lines <= kMostRanges) inspection.ranges.push_back(range_line(value, facts));
  }
  if (lines > kMostRanges) {
    inspection.ranges.push_back(
        concat({"and ", std::to_string(lines - kMostRanges), " more weights"}));
  }
}

template <typename Map>
void write_counts(std::ostringstream& text, const Map& counts) {
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    text << (i == 0 ? " " : ", ") << sorted[i].first << ' ' << sorted[i].second;
  }
  text << '\n';
}

}  // namespace

Inspection inspect_model(const std::filesystem::path& path) {
  Document document(path);
  const Graph graph(document);
  Inspection inspection;
  inspection.path = path.string();
  inspection.ir_version = graph.ir_version;
  inspection.file_bytes = static_cast<std::int64_t>(document.bytes().size());
  for (const auto& [domain, version] : graph.scope(0).opsets) {
    inspection.opsets[domain.empty() ? "ai.onnx" : std::string(domain)] = version;
  }
  inspection.nodes = static_cast<std::int64_t>(graph.nodes.size());
  inspection.scopes = static_cast<std::int64_t>(graph.scopes.size());
  for (const Field& field : document.model().fields()) {
    inspection.functions += field.number == field::model::kFunctions ? 1 : 0;
  }
  for (const Scope& scope : graph.scopes) {
    inspection.deepest = std::max(inspection.deepest, depth_of(graph, scope));
  }
  for (const Node& node : graph.nodes) {
    const std::string domain(node.domain);
    ++inspection.operators[concat({domain, domain.empty() ? "" : "::", node.op})];
  }
  for (const Value& value : graph.values) ++inspection.value_types[name_of(value.type)];
  for (const ValueId in : graph.scope(0).inputs) {
    if (graph.value(in).initializer == nullptr)
      inspection.inputs.push_back(line_of(graph.value(in)));
  }
  for (const ValueId out : graph.scope(0).outputs)
    inspection.outputs.push_back(line_of(graph.value(out)));
  add_weights(inspection, document, graph);
  for (const Finding& finding : check_graph(graph)) inspection.findings.push_back(finding.what);
  return inspection;
}

std::string Inspection::to_text() const {
  std::ostringstream text;
  text << path << ": " << file_bytes << " bytes, IR " << ir_version << ", opsets";
  for (const auto& [domain, version] : opsets) text << ' ' << domain << ' ' << version;
  text << '\n'
       << nodes << " nodes in " << scopes << " scopes (deepest " << deepest << "), " << functions
       << " functions\n";
  for (const std::string& line : inputs) text << "input " << line << '\n';
  for (const std::string& line : outputs) text << "output " << line << '\n';
  text << "operators:";
  write_counts(text, operators);
  text << "values:";
  write_counts(text, value_types);
  text << "weights: " << weight_bytes << " bytes:";
  write_counts(text, weight_bytes_by_type);
  for (const std::string& line : ranges) text << "range: " << line << '\n';
  for (const std::string& line : findings) text << "invalid: " << line << '\n';
  return text.str();
}

std::string Inspection::to_json() const {
  return json_text(Json{{"path", path},
                        {"ir_version", ir_version},
                        {"file_bytes", file_bytes},
                        {"opsets", json_map(opsets)},
                        {"nodes", nodes},
                        {"scopes", scopes},
                        {"deepest", deepest},
                        {"functions", functions},
                        {"inputs", inputs},
                        {"outputs", outputs},
                        {"operators", json_map(operators)},
                        {"value_types", json_map(value_types)},
                        {"weight_bytes", weight_bytes},
                        {"weight_bytes_by_type", json_map(weight_bytes_by_type)},
                        {"ranges", ranges},
                        {"findings", findings}});
}

}  // namespace mezzo::convert
