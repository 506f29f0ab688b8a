// A model that is called inside the call of another one computes at its own level.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "amp/training.h"
#include "mezzo/amp.h"
#include "mezzo/autocast.h"

namespace mezzo::amp {
namespace {

/// A student that asks its teacher in its own forward.
struct StudentImpl : torch::nn::Module {
  explicit StudentImpl(Model<TinyNet> asked) : teacher(std::move(asked)) {}
  at::Tensor forward(const at::Tensor& x) {
    seen = teacher(x);
    own = net(x);
    low = teacher(own.slice(1, 0, 1).expand({-1, 4}));
    return own;
  }
  TinyNet net = register_module("net", TinyNet());
  Model<TinyNet> teacher;
  at::Tensor seen, own, low;
};
TORCH_MODULE(Student);

TEST(NestedModels, ATeacherThatIsNotCastStaysFloatInsideAStudent) {
  for (const char* outer : {"O1", "O2", "O4", "O5"}) {
    for (const bool enabled : {true, false}) {
      TinyNet alone;
      alone->eval();
      // The student's own inputs may be low.
      const at::ScalarType low = outer == std::string("O2")   ? at::kHalf
                                 : outer == std::string("O5") ? at::kBFloat16
                                                              : at::kFloat;
      const at::Tensor expected = alone(inputs().to(low).to(at::kFloat));
      Options options = at_level("O0");
      options.enabled = enabled;
      Model<TinyNet> teacher = initialize(alone, options);
      Student student(teacher);
      auto model = initialize(student, at_level(outer));
      model(inputs());
      EXPECT_TRUE(torch::equal(student->seen, expected)) << outer << enabled;
      EXPECT_EQ(student->low.scalar_type(), at::kFloat) << outer << enabled;
    }
  }
}

TEST(NestedModels, AnAutocastOfTheProgramStillCastsADisabledModel) {
  TinyNet net;
  Options options = at_level("O0");
  options.enabled = false;
  auto model = initialize(net, options);
  const Autocast scope(Policy::defaults(at::kBFloat16));
  EXPECT_EQ(model(inputs()).scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace mezzo::amp
