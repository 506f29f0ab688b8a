// Questions about batch norms in pieces.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <array>

#include "bridge/device.h"
#include "bridge/device_index.h"
#include "bridge/known_answers.h"
#include "bridge/rows.h"
#include "kernels/cuda_library.h"

namespace mezzo::bridge {
namespace {

constexpr std::array<std::int64_t, 2> kOthers{0, 2};
constexpr at::IntArrayRef kAllButChannels(kOthers);

/// Samples, channels, places: [N, C, S].
struct BatchQuestion {
  std::int64_t samples, channels, places;
  at::ScalarType type;
};

class BatchQuestions {
 public:
  BatchQuestions(const kernels::cuda::Interface& cuda, const at::Device& device,
                 const BatchQuestion& question, Answers& answers)
      : cuda_(cuda),
        device_(device),
        answers_(answers),
        stream_(current_stream(device)),
        type_(question.type),
        shape_{question.samples, question.channels, question.places},
        x_(numbers(1)),
        residual_(numbers(2)),
        dy_(numbers(3)),
        weight_(of_channels(4)),
        bias_(of_channels(5)),
        wide_(x_.to(at::kDouble)),
        mean_(wide_.mean(kAllButChannels)),
        rstd_(wide_.var(kAllButChannels, /*unbiased=*/false, /*keepdim=*/false).add(1e-3).rsqrt()),
        y_(normalised()) {}

  void ask() {
    moments();
    merge();
    normalise();
    const at::Tensor sums = gradient_sums();
    apply(sums.div(static_cast<double>(shape_.count())));
  }

 private:
  at::Tensor numbers(double phase) const {
    return known_numbers({shape_.samples, shape_.channels, shape_.places}, phase, type_, device_);
  }
  at::Tensor of_channels(double phase) const {
    return known_numbers({shape_.channels}, phase, at::kFloat, device_).add_(1.5);
  }
  static at::Tensor beside(const at::Tensor& of_channel) {
    return of_channel.to(at::kDouble).reshape({1, -1, 1});
  }
  int index() const { return index_of(device_); }
  void done(bool is_done) const { kernels::check_cuda(cuda_, is_done, "batch norm"); }
  at::Tensor scratch() const {
    return at::empty({cuda_.batch_scratch(&shape_, index())},
                     at::TensorOptions(device_).dtype(at::kDouble));
  }
  double tolerance() const { return 4 * tolerance_of(type_); }

  /// With the residual and without what is below 0.
  at::Tensor normalised() const {
    const at::Tensor hat = wide_.sub(beside(mean_)).mul(beside(rstd_));
    return hat.mul(beside(weight_)).add(beside(bias_)).add(residual_.to(at::kDouble)).clamp_min(0);
  }

  void moments() {
    const Answered mean(shape_.channels, at::kDouble, device_);
    const Answered m2(shape_.channels, at::kDouble, device_);
    const kernels::Rows x = rows_of(x_);
    const kernels::Moments moments{mean.tensor().mutable_data_ptr<double>(),
                                   m2.tensor().mutable_data_ptr<double>()};
    const at::Tensor memory = scratch();
    done(cuda_.batch_moments(&x, &shape_, &moments, memory.mutable_data_ptr<double>(), index(),
                             stream_));
    mean.expect(answers_, "batch norm: mean", mean_, tolerance_of(at::kFloat));
    m2.expect(answers_, "batch norm: squared deviations",
              wide_.sub(beside(mean_)).square().sum(kAllButChannels), 4 * tolerance_of(at::kFloat));
  }

  /// One rank has this batch, another has it twice: as if it were here three times.
  void merge() {
    const at::Tensor m2 = wide_.sub(beside(mean_)).square().sum(kAllButChannels);
    const auto count = static_cast<double>(shape_.count());
    const auto rank = [&](double times) {
      return at::cat({mean_, m2.mul(times), at::full({1}, times * count, mean_.options())});
    };
    const at::Tensor ranks = at::stack({rank(1), rank(2)});
    const Answered mean(shape_.channels, at::kDouble, device_);
    const Answered merged(shape_.channels, at::kDouble, device_);
    const kernels::Moments moments{mean.tensor().mutable_data_ptr<double>(),
                                   merged.tensor().mutable_data_ptr<double>()};
    done(cuda_.batch_merge(ranks.const_data_ptr<double>(), 2, ranks.size(1), shape_.channels,
                           &moments, index(), stream_));
    mean.expect(answers_, "batch norm: merged mean", mean_, tolerance_of(at::kDouble));
    merged.expect(answers_, "batch norm: merged deviations", m2.mul(3), tolerance_of(at::kDouble));
  }

