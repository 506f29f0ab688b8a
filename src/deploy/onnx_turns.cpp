#include "deploy/onnx_turns.h"

#include <ATen/ops/clone.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace mezzo::deploy::detail {
namespace {

namespace jit = torch::jit;

constexpr std::int64_t kMostTurns = 10000;

/// Modules stay: copies would double the weights. LibTorch copies no complex numbers.
c10::IValue copy_of(const c10::IValue& value) {
  return value.isObject() || value.isComplexDouble() ? value : value.deepcopy();
}

std::vector<c10::IValue> copies_of(const std::vector<c10::IValue>& values) {
  std::vector<c10::IValue> copies;
  copies.reserve(values.size());
  for (const c10::IValue& value : values) copies.push_back(copy_of(value));
  return copies;
}

std::int64_t length_of(const c10::IValue& value) {
  return value.isList() ? static_cast<std::int64_t>(value.toListRef().size()) : 0;
}

std::int64_t writes_of(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && !value.toTensor().is_inference()
             ? static_cast<std::int64_t>(value.toTensor()._version())
             : 0;
}

}  // namespace

LoopBody::LoopBody(const jit::Node& loop) {
  const auto graph = std::make_shared<jit::Graph>();
  std::unordered_map<jit::Value*, jit::Value*> inside;
  graph->block()->cloneFrom(const_cast<jit::Block*>(loop.blocks()[0]), [&](jit::Value* value) {
    jit::Value*& own = inside[value];
    if (own == nullptr) {
      own = graph->addInput();
      own->setType(value->type());
      captured_.push_back(value);
    }
    return own;
  });
  code_ = jit::Code(graph, "loop");
}

Turns LoopBody::run(std::int64_t count, bool condition, std::vector<c10::IValue> carried,
                    const std::vector<c10::IValue>& captured,
                    std::optional<std::int64_t> turns) const {
  const at::NoGradGuard no_grad;
  Turns result;
  Turn now{0, copies_of(carried), copies_of(captured)};
  const std::vector<c10::IValue> own = now.captured;  // the body writes to these
  std::vector<std::int64_t> lengths, writes;
  for (const c10::IValue& value : own) {
    lengths.push_back(length_of(value));
    writes.push_back(writes_of(value));
  }
  std::optional<Turn> last;
  const auto goes_on = [&] {
    return turns ? result.count < *turns : condition && result.count < count;
  };
  for (carried = now.carried; goes_on(); ++result.count) {
    if (result.count == kMostTurns)
      raise<UnsupportedError>("export_onnx", "a loop has more than ", kMostTurns,
                              " turns on the examples");
    Turn begin{result.count, copies_of(carried), own};
    for (std::size_t i = 0; i < own.size(); ++i) {
      const bool changes = result.count == 0 || result.is_written[i];
      if (changes) begin.captured[i] = copy_of(own[i]);
    }
    jit::Stack stack{result.count};
    stack.insert(stack.end(), carried.begin(), carried.end());
    stack.insert(stack.end(), own.begin(), own.end());
    jit::InterpreterState(code_).run(stack);
    condition = stack.at(0).toBool();
    carried.assign(stack.begin() + 1, stack.end());
    if (result.count < 2) {
      result.samples.push_back(std::move(begin));
    } else {
      last = std::move(begin);
    }
    if (result.count > 0) continue;
    for (std::size_t i = 0; i < own.size(); ++i) {
      result.is_written.push_back(writes_of(own[i]) != writes[i]);
      result.growths.push_back(length_of(own[i]) - lengths[i]);
    }
  }
  if (last) result.samples.push_back(std::move(*last));
  if (result.samples.empty()) {
    result.samples.push_back(std::move(now));
    result.is_written.assign(own.size(), false);
    result.growths.assign(own.size(), 0);
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (length_of(own[i]) - lengths[i] != result.count * result.growths[i])
      raise<UnsupportedError>("export_onnx", "a list does not grow alike in all turns of a loop, ",
                              "which cannot be said in ONNX; ", kSelectBehind);
  }
  result.after = {result.count, copies_of(carried), copies_of(own)};
  return result;
}

}  // namespace mezzo::deploy::detail
