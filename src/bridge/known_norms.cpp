// Questions about layer and RMS norms of rows.
#include <ATen/ops/empty.h>

#include "bridge/device.h"
#include "bridge/device_index.h"
#include "bridge/known_answers.h"
#include "bridge/rows.h"
#include "kernels/cuda_library.h"

namespace mezzo::bridge {
namespace {

constexpr double kEpsOfNorm = 1e-3;

/// One shape, one type, with or without a mean.
struct NormQuestion {
  std::int64_t rows, columns;
  at::ScalarType type;
  bool rms;
  bool residual;
};

class NormQuestions {
 public:
  NormQuestions(const kernels::cuda::Interface& cuda, const at::Device& device, Answers& answers)
      : cuda_(cuda), device_(device), answers_(answers), stream_(current_stream(device)) {}

  void ask(const NormQuestion& question) {
    const auto numbers = [&](double phase) {
      return known_numbers({question.rows, question.columns}, phase, question.type, device_);
    };
    const bool wide = question.type == at::kDouble;
    const at::ScalarType statistics = wide ? at::kDouble : at::kFloat;
    const auto like_row = [&](double phase) {
      return known_numbers({question.columns}, phase, statistics, device_).add_(1.5);
    };
    const at::Tensor x = numbers(1);
    const at::Tensor residual = question.residual ? numbers(2) : at::Tensor();
    const at::Tensor weight = like_row(3);
    const at::Tensor bias = question.rms ? at::Tensor() : like_row(4);
    const at::Tensor dy = numbers(5);
    const std::int64_t elements = x.numel();
    const Answered y(elements, question.type, device_);
    const Answered sum(elements, question.type, device_);
    const Answered mean(question.rows, statistics, device_);
    const Answered rstd(question.rows, statistics, device_);
    kernels::NormForward forward;
    forward.shape = {question.rows, question.columns, kEpsOfNorm, question.rms, wide};
    forward.x = rows_of(x);
    forward.weight = rows_of(weight);
    forward.bias = rows_of(bias);
    forward.y = rows_out_of(y.tensor());
    if (question.residual) {
      forward.residual = rows_of(residual);
      forward.sum = rows_out_of(sum.tensor());
    }
    if (!question.rms) forward.mean = mean.tensor().mutable_data_ptr();
    forward.rstd = rstd.tensor().mutable_data_ptr();
    done(cuda_.norm_forward(&forward, index(), stream_));

    // The sum is rounded to its type before it is normalised.
    const at::Tensor row = (question.residual ? x.add(residual) : x).to(at::kDouble);
    const at::Tensor centre = row.mean(1, /*keepdim=*/true).mul(question.rms ? 0 : 1);
    const at::Tensor apart = row.sub(centre);
    const at::Tensor known_rstd = apart.square().mean(1, true).add(kEpsOfNorm).rsqrt();
    const at::Tensor hat = apart.mul(known_rstd);
    at::Tensor known_y = hat.mul(weight.to(at::kDouble));
    if (bias.defined()) known_y = known_y.add(bias.to(at::kDouble));
    const std::string name = question.rms ? "RMS norm" : "layer norm";
    const double tolerance = 4 * tolerance_of(question.type);
    y.expect(answers_, name + ": y", known_y, tolerance);
    rstd.expect(answers_, name + ": rstd", known_rstd, 4 * tolerance_of(statistics));
    if (question.residual) sum.expect(answers_, name + ": sum", row, 0);
    if (!question.rms) mean.expect(answers_, name + ": mean", centre, tolerance_of(statistics));

    const Answered dx(elements, question.type, device_);
    const Answered dweight(question.columns, statistics, device_);
    const Answered dbias(question.columns, statistics, device_);
    const at::Tensor kept_row = row.to(question.type);
    kernels::NormBackward backward;
    backward.shape = forward.shape;
    backward.dy = rows_of(dy);
    backward.x = rows_of(kept_row);
    backward.weight = forward.weight;
    backward.bias = forward.bias;
    backward.mean = forward.mean;
    backward.rstd = forward.rstd;
    backward.dx = rows_out_of(dx.tensor());
    backward.dweight = dweight.tensor().mutable_data_ptr();
    backward.dbias = dbias.tensor().mutable_data_ptr();
    const at::Tensor scratch = at::empty({cuda_.norm_scratch(&backward.shape, index())},
                                         at::TensorOptions(device_).dtype(statistics));
    done(cuda_.norm_backward(&backward, scratch.mutable_data_ptr(), index(), stream_));

    const at::Tensor gradient = dy.to(at::kDouble);
    const at::Tensor weighted = gradient.mul(weight.to(at::kDouble));
    const at::Tensor along = weighted.mul(hat).mean(1, true);
    const at::Tensor average = weighted.mean(1, true).mul(question.rms ? 0 : 1);
    dx.expect(answers_, name + ": dx", weighted.sub(hat.mul(along)).sub(average).mul(known_rstd),
              tolerance);
    dweight.expect(answers_, name + ": dweight", gradient.mul(hat).sum(0), tolerance);
    dbias.expect(answers_, name + ": dbias", gradient.sum(0), tolerance);
  }

 private:
  int index() const { return index_of(device_); }
  void done(bool is_done) const { kernels::check_cuda(cuda_, is_done, "norm"); }

  const kernels::cuda::Interface& cuda_;
  at::Device device_;
  Answers& answers_;
  kernels::cuda::Stream stream_;
};

}  // namespace

// Rows of a warp, of four and of a block, and one that no pack fits.
void ask_norms(const kernels::cuda::Interface& cuda, const at::Device& device, Answers& answers) {
  NormQuestions norms(cuda, device, answers);
  norms.ask({5, 768, at::kFloat, /*rms=*/false, /*residual=*/true});
  norms.ask({3, 2048, at::kBFloat16, /*rms=*/false, /*residual=*/false});
  norms.ask({2, 5120, at::kHalf, /*rms=*/true, /*residual=*/false});
  norms.ask({7, 33, at::kFloat, /*rms=*/true, /*residual=*/true});
  norms.ask({3, 40, at::kDouble, /*rms=*/false, /*residual=*/false});
}

}  // namespace mezzo::bridge
