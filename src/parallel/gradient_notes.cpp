// Notes that ranks send each other behind their gradients, and what follows from it.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "parallel/agreement.h"
#include "parallel/gradient_reducer.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kInGradientNotes = "DistributedDataParallel";
constexpr double kSomebody = 0.5;

at::Tensor tensor_of_notes(const std::vector<double>& notes) {
  at::Tensor result = at::empty({static_cast<std::int64_t>(notes.size())}, at::kDouble);
  std::copy(notes.begin(), notes.end(), result.mutable_data_ptr<double>());
  return result;
}

// The places where another number than the one before begins, and the end.
std::vector<std::int64_t> ends_of_runs(const std::vector<double>& notes) {
  std::vector<std::int64_t> ends;
  for (std::size_t i = 1; i <= notes.size(); ++i) {
    if (i == notes.size() || notes[i] != notes[i - 1]) ends.push_back(static_cast<std::int64_t>(i));
  }
  return ends;
}

// On a device by fills, whose numbers go with the launch: the host waits for nothing, and a graph
// can hold them. Ones of parameters and zeros of ranks are two runs.
void write_notes(const at::Tensor& there, const std::vector<double>& notes) {
  constexpr std::size_t kMostRuns = 16;
  const std::vector<std::int64_t> ends = ends_of_runs(notes);
  if (there.is_cpu() || ends.size() > kMostRuns) {
    // Memory that is not pinned was read when this returns.
    there.copy_(tensor_of_notes(notes).to(there.scalar_type()), /*non_blocking=*/true);
    return;
  }
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    there.narrow(0, begin, end - begin).fill_(notes[static_cast<std::size_t>(begin)]);
    begin = end;
  }
}

// How many ranks agreed to each note.
std::vector<double> counts_in(const std::vector<DeviceNumbers>& sums, const AverageScale& scale) {
  const double unit = scale.before * scale.after;
  std::vector<double> counts;
  for (const DeviceNumbers& of_bucket : sums) {
    for (const double sum : of_bucket.read()) counts.push_back(sum / unit);
  }
  return counts;
}

}  // namespace

void GradientReducer::put_notes(const at::Tensor& there, const std::vector<double>& notes) {
  notes_.insert(notes_.end(), notes.begin(), notes.end());
  if (group_.size() > 1) write_notes(there, notes);  // else nobody reads them
}

// Has this rank something to learn from the notes before it goes on? Reading them costs a GPU a
// stop. It has not if it lacks no gradient, and what would be an error elsewhere changes nothing in
// what it does next. (Where a backward broke off, what came of it is not finite.)
bool GradientReducer::must_know() const {
  if (!order_agreed_) return true;
  if (!settings_.unused_allowed) return false;  // an error, of which all ranks hear in the next one
  for (std::size_t i = 0; i < arrived_.size(); ++i) {
    if (!arrived_[i] && !was_defined_[i]) return true;
  }
  return false;
}

// How many ranks agreed to each note on each bucket; empty if this rank goes on without.
std::vector<double> GradientReducer::read_notes() {
  if (sender_.has_hook()) return sender_.sum(notes_);
  if (group_.size() == 1) return notes_;
  bool on_device = false;
  for (int b = 0; b < buckets_->count(); ++b) {
    on_device = on_device || !buckets_->flat(b).is_cpu();
  }
  const bool goes_on = on_device && !must_know();
  if (goes_on && settings_.unused_allowed) return {};
  std::vector<DeviceNumbers> sums;
  sums.reserve(static_cast<std::size_t>(buckets_->count()));
  for (int b = 0; b < buckets_->count(); ++b) sums.emplace_back(buckets_->notes(b));
  if (!goes_on) return counts_in(sums, terms_.scale);
  unheard_ = Unheard{std::move(sums), terms_};
  return {};
}

// All ranks come here before anything of the next backward travels, and raise the same. One whose
// backward broke off has heard nothing and goes on, and so do all others then.
void GradientReducer::hear_of_last_backward() {
  if (!unheard_) return;
  const Unheard last = *std::exchange(unheard_, std::nullopt);
  const ranks::BucketReport report = ranks::read_bucket_notes(
      schedule_->plan(), counts_in(last.notes, last.terms.scale), group_.size());
  if (!report.broke_off) check_use(report, last.terms.ranks);
}

void GradientReducer::check_use(const ranks::BucketReport& report, int ranks) const {
  if (settings_.unused_allowed) return;
  std::string unused;
  for (const ranks::Bucket& bucket : schedule_->plan().buckets) {
    for (int parameter : bucket.parameters) {
      if (report.users[index(parameter)] < ranks - kSomebody) {
        unused += " '" + name_of(parameter) + "'";
      }
    }
  }
  if (unused.empty()) return;
  raise(kInGradientNotes,
        "with find_unused_parameters = false every parameter needs a gradient on every ",
        "rank; these had none somewhere:", unused);
}

void GradientReducer::settle(const std::vector<double>& notes) {
  if (notes.empty()) return mark_reduced(std::nullopt);
  const ranks::BucketReport report =
      ranks::read_bucket_notes(schedule_->plan(), notes, group_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool is_new = !arrived_[i] && !was_defined_[i];
    if (is_new && report.users[i] > kSomebody) {
      parameters_[i].tensor.mutable_grad() = buckets_->view(static_cast<int>(i));
    }
  }
  if (report.broke_off) {
    raise(kInGradientNotes,
          "a backward pass broke off on another rank: the gradients of this step are ",
          "incomplete on all ranks");
  }
  check_use(report, terms_.ranks);
  const bool looked = overflow_watches() > 0 && buckets_->flat(0).is_cpu();
  mark_reduced(looked ? std::optional(report.nonfinite_ranks) : std::nullopt);
}

}  // namespace mezzo::parallel
