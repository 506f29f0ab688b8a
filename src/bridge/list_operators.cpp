#include "bridge/list_operators.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

namespace mezzo::bridge::by_operators {
namespace {

// The type that results are computed in: float, or double if anything is.
at::ScalarType wide_type(std::initializer_list<at::ScalarType> types) {
  const bool any_double = std::find(types.begin(), types.end(), at::kDouble) != types.end();
  return any_double ? at::kDouble : at::kFloat;
}

at::Tensor widened(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.detach().to(type);
}

void write(const std::vector<at::Tensor>& results, at::TensorList out) {
  std::vector<at::Tensor> targets;
  for (const at::Tensor& tensor : out) targets.push_back(tensor.detach());
  at::_foreach_copy_(targets, results);
}

}  // namespace

double norm(at::TensorList tensors, kernels::Norm which, std::vector<double>* per_tensor) {
  const bool two = which == kernels::Norm::kTwo;
  const double order = two ? 2 : std::numeric_limits<double>::infinity();
  std::vector<double> each(tensors.size(), 0.0);
  // One read per device; the largest magnitude of nothing is an error to LibTorch.
  std::map<std::string, std::vector<std::size_t>> of_device;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].numel() > 0) of_device[tensors[i].device().str()].push_back(i);
  }
  for (const auto& [device, indices] : of_device) {
    std::vector<at::Tensor> list;
    for (const std::size_t i : indices) list.push_back(tensors[i].detach());
    const at::Tensor norms = at::stack(at::_foreach_norm(list, order, at::kDouble)).cpu();
    for (std::size_t k = 0; k < indices.size(); ++k) {
      each[indices[k]] = norms.const_data_ptr<double>()[k];
    }
  }
  double total = 0;
  for (const double of_tensor : each) {
    if (two) {
      total = std::hypot(total, of_tensor);
    } else if (std::isnan(of_tensor) || of_tensor > total) {
      total = of_tensor;  // NaN stays: nothing is larger
    }
  }
  if (per_tensor != nullptr) *per_tensor = std::move(each);
  return total;
}

bool all_finite(at::TensorList tensors) {
  return std::isfinite(norm(tensors, kernels::Norm::kMax, nullptr));
}

bool scale(at::TensorList in, at::TensorList out, double factor) {
  std::vector<at::Tensor> results;
  for (std::size_t i = 0; i < in.size(); ++i) {
    results.push_back(widened(in[i], wide_type({in[i].scalar_type(), out[i].scalar_type()})));
  }
  if (results.empty()) return true;
  write(at::_foreach_mul(results, factor), out);
  return all_finite(out);
}

bool axpby(at::TensorList x, at::TensorList y, at::TensorList out, double a, double b) {
  return axpby(x, y, out, std::vector<double>(x.size(), a), std::vector<double>(x.size(), b));
}

bool axpby(at::TensorList x, at::TensorList y, at::TensorList out, const std::vector<double>& a,
           const std::vector<double>& b) {
  std::vector<at::Tensor> left;
  std::vector<at::Tensor> right;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const at::ScalarType type =
        wide_type({x[i].scalar_type(), y[i].scalar_type(), out[i].scalar_type()});
    left.push_back(widened(x[i], type));
    right.push_back(widened(y[i], type));
  }
  if (left.empty()) return true;
  const auto scalars = [](const std::vector<double>& numbers) {
    return std::vector<at::Scalar>(numbers.begin(), numbers.end());
  };
  write(at::_foreach_add(at::_foreach_mul(left, scalars(a)), at::_foreach_mul(right, scalars(b))),
        out);
  return all_finite(out);
}

void copy(at::TensorList in, at::TensorList out) {
  if (in.empty()) return;
  std::map<const void*, std::vector<std::size_t>> written;  // the outputs of each storage
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].has_storage())
      written[out[i].unsafeGetTensorImpl()->storage().unsafeGetStorageImpl()].push_back(i);
  }
  std::vector<at::Tensor> values;
  for (std::size_t i = 0; i < in.size(); ++i) {
    values.push_back(in[i].detach());
    if (!in[i].has_storage()) continue;
    // They are written one by one: what lies where others are written is read before.
    const auto others = written.find(in[i].unsafeGetTensorImpl()->storage().unsafeGetStorageImpl());
    const bool is_safe = others == written.end() || others->second == std::vector<std::size_t>{i};
    if (!is_safe) values.back() = values.back().clone();
  }
  write(values, out);
}

}  // namespace mezzo::bridge::by_operators
