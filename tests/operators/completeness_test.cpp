// Compares the table with what this LibTorch really casts.
#include <ATen/core/ivalue.h>  // first: clang cannot parse ATen's other headers without it

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "operators/operators.h"

namespace mezzo {
namespace {

/// Overloads that native autocast lists and that the table leaves out on purpose, with the reason.
const std::map<std::string, std::string> kOmitted{};

/// Rows that LibTorch removed in 2.13, with the named tensors that they were for.
bool is_for_named_tensors(std::string_view name) {
  return name.find("Dimname") != std::string_view::npos ||
         name.find("dimname") != std::string_view::npos ||
         name.find(".names_") != std::string_view::npos;
}

std::string full_name(const c10::OperatorName& name) {
  std::string text = name.name.substr(std::string("aten::").size());
  if (!name.overload_name.empty()) text += "." + name.overload_name;
  return text;
}

c10::OperatorName operator_name(std::string_view row) {
  const std::size_t dot = row.find('.');
  const std::string overload(dot == std::string_view::npos ? "" : row.substr(dot + 1));
  return {"aten::" + std::string(row.substr(0, dot)), overload};
}

constexpr const char* kGuide =
    "Add a row for it in src/operators/rows/. Which class?\n"
    "  low      a sum of products that hardware does fast in 16 bits (matrix(row(...)))\n"
    "  float    losses, exponentials, powers, sums of many values, factorisations; by_dtype(...)\n"
    "           where the operator has a `dtype` argument\n"
    "  promote  several tensors that must have one type\n"
    "  neutral  moves, picks or bounds values, or keeps its own float inside\n"
    "The four letters are the classes of Apex, MXNet, LibTorch for CUDA and LibTorch for CPU.\n"
    "Or, with a reason, an entry in kOmitted of this test.";

void expect_all_listed(c10::DispatchKey key, System system) {
  auto& dispatcher = c10::Dispatcher::singleton();
  int casting = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = dispatcher.findOp(name);
    if (!handle || name.name.rfind("aten::", 0) != 0) continue;
    if (!handle->hasKernelForDispatchKey(key)) continue;
    ++casting;
    const std::string text = full_name(name);
    const auto row = index_of(text);
    if (!row) {
      EXPECT_TRUE(kOmitted.contains(text))
          << "LibTorch casts aten::" << text << " (" << c10::toString(key)
          << "), and the operator table does not know it. " << kGuide;
      continue;
    }
    EXPECT_TRUE(operators()[*row].listed_by(system))
        << "LibTorch casts aten::" << text << " (" << c10::toString(key)
        << "), but its row says '-' for that list.";
  }
  EXPECT_GT(casting, 100) << "the walk found native autocast's kernels";
}

TEST(Completeness, EveryOverloadOfNativeCpuAutocastIsInTheTable) {
  expect_all_listed(c10::DispatchKey::AutocastCPU, System::kCpu);
}

TEST(Completeness, EveryOverloadOfNativeCudaAutocastIsInTheTable) {
  expect_all_listed(c10::DispatchKey::AutocastCUDA, System::kCuda);
}

TEST(Completeness, NoRowClaimsAListThatThisLibTorchDoesNotHave) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const Operator& op : operators()) {
    const auto handle = dispatcher.findOp(operator_name(op.name));
    if (!handle) continue;
    if (op.listed_by(System::kCpu)) {
      EXPECT_TRUE(handle->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) << op.name;
    }
    // This one is registered by LibTorch's CUDA library, which a processor-only program lacks.
    if (op.listed_by(System::kCuda) && op.name != "_cudnn_rnn") {
      EXPECT_TRUE(handle->hasKernelForDispatchKey(c10::DispatchKey::AutocastCUDA)) << op.name;
    }
  }
}

