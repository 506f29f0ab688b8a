// The converter's decision about one node of a model made in a test.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "builder.h"
#include "convert/decide/decide.h"
#include "convert/onnx/document.h"

namespace mezzo::convert {

// The decision about the node whose first output has that name.
inline Decision decision_on(const Message& made, const std::string& output,
                            const std::map<std::string, double>& ranges = {},
                            const std::string& dtype = "float16", double headroom = 4,
                            const std::string& profile = "portable") {
  Document document(bytes_of(made));
  const Graph graph(document);
  Options options;
  options.target_dtype = dtype;
  options.headroom = headroom;
  options.profile = profile;
  const ConvertPolicy policy(options);
  Constants constants(graph, policy.low());
  ValueRanges measured;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const auto found = ranges.find(std::string(graph.values[v].name));
    if (found != ranges.end()) measured[static_cast<ValueId>(v)] = found->second;
  }
  Evidence evidence;
  evidence.ranges = &measured;
  for (const Decision& decision : decide(graph, policy, constants, evidence).list) {
    if (decision.key == output) return decision;
  }
  ADD_FAILURE() << output << " is not there";
  return {};
}

}  // namespace mezzo::convert
