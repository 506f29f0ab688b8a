#include "policy/toml.h"

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "core/nearest.h"
#include "operators/operators.h"

namespace mezzo {
namespace {

constexpr std::string_view kDtype = "dtype";
constexpr std::string_view kOperators = "operators";
constexpr std::string_view kConditional = "conditional";

/// The classes that are lists of operators in a file.
constexpr std::array kListed{CastClass::kLow, CastClass::kFloat, CastClass::kPromote,
                             CastClass::kNeutral, CastClass::kBanned};

std::string_view kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a float";
    case toml::node_type::boolean:
      return "a boolean";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::table:
      return "a table";
    default:
      return "a date or time";
  }
}

class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  PolicyFile read(std::istream& in) {
    const toml::table root = parse(in);
    check_keys(root, {kDtype, kOperators, kConditional});
    PolicyFile file{low_type(root), {}};
    if (const toml::node* lists = root.get(kOperators)) read_lists(*lists, file);
    if (const toml::node* rules = root.get(kConditional)) read_conditionals(*rules, file);
    std::ranges::stable_sort(file.entries, {}, &PolicyFile::Entry::line);
    return file;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fail(const toml::node& at, const Parts&... parts) const {
    raise<ConfigError>(name_, "line ", line_of(at), ": ", parts...);
  }

  static std::size_t line_of(const toml::node& node) { return node.source().begin.line; }

  toml::table parse(std::istream& in) const {
    if (!in) raise<ConfigError>(name_, "cannot be read");
    try {
      return toml::parse(in);
    } catch (const toml::parse_error& error) {
      raise<ConfigError>(name_, "line ", error.source().begin.line, ": ", error.description());
    }
  }

  void check_keys(const toml::table& table, std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : table) {
      if (std::ranges::find(known, key.str()) != known.end()) continue;
      raise<ConfigError>(name_, "line ", key.source().begin.line, ": unknown key '", key.str(), "'",
                         did_you_mean(key.str(), std::vector<std::string_view>(known)));
    }
  }

  DType low_type(const toml::table& root) const {
    const toml::node* node = root.get(kDtype);
    if (node == nullptr) {
      raise<ConfigError>(name_, "line 1: no dtype; write dtype = \"", low_type_names("\" or \""),
                         "\"");
    }
    const std::string text = string_of(*node, kDtype);
    const auto dtype = parse_dtype(text);
    if (!dtype || !is_low(*dtype)) {
      std::vector<std::string_view> names;
      names.reserve(kLowTypes.size());
      for (const DType low : kLowTypes) names.push_back(name_of(low));
      fail(*node, "dtype is '", text, "'; expected ", low_type_names(),
           dtype ? "" : did_you_mean(text, names));
    }
    return *dtype;
  }

  std::string string_of(const toml::node& node, std::string_view what) const {
    if (!node.is_string()) fail(node, "'", what, "' holds ", kind_of(node), "; expected a string");
    return node.as_string()->get();
  }

  const toml::array& array_of(const toml::node& node, std::string_view what) const {
    if (!node.is_array()) fail(node, "'", what, "' is ", kind_of(node), "; expected an array");
    return *node.as_array();
  }

  const toml::table& table_of(const toml::node& node, std::string_view what) const {
    if (!node.is_table()) fail(node, "'", what, "' is ", kind_of(node), "; expected a table");
    return *node.as_table();
  }

  const toml::node& required(const toml::table& table, std::string_view key) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) fail(table, "'", key, "' is missing");
    return *node;
  }

  void read_lists(const toml::node& node, PolicyFile& file) const {
    for (const auto& [key, list] : table_of(node, kOperators)) {
      const auto cast_class = parse_cast_class(key.str());
      if (!cast_class || std::ranges::find(kListed, *cast_class) == kListed.end()) {
        std::array<std::string_view, kListed.size()> known;
        std::ranges::transform(kListed, known.begin(),
                               [](CastClass listed) { return name_of(listed); });
        raise<ConfigError>(name_, "line ", key.source().begin.line, ": unknown class '", key.str(),
                           "'", did_you_mean(key.str(), known));
      }
      for (const toml::node& op : array_of(list, key.str())) {
        file.entries.push_back({{string_of(op, key.str()), *cast_class, {}, {}}, line_of(op)});
      }
    }
  }

  void read_conditionals(const toml::node& node, PolicyFile& file) const {
    for (const toml::node& item : array_of(node, kConditional)) {
      const toml::table& rule = table_of(item, kConditional);
      check_keys(rule, {"operator", "argument", "values"});
      Override what{string_of(required(rule, "operator"), "operator"),
                    CastClass::kConditional,
                    string_of(required(rule, "argument"), "argument"),
                    {}};
      for (const toml::node& value : array_of(required(rule, "values"), "values")) {
        what.values.push_back(string_of(value, "values"));
      }
      file.entries.push_back({std::move(what), line_of(rule)});
    }
  }

  std::string_view name_;
};

/// A TOML basic string.
std::string toml_string(std::string_view text) {
  std::ostringstream out;
  out << '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out << '\\' << c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out << "\\u" << std::setw(4) << std::setfill('0') << std::hex << static_cast<int>(c);
    } else {
      out << c;
    }
  }
  out << '"';
  return out.str();
}

void write_list(CastClass cast_class, const std::vector<Override>& overrides, std::ostream& out) {
  std::vector<std::string> names;
  for (const Override& what : overrides) {
    if (what.cast_class == cast_class && std::ranges::find(names, what.name) == names.end()) {
      names.push_back(what.name);
    }
  }
  if (names.empty()) return;
  out << name_of(cast_class) << " = [\n";
  for (const std::string& name : names) out << "  " << toml_string(name) << ",\n";
  out << "]\n";
}

}  // namespace

PolicyFile read_policy_file(std::istream& in, std::string_view name) {
  return Reader(name).read(in);
}

void raise_at_line(std::string_view name, std::size_t line, const ConfigError& error) {
  std::string_view text = error.what();
  if (text.starts_with('[')) text.remove_prefix(std::min(text.find("] ") + 2, text.size()));
  raise<ConfigError>(name, "line ", line, ": ", text);
}

void write_policy_file(const Rules& rules, std::ostream& out) {
  out << kDtype << " = \"" << name_of(rules.low()) << "\"\n\n[" << kOperators << "]\n";
  for (const CastClass cast_class : kListed) write_list(cast_class, rules.overrides(), out);
  for (const Override& what : rules.overrides()) {
    if (what.cast_class != CastClass::kConditional) continue;
    out << "\n[[" << kConditional << "]]\n"
        << "operator = " << toml_string(what.name) << "\n"
        << "argument = " << toml_string(what.argument) << "\n";
    out << "values = [";
    for (std::size_t i = 0; i < what.values.size(); ++i) {
      out << (i == 0 ? "" : ", ") << toml_string(what.values[i]);
    }
    out << "]\n";
  }
}

}  // namespace mezzo
