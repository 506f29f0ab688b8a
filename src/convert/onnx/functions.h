// A model's own functions, and what their calls come to: every call is a copy with types of its
// own.
#pragma once

#include <map>
#include <string_view>
#include <tuple>

#include "convert/onnx/wire.h"

namespace mezzo::convert {

class Functions {
 public:
  /// Throws Error where one is defined twice. The model must outlive this object.
  explicit Functions(Message& model);

  /// The function that this node calls, or null: an operator.
  Message* called_by(const Message& node) const;

  /// Throws Error if the main graph, with a copy of a function for every call, has more nodes,
  /// values or copies than memory should be spent on; where a function calls itself; or where
  /// graphs are nested too deeply.
  void check_size(Message& main) const;

 private:
  using Key = std::tuple<std::string_view, std::string_view, std::string_view>;

  std::map<Key, Message*> functions_;  // by domain, name and overload
};

inline constexpr int kDeepestNesting = 64;

}  // namespace mezzo::convert
