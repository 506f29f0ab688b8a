#include "convert/standard/custom_operators.h"

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <deque>
#include <limits>

#include "convert/onnx/concat.h"
#include "core/nearest.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kOnnxRuntime =
#include "convert/standard/onnxruntime_operators.inc"
    ;

constexpr std::array<std::pair<std::string_view, CastClass>, 4> kClasses{
    {{"target_dtype", CastClass::kLow},
     {"fp32", CastClass::kFloat},
     {"widest_dtype", CastClass::kPromote},
     {"neutral", CastClass::kNeutral}}};

}  // namespace

// The content that a schema points to.
struct CustomOperators::Entry {
  std::deque<std::string> texts;
  std::vector<TypeSet> sets;
  std::vector<Formal> formals;
  std::vector<Variable> variables;
  CustomOperator what;

  const std::string& keep(std::string text) { return texts.emplace_back(std::move(text)); }
};

class CustomOperatorReader {
 public:
  explicit CustomOperatorReader(std::string_view name) : name_(name) {}

  void read(std::string_view text, CustomOperators& into) const {
    for (const auto& [key, node] : parse(text)) {
      if (!node.is_table()) fail(node, "'", key.str(), "' is no table");
      into.entries_.insert_or_assign(std::string(key.str()), entry(key.str(), *node.as_table()));
    }
  }

 private:
  using Entry = CustomOperators::Entry;

  template <typename... Parts>
  [[noreturn]] void fail(const toml::node& at, const Parts&... parts) const {
    raise<ConfigError>(name_, "line ", at.source().begin.line, ": ", parts...);
  }

  toml::table parse(std::string_view text) const {
    try {
      return toml::parse(text);
    } catch (const toml::parse_error& error) {
      raise<ConfigError>(name_, "line ", error.source().begin.line, ": ", error.description());
    }
  }

  std::shared_ptr<const Entry> entry(std::string_view key, const toml::table& table) const {
    constexpr std::array<std::string_view, 5> kKeys{"inputs", "outputs", "types", "class", "why"};
    for (const auto& [name, value] : table) {
      if (std::ranges::find(kKeys, name.str()) == kKeys.end())
        fail(value, "unknown key '", name.str(), "'", did_you_mean(name.str(), kKeys));
    }
    auto made = std::make_shared<Entry>();
    Schema& schema = made->what.schema;
    const std::string& whole = made->keep(std::string(key));
    const std::size_t colons = whole.rfind("::");
    schema.name = std::string_view(whole).substr(colons == std::string::npos ? 0 : colons + 2);
    schema.domain = std::string_view(whole).substr(0, colons == std::string::npos ? 0 : colons);
    if (schema.name.empty() || colons == 0) fail(table, "'", key, "'; expected 'domain::Operator'");
    schema.since = 1;
    schema.is_custom = true;
    read_types(table, *made);
    read_formals(table, *made);
    made->what.cast = class_of(table);
    made->what.why = made->keep(text_at(table, "why", "its description says so"));
    return made;
  }

  // The variables, in the order of the file's keys.
  void read_types(const toml::table& table, Entry& made) const {
    const toml::node* types = table.get("types");
    if (types == nullptr) return;
    if (!types->is_table()) fail(*types, "'types' is no table");
    for (const auto& [name, list] : *types->as_table()) {
      if (parse_element(name.str())) fail(list, "'", name.str(), "' is a type, not a variable");
      TypeSet set{};
      for (const std::string& text : texts_of(list, name.str())) set.tensor |= bit_of(list, text);
      if (set.tensor == 0) fail(list, "'", name.str(), "' may have no type at all");
      made.sets.push_back(set);
      made.variables.push_back({made.keep(std::string(name.str())).c_str(), nullptr, false});
    }
  }

  std::uint64_t bit_of(const toml::node& at, std::string_view text) const {
    const auto element = parse_element(text);
    if (!element) fail(at, "unknown type '", text, "'; float32, float16, int64, ...");
    return std::uint64_t{1} << static_cast<unsigned>(*element);
  }

