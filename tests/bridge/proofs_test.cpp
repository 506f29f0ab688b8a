// Families of kernels that prove themselves: the emulated ones do, and each of their functions is
// found out that leaves its work undone, fails its launch or computes something else.
#include "bridge/proofs.h"

#include <functional>
#include <string>
#include <vector>

#include "bridge/known_answers.h"
#include "bridge/multi_tensor.h"
#include "bridge/split_masters.h"
#include "mezzo/messages.h"
#include "support/cuda_places.h"

namespace mezzo::bridge {
namespace {

using kernels::cuda::Interface;
using kernels::cuda::Stream;

const Interface& sound() {
  return *testing_cuda::emulation();
}

/// CPUs with the emulated kernels, in which faults may be planted; keeps what is said.
class WithKernels {
 public:
  explicit WithKernels(const std::function<void(Interface&)>& plant = [](Interface&) {})
      : functions_(sound()) {
    plant(functions_);
    choose_kernels(at::kCPU, &functions_);
    sink_ = set_message_sink([this](const std::string& text) { messages.push_back(text); });
  }
  ~WithKernels() {
    set_message_sink(sink_);
    choose_usual_kernels(at::kCPU);
  }
  WithKernels(const WithKernels&) = delete;
  WithKernels& operator=(const WithKernels&) = delete;

  static bool has(Family family) { return has_kernels(at::kCPU, family); }
  static std::string difference(Family family) {
    return proofs_on(at::kCPU)->difference(at::kCPU, family);
  }

  std::vector<std::string> messages;

