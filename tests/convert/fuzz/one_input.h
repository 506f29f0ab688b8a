// The fuzzer's treatment of one input, and the test with every file of the corpus.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "convert/decide/decide.h"
#include "convert/engine/samples.h"
#include "convert/from_mxnet/translate.h"
#include "convert/graph/check.h"
#include "convert/graph/constants.h"
#include "convert/graph/graph.h"
#include "convert/onnx/document.h"
#include "convert/onnx/tensor.h"
#include "convert/prepare/opset.h"
#include "convert/rewrite/apply.h"
#include "mezzo/error.h"

namespace mezzo::convert {

/// The readers beside that of models: plans by their brace, archives and arrays of NumPy by their
/// first letters.
inline void fuzz_readers(const std::string& bytes) {
  const std::string_view text = bytes;
  try {
    if (text.starts_with('{')) {
      const Plan plan = Plan::from_json(text);
      if (Plan::from_json(plan.to_json()).to_json() != plan.to_json()) __builtin_trap();
    } else if (text.starts_with("PK")) {
      read_npz(text, "fuzz.npz");
    } else if (text.starts_with("\x93NUMPY")) {
      const Array array = read_npy(text, "fuzz.npy");
      if (array.bytes.size() != array.count() * size_of(array.element)) __builtin_trap();
    }
  } catch (const Error&) {
  }
}

/// MXNet's files: graphs by their brace, parameters by their magic number. A graph that was read is
/// written and read again as the same one, and becomes ONNX or an Error.
inline void fuzz_mxnet(const std::string& bytes) {
  const std::string_view text = bytes;
  try {
    if (text.starts_with('{')) {
      const mxnet::Symbol symbol = mxnet::Symbol::from_json(text, "fuzz-symbol.json");
      if (mxnet::Symbol::from_json(symbol.to_json()).to_json() != symbol.to_json())
        __builtin_trap();
      mxnet::OnnxWriter writer;
      mxnet::translate({symbol, {}, {}}, {}, writer);
    } else if (text.starts_with(std::string_view("\x12\x01\0\0", 4))) {
      const mxnet::NDArrays arrays = mxnet::NDArrays::from_bytes(text, "fuzz.params");
      for (const std::string& name : arrays.names()) arrays.bytes(name);
    }
  } catch (const Error&) {
  }
}

inline void read_tensors(const Graph& graph) {
  for (const Value& value : graph.values) {
    if (value.initializer != nullptr && value.origin != Origin::kSparseInitializer)
      read_tensor(graph.document(), *value.initializer);
  }
}

/// Do all tensors of a model hold what their shapes tell? Those that a conversion has no need to
/// read stay as they were.
inline bool has_whole_tensors(const std::string& bytes) {
  try {
    Document document(bytes);
    read_tensors(Graph(document));
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Can what a conversion wrote be read, and does it hold what its shapes tell where the model did?
/// Aborts where not: no Error is an answer to what is our own.
inline bool is_valid(const std::string& converted, bool is_whole) {
  try {
    Document document(converted);
    const Graph graph(document);
    if (is_whole) read_tensors(graph);
    return check_graph(graph).empty();
  } catch (const Error&) {
    __builtin_trap();
  }
}

/// Reads the bytes as a model and converts it in memory, in every way; bytes that begin like a plan
/// or like samples go to their readers. An Error is the right answer to most inputs; anything else
/// is a defect. Aborts where a valid model becomes an invalid one.
inline void fuzz_one(const std::string& bytes) {
  fuzz_readers(bytes);
  fuzz_mxnet(bytes);
  const bool is_whole = has_whole_tensors(bytes);
  for (const char* dtype : {"float16", "bfloat16"}) {
    for (const Storage storage : {Storage::kConverted, Storage::kRuntimeCast, Storage::kEmulated}) {
      std::string converted;
      std::size_t before = 0;
      try {
        Options options;
        options.target_dtype = dtype;
        Document document(bytes);
        if (storage == Storage::kRuntimeCast && !raise_opset(document, 18).empty()) continue;
        const Graph graph(document);
        before = check_graph(graph).size();
        const ConvertPolicy policy(options);
        Constants constants(graph, policy.low());
        const Decisions decisions = decide(graph, policy, constants);
        apply(document, graph, decisions, constants, policy.low(), storage);
        StringSink sink;
        document.model().write(sink);
        converted = std::move(sink.text);
      } catch (const Error&) {
        continue;
      }
      if (!is_valid(converted, is_whole) && before == 0) __builtin_trap();
    }
  }
}

}  // namespace mezzo::convert
