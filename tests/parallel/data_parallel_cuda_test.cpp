// DistributedDataParallel with the CUDA kernels: compiled for the processor, and on a GPU, alone
// and shared by two processes through Gloo. NCCL, which takes a GPU for each rank: nccl_test.cpp.
#include <cstdlib>
#include <limits>

#include "mezzo/amp.h"
#include "mezzo/optim.h"
#include "parallel/branches.h"
#include "parallel/several.h"
#include "support/cuda_places.h"

namespace mezzo::parallel {
namespace {

using testing_cuda::Place;
using testing_ranks::at;
using testing_ranks::batch_of;
using testing_ranks::Branches;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_equal;
using testing_ranks::expect_same_on_all_ranks;
using testing_ranks::gradients_of;
using testing_ranks::loss_of;
using testing_ranks::net_of;
using testing_ranks::own_rows;
using testing_ranks::Rank;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where this rank trains; the test says so in variables.
struct Here {
  Place place = variable("MEZZO_TEST_PLACE") == "Gpu" ? Place::kGpu : Place::kEmulation;
  testing_cuda::KernelsAt kernels{place};
  at::Device device = testing_cuda::device_of(place);

  Here() {
    testing_cuda::looks_for_gpu->SetUp();
    InitOptions options;
    options.backend = variable("MEZZO_TEST_BACKEND");
    options.timeout = std::chrono::seconds(30);
    init_process_group(options);
  }
};

const Rank kGradients("cuda gradients", [] {
  const Here here;
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    at(c10::toString(type));
    Branches single = net_of(1, type);
    single->to(at::kDouble);
    Branches net = net_of(1, type);
    net->to(here.device);
    DistributedDataParallel ddp(net, {.message_size = 40});
    for (unsigned step = 0; step < 3; ++step) {
      const at::Tensor all = batch_of(step, 4 * world_size(), type);
      single->zero_grad();
      ddp.zero_grad();
      loss_of(single->forward(all.to(at::kDouble))).backward();
      loss_of(ddp(own_rows(all).to(here.device))).backward();
      auto gradients = gradients_of(net);
      for (at::Tensor& gradient : gradients) gradient = gradient.cpu();
      expect_equal(gradients, gradients_of(single), c10::toString(type),
                   type == at::kFloat  ? 1e-5
                   : type == at::kHalf ? 4e-3
                                       : 4e-2);
      expect_same_on_all_ranks(gradients, c10::toString(type));
    }
  }
});

// An overflow on the last rank alone is a skipped step on all.
const Rank kSkips("cuda skipped steps", [] {
  const Here here;
  for (const std::string level : {"O1", "O2"}) {
    Branches net = net_of(1);
    net->to(here.device);
    optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(0.01));
    auto [model, optimizer] =
        amp::initialize(net, adam, {.opt_level = level, .init_loss_scale = 1024, .verbosity = 0});
    DistributedDataParallel ddp(model);
    std::vector<at::Tensor> before;
    for (unsigned step = 0; step < 4; ++step) {
      at(level + " step " + std::to_string(step));
      before.clear();
      for (const at::Tensor& master : amp::master_params(optimizer))
        before.push_back(master.detach().clone());
      optimizer.zero_grad();
      at::Tensor loss = loss_of(ddp(own_rows(batch_of(step, 4 * world_size())).to(here.device)));
      const bool breaks = step == 2;
      if (breaks && rank() == world_size() - 1)
        loss = loss * std::numeric_limits<double>::infinity();
      amp::scale_loss(loss, optimizer).backward();
      optimizer.step();
      std::vector<at::Tensor> after;
      for (const at::Tensor& master : amp::master_params(optimizer))
        after.push_back(master.detach().clone());
      ASSERT_EQ(before.size(), after.size());
      for (std::size_t i = 0; i < after.size(); ++i)
        ASSERT_EQ(torch::equal(before[i], after[i]), breaks) << level << ", parameter " << i;
      for (at::Tensor& master : after) master = master.cpu();
      expect_same_on_all_ranks(after, level);
    }
  }
});

class DataParallelOnCuda : public testing_cuda::AtPlaces {
 protected:
  static void expect_pass(const std::string& work, int ranks, const std::string& backend) {
    expect_all_pass(work, {.ranks = ranks,
                           .limit = std::chrono::seconds(120),
                           .environment = {{"MEZZO_TEST_PLACE", testing_cuda::name_of(place())},
                                           {"MEZZO_TEST_BACKEND", backend}}});
  }
};
INSTANTIATE_TEST_SUITE_P(Distributed, DataParallelOnCuda,
                         testing::Values(Place::kEmulation, Place::kGpu),
                         [](const auto& row) { return testing_cuda::name_of(row.param); });

TEST_P(DataParallelOnCuda, AveragesGradientsInAGroupOfOne) {
  expect_pass("cuda gradients", 1, "auto");
}

TEST_P(DataParallelOnCuda, AveragesGradientsOfProcessesThatShareADevice) {
  expect_pass("cuda gradients", 2, "gloo");
}

TEST_P(DataParallelOnCuda, SkipsAStepOnAllRanksAfterAnOverflowOnOne) {
  expect_pass("cuda skipped steps", 1, "auto");
  expect_pass("cuda skipped steps", 2, "gloo");
}

}  // namespace
}  // namespace mezzo::parallel