  void read_formals(const toml::table& table, Entry& made) const {
    Schema& schema = made.what.schema;
    const std::size_t inputs =
        read_side(table, "inputs", made, schema.min_inputs, schema.max_inputs);
    read_side(table, "outputs", made, schema.min_outputs, schema.max_outputs);
    for (std::size_t v = 0; v < made.variables.size(); ++v) made.variables[v].set = &made.sets[v];
    schema.inputs = std::span(made.formals).first(inputs);
    schema.outputs = std::span(made.formals).subspan(inputs);
    schema.variables = made.variables;
  }

  // How many there are; the fewest and the most that a node may have.
  std::size_t read_side(const toml::table& table, std::string_view side, Entry& made, int& fewest,
                        int& most) const {
    const toml::node* list = table.get(side);
    if (list == nullptr) fail(table, "'", made.what.schema.name, "' has no ", side);
    const std::vector<std::string> texts = texts_of(*list, side);
    most = static_cast<int>(texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Formal& added = made.formals.emplace_back(formal(*list, texts[i], i, made));
      if (added.arity == Arity::kOne) fewest = static_cast<int>(i) + 1;
      if (added.arity != Arity::kVariadic) continue;
      if (i + 1 != texts.size())
        fail(*list, "'", texts[i], "' takes all that follow and is not the last");
      most = std::numeric_limits<int>::max();
    }
    return texts.size();
  }

  // "T", "bias: T?", "T*", "int64".
  Formal formal(const toml::node& at, std::string_view text, std::size_t index, Entry& made) const {
    const std::string_view whole = text;
    std::string name = std::to_string(index);
    if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
      name = text.substr(0, colon);
      text.remove_prefix(std::min(text.find_first_not_of(' ', colon + 1), text.size()));
    }
    Formal formal{made.keep(std::move(name)).c_str(), 0, Arity::kOne};
    if (text.ends_with('?')) formal.arity = Arity::kOptional;
    if (text.ends_with('*')) formal.arity = Arity::kVariadic;
    if (formal.arity != Arity::kOne) text.remove_suffix(1);
    auto found = std::ranges::find(made.variables, text,
                                   [](const Variable& v) { return std::string_view(v.name); });
    if (found == made.variables.end()) {
      if (!parse_element(text)) {
        fail(at, "'", whole, "': '", text, "' is neither a type nor under 'types'");
      }
      TypeSet set{};
      set.tensor = bit_of(at, text);
      made.sets.push_back(set);
      made.variables.push_back({made.keep(std::string(text)).c_str(), nullptr, true});
      found = made.variables.end() - 1;
    }
    formal.variable = static_cast<std::uint8_t>(found - made.variables.begin());
    if (made.variables.size() > kMostVariables) fail(at, "more than ", kMostVariables, " types");
    return formal;
  }

  CastClass class_of(const toml::table& table) const {
    const std::string text = text_at(table, "class", "neutral");
    for (const auto& [name, cast] : kClasses) {
      if (text == name) return cast;
    }
    fail(*table.get("class"), "class '", text,
         "'; expected target_dtype, fp32, widest_dtype or neutral");
  }

  std::string text_at(const toml::table& table, std::string_view key,
                      std::string_view otherwise) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) return std::string(otherwise);
    if (!node->is_string()) fail(*node, "'", key, "' is no text");
    return node->as_string()->get();
  }

  std::vector<std::string> texts_of(const toml::node& node, std::string_view key) const {
    if (!node.is_array()) fail(node, "'", key, "' is no list");
    std::vector<std::string> texts;
    for (const toml::node& item : *node.as_array()) {
      if (!item.is_string()) fail(item, "'", key, "' holds what is no text");
      texts.push_back(item.as_string()->get());
    }
    return texts;
  }

  static constexpr std::size_t kMostVariables = 64;

  std::string name_;
};

CustomOperators::CustomOperators() {
  add(kOnnxRuntime, "onnxruntime");
}

void CustomOperators::add(std::string_view text, std::string_view name) {
  CustomOperatorReader(name).read(text, *this);
}

const CustomOperator* CustomOperators::find(std::string_view qualified_name) const {
  const auto found = entries_.find(qualified_name);
  return found == entries_.end() ? nullptr : &found->second->what;
}

const CustomOperators& CustomOperators::built_in() {
  static const CustomOperators kBuiltIn;
  return kBuiltIn;
}

std::string qualified_name(std::string_view domain, std::string_view op) {
  return concat({domain, domain.empty() ? "" : "::", op});
}

}  // namespace mezzo::convert
