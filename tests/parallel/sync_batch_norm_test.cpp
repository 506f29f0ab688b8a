// SyncBatchNorm of several processes against LibTorch's batch norm of one process, in double, on
// the batches of all of them together.
#include "mezzo/sync_batch_norm.h"

#include <gmock/gmock.h>

#include "mezzo/parallel.h"
#include "parallel/batch_norm_steps.h"
#include "parallel/near.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing_ranks::at;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_near;
using testing_ranks::Rank;
using testing_ranks::start;
using Sizes = std::vector<std::int64_t>;

struct Case {
  std::string name;
  at::ScalarType type = at::kFloat;
  Sizes shape = {0, 5, 4, 3};  // the first is the rank's own
  Sizes samples = {3};         // of rank 0, 1, ...; again from the start
  SyncBatchNormOptions options = {};
  bool residual = false;
  bool channels_last = false;
  double centre = 0;
  int steps = 2;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const std::string name = c10::toString(type);
    all.push_back({name, type});
    all.push_back({name + ", uneven", type, {0, 17, 6}, {1, 4, 2, 7}});
    all.push_back({name + ", channels-last", type, {0, 19, 5, 4}, {2, 3}, {}, true, true});
    all.push_back({name + ", one sample", type, {0, 33}, {1}});
    all.push_back({name + ", an empty batch", type, {0, 6, 2, 3}, {3, 0}});
    all.push_back(
        {name + ", ReLU and residual", type, {0, 4, 7, 7}, {2, 5}, {.fuse_relu = true}, true});
  }
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const std::string name = c10::toString(type);
    all.push_back({name + ", two dimensions", type, {0, 8}, {5, 2}});
    all.push_back({name + ", five dimensions", type, {0, 3, 2, 3, 4}, {1, 2}});
    all.push_back({name + ", five channels-last", type, {0, 3, 2, 3, 4}, {1, 2}, {}, false, true});
    all.push_back({name + ", not affine", type, {0, 3, 8}, {2}, {.affine = false}});
    all.push_back(
        {name + ", no running statistics", type, {0, 3, 8}, {2}, {.track_running_stats = false}});
    all.push_back({name + ", cumulative", type, {0, 3, 8}, {2}, {.momentum = std::nullopt}});
    all.push_back({name + ", channel_last", type, {0, 4, 6, 5}, {2, 1}, {.channel_last = true}});
    all.push_back({name + ", rows", type, {0, 9, 5}, {2, 1}, {.channel_last = true}, true});
    all.push_back({name + ", ReLU", type, {0, 3, 8}, {2}, {.eps = 0.1, .fuse_relu = true}});
  }
  all.push_back({"Float, far", at::kFloat, {0, 5, 30}, {40, 30}, {}, false, false, 1e4, 1});
  all.push_back({"Double, far", at::kDouble, {0, 5, 30}, {40, 30}, {}, false, false, 1e4, 1});
  return all;
}

double tolerance_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 1e-10;
    case at::kHalf:
      return 4e-3;
    case at::kBFloat16:
      return 3e-2;
    default:
      return 1e-5;
  }
}

// The reference: double, channels second, all ranks' samples.
struct Whole {
  at::Tensor x, z, g;
  at::Tensor weight, bias, running_mean, running_var;
};

// Everything that one rank sees of it.
struct Own {
  std::int64_t first = 0;
  std::int64_t count = 0;
  at::Tensor of(const at::Tensor& whole) const { return whole.narrow(0, first, count); }
};

Own own_samples(const Sizes& samples, int rank) {
  Own own;
  for (int r = 0; r <= rank; ++r) {
    own.first += own.count;
    own.count = samples[static_cast<std::size_t>(r) % samples.size()];
  }
  return own;
}

at::Tensor second(const at::Tensor& tensor, bool channel_last) {
  return channel_last ? tensor.movedim(-1, 1) : tensor;
}

at::Tensor reference(const Whole& w, const Case& one, bool training, double momentum) {
  at::Tensor y = at::batch_norm(
      second(w.x, one.options.channel_last), w.weight, w.bias, w.running_mean, w.running_var,
      training || !w.running_mean.defined(), momentum, one.options.eps, false);
  if (one.options.channel_last) y = y.movedim(1, -1);
  if (w.z.defined()) y = y + w.z;
  return one.options.fuse_relu ? y.relu() : y;
}

