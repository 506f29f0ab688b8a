#include "mezzo/gluon_outputs.h"

#include "core/torch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>

#include "gluon/trainer_state.h"
#include "mezzo/autocast.h"

namespace mezzo::gluon {
namespace {

constexpr const char* kOutput = "gluon output";

/// The result, whose gradient with respect to the data is what was computed with it.
struct OutputNode : torch::autograd::Function<OutputNode> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& data,
                            const at::Tensor& result, const at::Tensor& gradient) {
    context->save_for_backward({gradient});
    context->saved_data["type"] = static_cast<std::int64_t>(data.scalar_type());
    // A tensor of its own: a result that is an input would share its history.
    return result.is_same(data) ? result.clone() : result;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list&) {
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {context->get_saved_variables()[0].to(type), {}, {}};
  }
};

at::Tensor in_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

/// `predict()` gives the result; `gradient_of(result)` is without grad_scale and loss scale.
at::Tensor output_of(const at::Tensor& data, double grad_scale,
                     const std::function<at::Tensor()>& predict,
                     const std::function<at::Tensor(const at::Tensor&)>& gradient_of) {
  const amp::DisableCasts no_casts;
  const bool trains = at::GradMode::is_enabled();
  // Asked for data without a gradient, too: a program is wrong or not, whatever its data.
  const double loss_scale = trains ? detail::output_scale(data) : 1;
  const bool records = trains && data.requires_grad();
  at::Tensor result, gradient;
  {
    const at::NoGradGuard no_grad;
    result = predict();
    if (!records) return result;
    gradient = gradient_of(result).mul(grad_scale * loss_scale);
  }
  return OutputNode::apply(data, result, gradient);
}

enum class Normalization { kNull, kBatch, kValid };

Normalization normalization_of(const std::string& name) {
  if (name == "null") return Normalization::kNull;
  if (name == "batch") return Normalization::kBatch;
  if (name == "valid") return Normalization::kValid;
  raise<ConfigError>(kOutput, "normalization is '", name, "'; expected 'null', 'batch' or 'valid'");
}

/// SoftmaxOutput's data as [samples, classes, places].
at::Tensor by_classes(const at::Tensor& data, const SoftmaxOutputOptions& options) {
  if (data.dim() < (options.multi_output ? 2 : 1) || data.numel() == 0) {
    raise<ConfigError>(kOutput, "softmax_output of ", data.sizes(), "; expected [samples, ",
                       options.multi_output ? "classes, ...] with multi_output" : "classes]");
  }
  if (options.multi_output) return data.reshape({data.size(0), data.size(1), -1});
  if (options.preserve_shape) return data.reshape({-1, data.size(-1), 1});
  return data.reshape({data.size(0), -1, 1});
}

/// The gradient of the cross entropy with class indices, [samples, classes, places].
at::Tensor index_gradient(const at::Tensor& result, const at::Tensor& label,
                          const SoftmaxOutputOptions& options) {
  const std::int64_t samples = result.size(0), classes = result.size(1), places = result.size(2);
  const at::Tensor index = label.reshape({samples, 1, places});
  const at::Tensor column = index.to(at::kLong);
  const at::Tensor valid_column = column.clamp(0, classes - 1);
  const double others = classes > 1 ? options.smooth_alpha / static_cast<double>(classes - 1) : 0;
  const at::Tensor target = at::full(result.sizes(), others, result.options());
  target.scatter_(1, valid_column, 1 - options.smooth_alpha);
  // No class, no target: as in MXNet the probabilities alone are left.
  target.masked_fill_(column.ne(valid_column), others);
  at::Tensor gradient = result.sub(target);
  const at::Tensor ignored = column.eq(static_cast<std::int64_t>(options.ignore_label));
  if (options.use_ignore) gradient.masked_fill_(ignored, 0);
  const Normalization how = normalization_of(options.normalization);
  if (how != Normalization::kValid && options.multi_output) {
    gradient.div_(static_cast<double>(places));
  }
  if (how == Normalization::kBatch) gradient.div_(static_cast<double>(samples));
  if (how == Normalization::kValid) gradient.div_(ignored.logical_not().sum().clamp_min(1));
  return gradient;
}

at::Tensor regression_output(const char* name, const at::Tensor& data, const at::Tensor& label,
                             double grad_scale, at::Tensor (*predict)(const at::Tensor&),
                             at::Tensor (*error)(const at::Tensor&)) {
  if (data.numel() != label.numel() || data.dim() == 0) {
    raise<ConfigError>(kOutput, name, " of ", data.sizes(), " with a label of ", label.sizes(),
                       "; expected [samples, ...] and as many elements");
  }
  const std::int64_t outputs =
      label.numel() == 0 || label.dim() == 0 ? 1 : label.numel() / label.size(0);
  return output_of(
      data, grad_scale, [&] { return predict(in_float(data)); },
      [&](const at::Tensor& result) {
        const at::Tensor wanted = label.to(result.options()).reshape(result.sizes());
        return error(result.sub(wanted)).div(static_cast<double>(outputs));
      });
}

at::Tensor as_it_is(const at::Tensor& data) {
  return data;
}

}  // namespace

at::Tensor softmax_output(const at::Tensor& data, const at::Tensor& label,
                          const SoftmaxOutputOptions& options) {
  normalization_of(options.normalization);
  if (!(options.smooth_alpha >= 0 && options.smooth_alpha <= 1)) {
    raise<ConfigError>(kOutput, "smooth_alpha is ", options.smooth_alpha, "; expected 0 to 1");
  }
  const at::Tensor rows = by_classes(data, options);
  const bool is_index = label.numel() == rows.size(0) * rows.size(2);
  if (!is_index && label.sizes() != data.sizes()) {
    raise<ConfigError>(kOutput, "softmax_output of ", data.sizes(), " with a label of ",
                       label.sizes(), "; expected ", rows.size(0) * rows.size(2),
                       " class indices, or probabilities like the data");
  }
  return output_of(
      data, options.grad_scale,
      [&] { return at::softmax(in_float(rows), 1).reshape(data.sizes()); },
      [&](const at::Tensor& result) {
        if (label.sizes() == data.sizes()) return result.sub(label.to(result.options()));
        return index_gradient(result.reshape(rows.sizes()), label.to(result.device()), options)
            .reshape(data.sizes());
      });
}

at::Tensor linear_regression_output(const at::Tensor& data, const at::Tensor& label,
                                    RegressionOutputOptions options) {
  return regression_output("linear_regression_output", data, label, options.grad_scale, as_it_is,
                           as_it_is);
}

at::Tensor logistic_regression_output(const at::Tensor& data, const at::Tensor& label,
                                      RegressionOutputOptions options) {
  return regression_output("logistic_regression_output", data, label, options.grad_scale,
                           at::sigmoid, as_it_is);
}

at::Tensor mae_regression_output(const at::Tensor& data, const at::Tensor& label,
                                 RegressionOutputOptions options) {
  return regression_output("mae_regression_output", data, label, options.grad_scale, as_it_is,
                           [](const at::Tensor& error) { return error.sign(); });
}

}  // namespace mezzo::gluon
