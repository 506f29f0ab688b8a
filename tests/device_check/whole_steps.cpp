// Whole training steps of large networks, ours and LibTorch's, in turns: items a second, peak
// memory, share of the rate of matrix products.
#include <map>

#include "device_check/large_networks.h"
#include "device_check/native_step.h"
#include "device_check/parts.h"
#include "device_check/rates.h"
#include "mezzo/amp.h"
#include "mezzo/optim.h"

namespace mezzo::device_check {
namespace {

struct Measured {
  double seconds = 0;
  std::int64_t peak_bytes = 0;
};

struct Case {
  const LargeNetworkRow* network;
  at::ScalarType low;
  double operations;  // of one step
  double rate;        // of products in the low type
};

std::shared_ptr<CheckedNetwork> network_on(const Device& device, const LargeNetworkRow& row) {
  at::manual_seed(5);
  auto net = row.make(device.is_small());
  net->to(device.place());
  const torch::NoGradGuard no_grad;
  if (net->layout() != at::MemoryFormat::Contiguous)
    for (at::Tensor& weight : net->parameters())
      if (weight.dim() == 4) weight.set_data(weight.contiguous(net->layout()));
  return net;
}

Batch batch_on(const Device& device, const CheckedNetwork& net) {
  Batch batch = net.batch(1).to(device.place(), at::kFloat);
  if (batch.input.dim() == 4) batch.input = batch.input.contiguous(net.layout());
  return batch;
}

Measured measured(const Device& device, const std::function<void()>& step) {
  const int warm = device.is_small() ? 1 : 4;
  for (int i = 0; i < warm; ++i) step();
  if (device.cuda() != nullptr) device.cuda()->reset_peak();
  Measured result;
  result.seconds = seconds_of(device, step, device.is_small() ? 0 : 0.7, device.is_small() ? 1 : 3);
  if (device.cuda() != nullptr) result.peak_bytes = device.cuda()->peak_bytes();
  return result;
}

void report(const Device& device, const Case& one, const Measured& result, Check& check) {
  const auto items =
      static_cast<double>(device.is_small() ? one.network->small_items : one.network->items);
  check.figure("seconds_per_step", result.seconds);
  check.figure(std::string(one.network->item) + "_per_second", items / result.seconds);
  check.figure("share_of_matrix_rate", one.operations / result.seconds / one.rate);
  if (result.peak_bytes > 0) check.figure("peak_bytes", result.peak_bytes);
}

Measured native_step(const Device& device, const Case& one, Check& check) {
  auto net = network_on(device, *one.network);
  const Batch batch = batch_on(device, *net);
  NativeStep step(net, device.place(), one.low);
  const Measured result = measured(device, [&] { step(batch); });
  report(device, one, result, check);
  check.expect(step.weights_are_finite(), "a weight is not finite");
  return result;
}

Measured our_step(const Device& device, const Case& one, const std::string& level, Check& check) {
  auto net = network_on(device, *one.network);
  const Batch batch = batch_on(device, *net);
  optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(1e-4).weight_decay(0.01));
  amp::Options options;
  options.opt_level = level;
  options.verbosity = 0;
  options.init_loss_scale = 1024;
  options.defer_unscale = true;
  auto [model, optimizer] = amp::initialize(net, adam, options);
  const Measured result = measured(device, [&, &model = model, &optimizer = optimizer] {
    optimizer.zero_grad();
    const at::Tensor loss = net->loss(model(batch.input), batch.target);
    amp::scale_loss(loss, optimizer).backward();
    optimizer.step();
  });
  report(device, one, result, check);
  check.figure("skipped_steps", optimizer.skipped_steps());
  for (const at::Tensor& weight : amp::master_params(optimizer))
    check.expect(weight.isfinite().all().item<bool>(), "a weight is not finite");
  return result;
}

double operations_of(const Device& device, const LargeNetworkRow& row) {
  auto net = network_on(device, row);
  const Batch batch = batch_on(device, *net);
  // The backward pass multiplies twice as much as the forward.
  return 3 * count_operations([&] { net->forward(batch.input); });
}

// Memory of one case is gone before the next begins.
void empty_cache(const Device& device) {
  device.wait();
  if (device.cuda() != nullptr) device.cuda()->empty_cache();
}

}  // namespace

void check_whole_steps(const Device& device, Results& results) {
  std::map<at::ScalarType, double> rates;
  for (const LargeNetworkRow& row : kLargeNetworks) {
    double operations = 0;
    results.check(std::string(row.name) + ": operations of a step", [&](Check& check) {
      operations = operations_of(device, row);
      check.figure("operations", operations);
      check.expect(operations > 0, "no product was counted");
    });
    empty_cache(device);
    for (const at::ScalarType low : {at::kBFloat16, at::kHalf}) {
      const std::string name = std::string(row.name) + ", " + c10::toString(low) + ": ";
      Measured native;
      const auto one = [&] {
        if (!rates.contains(low)) rates[low] = matrix_rate(device, low);
        return Case{&row, low, operations, rates[low]};
      };
      results.check(name + "native autocast",
                    [&](Check& check) { native = native_step(device, one(), check); });
      empty_cache(device);
      const bool brain = low == at::kBFloat16;
      for (const std::string level : {brain ? "O4" : "O1", brain ? "O5" : "O2"}) {
        results.check(name + level, [&](Check& check) {
          const Measured ours = our_step(device, one(), level, check);
          if (native.seconds > 0) check.figure("ratio", native.seconds / ours.seconds);
          if (native.peak_bytes > 0)
            check.figure("memory_ratio", static_cast<double>(ours.peak_bytes) /
                                             static_cast<double>(native.peak_bytes));
        });
        empty_cache(device);
      }
    }
  }
}

}  // namespace mezzo::device_check
