// Questions about fused steps: each optimizer's paper, written out in double.
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <functional>

#include "bridge/device.h"
#include "bridge/kept_lists.h"
#include "bridge/known_answers.h"
#include "bridge/tensors.h"
#include "kernels/cuda_library.h"

namespace mezzo::bridge {
namespace {

using kernels::CopyKind;
using kernels::StepRow;

/// One parameter in doubles, its gradient for the step, unscaled, and what its optimizer keeps.
struct SteppedInDouble {
  at::Tensor param, grad;
  at::Tensor state[2];
  at::Tensor running_norm;
};
/// Moves parameter and state by step `t`, counted from 1.
using StepFormula = std::function<void(SteppedInDouble&, double t)>;

/// A parameter as the kernels have it, and in doubles.
struct Question {
  Answered param, state0, state1;
  at::Tensor grad;
  std::optional<Answered> copy;
  SteppedInDouble known;
};

constexpr double kScale = 4;

class StepQuestions {
 public:
  StepQuestions(const kernels::cuda::Interface& cuda, const at::Device& device, Answers& answers)
      : cuda_(cuda),
        device_(device),
        answers_(answers),
        stream_(current_stream(device)),
        list_(kept_list(cuda, device, stream_)) {}

  /// Two steps, and between them one that a flag forbids. `norm_of_gradients`: what the gradients
  /// are said to measure, scaled; 0: nothing is said.
  template <typename Recipe>
  void ask(const char* name, kernels::cuda::StepFunction<Recipe> function, const Recipe& recipe,
           double norm_of_gradients, const StepFormula& formula) {
    std::vector<Question> questions;
    questions.push_back(question(9001, at::kFloat, at::kFloat, 0));
    questions.push_back(question(300, at::kBFloat16, at::kFloat, 0));
    questions.push_back(question(33, at::kHalf, at::kFloat, 1));  // no wide loads
    questions.push_back(question(65, at::kDouble, at::kDouble, 0));
    const auto count = static_cast<std::int64_t>(questions.size());
    const auto numbers = at::TensorOptions(device_).dtype(at::kDouble);
    const at::Tensor counters = at::zeros({count}, numbers.dtype(at::kLong));
    const at::Tensor running = at::zeros({count}, numbers);
    const at::Tensor inv_scale = at::full({1}, 1 / kScale, numbers.dtype(at::kFloat));
    const at::Tensor measured = at::full({1}, norm_of_gradients, numbers);
    std::vector<StepRow> rows;
    std::vector<kernels::cuda::RowState> states;
    for (std::int64_t i = 0; i < count; ++i) {
      rows.push_back(row_of(questions[static_cast<std::size_t>(i)]));
      states.push_back(
          {counters.mutable_data_ptr<std::int64_t>() + i, running.mutable_data_ptr<double>() + i});
    }
    const double clip =
        kernels::clip_factor(norm_of_gradients / kScale, norm_of_gradients == 0 ? 0 : 1.0);
    double t = 0;
    for (const bool skips : {false, true, false}) {
      const at::Tensor skip = at::full({1}, skips ? 1 : 0, numbers.dtype(at::kFloat));
      const kernels::cuda::StepFlags flags{
          skip.const_data_ptr<float>(), inv_scale.const_data_ptr<float>(),
          norm_of_gradients == 0 ? nullptr : measured.const_data_ptr<double>()};
      kernels::check_cuda(
          cuda_, function(list_, rows.data(), states.data(), count, &recipe, 1, flags, stream_),
          name);
      if (skips) continue;
      ++t;
      for (Question& question : questions) {
        question.known.grad = question.grad.to(at::kDouble).mul(clip / kScale);
        formula(question.known, t);
      }
    }
    for (std::size_t i = 0; i < questions.size(); ++i) {
      expect(c10::str(name, " ", i), questions[i], running[static_cast<std::int64_t>(i)]);
    }
    answers_.expect(c10::str(name, ": counters"), counters, at::full_like(counters, 2), 0);
  }

 private:
  Question question(std::int64_t count, at::ScalarType gradients, at::ScalarType type,
                    std::int64_t before) const {
    const auto numbers = [&](double phase) { return known_numbers({count}, phase, type, device_); };
    const at::Tensor param = numbers(1);
    Question question{Answered(param),
                      Answered(at::zeros_like(param)),
                      Answered(at::zeros_like(param)),
                      known_numbers({count + before}, 4, gradients, device_)
                          .mul_(kScale)
                          .narrow(0, before, count),
                      std::nullopt,
                      {}};
    if (gradients == at::kBFloat16) question.copy.emplace(count, gradients, device_);
    question.known.param = param.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
    for (at::Tensor& state : question.known.state) state = at::zeros_like(question.known.param);
    question.known.running_norm = at::zeros({}, question.known.param.options());
    return question;
  }

