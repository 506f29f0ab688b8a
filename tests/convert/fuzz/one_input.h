// What the fuzzer does with one input, and the test with every file of the corpus.
#pragma once

#include <string>

#include "convert/apply.h"
#include "convert/check.h"
#include "convert/constants.h"
#include "convert/decide.h"
#include "convert/document.h"
#include "convert/graph.h"
#include "convert/opset.h"
#include "mezzo/error.h"

namespace mezzo::convert {

/// Reads the bytes as a model and converts it in memory, in every way. An Error is the right answer
/// to most inputs; anything else is a defect. Aborts where a valid model becomes an invalid one.
inline void fuzz_one(const std::string& bytes) {
  for (const char* dtype : {"float16", "bfloat16"}) {
    for (const Storage storage : {Storage::kConverted, Storage::kRuntimeCast, Storage::kEmulated}) {
      try {
        Options options;
        options.target_dtype = dtype;
        Document document(bytes);
        if (storage == Storage::kRuntimeCast && !raise_opset(document, 18).empty()) continue;
        const Graph graph(document);
        const std::size_t before = check_graph(graph).size();
        const ConvertPolicy policy(options);
        Constants constants(graph, policy.low());
        const Decisions decisions = decide(graph, policy, constants);
        apply(document, graph, decisions, constants, policy.low(), storage);
        StringSink sink;
        document.model().write(sink);
        Document again(sink.text);
        const Graph after(again);
        if (before == 0 && !check_graph(after).empty()) __builtin_trap();
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace mezzo::convert
