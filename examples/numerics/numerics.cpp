// A network that fails in five ways, one after the other. Each failure is explained, and what the
// explanation advises mends it; docs/insight.md has what it prints.
//
//   numerics [run.jsonl]      the explanations go into that log as well
#include <mezzo/mezzo.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace amp = mezzo::amp;
namespace insight = mezzo::insight;
namespace report = mezzo::report;

namespace {

using Activation = std::function<at::Tensor(const at::Tensor&)>;
using Loss = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& target)>;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(Activation between) : activation(std::move(between)) {}
  at::Tensor forward(const at::Tensor& x) { return second(activation(first(x))); }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(8, 32));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(32, 1));
  Activation activation;
};
TORCH_MODULE(Net);

/// A training in all that the failures change; as it stands here it works.
struct Training {
  amp::Options options{.opt_level = "O1", .loss_scale = 128.0, .verbosity = 0};
  Activation activation = [](const at::Tensor& x) { return torch::relu(x); };
  Loss loss = [](const at::Tensor& logits, const at::Tensor& wanted) {
    return torch::binary_cross_entropy_with_logits(logits, wanted);
  };
  at::Tensor data, target;
  double rate = 1e-3;
};

/// Points, and on which side of a plane they lie.
Training working() {
  torch::manual_seed(0);
  Training training;
  training.data = torch::randn({64, 8});
  training.target = (training.data.sum(1, true) > 0).to(at::kFloat);
  return training;
}

/// Three steps, up to the first that is skipped; why it was.
std::optional<insight::Explanation> train(const Training& training, report::Sink* log) {
  torch::manual_seed(1);
  Net net(training.activation);
  torch::optim::SGD sgd(net->parameters(), training.rate);
  auto [model, optimizer] = amp::initialize(net, sgd, training.options);
  const auto loss = [&, &model = model] {
    return training.loss(model(training.data), training.target);
  };
  for (int step = 1; step <= 3; ++step) {
    optimizer.zero_grad();
    amp::scale_loss(loss(), optimizer).backward();
    if (!optimizer.step().skipped()) continue;
    const insight::Explanation why = insight::explain_overflow(model, optimizer, loss);
    if (log != nullptr) log->write(why.to_event(step));
    return why;
  }
  return std::nullopt;
}

/// A way to fail, and how the advice is followed.
struct Failure {
  std::string title;
  std::function<void(Training&)> breaks;
  std::string mended;
  std::function<void(Training&, const insight::Advice&)> mends;
};

std::vector<Failure> failures() {
  return {
      {"A loss scale that gradients cannot bear",
       [](Training& t) { t.options.loss_scale = 16777216.0; }, "the advised loss scale",
       [](Training& t, const insight::Advice& advice) {
         t.options.loss_scale = *advice.loss_scale;
       }},
      {"An activation that is squared in float16",
       [](Training& t) {
         t.data = t.data * 300;
         t.activation = [](const at::Tensor& x) { return x * x / 1000; };
       },
       "the advised policy",
       [](Training& t, const insight::Advice& advice) { t.options.policy = advice.policy; }},
      {"A logarithm of probabilities that are sure",
       [](Training& t) {
         t.data = t.data * 300;
         t.loss = [](const at::Tensor& logits, const at::Tensor& target) {
           const at::Tensor p = logits.sigmoid();
           return -(target * p.log() + (1 - target) * (1 - p).log()).mean();
         };
       },
       "the logarithm together with what makes its argument",
       [](Training& t, const insight::Advice&) { t.loss = Training().loss; }},
      {"A sample that is not a number", [](Training& t) { t.data[5][2] = std::nan(""); },
       "the batch without that sample",
       [](Training& t, const insight::Advice&) {
         const at::Tensor good = t.data.isfinite().all(1);
         t.data = t.data.index({good});
         t.target = t.target.index({good});
       }},
      {"A learning rate that weights do not survive", [](Training& t) { t.rate = 1e9; },
       "new weights and a lower learning rate",
       [](Training& t, const insight::Advice&) { t.rate = Training().rate; }},
  };
}

/// Fails, explains, mends, and runs again. Did all of that happen?
bool shows(const Failure& failure, report::Sink* log) {
  std::cout << "== " << failure.title << '\n';
  Training training = working();
  failure.breaks(training);
  const std::optional<insight::Explanation> why = train(training, log);
  if (!why) {
    std::cout << "no step was skipped\n";
    return false;
  }
  std::cout << "cause: " << insight::to_string(why->cause) << '\n' << why->to_text();
  failure.mends(training, why->advice.front());
  if (const auto again = train(training, log)) {
    std::cout << "still skipped: " << again->summary() << '\n';
    return false;
  }
  std::cout << "mended by " << failure.mended << "\n\n";
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    std::cerr << "usage: numerics [run.jsonl]\n";
    return 2;
  }
  std::unique_ptr<report::Sink> log;
  if (argc == 2) {
    log = report::json_lines(argv[1]);
    log->write(report::RunStarted{.run = "O1"});
  }
  int mended = 0, all = 0;
  for (const Failure& failure : failures()) {
    ++all;
    if (shows(failure, log.get())) ++mended;
  }
  std::cout << mended << " of " << all << " failures mended\n";
  return mended == all ? 0 : 1;
}