Whole whole_batch(const Case& one, std::int64_t samples, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  Sizes shape = one.shape;
  shape[0] = samples;
  Whole w;
  const auto rounded = [&](const at::Tensor& t) { return t.to(one.type).to(at::kDouble); };
  w.x = rounded(torch::randn(shape, at::kDouble) * 2 + one.centre).requires_grad_(true);
  if (one.residual) w.z = rounded(torch::randn(shape, at::kDouble)).requires_grad_(true);
  w.g = rounded(torch::randn(shape, at::kDouble));
  return w;
}

std::int64_t collectives() {
  return world().counts().collectives;
}

// A tensor of the case's type and layout.
at::Tensor as_input(const at::Tensor& own, const Case& one) {
  at::Tensor t = own.detach().to(one.type).contiguous();
  if (one.channels_last && t.dim() == 4) t = t.contiguous(at::MemoryFormat::ChannelsLast);
  if (one.channels_last && t.dim() == 5) t = t.contiguous(at::MemoryFormat::ChannelsLast3d);
  return t;
}

void check_case(const Case& one, int ranks, int rank, const std::optional<ProcessGroup>& group) {
  SyncBatchNormOptions options = one.options;
  options.num_features = one.shape[one.options.channel_last ? one.shape.size() - 1 : 1];
  options.process_group = group;
  SyncBatchNorm norm(options);
  if (one.type == at::kDouble) norm->to(at::kDouble);
  const Own own = own_samples(one.samples, rank);
  const Own last = own_samples(one.samples, ranks - 1);
  Whole w;
  at::Tensor running_mean, running_var;
  if (options.track_running_stats) {
    running_mean = torch::zeros({options.num_features}, at::kDouble);
    running_var = torch::ones({options.num_features}, at::kDouble);
  }
  if (options.affine) {
    torch::manual_seed(7);
    const at::NoGradGuard no_grad;
    norm->weight.copy_(torch::rand({options.num_features}) + 0.5);
    norm->bias.copy_(torch::randn({options.num_features}));
  }
  const double tolerance = tolerance_of(one.type);
  for (int step = 0; step < one.steps; ++step) {
    const std::string what = one.name + ", step " + std::to_string(step) + ": ";
    w = whole_batch(one, last.first + last.count, step);
    w.running_mean = running_mean;
    w.running_var = running_var;
    if (options.affine) {
      w.weight = norm->weight.detach().to(at::kDouble).clone().requires_grad_(true);
      w.bias = norm->bias.detach().to(at::kDouble).clone().requires_grad_(true);
    }
    const at::Tensor expected =
        reference(w, one, true, options.momentum.value_or(1.0 / (step + 1)));
    (expected * w.g).sum().backward();

    const at::Tensor x = as_input(own.of(w.x), one).requires_grad_(true);
    at::Tensor z;
    if (one.residual) z = own.of(w.z).detach().to(one.type).requires_grad_(true);
    norm->zero_grad();
    std::int64_t before = collectives();
    const at::Tensor y = one.residual ? norm(x, z) : norm(x);
    EXPECT_EQ(collectives() - before, ranks > 1 ? 1 : 0) << what << "forward";
    EXPECT_EQ(y.scalar_type(), one.type) << what;
    EXPECT_EQ(y.strides(), x.strides()) << what;
    before = collectives();
    y.backward(own.of(w.g).to(one.type));
    EXPECT_EQ(collectives() - before, ranks > 1 ? 1 : 0) << what << "backward";

    expect_near(y, own.of(expected), tolerance, what + "y");
    expect_near(x.grad(), own.of(w.x.grad()), tolerance, what + "dx");
    if (one.residual) expect_near(z.grad(), own.of(w.z.grad()), tolerance, what + "dz");
    if (options.affine) {
      // This rank's gradients; their sum is the whole's.
      const ProcessGroup all = group.value_or(world());
      const at::Tensor dweight = norm->weight.grad().to(at::kDouble).clone();
      const at::Tensor dbias = norm->bias.grad().to(at::kDouble).clone();
      all.all_reduce(dweight);
      all.all_reduce(dbias);
      expect_near(dweight, w.weight.grad(), tolerance, what + "dweight");
      expect_near(dbias, w.bias.grad(), tolerance, what + "dbias");
    }
    if (options.track_running_stats) {
      const double of_buffers = one.type == at::kDouble ? 1e-10 : 1e-5;
      expect_near(norm->running_mean, running_mean, of_buffers, what + "running mean");
      expect_near(norm->running_var, running_var, of_buffers, what + "running variance");
      EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), step + 1);
    }
  }
  norm->eval();
  w = whole_batch(one, last.first + last.count, 9);
  w.running_mean = running_mean;
  w.running_var = running_var;
  if (options.affine) {
    w.weight = norm->weight.detach().to(at::kDouble);
    w.bias = norm->bias.detach().to(at::kDouble);
  }
  const at::Tensor expected = reference(w, one, false, 0);
  (expected * w.g).sum().backward();
  const std::int64_t before = collectives();
  const at::Tensor x = as_input(own.of(w.x), one).requires_grad_(true);
  const at::Tensor z = one.residual ? own.of(w.z).detach().to(one.type) : at::Tensor();
  const at::Tensor y = norm(x, z);
  y.backward(own.of(w.g).to(one.type));
  EXPECT_EQ(collectives() - before, options.track_running_stats || ranks == 1 ? 0 : 2);
  expect_near(y, own.of(expected), tolerance, one.name + ", evaluation: y");
  expect_near(x.grad(), own.of(w.x.grad()), tolerance, one.name + ", evaluation: dx");
}

