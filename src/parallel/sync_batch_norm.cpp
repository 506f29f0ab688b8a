#include "parallel/sync_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "bridge/tensors.h"
#include "parallel/batch_norm_steps.h"
#include "parallel/group.h"
#include "parallel/rank_statistics.h"

namespace mezzo::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The backward's inputs beside tensors.
struct Prepared final : torch::CustomClassHolder {
  std::string where;
  std::optional<ProcessGroup> group;
  bool batch_statistics = true;
  bool relu = false;
  double eps = 0;
  ElementCount count;
  bool any_input = false;
  std::shared_ptr<const RankWords> words;
  bool wants_dx = false;
  bool wants_dz = false;
  at::ScalarType weight_type = at::kFloat;
  at::ScalarType bias_type = at::kFloat;
  at::ScalarType z_type = at::kFloat;
  bool has_weight = false;
  bool has_bias = false;
};

struct Gradients {
  at::Tensor dx, dz, dweight, dbias;
};

struct Saved {
  at::Tensor x, weight, y, mean, rstd;
};

// Before a backward's collective: a rank that does not come would be waited for. On a device its
// words may not be there yet; then the next norm hears them.
void check_peers(const Prepared& p) {
  if (p.words != nullptr) p.group->internals().unheard_words().add_backward(p.words);
}

// The sums over all ranks; behind them travels who is here by which way. Those who want a graph of
// the backward make other collectives than those who want none: a transport would answer with an
// abort.
at::Tensor agreed_sums(const Prepared& p, const at::Tensor& sums, bool wants_graph) {
  if (!p.group) return sums;
  const std::int64_t elements = sums.numel();
  const at::Tensor given = at::zeros({elements + 2}, sums.options().requires_grad(false));
  given.narrow(0, 0, elements).copy_(sums.reshape({-1}));
  given.narrow(0, elements + (wants_graph ? 1 : 0), 1).fill_(1);
  const at::Tensor total = sum_over_ranks(given, p.group);
  // Reading costs a GPU a stop: there those who want the graph find out.
  if (total.is_cpu() || wants_graph) {
    const at::Tensor seen = total.narrow(0, elements, 2).cpu();
    const double* ranks = seen.const_data_ptr<double>();
    if (ranks[0] > 0 && ranks[1] > 0) {
      raise<ConfigError>(p.where, ranks[1],
                         " of the ranks run this backward with create_graph and ", ranks[0],
                         " without; expected all or none");
    }
  }
  return total.narrow(0, 0, elements).view(sums.sizes());
}

Gradients by_steps(const Prepared& p, const Saved& saved, const at::Tensor& dy) {
  const BatchStep step{
      laid_out(saved.x.detach()), saved.mean, saved.rstd, saved.weight, {}, p.relu};
  Gradients result;
  at::Tensor means;
  const bool reduces = p.batch_statistics && p.any_input;
  if (reduces || p.has_weight || p.has_bias) {
    const at::Tensor sums = batch_gradient_sums(step, dy, saved.y);
    if (p.has_weight) result.dweight = (sums[1] * saved.rstd).to(p.weight_type);
    if (p.has_bias) result.dbias = sums[0].to(p.bias_type);
    if (reduces) {
      check_peers(p);
      means = p.count.divide(agreed_sums(p, sums, false));
    }
  }
  std::tie(result.dx, result.dz) =
      batch_gradients(step, dy, saved.y, means, p.wants_dx, p.wants_dz);
  return result;
}