  static StepRow row_of(const Question& question) {
    const auto address = [](const Answered& answered) {
      return answered.tensor().mutable_data_ptr();
    };
    StepRow row;
    row.param = address(question.param);
    row.grad = question.grad.const_data_ptr();
    row.state[0] = address(question.state0);
    row.state[1] = address(question.state1);
    row.count = question.grad.numel();
    row.param_dtype = *kernel_dtype(question.param.tensor().scalar_type());
    row.grad_dtype = *kernel_dtype(question.grad.scalar_type());
    if (question.copy) {
      row.copy = address(*question.copy);
      row.copy_kind = CopyKind::kBFloat16;
    }
    return row;
  }

  void expect(const std::string& name, const Question& question, const at::Tensor& running_norm) {
    const double tolerance = 2 * tolerance_of(question.param.tensor().scalar_type());
    question.param.expect(answers_, name + ": param", question.known.param, tolerance);
    question.state0.expect(answers_, name + ": first state", question.known.state[0], tolerance);
    question.state1.expect(answers_, name + ": second state", question.known.state[1], tolerance);
    answers_.expect(name + ": running norm", running_norm, question.known.running_norm, tolerance);
    if (question.copy) {
      question.copy->expect(answers_, name + ": copy", question.known.param,
                            tolerance_of(at::kBFloat16));
    }
  }

  const kernels::cuda::Interface& cuda_;
  at::Device device_;
  Answers& answers_;
  kernels::cuda::Stream stream_;
  kernels::cuda::List* list_;
};

// The settings of all of them; a rate so large that every term shows.
constexpr double kRate = 0.1, kBeta1 = 0.9, kBeta2 = 0.99, kEps = 1e-3, kDecay = 0.2;

/// Moments of gradients, and the first over the root of the second, both without bias.
at::Tensor moved_moments(SteppedInDouble& s, double t) {
  s.state[0].mul_(kBeta1).add_(s.grad, 1 - kBeta1);
  s.state[1].mul_(kBeta2).addcmul_(s.grad, s.grad, 1 - kBeta2);
  const at::Tensor root = s.state[1].div(1 - std::pow(kBeta2, t)).sqrt();
  return s.state[0].div(1 - std::pow(kBeta1, t)).div(root.add(kEps));
}

void adamw(SteppedInDouble& s, double t) {
  const at::Tensor update = moved_moments(s, t);
  s.param.mul_(1 - kRate * kDecay).sub_(update, kRate);
}

void sgd(SteppedInDouble& s, double t) {
  const at::Tensor gradient = s.grad.add(s.param, kDecay);
  s.state[0] = t == 1 ? gradient : s.state[0].mul(kBeta1).add(gradient);
  s.param.sub_(s.state[0], kRate);
}

void adagrad(SteppedInDouble& s, double) {
  const at::Tensor gradient = s.grad.add(s.param, kDecay);
  s.state[0].addcmul_(gradient, gradient);
  s.param.sub_(gradient.div(s.state[0].sqrt().add(kEps)), kRate);
}

void lamb(SteppedInDouble& s, double t) {
  const at::Tensor update = moved_moments(s, t).add(s.param, kDecay);
  const at::Tensor trust = at::linalg_vector_norm(s.param).div(at::linalg_vector_norm(update));
  s.param.sub_(update.mul(trust), kRate);
}

void novograd(SteppedInDouble& s, double t) {
  const at::Tensor square = at::linalg_vector_norm(s.grad).square();
  s.running_norm =
      t == 1 ? square.sqrt() : s.running_norm.square().mul(kBeta2).add(square, 1 - kBeta2).sqrt();
  const at::Tensor root = s.running_norm.div(std::sqrt(1 - std::pow(kBeta2, t))).add(kEps);
  s.state[0].mul_(kBeta1).add_(s.grad, 1 - kBeta1);
  const at::Tensor update = s.state[0].div(root).div(1 - std::pow(kBeta1, t));
  s.param.sub_(update.add(s.param, kDecay), kRate);
}

}  // namespace

void ask_steps(const kernels::cuda::Interface& cuda, const at::Device& device, Answers& answers) {
  StepQuestions steps(cuda, device, answers);
  steps.ask("adam", cuda.adam,
            kernels::AdamRecipe{.lr = kRate,
                                .beta1 = kBeta1,
                                .beta2 = kBeta2,
                                .eps = kEps,
                                .weight_decay = kDecay,
                                .max_grad_norm = 1},
            /*norm_of_gradients=*/20, adamw);
  steps.ask("sgd", cuda.sgd,
            kernels::SgdRecipe{.lr = kRate, .momentum = kBeta1, .weight_decay = kDecay}, 0, sgd);
  steps.ask("adagrad", cuda.adagrad,
            kernels::AdagradRecipe{.lr = kRate, .eps = kEps, .weight_decay = kDecay}, 0, adagrad);
  steps.ask("lamb", cuda.lamb,
            kernels::LambRecipe{
                .lr = kRate, .beta1 = kBeta1, .beta2 = kBeta2, .eps = kEps, .weight_decay = kDecay},
            0, lamb);
  steps.ask("novograd", cuda.novograd,
            kernels::NovogradRecipe{
                .lr = kRate, .beta1 = kBeta1, .beta2 = kBeta2, .eps = kEps, .weight_decay = kDecay},
            0, novograd);
}

}  // namespace mezzo::bridge