const Rank kEquality("sync batch norm", [] {
  start();
  for (const Case& one : cases()) {
    at(one.name);
    check_case(one, world_size(), rank(), std::nullopt);
  }
});

TEST(SyncBatchNorm, EqualsBatchNormOnAllBatchesTogetherWithOneCollectiveEachWay) {
  expect_all_pass("sync batch norm", {.ranks = 2});
  expect_all_pass("sync batch norm", {.ranks = 4});
}

const Rank kNormGroups("sync batch norm groups", [] {
  start();
  EXPECT_FALSE(create_syncbn_process_group(0).has_value());
  EXPECT_THROW(create_syncbn_process_group(3), ConfigError);
  EXPECT_THROW(create_syncbn_process_group(-2), ConfigError);
  const auto group = create_syncbn_process_group(2);
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->ranks(), (std::vector<int>{rank() / 2 * 2, rank() / 2 * 2 + 1}));
  const Case one{"groups", at::kDouble, {0, 5, 4, 3}, {2, 3}};
  SyncBatchNorm norm(SyncBatchNormOptions{.num_features = 5, .process_group = group});
  norm->to(at::kDouble);
  torch::manual_seed(static_cast<std::uint64_t>(rank() / 2));
  const at::Tensor all = torch::randn({5, 5, 4, 3}, at::kDouble);
  const Own own = own_samples(one.samples, group->rank());
  const at::Tensor y = norm(own.of(all));
  const at::Tensor expected = at::batch_norm(all, {}, {}, {}, {}, true, 0.1, 1e-5, false);
  expect_near(y, own.of(expected), 1e-10, "groups");
});

TEST(SyncBatchNorm, KeepsToItsGroup) {
  expect_all_pass("sync batch norm groups", {.ranks = 4});
}

const Rank kNormTwice("sync batch norm twice", [] {
  start();
  for (const bool relu : {false, true}) {
    at(relu ? "relu" : "plain");
    torch::manual_seed(5);
    const int p = world_size();
    const at::Tensor all = torch::randn({3 * p, 4, 5}, at::kDouble);
    const at::Tensor g = torch::randn({3 * p, 4, 5}, at::kDouble);
    const at::Tensor weight = torch::rand({4}, at::kDouble);
    const auto penalty = [](const at::Tensor& y, const at::Tensor& x, const at::Tensor& grad,
                            const at::Tensor& w) {
      const auto grads = torch::autograd::grad({y}, {x, w}, {grad}, true, true);
      return grads[0].square().sum() + y.pow(3).sum();
    };
    const at::Tensor whole = all.clone().requires_grad_(true);
    const at::Tensor w = weight.clone().requires_grad_(true);
    at::Tensor y = at::batch_norm(whole, w, {}, {}, {}, true, 0.1, 1e-5, false);
    if (relu) y = y.relu();
    penalty(y, whole, g, w).backward();

    SyncBatchNorm norm(SyncBatchNormOptions{.num_features = 4, .fuse_relu = relu});
    norm->to(at::kDouble);
    {
      const at::NoGradGuard no_grad;
      norm->weight.copy_(weight);
    }
    const at::Tensor x = all.narrow(0, 3 * rank(), 3).clone().requires_grad_(true);
    penalty(norm(x), x, g.narrow(0, 3 * rank(), 3), norm->weight).backward();
    expect_near(x.grad(), whole.grad().narrow(0, 3 * rank(), 3), 1e-10, "second derivative");
    const at::Tensor dweight = norm->weight.grad().clone();
    world().all_reduce(dweight);
    expect_near(dweight, w.grad(), 1e-10, "second derivative by the weight");
  }
});

