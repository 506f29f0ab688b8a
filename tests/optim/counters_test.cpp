// Where the steps of parameters on a device are counted, and in whose memory.
#include "mezzo/error.h"
#include "mezzo/optim.h"
#include "optim/device_rows.h"
#include "optim/step_context.h"
#include "optim/trajectory.h"
#include "support/cuda_places.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

/// The emulated kernels, which remember the first row's counter of Adam's last step: what a graph
/// that captured the step would write.
class CaptureOfAdam {
 public:
  CaptureOfAdam() {
    static const kernels::cuda::Interface functions = [] {  // optimizers keep what they came by
      kernels::cuda::Interface all = *testing_cuda::emulation();
      all.adam = step;
      return all;
    }();
    bridge::choose_kernels(at::kCPU, &functions);
  }
  ~CaptureOfAdam() { bridge::choose_usual_kernels(at::kCPU); }
  CaptureOfAdam(const CaptureOfAdam&) = delete;
  CaptureOfAdam& operator=(const CaptureOfAdam&) = delete;

  static std::int64_t* counter() { return counter_; }

 private:
  static bool step(kernels::cuda::List* list, const kernels::StepRow* rows,
                   const kernels::cuda::RowState* states, std::int64_t count,
                   const kernels::AdamRecipe* recipes, std::int64_t recipe_count,
                   const kernels::cuda::StepFlags& flags, kernels::cuda::Stream stream) {
    counter_ = states[0].steps;
    return testing_cuda::emulation()->adam(list, rows, states, count, recipes, recipe_count, flags,
                                           stream);
  }
  static inline std::int64_t* counter_ = nullptr;
};

std::int64_t steps_of(const FusedAdam& adam, const at::Tensor& param) {
  std::stringstream file;
  torch::save(adam, file);
  FusedAdam other({param}, FusedAdamOptions(0.1));
  torch::load(other, file);
  return static_cast<const torch::optim::AdamParamState&>(
             *other.state().at(param.unsafeGetTensorImpl()))
      .step();
}

TEST(Counters, OfACapturedGraphLiveOnWhenAStateIsLoadedOrMoved) {
  const at::Tensor param = torch::ones({8}).requires_grad_(true);
  param.mutable_grad() = torch::ones({8});
  FusedAdam adam({param}, FusedAdamOptions(0.1));
  std::vector<std::int64_t*> captured;
  const auto step = [&] {
    const CaptureOfAdam capture;
    adam.step();
    captured.push_back(CaptureOfAdam::counter());
  };
  const auto others_count_for_themselves = [&](std::int64_t expected) {
    for (std::size_t i = 0; i + 1 < captured.size(); ++i) {
      ASSERT_NE(captured[i], captured.back()) << "freed memory was used again";
      ++*captured[i];
    }
    EXPECT_EQ(steps_of(adam, param), expected);
  };
  step();
  std::stringstream file;
  torch::save(adam, file);
  torch::load(adam, file);
  step();
  others_count_for_themselves(2);
  settle_step_counts(adam);
  step();
  others_count_for_themselves(3);
}

TEST(Counters, WhoseStepFailedAreToldAnew) {
  const at::Tensor a = torch::zeros({1});
  const at::Tensor b = torch::zeros({1});
  DeviceCounters counters;
  const auto begin = [&] { counters.reserve(2, at::kCPU); };
  begin();
  counters.address(a, 3, true);
  counters.address(b, DeviceCounters::kNoOpinion, true);
  begin();  // nothing was pushed
  const std::int64_t* of_a = counters.address(a, 4, false);
  const std::int64_t* of_b = counters.address(b, DeviceCounters::kNoOpinion, false);
  counters.push();
  EXPECT_EQ(*of_a, 4);
  EXPECT_EQ(*of_b, 1);
  begin();
  counters.address(a, 7, true);
  begin();
  counters.address(a, 4, false);  // what the device has
  counters.push();
  EXPECT_EQ(*of_a, 4) << "a count of the step that failed";
}

TEST(DeviceStepMemory, OfAWeightThatGrewIntoItsNeighbourIsFound) {
  const testing_cuda::KernelsAt kernels(testing_cuda::Place::kEmulation);
  const at::Tensor memory = torch::zeros({10});
  at::Tensor a = memory.narrow(0, 0, 4).detach().requires_grad_(true);
  const at::Tensor b = memory.narrow(0, 4, 4).detach().requires_grad_(true);
  FusedSGD sgd({a, b}, FusedSGDOptions(0.1));
  a.mutable_grad() = torch::ones({4});
  b.mutable_grad() = torch::ones({4});
  sgd.step();
  a.set_data(memory.narrow(0, 0, 6));
  a.mutable_grad() = torch::ones({6});
  EXPECT_THROW(sgd.step(), ConfigError);
}

}  // namespace
}  // namespace mezzo::optim
