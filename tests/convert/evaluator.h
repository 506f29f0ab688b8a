// The built-in evaluator for tests: its operators, and models evaluated in memory.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "builder.h"
#include "convert/document.h"
#include "convert/evaluate.h"

namespace mezzo::convert {

inline const OperatorLibrary& library() {
  static const OperatorLibrary* const kLibrary = [] {
    std::string why;
    const OperatorLibrary* opened = open_operators(MEZZO_EVALUATOR, &why);
    EXPECT_NE(opened, nullptr) << why;
    return opened;
  }();
  return *kLibrary;
}

inline std::vector<Array> evaluated(const Message& made, const Sample& sample) {
  Document document(bytes_of(made));
  const Graph graph(document);
  std::vector<Array> outputs;
  for (const DatumPtr& datum : Evaluation(library(), document, graph).run(sample))
    outputs.push_back(datum->tensor);
  return outputs;
}

template <typename T>
Array array(Element element, const std::vector<std::int64_t>& dims, const std::vector<T>& values) {
  Array made;
  made.element = element;
  made.dims = dims;
  made.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return made;
}

}  // namespace mezzo::convert