// For a graph of the backward: the same from differentiable operators, statistics included.
Gradients by_graph(const Prepared& p, const Saved& saved, const at::Tensor& dy) {
  const at::Tensor& x = saved.x;
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  // Where no rank's input wants a gradient the statistics are constants, and nothing travels.
  const bool reduces = p.batch_statistics && p.any_input;
  if (reduces) {
    check_peers(p);
    (void)agreed_sums(p, at::zeros({2, x.size(1)}, saved.mean.options()), true);
  }
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  std::vector<std::int64_t> dims{0};
  for (std::int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  const auto over_ranks = [&](const at::Tensor& numbers) {
    return p.count.divide(differentiable_sum(numbers.sum(dims), p.group)).reshape(shape);
  };
  const at::Tensor numbers = x.to(type);
  at::Tensor mean = saved.mean.to(type).reshape(shape);
  at::Tensor rstd = saved.rstd.to(type).reshape(shape);
  if (reduces) {
    mean = over_ranks(numbers);
    rstd = (over_ranks((numbers - mean).square()) + p.eps).rsqrt();
  }
  const at::Tensor hat = (numbers - mean) * rstd;
  at::Tensor g = dy.to(type);
  if (p.relu) g = at::where(saved.y.detach() <= 0, 0, g);
  Gradients result;
  if (p.has_weight) result.dweight = (g * hat).sum(dims).to(p.weight_type);
  if (p.has_bias) result.dbias = g.sum(dims).to(p.bias_type);
  if (p.wants_dz) result.dz = g;
  at::Tensor dx = g;
  if (reduces) {
    dx = g - over_ranks(g) - hat * over_ranks(g * hat);
  }
  if (!p.wants_dx) return result;
  dx = dx * rstd;
  if (p.has_weight) dx = dx * saved.weight.to(type).reshape(shape);
  result.dx = dx.to(x.scalar_type());
  return result;
}

class BatchNormFunction : public torch::autograd::Function<BatchNormFunction> {
 public:
  // Autograd wants missing tensors as nothing, not as undefined ones.
  using MaybeTensor = std::optional<at::Tensor>;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const MaybeTensor& z,
                            const MaybeTensor& weight, const MaybeTensor& bias,
                            const at::Tensor& mean, const at::Tensor& rstd,
                            const c10::intrusive_ptr<Prepared>& prepared) {
    const BatchStep step{
        laid_out(x),   mean, rstd, weight.value_or(at::Tensor()), bias.value_or(at::Tensor()),
        prepared->relu};
    at::Tensor y = batch_normalised(step, z.value_or(at::Tensor()));
    context->save_for_backward({x, step.weight, prepared->relu ? y : at::Tensor(), mean, rstd});
    context->saved_data["prepared"] = c10::IValue::make_capsule(prepared);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto prepared =
        c10::static_intrusive_pointer_cast<Prepared>(context->saved_data["prepared"].toCapsule());
    const variable_list v = context->get_saved_variables();
    const Saved saved{v[0], v[1], v[2], v[3], v[4]};
    const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
    const Gradients got = at::GradMode::is_enabled() ? by_graph(*prepared, saved, grads[0])
                                                     : by_steps(*prepared, saved, grads[0]);
    variable_list result(7);
    result[0] = got.dx;
    if (got.dz.defined()) result[1] = got.dz.to(prepared->z_type);
    result[2] = got.dweight;
    result[3] = got.dbias;
    return result;
  }
};

void check_floating(const BatchNormCall& call, const char* what, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided ||
      !bridge::kernel_dtype(tensor.scalar_type())) {
    raise<ConfigError>(call.where, what, " is ", bridge::describe(tensor),
                       "; expected a dense tensor of Float, Half, BFloat16 or Double");
  }
}

void check_row(const BatchNormCall& call, const char* what, const at::Tensor& tensor,
               std::int64_t channels) {
  if (!tensor.defined()) return;
  check_floating(call, what, tensor);
  if (tensor.dim() != 1 || tensor.size(0) != channels || tensor.device() != call.x.device()) {
    raise<ConfigError>(call.where, what, " is ", bridge::describe(tensor), ", the input ",
                       bridge::describe(call.x), "; expected [", channels, "] on ",
                       call.x.device());
  }
}

void check_call(const BatchNormCall& call) {
  check_floating(call, "the input", call.x);
  if (call.x.dim() < 1 || call.x.dim() > 5) {
    raise<ConfigError>(call.where, "the input is ", bridge::describe(call.x),
                       "; expected 1 to 5 dimensions");
  }
  const std::int64_t channels = call.x.size(call.channel_last || call.x.dim() == 1 ? -1 : 1);
  check_row(call, "weight", call.weight, channels);
  check_row(call, "bias", call.bias, channels);
  check_row(call, "running_mean", call.running_mean, channels);
  check_row(call, "running_var", call.running_var, channels);
  if (call.z.defined()) {
    check_floating(call, "z", call.z);
    if (call.z.sizes() != call.x.sizes() || call.z.device() != call.x.device()) {
      raise<ConfigError>(call.where, "z is ", bridge::describe(call.z), ", the input ",
                         bridge::describe(call.x), "; expected the same sizes and device");
    }
  }
}

