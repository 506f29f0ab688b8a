// Each fused step of each kernel set against the textbook's formula in double.
#include <gmock/gmock.h>

#include <functional>

#include "kernels/reference.h"

namespace mezzo::kernels {
namespace {

using namespace testing_support;

// One element as its textbook sees it: a weight, its gradient and up to three states.
struct Textbook {
  double param, grad;
  double state[3];
};

struct StepCase {
  const char* name;
  int states;
  std::function<void(const KernelSet&, const StepRow&, Range, const Guard&)> run;
  std::function<void(Textbook&)> reference;
};

AdamScalars<double> adam_scalars() {
  return {0.9,  1 - 0.9, 0.999, 1 - 0.999, 1e-3 / 0.271, 1 / std::sqrt(0.003),
          1e-8, 1.0,     0.0,   1.0,       false,        false};
}

StepCase adam_case(const char* name, AdamScalars<double> h) {
  return {name, h.amsgrad ? 3 : 2,
          [h](const KernelSet& set, const StepRow& row, Range range, const Guard& guard) {
            set.adam(row, range, h, guard);
          },
          [h](Textbook& t) {
            const double g = t.grad * h.grad_scale + h.l2 * t.param;
            t.state[0] = h.beta1 * t.state[0] + (1 - h.beta1) * g;
            t.state[1] = h.beta2 * t.state[1] + (1 - h.beta2) * g * g;
            double v = t.state[1];
            if (h.amsgrad) v = t.state[2] = std::max(t.state[2], v);
            const double corrected = v * h.inv_sqrt_bias2 * h.inv_sqrt_bias2;
            const double denominator =
                h.eps_inside_sqrt ? std::sqrt(corrected + h.eps) : std::sqrt(corrected) + h.eps;
            t.param = h.keep * t.param - h.step_size * t.state[0] / denominator;
          }};
}

StepCase sgd_case(const char* name, SgdScalars<double> h) {
  return {name, h.momentum != 0 ? 1 : 0,
          [h](const KernelSet& set, const StepRow& row, Range range, const Guard& guard) {
            set.sgd(row, range, h, guard);
          },
          [h](Textbook& t) {
            double d = t.grad * h.grad_scale;
            if (!h.decay_after_momentum) d += h.weight_decay * t.param;
            if (h.momentum != 0) {
              t.state[0] = h.first ? d : h.momentum * t.state[0] + h.one_minus_dampening * d;
              d = h.nesterov ? d + h.momentum * t.state[0] : t.state[0];
            }
            if (h.decay_after_momentum) d += h.weight_decay * t.param;
            t.param -= h.lr * d;
          }};
}

StepCase adagrad_case(const char* name, AdagradScalars<double> h) {
  return {name, 1,
          [h](const KernelSet& set, const StepRow& row, Range range, const Guard& guard) {
            set.adagrad(row, range, h, guard);
          },
          [h](Textbook& t) {
            const double g = t.grad * h.grad_scale + h.l2 * t.param;
            t.state[0] += g * g;
            t.param = h.keep * t.param - h.lr * g / (std::sqrt(t.state[0]) + h.eps);
          }};
}

StepCase lamb_case(const char* name, LambScalars<double> h) {
  return {name, 2,
          [h](const KernelSet& set, const StepRow& row, Range range, const Guard& guard) {
            set.lamb_moments(row, range, h, guard);
            set.lamb_apply(row, range, h, guard);
          },
          [h](Textbook& t) {
            const double g = t.grad * h.grad_scale + h.l2 * t.param;
            t.state[0] = h.beta1 * t.state[0] + h.beta3 * g;
            t.state[1] = h.beta2 * t.state[1] + (1 - h.beta2) * g * g;
            const double update =
                t.state[0] * h.inv_bias1 / (std::sqrt(t.state[1]) * h.inv_sqrt_bias2 + h.eps) +
                h.decoupled * t.param;
            t.param -= h.rate * update;
          }};
}

StepCase novograd_case(const char* name, NovogradScalars<double> h) {
  return {name, 1,
          [h](const KernelSet& set, const StepRow& row, Range range, const Guard& guard) {
            set.novograd(row, range, h, guard);
          },
          [h](Textbook& t) {
            double g = t.grad * h.grad_scale;
            if (h.decay_inside_moment) g = g * h.inv_denominator + h.weight_decay * t.param;
            t.state[0] = h.beta1 * t.state[0] + h.beta3 * g;
            const double m = t.state[0] * h.inv_bias1;
            t.param -=
                h.lr *
                (h.decay_inside_moment ? m : m * h.inv_denominator + h.weight_decay * t.param);
          }};
}

std::vector<StepCase> step_cases() {
  std::vector<StepCase> cases;
  AdamScalars<double> adam = adam_scalars();
  cases.push_back(adam_case("Adam", adam));
  adam.keep = 1 - 1e-3 * 0.1;
  cases.push_back(adam_case("AdamW", adam));
  adam.l2 = 0.1;
  adam.amsgrad = true;
  cases.push_back(adam_case("AdamWithL2AndAmsgrad", adam));
  adam.eps_inside_sqrt = true;
  adam.eps = 1e-5;
  adam.grad_scale = 0.25;
  cases.push_back(adam_case("AdamWithEpsInsideAndClipping", adam));
  const SgdScalars<double> sgd{0.1, 0, 1, 0, 1, false, false, false};
  const SgdScalars<double> momentum{0.1, 0.9, 0.7, 0.01, 1, false, false, false};
  SgdScalars<double> nesterov = momentum;
  nesterov.nesterov = true;
  SgdScalars<double> after = momentum;
  after.decay_after_momentum = true;
  SgdScalars<double> first = momentum;
  first.first = true;
  cases.push_back(sgd_case("Sgd", sgd));
  cases.push_back(sgd_case("SgdWithMomentum", momentum));
  cases.push_back(sgd_case("SgdWithNesterov", nesterov));
  cases.push_back(sgd_case("SgdWithDecayAfterMomentum", after));
  cases.push_back(sgd_case("SgdsFirstStep", first));
  cases.push_back(adagrad_case("Adagrad", {0.01, 1e-10, 1, 0.1, 1}));
  cases.push_back(adagrad_case("AdagradW", {0.01, 1e-10, 0.999, 0, 1}));
  cases.push_back(
      lamb_case("Lamb", {0.9, 0.1, 0.999, 0.001, 3.69, 18.3, 1e-6, 0.01, 0, 0.5, 0.02}));
  cases.push_back(lamb_case("LambL2", {0.9, 1, 0.999, 0.001, 1, 1, 1e-6, 0, 0.01, 1, 0.02}));
  cases.push_back(novograd_case("Novograd", {0.9, 0.1, 3.69, 2.5, 1e-3, 0.01, 1, false}));
  cases.push_back(novograd_case("NovogradDecayInside", {0.9, 1, 1, 2.5, 1e-3, 0.01, 1, true}));
  return cases;
}

struct Memory {
  Array param, grad, copy;
  std::vector<Array> state;
  StepRow row;

