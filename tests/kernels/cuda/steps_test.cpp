// The fused steps on the device against the CPU's baseline set, over lists of mixed types and
// sizes, for several steps.
#include "kernels/cuda/device.h"

namespace mezzo::kernels::cuda {
namespace {

using namespace testing_support;

const OneWorker kOne;

// One parameter, on the host or to be copied to the device.
struct Parameter {
  Array param, grad, copy;
  std::vector<Array> state;
  CopyKind kind;
  std::uint32_t recipe;

  Parameter(DType param_dtype, DType grad_dtype, CopyKind copy_kind, std::int64_t count,
            std::uint32_t recipe_index, unsigned seed)
      : param(Array::random(param_dtype, count, seed)),
        grad(Array::random(grad_dtype, count, seed + 1)),
        copy(copy_kind == CopyKind::kFloat16    ? DType::kFloat16
             : copy_kind == CopyKind::kBFloat16 ? DType::kBFloat16
                                                : DType::kFloat32,
             count),
        kind(copy_kind),
        recipe(recipe_index) {
    const DType of_state = param_dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    for (unsigned i = 0; i < 3; ++i) {
      state.push_back(Array::random(of_state, count, seed + 2 + i, 0.01, 0.1));
    }
  }
};

StepRow row_of(Parameter& p) {
  StepRow row{p.param.data(), p.grad.data(), {}, p.copy.data(), p.param.count(), p.param.dtype(),
              p.grad.dtype(), p.kind,        0};
  for (int i = 0; i < 3; ++i) row.state[i] = p.state[static_cast<std::size_t>(i)].data();
  return row;
}

std::vector<Parameter> parameters() {
  constexpr CopyKind kKinds[] = {CopyKind::kNone,     CopyKind::kFloat16,
                                 CopyKind::kBFloat16, CopyKind::kRoundedToFloat16,
                                 CopyKind::kFloat32,  CopyKind::kRoundedToBFloat16};
  std::vector<Parameter> list;
  for (const DType param : kFloats) {
    for (const DType grad : kFloats) {
      if (grad == DType::kFloat64 && param != DType::kFloat64) continue;
      for (const std::int64_t count : {0, 1, 18, 8193}) {
        const auto n = static_cast<unsigned>(list.size());
        list.emplace_back(param, grad, kKinds[n % 6], count, n % 2, 10 * n);
      }
    }
  }
  return list;
}

// A parameter's memory on the device.
struct OnDevice {
  DeviceArray param, grad, copy;
  std::vector<DeviceArray> state;
  DeviceNumber<std::int64_t> steps;
  DeviceNumber<double> running_norm;

  OnDevice(const Parameter& p, std::int64_t before)
      : param(p.param, before), grad(p.grad, before), copy(p.copy, before) {
    for (const Array& array : p.state) state.emplace_back(array, before);
  }
};

template <typename Recipe>
struct Case {
  const char* name;
  Recipe recipes[2];
  StepFunction<Recipe> Interface::*function;
};

// Everything that one test needs of both sides.
template <typename Recipe>
struct Sides {
  std::vector<Parameter> host = parameters();
  std::vector<OnDevice> device;
  std::vector<StepRow> rows;
  std::vector<RowState> states;
  DeviceNumber<float> skip{0}, inv_scale{0.5f};
  DeviceNumber<double> grad_norm;

