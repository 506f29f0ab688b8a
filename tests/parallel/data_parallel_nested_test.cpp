// A backward inside of a backward, and a model that is wrapped again.
#include <gmock/gmock.h>

#include "mezzo/parallel.h"
#include "parallel/branches.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::batch_of;
using testing_ranks::Branches;
using testing_ranks::BranchesImpl;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_equal;
using testing_ranks::Gradients;
using testing_ranks::gradients_of;
using testing_ranks::loss_of;
using testing_ranks::net_of;
using testing_ranks::own_rows;
using testing_ranks::Rank;
using testing_ranks::start;

// Recomputation as users write it: the layer runs again in the backward, which is a backward of its
// own.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            torch::nn::LinearImpl* layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
    return torch::tanh(layer->forward(x));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const torch::AutoGradMode on(true);
    auto* layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    torch::tanh(layer->forward(x)).backward(grads[0]);
    return {x.grad(), at::Tensor()};
  }
};

// A layer is used as it is, recomputed, or both.
struct Uses {
  std::string name;
  bool first, right, last, left_twice;
};

at::Tensor recomputing(BranchesImpl& net, const at::Tensor& x, const Uses& uses, bool recompute) {
  const auto layer = [&](torch::nn::Linear& one, const at::Tensor& h, bool again) {
    return again && recompute ? Recomputed::apply(h, one.get()) : torch::tanh(one(h));
  };
  at::Tensor h = layer(net.first, x, uses.first);
  if (uses.left_twice) h = layer(net.left, layer(net.left, h, true), false);
  return layer(net.last, layer(net.right, h, uses.right), uses.last);
}

const Rank kNested("ddp nested backwards", [] {
  start();
  const at::Tensor all = batch_of(5, 4 * world_size()).requires_grad_(true);
  for (const Uses& uses :
       {Uses{"in the middle", false, true, false, false}, Uses{"first", true, false, false, false},
        Uses{"at the end", false, false, true, false}, Uses{"all", true, true, true, false},
        Uses{"a shared layer", false, false, false, true}}) {
    for (const bool delayed : {false, true}) {
      at(uses.name + (delayed ? ", delayed" : ""));
      if (uses.left_twice && !delayed) continue;
      Branches single = net_of(1);
      Branches net = net_of(1);
      DistributedDataParallel ddp(net, {.message_size = 1, .delay_allreduce = delayed});
      for (int step = 0; step < 3; ++step) {
        single->zero_grad();
        ddp.zero_grad();
        loss_of(recomputing(*single, all, uses, false)).backward();
        const at::Tensor y = ddp.call(
            [&](BranchesImpl& impl) { return recomputing(impl, own_rows(all), uses, true); });
        loss_of(y).backward();
        Gradients alone = gradients_of(single);
        // Zeroed in its bucket, a gradient that nobody needs stays there.
        for (std::size_t i = 0; i < alone.size(); ++i) {
          if (!alone[i].defined() && gradients_of(net)[i].defined()) {
            alone[i] = torch::zeros_like(single->parameters()[i]);
          }
        }
        expect_equal(gradients_of(net), alone, uses.name);
      }
    }
  }
  at("a layer that is used again after it was sent");
  const Uses shared{"a shared layer", false, false, false, true};
  Branches net = net_of(1);
  DistributedDataParallel ddp(net, {.message_size = 1});
  std::string said;
  for (int step = 0; step < 3; ++step) {
    ddp.zero_grad();
    const at::Tensor y = ddp.call(
        [&](BranchesImpl& impl) { return recomputing(impl, own_rows(all), shared, true); });
    try {
      loss_of(y).backward();
    } catch (const Error& e) {
      said = e.what();
    }
  }
  EXPECT_THAT(said, HasSubstr("use delay_allreduce"));
});

TEST(DistributedDataParallel, ABackwardInsideOfABackwardIsAPartOfIt) {
  expect_all_pass("ddp nested backwards");
}

// A layer that is recomputed by a call of the wrapped model.
using Wrapped = DistributedDataParallel<Branches>;

struct CalledAgain : torch::autograd::Function<CalledAgain> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Wrapped* ddp) {
    context->save_for_backward({x});
    context->saved_data["ddp"] = reinterpret_cast<std::int64_t>(ddp);
    return right_of(*ddp, x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const torch::AutoGradMode on(true);
    const auto* ddp = reinterpret_cast<const Wrapped*>(context->saved_data["ddp"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    right_of(*ddp, x).backward(grads[0]);
    return {x.grad(), at::Tensor()};
  }
  static at::Tensor right_of(const Wrapped& ddp, const at::Tensor& x) {
    return ddp.call([&](BranchesImpl& net) { return torch::tanh(net.right(x)); });
  }
};

const Rank kWhole("ddp nested forwards", [] {
  // One rank leaves out a branch, so that fewer of its buckets have left when the inner forward
  // comes: were buffers sent there, they would be taken for a bucket.
  start();
  const at::Tensor all = batch_of(6, 4 * world_size());
  const auto loss = [](BranchesImpl& net, const at::Tensor& x, const Wrapped* ddp, bool left) {
    at::Tensor h = torch::tanh(net.first(x));
    h = ddp != nullptr ? CalledAgain::apply(h, ddp) : torch::tanh(net.right(h));
    if (left) h = h + net.left(h);
    return loss_of(net.last(h));
  };
  for (const std::int64_t size : {1, 10'000}) {
    Branches single = net_of(1);
    Branches net = net_of(1);
    const Wrapped ddp(net, {.message_size = size});
    for (int step = 0; step < 3; ++step) {
      at("step " + std::to_string(step));
      single->zero_grad();
      ddp.zero_grad();
      for (int r = 0; r < world_size(); ++r) {
        loss(*single, all.narrow(0, 4 * r, 4), nullptr, r != 1).div(world_size()).backward();
      }
      ddp.call([&](BranchesImpl& impl) { return loss(impl, own_rows(all), &ddp, rank() != 1); })
          .backward();
      expect_equal(gradients_of(net), gradients_of(single), "step " + std::to_string(step));
    }
  }
});

TEST(DistributedDataParallel, AForwardInsideOfABackwardChangesNothing) {
  expect_all_pass("ddp nested forwards", {.ranks = 3});
}

const Rank kWrappedAgain("ddp wrapped again", [] {
  start();
  Branches single = net_of(1);
  Branches net = net_of(1);
  const at::Tensor all = batch_of(3, 4 * world_size());
  loss_of(single->forward(all)).backward();
  DistributedDataParallel old(net, {.message_size = 1});
  loss_of(old(own_rows(all))).backward();
  {
    at("the second");
    DistributedDataParallel ddp(net, {.message_size = 30});
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      loss_of(ddp(own_rows(all))).backward();
      expect_equal(gradients_of(net), gradients_of(single), "wrapped again");
    }
    EXPECT_EQ(old.statistics().reductions, 1);
  }
  try {
    old(own_rows(all));
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("a later DistributedDataParallel wraps parameter 'first."));
  }
  EXPECT_THROW(old.finish_backward(), ConfigError);
  at("in place of the first");
  DistributedDataParallel ddp(net);
  ddp = DistributedDataParallel(net, {.message_size = 30});
  ddp.zero_grad();
  loss_of(ddp(own_rows(all))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "wrapped in place");
});

TEST(DistributedDataParallel, TheLastOneOverAModelAveragesItsGradients) {
  expect_all_pass("ddp wrapped again");
}

}  // namespace
}  // namespace mezzo::parallel