  void normalise() {
    const Answered y(x_.numel(), type_, device_);
    kernels::BatchNormalise norm;
    norm.shape = shape_;
    norm.x = rows_of(x_);
    norm.residual = rows_of(residual_);
    norm.y = rows_out_of(y.tensor());
    norm.mean = mean_.const_data_ptr<double>();
    norm.rstd = rstd_.const_data_ptr<double>();
    norm.weight = rows_of(weight_);
    norm.bias = rows_of(bias_);
    norm.relu = true;
    done(cuda_.batch_normalise(&norm, index(), stream_));
    y.expect(answers_, "batch norm: y", y_, tolerance());
  }

  kernels::BatchGradient gradient(const at::Tensor& output) const {
    kernels::BatchGradient gradient;
    gradient.shape = shape_;
    gradient.dy = rows_of(dy_);
    gradient.x = rows_of(x_);
    gradient.relu_output = rows_of(output);
    gradient.mean = mean_.const_data_ptr<double>();
    return gradient;
  }
  at::Tensor let_through(const at::Tensor& output) const {
    return dy_.to(at::kDouble).mul(output.gt(0));
  }

  at::Tensor gradient_sums() {
    const at::Tensor output = y_.to(type_);
    const kernels::BatchGradient question = gradient(output);
    const Answered sum_dy(shape_.channels, at::kDouble, device_);
    const Answered sum_dy_xmu(shape_.channels, at::kDouble, device_);
    const at::Tensor memory = scratch();
    done(cuda_.batch_backward_reduce(&question, sum_dy.tensor().mutable_data_ptr<double>(),
                                     sum_dy_xmu.tensor().mutable_data_ptr<double>(),
                                     memory.mutable_data_ptr<double>(), index(), stream_));
    const at::Tensor dy = let_through(output);
    const at::Tensor of_dy = dy.sum(kAllButChannels);
    const at::Tensor of_dy_xmu = dy.mul(wide_.sub(beside(mean_))).sum(kAllButChannels);
    sum_dy.expect(answers_, "batch norm: sum of dy", of_dy, 16 * tolerance_of(at::kFloat));
    sum_dy_xmu.expect(answers_, "batch norm: sum of dy and deviations", of_dy_xmu,
                      16 * tolerance_of(at::kFloat));
    return at::stack({of_dy, of_dy_xmu});
  }

  void apply(const at::Tensor& means) {
    const at::Tensor output = y_.to(type_);
    const Answered dx(x_.numel(), type_, device_);
    const Answered dresidual(x_.numel(), type_, device_);
    kernels::BatchBackwardApply apply;
    apply.gradient = gradient(output);
    apply.rstd = rstd_.const_data_ptr<double>();
    apply.weight = rows_of(weight_);
    apply.mean_dy = means.const_data_ptr<double>();
    apply.mean_dy_xmu = apply.mean_dy + shape_.channels;
    apply.dx = rows_out_of(dx.tensor());
    apply.dresidual = rows_out_of(dresidual.tensor());
    done(cuda_.batch_backward_apply(&apply, index(), stream_));
    const at::Tensor dy = let_through(output);
    const at::Tensor by_variance =
        wide_.sub(beside(mean_)).mul(beside(rstd_).square()).mul(beside(means[1]));
    dx.expect(answers_, "batch norm: dx",
              dy.sub(beside(means[0])).sub(by_variance).mul(beside(rstd_)).mul(beside(weight_)),
              tolerance());
    dresidual.expect(answers_, "batch norm: dresidual", dy, 0);
  }

  const kernels::cuda::Interface& cuda_;
  at::Device device_;
  Answers& answers_;
  kernels::cuda::Stream stream_;
  at::ScalarType type_;
  kernels::BatchShape shape_;
  at::Tensor x_, residual_, dy_, weight_, bias_;
  at::Tensor wide_, mean_, rstd_;  // in double
  at::Tensor y_;
};

}  // namespace

// Planes, planes of an odd size, and channels that are innermost.
void ask_batch_norms(const kernels::cuda::Interface& cuda, const at::Device& device,
                     Answers& answers) {
  for (const BatchQuestion& question :
       {BatchQuestion{4, 3, 64, at::kFloat}, BatchQuestion{3, 2, 35, at::kBFloat16},
        BatchQuestion{100, 8, 1, at::kHalf}, BatchQuestion{9, 5, 1, at::kDouble}}) {
    BatchQuestions(cuda, device, question, answers).ask();
  }
}

}  // namespace mezzo::bridge
