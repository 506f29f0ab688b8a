// Which class MXNet's lists, as the caller changed them, give a node.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "mezzo/convert_mxnet.h"

namespace mezzo::convert::mxnet {

enum class Class : std::uint8_t { kLow, kFloat, kWidest, kNeutral };

class Lists {
 public:
  /// Throws ConfigError for options that cannot be, in the order of MXNet's checks.
  explicit Lists(const Options& options);

  Class class_of(const Node& node) const;
  bool is_bfloat16() const { return is_bfloat16_; }
  const std::string& dtype() const { return dtype_; }
  /// Excluded names that no node of these graphs has become a message.
  void tell_of_missing_names(const std::vector<const Symbol*>& graphs) const;

 private:
  std::string dtype_;
  bool is_bfloat16_ = false;
  std::set<std::string, std::less<>> low_, float_, widest_, excluded_;
  std::vector<Conditional> conditionals_;
};

}  // namespace mezzo::convert::mxnet
