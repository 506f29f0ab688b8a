// Low-precision copies of weights on a device with streams and captures.
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <thread>

#include "casting/cast_loans.h"
#include "casting/weights.h"
#include "mezzo/amp.h"
#include "mezzo/autocast.h"
#include "mezzo/cast_counts.h"
#include "mezzo/hardware.h"
#include "mezzo/messages.h"
#include "mezzo/optim.h"
#include "pretend/device.h"

namespace mezzo::casting {
namespace {

constexpr at::ScalarType kLow = at::kBFloat16;

at::Tensor rounded(const at::Tensor& tensor) {
  return tensor.detach().cpu().to(kLow).to(at::kFloat);
}

/// The product in the low type, from the values as they are now.
at::Tensor expected(const at::Tensor& x, const at::Tensor& weight) {
  return rounded(at::mm(rounded(x), rounded(weight).t()));
}

bool close(const at::Tensor& got, const at::Tensor& wanted) {
  return at::allclose(got.detach().cpu().to(at::kFloat), wanted, 2e-2, 2e-2);
}

struct WeightCopies : testing::Test {
  WeightCopies() {
    torch::manual_seed(1);
    pretend::finish();
    weight = torch::randn({5, 6}).to(pretend::device()).requires_grad_();
    x = torch::randn({3, 6}).to(pretend::device());
    pretend::finish();
  }
  ~WeightCopies() override {
    pretend::finish();
    pretend::seed(0);
  }

  at::Tensor product() const {
    const amp::Autocast scope(Policy::defaults(kLow));
    return at::linear(x, weight);
  }
  at::Tensor product_on(c10::Stream stream) const {
    const c10::StreamGuard guard(stream);
    return product();
  }
  /// The value as the host reads it on a stream, before anybody waits for others.
  static at::Tensor read_on(c10::Stream stream, const at::Tensor& tensor) {
    const c10::StreamGuard guard(stream);
    return tensor.detach().cpu();
  }
  static at::Tensor read(const at::Tensor& tensor) { return tensor.detach().cpu(); }
  void expect_current(const at::Tensor& product_read) const {
    pretend::finish();
    EXPECT_TRUE(close(product_read, expected(x, weight)));
  }
  void scale_weight(double factor) {
    const torch::NoGradGuard no_grad;
    weight.mul_(factor);
  }
  /// A captured call, and what it gave.
  template <typename Call>
  at::Tensor captured(pretend::Graph& graph, const Call& call) {
    pretend::finish();
    const c10::Stream stream = pretend::new_stream();
    const c10::StreamGuard guard(stream);
    graph.begin(stream);
    try {
      at::Tensor result = call();
      graph.end();
      return result;
    } catch (...) {
      EXPECT_THROW(graph.end(), c10::Error);
      throw;
    }
  }
  static std::int64_t weight_casts() { return cast_counts().weight_casts; }

  at::Tensor weight, x;
  c10::Stream one = pretend::new_stream();
  c10::Stream other = pretend::new_stream();
};

TEST_F(WeightCopies, OfAnotherStreamAreWaitedFor) {
  const std::int64_t before = weight_casts();
  const at::Tensor first = product_on(one);
  const at::Tensor second = product_on(other);
  EXPECT_EQ(weight_casts(), before + 1);
  const at::Tensor value = read_on(other, second);
  expect_current(value);
  expect_current(read_on(one, first));
}

TEST_F(WeightCopies, AreWaitedForOnEachStreamAndAfterEachCast) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    pretend::seed(seed);
    scale_weight(1.25);
    pretend::finish();
    product_on(one);
    const at::Tensor second = product_on(other);
    const at::Tensor third = product();
    const at::Tensor values[] = {read_on(other, second), read(third)};
    for (const at::Tensor& value : values) expect_current(value);
  }
}

TEST_F(WeightCopies, ServeThreadsWithStreamsOfTheirOwn) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    pretend::seed(seed);
    forget_weights({weight});
    std::vector<at::Tensor> results(4);
    std::vector<std::thread> threads;
    for (at::Tensor& result : results) {
      threads.emplace_back([&] {
        const torch::NoGradGuard no_grad;
        const c10::Stream own = pretend::new_stream();
        result = read_on(own, product_on(own));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const at::Tensor& result : results) expect_current(result);
  }
}

TEST_F(WeightCopies, KeepTheirMemoryUntilOtherStreamsAreDone) {
  const torch::NoGradGuard no_grad;
  product_on(one);
  pretend::finish();
  const at::Tensor late = product_on(other);
  forget_weights({weight});
  {
    const c10::StreamGuard guard(one);
    const at::Tensor taker = at::full({5, 6}, 7, weight.options().dtype(kLow));
    EXPECT_EQ(read_on(one, taker).min().item<float>(), 7);
  }
  expect_current(read_on(other, late));
}