 private:
  Interface functions_;
  MessageSink sink_;
};

/// A function that does nothing, and says so or not.
template <bool kDone, typename Function>
struct Idle;
template <bool kDone, typename... Parameters>
struct Idle<kDone, bool (*)(Parameters...)> {
  static bool call(Parameters...) { return kDone; }
};

struct Fault {
  const char* name;
  Family family;
  std::function<void(Interface&)> plant;
};

template <typename Function>
void add_idle(std::vector<Fault>& faults, const char* name, Family family,
              Function Interface::*member) {
  faults.push_back({name, family, [member](Interface& functions) {
                      functions.*member = Idle<true, Function>::call;
                    }});
  faults.push_back({name, family, [member](Interface& functions) {
                      functions.*member = Idle<false, Function>::call;
                    }});
}

std::vector<Fault> idle_functions() {
  std::vector<Fault> all;
  add_idle(all, "check", Family::kLists, &Interface::check);
  add_idle(all, "norm", Family::kLists, &Interface::norm);
  add_idle(all, "scale", Family::kLists, &Interface::scale);
  add_idle(all, "axpby", Family::kLists, &Interface::axpby);
  add_idle(all, "copy", Family::kLists, &Interface::copy);
  add_idle(all, "copy_if", Family::kLists, &Interface::copy_if);
  add_idle(all, "update_scale", Family::kLists, &Interface::update_scale);
  add_idle(all, "adam", Family::kSteps, &Interface::adam);
  add_idle(all, "sgd", Family::kSteps, &Interface::sgd);
  add_idle(all, "adagrad", Family::kSteps, &Interface::adagrad);
  add_idle(all, "lamb", Family::kSteps, &Interface::lamb);
  add_idle(all, "novograd", Family::kSteps, &Interface::novograd);
  add_idle(all, "norm_forward", Family::kNorms, &Interface::norm_forward);
  add_idle(all, "norm_backward", Family::kNorms, &Interface::norm_backward);
  add_idle(all, "batch_moments", Family::kBatchNorms, &Interface::batch_moments);
  add_idle(all, "batch_merge", Family::kBatchNorms, &Interface::batch_merge);
  add_idle(all, "batch_normalise", Family::kBatchNorms, &Interface::batch_normalise);
  add_idle(all, "batch_backward_reduce", Family::kBatchNorms, &Interface::batch_backward_reduce);
  add_idle(all, "batch_backward_apply", Family::kBatchNorms, &Interface::batch_backward_apply);
  add_idle(all, "join_masters", Family::kSplitMasters, &Interface::join_masters);
  add_idle(all, "split_masters", Family::kSplitMasters, &Interface::split_masters);
  return all;
}

template <typename Recipe, kernels::cuda::StepFunction<Recipe> Interface::*kMember>
bool step_too_far(kernels::cuda::List* list, const kernels::StepRow* rows,
                  const kernels::cuda::RowState* states, std::int64_t count, const Recipe* recipes,
                  std::int64_t recipe_count, const kernels::cuda::StepFlags& flags, Stream stream) {
  Recipe recipe = *recipes;
  recipe.lr *= 1.001;
  return (sound().*kMember)(list, rows, states, count, &recipe, recipe_count, flags, stream);
}

std::vector<Fault> wrong_functions() {
  using namespace kernels;
  return {
      {"check but of the last", Family::kLists,
       [](Interface& f) {
         f.check = [](cuda::List* list, const Input* in, std::int64_t, float* found, Stream s) {
           Input shorter = *in;
           --shorter.count;
           return sound().check(list, &shorter, 1, found, s);
         };
       }},
      {"norm that is the largest magnitude", Family::kLists,
       [](Interface& f) {
         f.norm = [](cuda::List* list, const Input* in, std::int64_t count, bool, double* total,
                     double* each, float* found, Stream s) {
           return sound().norm(list, in, count, true, total, each, found, s);
         };
       }},
      {"scale without the device's factor", Family::kLists,
       [](Interface& f) {
         f.scale = [](cuda::List* list, const Input* in, const Output* out, std::int64_t count,
                      double factor, const double*, float* found, Stream s) {
           return sound().scale(list, in, out, count, factor, nullptr, found, s);
         };
       }},
      {"scale that flags what is finite", Family::kLists,
       [](Interface& f) {
         f.scale = [](cuda::List* list, const Input* in, const Output* out, std::int64_t count,
                      double factor, const double* there, float* found, Stream s) {
           if (found != nullptr) *found = 1;
           return sound().scale(list, in, out, count, factor, there, found, s);
         };
       }},
      {"copy of all but the last tensor", Family::kLists,
       [](Interface& f) {
         f.copy = [](cuda::List* list, const Input* in, const Output* out, std::int64_t count,
                     Stream s) { return sound().copy(list, in, out, count - 1, s); };
       }},
      {"copy that writes beside", Family::kLists,
       [](Interface& f) {
         f.copy = [](cuda::List* list, const Input* in, const Output* out, std::int64_t count,
                     Stream s) {
           static_cast<unsigned char*>(out->data)[-1] = 1;
           return sound().copy(list, in, out, count, s);
         };
       }},
      {"copy_if that never looks at the flag", Family::kLists,
       [](Interface& f) {
         f.copy_if = [](cuda::List* list, const Input* in, const Output* out, std::int64_t count,
                        const float*, Stream s) { return sound().copy(list, in, out, count, s); };
       }},
      {"a scale that grows too soon", Family::kLists,
       [](Interface& f) {
         f.update_scale = [](float* scale, std::int32_t* unskipped, std::int32_t* stuck,
                             const float* found, const ScaleRule* rule, int device, Stream s) {
           ScaleRule hasty = *rule;
           hasty.growth_interval = 1;
           return sound().update_scale(scale, unskipped, stuck, found, &hasty, device, s);
         };
       }},
      {"adam", Family::kSteps,
       [](Interface& f) { f.adam = step_too_far<AdamRecipe, &Interface::adam>; }},
      {"sgd", Family::kSteps,
       [](Interface& f) { f.sgd = step_too_far<SgdRecipe, &Interface::sgd>; }},
      {"adagrad", Family::kSteps,
       [](Interface& f) { f.adagrad = step_too_far<AdagradRecipe, &Interface::adagrad>; }},
      {"lamb", Family::kSteps,
       [](Interface& f) { f.lamb = step_too_far<LambRecipe, &Interface::lamb>; }},
      {"novograd", Family::kSteps,
       [](Interface& f) { f.novograd = step_too_far<NovogradRecipe, &Interface::novograd>; }},
      {"steps that no flag stops", Family::kSteps,
       [](Interface& f) {
         f.sgd = [](cuda::List* list, const StepRow* rows, const cuda::RowState* states,
                    std::int64_t count, const SgdRecipe* recipes, std::int64_t recipe_count,
                    const cuda::StepFlags& flags, Stream s) {
           cuda::StepFlags all = flags;
           all.skip = nullptr;
           return sound().sgd(list, rows, states, count, recipes, recipe_count, all, s);
         };
       }},
      {"norm with another eps", Family::kNorms,
       [](Interface& f) {
         f.norm_forward = [](const NormForward* given, int device, Stream s) {
           NormForward norm = *given;
           norm.shape.eps = 0;
           return sound().norm_forward(&norm, device, s);
         };
       }},
      {"norm whose backward forgets the weight", Family::kNorms,
       [](Interface& f) {
         f.norm_backward = [](const NormBackward* given, void* scratch, int device, Stream s) {
           NormBackward norm = *given;
           norm.weight = {};
           return sound().norm_backward(&norm, scratch, device, s);
         };
       }},
      {"batch norm without relu", Family::kBatchNorms,
       [](Interface& f) {
         f.batch_normalise = [](const BatchNormalise* given, int device, Stream s) {
           BatchNormalise norm = *given;
           norm.relu = false;
           return sound().batch_normalise(&norm, device, s);
         };
       }},
      {"batch norm's moments but of a sample", Family::kBatchNorms,
       [](Interface& f) {
         f.batch_moments = [](const Rows* x, const BatchShape* given, const Moments* moments,
                              double* scratch, int device, Stream s) {
           BatchShape shape = *given;
           --shape.samples;
           return sound().batch_moments(x, &shape, moments, scratch, device, s);
         };
       }},
      {"ranks but the last", Family::kBatchNorms,
       [](Interface& f) {
         f.batch_merge = [](const double* of_ranks, std::int64_t ranks, std::int64_t stride,
                            std::int64_t channels, const Moments* moments, int device, Stream s) {
           return sound().batch_merge(of_ranks, ranks - 1, stride, channels, moments, device, s);
         };
       }},
      {"gradients that pass relu", Family::kBatchNorms,
       [](Interface& f) {
         f.batch_backward_reduce = [](const BatchGradient* given, double* dy, double* dy_xmu,
                                      double* scratch, int device, Stream s) {
           BatchGradient gradient = *given;
           gradient.relu_output = {};
           return sound().batch_backward_reduce(&gradient, dy, dy_xmu, scratch, device, s);
         };
       }},
      {"gradients without their mean", Family::kBatchNorms,
       [](Interface& f) {
         f.batch_backward_apply = [](const BatchBackwardApply* given, int device, Stream s) {
           BatchBackwardApply apply = *given;
           apply.mean_dy = nullptr;
           return sound().batch_backward_apply(&apply, device, s);
         };
       }},
      {"masters without their ties", Family::kSplitMasters,
       [](Interface& f) {
         f.join_masters = [](const StepRow* row, float* masters, int device, Stream s) {
           for (std::int64_t i = 0; i < words_of_ties(row->count); ++i) row->ties[i] = 0;
           return sound().join_masters(row, masters, device, s);
         };
       }},
      {"steps that forget the remainders", Family::kSplitMasters,
       [](Interface& f) {
         f.sgd = [](cuda::List* list, const StepRow* rows, const cuda::RowState* states,
                    std::int64_t count, const SgdRecipe* recipes, std::int64_t recipe_count,
                    const cuda::StepFlags& flags, Stream s) {
           auto* const remainder = static_cast<std::int16_t*>(rows->remainder);
           for (std::int64_t i = 0; remainder != nullptr && i < rows->count; ++i) remainder[i] = 0;
           return sound().sgd(list, rows, states, count, recipes, recipe_count, flags, s);
         };
       }},
  };
}

/// The family is left out, and is told of once.
void expect_found_out(const Fault& fault) {
  const WithKernels kernels(fault.plant);
  EXPECT_FALSE(kernels.has(fault.family)) << fault.name;
  EXPECT_FALSE(kernels.has(fault.family)) << fault.name << ": asked again";
  ASSERT_THAT(kernels.messages, testing::SizeIs(1)) << fault.name;
  EXPECT_THAT(kernels.messages[0],
              testing::StartsWith(c10::str("mezzo: our kernels for ", name_of(fault.family),
                                           " are not used on cpu: ")));
  EXPECT_FALSE(kernels.difference(fault.family).empty());
}

TEST(Proofs, EveryFamilyOfTheEmulatedKernelsHolds) {
  const WithKernels kernels;
  for (const Family family : kFamilies) {
    EXPECT_TRUE(kernels.has(family)) << kernels.difference(family);
  }
  EXPECT_THAT(kernels.messages, testing::IsEmpty());
}

TEST(Proofs, AFunctionThatDoesNothingOrFailsIsFoundOut) {
  for (const Fault& fault : idle_functions()) expect_found_out(fault);
}

TEST(Proofs, AFunctionThatIsWrongIsFoundOut) {
  for (const Fault& fault : wrong_functions()) expect_found_out(fault);
}

TEST(Proofs, TheMessageNamesTheFirstDifference) {
  const WithKernels kernels([](Interface& functions) {
    functions.copy = [](auto*, auto*, auto*, auto, auto) { return true; };
  });
  EXPECT_FALSE(kernels.has(Family::kLists));
  EXPECT_THAT(kernels.messages[0], testing::HasSubstr("copy: tensor 0[0] is -4096; expected 0."));
}

TEST(Proofs, OtherFamiliesAreNotHit) {
  const WithKernels kernels([](Interface& functions) {
    functions.check = [](auto*, auto*, auto, auto*, auto) { return false; };
  });
  EXPECT_FALSE(kernels.has(Family::kLists));
  EXPECT_FALSE(kernels.has(Family::kSteps)) << "they look at gradients by lists";
  EXPECT_TRUE(kernels.has(Family::kNorms));
  EXPECT_TRUE(kernels.has(Family::kBatchNorms));
  EXPECT_TRUE(kernels.has(Family::kSplitMasters));
}

TEST(Proofs, OperatorsTakeTheFamilysPlace) {
  const WithKernels kernels(
      [](Interface& functions) { functions.scale = Idle<true, decltype(Interface::scale)>::call; });
  const at::Tensor out = at::zeros({3});
  EXPECT_TRUE(scale("test", {at::full({3}, 2.0)}, {out}, 1.5));
  EXPECT_TRUE(out.equal(at::full({3}, 3.0)));
  EXPECT_FALSE(can_split(at::zeros({3}, at::kBFloat16))) << "steps of them need lists";
}

/// Counts, and says what is being captured.
struct Watched {
  static inline int steps = 0;
  static inline std::uint64_t capturing = 0;

