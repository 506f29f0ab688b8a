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

/// Rows in doubles, as they are normalised.
struct KnownRows {
  at::Tensor row, centre, rstd, hat;

  KnownRows(const at::Tensor& sum, bool rms)
      : row(sum.to(at::kDouble)), centre(row.mean(1, /*keepdim=*/true).mul(rms ? 0 : 1)) {
    const at::Tensor apart = row.sub(centre);
    rstd = apart.square().mean(1, true).add(kEpsOfNorm).rsqrt();
    hat = apart.mul(rstd);
  }
};

class NormQuestions {
 public:
  NormQuestions(const kernels::cuda::Interface& cuda, const at::Device& device, Answers& answers)
      : cuda_(cuda), device_(device), answers_(answers), stream_(current_stream(device)) {}

  /// The way there, and the way back from what it left.
  void ask(const NormQuestion& question) {
    const at::ScalarType statistics = statistics_of(question);
    const auto like_row = [&](double phase) {
      return known_numbers({question.columns}, phase, statistics, device_).add_(1.5);
    };
    const at::Tensor x = numbers(question, 1);
    const at::Tensor residual = question.residual ? numbers(question, 2) : at::Tensor();
    const at::Tensor weight = like_row(3);
    const at::Tensor bias = question.rms ? at::Tensor() : like_row(4);
    const std::int64_t elements = x.numel();
    const Answered y(elements, question.type, device_);
    const Answered sum(elements, question.type, device_);
    const Answered mean(question.rows, statistics, device_);
    const Answered rstd(question.rows, statistics, device_);
    kernels::NormForward forward;
    forward.shape = {question.rows, question.columns, kEpsOfNorm, question.rms,
                     question.type == at::kDouble};
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
    const KnownRows known(question.residual ? x.add(residual) : x, question.rms);
    at::Tensor known_y = known.hat.mul(weight.to(at::kDouble));
    if (bias.defined()) known_y = known_y.add(bias.to(at::kDouble));
    const std::string name = name_of(question);
    y.expect(answers_, name + ": y", known_y, 4 * tolerance_of(question.type));
    rstd.expect(answers_, name + ": rstd", known.rstd, 4 * tolerance_of(statistics));
    if (question.residual) sum.expect(answers_, name + ": sum", known.row, 0);
    if (!question.rms) {
      mean.expect(answers_, name + ": mean", known.centre, tolerance_of(statistics));
    }
    ask_backward(question, forward, weight, known);
  }

 private:
  void ask_backward(const NormQuestion& question, const kernels::NormForward& forward,
                    const at::Tensor& weight, const KnownRows& known) {
    const at::ScalarType statistics = statistics_of(question);
    const at::Tensor dy = numbers(question, 5);
    const Answered dx(dy.numel(), question.type, device_);
    const Answered dweight(question.columns, statistics, device_);
    const Answered dbias(question.columns, statistics, device_);
    const at::Tensor kept_row = known.row.to(question.type);
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
    const at::Tensor along = weighted.mul(known.hat).mean(1, true);
    const at::Tensor average = weighted.mean(1, true).mul(question.rms ? 0 : 1);
    const std::string name = name_of(question);
    const double tolerance = 4 * tolerance_of(question.type);
    dx.expect(answers_, name + ": dx",
              weighted.sub(known.hat.mul(along)).sub(average).mul(known.rstd), tolerance);
    dweight.expect(answers_, name + ": dweight", gradient.mul(known.hat).sum(0), tolerance);
    dbias.expect(answers_, name + ": dbias", gradient.sum(0), tolerance);
  }

  at::Tensor numbers(const NormQuestion& question, double phase) const {
    return known_numbers({question.rows, question.columns}, phase, question.type, device_);
  }
  static at::ScalarType statistics_of(const NormQuestion& question) {
    return question.type == at::kDouble ? at::kDouble : at::kFloat;
  }
  static std::string name_of(const NormQuestion& question) {
    return question.rms ? "RMS norm" : "layer norm";
  }
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
