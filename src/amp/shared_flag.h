// An overflow flag on its way to the ranks that decide together.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "amp/session.h"
#include "core/torch.h"
#include "parallel/agreement.h"

namespace mezzo::amp::detail {

/// Begins to agree on a flag when it is made, so that the host can go on until the result is
/// needed.
///
/// All ranks do it for every loss, also where a reduction has made the gradients equal: a rank
/// whose gradients became infinite after that would skip alone, and have other weights than the
/// others from then on.
class SharedFlag {
 public:
  /// @param gradients  as the backward pass left them: have they been averaged?
  /// @param values     the same, which may have been moved and unscaled since: which is not finite?
  ///                   If gradients are sums, the first terms of all, then the second ones
  /// @param weight_of  returns the weight that the gradient at a place belongs to; `wait` calls it
  SharedFlag(const Session& session, at::Tensor flag, const std::vector<at::Tensor>& gradients,
             const std::vector<at::Tensor>& values,
             std::function<const at::Tensor&(std::size_t)> weight_of);

  /// The common decision. Once.
  Session::Verdict wait();

 private:
  const Session& session_;
  at::Tensor flag_;
  std::size_t count_;
  std::function<const at::Tensor&(std::size_t)> weight_of_;
  std::optional<parallel::ProcessGroup> group_;
  bool averaged_ = false;
  std::optional<std::vector<int>> before_the_average_;
  std::optional<parallel::OverflowAgreement> agreement_;
};

}  // namespace mezzo::amp::detail