TEST(SyncBatchNorm, CanBeDifferentiatedTwiceOverAllRanks) {
  expect_all_pass("sync batch norm twice", {.ranks = 2});
  expect_all_pass("sync batch norm twice", {.ranks = 3});
}

TEST(SyncBatchNorm, AloneIsBatchNorm) {
  InitOptions options;
  options.init_method = "tcp://127.0.0.1:1";
  options.rank = 0;
  options.world_size = 1;
  init_process_group(options);
  for (const Case& one : cases()) {
    if (own_samples(one.samples, 0).count < 2 && one.shape.size() == 2) continue;
    check_case(one, 1, 0, std::nullopt);
  }
  destroy_process_group();
}

TEST(SyncBatchNorm, TakesNegatedViewsAndZerosWithoutMemoryAsTheirValues) {
  SyncBatchNorm ours(3);
  torch::nn::BatchNorm2d theirs(3);
  const auto expect_same = [&](const at::Tensor& x, const at::Tensor& dy) {
    const at::Tensor input = x.detach().requires_grad_(true);
    const at::Tensor values = at::zeros({4, 3, 5, 2}).copy_(x).requires_grad_(true);
    const at::Tensor y = ours(input);
    const at::Tensor expected = theirs(values);
    EXPECT_TRUE(torch::allclose(y, expected, 1e-5, 1e-5));
    y.backward(dy);
    expected.backward(at::zeros({4, 3, 5, 2}).copy_(dy));
    EXPECT_TRUE(torch::allclose(input.grad(), values.grad(), 1e-5, 1e-5));
  };
  const at::Tensor negated = at::_neg_view(torch::randn({4, 3, 5, 2}).add(1));
  const at::Tensor none = at::_efficientzerotensor({4, 3, 5, 2}, at::kFloat);
  expect_same(negated, negated);
  expect_same(none, negated);
  expect_same(negated, none);
  ours->eval();
  theirs->eval();
  expect_same(negated, negated);
}

TEST(BatchNormSteps, AreTheSameByKernelsAndByOperators) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const bool last : {false, true}) {
      torch::manual_seed(1);
      at::Tensor x = (torch::randn({3, 5, 4, 7}, at::kDouble) + 100).to(type);
      if (last) x = x.contiguous(at::MemoryFormat::ChannelsLast);
      const at::Tensor z = torch::randn({3, 5, 4, 7}, at::kDouble).to(type);
      const at::Tensor dy = torch::randn({3, 5, 4, 7}, at::kDouble).to(type);
      const double t = tolerance_of(type);
      const at::Tensor moments = batch_moments(x);
      expect_near(by_operators::batch_moments(x), moments, 1e-6, "moments");
      BatchStep step{
          x,   moments[0], (moments[1] / 84 + 1e-5).rsqrt(), torch::rand({5}), torch::rand({5}),
          true};
      const at::Tensor y = batch_normalised(step, z);
      expect_near(by_operators::batch_normalised(step, z), y.to(at::kDouble), t, "y");
      const at::Tensor sums = batch_gradient_sums(step, dy, y);
      expect_near(by_operators::batch_gradient_sums(step, dy, y), sums, 1e-5, "sums");
      const auto a = batch_gradients(step, dy, y, sums / 84, true, true);
      const auto b = by_operators::batch_gradients(step, dy, y, sums / 84, true, true);
      expect_near(b.first, a.first.to(at::kDouble), t, "dx");
      expect_near(b.second, a.second.to(at::kDouble), 0, "dz");
    }
  }
}

}  // namespace
}  // namespace mezzo::parallel