  static void plant(Interface& functions) {
    steps = 0;
    capturing = 0;
    functions.capture = [](Stream) { return capturing; };
    functions.adam = [](kernels::cuda::List* list, const kernels::StepRow* rows,
                        const kernels::cuda::RowState* states, std::int64_t count,
                        const kernels::AdamRecipe* recipes, std::int64_t recipe_count,
                        const kernels::cuda::StepFlags& flags, Stream stream) {
      ++steps;
      return sound().adam(list, rows, states, count, recipes, recipe_count, flags, stream);
    };
  }
};

TEST(Proofs, ACaptureUsesWhatWasProvenBeforeAlone) {
  const WithKernels kernels(Watched::plant);
  Watched::capturing = 1;
  EXPECT_FALSE(kernels.has(Family::kSteps));
  EXPECT_EQ(Watched::steps, 0) << "nothing is asked in a capture";
  Watched::capturing = 0;
  prove_kernels({at::zeros({1})});
  const int asked = Watched::steps;
  EXPECT_GT(asked, 0);
  Watched::capturing = 2;
  for (const Family family : kFamilies) EXPECT_TRUE(kernels.has(family));
  EXPECT_EQ(Watched::steps, asked) << "a proof is made once";
}

TEST(Proofs, NeitherReadNorMoveTheStateOfTheThread) {
  const WithKernels kernels([](Interface& functions) {  // not proven yet
    functions.capture = [](Stream) -> std::uint64_t { return 0; };
  });
  const at::Tensor random_before = at::detail::getDefaultCPUGenerator().get_state();
  const torch::InferenceMode inference;
  prove_kernels({at::zeros({1})});
  for (const Family family : kFamilies) EXPECT_TRUE(kernels.has(family));
  EXPECT_TRUE(random_before.equal(at::detail::getDefaultCPUGenerator().get_state()));
}

TEST(KnownAnswers, NameTheFirstThatIsWrong) {
  Answers answers;
  answers.expect("a", torch::tensor({1.0, 2.0}), torch::tensor({1.0, 2.0}), 0);
  EXPECT_EQ(answers.first_difference(), "");
  answers.expect("b", torch::tensor({100.0, 5.0}), torch::tensor({100.5, 4.0}), 0.01);
  EXPECT_EQ(answers.first_difference(), "b[1] is 5; expected 4");
  Answers nan;
  nan.expect("c", torch::tensor({NAN}), torch::tensor({NAN}), 1);
  EXPECT_EQ(nan.first_difference(), "c[0] is nan; expected nan");
}

}  // namespace
}  // namespace mezzo::bridge