  Memory(const StepCase& step, DType param_dtype, DType grad_dtype, CopyKind kind,
         std::int64_t count)
      : param(Array::random(param_dtype, count, 11)),
        grad(Array::random(grad_dtype, count, 12)),
        copy(kind == CopyKind::kFloat16    ? DType::kFloat16
             : kind == CopyKind::kBFloat16 ? DType::kBFloat16
                                           : DType::kFloat32,
             count) {
    const DType state_dtype = param_dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    for (int i = 0; i < step.states; ++i) {
      state.push_back(Array::random(state_dtype, count, 13 + static_cast<unsigned>(i), 0.01, 0.1));
    }
    row = {param.data(), grad.data(), {}, copy.data(), count, param_dtype, grad_dtype, kind, 0};
    for (int i = 0; i < step.states; ++i) {
      row.state[i] = state[static_cast<std::size_t>(i)].data();
    }
  }
};

class FusedStep : public testing::TestWithParam<std::tuple<const KernelSet*, StepCase>> {
 protected:
  const KernelSet& set() const { return *std::get<0>(GetParam()); }
  const StepCase& step() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Kernels, FusedStep,
                         testing::Combine(testing::ValuesIn(usable_kernel_sets()),
                                          testing::ValuesIn(step_cases())),
                         [](const auto& row) {
                           return std::string(std::get<0>(row.param)->name) + "_" +
                                  std::get<1>(row.param).name;
                         });

DType low_of(CopyKind kind) {
  switch (kind) {
    case CopyKind::kFloat16:
    case CopyKind::kRoundedToFloat16:
      return DType::kFloat16;
    case CopyKind::kBFloat16:
    case CopyKind::kRoundedToBFloat16:
      return DType::kBFloat16;
    default:
      return DType::kFloat32;
  }
}

void compare(const StepCase& step, const Memory& before, const Memory& after, double inv_scale) {
  const double tolerance = tolerance_of(before.param.dtype());
  const double state_tolerance =
      before.param.dtype() == DType::kFloat64 ? 1e-13 : 4 * tolerance_of(DType::kFloat32);
  for (std::int64_t i = 0; i < before.row.count; ++i) {
    Textbook t{before.param[i], before.grad[i] * inv_scale, {}};
    for (std::size_t s = 0; s < before.state.size(); ++s) t.state[s] = before.state[s][i];
    step.reference(t);
    ASSERT_NEAR(after.param[i], t.param, tolerance * (1 + std::abs(t.param))) << step.name << i;
    for (std::size_t s = 0; s < before.state.size(); ++s) {
      ASSERT_NEAR(after.state[s][i], t.state[s], state_tolerance) << step.name << i;
    }
    if (after.row.copy_kind != CopyKind::kNone && size_of(after.param.dtype()) >= 4) {
      ASSERT_EQ(after.copy[i], rounded_to(rounded_to(after.param[i], DType::kFloat32),
                                          low_of(after.row.copy_kind)));
    }
  }
}

TEST_P(FusedStep, AgreesWithTheTextbookForAllTypesAndSizes) {
  constexpr CopyKind kKinds[] = {CopyKind::kNone, CopyKind::kFloat16, CopyKind::kBFloat16,
                                 CopyKind::kRoundedToFloat16, CopyKind::kRoundedToBFloat16};
  const float inv_scale = 0.5f;
  for (const DType param_dtype : kFloats) {
    for (const DType grad_dtype : kFloats) {
      if (grad_dtype == DType::kFloat64 && param_dtype != DType::kFloat64) continue;
      for (const CopyKind kind : kKinds) {
        for (const std::int64_t count : {0, 1, 17, 63, 331}) {
          const Memory before(step(), param_dtype, grad_dtype, kind, count);
          Memory after(step(), param_dtype, grad_dtype, kind, count);
          step().run(set(), after.row, {0, count}, {nullptr, &inv_scale});
          compare(step(), before, after, 0.5);
        }
      }
    }
  }
}

TEST_P(FusedStep, MovesNothingWhenTheFlagIsSet) {
  const float skip = 1.0f;
  const Memory before(step(), DType::kFloat32, DType::kFloat16, CopyKind::kBFloat16, 100);
  Memory after(step(), DType::kFloat32, DType::kFloat16, CopyKind::kBFloat16, 100);
  step().run(set(), after.row, {0, 100}, {&skip, nullptr});
  EXPECT_EQ(before.param, after.param);
  EXPECT_EQ(before.copy, after.copy);
  EXPECT_EQ(before.state, after.state);
}

TEST_P(FusedStep, DoesNotDependOnHowATensorIsCut) {
  Memory whole(step(), DType::kFloat32, DType::kBFloat16, CopyKind::kFloat16, 1000);
  Memory cut(step(), DType::kFloat32, DType::kBFloat16, CopyKind::kFloat16, 1000);
  step().run(set(), whole.row, {0, 1000}, {});
  for (const Range range : {Range{0, 1}, Range{1, 18}, Range{18, 517}, Range{517, 1000}}) {
    step().run(set(), cut.row, range, {});
  }
  EXPECT_EQ(whole.param, cut.param);
  EXPECT_EQ(whole.copy, cut.copy);
  EXPECT_EQ(whole.state, cut.state);
}

// Memory that vectors of every set can be stored to, from an element on.
class CopyMemory {
 public:
  void* from(std::int64_t element, std::int64_t size) { return bytes_ + element * size; }
  bool operator==(const CopyMemory&) const = default;