TEST(Completeness, EveryRowExistsInThisLibTorch) {
  for (const Operator& op : operators()) {
    if (is_for_named_tensors(op.name)) continue;
    EXPECT_TRUE(c10::Dispatcher::singleton().findSchema(operator_name(op.name)))
        << "no operator aten::" << op.name << ": renamed or removed? Mind LibTorch 2.11 to 2.15.";
  }
}

TEST(Completeness, RowsAreFunctionalForms) {
  for (const Operator& op : operators()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(operator_name(op.name));
    if (!handle) continue;
    EXPECT_FALSE(handle->schema().is_mutable()) << op.name << ": in-place and out= follow by rule";
  }
}

TEST(Completeness, TheDtypeArgumentIsThereWhereARowCountsOnIt) {
  for (const Operator& op : operators()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(operator_name(op.name));
    if (!handle) continue;
    bool optional_dtype = false;
    for (const c10::Argument& argument : handle->schema().arguments()) {
      optional_dtype |= argument.name() == "dtype" && argument.default_value().has_value();
    }
    if (op.float_by == FloatBy::kDtypeArgument) {
      EXPECT_TRUE(optional_dtype) << op.name;
    } else if (op.class_for(DType::kFloat16) == CastClass::kFloat && !op.lacks_low) {
      EXPECT_FALSE(optional_dtype) << op.name << ": set its dtype instead of casting its input";
    }
  }
}

TEST(Completeness, PromotedRowsHaveSeveralTensors) {
  for (const Operator& op : operators()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(operator_name(op.name));
    if (!handle || op.class_for(DType::kFloat16) != CastClass::kPromote) continue;
    int tensors = 0;
    for (const c10::Argument& argument : handle->schema().arguments()) {
      const std::string type = argument.type()->str();
      if (type.find("Tensor") == std::string::npos) continue;
      tensors += type == "Tensor" || type == "Tensor?" ? 1 : 2;
    }
    EXPECT_GE(tensors, 2) << op.name;
  }
}

/// A form of a known operator that the rule does not cover would silently go uncast.
TEST(Completeness, TheRuleCoversInPlaceAndOutForms) {
  std::vector<std::string> uncovered;
  int forms = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle || name.name.rfind("aten::", 0) != 0 || !handle->schema().is_mutable()) continue;
    const std::string text = full_name(name);
    const std::string base = text.substr(0, text.find('.'));
    if (!base.ends_with("_") || base.starts_with("__")) continue;
    const std::string functional =
        base.substr(0, base.size() - 1) + text.substr(std::min(text.find('.'), text.size()));
    if (!index_of(functional)) continue;
    ++forms;
    if (!find(text)) uncovered.push_back(text);
  }
  EXPECT_GT(forms, 50);
  EXPECT_THAT(uncovered, testing::IsEmpty());
}

/// By whatever word they are called: "mm.out", "linalg_svd.U", "sort.values".
TEST(Completeness, TheRuleCoversEveryFormThatWritesItsResultsAndNoOther) {
  std::vector<std::string> uncovered;
  std::vector<std::string> mistaken;
  int forms = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle || name.name.rfind("aten::", 0) != 0) continue;
    const auto& arguments = handle->schema().arguments();
    const bool writes = std::any_of(arguments.begin(), arguments.end(),
                                    [](const c10::Argument& each) { return each.is_out(); });
    const std::string text = full_name(name);
    const auto found = find(text);
    const bool is_out = found && found->form == Form::kOut;
    if (writes) {
      ++forms;
      const auto known = resolve(text.substr(0, text.find('.')) + ".default");
      const bool has_row = !known.empty() || index_of(text.substr(0, text.find('.')));
      if (has_row && !is_out) uncovered.push_back(text);
    } else if (is_out) {
      mistaken.push_back(text);
    }
  }
  EXPECT_GT(forms, 1000);
  EXPECT_THAT(uncovered, testing::IsEmpty());
  EXPECT_THAT(mistaken, testing::IsEmpty());
}

}  // namespace
}  // namespace mezzo
