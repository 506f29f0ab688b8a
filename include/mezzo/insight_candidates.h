// Names of what may be kept in float: candidates for smallest_float_set().
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/insight_lint.h"

namespace mezzo::insight {

/// @cond
namespace detail {
MEZZO_API std::vector<std::string> modules_of(const LintSubject& subject);
MEZZO_API std::vector<std::string> operators_of(const LintSubject& subject,
                                                const std::function<at::Tensor()>& loss);
}  // namespace detail
/// @endcond

/// The paths of the modules that own floating-point parameters, in the order in which the network
/// registers them, then of those that own buffers alone: what Options::keep_float takes. Tensors of
/// the root itself are listed by their own names. `network` is bare or a Model. Throws ConfigError
/// if it is empty.
template <class M>
std::vector<std::string> modules_of(const M& network) {
  detail::LintSubject subject;
  detail::add_network(network, subject);
  return detail::modules_of(subject);
}

/// The operators that one call of `loss` makes and that the default lists do not compute in float
/// already, each once, in the order of their first calls: names that Policy::with takes. `loss`
/// calls `network`, which is bare or a Model; generators and the network's buffers are given back.
/// Throws what `loss` throws.
template <class M>
std::vector<std::string> operators_of(const M& network, const std::function<at::Tensor()>& loss) {
  detail::LintSubject subject;
  detail::add_network(network, subject);
  return detail::operators_of(subject, loss);
}

}  // namespace mezzo::insight