  explicit Sides(std::int64_t before) {
    device.reserve(host.size());
    for (Parameter& p : host) {
      const OnDevice& d = device.emplace_back(p, before);
      StepRow row = row_of(p);
      row.param = d.param.data();
      row.grad = d.grad.data();
      row.copy = d.copy.data();
      for (int i = 0; i < 3; ++i) row.state[i] = d.state[static_cast<std::size_t>(i)].data();
      row.scalars = p.recipe;
      rows.push_back(row);
      states.push_back({d.steps.data(), d.running_norm.data()});
    }
  }
  bool step(const Interface& cuda, const Case<Recipe>& c, List* list, bool clips = false) {
    const StepFlags flags{skip.data(), inv_scale.data(), clips ? grad_norm.data() : nullptr};
    return (cuda.*c.function)(list, rows.data(), states.data(),
                              static_cast<std::int64_t>(rows.size()), c.recipes, 2, flags, nullptr);
  }
};

void expect_near(const Array& got, const Array& expected, double tolerance, const char* name,
                 const char* what) {
  for (std::int64_t k = 0; k < got.count(); ++k) {
    ASSERT_NEAR(got[k], expected[k], tolerance * (1 + std::abs(expected[k])))
        << name << ' ' << what << ' ' << name_of(got.dtype()) << ' ' << got.count() << ' ' << k;
  }
}

// One step more may differ by a rounding of the weight's type each.
template <typename Recipe>
void expect_same(const Sides<Recipe>& sides, const char* name, int steps, double state_tolerance) {
  for (std::size_t i = 0; i < sides.host.size(); ++i) {
    const Parameter& p = sides.host[i];
    const OnDevice& d = sides.device[i];
    const double tolerance = steps * tolerance_of(p.param.dtype()) * 2;
    expect_near(d.param.read(), p.param, std::max(tolerance, state_tolerance / 10), name, "weight");
    const double of_state = p.param.dtype() == DType::kFloat64 ? 1e-11 : state_tolerance;
    for (std::size_t s = 0; s < p.state.size(); ++s) {
      expect_near(d.state[s].read(), p.state[s], of_state, name, "state");
    }
    if (p.kind == CopyKind::kNone || size_of(p.param.dtype()) < 4) continue;
    const double of_copy = p.kind == CopyKind::kFloat32 ? 0
                           : p.kind == CopyKind::kFloat16 || p.kind == CopyKind::kRoundedToFloat16
                               ? tolerance_of(DType::kFloat16)
                               : tolerance_of(DType::kBFloat16);
    expect_near(d.copy.read(), p.copy, tolerance + of_copy + state_tolerance, name, "copy");
  }
}

// The host's numbers of a step, as an optimizer makes them.
template <typename Recipe>
void host_step(const Recipe* recipes, std::vector<Parameter>& list, std::int64_t step, double clip,
               std::vector<double>& running) {
  const float inv_scale = 0.5f;
  const Guard guard{nullptr, &inv_scale};
  const KernelSet& set = baseline::kernel_set();
  for (std::size_t i = 0; i < list.size(); ++i) {
    Parameter& p = list[i];
    const StepRow row = row_of(p);
    const Range all{0, p.param.count()};
    const Recipe& recipe = recipes[p.recipe];
    const double factor = clip > 0 ? clip_factor(clip * 0.5, recipe.max_grad_norm) : 1.0;
    if constexpr (std::is_same_v<Recipe, NovogradRecipe>) {
      const double norm = recipe.largest ? set.max_magnitude(p.grad.in(), all)
                                         : std::sqrt(set.square_sum(p.grad.in(), all));
      running[i] = novograd_norm(recipe, step, running[i], norm * 0.5);
      set.novograd(row, all, scalars_at(recipe, step, running[i], factor), guard);
    } else {
      auto h = scalars_at(recipe, step, factor);
      if constexpr (std::is_same_v<Recipe, AdamRecipe>) set.adam(row, all, h, guard);
      if constexpr (std::is_same_v<Recipe, SgdRecipe>) set.sgd(row, all, h, guard);
      if constexpr (std::is_same_v<Recipe, AdagradRecipe>) set.adagrad(row, all, h, guard);
      if constexpr (std::is_same_v<Recipe, LambRecipe>) {
        const LambNorms sums = set.lamb_moments(row, all, h, guard);
        h.rate = lamb_rate(recipe, std::sqrt(sums.param), std::sqrt(sums.update));
        set.lamb_apply(row, all, h, guard);
      }
    }
  }
}

class CudaSteps : public OnCuda {
 protected:
  template <typename Recipe>
  void try_case(const Case<Recipe>& c, double state_tolerance = 4e-6) {
    for (const std::int64_t before : {0, 1}) {
      Sides<Recipe> sides(before);
      std::vector<double> running(sides.host.size());
      for (int step = 1; step <= 3; ++step) {
        // The second step is clipped, and one that is skipped comes before it.
        const double norm = step == 2 ? 4.0 : 0;
        if (step == 2) {
          const float on = 1;
          expect_done(cudaMemcpy(sides.skip.data(), &on, sizeof(on), cudaMemcpyHostToDevice));
          expect(sides.step(cuda(), c, list()));
          const float off = 0;
          expect_done(cudaMemcpy(sides.skip.data(), &off, sizeof(off), cudaMemcpyHostToDevice));
          expect_done(
              cudaMemcpy(sides.grad_norm.data(), &norm, sizeof(norm), cudaMemcpyHostToDevice));
        }
        expect(sides.step(cuda(), c, list(), step == 2));
        host_step(c.recipes, sides.host, step, norm, running);
        expect_same(sides, c.name, step, state_tolerance);
        if (HasFatalFailure()) return;
      }
      for (const OnDevice& d : sides.device) EXPECT_EQ(d.steps.value(), 3) << c.name;
    }
  }

