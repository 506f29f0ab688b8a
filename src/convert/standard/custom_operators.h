// Operators that the standard does not know, described in files: what they take and give, and how
// they are cast. ONNX Runtime's own come with us (onnxruntime_operators.inc); users add theirs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convert/standard/schema.h"
#include "mezzo/cast_class.h"

namespace mezzo::convert {

struct CustomOperator {
  Schema schema;
  CastClass cast = CastClass::kNeutral;
  std::string_view why;
};

class CustomOperators {
 public:
  /// The operators of ONNX Runtime.
  CustomOperators();
  /// Adds those of a file of the form that docs/convert.md describes; of two descriptions of
  /// an operator the later one holds. Throws ConfigError "[name] line N: ...".
  void add(std::string_view text, std::string_view name);

  /// By "domain::Op"; operators of the standard's domain have no "domain::" before them. Null: it
  /// is not described. The result lives as long as this object.
  const CustomOperator* find(std::string_view qualified_name) const;

  /// The operators of ONNX Runtime alone, read when first asked for.
  static const CustomOperators& built_in();

 private:
  struct Entry;
  friend class CustomOperatorReader;

  std::map<std::string, std::shared_ptr<const Entry>, std::less<>> entries_;
};

/// "domain::Op", or "Op" in the standard's domain.
std::string qualified_name(std::string_view domain, std::string_view op);

}  // namespace mezzo::convert
