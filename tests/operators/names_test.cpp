#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "core/words.h"
#include "operators/operators.h"
#include "operators/rows/apex_names_table.h"
#include "operators/rows/mxnet_names_table.h"

namespace mezzo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string_view> meant_by(std::string_view name) {
  std::vector<std::string_view> names;
  for (const std::size_t row : resolve(name)) names.push_back(operators()[row].name);
  return names;
}

TEST(Resolve, ABaseNameMeansAllItsOverloads) {
  EXPECT_THAT(meant_by("softmax"), ElementsAre("softmax.Dimname", "softmax.int"));
  EXPECT_THAT(meant_by("conv2d"), ElementsAre("conv2d", "conv2d.padding"));
  EXPECT_THAT(meant_by("aten::conv2d"), ElementsAre("conv2d", "conv2d.padding"));
  EXPECT_THAT(meant_by("mm"), ElementsAre("mm"));
}

TEST(Resolve, AnOverloadMeansItself) {
  EXPECT_THAT(meant_by("softmax.int"), ElementsAre("softmax.int"));
  EXPECT_THAT(meant_by("aten::softmax.int"), ElementsAre("softmax.int"));
  EXPECT_THAT(meant_by("conv2d.default"), ElementsAre("conv2d"));
  EXPECT_THAT(meant_by("softmax.default"), IsEmpty()) << "softmax has no overload without a name";
}

TEST(Resolve, KnowsApexNamesInEverySpelling) {
  for (const char* name : {"torch.nn.functional.linear", "nn.functional.linear", "F.linear",
                           "F::linear", "torch::nn::functional::linear", "linear"}) {
    EXPECT_THAT(meant_by(name), ElementsAre("linear", "addmm", "matmul")) << name;
  }
  for (const char* name : {"torch.Tensor.__matmul__", "Tensor.__matmul__", "__matmul__",
                           "torch.matmul", "torch::matmul"}) {
    EXPECT_THAT(meant_by(name), ElementsAre("matmul")) << name;
  }
  EXPECT_THAT(meant_by("F.cross_entropy"), ElementsAre("cross_entropy_loss"));
  EXPECT_THAT(meant_by("cross_entropy"), ElementsAre("cross_entropy_loss"));
  EXPECT_THAT(meant_by("torch.relu"), ElementsAre("relu"));
}

TEST(Resolve, KnowsMxnetNames) {
  EXPECT_THAT(meant_by("FullyConnected"), ElementsAre("linear", "addmm", "matmul"));
  EXPECT_THAT(meant_by("mx.nd.FullyConnected"), ElementsAre("linear", "addmm", "matmul"));
  EXPECT_THAT(meant_by("batch_dot"), ElementsAre("bmm"));
  EXPECT_THAT(meant_by("Convolution"), testing::Contains("conv2d.padding"));
  EXPECT_THAT(meant_by("broadcast_add"), ElementsAre("add.Tensor"));
  EXPECT_THAT(meant_by("_plus_scalar"), ElementsAre("add.Scalar"));
  EXPECT_THAT(meant_by("RNN"), testing::IsSupersetOf({"lstm.input", "gru.data", "rnn_relu.input"}));
  EXPECT_THAT(meant_by("SoftmaxOutput"), ElementsAre("softmax.Dimname", "softmax.int"));
}

TEST(Resolve, ABareNameOfAFunctionMeansWhatThatCalls) {
  EXPECT_THAT(meant_by("linear"), testing::Contains("addmm"));
  EXPECT_THAT(meant_by("nll_loss"), testing::Contains("nll_loss_nd"));
  EXPECT_THAT(meant_by("F.normalize"), testing::Contains("norm.ScalarOpt_dim"));
  for (const char* name : {"aten::linear", "at::linear", "linear.default"}) {
    EXPECT_THAT(meant_by(name), ElementsAre("linear")) << name;
  }
  EXPECT_THAT(meant_by("aten::nll_loss"), ElementsAre("nll_loss"));
}

TEST(Resolve, ADispatcherNameWinsOverAnEqualAlias) {
  EXPECT_THAT(meant_by("dot"), ElementsAre("dot")) << "MXNet's dot is a matrix product";
}