  // A parameter as floats with a bfloat16 copy, and split, with the gradients and states of both.
  template <typename Recipe>
  void expect_split_like_float(const Case<Recipe>& c, std::int64_t before) {
    constexpr std::int64_t kCount = 20003;
    Parameter p(DType::kFloat32, DType::kBFloat16, CopyKind::kBFloat16, kCount, 0, 7);
    // Ties, as steps seldom leave them.
    for (std::int64_t i = 0; i < kCount; i += 3) {
      p.param.set(i, p.param[i] < 0 ? -1.0 - 0x1p-8 : 1.0 + 0x1p-8 * static_cast<double>(i % 4));
    }
    const OnDevice whole(p, before);
    const OnDevice split(p, before);
    const DeviceArray weight(Array(DType::kBFloat16, kCount), before);
    const DeviceArray remainder(Array(DType::kBFloat16, kCount), before);
    const DeviceArray ties(Array(DType::kFloat32, words_of_ties(kCount)), 0);
    const auto row_on = [&](const OnDevice& d) {
      StepRow row = row_of(p);
      row.param = d.param.data();
      row.grad = d.grad.data();
      row.copy = d.copy.data();
      for (int i = 0; i < 3; ++i) row.state[i] = d.state[static_cast<std::size_t>(i)].data();
      return row;
    };
    StepRow rows[] = {row_on(whole), row_on(split)};
    rows[1].param = weight.data();
    rows[1].param_dtype = DType::kBFloat16;
    rows[1].remainder = remainder.data();
    rows[1].ties = static_cast<std::uint32_t*>(ties.data());
    rows[1].copy_kind = CopyKind::kNone;
    rows[1].copy = nullptr;
    expect(
        cuda().split_masters(&rows[1], static_cast<const float*>(split.param.data()), 0, nullptr));
    const DeviceNumber<std::int64_t> steps[2];
    const RowState states[] = {{steps[0].data(), nullptr}, {steps[1].data(), nullptr}};
    for (int step = 0; step < 4; ++step) {
      expect((cuda().*c.function)(list(), rows, states, 2, c.recipes, 2, {}, nullptr));
      expect(cuda().join_masters(&rows[1], static_cast<float*>(split.param.data()), 0, nullptr));
      EXPECT_EQ(split.param.read(), whole.param.read()) << c.name;
      EXPECT_EQ(weight.read(), whole.copy.read()) << c.name;
      for (std::size_t s = 0; s < 3; ++s) {
        EXPECT_EQ(split.state[s].read(), whole.state[s].read()) << c.name;
      }
    }
  }

