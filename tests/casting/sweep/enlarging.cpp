#include "casting/sweep/enlarging.h"

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace mezzo::casting::sweep {
namespace {

constexpr std::int64_t kMostValues = std::int64_t{1} << 21;
constexpr std::int64_t kSide = 128;  // of an image
constexpr std::int64_t kWindow = 64;

bool has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

std::vector<std::int64_t> sizes_in(const Stack& stack) {
  std::vector<std::int64_t> sizes;
  for (const c10::IValue& value : stack) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    for (const std::int64_t size : value.toTensor().sizes()) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

Enlarging::Enlarging(std::string_view overload)
    : random_(std::hash<std::string_view>()(overload) + 12345) {}

at::Tensor Enlarging::tensor(const at::Tensor& small) {
  if (!small.defined() || small.layout() != at::kStrided) return small;
  std::vector<std::int64_t> sizes = small.sizes().vec();
  if (is_spatial_) {
    const std::size_t first = sizes.size() > 2 ? sizes.size() - 2 : sizes.size();
    for (std::size_t i = first; i < sizes.size(); ++i) sizes[i] = chance(85) ? kSide : 2;
  } else {
    for (std::int64_t& size : sizes) {
      if (size == changed_size_ && chance(share_)) size = kManyTerms;
    }
  }
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  if (count > kMostValues) return {};
  if (small.scalar_type() == at::kBool) return torch::ones(sizes, at::kBool);
  return small.is_floating_point() ? torch::ones(sizes) : torch::zeros(sizes, small.options());
}

std::int64_t Enlarging::window(std::string_view name, std::int64_t small) {
  if (has(name, "kernel")) return kWindow;
  if (has(name, "stride") || has(name, "dilation")) return 1;
  if (has(name, "output") || has(name, "size")) return kSide;
  if (has(name, "pad")) return chance(70) ? kWindow : 0;
  return small;
}

c10::IValue Enlarging::number(std::string_view name, std::int64_t small) {
  if (has(name, "dim") || has(name, "axis") || small < 0) return small;
  if (is_spatial_) return window(name, small);
  if (has(name, "step") || has(name, "mode")) return chance(70) ? 1 : small;
  return chance(50) ? (chance(70) ? kManyTerms : kWindow) : small;
}

std::optional<Stack> Enlarging::enlarge(const c10::FunctionSchema& schema, const Stack& small) {
  const std::vector<std::int64_t> sizes = sizes_in(small);
  is_spatial_ = chance(40);
  changed_size_ = sizes.empty() ? 1 : sizes[random_() % sizes.size()];
  share_ = chance(50) ? 100 : 50;
  Stack large;
  for (std::size_t i = 0; i < small.size(); ++i) {
    const c10::IValue& value = small[i];
    const std::string& name = schema.arguments()[i].name();
    if (value.isTensor()) {
      const at::Tensor made = tensor(value.toTensor());
      if (value.toTensor().defined() && !made.defined()) return std::nullopt;
      large.push_back(made);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> all;
      for (const at::Tensor& each : value.toTensorVector()) {
        const at::Tensor made = tensor(each);
        if (!made.defined()) return std::nullopt;
        all.push_back(made);
      }
      large.push_back(all);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> all;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorList())
        all.push_back(each ? std::optional(torch::zeros({kManyTerms}, at::kLong)) : each);
      large.push_back(all);
    } else if (value.isIntList()) {
      c10::List<std::int64_t> all;
      for (const std::int64_t each : value.toIntVector())
        all.push_back(is_spatial_ ? window(name, each) : number(name, each).toInt());
      large.push_back(all);
    } else if (value.isInt() && schema.arguments()[i].type()->kind() == c10::TypeKind::IntType) {
      large.push_back(number(name, value.toInt()));
    } else {
      large.push_back(value);
    }
  }
  return large;
}

}  // namespace mezzo::casting::sweep