TEST_F(WeightCopies, ThatAnUpdateRefreshedAreWaitedFor) {
  product_on(one);
  pretend::finish();
  {
    const c10::StreamGuard guard(one);
    scale_weight(-2);
    refresh_casts({weight});
  }
  const std::int64_t before = weight_casts();
  const at::Tensor late = product_on(other);
  EXPECT_EQ(weight_casts(), before);
  expect_current(read_on(other, late));
}

TEST_F(WeightCopies, ThatAStepWroteAreWaitedFor) {
  torch::nn::Linear net(6, 5);
  net->to(pretend::device());
  optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(0.5));
  auto [model, optimizer] =
      amp::initialize(net, adam, amp::Options{.opt_level = "O4", .verbosity = 0});
  for (int step = 0; step < 3; ++step) {
    {
      const c10::StreamGuard guard(one);
      optimizer.zero_grad();
      amp::scale_loss(model(x).to(at::kFloat).square().sum(), optimizer).backward();
      optimizer.step();
    }
    const std::int64_t before = weight_casts();
    at::Tensor late;
    {
      const c10::StreamGuard guard(other);
      const torch::NoGradGuard no_grad;
      late = model(x).to(at::kFloat).cpu();
    }
    EXPECT_EQ(weight_casts(), before) << "the step wrote the copies";
    pretend::finish();
    EXPECT_TRUE(close(late, rounded(expected(x, net->weight) + rounded(net->bias)))) << step;
  }
}

TEST_F(WeightCopies, OfACaptureAreNotForOthers) {
  pretend::Graph graph;
  const at::Tensor output = captured(graph, [&] { return product(); });
  expect_current(read(product()));
  graph.replay();
  expect_current(read(output));
}

TEST_F(WeightCopies, OfOneCaptureAreNotForAnother) {
  pretend::Graph first, second;
  captured(first, [&] { return product(); });
  const at::Tensor output = captured(second, [&] { return product(); });
  second.replay();
  expect_current(read(output));
}

TEST_F(WeightCopies, FromBeforeACaptureAreNotForItsReplays) {
  const torch::NoGradGuard no_grad;
  remember_weights({weight});
  product();
  pretend::Graph graph;
  const at::Tensor output = captured(graph, [&] { return product(); });
  for (const double factor : {-3.0, 0.5}) {
    scale_weight(factor);
    graph.replay();
    expect_current(read(output));
  }
}

TEST_F(WeightCopies, AreMadeOnceInACapture) {
  pretend::Graph graph;
  const std::int64_t before = weight_casts();
  const at::Tensor output = captured(graph, [&] {
    const amp::Autocast scope(Policy::defaults(kLow));
    return at::linear(x, weight) + at::linear(x, weight);
  });
  EXPECT_EQ(weight_casts(), before + 1);
  scale_weight(3);
  graph.replay();
  EXPECT_TRUE(
      at::allclose(output.detach().cpu().to(at::kFloat), 2 * expected(x, weight), 4e-2, 4e-2));
}

TEST_F(WeightCopies, AreNotTrustedAfterReplaysOfAnUpdate) {
  const torch::NoGradGuard no_grad;
  for (const bool trains : {true, false}) {
    SCOPED_TRACE(trains);
    weight.requires_grad_(trains);
    remember_weights({weight});
    product();
    refresh_casts({weight});
    pretend::Graph graph;
    captured(graph, [&] {
      CastLoans loans;
      loans.begin(1);
      const CastLoan* const loan = loans.lend(weight);
      scale_weight(-2);
      if (loan != nullptr) loan->copy.copy_(weight);
      loans.take_back();
      if (loan == nullptr) refresh_casts({weight});
      return weight;
    });
    for (int turn = 0; turn < 3; ++turn) {
      SCOPED_TRACE(turn);
      expect_current(read(product()));
      graph.replay();
      expect_current(read(product()));
    }
    // A step outside of the graph makes no promise for its replays.
    scale_weight(2);
    refresh_casts({weight});
    product();
    graph.replay();
    expect_current(read(product()));
  }
}

TEST_F(WeightCopies, LeaveNoNodeBehindTheirGraph) {
  product().sum().backward();
  EXPECT_EQ(torch::autograd::impl::try_get_grad_accumulator(weight), nullptr);
  const at::Tensor kept = product();
  const auto node = kept.grad_fn();
  EXPECT_NE(torch::autograd::impl::try_get_grad_accumulator(weight), nullptr);
}