  template <typename Recipe>
  void expect_nothing_moves(const Case<Recipe>& c) {
    Sides<Recipe> sides(0);
    const float on = 1;
    expect_done(cudaMemcpy(sides.skip.data(), &on, sizeof(on), cudaMemcpyHostToDevice));
    expect(sides.step(cuda(), c, list()));
    for (std::size_t i = 0; i < sides.host.size(); ++i) {
      EXPECT_EQ(sides.device[i].param.read(), sides.host[i].param) << c.name;
      EXPECT_EQ(sides.device[i].copy.read(), sides.host[i].copy) << c.name;
      for (std::size_t s = 0; s < 3; ++s) {
        EXPECT_EQ(sides.device[i].state[s].read(), sides.host[i].state[s]) << c.name;
      }
      EXPECT_EQ(sides.device[i].steps.value(), 0) << c.name;
      EXPECT_EQ(sides.device[i].running_norm.value(), 0) << c.name;
    }
  }
};

Case<AdamRecipe> adam_case() {
  AdamRecipe plain{.lr = 1e-3,
                   .beta1 = 0.9,
                   .beta2 = 0.999,
                   .eps = 1e-8,
                   .weight_decay = 0.1,
                   .max_grad_norm = 1};
  AdamRecipe other = plain;
  other.decoupled = false;
  other.amsgrad = true;
  other.eps_inside_sqrt = true;
  other.max_grad_norm = 0;
  return {"Adam", {plain, other}, &Interface::adam};
}
Case<SgdRecipe> sgd_case() {
  return {"Sgd",
          {{.lr = 0.1,
            .momentum = 0.9,
            .dampening = 0.3,
            .weight_decay = 0.01,
            .max_grad_norm = 1,
            .decay_after_momentum = true},
           {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}},
          &Interface::sgd};
}
Case<AdagradRecipe> adagrad_case() {
  return {"Adagrad",
          {{.lr = 0.01, .lr_decay = 0.1, .eps = 1e-10, .weight_decay = 0.1},
           {.lr = 0.01, .eps = 1e-10, .weight_decay = 0.1, .decoupled = true}},
          &Interface::adagrad};
}
Case<LambRecipe> lamb_case() {
  return {"Lamb",
          {{.lr = 0.01,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .eps = 1e-6,
            .weight_decay = 0.01,
            .max_grad_norm = 1},
           {.lr = 0.01,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .eps = 1e-6,
            .decoupled = false,
            .bias_correction = false,
            .grad_averaging = false,
            .always_adapts = true}},
          &Interface::lamb};
}
Case<NovogradRecipe> novograd_case() {
  return {"Novograd",
          {{.lr = 0.01, .beta1 = 0.95, .beta2 = 0.98, .eps = 1e-8, .weight_decay = 0.01},
           {.lr = 0.01,
            .beta1 = 0.95,
            .beta2 = 0.98,
            .eps = 1e-3,
            .weight_decay = 0.01,
            .bias_correction = false,
            .grad_averaging = false,
            .decay_inside_moment = true,
            .init_zero = true,
            .largest = true}},
          &Interface::novograd};
}

TEST_F(CudaSteps, AdamAgreesWithTheCpu) {
  try_case(adam_case());
}
TEST_F(CudaSteps, SgdAgreesWithTheCpu) {
  try_case(sgd_case());
}
TEST_F(CudaSteps, AdagradAgreesWithTheCpu) {
  try_case(adagrad_case());
}
TEST_F(CudaSteps, LambAgreesWithTheCpu) {
  try_case(lamb_case());
}
TEST_F(CudaSteps, NovogradAgreesWithTheCpu) {
  try_case(novograd_case());
}

TEST_F(CudaSteps, NothingMovesWhereTheFlagIsSetNotEvenACounter) {
  expect_nothing_moves(adam_case());
  expect_nothing_moves(sgd_case());
  expect_nothing_moves(adagrad_case());
  expect_nothing_moves(lamb_case());
  expect_nothing_moves(novograd_case());
}

TEST_F(CudaSteps, SplitMastersAreSteppedLikeFloatOnes) {
  for (const std::int64_t before : {0, 1}) {
    expect_split_like_float(adam_case(), before);
    expect_split_like_float(sgd_case(), before);
    expect_split_like_float(lamb_case(), before);
  }
}

TEST_F(CudaSteps, PlainSgdNeedsNoCounterAndNoState) {
  Parameter p(DType::kFloat32, DType::kFloat16, CopyKind::kBFloat16, 20001, 0, 3);
  const OnDevice d(p, 0);
  StepRow row = row_of(p);
  row.param = d.param.data();
  row.grad = d.grad.data();
  row.copy = d.copy.data();
  for (void*& state : row.state) state = nullptr;
  const RowState none;
  const SgdRecipe recipe{.lr = 0.1};
  expect(cuda().sgd(list(), &row, &none, 1, &recipe, 1, {}, nullptr));
  const Array got = d.param.read();
  for (std::int64_t i = 0; i < got.count(); ++i) {
    ASSERT_NEAR(got[i], p.param[i] - 0.1 * p.grad[i], 1e-6);
  }
  expect(cuda().sgd(list(), nullptr, nullptr, 0, nullptr, 0, {}, nullptr));
}

}  // namespace
}  // namespace mezzo::kernels::cuda