TEST(Resolve, AnUnknownNameMeansNothing) {
  for (const char* name : {"", ".", "aten::", "softmx", "conv2d.nothing", "F.", "softmax.", "_"}) {
    EXPECT_THAT(resolve(name), IsEmpty()) << name;
    EXPECT_FALSE(is_foreign(name)) << name;
  }
}

TEST(Resolve, ForeignNamesAreKnownAsSuch) {
  for (const char* name : {"sgd_update", "_contrib_hawkesll", "mx.nd.sgd_update", "Tensor.cpu"}) {
    EXPECT_TRUE(is_foreign(name)) << name;
    EXPECT_THAT(resolve(name), IsEmpty()) << name;
  }
}

TEST(Aliases, EveryOneMeansRowsThatExist) {
  const auto check = [](std::string_view operators, std::string_view names) {
    each_word(operators, [&](std::string_view name) {
      EXPECT_THAT(resolve(name), testing::Not(IsEmpty())) << names << " means " << name;
    });
  };
  for (const rows::Alias& alias : rows::kApexNames) check(alias.operators, alias.name);
  for (const rows::Meaning& row : rows::kMxnetNames) check(row.operators, row.names);
  for (const ConditionalAlias& alias : conditional_aliases()) {
    EXPECT_THAT(resolve(alias.operators), testing::Not(IsEmpty())) << alias.operators;
  }
}

TEST(Aliases, NoNameOfMxnetStandsTwice) {
  std::set<std::string_view> names;
  const auto check = [&](std::string_view name) { EXPECT_TRUE(names.insert(name).second) << name; };
  for (const rows::Meaning& row : rows::kMxnetNames) each_word(row.names, check);
  each_word(rows::kMxnetForeign, check);
  EXPECT_EQ(names.count("sgd_update"), 1);
  EXPECT_EQ(names.count("broadcast_add"), 1);
}

TEST(Aliases, NoNameIsBothForeignAndKnown) {
  each_word(rows::kMxnetForeign,
            [](std::string_view name) { EXPECT_THAT(resolve(name), IsEmpty()) << name; });
}

TEST(Aliases, AreFoundFromTheirRow) {
  EXPECT_THAT(aliases_of(*index_of("linear")),
              testing::IsSupersetOf({"FullyConnected", "torch.nn.functional.linear"}));
  EXPECT_THAT(aliases_of(*index_of("add.Scalar")), testing::Contains("_plus_scalar"));
  EXPECT_THAT(aliases_of(*index_of("add.Scalar")),
              testing::Not(testing::Contains("broadcast_add")));
}

struct FormCase {
  const char* overload;
  const char* row;
  Form form;
};

TEST(Find, InPlaceAndOutFormsFollowTheirFunctionalRow) {
  for (const FormCase& c :
       std::vector<FormCase>{{"mm", "mm", Form::kFunctional},
                             {"addmm_", "addmm", Form::kInPlace},
                             {"add_.Tensor", "add.Tensor", Form::kInPlace},
                             {"exp_", "exp", Form::kInPlace},
                             {"mm.out", "mm", Form::kOut},
                             {"softmax.int_out", "softmax.int", Form::kOut},
                             {"std.correction_out", "std.correction", Form::kOut},
                             {"linalg_lu_factor.out", "linalg_lu_factor", Form::kOut},
                             {"_linalg_det.result", "_linalg_det", Form::kOut},
                             {"avg_pool2d_backward.grad_input", "avg_pool2d_backward", Form::kOut},
                             {"topk.values", "topk", Form::kOut}}) {
    const auto found = find(c.overload);
    ASSERT_TRUE(found) << c.overload;
    EXPECT_EQ(operators()[found->row].name, c.row) << c.overload;
    EXPECT_EQ(found->form, c.form) << c.overload;
  }
  const auto out = find("add.out");
  ASSERT_TRUE(out);
  EXPECT_EQ(operators()[out->row].base(), "add");
  for (const char* name : {"", "_", "copy_", "mm.outer", "nothing.out", "__iand__.Tensor"}) {
    EXPECT_FALSE(find(name)) << name;
  }
}

}  // namespace
}  // namespace mezzo
