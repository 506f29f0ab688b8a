// Looks at a network before it trains in mixed precision, and says what will go wrong.
//
//   for (const auto& finding : mezzo::insight::lint(model, optimizer, {batch.data}))
//     log << finding.where << ": " << finding.evidence << "; " << finding.advice;
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/insight_diagnosis.h"
#include "mezzo/insight_examples.h"
#include "mezzo/model.h"
#include "mezzo/optimizer.h"

namespace mezzo::insight {

/// @cond
namespace detail {

/// The model and optimizer that lint() looks at.
struct LintSubject {
  std::shared_ptr<torch::nn::Module> module;
  std::shared_ptr<mezzo::amp::detail::ModelState> state;  // null: a bare network
  torch::optim::Optimizer* optimizer = nullptr;
  std::vector<std::function<void()>> calls;  // one per example
};

template <typename M>
void add_network(const M& model, LintSubject& subject) {
  if constexpr (std::is_base_of_v<mezzo::amp::detail::ModelHandle, M>) {
    subject.state = model.state();
    subject.module = mezzo::amp::detail::module_of(model.module());
  } else if constexpr (requires { model.module(); }) {
    add_network(model.module(), subject);
  } else {
    subject.module = mezzo::amp::detail::module_of(model);
  }
}

MEZZO_API std::vector<Finding> lint(const LintSubject& subject);

}  // namespace detail
/// @endcond

/// Checks a network, bare or initialized, and its optimizer. `where` is the module or parameter,
/// `evidence` names the levels that it concerns. Errors come first, then warnings, then hints;
/// empty if nothing is found. Kinds:
/// - "range": weights that are not finite, or that float16 cannot hold (error);
/// - "unowned": trainable parameters that the optimizer does not hold (warning);
/// - "optimizer_eps": an epsilon that is zero in the type in which O3 keeps the state (warning);
/// - "epsilon": an epsilon of a norm that is zero in float16, or one that a call of the network
///   adds, or bounds a tensor by, before it divides by that or takes a root or logarithm of it
///   (warning);
/// - "mask": a number beyond the range of float16 that a call of the network fills or adds
/// (warning);
/// - "buffer": a float buffer that O2, O3 and O5 would cast: tables, statistics of one's own
///   (warning);
/// - "batch_norm_eval": a batch norm in evaluation mode inside a network that trains (info);
/// - "custom_function": an autograd function that no policy knows (info);
/// - "sizes": sizes of weights that are no multiples of 8, which matrix units do not like (info).
///
/// `examples` are run through the network without a trace: generators and buffers are given back.
/// Without them "mask", "custom_function" and epsilons outside of norms are not found. They are
/// - a list of tensors, each for one call; of a network that takes several tensors, or a list of
///   them, the arguments of one call;
/// - a std::tuple of the arguments of one call, of whatever types `forward` takes, or a range of
///   such tuples;
/// - the only argument of `forward`, or a range of such;
/// - values in braces, `{x, mask, 0.5}`, or of TorchScript, as deploy::trace takes them:
///   std::vector<c10::IValue>, deploy::Examples, or a range of these.
/// Throws ConfigError for values that `forward` does not take, and what it throws.
template <class M, class O, class E = detail::BracedExamples>
std::vector<Finding> lint(const M& model, O& optimizer, const E& examples = {}) {
  detail::LintSubject subject;
  detail::add_network(model, subject);
  if constexpr (std::is_base_of_v<torch::optim::Optimizer, O>) {
    subject.optimizer = &optimizer;
  } else {
    subject.optimizer = &optimizer.inner();
  }
  detail::add_example_calls(model, examples, subject.calls);
  return detail::lint(subject);
}

}  // namespace mezzo::insight
