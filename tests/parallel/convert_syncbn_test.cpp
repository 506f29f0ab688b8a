// convert_syncbn_model: what it replaces, where, and what it refuses.
#include <gmock/gmock.h>

#include "mezzo/parallel.h"
#include "mezzo/sync_batch_norm.h"
#include "parallel/near.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_near;
using testing_ranks::Rank;
using testing_ranks::start;

struct InnerImpl : torch::nn::Module {
  torch::nn::Sequential layers{nullptr};
  InnerImpl() {
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 1)),
                                        torch::nn::BatchNorm2d(4)));
  }
  at::Tensor forward(const at::Tensor& x) { return layers->forward(x); }
};
TORCH_MODULE(Inner);

// A network with a batch norm in every place where one can be.
struct PlacesImpl : torch::nn::Module {
  torch::nn::Sequential layers{nullptr};
  torch::nn::ModuleList list;
  torch::nn::ModuleDict dictionary;
  torch::nn::BatchNorm2d field{nullptr};
  torch::nn::AnyModule any;

  PlacesImpl() {
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)),
                                        torch::nn::BatchNorm2d(4), torch::nn::ReLU(), Inner()));
    list = register_module("list", torch::nn::ModuleList(torch::nn::BatchNorm2d(4)));
    const std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> named{
        {"norm", torch::nn::BatchNorm2d(4).ptr()}};
    dictionary = register_module("dictionary", torch::nn::ModuleDict(named));
    field = register_module("field", torch::nn::BatchNorm2d(4));
    any = torch::nn::AnyModule(
        torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(4).track_running_stats(false)));
    register_module("any", any.ptr());
  }
  at::Tensor forward(at::Tensor x) {
    x = layers->forward(x);
    for (const auto& module : {list[0], dictionary["norm"]}) {
      if (auto* norm = module->as<SyncBatchNorm>()) x = norm->forward(x);
      if (auto* norm = module->as<torch::nn::BatchNorm2d>()) x = norm->forward(x);
    }
    return any.forward(torch::tanh(field(x))).square();
  }
};
TORCH_MODULE(Places);

const Rank kConvert("sync batch norm conversion", [] {
  start();
  torch::manual_seed(3);
  Places net;
  torch::manual_seed(3);
  Places whole;
  net->to(at::kDouble);
  whole->to(at::kDouble);
  const auto parameters = net->parameters();
  Places converted = convert_syncbn_model(net);
  EXPECT_EQ(converted.ptr(), net.ptr());
  ASSERT_EQ(net->parameters().size(), parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i)
    EXPECT_TRUE(net->parameters()[i].is_same(parameters[i]));
  EXPECT_NE(net->layers[1]->as<SyncBatchNorm>(), nullptr);
  EXPECT_NE(net->list[0]->as<SyncBatchNorm>(), nullptr);
  EXPECT_NE(net->dictionary["norm"]->as<SyncBatchNorm>(), nullptr);
  EXPECT_EQ(net->field->name(), "torch::nn::BatchNorm2dImpl");

  const at::Tensor all = torch::randn({3 * world_size(), 3, 6, 6}, at::kDouble);
  const at::Tensor mine = all.narrow(0, 3 * rank(), 3);
  at("through DistributedDataParallel");
  DistributedDataParallel ddp(net);
  whole->forward(all).mean().backward();
  ddp(mine).mean().backward();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    expect_near(parameters[i].grad(), whole->parameters()[i].grad(), 1e-9,
                net->named_parameters()[i].key());
  for (const auto& buffer : whole->named_buffers()) {
    const at::Tensor own = net->named_buffers()[buffer.key()];
    expect_near(own, buffer.value().to(at::kDouble), 1e-10, buffer.key());
  }
  at("evaluation");
  net->eval();
  whole->eval();
  expect_near(ddp(mine), whole->forward(all).narrow(0, 3 * rank(), 3), 1e-9, "evaluation");
  net->train();

  at("an empty batch");
  (void)ddp(rank() == 0 ? mine : mine.narrow(0, 0, 0));

  at("the bare field");
  const std::int64_t before = world().counts().collectives;
  (void)net->field(torch::randn({2, 4, 3, 3}, at::kDouble));
  EXPECT_EQ(world().counts().collectives, before);
});

TEST(ConvertSyncbnModel, MakesANetworkThatIsOneOverAllRanks) {
  expect_all_pass("sync batch norm conversion", {.ranks = 2});
}

struct UnknowableImpl : torch::nn::Module {
  torch::nn::Sequential first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  UnknowableImpl() {
    first = register_module("first", torch::nn::Sequential(torch::nn::BatchNorm1d(2)));
    norm = register_module(
        "norm", torch::nn::BatchNorm1d(
                    torch::nn::BatchNorm1dOptions(2).affine(false).track_running_stats(false)));
  }
  at::Tensor forward(const at::Tensor& x) { return norm(first->forward(x)); }
};
TORCH_MODULE(Unknowable);

TEST(ConvertSyncbnModel, NamesWhatItCannotKnowAndChangesNothing) {
  torch::nn::Sequential net({{"part", Unknowable()}});
  try {
    convert_syncbn_model(net);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("'part.norm'"));
  }
  const auto part = std::dynamic_pointer_cast<UnknowableImpl>(net->children()[0]);
  EXPECT_NE(part->first[0]->as<torch::nn::BatchNorm1d>(), nullptr);
}

TEST(ConvertSyncbnModel, ReplacesTheRootWhereItsTypeAllows) {
  const auto norm = std::make_shared<torch::nn::BatchNorm2dImpl>(3);
  norm->eval();
  const auto pointer = convert_syncbn_model(std::shared_ptr<torch::nn::Module>(norm));
  ASSERT_NE(pointer->as<SyncBatchNorm>(), nullptr);
  EXPECT_FALSE(pointer->is_training());
  EXPECT_TRUE(pointer->as<SyncBatchNorm>()->running_var.is_same(norm->running_var));
  auto any = convert_syncbn_model(torch::nn::AnyModule(norm));
  EXPECT_NE(any.ptr()->as<SyncBatchNorm>(), nullptr);
  EXPECT_EQ(any.forward(torch::ones({2, 3, 4, 4})).sizes(),
            (std::vector<std::int64_t>{2, 3, 4, 4}));
}

}  // namespace
}  // namespace mezzo::parallel
