// The parts of the table, joined and sorted by the compiler.
#include <algorithm>

#include "operators/operators.h"
#include "operators/rows/float_only.h"
#include "operators/rows/layer.h"
#include "operators/rows/linalg.h"
#include "operators/rows/loss.h"
#include "operators/rows/matrix.h"
#include "operators/rows/norm.h"
#include "operators/rows/one_type.h"
#include "operators/rows/pointwise.h"
#include "operators/rows/reduction.h"
#include "operators/rows/shape.h"

namespace mezzo {
namespace {

template <std::size_t... Sizes>
consteval auto joined(const std::array<Operator, Sizes>&... parts) {
  std::array<Operator, (Sizes + ...)> all{};
  auto to = all.begin();
  ((to = std::ranges::copy(parts, to).out), ...);
  std::ranges::sort(all, {}, &Operator::name);
  return all;
}

constexpr auto kOperators =
    joined(rows::kFloatOnlyRows, rows::kLayerRows, rows::kLinalgRows, rows::kLossRows,
           rows::kMatrixRows, rows::kNormRows, rows::kOneTypeRows, rows::kPointwiseRows,
           rows::kReductionRows, rows::kShapeRows);

static_assert(std::ranges::adjacent_find(kOperators, {}, &Operator::name) == kOperators.end(),
              "an overload stands in one part of the table only");
static_assert(std::ranges::none_of(kOperators,
                                   [](const Operator& op) {
                                     return op.name.empty() || op.why.empty();
                                   }),
              "every row has a name and a reason");

}  // namespace

std::span<const Operator> operators() noexcept {
  return kOperators;
}

std::optional<std::size_t> index_of(std::string_view name) noexcept {
  const auto* row = std::ranges::lower_bound(kOperators, name, {}, &Operator::name);
  if (row == kOperators.end() || row->name != name) return std::nullopt;
  return static_cast<std::size_t>(row - kOperators.begin());
}

}  // namespace mezzo
