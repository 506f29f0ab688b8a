// Several processes: collectives, DistributedDataParallel and SyncBatchNorm, through NCCL and Gloo.
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "core/raise.h"
#include "device_check/parts.h"
#include "device_check/rank_work.h"
#include "device_check/training.h"
#include "mezzo/parallel.h"
#include "platform/libraries.h"
#include "ranks/launcher.h"

extern "C" mezzo::ranks::StoreHost* mezzo_host_store(const char* address, int port);

namespace mezzo::device_check {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) raise("device_check", what);
}

bool is_near(const at::Tensor& tensor, double value) {
  return (tensor.to(at::kCPU, at::kDouble) - value).abs().max().item<double>() < 1e-2;
}

void run_collectives(const Device& device) {
  const double size = parallel::world_size();
  const double rank = parallel::rank();
  const auto group = parallel::world();
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::TensorOptions options(device.place());
    at::Tensor sum = at::full({1000}, rank + 1, options.dtype(type));
    group.all_reduce(sum);
    require(is_near(sum, size * (size + 1) / 2), "all_reduce gives another sum");
    at::Tensor largest = at::full({7}, rank, options.dtype(type));
    group.all_reduce(largest, parallel::ReduceOp::kMax);
    require(is_near(largest, size - 1), "all_reduce gives another maximum");
    at::Tensor sent = at::full({33}, rank + 5, options.dtype(type));
    group.broadcast(sent);
    require(is_near(sent, 5), "broadcast gives something else");
    const at::Tensor gathered = group.all_gather(at::full({3}, rank, options.dtype(type)));
    require(is_near(gathered.select(0, parallel::world_size() - 1), size - 1),
            "all_gather gives something else");
  }
}

at::Tensor own_rows(const at::Tensor& all) {
  const std::int64_t rows = all.size(0) / parallel::world_size();
  return all.narrow(0, parallel::rank() * rows, rows);
}

// Half of each batch a rank, with batch norms over all ranks: the training of the whole batches.
void train(const Device& device, const std::string& level, bool without_waits) {
  const Setup setup{.network = "resnet", .level = level};
  auto net = parallel::convert_syncbn_model(make_network(setup.network));
  net->to(device.place());
  auto inner = make_optimizer(setup.optimizer, net->parameters(), false);
  amp::Options options;
  options.opt_level = level;
  options.verbosity = 0;
  options.init_loss_scale = 1024;
  auto [model, optimizer] = amp::initialize(net, *inner, options);
  const parallel::DistributedDataParallel ddp(model);
  Reference reference(setup);
  const auto start = reference.weights();
  for (std::uint64_t step = 0; step < 5; ++step) {
    const Batch all = net->batch(step).to(device.place(), at::kFloat);
    const Batch own{own_rows(all.input), own_rows(all.target)};
    reference.step(step);
    device.wait();
    std::optional<NoWaits> none;
    if (without_waits && step >= 3) none.emplace(device);
    optimizer.zero_grad();
    const at::Tensor loss = net->loss(ddp(own.input), own.target);
    amp::scale_loss(loss, optimizer).backward();
    optimizer.step();
  }
  std::vector<at::Tensor> weights;
  for (const at::Tensor& weight : amp::master_params(optimizer))
    weights.push_back(weight.detach().to(at::kCPU, at::kDouble).clone());
  const double apart = relative_distance(weights, reference.weights(), start);
  const double allowed = level == "O5" || level == "O4" ? 0.6 : level == "O0" ? 0.02 : 0.2;
  std::cout << level << ": weights lie " << apart << " of their way from float64's" << std::endl;
  require(apart < allowed,
          level + ": weights lie " + std::to_string(apart) + " of their way apart");
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void launch(const Device& device, int ranks, const std::string& backend, Check& check) {
  ranks::LaunchOptions options;
  options.command = {platform::program_path().string(), "--rank-work", "all", "--device",
                     device.is_cuda() ? "cuda" : "cpu"};
  if (device.is_small()) options.command.emplace_back("--small");
  options.processes_per_node = ranks;
  options.environment = {{"MEZZO_CHECK_BACKEND", backend}, {"OMP_NUM_THREADS", "1"}};
  options.time_limit = std::chrono::seconds(60);
  std::ostringstream out;
  std::ostringstream err;
  const auto host = [](const std::string& address, int port) {
    return std::unique_ptr<ranks::StoreHost>(mezzo_host_store(address.c_str(), port));
  };
  const ranks::LaunchResult result = ranks::launch(options, host, out, err);
  check.figure("said", out.str());
  if (result.exit_code == 0) return;
  const std::string all = result.report + err.str();
  if (backend == "nccl" && ranks > 1 &&
      (all.find("uplicate GPU") != std::string::npos ||
       all.find("invalid usage") != std::string::npos)) {
    return check.skip("NCCL takes no two ranks on one card");
  }
  check.expect(false, all);
}

}  // namespace

int run_rank_work(const std::string& name, const Device& device) {
  try {
    require(name == "all", "no work " + name);
    parallel::InitOptions options;
    options.backend = variable("MEZZO_CHECK_BACKEND");
    options.timeout = std::chrono::seconds(40);
    parallel::init_process_group(options);
    run_collectives(device);
    // Gloo takes tensors of CUDA devices through the host, and waits for them.
    const bool without_waits = options.backend == "nccl";
    for (const std::string level : {"O0", "O1", "O2", "O5"}) train(device, level, without_waits);
    parallel::barrier();
    parallel::destroy_process_group();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

void check_ranks(const Device& device, Results& results) {
  const auto run = [&](int ranks, const std::string& backend) {
    results.check(std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + " through " + backend,
                  [&](Check& check) { launch(device, ranks, backend, check); });
  };
  run(1, "gloo");
  run(2, "gloo");
  if (!device.is_cuda()) return;
  run(1, "nccl");
  run(2, "nccl");
}

}  // namespace mezzo::device_check
