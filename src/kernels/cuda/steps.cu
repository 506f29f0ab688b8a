// A fused step is two kernels: one thread a parameter moves its counter and computes the numbers of
// this step from recipe and counter, then one block a chunk moves the elements. LAMB has its norms
// between two such passes, NovoGrad the gradients' norms before.
#include "kernels/cuda/steps.cuh"

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/reductions.cuh"
#include "kernels/cuda/step_kernel.cuh"

namespace mezzo::kernels::cuda {
namespace {

__device__ double clipping(const StepFlags& flags, double most) {
  if (flags.grad_norm == nullptr) return 1;
  const double inv_scale = flags.inv_scale == nullptr ? 1 : static_cast<double>(*flags.inv_scale);
  return clip_factor(*flags.grad_norm * inv_scale, most);
}

__device__ std::int64_t advance(const StepTensor& row) {
  return row.steps == nullptr ? 1 : ++*row.steps;
}

template <typename Recipe, typename Scalars>
__global__ void prepare(const StepTensor* rows, std::int64_t count, const Recipe* recipes,
                        StepFlags flags, Scalars* of_row) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count || skips(flags.skip)) return;
  const Recipe& recipe = recipes[rows[i].recipe];
  of_row[i] = scalars_at(recipe, advance(rows[i]), clipping(flags, recipe.max_grad_norm));
}

/// `squares` and `largest` hold what reduce_rows() found of each gradient as it stands.
__global__ void prepare_novograd(const StepTensor* rows, std::int64_t count,
                                 const NovogradRecipe* recipes, StepFlags flags,
                                 const double* squares, const double* largest,
                                 NovogradScalars<double>* of_row) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count || skips(flags.skip)) return;
  const NovogradRecipe& recipe = recipes[rows[i].recipe];
  const double inv_scale = flags.inv_scale == nullptr ? 1 : static_cast<double>(*flags.inv_scale);
  const double clip = clipping(flags, recipe.max_grad_norm);
  const double now = clip * fabs(inv_scale) * (recipe.largest ? largest[i] : sqrt(squares[i]));
  const std::int64_t step = advance(rows[i]);
  const double norm = novograd_norm(recipe, step, *rows[i].running_norm, now);
  *rows[i].running_norm = norm;
  of_row[i] = scalars_at(recipe, step, norm, clip);
}

/// The rate of LAMB's second half, from the sums that the first left.
__global__ void find_rates(const StepTensor* rows, std::int64_t count, const LambRecipe* recipes,
                           StepFlags flags, const double* sums, LambScalars<double>* of_row) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count || skips(flags.skip)) return;
  of_row[i].rate = lamb_rate(recipes[rows[i].recipe], sqrt(sums[i]), sqrt(sums[count + i]));
}

/// LAMB's first half leaves two sums a chunk: all of the weights' first, then all of the updates'.
template <bool kDouble>
__global__ void __launch_bounds__(kThreads, kDouble ? 2 : 4)
    lamb_moments_kernel(RowTable<StepTensor> table, const LambScalars<double>* of_row,
                        StepFlags flags, double* of_chunk) {
  if (skips(flags.skip)) return;
  const Part<StepTensor> part = part_of(table);
  if ((part.row.param_dtype == DType::kFloat64) != kDouble) return;
  LambMomentsStep step;
  step_row<LambMomentsStep, kDouble>(part, flags, of_row[table.row_of_chunk[blockIdx.x]], step);
  const double of_param = block_reduce<Sum, kThreads>(step.of_param, 0.0);
  const double of_update = block_reduce<Sum, kThreads>(step.of_update, 0.0);
  if (threadIdx.x == 0) {
    of_chunk[blockIdx.x] = of_param;
    of_chunk[table.chunks + blockIdx.x] = of_update;
  }
}

RowTable<StepTensor> describe(List& list, const StepRow* rows, const RowState* states,
                              std::int64_t count) {
  list.step_tensors.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    const StepRow& row = rows[i];
    StepTensor t{};
    t.param = row.param;
    t.grad = row.grad;
    t.copy = row.copy;
    t.remainder = row.remainder;
    t.ties = row.ties;
    t.count = row.count;
    t.steps = states[i].steps;
    t.running_norm = states[i].running_norm;
    t.recipe = row.scalars;
    t.param_dtype = row.param_dtype;
    t.grad_dtype = row.grad_dtype;
    t.copy_kind = row.copy_kind;
    const bool low_copy =
        row.copy_kind == CopyKind::kFloat16 || row.copy_kind == CopyKind::kBFloat16;
    const std::size_t of_state = row.param_dtype == DType::kFloat64 ? 8 : 4;
    t.packed = packable(row.param, element_size(row.param_dtype)) &&
               packable(row.grad, element_size(row.grad_dtype)) &&
               packable(row.copy, low_copy ? 2 : 4) && packable(row.remainder, 2);
    for (int s = 0; s < 3; ++s) {
      t.state[s] = row.state[s];
      t.packed = t.packed && packable(row.state[s], of_state);
    }
    list.step_tensors.push_back(t);
  }
  return list.put(list.step_tensors);
}

/// The working memory of a step on the device; ok() is false if CUDA failed.
template <typename Recipe, typename Scalars>
struct Work {
  RowTable<StepTensor> table;
  const Recipe* recipes = nullptr;
  Scalars* of_row = nullptr;
  double* numbers = nullptr;  // as many as were asked for a chunk and a row
  bool floats = false, doubles = false;