TEST_F(WeightCopies, AreLedBackOnTheStreamOfTheirUse) {
  const at::Tensor kept = product();  // its node is of the default stream
  const at::Tensor elsewhere = product_on(one);
  std::vector<torch::autograd::Node*> open{elsewhere.grad_fn().get()};
  int found = 0;
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (node->name() == "MezzoWeightCast") {
      ++found;
      EXPECT_EQ(node->stream(), one);
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.is_valid()) open.push_back(edge.function.get());
    }
  }
  EXPECT_EQ(found, 1);
}

TEST_F(WeightCopies, LetForwardAndBackwardBeCapturedAfterOrdinarySteps) {
  const auto gradient = [&] {
    weight.mutable_grad().reset();
    // Used as it is as well, before the cast: its accumulator must be the capture's own.
    const at::Tensor own = weight.sum();
    const amp::Autocast scope(Policy::defaults(kLow));
    (at::linear(x, weight).to(at::kFloat).square().sum() + own).backward();
    return weight.grad();
  };
  for (int step = 0; step < 2; ++step) gradient();
  pretend::Graph graph;
  const at::Tensor in_graph = captured(graph, gradient);
  scale_weight(-1.5);
  graph.replay();
  const at::Tensor replayed = in_graph.cpu();
  EXPECT_TRUE(at::allclose(replayed, gradient().cpu(), 2e-2, 2e-2));
}

TEST_F(WeightCopies, AreRightBesideReplaysOfAWholeStep) {
  const auto make = [] {
    torch::manual_seed(2);
    torch::nn::Linear net(torch::nn::LinearOptions(6, 5).bias(false));
    net->to(pretend::device());
    return net;
  };
  const auto step = [&](torch::nn::Linear& net, optim::FusedAdam& adam) {
    net->weight.mutable_grad().reset();
    {
      const amp::Autocast scope(Policy::defaults(kLow));
      net(x).to(at::kFloat).square().sum().backward();
    }
    adam.step();
  };
  const auto evaluation = [&](torch::nn::Linear& net) {
    const torch::NoGradGuard no_grad;
    const amp::Autocast scope(Policy::defaults(kLow));
    return read(net(x));
  };
  torch::nn::Linear net = make(), twin = make();
  optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(0.1));
  optim::FusedAdam of_twin(twin->parameters(), optim::FusedAdamOptions(0.1));
  step(net, adam);
  step(twin, of_twin);
  evaluation(net);
  pretend::Graph graph;
  captured(graph, [&] {
    step(net, adam);
    return x;
  });
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_TRUE(close(evaluation(net), expected(x, net->weight))) << turn;
    graph.replay();
    step(twin, of_twin);
    EXPECT_TRUE(at::allclose(read(net->weight), read(twin->weight), 1e-4, 1e-5)) << turn;
    EXPECT_TRUE(close(evaluation(net), expected(x, net->weight))) << turn;
  }
}

TEST(CudaGenerations, AreInTheChoiceOfAType) {
  EXPECT_THAT(compute_choice(at::kHalf).cuda,
              testing::ElementsAre("cuda:0 (pretended, compute capability 9.0): native",
                                   "cuda:1 (pretended, older, compute capability 7.5): native"));
  const std::string slow =
      "cuda:1 (pretended, older, compute capability 7.5): no bfloat16 in hardware before 8.0, so "
      "operators are slow or refused";
  EXPECT_THAT(compute_choice(at::kBFloat16).cuda,
              testing::ElementsAre("cuda:0 (pretended, compute capability 9.0): native", slow));
  EXPECT_THAT(hardware_report(), testing::HasSubstr("  " + slow + '\n'));
}

TEST(CudaGenerations, ThatLackTheTypeOfALevelAreNamedOnce) {
  const auto said = [](int index, const char* level) {
    torch::nn::Linear net(6, 5);
    net->to(pretend::device(index));
    torch::optim::SGD sgd(net->parameters(), 0.1);
    std::string text;
    const MessageSink before =
        set_message_sink([&](const std::string& one) { text += one + '\n'; });
    amp::initialize(net, sgd, amp::Options{.opt_level = level});
    set_message_sink(before);
    return text;
  };
  for (const char* level : {"O4", "O5"}) {
    EXPECT_THAT(said(1, level),
                testing::HasSubstr("cuda:1 (pretended, older, compute capability 7.5) has no "
                                   "bfloat16 in hardware before 8.0"));
    EXPECT_THAT(said(0, level), testing::Not(testing::HasSubstr("bfloat16 in hardware")));
  }
  EXPECT_THAT(said(1, "O1"), testing::Not(testing::HasSubstr("in hardware")));
}

}  // namespace
}  // namespace mezzo::casting
