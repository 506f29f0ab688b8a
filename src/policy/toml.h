// Policy files: what a caller changes, written down.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "core/raise.h"
#include "policy/rules.h"

namespace mezzo {

/// A policy file's content, in the file's order, each entry with its line.
struct PolicyFile {
  struct Entry {
    Override what;
    std::size_t line;
  };
  DType low;
  std::vector<Entry> entries;
};

/// Reads a file of the form that docs/policy.md describes. Throws ConfigError "[name] line N: ..."
/// for what is no TOML, an unknown key, a wrong type or a missing value; operators are not looked
/// up.
PolicyFile read_policy_file(std::istream&, std::string_view name);

/// Throws the ConfigError of another part again, with the file's name and line in its place.
[[noreturn]] void raise_at_line(std::string_view name, std::size_t line, const ConfigError&);

/// A policy (anything with Policy's `with` and `with_conditional`) changed by a file's entries, in
/// their order. A ConfigError names the file and the line.
template <typename Changeable>
Changeable changed_by(const PolicyFile& file, std::string_view name, Changeable policy) {
  for (const auto& [what, line] : file.entries) {
    try {
      policy = what.cast_class == CastClass::kConditional
                   ? policy.with_conditional(what.name, what.argument, what.values)
                   : policy.with(what.name, what.cast_class);
    } catch (const ConfigError& error) {
      raise_at_line(name, line, error);
    }
  }
  return policy;
}

/// Writes the low type and the overrides, so that reading them gives equal rules.
void write_policy_file(const Rules&, std::ostream&);

}  // namespace mezzo
