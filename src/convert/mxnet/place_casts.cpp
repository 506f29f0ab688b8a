// Decides first, for all nodes in their order, in which type each runs; then which parameters are
// stored in 16 bits, which needs all of their readers; then builds the graph. Casts follow from
// that, so that the order of readers changes nothing.
#include "convert/mxnet/place_casts.h"

#include <algorithm>

#include "convert/mxnet/facts.h"

namespace mezzo::convert::mxnet {
namespace {

enum class Kind : std::uint8_t {
  kUnknown,
  kFloat,
  kLow,
  kForeign,  // in 16 bits, of the type that is not the target: never as it is
  kOther
};

enum class Run : std::uint8_t {
  kKept,   // variables and casts that are there already: inputs as they are
  kFloat,  // nothing comes in 16 bits
  kLow,    // all data comes in 16 bits
  kJoined  // types are not known: an amp_multicast decides
};

std::string code_of(std::string_view dtype) {
  constexpr std::string_view kNames[] = {"float32", "float64", "float16", "uint8", "int32",
                                         "int8",    "int64",   "bool",    "int16", "uint16",
                                         "uint32",  "uint64",  "bfloat16"};
  const auto* at = std::ranges::find(kNames, dtype);
  return std::to_string(at - std::begin(kNames));
}

class CastPlacer {
 public:
  CastPlacer(const Symbol& symbol, const Lists& lists, const Variables& variables)
      : symbol_(symbol), nodes_(symbol.nodes()), lists_(lists), variables_(variables) {
    std::size_t total = 0;
    for (const Node& node : nodes_) {
      first_.push_back(total);
      total += node.outputs;
      names_.insert(node.name);
    }
    kinds_.resize(total, Kind::kUnknown);
    runs_.resize(nodes_.size(), Run::kKept);
  }

  Placed place() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) decide(i);
    choose_stored();
    build();
    Placed placed{symbol_.with_graph(std::move(made_), std::move(heads_)), {}};
    for (const std::size_t i : stored_) placed.stored_low.insert(nodes_[i].name);
    return placed;
  }

 private:
  Kind& kind(const Entry& entry) { return kinds_[first_[entry.node] + entry.output]; }

  Kind kind_of_dtype(std::string_view dtype) const {
    if (dtype == "float32" || dtype == "0") return Kind::kFloat;
    if (dtype == lists_.dtype() || dtype == code_of(lists_.dtype())) return Kind::kLow;
    for (const char* low : {"float16", "bfloat16"})
      if (dtype == low || dtype == code_of(low)) return Kind::kForeign;
    return Kind::kOther;
  }

  Kind kind_of_variable(const Node& node) const {
    const auto given = variables_.dtypes.find(node.name);
    if (given != variables_.dtypes.end()) return kind_of_dtype(given->second);
    const auto code = node.attr("__dtype__");
    return code ? kind_of_dtype(*code) : Kind::kFloat;
  }

  // A float32 parameter, or one of the other 16-bit type, which takes whatever type its readers
  // want.
  bool is_free(const Entry& entry) {
    const Node& node = nodes_[entry.node];
    const bool is_float = kind(entry) == Kind::kFloat || kind(entry) == Kind::kForeign;
    return node.is_variable() && !variables_.is_data(node) && is_float;
  }

  void set_kinds(std::size_t i, Kind data) {
    const bool is_norm = nodes_[i].inputs.size() > 1 && role_of(nodes_[i], 1) == Role::kFloat;
    for (std::uint32_t output = 0; output < nodes_[i].outputs; ++output)
      kinds_[first_[i] + output] = is_norm && output > 0 ? Kind::kFloat : data;
  }

  // The inputs that share the operator's type: how many there are of each kind. Foreign ones come
  // as float32 where nothing brings them low.
  struct Counts {
    std::size_t low = 0, full = 0, other = 0, unknown = 0, free = 0, foreign = 0;
  };