 private:
  alignas(64) unsigned char bytes_[2048] = {};
};

TEST_P(FusedStep, WritesTheSameCopiesPastTheCaches) {
  for (const CopyKind kind : {CopyKind::kFloat16, CopyKind::kBFloat16, CopyKind::kRoundedToFloat16,
                              CopyKind::kRoundedToBFloat16, CopyKind::kFloat32}) {
    const std::int64_t size = kind == CopyKind::kFloat16 || kind == CopyKind::kBFloat16 ? 2 : 4;
    for (const std::int64_t first : {0, 1, 8, 16}) {
      CopyMemory plain, past;
      Memory a(step(), DType::kFloat32, DType::kBFloat16, kind, 331);
      Memory b(step(), DType::kFloat32, DType::kBFloat16, kind, 331);
      a.row.copy = plain.from(first, size);
      b.row.copy = past.from(first, size);
      step().run(set(), a.row, {0, 331}, {});
      for (const Range range : {Range{0, 64}, Range{64, 101}, Range{101, 331}}) {
        step().run(set(), b.row, range, {.copies_past_cache = true});
      }
      EXPECT_EQ(plain, past);
      EXPECT_FALSE(plain == CopyMemory());
    }
  }
}

TEST_P(FusedStep, WritesNothingOutsideItsRange) {
  const Memory before(step(), DType::kFloat32, DType::kFloat32, CopyKind::kFloat16, 100);
  Memory after(step(), DType::kFloat32, DType::kFloat32, CopyKind::kFloat16, 100);
  step().run(set(), after.row, {3, 70}, {});
  for (const std::int64_t i : {0, 2, 70, 71, 99}) {
    EXPECT_EQ(before.param[i], after.param[i]);
    EXPECT_EQ(after.copy[i], 0);
    for (std::size_t s = 0; s < before.state.size(); ++s) {
      EXPECT_EQ(before.state[s][i], after.state[s][i]);
    }
  }
}

}  // namespace
}  // namespace mezzo::kernels
