// A model with a float16 part of its author's.
#pragma once

#include <string>
#include <vector>

#include "builder.h"
#include "small_models.h"

namespace mezzo::convert {

/// A part of it runs in half already, far from zero.
inline Message half_island(bool is_made, bool is_multiplied) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {4, 8}).weight("w", uniform_values(64, 0.4F, 5), {8, 8});
  const std::uint16_t thousand = 0x63D0;
  g.initializer(tensor<std::uint16_t>("thousand", Element::kFloat16, {}, {thousand}));
  if (is_made) g.node("MatMul", {"x", "w"}, {"m"});
  g.node("Cast", {is_made ? "m" : "x"}, {"h"}, attribute("to", 10));
  g.node("Add", {"h", "thousand"}, {"sum"}).node("Cast", {"sum"}, {"up"}, attribute("to", 1));
  g.node(is_multiplied ? "MatMul" : "Identity",
         is_multiplied ? std::vector<std::string>{"up", "w"} : std::vector<std::string>{"up"},
         {"y"});
  return model(g.output("y", Element::kFloat, {4, 8}).take());
}

}  // namespace mezzo::convert