  Counts count(const Node& node) {
    Counts counts;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (role_of(node, i) != Role::kData) continue;
      const Entry& entry = node.inputs[i];
      counts.free += is_free(entry) ? 1 : 0;
      switch (kind(entry)) {
        case Kind::kLow:
          ++counts.low;
          break;
        case Kind::kForeign:
          ++counts.foreign;
          [[fallthrough]];
        case Kind::kFloat:
          ++counts.full;
          break;
        case Kind::kOther:
          ++counts.other;
          break;
        case Kind::kUnknown:
          ++counts.unknown;
      }
    }
    return counts;
  }

  // The result of an operator that gets nothing in 16 bits.
  static Kind in_float(const Counts& counts) {
    if (counts.full + counts.low != 0) return Kind::kFloat;
    return counts.other != 0 && counts.unknown == 0 ? Kind::kOther : Kind::kUnknown;
  }

  void decide(std::size_t i) {
    const Node& node = nodes_[i];
    if (node.is_variable()) return set_kinds(i, kind_of_variable(node));
    const Counts counts = count(node);
    if (node.op == "amp_cast") {
      const bool is_floating = counts.full + counts.low != 0;
      return set_kinds(
          i, is_floating ? kind_of_dtype(node.attr("dtype").value_or("")) : in_float(counts));
    }
    if (node.op == "amp_multicast") return decide_multicast(i, counts);
    runs_[i] = Run::kFloat;
    if (node.op == "Cast")
      return set_kinds(i, kind_of_dtype(node.attr("dtype").value_or("float32")));
    if (!has_one_type(node)) return set_kinds(i, Kind::kUnknown);
    switch (lists_.class_of(node)) {
      case Class::kFloat:
        return set_kinds(i, in_float(counts));
      case Class::kLow:
        return run(i, counts.low + counts.full + counts.unknown != 0 && counts.other == 0, counts);
      case Class::kWidest:
        if (counts.unknown != 0 && counts.other == 0 && node.inputs.size() > 1 && all_data(node))
          return join(i, counts);
        return run(i, counts.low != 0 && counts.full + counts.other + counts.unknown == 0, counts);
      case Class::kNeutral: {
        const std::size_t made_full = counts.full - counts.free;
        return run(i, counts.low != 0 && made_full + counts.other + counts.unknown == 0, counts);
      }
    }
  }

  static bool all_data(const Node& node) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (role_of(node, i) != Role::kData) return false;
    }
    return true;
  }

  void run(std::size_t i, bool low, const Counts& counts) {
    runs_[i] = low ? Run::kLow : Run::kFloat;
    set_kinds(i, low ? Kind::kLow : in_float(counts));
  }

  void join(std::size_t i, const Counts& counts) {
    runs_[i] = Run::kJoined;
    set_kinds(i, counts.full != 0 ? Kind::kFloat : Kind::kUnknown);
  }

  void decide_multicast(std::size_t i, const Counts& counts) {
    const bool is_low = counts.low != 0 && counts.full + counts.unknown == 0;
    const bool is_foreign =
        counts.foreign != 0 && counts.foreign == counts.full && counts.low + counts.unknown == 0;
    for (std::size_t output = 0; output < nodes_[i].outputs; ++output) {
      const bool is_other =
          output < nodes_[i].inputs.size() && kind(nodes_[i].inputs[output]) == Kind::kOther;
      kinds_[first_[i] + output] = is_other           ? Kind::kOther
                                   : is_low           ? Kind::kLow
                                   : is_foreign       ? Kind::kForeign
                                   : counts.full != 0 ? Kind::kFloat
                                                      : Kind::kUnknown;
    }
  }

  bool wants_low(std::size_t reader, std::size_t input) const {
    return runs_[reader] == Run::kLow && role_of(nodes_[reader], input) == Role::kData;
  }

  // A parameter is stored in 16 bits where all that read it want that, and either the caller does,
  // too, or a reader is one that takes what comes.
  void choose_stored() {
    std::vector<bool> all_low(nodes_.size(), true), any(nodes_.size()), neutral(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (std::size_t input = 0; input < nodes_[i].inputs.size(); ++input) {
        const std::uint32_t from = nodes_[i].inputs[input].node;
        any[from] = true;
        if (!wants_low(i, input)) all_low[from] = false;
        if (lists_.class_of(nodes_[i]) == Class::kNeutral) neutral[from] = true;
      }
    }
    for (const Entry& head : symbol_.heads()) all_low[head.node] = false;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].is_variable() || !is_free({i, 0, 0}) || !any[i] || !all_low[i]) continue;
      if (!variables_.cast_optional_params && !neutral[i]) continue;
      if (variables_.storable != nullptr && !variables_.storable->contains(nodes_[i].name))
        continue;
      stored_.insert(i);
      kinds_[first_[i]] = Kind::kLow;
    }
  }

  void build() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      Node node = nodes_[i];
      if (node.is_variable()) write_dtype(i, node);
      if (runs_[i] == Run::kJoined) {
        join_inputs(node);
      } else {
        for (std::size_t input = 0; input < node.inputs.size(); ++input)
          node.inputs[input] = brought(i, input);
      }
      for (std::uint32_t& before : node.control_deps) before = places_[before];
      places_.push_back(static_cast<std::uint32_t>(made_.size()));
      made_.push_back(std::move(node));
    }
    for (const Entry& head : symbol_.heads())
      heads_.push_back(is_low_kind(kind(head)) ? cast(head, /*low=*/false) : moved(head));
  }

  void write_dtype(std::size_t i, Node& node) const {
    const auto given = variables_.dtypes.find(node.name);
    if (stored_.contains(i)) {
      node.attrs["__dtype__"] = code_of(lists_.dtype());
    } else if (given != variables_.dtypes.end()) {
      node.attrs["__dtype__"] = code_of(given->second);
    }
  }

  static bool is_low_kind(Kind kind) { return kind == Kind::kLow || kind == Kind::kForeign; }

  Entry moved(Entry entry) const {
    entry.node = places_[entry.node];
    return entry;
  }

  Entry brought(std::size_t reader, std::size_t input) {
    const Entry& entry = nodes_[reader].inputs[input];
    const Kind from = kind(entry);
    if (runs_[reader] == Run::kKept || role_of(nodes_[reader], input) == Role::kStatistic)
      return moved(entry);
    if (wants_low(reader, input))
      return from == Kind::kLow || from == Kind::kOther ? moved(entry) : cast(entry, /*low=*/true);
    return is_low_kind(from) ? cast(entry, /*low=*/false) : moved(entry);
  }

  std::string new_name(const Entry& entry, const std::string& what) {
    const Node& node = nodes_[entry.node];
    std::string name = node.name;
    if (!node.is_variable()) {
      name += "_output";
      if (entry.output != 0 || node.op == "SliceChannel") name += std::to_string(entry.output);
    }
    name += "_" + what;
    std::string unique = name;
    for (int i = 1; !names_.insert(unique).second; ++i) unique = name + "_" + std::to_string(i);
    return unique;
  }

  // One for each value and type, shared by all that read it.
  Entry cast(const Entry& entry, bool low) {
    const std::string dtype = low ? lists_.dtype() : "float32";
    const auto [found, is_new] =
        casts_.try_emplace({first_[entry.node] + entry.output, low}, Entry{});
    if (is_new) {
      found->second = {static_cast<std::uint32_t>(made_.size()), 0, 0};
      made_.push_back({.op = "amp_cast",
                       .name = new_name(entry, "amp_cast_" + dtype),
                       .attrs = {{"dtype", dtype}},
                       .inputs = {moved(entry)}});
    }
    return found->second;
  }

  void join_inputs(Node& node) {
    const auto count = static_cast<std::uint32_t>(node.inputs.size());
    Node multicast{.op = "amp_multicast",
                   .name = new_name(node.inputs[0], "amp_multicast"),
                   .attrs = {{"num_outputs", std::to_string(count)}}};
    multicast.outputs = count;
    for (std::uint32_t i = 0; i < count; ++i) {
      multicast.inputs.push_back(moved(node.inputs[i]));
      node.inputs[i] = {static_cast<std::uint32_t>(made_.size()), i, 0};
    }
    made_.push_back(std::move(multicast));
  }

  const Symbol& symbol_;
  const std::vector<Node>& nodes_;
  const Lists& lists_;
  const Variables& variables_;
  std::vector<std::size_t> first_;  // of each node's outputs among all
  std::vector<Kind> kinds_;         // of each output, as it is made
  std::vector<Run> runs_;
  std::set<std::size_t> stored_;
  std::set<std::string> names_;
  std::vector<std::uint32_t> places_;  // of each node in the new graph
  std::map<std::pair<std::size_t, bool>, Entry> casts_;
  std::vector<Node> made_;
  std::vector<Entry> heads_;
};

}  // namespace

Placed place_casts(const Symbol& symbol, const Lists& lists, const Variables& variables) {
  return CastPlacer(symbol, lists, variables).place();
}

}  // namespace mezzo::convert::mxnet
