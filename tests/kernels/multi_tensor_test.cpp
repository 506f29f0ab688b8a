#include "kernels/multi_tensor.h"

#include <gmock/gmock.h>

#include <thread>

#include "kernels/reference.h"

namespace mezzo::kernels {
namespace {

using namespace testing_support;

class Threads final : public Workers {
 public:
  explicit Threads(int count) : count_(count) {}
  void run(std::int64_t items, const Task& task) const override {
    std::vector<std::thread> threads;
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::int64_t begin = items * i / count_;
      const std::int64_t end = items * (i + 1) / count_;
      if (begin < end) threads.emplace_back([&task, begin, end] { task(begin, end); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int count_;
};

const OneWorker kOne;
const Threads kThree(3);

struct TensorList {
  std::vector<Array> arrays;
  std::vector<Input> in;
  std::vector<Output> out;

  explicit TensorList(unsigned seed) {
    constexpr std::int64_t kCounts[] = {5, 0, 16384, 1, 40001, 16385, 0, 7, 100000};
    for (const std::int64_t count : kCounts) {
      const DType dtype = kFloats[arrays.size() % 3];
      arrays.push_back(Array::random(dtype, count, seed + static_cast<unsigned>(arrays.size())));
    }
    for (Array& array : arrays) {
      in.push_back(array.in());
      out.push_back(array.out());
    }
  }
};

TEST(Chunks, CoverEveryElementOnce) {
  Chunks chunks;
  const std::vector<std::int64_t> counts{0, 3, 16384, 0, 16385, 50000, 0};
  chunks.plan(counts);
  EXPECT_EQ(chunks.size(), 1 + 1 + 2 + 4);
  std::vector<std::int64_t> seen(counts.size());
  for (const auto& [begin, end] :
       {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 5}, {5, chunks.size()}}) {
    chunks.for_each(
        begin, end, [&](std::int64_t i) { return counts[static_cast<std::size_t>(i)]; },
        [&](std::int64_t i, Range range, std::int64_t) {
          EXPECT_EQ(range.begin % Chunks::kElements, 0);
          seen[static_cast<std::size_t>(i)] += range.end - range.begin;
        });
  }
  EXPECT_EQ(seen, counts);
}

TEST(Ahead, GoesFromOneRowIntoTheNextPastEmptyOnesAndStopsBehindTheLast) {
  std::vector<StepRow> rows(5);
  constexpr std::int64_t kCounts[] = {0, 3, 0, 10, 2};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].count = kCounts[i];
  Ahead ahead{rows.data(), rows.data() + rows.size()};
  const auto stands_at = [&](std::ptrdiff_t row, std::int64_t element) {
    return ahead.row == rows.data() + row && ahead.element == element;
  };
  ahead.advance(0);
  EXPECT_TRUE(stands_at(1, 0));
  ahead.advance(2);
  EXPECT_TRUE(stands_at(1, 2));
  ahead.advance(4);
  EXPECT_TRUE(stands_at(3, 3));
  ahead.advance(9);
  EXPECT_EQ(ahead.row, ahead.end);
  ahead.advance(100);
  EXPECT_EQ(ahead.row, ahead.end);
}

TEST(Ahead, IsMovedOnByAsManyElementsAsAStepWorksOn) {
  const AdamScalars<double> h{.beta1 = 0.9,
                              .one_minus_beta1 = 0.1,
                              .beta2 = 0.999,
                              .one_minus_beta2 = 0.001,
                              .step_size = 0.01,
                              .inv_sqrt_bias2 = 1,
                              .eps = 1e-8,
                              .keep = 1,
                              .l2 = 0,
                              .grad_scale = 1,
                              .amsgrad = false,
                              .eps_inside_sqrt = false};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Array param = Array::random(dtype, 100, 1);
    Array grad = Array::random(dtype, 100, 2);
    Array first = Array::random(dtype, 100, 3);
    Array second = Array::random(dtype, 100, 4);
    const StepRow row{.param = param.out().data,
                      .grad = grad.in().data,
                      .state = {first.out().data, second.out().data, nullptr},
                      .count = 100,
                      .param_dtype = dtype,
                      .grad_dtype = dtype};
    const std::vector<StepRow> rows(3, row);
    for (const KernelSet* set : usable_kernel_sets()) {
      Ahead ahead{rows.data(), rows.data() + rows.size(), 60};
      const Guard guard{.ahead = &ahead};
      set->adam(row, {0, 37}, h, guard);
      EXPECT_EQ(ahead.row, rows.data()) << set->name;
      EXPECT_EQ(ahead.element, 97) << set->name;
      set->adam(row, {37, 100}, h, guard);
      EXPECT_EQ(ahead.row, rows.data() + 1) << set->name;
      EXPECT_EQ(ahead.element, 60) << set->name;
      for (int rest = 0; rest < 3; ++rest) set->adam(row, {0, 100}, h, guard);
      EXPECT_EQ(ahead.row, ahead.end) << set->name;
    }
  }
}

TEST(Lists, NormsAreTheSameBitsForAnyNumberOfWorkers) {
  const TensorList list(1);
  std::vector<double> one(list.in.size());
  std::vector<double> three(list.in.size());
  for (const Norm norm : {Norm::kTwo, Norm::kMax}) {
    Lists alone(kOne);
    Lists together(kThree);
    EXPECT_EQ(alone.norm(list.in, norm, one), together.norm(list.in, norm, three));
    EXPECT_EQ(one, three);
  }
}

TEST(Lists, NormsAgreeWithDouble) {
  const TensorList list(2);
  Lists lists(kThree);
  std::vector<double> norms(list.in.size());
  double squares = 0;
  double largest_one = 0;
  const double norm = lists.norm(list.in, Norm::kTwo, norms);
  for (std::size_t i = 0; i < list.arrays.size(); ++i) {
    double of_tensor = 0;
    for (const double x : list.arrays[i].values()) {
      of_tensor += x * x;
      largest_one = std::max(largest_one, std::abs(x));
    }
    EXPECT_NEAR(norms[i], std::sqrt(of_tensor), 1e-12 * (1 + norms[i]));
    squares += of_tensor;
  }
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-12 * norm);
  EXPECT_EQ(lists.norm(list.in, Norm::kMax), largest_one);
}

TEST(Lists, TheLargestMagnitudeOfAListWithNaNIsNaN) {
  TensorList list(3);
  list.arrays[0].set(2, std::numeric_limits<double>::quiet_NaN());
  Lists lists(kOne);
  EXPECT_TRUE(std::isnan(lists.norm(list.in, Norm::kMax)));
}

TEST(Lists, OneBadElementOfAnyTensorIsFound) {
  TensorList list(4);
  Lists lists(kThree);
  EXPECT_TRUE(lists.all_finite(list.in));
  for (Array& array : list.arrays) {
    if (array.count() == 0) continue;
    const double kept = array[array.count() - 1];
    array.set(array.count() - 1, std::numeric_limits<double>::infinity());
    EXPECT_FALSE(lists.all_finite(list.in));
    array.set(array.count() - 1, kept);
  }
}

TEST(Lists, ScaleAndAxpbyCoverTheWholeList) {
  TensorList x(5);
  TensorList y(6);
  TensorList out(7);
  Lists lists(kThree);
  EXPECT_TRUE(lists.scale(x.in, out.out, 2.0));
  for (std::size_t i = 0; i < x.arrays.size(); ++i) {
    for (std::int64_t at = 0; at < x.arrays[i].count(); ++at) {
      ASSERT_EQ(out.arrays[i][at], 2 * x.arrays[i][at]);
    }
  }
  EXPECT_TRUE(lists.axpby(x.in, x.in, out.out, 2.0, -1.0));
  lists.copy(x.in, y.out);
  for (std::size_t i = 0; i < x.arrays.size(); ++i) {
    EXPECT_EQ(out.arrays[i], x.arrays[i]);
    EXPECT_EQ(y.arrays[i], x.arrays[i]);
  }
}

TEST(Lists, LambGivesTheNormsOfWholeTensors) {
  constexpr std::int64_t kCount = 40000;
  Array param = Array::random(DType::kFloat32, kCount, 1);
  Array grad = Array::random(DType::kFloat32, kCount, 2);
  Array exp_avg(DType::kFloat32, kCount);
  Array exp_avg_sq(DType::kFloat32, kCount);
  const std::vector<double> before = param.values();
  const std::vector<StepRow> rows{{param.data(),
                                   grad.data(),
                                   {exp_avg.data(), exp_avg_sq.data()},
                                   nullptr,
                                   kCount,
                                   DType::kFloat32,
                                   DType::kFloat32,
                                   CopyKind::kNone,
                                   0}};
  std::vector<LambScalars<double>> scalars{{0, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0}};
  double update_norm = 0;
  Lists lists(kThree);
  lists.lamb(rows, scalars, {}, [&](std::size_t, double weight, double update) {
    double squares = 0;
    for (const double x : before) squares += x * x;
    EXPECT_NEAR(weight, std::sqrt(squares), 1e-6 * weight);
    update_norm = update;
    return 0.5;
  });
  EXPECT_NEAR(update_norm, std::sqrt(kCount), 0.01);  // every update is the gradient's sign
  for (std::int64_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(param[i], before[static_cast<std::size_t>(i)] - std::copysign(0.5, grad[i]), 1e-3);
  }
}

TEST(Lists, CopiesOfListsLargerThanTheCachesAreOfTheNewWeights) {
  constexpr std::int64_t kCount = 2 * 1024 * 1024 + 5;
  std::vector<Array> weights, gradients, copies;
  std::vector<StepRow> rows;
  for (unsigned i = 0; i < 2; ++i) {
    weights.push_back(Array::random(DType::kFloat32, kCount, i));
    gradients.push_back(Array::random(DType::kBFloat16, kCount, 10 + i));
    copies.emplace_back(DType::kFloat16, kCount);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    StepRow& row = rows.emplace_back();
    row.param = weights[i].data();
    row.grad = gradients[i].data();
    row.copy = copies[i].data();
    row.count = kCount;
    row.grad_dtype = DType::kBFloat16;
    row.copy_kind = CopyKind::kFloat16;
  }
  const Array before = weights[1];
  const SgdScalars<double> scalars{0.1, 0, 1, 0, 1, false, false, false};
  Lists(kThree).sgd(rows, std::span(&scalars, 1), {});
  EXPECT_NE(weights[1], before);
  for (std::size_t i = 0; i < 2; ++i) {
    Array expected(DType::kFloat16, kCount);
    kernels().copy(weights[i].in(), expected.out(), {0, kCount});
    EXPECT_EQ(copies[i], expected);
  }
}

TEST(Lists, AnEmptyListIsFineEverywhere) {
  Lists lists(kThree);
  EXPECT_TRUE(lists.all_finite({}));
  EXPECT_TRUE(lists.scale({}, {}, 2));
  EXPECT_EQ(lists.norm({}, Norm::kTwo), 0);
  lists.adam({}, {}, {});
  lists.sgd({}, {}, {});
}

}  // namespace
}  // namespace mezzo::kernels