  Work(List& list, const StepRow* rows, const RowState* states, std::int64_t count,
       const Recipe* recipes_given, std::int64_t recipe_count, int numbers_each)
      : table(describe(list, rows, states, count)),
        recipes(list.put_recipes(recipes_given, recipe_count)) {
    const auto of_numbers = static_cast<std::size_t>(numbers_each * (table.chunks + count));
    auto* memory = static_cast<double*>(list.scratch(
        of_numbers * sizeof(double) + static_cast<std::size_t>(count) * sizeof(Scalars)));
    numbers = memory;
    of_row = reinterpret_cast<Scalars*>(memory + of_numbers);
    for (std::int64_t i = 0; i < count; ++i) {
      (rows[i].param_dtype == DType::kFloat64 ? doubles : floats) = true;
    }
  }
  /// Launches a kernel over all chunks, in the form for double rows, for others, or both.
  template <typename... Parameters, typename... Arguments>
  void over_chunks(const List& list, void (*of_floats)(Parameters...),
                   void (*of_doubles)(Parameters...), const Arguments&... arguments) const {
    if (table.chunks == 0) return;
    const auto chunks = static_cast<unsigned>(table.chunks);
    if (floats) launch(list.stream(), chunks, kThreads, of_floats, table, of_row, arguments...);
    if (doubles) launch(list.stream(), chunks, kThreads, of_doubles, table, of_row, arguments...);
  }
  bool ok() const { return table.rows != nullptr && recipes != nullptr && numbers != nullptr; }
};

template <typename Step, typename Recipe>
bool take(List& list, const StepRow* rows, const RowState* states, std::int64_t count,
          const Recipe* recipes, std::int64_t recipe_count, const StepFlags& flags, Stream stream) {
  using Scalars = typename Step::template Scalars<double>;
  if (count == 0) return true;
  const OnDevice on(list.device());
  if (!list.begin(stream)) return false;
  const Work<Recipe, Scalars> work(list, rows, states, count, recipes, recipe_count, 0);
  if (!work.ok()) return list.give_up();
  launch(list.stream(), blocks_for(count, kThreads), kThreads, prepare<Recipe, Scalars>,
         work.table.rows, count, work.recipes, flags, work.of_row);
  work.over_chunks(list, step_kernel<Step, false>, step_kernel<Step, true>, flags);
  return list.end();
}

}  // namespace

bool adam(List* list, const StepRow* rows, const RowState* states, std::int64_t count,
          const AdamRecipe* recipes, std::int64_t recipe_count, const StepFlags& flags,
          Stream stream) {
  return take<AdamStep>(*list, rows, states, count, recipes, recipe_count, flags, stream);
}

bool sgd(List* list, const StepRow* rows, const RowState* states, std::int64_t count,
         const SgdRecipe* recipes, std::int64_t recipe_count, const StepFlags& flags,
         Stream stream) {
  return take<SgdStep>(*list, rows, states, count, recipes, recipe_count, flags, stream);
}

bool adagrad(List* list, const StepRow* rows, const RowState* states, std::int64_t count,
             const AdagradRecipe* recipes, std::int64_t recipe_count, const StepFlags& flags,
             Stream stream) {
  return take<AdagradStep>(*list, rows, states, count, recipes, recipe_count, flags, stream);
}

bool lamb(List* list, const StepRow* rows, const RowState* states, std::int64_t count,
          const LambRecipe* recipes, std::int64_t recipe_count, const StepFlags& flags,
          Stream stream) {
  if (count == 0) return true;
  const OnDevice on(list->device());
  if (!list->begin(stream)) return false;
  const Work<LambRecipe, LambScalars<double>> work(*list, rows, states, count, recipes,
                                                   recipe_count, 2);
  if (!work.ok()) return list->give_up();
  const unsigned blocks = blocks_for(count, kThreads);
  double* sums = work.numbers + 2 * work.table.chunks;
  launch(list->stream(), blocks, kThreads, prepare<LambRecipe, LambScalars<double>>,
         work.table.rows, count, work.recipes, flags, work.of_row);
  work.over_chunks(*list, lamb_moments_kernel<false>, lamb_moments_kernel<true>, flags,
                   work.numbers);
  reduce_rows(work.table, 2, /*largest=*/false, work.numbers, sums, list->stream());
  launch(list->stream(), blocks, kThreads, find_rates, work.table.rows, count, work.recipes, flags,
         sums, work.of_row);
  work.over_chunks(*list, step_kernel<LambApplyStep, false>, step_kernel<LambApplyStep, true>,
                   flags);
  return list->end();
}

bool novograd(List* list, const StepRow* rows, const RowState* states, std::int64_t count,
              const NovogradRecipe* recipes, std::int64_t recipe_count, const StepFlags& flags,
              Stream stream) {
  if (count == 0) return true;
  const OnDevice on(list->device());
  if (!list->begin(stream)) return false;
  const Work<NovogradRecipe, NovogradScalars<double>> work(*list, rows, states, count, recipes,
                                                           recipe_count, 2);
  if (!work.ok()) return list->give_up();
  bool any_squares = false;
  bool any_largest = false;
  for (std::int64_t i = 0; i < recipe_count; ++i) {
    (recipes[i].largest ? any_largest : any_squares) = true;
  }
  double* squares = work.numbers + 2 * work.table.chunks;
  double* largest = squares + count;
  if (any_squares) {
    measure_gradients(work.table, /*largest=*/false, work.numbers, squares, list->stream());
  }
  if (any_largest) {
    measure_gradients(work.table, /*largest=*/true, work.numbers + work.table.chunks, largest,
                      list->stream());
  }
  launch(list->stream(), blocks_for(count, kThreads), kThreads, prepare_novograd, work.table.rows,
         count, work.recipes, flags, squares, largest, work.of_row);
  work.over_chunks(*list, step_kernel<NovogradStep, false>, step_kernel<NovogradStep, true>, flags);
  return list->end();
}

}  // namespace mezzo::kernels::cuda
