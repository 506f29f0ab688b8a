// The fused steps over a list; see steps.cu.
#pragma once

#include "kernels/cuda/list.cuh"

namespace mezzo::kernels::cuda {

bool adam(List*, const StepRow*, const RowState*, std::int64_t count, const AdamRecipe*,
          std::int64_t recipe_count, const StepFlags&, Stream);
bool sgd(List*, const StepRow*, const RowState*, std::int64_t count, const SgdRecipe*,
         std::int64_t recipe_count, const StepFlags&, Stream);
bool adagrad(List*, const StepRow*, const RowState*, std::int64_t count, const AdagradRecipe*,
             std::int64_t recipe_count, const StepFlags&, Stream);
bool lamb(List*, const StepRow*, const RowState*, std::int64_t count, const LambRecipe*,
          std::int64_t recipe_count, const StepFlags&, Stream);
bool novograd(List*, const StepRow*, const RowState*, std::int64_t count, const NovogradRecipe*,
              std::int64_t recipe_count, const StepFlags&, Stream);

}  // namespace mezzo::kernels::cuda