// (C) is one sample; channels come to dimension 1.
at::Tensor channels_second(const at::Tensor& tensor, bool channel_last) {
  if (!tensor.defined()) return tensor;
  if (tensor.dim() == 1) return tensor.unsqueeze(0);
  return channel_last ? tensor.movedim(-1, 1) : tensor;
}

// How far running statistics go towards the batch's.
at::Tensor moved(const BatchNormCall& call, const at::Tensor& from, const at::Tensor& towards) {
  if (call.batches.defined()) {
    const at::Tensor m = call.batches.to(at::kDouble).add(1).reciprocal();
    return from * (1 - m) + towards * m;
  }
  return from * (1 - *call.momentum) + towards * *call.momentum;
}

void move_running(const BatchNormCall& call, const RankStatistics& statistics) {
  const ElementCount& count = statistics.count;
  const at::Tensor& there = count.there;
  const bool moves = call.momentum || call.batches.defined();
  if (!moves || (!there.defined() && count.known < 1)) return;
  const at::NoGradGuard no_grad;
  const auto move = [&](const at::Tensor& running, const at::Tensor& towards) {
    if (!running.defined()) return;
    const at::Tensor from = running.to(at::kDouble);
    const at::Tensor to = moved(call, from, towards);
    // Empty batches and the error of a single element, which the host will hear of, move nothing.
    running.copy_(there.defined() ? at::where(there > 1, to, from) : to);
  };
  move(call.running_mean, statistics.mean);
  move(call.running_var, count.divide(statistics.m2, 1));
}

bool wants(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace

std::optional<ProcessGroup> statistics_group(const std::optional<ProcessGroup>& given) {
  if (!given) {
    auto world = current_world();
    if (world == nullptr || world->size() == 1) return std::nullopt;
    return ProcessGroup(std::move(world));
  }
  if (!given->is_member()) {
    raise<ConfigError>("SyncBatchNorm", "this process is no member of its process group");
  }
  return given->size() == 1 ? std::nullopt : given;
}

at::Tensor sync_batch_norm(const BatchNormCall& call) {
  check_call(call);
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  const at::Tensor x = channels_second(call.x, call.channel_last);
  const at::Tensor z = channels_second(call.z, call.channel_last);
  const bool records = at::GradMode::is_enabled() &&
                       (wants(x) || wants(z) || wants(call.weight) || wants(call.bias));
  auto prepared = c10::make_intrusive<Prepared>();
  Prepared& p = *prepared;
  p.where = call.where;
  p.group = call.group;
  p.batch_statistics = call.batch_statistics;
  p.relu = call.relu;
  p.eps = call.eps;
  p.wants_dx = records && wants(x);
  p.wants_dz = records && wants(z);
  p.has_weight = call.weight.defined();
  p.has_bias = call.bias.defined();
  if (p.has_weight) p.weight_type = call.weight.scalar_type();
  if (p.has_bias) p.bias_type = call.bias.scalar_type();
  if (z.defined()) p.z_type = z.scalar_type();
  at::Tensor mean;
  at::Tensor variance;
  if (call.batch_statistics) {
    const std::int64_t per_channel = x.size(1) == 0 ? 0 : x.numel() / x.size(1);
    const auto count = static_cast<double>(per_channel);
    const Backward backward = !records     ? Backward::kNone
                              : p.wants_dx ? Backward::kInput
                                           : Backward::kWeights;
    const RankStatistics all =
        exchange_moments(batch_moments(laid_out(x.detach())), count, backward, call.group,
                         {call.where, bridge::describe(call.x)});
    p.count = all.count;
    p.any_input = all.any_input;
    p.words = all.words;
    mean = all.mean;
    variance = all.count.divide(all.m2);
    move_running(call, all);
  } else {
    mean = call.running_mean.detach().to(at::kDouble, false, true).contiguous();
    variance = call.running_var.detach().to(at::kDouble).contiguous();
  }
  const at::Tensor rstd = (variance + call.eps).rsqrt();
  at::Tensor y;
  if (records) {
    y = BatchNormFunction::apply(x, if_defined(z), if_defined(call.weight), if_defined(call.bias),
                                 mean, rstd, prepared);
  } else {
    y = batch_normalised({laid_out(x), mean, rstd, call.weight, call.bias, call.relu}, z);
  }
  if (call.x.dim() == 1) return y.squeeze(0);
  return call.channel_last ? y.movedim(1, -1) : y;
}

}  // namespace mezzo::parallel
